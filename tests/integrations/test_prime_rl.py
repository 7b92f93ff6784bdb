"""A curriculum as prime-rl's `TaskSampler`: a stand-in of its interface, and of what it passes.

Signatures are those of src/prime_rl/orchestrator/curriculum at 559b447: samplers/base.py, base.py.
prime-rl needs Python 3.12 and a GPU.
"""

import pickle
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pytest

from magellan.core.errors import InputError
from tests.integrations import loaded


class TaskSampler(Iterator[Any], ABC):
    """Without its methods that do nothing: `observe`, those of the state, `metrics`."""

    @abstractmethod
    def __next__(self): ...


@pytest.fixture
def made():
    interface = {"TaskSampler": TaskSampler}
    with loaded("prime_rl", {"prime_rl.orchestrator.curriculum.samplers": interface}) as module:
        yield module.CurriculumSampler


def task(number, key=""):
    data = types.SimpleNamespace(idx=number, prompt=f"What is {number} + {number}?")
    return types.SimpleNamespace(data=data, key=f"key{number}" if key == "" else key)


TASKS = [task(number) for number in range(10)]


def group(of, rewards, trainable=True):
    """Finished episodes of a task, a trace each; None: the rollout failed."""
    agent = types.SimpleNamespace(trainable=trainable)
    judged = [{"reward": reward or 0.0, "has_error": reward is None} for reward in rewards]
    traces = [types.SimpleNamespace(**each, agent=agent) for each in judged]
    return [types.SimpleNamespace(task=of, traces=[trace]) for trace in traces]


def practise(sampler, groups):
    drawn = []
    for _ in range(groups):
        chosen = next(sampler)
        drawn.append(chosen.key)
        number = chosen.data.idx
        sampler.observe(group(chosen, [float(number > 6), 0.0, None if number == 3 else 0.0]))
    return drawn


@pytest.mark.parametrize("name", ["mopps", "learnability"])
def test_it_practises_what_it_can_learn_and_goes_on_where_it_stopped(made, name):
    arguments = {"sampler": name, "settings": {"samplers": {"epsilon_decay": 10.0}}}
    first, again = (made(TASKS, groups_per_step=4, **arguments) for _ in range(2))
    practise(first, 121)  # one group of the next step is waiting
    assert first.curriculum.sampler.step == 30
    again.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))  # noqa: S301  # as it does
    rest = practise(first, 40)
    assert practise(again, 40) == rest
    assert sum(key in ("key7", "key8", "key9") for key in rest) > 20
    assert all(isinstance(value, float) for value in first.metrics().values())


def test_a_resumed_one_with_smaller_steps_goes_on_learning(made):
    first, again = (made(TASKS, groups_per_step=n, sampler="random") for n in (8, 4))
    practise(first, 7)
    state = first.state_dict()
    practise(first, 1)
    assert len(state["waiting"]) == 7
    again.load_state_dict(state)
    practise(again, 5)
    assert again.curriculum.sampler.step == 2
    with pytest.raises(InputError, match=r"^waiting: row: 99 is not allowed; allowed: 0 to"):
        again.load_state_dict({**state, "waiting": [(99, [1.0])]})
    for damaged in ([[0, ["x"]]], None, [[0]]):
        with pytest.raises(InputError, match=r"^waiting: "):
            again.load_state_dict({**state, "waiting": damaged})


def test_errors_and_others_agents_are_lost(made):
    sampler = made(TASKS, groups_per_step=3, sampler="random", solved=1.0)
    sampler.observe(group(TASKS[0], [None, 1.0, 1.0]))
    sampler.observe(group(TASKS[1], [1.0], trainable=False))
    (unscored,) = group(TASKS[2], [0.0])
    unscored.traces[0].reward = None
    sampler.observe([unscored, types.SimpleNamespace(task=TASKS[2], traces=[])])
    metrics = sampler.metrics()
    assert (metrics["lost"], metrics["coverage"], metrics["mastered"]) == (3, 0.1, 1.0)


def test_bad_input_is_one_clear_line(made):
    for tasks, groups, says in (
        (iter(TASKS), 1, "tasks: without an end"),
        ([task(0), task(0)], 1, "tasks: a key is missing, or the same in two"),
        (TASKS, 0, "groups_per_step: 0 is not allowed; allowed: >= 1"),
        (TASKS, 1, "task key: 'key11' is not allowed; allowed: those of"),
    ):
        with pytest.raises(InputError, match=f"^{says}"):
            made(tasks, groups_per_step=groups, sampler="random").observe(group(task(11), [1.0]))
