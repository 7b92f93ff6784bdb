"""A curriculum draws as a run does, resumes from its state, and uses any model."""

import copy
import io
import json
import pickle
import re
from functools import partial

import numpy as np
import pytest
import torch

from magellan.competence import ESTIMATORS, Outcomes
from magellan.config import run_model
from magellan.curriculum import Curriculum, group_advantages
from magellan.samplers import SAMPLERS
from tests.agent.tiny import close, in_float64
from tests.runs import refusal, refuses
from tests.snippets import run_program

OFTEN = {"refresh": 4, "delay": 4, "batch_size": 16, "learning_rate": 1e-2}
WORDS = ["grasp", "grow", "cow", "lion", "door", "sofa", "carrot", "water"]
GOALS = [f"{verb} {thing}" for verb in WORDS[:2] for thing in WORDS[2:]]
GROUPS = [goal.split()[0] for goal in GOALS]
READ = [
    name
    for name, spec in SAMPLERS.items()
    if spec.needs_features or (spec.estimator and ESTIMATORS[spec.estimator].needs_features)
]
"""Samplers that need a model to read goals."""


def embed(texts):
    return np.array([[word in text.split() for word in WORDS] for text in texts], float)


def played(goals):
    return goals % 2 == 0


SHORT = {
    "competence": OFTEN,
    "alp_gmm": {"fit_every": 50},
    "evaluated_buckets": {"every": 50, "episodes": 20},
    "experimenter": {"ask_every": 5, "proposals": 1},
    "experimenter_goals": {"ask_every": 5, "retrieved": 2, "proposals": 2},
    "proposer": {"ask_every": 5, "proposals": 2},
}


def settings_of(name):
    """Settings of a sampler and its estimator, for few updates."""
    spec = SAMPLERS[name]
    used = {spec.section} | ({ESTIMATORS[spec.estimator].section} if spec.estimator else set())
    short = {section: values for section, values in SHORT.items() if section in used}
    return {"samplers": {"epsilon_decay": 20.0}, **short}


def make(name, **given):
    arguments = {"embed": embed, "groups": GROUPS, "order": ["grasp", "grow"]}
    arguments |= {"play": played, "settings": settings_of(name)}
    return Curriculum(GOALS, name, **{**arguments, **given})


def practise(curriculum, updates, seed=1):
    """Play simulated episodes, with more success for later goals; return all draws."""
    rng, drawn = np.random.default_rng(seed), []
    for _ in range(updates):
        drawn.append(curriculum.sample(8))
        curriculum.update(drawn[-1], rng.random(8) < drawn[-1] / 12, drawn[-1] / 12)
    return np.concatenate(drawn)


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_are_those_of_a_run_that_has_the_same_outcomes(name):
    from magellan.training.loop import Trainer

    settings, rng = settings_of(name), np.random.default_rng(0)
    run = Trainer(run_model()(sampler=name, goal_space="12-8-4-2-2", seed=3, **settings))
    kinds, sampler = run.goals.categories_at(np.arange(len(run.goals))), run.sampler
    prompts, groups = [run.goals.prompt(n) for n in range(len(kinds))], [str(n) for n in kinds]
    given = {"play": lambda goals: goals % 2, "order": sorted(set(groups))}
    curriculum = Curriculum(prompts, name, "zoo-mini", 3, groups, ["0"], settings, **given)
    begun = run.collector._positions  # goals of the episodes that a run begins with
    np.testing.assert_array_equal(curriculum.sample(len(begun)), begun)
    for _ in range(24):
        run.estimators.play_wanted(curriculum._episodes, lambda goals, _: goals % 2)
        drawn = sampler.sample(8)
        np.testing.assert_array_equal(curriculum.sample(8), drawn)
        drawn = np.unique(drawn)  # a run takes the episodes of a goal one by one
        success = rng.random(len(drawn)) < kinds[drawn] / 4
        sampler.update(Outcomes(drawn, success, advantage=drawn / 12))
        curriculum.update(drawn, success, drawn / 12)
    np.testing.assert_array_equal(curriculum.probabilities(), sampler.probabilities())
    assert np.ptp(sampler.probabilities()) > 0 or name == "random"


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_curriculum_goes_on_where_another_stopped(name):
    """Its state goes through JSON and `torch.load` as it is by default; or a copy goes on."""
    whole = make(name)
    practise(whole, 12)
    whole.add(["grasp desk", "grow desk"], ["grasp", "grow"], ["one", "two"])
    whole.lost(["one"])
    practise(whole, 7)
    file = io.BytesIO()
    torch.save(json.loads(json.dumps(whole.state_dict())), file)
    file.seek(0)
    again, twin = make(name), copy.deepcopy(whole)
    again.load_state_dict(torch.load(file))
    other = pickle.loads(pickle.dumps(whole))  # noqa: S301 (as Ray does)
    drawn = practise(whole, 9, seed=2)
    for one in (again, twin, other):
        assert len(one) == 14
        np.testing.assert_array_equal(practise(one, 9, seed=2), drawn)
        np.testing.assert_array_equal(one.probabilities(), whole.probabilities())


