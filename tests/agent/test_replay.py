"""n-step returns on a hand-worked episode, and the ring of transitions."""

import numpy as np

from magellan.agent.replay import NStepWindow, Replay, Step, Transition
from magellan.core.codec import PADDING, PackedState


def state(number: int, length: int = 3) -> PackedState:
    return PackedState(np.full(length, number, np.int32), np.zeros(length, np.int8))


def test_three_step_returns_of_a_five_step_episode():
    window, transitions = NStepWindow(3, 0.5), []
    for i, reward in enumerate([1.0, 0.0, 2.0, 0.0, 4.0]):
        transitions += window.add(Step(state(i), i % 2, reward), state(i + 1), ended=i == 4)
    assert not window.steps
    # s0: 1 + 0/2 + 2/4 = 1.5 and goes on from s3; s1: 0 + 2/2 + 0/4 = 1 and goes on from s4;
    # s2: 2 + 0/2 + 4/4 = 3, s3: 0 + 4/2 = 2 and s4: 4 reach the end.
    assert [t.returns for t in transitions] == [1.5, 1.0, 3.0, 2.0, 4.0]
    assert [t.discount for t in transitions] == [0.125, 0.125, 0.0, 0.0, 0.0]
    assert [int(t.state.tokens[0]) for t in transitions] == [0, 1, 2, 3, 4]
    assert [int(t.next_state.tokens[0]) for t in transitions] == [3, 4, 5, 5, 5]
    assert [t.action for t in transitions] == [0, 1, 0, 1, 0]


def transition(number: int, length: int = 3, discount: float = 0.5) -> Transition:
    return Transition(
        state(number, length), number, float(number), discount, state(-number, length)
    )


def test_the_oldest_transition_is_replaced_and_padding_is_marked():
    replay = Replay(3, np.random.default_rng(0))
    for number, length in ((1, 2), (2, 4), (3, 2), (4, 2)):
        replay.add(transition(number, length))
    batch = replay.sample(3)
    assert sorted(batch.returns.tolist()) == [2.0, 3.0, 4.0]
    row = batch.returns.tolist().index(4.0)
    assert batch.tokens[row, :2].tolist() == [4, 4]
    assert batch.next_tokens[row, :2].tolist() == [-4, -4]
    assert batch.segments[row].tolist() == [0, 0, PADDING, PADDING]


def test_success_fraction_and_marks():
    replay = Replay(1_000, np.random.default_rng(0), success_fraction=0.3)
    serials = [replay.add(transition(number)) for number in range(500)]
    replay.mark_success(serials[:50])
    draws = np.concatenate([replay.sample(100).returns for _ in range(50)])
    # 30 of 100 by right, and 10 % of the other 70 by chance: 0.37 of all.
    assert 0.34 < (draws < 50).mean() < 0.40


def test_marks_do_not_reach_what_has_replaced_a_transition():
    replay = Replay(2, np.random.default_rng(0), success_fraction=1.0)
    first = replay.add(transition(1))
    replay.add(transition(2))
    replay.add(transition(3))  # stands where the first one stood
    replay.mark_success([first])
    assert not replay.state_dict()["fields"]["success"].any()
