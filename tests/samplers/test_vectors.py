"""Conformance: recorded outcomes, and the probabilities that each rule's formula gives for them.

Probabilities are worked out here, by hand or from a formula written down anew, and not with the
package's own functions. Where the authors' code can be read, file and lines are named; that of E2H
and DUMP, run on these streams, gives the same numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb, exp, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, rankdata, zscore

from magellan.competence import Outcomes
from magellan.competence.arms import Regions
from magellan.core.errors import InputError, NotFiniteError
from magellan.samplers import SAMPLERS, SamplerParts, make_sampler
from magellan.samplers.conformance import TEN_GOALS, FewGoals, estimator_of, exploration, make
from magellan.samplers.insight import information
from magellan.worlds.little_zoo import WholeSpace
from tests.runs import printed, refusal
from tests.samplers.few_goals import Given, outcomes

GOALS = FewGoals([1, 1, 2, 2, 0])
"""Goals 0 and 1 are of one category, 2 and 3 of another, 4 is impossible."""

# Episodes of each policy update: goal, success, |return - value|.
STREAM = [
    [(0, 0, 0.3), (1, 0, 0.2), (2, 1, 0.9), (3, 0, 0.1)],
    [(0, 1, 0.7), (1, 0, 0.1), (2, 1, 0.5)],
    [(0, 1, 0.2), (1, 0, 0.1), (2, 1, 0.2), (1, 0, 0.1)],
    [(0, 0, 0.6), (1, 1, 0.8), (3, 1, 0.4)],
    [],
]
HISTORY = {0: [0, 1, 1, 0], 1: [0, 0, 0, 0, 1], 2: [1, 1, 1], 3: [0, 1], 4: []}
"""The same, goal by goal. Halves of windows: 0 1 | 1 0; 0 0 | 0 0 1; 1 | 1 1; 0 | 1."""

ESTIMATES = {
    "now": [0.5, 0.33, 0.9, 0.105, 0.2],
    "delayed": [0.5, 0.03, 1.0, 0.1, 0.7],
    "uncertainty": [0.1, 0.0, 0.3, 0.05, 0.05],
}
"""What a learned estimator might predict."""


def even(weights):
    return np.array([float(weight) for weight in weights]) / float(sum(weights))


def plr():
    """Last |return - value|: .6, .8, .2, .4, so ranks 2, 1, 4, 3; weights 1 / rank ** (1 / .1).

    The last episode was one update ago, of goal 2 two: shares of staleness 1/5, 1/5, 2/5, 1/5.
    facebookresearch/level-replay, level_replay/level_sampler.py:262-280, 295-299.
    """
    ranked = even([Fraction(1, rank**10) for rank in (2, 1, 4, 3)])
    return np.append(0.9 * ranked + 0.1 * even([1, 1, 2, 1]), 0.0)


def mopps():
    """Beta(1 + successes, 1 + failures): (3, 3), (2, 5), (4, 1), (2, 2), (1, 1).

    A goal wins with draw x if all of the 15 other candidates, each any of five goals, are farther
    from .5. The density of its distance d and everybody's chance to be farther are polynomials of
    degree below 7, so Gauss-Legendre with 64 nodes integrates exactly.
    thu-rllab/MoPPS, recipe/ours/mopps.py:45-51, 77-78.
    """
    counts = [(1 + sum(past), 1 + len(past) - sum(past)) for past in HISTORY.values()]
    laws = beta(*np.array(counts, float).T[:, :, None])
    nodes, weights = np.polynomial.legendre.leggauss(64)
    d = (nodes + 1) / 4
    farther = 1 - (laws.cdf(0.5 + d) - laws.cdf(0.5 - d)).mean(axis=0)
    wins = laws.pdf(0.5 + d) + laws.pdf(0.5 - d)
    return (weights / 4 * wins * 16 / 5 * farther**15).sum(axis=1)


def fast_slow():
    """fast_t = sum of .1 * .9 ** (t - i) * x_i, slow_t the same of fast; p (1 - .1) / (p + .1 (1 -
    2 p)); z-scores of the distance over goals that ever succeeded; their logistic function.

    jennyzzt/omni, train.py:232-241, envs/env_tr_lp.py:29-38.
    """

    def averaged(values):
        ends = range(1, len(values) + 1)
        return [sum(0.1 * 0.9 ** (t - 1 - i) * values[i] for i in range(t)) for t in ends]

    def reweighed(p):
        return 0.9 * p / (p + 0.1 * (1 - 2 * p))

    fast = [averaged(HISTORY[goal]) for goal in range(4)]
    progress = [abs(reweighed(f[-1]) - reweighed(averaged(f)[-1])) for f in fast]
    return np.append(even(list(1 / (1 + np.exp(-zscore(progress))))), 0.0)


def bots(forget, implicit):
    """Counts <- (1 - forget) counts + forget + new; of goals not played, implicit * .2 p answers.

    All groups have one answer. 3.5 goals an update: a draw is the nearest of 5 / 3.5. Densities on
    a grid. modelscope/Trinity-RFT, trinity/buffer/selector: diff_estimator.py:40-55, 79-104.
    """
    won, lost = np.ones((2, 5))
    for episodes in STREAM[:4]:
        new = np.zeros((2, 5))
        for goal, success, _ in episodes:
            new[1 - success, goal] += 1
        played, p = new.sum(axis=0) > 0, np.array(ESTIMATES["now"])
        answers = new.sum() / played.sum()
        won = (1 - forget) * won + forget + np.where(played, new[0], implicit * answers * p)
        lost = (1 - forget) * lost + forget + np.where(played, new[1], implicit * answers * (1 - p))
    x = (np.arange(20_000) + 0.5) / 20_000
    density = x ** (won[:, None] - 1) * (1 - x) ** (lost[:, None] - 1)
    by_distance = (density + density[:, ::-1])[:, :10_000][:, ::-1]
    by_distance /= by_distance.sum(axis=1, keepdims=True)
    nearer = by_distance.mean(axis=0).cumsum()
    chance = by_distance * (1 - np.append(0, nearer[:-1])) ** (5 / 3.5 - 1)
    return even(list(chance.sum(axis=1)))


TWICE = [[(0, 1, 0), (0, 0, 0), (1, 0, 0), (3, 1, 0)], [(0, 0, 0), (1, 0, 0), (2, 1, 0)], []]
"""Goal 0 is half solved in the first update."""


def dps():
    """Goal by goal: transition counts halved to 1 each update, and the predicted second state.

    maoyixiu/DPS, recipe/dps/task_sampler.py:70-115, 160-208.
    """
    partly = []
    for goal in range(5):
        counts, before, state = np.ones((3, 3)), np.full(3, 1 / 3), np.full(3, 1 / 3)
        for episodes in TWICE:
            seen = {success for played, success, _ in episodes if played == goal}
            now = np.eye(3)[1 if len(seen) > 1 else 2 * seen.pop()] if seen else state
            moved = np.outer(now, before) * counts / counts.sum(axis=0)
            any_seen = any(played == goal for played, *_ in episodes)
            counts = 0.5 * counts + 0.5 + any_seen * moved / moved.sum()
            before, state = now, counts / counts.sum(axis=0) @ now
        partly.append(round(state[1], 9))
    return likeliest(partly, 3)


def likeliest(scores, among):
    """Chance of the largest score among so many of the goals, drawn with replacement."""
    lower, not_higher = rankdata(scores, "min") - 1, rankdata(scores, "max")
    chances = (not_higher**among - lower**among) / len(scores) ** among
    return chances / (not_higher - lower)  # shared by equal ones


def insight():
    """p (1 - p) exp(-3 (p - .3)^2) times entropy before minus mean entropy after one answer."""
    entropy, scores = beta.entropy, []
    for past in HISTORY.values():
        a, b = 1 + sum(past), 1 + len(past) - sum(past)
        p = a / (a + b)
        gain = entropy(a, b) - p * entropy(a + 1, b) - (1 - p) * entropy(a, b + 1)
        scores.append(p * (1 - p) * exp(-3 * (p - 0.3) ** 2) * gain)
    return likeliest(scores, 16)


def cdas():
    """Difficulties and ability; a batch is of three goals, half on each side if there are.

    DeyangKong/CDAS, verl/utils/dataset/rl_cdas_dataset.py:40-80, 105-141.
    """
    difficulty, ability, seen = [0.0] * 5, 0.0, [1] * 5
    for episodes in STREAM:
        before = [*difficulty]
        for goal in {goal for goal, *_ in episodes}:
            won = [success for played, success, _ in episodes if played == goal]
            surprise = 1 / (1 + exp(before[goal] - ability)) - sum(won) / len(won)
            seen[goal] += 1
            difficulty[goal] += (surprise - before[goal]) / seen[goal]
        ability -= (sum(difficulty) - sum(before)) / 5
    order = sorted(range(5), key=lambda goal: difficulty[goal])
    easier = [goal for goal in reversed(order) if difficulty[goal] <= ability]
    harder = [goal for goal in order if difficulty[goal] > ability]
    assert (len(easier), len(harder)) == (4, 1)  # so the batch takes two of the easier
    return np.array([1 / 3 if goal in easier[:2] + harder else 0.0 for goal in range(5)])


@dataclass
class Vector:
    """Settings and estimates of a sampler, and what it must then draw, without exploration."""

    sampler: str
    expected: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    estimates: Mapping[str, list[float]] | None = None
    stream: list = field(default_factory=lambda: STREAM)
    rtol: float = 1e-9


# Categories 0 to 4, evaluated: progress 0 (impossible, never exploited), .3, .1, 0, 0.
EVALUATED = {"now": [0.9, 0.5, 0.2, 0.0, 0.0], "delayed": [0.0, 0.2, 0.1, 0.0, 0.0]}
# 25 times goal 0, which succeeds every second time, then goal 2 or 3, which never does.
MEANS = {"now": [0.5, 0.2], "delayed": [0.2, 0.3]}
ASKED = {"ask_every": 5}
REGIONS = [[(0, turn % 2, 0.0), (2 + turn % 2, 0, 0.0)] for turn in range(25)]

VECTORS = [
    Vector("random", [1 / 5] * 5),
    # Equal shares of the categories that can be reached, then any goal.
    Vector("scripted", [1 / 4, 1 / 4, 1 / 4, 1 / 4, 0]),
    # |now - delayed|: 0, 1/3, 0, 1, 0.
    Vector("online", [0, 1 / 4, 0, 3 / 4, 0]),
    # Category 1: 0 0 1 0 | 1 0 0 0 1 is |2/5 - 1/4| = 3/20; category 2: 1 0 | 1 1 1 is 1/2.
    Vector("ek_online", [3 / 26, 3 / 26, 5 / 13, 5 / 13, 0]),
    Vector("ek_eval", [3 / 8, 3 / 8, 1 / 8, 1 / 8, 0], estimates=EVALUATED),
    # |now - delayed|: 0, .3, .1, .005, .5; below .01 is 0.
    Vector("magellan", even([0, 0.3, 0.1, 0, 0.5]), estimates=ESTIMATES),
    # Two regions, goals 0, 1, 4 and 2, 3: |now - delayed| of their means .3 and .1, that is 3 : 1.
    Vector("regions", [1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 4], {}, MEANS),
    # p (1 - p): 1/4, 2/9, 0, 0, 0, that is 9 : 8.
    Vector("learnability", [9 / 17, 8 / 17, 0, 0, 0]),
    # machine-teaching-group/tmlr2023_proximal-curriculum-rl, abstract_classes/AbstractGymWrapper.py
    # lines 134 and 135, main.py:26.
    Vector("procurl", even([exp(5), exp(40 / 9), 1, 1, 1])),
    Vector("plr", plr()),
    Vector("mopps", mopps(), rtol=2e-3),  # our quadrature has 64 bins
    # With lambda = 0 the last outcome alone counts: Beta(1, 2), three times (2, 1), and (1, 1). The
    # density of all these at .5 - d and .5 + d sums to 2: every distance is as likely.
    Vector("mopps", [1 / 5] * 5, {"discount": 0}, rtol=1e-4),
    # Distances from .5: 0, .17, .4, .395, .3, so places 1, 2, 5, 4, 3. The nearest of four with
    # replacement is in place r or behind with chance ((6 - r) / 5) ** 4.
    Vector("pcl", even([625 - 256, 256 - 81, 1, 16 - 1, 81 - 16]), estimates=ESTIMATES),
    Vector("fast_slow", fast_slow()),
    # Last outcomes repeated: 0, 0, 2, 0, 0 times; .5 ** 2 of a chance for goal 2.
    # Infini-AI-Lab/GRESO, verl/trainer/ttis/presampling_selector.py:109-117, 134-142.
    Vector("greso", even([4, 4, 1, 4, 4])),
    # p of easy goals after 4, 8, 12 episodes, of which 0, 2, 1 repeat a success (at most 1/12 is
    # aimed at): .51, .50, .49. Same file's ray_trainer.py:1211-1219.
    Vector("greso", even([1, 1, 0.49**2, 1, 1]), {"batch": 4}),
    # Success rates 1/2 and 1/3 are normal, 1 and 1 easy; goal 4 is not rated.
    # PrimeIntellect-ai/prime-rl, src/prime_rl/orchestrator/curriculum/samplers/pool.py:49-65.
    Vector("pools", [5 / 17, 5 / 17, 1 / 17, 1 / 17, 5 / 17]),
    # zzyunzhi/vds, baselines/her/goal_sampler.py:7, 42-54.
    Vector("vds", even([0.1, 0, 0.3, 0.05, 0.05]), estimates=ESTIMATES),
    # Features make goals 0 and 1 one place and the others another, far away. Progress is 1 at the
    # first (0 for its first three episodes, before there are six) and 0 at the second, so that two
    # Gaussians stand there: half of .8 for 0 and 1, and a fifth of .2 for all.
    # flowersteam/teachDeepRL, teachDRL/teachers/algos/alp_gmm.py:20-35, 116-134.
    Vector("alp_gmm", [0.44] * 2 + [0.04] * 3, {"fit_every": 50, "most": 2}, None, REGIONS, 1e-3),
    # Square roots of .5, .33, .9, 1, .2 are .71, .57, .95, 1, .45: levels 2, 2, 3, 3, 1 of 0 to 3.
    # Three levels share .7; goals 0 and 1 share one half of .3, the others the other half.
    Vector(
        "frontier",
        [0.7 / 6 + 0.075, 0.7 / 6 + 0.075, 0.7 / 6 + 0.05, 0.7 / 6 + 0.05, 0.7 / 3 + 0.05],
        {"levels": 4, "explore": 0.3, "kinds": 2},
        {**ESTIMATES, "now": [0.5, 0.33, 0.9, 1.0, 0.2]},
    ),
    Vector("goldilocks", even([sqrt(p * (1 - p)) for p in ESTIMATES["now"]]), {}, ESTIMATES),
    Vector("bots", bots(0.1, 0.1), {}, ESTIMATES, rtol=5e-3),
    Vector("bots", bots(0.5, 1.0), {"forget": 0.5, "implicit": 1.0}, ESTIMATES, rtol=5e-3),
    Vector("dps", dps(), {"decay": 0.5, "candidates": 3}, stream=TWICE),
    Vector("insight", insight()),
    Vector("cdas", cdas()),
    # Scripted answers at the fifth update. Successes of tries: 2/4, 1/5, 3/3, 1/2, 0/0 for goals 0
    # to 4; (k + 1) / (n + 2) is largest for goal 2, 4/5; then for 0, 3 and 4, 1/2, of which 3 was
    # the last to succeed. A proposal of two goals adds the nearest by features, 3 to 2.
    Vector("experimenter_goals", [0, 0, 1, 0, 0], {**ASKED, "proposals": 1, "retrieved": 1}),
    Vector("experimenter_goals", even([0, 0, 1, 1, 0]), {**ASKED, "proposals": 2, "retrieved": 1}),
    Vector("experimenter_goals", even([0, 0, 1, 1, 0]), {**ASKED, "proposals": 1, "retrieved": 2}),
    # Question 1 shows goal (0 + 64) * 7919 mod 5 = 1, "Find b", where b and a are in sight.
    Vector("proposer", even([1, 1, 0, 0, 0]), {**ASKED, "seen": 1}),
    Vector("proposer", [0, 1, 0, 0, 0], {**ASKED, "seen": 1, "proposals": 1}),
]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.sampler for vector in VECTORS])
def test_probabilities_are_those_of_the_formula(vector):
    spec = SAMPLERS[vector.sampler]
    regions = Regions(len(GOALS), 2)
    regions.assign(np.array([0, 0, 1, 1, 0]))
    arms = {**dict.fromkeys(("ek_online", "ek_eval"), "categories"), "regions": regions}
    if vector.estimates is None:
        estimator = estimator_of(spec.estimator, GOALS)
    else:
        estimator = Given(**vector.estimates, arms=arms.get(vector.sampler, "goals"))
    epsilon = exploration(epsilon_start=0.0, epsilon_end=0.0)
    places = np.array([[1.0], [1.0], [0.0], [0.0], [0.0]], np.float32)
    rng = np.random.default_rng(0)
    parts = SamplerParts(GOALS, rng, epsilon, estimator, lambda: places)
    sampler = make_sampler(vector.sampler, parts, spec.settings(**vector.settings))
    for episodes in vector.stream:
        goals, success, advantage = np.array(episodes).reshape(-1, 3).T
        sampler.update(Outcomes(goals, success, advantage=advantage))
    np.testing.assert_allclose(
        sampler.probabilities(), vector.expected, rtol=vector.rtol, atol=1e-12
    )


def test_every_sampler_has_a_vector():
    named = {vector.sampler for vector in VECTORS} | {name for name, *_ in STREAMS}
    assert named == set(SAMPLERS)


@pytest.mark.parametrize(("won", "lost"), [(1, 1), (3, 9), (1, 40), (2.5, 0.5)])
@pytest.mark.parametrize("answers", [1, 8])
def test_what_a_group_of_answers_tells_of_the_success_rate(won, lost, answers):
    """Mean of log(P(k | p) / P(k)) over p, on a grid, and over k of the binomial distribution."""
    p = (np.arange(200_000) + 0.5) / 200_000
    density = p ** (won - 1.0) * (1 - p) ** (lost - 1.0)
    density /= density.sum()
    gain = 0.0
    for k in range(answers + 1):
        given = comb(answers, k) * p**k * (1 - p) ** (answers - k)
        gain += (density * given * np.log(given / (density @ given))).sum()
    found = information(np.array([won]), np.array([lost]), answers)
    np.testing.assert_allclose(found, gain, rtol=1e-3)


LETTERS = {"g": 1, "p": 7, "c": 2}
NEVER = {"epsilon_start": 0.0, "epsilon_end": 0.0}

# Rules over groups: grasp, plant and carnivore, in the order of the world; nothing is explored. A
# stream names the group of each outcome, its success and, after a colon, the advantage; `|` ends an
# update.
STREAMS = [
    # TSCL, Online, addition/addition_rnn_teacher.py at ec41eea, lines 133-137: largest |Q| with
    # Q += .9 (change of score - Q). Grasp 1 0: .9, then .9 + .9 (-1.9) = -.81. Plant 1 1: .9, .09.
    ("tscl", {"variant": "online", "step": 0.9}, "g1 p1 | g0 p1", [1, 0, 0]),
    # Equal |Q| of .1 share it (line 18 draws among them).
    ("tscl", {"variant": "online"}, "g1 c1", [1 / 2, 0, 1 / 2]),
    # Window, lines 51-54 and 161: slopes over the number of the episode.
    # Grasp 0 1 1 at 0, 1, 4: 15/78. Plant 0 0 1 at 2, 3, 5: 15/42. Carnivore 1 1: 0.
    ("tscl", {"variant": "window", "window": 3}, "g0 g1 p0 p0 | g1 p1 c1 c1", [0, 1, 0]),
    # A window of 2 has lost plant's first score: 0 1 at 3, 5 is 1/2, grasp's 0 1 at 4, 6 too.
    ("tscl", {"variant": "window", "window": 2}, "g0 g1 p1 p0 | g0 p1 g1 c1 c1", [1 / 2, 1 / 2, 0]),
    # Fewer than two scores: slope 1 (line 161).
    ("tscl", {"variant": "window"}, "g0 g0 p1", [0, 1 / 2, 1 / 2]),
    # Sampling, lines 192-206: each group takes one of its changes at random, largest first.
    # |changes|: grasp 1 0, plant 0, carnivore 1 1. Grasp's is 1 in half of all draws, then a tie.
    ("tscl", {"variant": "sampling"}, "g1 g1 p0 | c1 c0", [1 / 4, 0, 3 / 4]),
    # Grasp 1 0 0 0, plant 1 0; carnivore, never tried, counts as 1 (line 198), so it always ties:
    # alone in 3/4 * 1/2, with one other in 1/4 * 1/2 + 3/4 * 1/2, with both in 1/4 * 1/2.
    ("tscl", {"variant": "sampling"}, "g1 g1 g1 g1 | p1 p1", [5 / 48, 11 / 48, 2 / 3]),
    # SEC, verl/utils/auto_curriculum/sampler.py, `update_q_values` and `get_probs`:
    # Q += .5 (mean |advantage| of a batch - Q), softmax at .5. Batches of
    # two: grasp .6, so .3; then grasp .1, so .2, plant 1, so .5; the fifth waits.
    # exp(.4), exp(1), exp(0) = 1.4918, 2.7183, 1 of 5.2101.
    (
        "sec",
        {"batch": 2, "temperature": 0.5},
        "g1:.4 | g0:.8 p1:1 | g0:.1 p1:.9",
        [0.28633, 0.52174, 0.19194],
    ),
    # DUMP, verl/utils/curriculum_learning.py at 235e85d, lines 64-75, 157-182: mean of the last two
    # + sqrt(2 ln 5 / (n + 1)), n = 3, 1, 0: .2 + .8971, .5 + 1.2686, 0 + 1.7941; softmax at 1.
    (
        "dump",
        {"window": 2, "temperature": 1},
        "g1:.9 g0:.1 p1:.5 g0:.3",
        [0.2014, 0.39421, 0.40439],
    ),
    # E2H-C, src/trainer.py at 381e500, lines 52-63, of 4 updates after 1: (1 + cos(pi / 4)) / 2 =
    # .85355; (.85355 * 3 + .14645 * 1) / 6, 2 / 6, and the rest.
    ("e2h", {"updates": 4}, "", [0.451184, 1 / 3, 0.215482]),
    ("e2h", {"updates": 4}, "| " * 5, [1 / 6, 2 / 6, 3 / 6]),
    # E2H-G, lines 66-85: mean (1/4)^.5 * 2 = 1; exp(-2), 1, exp(-2) of 1.27067, a floor of 1/6.
    ("e2h", {"updates": 4, "schedule": "gaussian"}, "", [0.219920, 0.560160, 0.219920]),
    # mean .4, so far from all groups that each density is 0 in floating point
    ("e2h", {"updates": 25, "schedule": "gaussian", "sigma": 0.01}, "", [4 / 6, 1 / 6, 1 / 6]),
    # AdaRFT, the paper's pseudocode: the target moves by 50 tanh(2 (success - .5)) = 38.08 or
    # -38.08 or 0; groups stand at 0, 50, 100. Targets: 0, 38.08, the same, 76.16, 100 and 61.92.
    ("adarft", {"batch": 2}, "g1", [1, 0, 0]),
    ("adarft", {"batch": 2}, "g1 | g1", [0, 1, 0]),
    ("adarft", {"batch": 2}, "g1 g1 | p0 p1", [0, 1, 0]),
    ("adarft", {"batch": 2}, "g1 g1 g1 g1", [0, 0, 1]),
    ("adarft", {"batch": 2}, "g1 g1 g1 g1 g1 g1 | c0 c0", [0, 1, 0]),
    # marin-community/marin, `BinStats.apply_step`, `Directional`, `group_informative_curve`: of two
    # answers, the mean of 1 - p^2 - (1 - p)^2 under Beta(a, b) is 2 a b / ((a + b) (a + b + 1)).
    # Counts after two updates: grasp 1.75 and .75, plant .75 and 1.25, carnivore .75 and .75; so
    # .388889, .393750, .388889.
    (
        "informative",
        {"answers": 2, "decay": 0.5, "reversion": 1},
        "g1 g1 p0 |",
        [0.33195, 0.3361, 0.33195],
    ),
    # Grasp: 2 * 99 / 10100 = .019604, the others 1/3: a share of .028567, below .6 / 3.
    (
        "informative",
        {"answers": 2, "decay": 1, "reversion": 0, "floor": 0.6},
        "g0 " * 98,
        [0.170733, 0.414634, 0.414634],
    ),
    # Its scripted answers: grasp, nine of ten, is mastered; carnivore has 1 of 2, plant 0 of 2.
    # Until it is asked all are alike; one proposal gets all, two share.
    ("experimenter", {"ask_every": 1, "proposals": 1}, "g1 " * 9 + "g0 p0 p0 c0 c1", [0, 0, 1]),
    ("experimenter", {"ask_every": 1}, "g1 " * 10 + "|" + "p0 " * 10, [0, 1 / 2, 1 / 2]),
    ("experimenter", {"ask_every": 2}, "g1 " * 10, [1 / 3, 1 / 3, 1 / 3]),
]


@pytest.mark.parametrize(("name", "settings", "stream", "expected"), STREAMS)
def test_a_stream_gives_the_probabilities_of_the_source(name, settings, stream, expected):
    sampler = make(name, **NEVER, **settings)
    for update in stream.split("|"):
        rows = [(LETTERS[o[0]], float(o[1]), float(o[3:] or 0)) for o in update.split()]
        goals, success, advantage = np.array(rows).reshape(-1, 3).T
        sampler.update(Outcomes(goals.astype(int), success, advantage=advantage))
    shares = np.bincount(TEN_GOALS.categories, weights=sampler.probabilities())
    assert shares.tolist() == printed([0, *expected[:2], 0, expected[2]], 5, 2)


def test_the_clock_of_tscl_goes_on_where_a_group_has_no_goals():
    """Plants have 0 0 1 1, one after the other: slope .4; grasp 0 1, three apart: 1/3."""
    before = make("tscl", FewGoals([1, 2, 4]), variant="window", window=4, **NEVER)
    before.update(outcomes(*[(2, 1)] * 30, (0, 0), (2, 1), (2, 1), (0, 1), (1, 0), (1, 0)))
    after = make("tscl", FewGoals([1, 2]), variant="window", window=4, **NEVER)
    after.inherit_state(before)
    after.update(outcomes((1, 1), (1, 1)))
    np.testing.assert_allclose(after.probabilities(), [0, 1])


HALF = {"epsilon_start": 0.5, "epsilon_end": 0.5}  # a constant epsilon keeps the sums short


def test_online_has_no_threshold():
    """250 successes, then 249 and a failure: learning progress 1/250 is all there is to follow."""
    sampler = make("online", epsilon_start=0.0, epsilon_end=0.0, window=500, lp_threshold=0.5)
    sampler.update(outcomes(*[(3, 1)] * 499, (3, 0)))
    np.testing.assert_allclose(sampler.probabilities(), np.eye(10)[3])


@pytest.mark.parametrize(("dropped", "carnivore"), [(False, 0.25), (True, 0.0)])
def test_ek_online_can_drop_episodes_that_start_on_an_object(dropped, carnivore):
    """Plant 0 | 1 and carnivore 0 | 1 share 1/2, unless the latter's success, begun on object 0, is
    dropped: then plant has it all. Two carnivore goals share that, and 1/8 by exploration."""
    sampler = make("ek_online", drop_standing_starts=dropped, **HALF)
    sampler.update(outcomes((2, 0), (7, 0), (8, 1), (7, 1), standing_on=[-1, -1, 0, -1]))
    assert sampler.probabilities()[8] == pytest.approx((0.125 + carnivore) / 2)


def test_ek_online_needs_a_feasible_goal():
    assert "all goals are impossible" in refusal(make, "ek_online", FewGoals([0, 0, 0]))


def magellan_over(estimator):
    """MAGELLAN over four goals of any category, with this estimator."""
    rng = np.random.default_rng(0)
    parts = SamplerParts(FewGoals([0, 1, 0, 2]), rng, exploration(**HALF), estimator)
    return make_sampler("magellan", parts)


def test_magellan_needs_an_estimator_that_is_finite():
    diverged = Given([0.5, np.nan, 0.5, 0.5], [0.5] * 4)
    for estimator, kind, words in (
        (diverged, NotFiniteError, r"sampler magellan \(.*magellan\.py\): .* competence nan now"),
        (None, InputError, "magellan needs the estimator learned; none was given"),
    ):
        with pytest.raises(kind, match=words):
            magellan_over(estimator)


class Pool(Given):
    """Knows a few goals only, other ones after each update."""

    def __init__(self, *pools):
        self._pools = [tuple(map(np.array, pool)) for pool in pools]
        self.update()

    def candidates(self):
        return self.goals

    def known(self):
        return np.arange(len(self.now))

    def update(self, outcomes=None):
        self.goals, self.now, self.delayed = self._pools.pop(0)


def test_exploitation_keeps_to_the_candidates_and_exploration_does_not():
    """Pool of goals 3 and 1 with progress 0.1 and 0.3, then of goal 0, then without progress.

    Epsilon 1/2: 0.125 for all four, and 0.5 shared by the pool, or by all where it has no progress.
    """
    progress = ([3, 1], [0.5, 0.2], [0.4, 0.5]), ([0], [1.0], [0.5])
    sampler = magellan_over(Pool(*progress, ([1, 2], [0.6, 0.3], [0.6, 0.3]), ([], [], [])))
    expected = [0.125, 0.5, 0.125, 0.25]
    np.testing.assert_allclose(sampler.probabilities(), expected)
    frequencies = np.bincount(sampler.sample(20_000), minlength=4) / 20_000
    np.testing.assert_allclose(frequencies, expected, atol=0.02)
    sampler.update(outcomes())
    np.testing.assert_allclose(sampler.probabilities(), [0.625, 0.125, 0.125, 0.125])
    for _ in range(2):
        sampler.update(outcomes())
        np.testing.assert_allclose(sampler.probabilities(), 0.25)
        assert set(sampler.sample(200).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["online", "ek_online"])
def test_draws_from_a_space_of_millions_follow_its_categories(name):
    """The whole space: a goal of every category practised; what makes progress is drawn again."""
    space = WholeSpace()
    first = {category: int(space.nth(category, np.array([3]))[0]) for category in range(5)}
    history = [(first[c], int(c in (2, 3) and late)) for late in (0, 1) for c in range(5)]
    sampler = make(name, space, epsilon_start=0.0, epsilon_end=0.0)
    assert sampler.sample(4).dtype == np.int64
    sampler.update(outcomes(*history))
    drawn = sampler.sample(1_000)
    categories = space.categories_at(drawn)
    np.testing.assert_allclose(np.bincount(categories), [0, 0, 500, 500], atol=60)
    if name == "online":
        assert set(drawn.tolist()) == {first[2], first[3]}
    else:
        assert len(set(drawn.tolist())) > 900