def test_a_copy_does_not_depend_on_what_its_arguments_became():
    class Own(Curriculum):
        pass

    goals, settings = ["a", "b"], {"mopps": {"candidates": 4}}
    first = Own(goals, "mopps", settings=settings)
    goals.append("c")
    first.add(goals[2:])
    first.goals.append("d")
    first.solved, settings["mopps"]["candidates"] = 0.5, 8
    twin = copy.deepcopy(first)
    assert (type(twin), twin.goals, twin.solved) == (Own, ["a", "b", "c"], 0.5)


@pytest.mark.parametrize("name", ["online", "learnability", "magellan"])
def test_goals_come_on_the_way_and_what_is_known_stays(name):
    curriculum = make(name)
    practise(curriculum, 30)
    before, epsilon = curriculum.competence(), curriculum.sampler.epsilon
    curriculum.add(["grow tiger"], ["grow"])
    now, delayed = curriculum.competence()
    assert len(curriculum) == len(now) == 13
    np.testing.assert_allclose([now[:12], delayed[:12]], before, rtol=1e-5)
    assert (now[12] > 0) == (name == "magellan")  # windows know nothing of a goal without outcomes
    assert curriculum.sampler.epsilon == epsilon
    assert curriculum.probabilities()[12] >= epsilon / 13


@pytest.mark.parametrize("estimator", ["per_goal", "expert_buckets", "learned", "ensemble"])
@pytest.mark.parametrize("rule", ["learnability", "pcl"])
def test_any_rule_follows_any_estimator(rule, estimator):
    """After episodes in which "grow" goals succeed half of the time and "grasp" goals never."""
    crossed = {"estimator": estimator, "epsilon_start": 0.0, "epsilon_end": 0.0}
    own = {"learned": {"competence": OFTEN}, "ensemble": {"ensemble": {"learning_rate": 0.05}}}
    settings = {"samplers": crossed, **own.get(estimator, {})}
    curriculum, every = make(rule, settings=settings), np.arange(12)
    for update in range(150):
        curriculum.update(every, (every >= 6) & ((every + update) % 2 == 0))
    chances = curriculum.probabilities()
    assert chances[6:].sum() > 0.6
    assert curriculum._estimators.driver == estimator


PROMPTS = [f"Goal: Grow {thing}" for thing in ("cow", "lion", "wolf", "carrot", "potato", "door")]


def test_the_head_on_vectors_is_the_one_on_a_frozen_model():
    frozen = {"competence": {**OFTEN, "adapter": "frozen"}}
    model = Curriculum(PROMPTS, "magellan", "zoo-mini", settings=frozen)
    backend = model._backend
    assert backend is not None

    def read(texts):
        from magellan.core.codec import stack

        return backend.representation(stack(backend.codec.pack(texts, [()] * len(texts))))

    vectors = Curriculum(PROMPTS, "magellan", read, settings={"competence": OFTEN})
    for curriculum in (model, vectors):
        practise(curriculum, 20)
    gaps = np.subtract(vectors.competence(), model.competence())
    learnt = np.ptp(model.competence()[0])
    assert learnt > 0.01
    assert np.abs(gaps).max() < learnt / 1e4


class Moving:
    """Vectors that change with `size`, as those of a policy in training do."""

    nonstationary = True
    size = 1.0

    def __call__(self, texts):
        return self.size * embed(texts)


def test_what_a_moving_model_predicted_is_kept_not_predicted_again():
    """Also when goals come; the head stands still, so that only the model changes."""
    nonstationary = Moving()
    still = {"competence": {**OFTEN, "learning_rate": 1e-12}}
    curriculum = make("magellan", embed=nonstationary, settings=still)
    practise(curriculum, 4)
    before = curriculum.competence()[0]
    nonstationary.size = 3.0
    practise(curriculum, 4)
    for added in ([], ["grow tiger"]):
        if added:
            curriculum.add(added, ["grow"])
        now, delayed = curriculum.competence()
        assert (now[:12] != before).all()
        np.testing.assert_allclose(delayed[:12], before)


