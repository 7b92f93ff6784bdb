"""The parts of samplers: windows, heads, signals, schedules, the weighted draw, scripts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from magellan.competence import Outcomes
from magellan.competence.ensemble import Ensemble, EnsembleSettings
from magellan.competence.windows import PerGoalWindows
from magellan.core.errors import NotFiniteError
from magellan.core.registry import is_built_in
from magellan.curriculum import Curriculum
from magellan.samplers import SAMPLERS, GoalSampler, SamplerParts, make_sampler, register_sampler
from magellan.samplers.base import NEVER
from magellan.samplers.choice import WeightedChoice
from magellan.samplers.conformance import TEN_GOALS, FewGoals, exploration, make
from magellan.samplers.rules import Rule
from magellan.samplers.scripted import ScriptedSettings
from magellan.samplers.selection import by_rank, nearest_draw
from magellan.worlds.texts import TextGoals
from tests.runs import printed, refuses
from tests.samplers.few_goals import outcomes


@pytest.mark.parametrize(
    ("history", "now", "delayed"),
    [
        ([], 0, 0),
        ([1], 0, 0),  # one success is not yet a rate
        ([0, 1], 1, 0),
        ([1, 0], 0, 1),
        ([0, 1, 1], 1, 0),  # 0 | 1 1; with 0 1 | 1 the older half would be at 1/2
        ([1, 1, 0], 1 / 2, 1),
        ([1, 0, 1, 0, 0], 1 / 3, 1 / 2),  # 1 0 | 1 0 0
        ([1] * 30 + [0, 1, 0] * 40, 17 / 50, 16 / 50),  # the last 100 count
    ],
)
def test_halves_of_a_window(history, now, delayed):
    """Oldest outcome first. A goal that was not touched is not reported as changed."""
    estimator = PerGoalWindows(FewGoals([1] * 3))
    estimator.update(outcomes(*((1, success) for success in history)))
    assert estimator.changed().tolist() == [1] * bool(history)
    estimator.update(outcomes())
    assert estimator.changed().tolist() == []
    expected = [[0, now, 0], [0, delayed, 0]]
    np.testing.assert_allclose(estimator.competence(np.arange(3)), expected)


def test_epsilon_of_the_released_code():
    for step, value in [(0, 1), (100, 0.785), (320, 0.494), (1000, 0.235), (100_000, 0.2)]:
        assert exploration()(step) == printed(value, 3)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101])
def test_weighted_draw_of_any_size(n):
    """Weight k for position k, position 0 never; 5 standard errors over 100,000 draws."""
    choice, draws = WeightedChoice(n + 1), 100_000
    choice.set(np.arange(n + 1), np.arange(n + 1.0))
    frequencies = np.bincount(choice.draw(np.random.default_rng(3), draws), minlength=n + 1) / draws
    expected = np.arange(n + 1) / (n * (n + 1) / 2)
    assert frequencies[0] == 0.0
    error = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(frequencies - expected) <= 5 * error).all()


def test_a_small_temperature_of_ranks_leaves_the_best_arms_their_weight():
    """Also where a thousand share the first rank: 500 ** -1000 is 0 in float64."""
    scores = np.append(np.zeros(500), np.ones(1000))
    assert by_rank(scores, 0.001).tolist() == [0.0] * 500 + [1.0] * 1000


def test_the_nearest_draw_is_what_simulation_finds():
    """400,000 times the nearest of four draws to .4: each frequency within five standard errors,
    and what quadrature with 64 bins misses. Counts may be fractions, and arms may be alike."""
    won = np.array([1.0, 1.0, 2.0, 5.0, 50.0, 1.5, 30.0, 3.7])
    lost = np.array([1.0, 1.0, 5.0, 2.0, 50.0, 1.2, 1.0, 3.2])
    chances = nearest_draw(won, lost, 0.4, 4)
    rng, n = np.random.default_rng(0), 400_000
    drawn = rng.integers(8, size=(n, 4))
    distances = np.abs(rng.beta(won[drawn], lost[drawn]) - 0.4)
    winners = drawn[np.arange(n), distances.argmin(axis=1)]
    frequencies = np.bincount(winners, minlength=8) / n
    assert chances.sum() == pytest.approx(1.0)
    assert chances[0] == chances[1]
    error = np.sqrt(chances * (1 - chances) / n)
    assert (np.abs(frequencies - chances) <= 5 * error + 2e-4).all()


@pytest.mark.parametrize(
    ("name", "solved", "answers", "settings"),
    [
        ("insight", 1, 8, {"insight": {"mu": 0.5}}),
        ("insight", 3, 8, {"insight": {"eta": 0.0}}),
        ("pcl", 3, 10, {"samplers": {"estimator": "per_goal"}}),
    ],
)
def test_goals_as_good_but_for_rounding_share_their_probability(name, solved, answers, settings):
    """Success rates of p and 1 - p, which these constants do not tell apart."""
    curriculum = Curriculum(list("abcdefgh"), name, settings=settings)
    k = np.where(np.arange(8) % 2, solved, answers - solved)
    curriculum.update(np.repeat(np.arange(8), answers), (np.arange(answers) < k[:, None]).ravel())
    np.testing.assert_allclose(curriculum.probabilities(), 1 / 8)


def test_a_draw_of_exactly_zero_skips_weights_of_zero():
    """Nine positions are three blocks of three: the first block is empty, and so are 3 and 4."""
    choice = WeightedChoice(9)
    choice.set(np.array([5, 8]), np.array([0.5, 0.5]))
    assert choice.draw(SimpleNamespace(random=np.zeros), 2).tolist() == [5, 5]


def test_weights_set_piece_by_piece_draw_as_those_set_at_once():
    """To the last bit, or a resumed run would part from one that was never stopped."""
    rng = np.random.default_rng(0)
    pieces, at_once = WeightedChoice(1_000), WeightedChoice(1_000)
    for _ in range(200):
        positions = rng.choice(1_000, 7, replace=False)
        pieces.set(positions, rng.random(7))
    at_once.set(np.arange(1_000), pieces.weights)
    assert pieces.total == at_once.total
    drawn = [choice.draw(np.random.default_rng(1), 5_000) for choice in (pieces, at_once)]
    np.testing.assert_array_equal(*drawn)


def test_only_weights_above_zero_are_stored():
    """Four weights among 19.5 million: two blocks, and draws at the right places."""
    choice = WeightedChoice(19_531_250)
    places = np.array([5, 6, 400, 19_531_249])
    choice.set(np.arange(0, 19_531_250, 100_000), np.zeros(196))
    choice.set(places, np.array([1.0, 0.0, 2.0, 1.0]))
    assert choice._rows.nbytes < 100_000
    drawn = choice.draw(np.random.default_rng(0), 2_000)
    positions, counts = np.unique(drawn, return_counts=True)
    assert positions.tolist() == [5, 400, 19_531_249]
    np.testing.assert_allclose(counts / 2_000, [0.25, 0.5, 0.25], atol=0.05)
    choice.set(places, np.array([0.0, 3.0, 0.0, 0.0]))
    assert set(choice.draw(np.random.default_rng(0), 50).tolist()) == {6}
    choice.set(places, np.zeros(4))
    assert choice.total == 0.0


def remembering(memory, goals=6):
    """A sampler, and its rule, which remembers an array like this one."""

    class Remembering(Rule):
        def start(self, n_arms):
            self.best = np.zeros_like(memory)

        def observe(self, arm, success, advantage):
            self.best += 1

        def weights(self, arms):
            return np.ones(goals)

    rule = Remembering()
    return rule, GoalSampler(FewGoals([1] * goals), None, rule, NEVER, np.random.default_rng(0))


def test_a_number_that_a_rule_changes_would_be_lost():
    class Counting(Rule):
        def start(self, n_arms):
            self.seen = 0

        def observe(self, arm, success, advantage):
            self.seen += 1

        def weights(self, arms):
            return np.ones(len(arms.tries))

    sampler = GoalSampler(TEN_GOALS, None, Counting(), NEVER, np.random.default_rng(0))
    sampler.state_dict()
    sampler.update(outcomes((1, 1)))
    refuses("^rule: seen: 1 is not allowed, after 0: .*; allowed: an array", sampler.state_dict)


@pytest.mark.parametrize(
    "memory", [np.zeros(6, bool), np.full(6, -np.inf), np.full(6, np.nan), np.array(2.0)]
)
def test_a_rule_remembers_numbers_of_any_kind(memory):
    (rule, first), (other, second) = (remembering(memory) for _ in range(2))
    rule.best[...] = memory
    state = first.state_dict()
    second.load_state_dict(state)
    np.testing.assert_array_equal(other.best, memory)
    second.inherit_state(first)
    state["choice"]["rule"]["best"] = np.zeros(5)
    refuses(r"^best: float64 \(5,\) is not allowed; allowed: ", second.load_state_dict, state)


def test_memory_of_no_arm_is_not_taken_for_that_of_an_only_goal():
    (counted, ten), (one, only) = (remembering(np.zeros(1), goals) for goals in (10, 1))
    ten.update(outcomes((0, 1), (3, 0)))
    only.inherit_state(ten)
    assert (counted.best.tolist(), one.best.tolist()) == ([2], [0])


def scripted(*stages, seed=0, by_seed=None):
    """The sampler `scripted` over one goal of category 0, two of 1 and one of 3."""
    goals, rng = FewGoals([0, 1, 3, 1]), np.random.default_rng(0)
    parts = SamplerParts(goals, rng, exploration(), seed=seed)
    return make_sampler("scripted", parts, ScriptedSettings(stages=stages, by_seed=by_seed or {}))


def test_a_script_sets_the_shares_of_categories_stage_by_stage():
    first, second = (1, 6, 0, 1, 0), (0, 0, 0, 5, 0)
    sampler = scripted({"updates": 2, "shares": first}, {"updates": 1, "shares": second})
    expected = [[1 / 8, 3 / 8, 1 / 8, 3 / 8]] * 2 + [[0, 0, 1, 0]] * 3  # the last one lasts
    for probabilities in expected:
        assert sampler.probabilities().tolist() == probabilities
        drawn = np.bincount(sampler.sample(4000), minlength=4) / 4000
        assert np.abs(drawn - probabilities).max() < 0.03
        sampler.update(outcomes((0, 1)))


def test_a_script_can_belong_to_a_seed():
    own = {2: [{"shares": (1, 0, 0, 0, 0)}]}
    for seed, expected in ((1, [0, 0, 1, 0]), (2, [1, 0, 0, 0])):
        sampler = scripted({"shares": (0, 0, 0, 1, 0)}, seed=seed, by_seed=own)
        assert sampler.probabilities().tolist() == expected


@pytest.mark.parametrize("shares", [(1, 1), (1, 1, 1, 1, 0)])
def test_a_script_for_other_categories_is_refused(shares):
    refuses(r"scripted\.stages: shares .* allowed: 5 numbers, 0 for", scripted, {"shares": shares})
    refuses(r"scripted\.by_seed\.3: shares", scripted, seed=3, by_seed={3: [{"shares": shares}]})


def of_own(signal, estimator="per_goal"):
    """A sampler with this signal, made as a run makes it."""
    register_sampler("own", estimator=estimator)(
        lambda parts, _: GoalSampler(parts.goals, parts.estimator, signal, parts.epsilon, parts.rng)
    )
    return make("own")


def test_a_signal_of_untried_goals_counts_from_the_start():
    """Weight 1 at competence 0; goal 1 has now 1, weight 0, goal 2 has now 0: nine goals of 1/9."""
    sampler = of_own(lambda now, delayed: 1.0 - now)
    np.testing.assert_allclose(sampler.probabilities(), 0.1)
    sampler.update(outcomes((1, 1), (2, 0), (1, 1), (2, 0)))
    chosen = np.where(np.arange(10) == 1, 0.0, 1 / 9)
    epsilon = sampler.epsilon
    np.testing.assert_allclose(sampler.probabilities(), epsilon / 10 + (1 - epsilon) * chosen)


def test_weights_whose_sum_is_infinite_are_refused():
    with pytest.raises(NotFiniteError, match=r"sampler own .* must have a finite sum"):
        of_own(lambda now, delayed: np.full(len(now), 1e308))


@pytest.mark.parametrize(("sign", "shown"), [(-1.0, "-0.5"), (np.inf, "inf")])
def test_an_impossible_weight_names_the_sampler_and_its_file(sign, shown):
    sampler = of_own(lambda now, delayed: np.where(now > delayed, sign * 0.5, 0.0))
    words = rf"sampler own \(.*test_parts\.py\): .* gives {shown} for competence 1 now and 0 delay"
    with pytest.raises(NotFiniteError, match=words):
        sampler.update(outcomes((1, 0), (1, 1)))


def test_half_of_the_samplers_need_at_most_45_lines():
    """A sampler is a file of this size; what several share is in other files."""
    files = {Path(spec.source) for spec in SAMPLERS.values() if is_built_in(spec)}
    assert np.median([len(file.read_text().splitlines()) for file in files]) <= 45


KINDS = np.eye(3, dtype=np.float32)


def numbered(*codes):
    """Goals of three kinds, known by numbers; the kind is all that their features tell."""
    return TextGoals(TEN_GOALS.world, np.array(codes))


def features(goals, positions=None):
    return KINDS[(goals.indices if positions is None else goals.indices[positions]) % 3]


def made(goals, seed=0):
    settings = EnsembleSettings(learning_rate=0.02, batch_size=32, delay=20)
    return Ensemble(goals, features, settings, np.random.default_rng(seed))


def practised(estimator, updates):
    """Goals 0 and 3, of kind 0, succeed; goal 1 fails; kind 2 is never tried."""
    for _ in range(updates):
        estimator.update(Outcomes(np.array([0, 1, 3]), np.array([1, 0, 1])))
    return estimator


SIX = numbered(0, 1, 2, 3, 4, 5)


def test_heads_agree_on_what_they_have_seen_and_not_on_what_they_have_not():
    before = made(SIX).uncertainty(np.arange(6))
    estimator = practised(made(SIX), 200)
    now, delayed = estimator.competence(np.arange(6))
    assert now[[0, 3]].min() > 0.95
    assert now[[1, 4]].max() < 0.05
    assert np.abs(now - delayed).max() < 0.05
    after = estimator.uncertainty(np.arange(6))
    assert (after[[0, 1, 3, 4]] < before[[0, 1, 3, 4]] / 3).all()
    assert after[2] > 5 * after[:2].max()


def test_delayed_competence_is_that_of_so_many_updates_ago():
    estimator = practised(made(SIX), 7)
    then = estimator.competence(np.arange(6))[0]
    _, delayed = practised(estimator, 20).competence(np.arange(6))
    np.testing.assert_array_equal(delayed, then)


def test_it_goes_on_with_other_goals_and_predicts_for_any():
    """Goals 3 and 1 stay, in other places; 7 is of the kind of 1, and 9 of that of 3."""
    estimator = practised(made(SIX), 200)
    expected = estimator.competence(np.array([3, 1, 1, 3]))
    others = numbered(3, 1, 7, 9)
    np.testing.assert_allclose(estimator.predict(others, np.arange(4)), expected)
    estimator.set_goal_space(others)
    np.testing.assert_allclose(estimator.competence(np.arange(4)), expected)
    assert sorted(set(estimator._buffer[: estimator._episodes, 0])) == [-1, 0, 1]
    estimator.update(Outcomes(np.array([2]), np.array([0])))
    assert estimator.competence(np.array([2]))[0] < 0.05
