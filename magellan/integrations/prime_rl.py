"""A curriculum as a `TaskSampler` of prime-rl.

Written to the interface of prime-rl at 559b447 (21 August 2026): its samplers are built from the
configuration, which names two of them. Before the orchestrator starts, this one takes the place of
the default:

    from functools import partial
    from magellan.integrations.prime_rl import CurriculumSampler
    from prime_rl.orchestrator.curriculum import samplers

    samplers.StandardSampler = partial(CurriculumSampler, groups_per_step=16, sampler="dps")

Gates are prime-rl's own, and combine with any sampler: `advantage_range` with its default limits is
our gate `spread`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prime_rl.orchestrator.curriculum.samplers import TaskSampler

from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import is_whole
from magellan.curriculum import Curriculum
from magellan.curriculum.answers import numbers


class CurriculumSampler(TaskSampler):
    """Draws tasks, one at a time, and learns from finished groups of rollouts.

    A rollout with an error or no reward, and one of an agent that is not trained, is lost. Groups
    finish one by one, in any order; the curriculum learns from those of a step at once.

    Args:
        tasks: finite, each with a `key` of its own; its goal is its prompt, if that is a text.
        groups_per_step: groups in a training batch: its size over the rollouts per task.
        arguments: of `Curriculum`.

    Raises:
        InputError: tasks without an end, without a key, or two with the same; an argument that is
            not allowed.
    """

    def __init__(
        self, tasks: Sequence[Any] | Iterator[Any], *, groups_per_step: int, **arguments: Any
    ) -> None:
        if not isinstance(tasks, Sequence):
            raise InputError("tasks: without an end; allowed: a finite task set")
        self.tasks = tuple(tasks)
        keys = [task.key for task in self.tasks]
        if None in keys or len({*keys}) < len(keys):
            raise InputError("tasks: a key is missing, or the same in two; allowed: a key of each")
        if not is_whole(groups_per_step, 1):
            raise not_allowed("groups_per_step", groups_per_step, ">= 1")
        self._row_of = {key: i for i, key in enumerate(keys)}
        self._groups_per_step = groups_per_step
        self._waiting: list[tuple[int, list[float | None]]] = []
        self.curriculum = Curriculum([_text(task) for task in self.tasks], **arguments)

    def __next__(self) -> Any:
        return self.tasks[int(self.curriculum.sample(1)[0])]

    def observe(self, group: list[Any]) -> None:
        """Take the rollouts of a task; learn from those of a step when the last has come."""
        key = group[0].task.key
        if key not in self._row_of:
            raise not_allowed("task key", key, "those of the task set")
        trained = (trace for episode in group for trace in episode.traces if trace.agent.trainable)
        came = (None if trace.has_error else trace.reward for trace in trained)
        rewards = [None if reward is None else float(reward) for reward in came]
        self._waiting.append((self._row_of[key], rewards or [None]))
        if len(self._waiting) >= self._groups_per_step:
            groups, self._waiting = self._waiting, []
            rows = [row for row, rewards in groups for _ in rewards]
            self.curriculum.update(rows, [r for _, rewards in groups for r in rewards])

    def state_dict(self) -> dict[str, Any]:
        """The curriculum, and groups of a step that is not complete."""
        return {"curriculum": self.curriculum.state_dict(), "waiting": self._waiting.copy()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a `state_dict`.

        Raises:
            InputError: as `Curriculum.load_state_dict`, or a waiting group of no task.
        """
        saved: Any = state_dict.get("waiting")
        try:
            waiting = [(int(row), numbers("waiting", each).tolist()) for row, each in saved]
        except (TypeError, ValueError):
            raise not_allowed("waiting", saved, "pairs of a task's row and its rewards") from None
        for row, _ in waiting:
            if row not in range(len(self.tasks)):
                raise not_allowed("waiting: row", row, f"0 to {len(self.tasks) - 1}")
        self.curriculum.load_state_dict(state_dict.get("curriculum", {}))
        self._waiting = waiting

    def metrics(self) -> dict[str, float]:
        """Those of the curriculum; prime-rl logs them under `curriculum/ENVIRONMENT/sampler`."""
        return self.curriculum.metrics()


def _text(task: Any) -> str:
    """The prompt of a task, if it is a text, or its key."""
    prompt = getattr(getattr(task, "data", None), "prompt", None)
    return prompt if isinstance(prompt, str) and prompt else str(task.key)