@pytest.mark.parametrize("name", ["magellan", "pcl", "regions"])
def test_too_many_goals_are_refused_and_nothing_changes(name):
    settings = {"competence": {**OFTEN, "pool": 12}}
    curriculum = make(name, embed=Moving() if name == "magellan" else embed, settings=settings)
    practise(curriculum, 6)
    before = curriculum.probabilities()
    assert refusal(curriculum.add, ["grow tiger"], ["grow"]).startswith("competence.pool: ")
    assert len(curriculum) == 12
    np.testing.assert_array_equal(curriculum.probabilities(), before)
    practise(curriculum, 6)


def test_goals_that_a_model_cannot_read_are_not_added():
    curriculum = Curriculum(PROMPTS[:2], embed="zoo-mini", settings={"competence": OFTEN})
    refuses("^goals: .* tokenizer that does not know 'zebra'", curriculum.add, ["Goal: Grow zebra"])
    assert len(curriculum) == len(curriculum.probabilities()) == 2


CERTAIN = {"samplers": {"estimator": "per_goal"}}
new = partial(make, "random")
CASES = {
    "sampler: 'best' is unknown": lambda: Curriculum(GOALS, "best"),
    "embed: none given; the sampler magellan reads": lambda: Curriculum(GOALS),
    "samplers.estimator: one without uncertainty": lambda: make("vds", settings=CERTAIN),
    "embed: an array of shape (1,)": lambda: Curriculum(GOALS, embed=lambda texts: [1.0]),
    "embed: one that changes (`nonstationary`) is not": lambda: make("vds", embed=Moving()),
    "sampler plr (": lambda: make("plr").update([0], [1]),  # advantage: missing
    "groups: none given; the sampler ek_online chooses": lambda: Curriculum(GOALS, "ek_online"),
    "groups: 2 is not allowed": lambda: make("online", groups=["a", "b"], order=None),
    "order: none given; the sampler adarft needs one": lambda: make("adarft", order=None),
    "goals: none are given; allowed: a list": lambda: Curriculum([], "random"),
    "play: none given; the estimator evaluated_buckets": lambda: make("ek_eval", play=None),
    "samplers.epsilon_end: 2 is not": lambda: new(settings={"samplers": {"epsilon_end": 2}}),
    "indices: 12 is not allowed; allowed: 0 to 11": lambda: new().update([12], [1]),
    "keys: ['a', 'a'] is not": lambda: Curriculum(["x", "y"], "random", keys=["a", "a"]),
    "indices: 13 is not allowed; allowed: 0 to 11": lambda: new().update([[0], [13]], [[1], [1]]),
    "indices: -1 is not allowed; allowed: 0 to 11": lambda: new().lost(np.array([[0, 1], [2, -1]])),
    "goals: ['x', 1] is not allowed; allowed: a list of names": lambda: Curriculum(["x", 1]),
    "groups: {'x': 'a'} is not allowed; allowed: a list of names": lambda: new(groups={"x": "a"}),
    "keys: {'a'} is not allowed; allowed: a list of names": lambda: new(keys={"a"}),
    "groups: {'grow'} is not allowed": lambda: new().add(["x"], groups={"grow"}),
    "keys: [1] is not allowed": lambda: new().add(["x"], ["grow"], keys=[1]),
    "impossible: <generator object": lambda: make("ek_online", impossible=(n for n in ["grow"])),
    "sampler plr": lambda: make("plr").update([0, 0, 1], [1, 0, 1]),  # of goal 1: missing
    "pools.normal: 0.2 is not allowed; allowed: pools.hard (0.9) or more": lambda: make(
        "pools", settings={"pools": {"hard": 0.9, "normal": 0.2}}
    ),
    "embed: an array of shape (1, 0)": lambda: Curriculum(GOALS, embed=lambda _: np.zeros((1, 0))),
    "draws: [None] is not allowed; allowed: a num": lambda: new().admitted([0], [1], draws=[None]),
    "gate: its answer: [True] is not allowed; allowed: a bool for each of 2": (
        lambda: new().admitted([0, 1], [1.0, 0.0], lambda groups: np.array([True]))
    ),
    "n: 13 is not allowed; allowed: 0 to 12, the goals": lambda: new().sample(13, False),
    "outcomes: shapes of goals, success": lambda: new().update([1], [0, 1]),
    "success: 'x' is not allowed; allowed: numbers": lambda: new().update([0, 1], [0.5, "x"]),
    "success: [0] is not allowed": lambda: new().update([0], np.zeros(1, "m8[ns]")),
    "indices: None is not allowed": lambda: new().update(None, [1]),
    "indices: 0 stands beside names": lambda: new().update([0, "grow cow"], [1, 1]),
    "indices: 'grow tiger' is not a goal": lambda: new().update(["grow tiger"], [1]),
    "n: 2.5 is not allowed; allowed: a whole number >= 0": lambda: new().sample(2.5),
    "impossible: ['grows'] is not allowed": lambda: make("random", impossible=["grows"]),
    "sampler: random has no estimator": lambda: new().competence(),
    "curriculum: a state of random is": lambda: make("online").load_state_dict(new().state_dict()),
}


