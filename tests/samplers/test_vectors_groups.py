"""Probabilities of rules over groups on short streams, worked out by hand from their sources.

The authors' code of E2H and DUMP, run on these streams, gives the same numbers. Groups are grasp,
plant and carnivore, in the world's order; nothing is explored. A stream names the group of each
outcome, its success and, after a colon, the advantage; `|` ends an update.
"""

import numpy as np
import pytest

from magellan.competence import Outcomes
from magellan.samplers.conformance import TEN_GOALS, FewGoals, make
from tests.runs import printed
from tests.samplers.few_goals import outcomes

GOALS = {"g": 1, "p": 7, "c": 2}
NEVER = {"epsilon_start": 0.0, "epsilon_end": 0.0}

VECTORS = [
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


@pytest.mark.parametrize(("name", "settings", "stream", "expected"), VECTORS)
def test_a_stream_gives_the_probabilities_of_the_source(name, settings, stream, expected):
    sampler = make(name, **NEVER, **settings)
    for update in stream.split("|"):
        rows = [(GOALS[o[0]], float(o[1]), float(o[3:] or 0)) for o in update.split()]
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