def test_a_threshold_may_be_a_number_of_numpy():
    solved = [make("random", solved=number).solved for number in (np.float32(0.5), np.int64(1))]
    assert solved == [0.5, 1.0]


LATE = {**settings_of("magellan"), "competence": {**OFTEN, "delay": 40}}
OTHERS = {
    "seed is 1 here and 0 there": {"seed": 1},
    "competence.delay is 40 here and 4 there": {"settings": LATE},
    "embed is [": {"embed": lambda texts: embed(texts)[:, ::-1]},
    "groups is ": {"groups": GROUPS[::-1]},
}


@pytest.mark.parametrize("line", OTHERS)
def test_a_state_names_what_it_was_made_with(line):
    state = make("magellan").state_dict()
    begin = "^curriculum: a state of magellan is not allowed: .*" + re.escape(line)
    refuses(begin, make("magellan", **OTHERS[line]).load_state_dict, state)


def test_a_state_says_with_which_adapters_it_was_made():
    first, other = (
        Curriculum(PROMPTS[:2], embed="zoo-mini", settings={"backbone": {"lora_alpha": alpha}})
        for alpha in (32.0, 1.0)
    )
    refuses("^.*: backbone.lora_alpha is 1.0 here", other.load_state_dict, first.state_dict())


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_refused_state_changes_nothing(name):
    other = make(name)
    practise(other, 12)
    other.add(["grow tiger"], ["grow"])
    state = other.state_dict()
    curriculum, twin = make(name), make(name)
    for each in (curriculum, twin):
        practise(each, 6)
        each.update([0, 0], [0.0, 1e19], [0.0, 0.0])
    for part in ("episodes", "heard", "state", "estimators", "added"):
        for wrong in ({}, None, 3.5, [["x"]]):
            unread = part == "estimators" and not curriculum._estimators.by_name
            if unread or (part == "episodes" and wrong == 3.5):
                continue
            refuses(r"^\w+: ", curriculum.load_state_dict, {**state, part: wrong})
    np.testing.assert_array_equal(practise(curriculum, 6, seed=2), practise(twin, 6, seed=2))
    np.testing.assert_array_equal(curriculum.probabilities(), twin.probabilities())


@pytest.mark.parametrize("line", CASES)
def test_bad_input_is_one_clear_line(line):
    refuses("^" + re.escape(line), CASES[line])


def test_hidden_states_of_a_text_do_not_depend_on_its_batch_or_a_padding_token():
    from peft import PromptTuningConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from magellan.integrations.hugging_face import HiddenStates
    from magellan.model.files import BACKBONES

    kinds = AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = (kind.from_pretrained(BACKBONES / "zoo-mini") for kind in kinds)
    tokenizer.pad_token = None
    hidden = HiddenStates(model, tokenizer)
    model.train().model.layers[0].eval()  # as its owner keeps it
    texts = ["Goal: Grow cow", "Goal: Grasp", "cow"]
    alone = np.concatenate([hidden([text]) for text in texts])
    together = hidden(texts)
    with in_float64(model):
        close(together, alone, hidden(texts))
    assert np.abs(alone[0] - alone[1]).max() > 0.01
    assert "'' is not allowed: it has 0 tokens" in refusal(hidden, ["cow", ""])
    assert "tokens; allowed: texts of 1 to 256" in refusal(hidden, ["Grow cow " * 300])
    assert [layer.training for layer in model.model.layers[:2]] == [False, True]
    assert model.training
    tuning = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20)
    tuned = HiddenStates(get_peft_model(model, tuning), tokenizer)
    cow, lion = tuned(["Grow cow", "Grow lion"])
    assert np.abs(cow - lion).max() > 0.01  # of the texts, not of what stands before them


@pytest.mark.parametrize("name", ["adarft", "e2h", "scripted"])
def test_practice_begins_with_the_first_group_of_the_order(name):
    shares = {"scripted": {"stages": [{"shares": [0.9, 0.1]}]}} if name == "scripted" else {}
    for order, first in ((["grasp", "grow"], slice(6)), (["grow", "grasp"], slice(6, 12))):
        assert make(name, order=order, settings=shares).probabilities()[first].sum() > 0.6


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_order_of_answers_means_nothing(name, graded):
    """Groups of eight one after the other, against all answers mixed: the same to the last bit."""
    solved = 0.7 if graded else 1.0
    first, second = (make(name, solved=solved) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(16):
        goals = np.repeat(first.sample(5), 8)
        np.testing.assert_array_equal(second.sample(5), goals[::8])
        rewards = rng.random(40).round(1) if graded else rng.random(40) < goals / 12
        mixed = rng.permutation(40)
        first.update(goals, rewards)
        second.update(goals[mixed], rewards[mixed], group_advantages(goals, rewards)[mixed])
    np.testing.assert_array_equal(first.probabilities(), second.probabilities())


@pytest.mark.parametrize(
    ("name", "settings", "answers", "expected"),
    [
        # A group of failures is one repetition: .5 of a chance; one with a success is none.
        ("greso", {}, [[0] * 8, [0, 1, 0, 0]], [1 / 7, 2 / 7, 2 / 7, 2 / 7]),
        # Advantages .375 (one of four), .5 (two of four), none: ranks 2 and 1 of three, at .1.
        ("plr", {"staleness": 0}, [[1, 0, 0, 0], [1, 1, 0, 0]], [1 / 1025, 1024 / 1025, 0, 0]),
        # Equal rewards have no advantage, though six times .1 have a mean that is not .1.
        ("plr", {}, [[0.1] * 6, *[[1.0] * 6] * 3], [1 / 4] * 4),
        ("online", {}, [[1, 0, 0, 0], [1, 0]], [1 / 4] * 4),
        ("pools", {}, [[1] * 8, [1, 1, 0, 0]], [1 / 16, 5 / 16, 5 / 16, 5 / 16]),
        # Beta(3, 3) either way, but lambda discounts once a group: 1 + 2, not 1 + 0 + 0 + 1.
        ("mopps", {"discount": 0}, [[1, 0, 1, 0]] * 4, [1 / 4] * 4),
    ],
)
def test_a_group_of_answers_is_one_outcome(name, settings, answers, expected):
    sections = {"samplers": {"epsilon_start": 0.0, "epsilon_end": 0.0}}
    sections |= {name: settings} if settings else {}
    curriculum = Curriculum(list("abcd"), name, settings=sections)
    goals = np.repeat(np.arange(len(answers)), [len(rewards) for rewards in answers])
    curriculum.update(goals, np.concatenate(answers))
    np.testing.assert_allclose(curriculum.probabilities(), expected, atol=1e-12)


def test_a_mixture_fitted_to_practice_stays_when_goals_come():
    curriculum = make("alp_gmm")
    practise(curriculum, 30)
    known = curriculum.probabilities() - 0.2 / 12  # a fifth of draws is uniform
    assert np.ptp(known) > 0.01
    curriculum.add(["grow tiger"], ["grow"])
    np.testing.assert_allclose(curriculum.probabilities() - 0.2 / 13, [*known, 0], atol=1e-12)


@pytest.mark.parametrize("solved", [0.7, -0.1])
@pytest.mark.parametrize("kind", ["bfloat16", "float32", "float64", "sum", "list"])
def test_a_reward_that_equals_the_threshold_in_its_format_is_a_success(kind, solved):
    rewards = torch.full((4,), solved, requires_grad=True, dtype=torch.float64)
    if kind == "sum":
        rewards = np.array([np.float32(solved) / 3] * 4).astype(np.float32) * np.float32(3)
    else:
        rewards = [*rewards.float()] if kind == "list" else rewards.to(getattr(torch, kind))
    curriculum = Curriculum(["a", "b"], "online", solved=solved)
    curriculum.update([0] * 4 + [1] * 4, [*rewards, *[solved - 0.05 * abs(solved) - 1e-3] * 4])
    np.testing.assert_array_equal(curriculum.competence()[0], [1.0, 0.0])


@pytest.mark.parametrize(
    ("rewards", "solved", "kind"),
    [
        ([0.99609375, 1.0], 1.0, "bfloat16"),  # neighbours
        ([0.99951171875, 1.0], 1.0, "float16"),
        ([-0.1, 30.0], 0.0, "bfloat16"),
        ([-4e-4, 1000.0], 0.0, "float64"),
    ],
)
def test_a_reward_below_the_threshold_is_a_failure_beside_any_other(rewards, solved, kind):
    curriculum = Curriculum(["a", "b"], "online", solved=solved)
    rewards = torch.tensor(rewards, dtype=getattr(torch, kind))
    curriculum.update([0] * 4 + [1] * 4, rewards.repeat_interleave(4))
    assert curriculum.competence()[0].tolist() == [0.0, 1.0]


@pytest.mark.filterwarnings("error")
def test_the_largest_rewards_there_are_are_rewards():
    curriculum, most = Curriculum(["a", "b"], "plr"), np.finfo(float).max
    curriculum.update([0, 0, 0, 1, 1, 1], [most, -most, -most, most, most, most])
    assert curriculum.metrics()["informative"] == 0.5
    assert curriculum.probabilities()[0] > 0.5
    assert np.isfinite(group_advantages([0, 0], [most, -most])).all()


def test_a_threshold_that_no_reward_reaches_is_said_once():
    curriculum = make("online")
    words = r"^solved: 1 was reached by none of 32 .* is 0\.9$"
    with pytest.warns(UserWarning, match=words) as said:  # noqa: PT031
        for _ in range(20):
            curriculum.update([0] * 8, [0.9, 0.0] * 4)
    assert len(said) == 1


@pytest.mark.parametrize("lost", ["lost", "NaN", "nothing is said"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_goals_that_never_report_are_left_to_exploration(name, lost):
    """Goals to grow are the first in order, and draws of them never come back."""
    curriculum, rng = make(name, order=["grow", "grasp"]), np.random.default_rng(0)
    grow = np.array(GROUPS) == "grow"
    for number in range(80 if lost == "nothing is said" else 30):
        drawn = np.repeat(curriculum.sample(6), 4)
        rewards = (rng.random(24) < 0.9).astype(float).tolist()
        if lost == "NaN":
            gone = (np.nan, None, -np.inf)[number % 3]
            rewards = [gone if grow[goal] else r for goal, r in zip(drawn, rewards, strict=True)]
        else:
            if lost == "lost":
                curriculum.lost(np.unique(drawn[grow[drawn]]))
            rewards = [r for goal, r in zip(drawn, rewards, strict=True) if not grow[goal]]
            drawn = drawn[~grow[drawn]]
        curriculum.update(drawn, rewards)
    chances = curriculum.probabilities()
    assert chances.sum() == pytest.approx(1.0)
    silent = curriculum._heard.silent()
    assert silent.sum() >= 2
    assert not silent[~grow].any()
    explored = curriculum.sampler.exploration()
    assert (chances[silent] <= np.maximum(explored, 0.01 / 12)[silent] + 1e-12).all()
    assert (curriculum.metrics()["lost"] > 0) == (lost != "nothing is said")
    some = int(np.flatnonzero(silent)[0])
    curriculum.update([some], [1.0], [0.5])  # it reports again
    assert not curriculum._heard.silent()[some]


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("name", ["adarft", "dump", "insight", "mopps", "tscl"])
def test_a_large_group_that_never_reports_is_left_to_exploration(name, lost):
    """As with tasks whose judge is broken: there is always a goal that was not drawn before."""
    groups = np.repeat(["broken", "whole"], 300)
    names, rng = [f"goal {number}" for number in range(600)], np.random.default_rng(0)
    curriculum = Curriculum(names, name, groups=groups, order=["broken", "whole"])
    for _ in range(40):
        drawn = curriculum.sample(8)
        if lost:
            curriculum.lost(drawn[drawn < 300])
        came = np.repeat(drawn[drawn >= 300], 4)
        curriculum.update(came, rng.random(len(came)) < 0.5)
    chances, explored = curriculum.probabilities(), curriculum.sampler.exploration()
    assert chances[:300].sum() <= np.maximum(explored, 0.01 / 600)[:300].sum() + 1e-9
    curriculum.update([7, 7], [0, 1])  # the judge is mended
    assert curriculum.probabilities()[:300].sum() > chances[:300].sum()


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_without_replacement_are_distinct(name):
    curriculum = make(name)
    practise(curriculum, 6)
    assert sorted(curriculum.sample(12, replace=False).tolist()) == list(range(12))
    few = np.stack([curriculum.sample(3, replace=False) for _ in range(100)])
    assert (np.diff(np.sort(few, axis=1), axis=1) > 0).all()
    possible = curriculum.probabilities() > 0
    assert possible[few].all() or possible.sum() < 3


def test_metrics_are_numbers_by_name():
    curriculum = make("random")
    curriculum.update([0, 0, 1, 1, 2, 2, 3], [1, 1, 0, 0, 1, 0, None])
    found = curriculum.metrics("goals/")
    assert {type(value) for value in found.values()} == {float}
    expected = {"coverage": 3 / 12, "mastered": 1 / 3, "dead": 1 / 3, "informative": 1 / 3}
    expected |= {"silent": 0, "effective_goals": 12, "lost": 1, "epsilon": 1}
    expected |= {"share/grasp": 0.5, "share/grow": 0.5}
    assert found == pytest.approx({f"goals/{name}": value for name, value in expected.items()})


@pytest.mark.parametrize(
    ("gate", "admitted"),
    [
        ("all", [1, 1, 1, 1, 1, 1, 1, 0]),
        ("spread", [1, 1, 0, 0, 0, 1, 1, 0]),
        ("mixed", [1, 1, 0, 0, 0, 0, 0, 0]),
        (lambda groups: groups.reward > 0.5, [0, 0, 1, 1, 0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("name", ["random", "plr"])
def test_a_gate_says_what_is_trained_on_and_changes_nothing(name, gate, admitted):
    curriculum = make(name)
    goals, rewards = [3, 3, 0, 0, 1, 2, 2, 2], [1, 0, 1, 1, 0.1, 0.2, 0.4, None]
    state = curriculum.state_dict()
    for order in (np.arange(8), np.random.default_rng(0).permutation(8)):
        mixed = curriculum.admitted(np.array(goals)[order], np.array(rewards)[order], gate)
        np.testing.assert_array_equal(mixed, np.array(admitted, bool)[order])
    assert curriculum.state_dict() == state


@pytest.mark.parametrize("name", ["hard", "hard  ones ", "two\u2028lines", "x" * 310])
def test_a_chat_model_may_propose_groups_of_any_name(name):
    settings = {"experimenter": {"ask_every": 2, "proposals": 1}}
    settings["samplers"] = {"epsilon_start": 0.0, "epsilon_end": 0.0}
    groups = [name, "Hard"] * 6
    curriculum = make("experimenter", groups=groups, order=None, settings=settings)
    for solved in (0, 1):
        curriculum.update(range(12), [solved, 0] * 6)
    assert curriculum.metrics()["share/Hard"] == 0.0


def test_goals_are_named_by_row_text_or_key():
    """A key may be the text of its goal."""
    states = []
    for goals in ([0, 1], ["a", "y"], torch.tensor([0, 1])):
        curriculum = Curriculum(["a", "b", "b"], "online", keys=["a", "y", "z"])
        curriculum.update(goals, [1, 0])
        curriculum.lost(["z"])
        states.append(curriculum.state_dict())
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 3e38])
@pytest.mark.parametrize("name", ["regions", "frontier", "alp_gmm", "pcl"])
def test_goals_that_look_the_same_are_as_likely(name, size):
    goals = [str(number) for number in range(60)]
    curriculum = Curriculum(goals, name, lambda texts: np.full((len(texts), 3), size))
    np.testing.assert_allclose(curriculum.probabilities(), 1 / 60)


def test_ranks_do_not_depend_on_the_rounding_of_rewards():
    chances = []
    for rewards in (np.array([0.1, 0.3, 0.6, 0.8]), np.array([0.1, 0.3, 0.6, 0.8], np.float32)):
        curriculum = make("plr", groups=None, order=None, settings={"plr": {"staleness": 0}})
        curriculum.update([0, 0, 1, 1], rewards)
        chances.append(curriculum.probabilities()[:2])
    np.testing.assert_allclose(*chances)
    assert chances[0][0] == pytest.approx(chances[0][1])
    # A bonus and a penalty that cancel leave 1e-17: equal rewards.
    cancelled = [0.1 + 0.2 - 0.3, 0.1 - 0.3 + 0.2, 0.2 - 0.3 + 0.1, 0.0]
    for others in ([0.0] * 8, [1.0] * 8):
        curriculum = make("plr", groups=None, order=None)
        curriculum.update([0] * 4 + [1] * 4 + [2] * 4, cancelled + others)
        np.testing.assert_allclose(np.ptp(curriculum.probabilities()[:3]), 0, atol=1e-12)
        assert curriculum.metrics()["informative"] == 0


@pytest.mark.parametrize(
    ("variant", "answers", "shares"),
    [("sampling", 5, [1, 2, 1]), ("sampling", 5, [1, 0, 1]), ("window", 10, [2, 3, 4])],
)
def test_equal_progress_is_shared_whatever_the_level(variant, answers, shares):
    """Successes are 1, 2, 3 in one group; .6 - .4 is not .4 - .2."""
    settings = {"tscl": {"variant": variant}}
    curriculum = Curriculum(["a", "b"], "tscl", groups=["x", "y"], settings=settings)
    for won in zip([1, 2, 3], shares, strict=True):
        rewards = [float(answer < k) for k in won for answer in range(answers)]
        curriculum.update(np.repeat([0, 1], answers), rewards)
    np.testing.assert_allclose(curriculum.probabilities(), 0.5)


def test_a_goal_drawn_twice_has_two_groups_of_answers():
    curriculum, goals = make("random"), [0] * 8 + [1] * 4
    rewards = [0] * 4 + [1] * 4 + [1, 0, 0, None]
    assert curriculum.admitted(goals, rewards)[:8].all()
    draws = ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    admitted = curriculum.admitted(goals, rewards, draws=draws)
    np.testing.assert_array_equal(admitted, [False] * 8 + [True] * 3 + [False])
    seen = []

    def gate(groups):
        seen.append(groups.goals.tolist())
        return groups.success == 1

    assert curriculum.admitted(goals, rewards, gate, draws).nonzero()[0].tolist() == [4, 5, 6, 7]
    assert seen == [[0, 0, 1]]
    refuses(r"^outcomes: shapes of goals, draws", curriculum.admitted, goals, rewards, draws=[0, 1])


def test_tensors_single_values_and_masks_are_read_everywhere():
    curriculum = make("ek_eval", play=lambda goals: torch.ones(len(goals), dtype=torch.bfloat16))
    curriculum.sample(2)
    curriculum.update(1, 1.0)
    curriculum.update(torch.tensor(1), torch.tensor(1.0))
    column = np.empty(1, object)
    column[0] = torch.tensor(1.0, dtype=torch.bfloat16, requires_grad=True)
    curriculum.update(np.int64(1), column)
    curriculum.lost(2)
    curriculum.update([0, 1], np.ma.array([1.0, 0.0], mask=[True, False]))
    assert curriculum.metrics()["lost"] == 2
    value, nested = torch.tensor(0.7, dtype=torch.bfloat16), make("online", solved=0.7)
    nested.update([0, 0], [[value], [value]])
    assert nested.metrics()["mastered"] == 1
    vectors = make("magellan", embed=lambda texts: [torch.ones(4).bfloat16() for _ in texts])
    assert vectors.sample(2).shape == (2,)


def test_an_advantage_is_the_distance_to_the_mean_reward_of_the_goal():
    found = group_advantages([4, 0, 4, 4], [1.0, 0.25, 0.0, 0.5])
    np.testing.assert_allclose(found, [0.5, 0.0, 0.5, 0.0])
    assert group_advantages([], []).shape == (0,)
    lost = group_advantages([0, 0, 0, 1, 1], [0.2, None, 0.4, 0.1 + 0.2, 0.3])
    np.testing.assert_allclose(lost, [0.1, np.nan, 0.1, 0.0, 0.0])
    assert lost[3] == lost[4] == 0.0


OF_MODELS = ("transformers", "peft", "tokenizers", "safetensors", "huggingface_hub")
OF_OTHERS = ("pandas", "snakemake", "scipy", "matplotlib", "tqdm", "sklearn", "rliable", "arch")


def without(names, code):
    """Return what code prints if these packages are not installed."""
    return run_program(f"import sys\nsys.modules.update(dict.fromkeys({names!r}))\n{code}")


def test_worlds_samplers_and_curriculum_need_the_base_install_only():
    code = """
import gymnasium
gymnasium.make("magellan.worlds:LittleZoo-v0").reset(seed=0)
gymnasium.make_vec("magellan.worlds:LittleZoo-v0", num_envs=2).reset(seed=0)
import magellan.worlds, magellan.samplers
from magellan.curriculum import Curriculum
for name in magellan.samplers.SAMPLERS:
    if name not in READ:
        given = {"groups": ["x", "y"], "order": ["x", "y"], "play": lambda goals: goals}
        curriculum = Curriculum(["a", "b"], name, **given)
        curriculum.update(curriculum.sample(2), [0, 1], [0.5, 0.5])
        print(name, curriculum.probabilities().sum())
import magellan.cli
magellan.cli.main(["goals", "--size", "4-2-1-1-1"])
assert magellan.cli.main(["train", "--preset", "smoke", "--output", "nowhere"]) == 2
"""
    printed = without(("torch", *OF_MODELS, *OF_OTHERS), f"READ = {READ}\n{code}")
    assert all(f"{name} 1.0" in printed for name in SAMPLERS if name not in READ)
