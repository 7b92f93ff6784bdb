"""A curriculum for TRL's `GRPOTrainer`: it draws the goals and gets the rewards.

Uses the hook that TRL's maintainers recommend (trl issue 2801): a subclass that overrides
`_get_train_sampler`, and a callback. Written for TRL 1.16.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from safetensors import safe_open
from safetensors.torch import save
from torch import nn
from torch.utils.data import Sampler
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOTrainer

from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.files import write_atomically
from magellan.curriculum import Curriculum, group_advantages
from magellan.jobs.checkpoint import with_arrays, without_arrays

FILE = "curriculum.safetensors"
"""File in each checkpoint of the trainer."""
COLUMN = "goal"
"""Column of the data set with row numbers, also visible to reward functions."""


class Draws(Sampler[int]):
    """Rows of a data set in the order of TRL's `RepeatSampler`, but drawn on demand.

    A batch of goals, each repeated once per answer, and all that once per optimizer iteration.

    like: the sampler that TRL would use.
    ahead: batches drawn but not yet reported, oldest first, as loaders prefetch.
    """

    def __init__(self, curriculum: Curriculum, like: Any, ahead: list[list[int]]) -> None:
        self._curriculum, self.ahead = curriculum, ahead
        self._goals, self._answers = int(like.batch_size), int(like.mini_repeat_count)
        self._iterations = int(like.repeat_count)
        self._batches = max(1, len(like) // (self._goals * self._answers * self._iterations))
        self._yielded = 0

    def __len__(self) -> int:
        return self._batches * self._goals * self._answers * self._iterations

    def __iter__(self) -> Iterator[int]:
        for _ in range(self._batches):
            self._draw()
            batch = self.ahead[self._yielded]
            self._yielded += 1
            yield from self._iterations * [goal for goal in batch for _ in range(self._answers)]
        self._draw()  # for the next epoch: the time of a draw must not depend on epochs

    def _draw(self) -> None:
        if self._yielded == len(self.ahead):
            self.ahead.append(self._curriculum.sample(self._goals).tolist())

    def reported(self, batches: int) -> None:
        """Drop the oldest batches, whose rewards were reported."""
        del self.ahead[:batches]
        self._yielded = max(0, self._yielded - batches)


class CurriculumGRPOTrainer(GRPOTrainer):
    """A `GRPOTrainer` on goals drawn by a curriculum.

    Each answer is an outcome of its goal, a success if the reward is at least `solved`; rules that
    need advantages get `group_advantages`. The curriculum is updated after the optimizer's step,
    once per batch of answers. Its state is in the trainer's checkpoints, and
    `train(resume_from_checkpoint=...)` restores it. Draws lag one batch behind the last outcomes,
    as the loader prefetches a batch.

    Args:
        model, reward_funcs, args, train_dataset, kwargs: as in `GRPOTrainer`.
        curriculum: over the rows of `train_dataset`, in order.
        solved: smallest reward that is a success.
        judge: index in `reward_funcs` of that reward; a plain function.

    Raises:
        InputError: goals and rows differ in number, a column is named `goal`, which this adds, or
            the judge is no plain function.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: Any = None,
        train_dataset: Any = None,
        *,
        curriculum: Curriculum,
        solved: float = 1.0,
        judge: int = 0,
        **kwargs: Any,
    ) -> None:
        rows = 0 if train_dataset is None else len(train_dataset)
        if rows != len(curriculum):
            raise InputError(
                f"curriculum: {len(curriculum)} goals are not allowed; allowed: the {rows} rows of "
                "train_dataset"
            )
        if COLUMN in train_dataset.column_names:
            raise InputError(
                f"train_dataset: a column {COLUMN!r} is not allowed, as the trainer adds one; "
                "allowed: other names"
            )
        self.curriculum, self._solved = curriculum, solved
        self._unreported: list[tuple[list[int], list[float | None]]] = []
        self._draws: Draws | None = None
        self._ahead: list[list[int]] = []
        functions = list(reward_funcs) if isinstance(reward_funcs, list) else [reward_funcs]
        if judge not in range(len(functions)):
            raise not_allowed("judge", judge, f"0 to {len(functions) - 1}, in reward_funcs")
        functions[judge] = self._recording_judge(functions[judge])
        numbered = train_dataset.add_column(COLUMN, list(range(rows)))
        super().__init__(model, functions, args, numbered, **kwargs)
        self.args.ignore_data_skip = True  # rows have no fixed order to skip in
        self.add_callback(_Report(self))

    def _recording_judge(self, judge: Any) -> Callable[..., Any]:
        """Wrap a reward function so that training rewards are recorded."""
        if (
            not callable(judge)
            or isinstance(judge, nn.Module)
            or inspect.iscoroutinefunction(judge)
        ):
            raise InputError(f"judge: {shown(judge)} is not allowed; allowed: a plain function")

        @functools.wraps(judge)
        def reward(**arguments: Any) -> Any:
            rewards = judge(**arguments)
            if self.model.training:
                self._unreported.append((list(arguments[COLUMN]), list(rewards)))
            return rewards

        return reward

    def _get_train_sampler(self, dataset: Any = None) -> Draws:
        like = super()._get_train_sampler(dataset)
        self._draws = Draws(self.curriculum, like, self._ahead)
        return self._draws

    def get_train_dataloader(self) -> Any:
        """TRL's loader, with its own random generator.

        A loader draws a number from the global generator, which also samples answers, when an epoch
        begins: after a resume at a different step.
        """
        loader = super().get_train_dataloader()
        getattr(loader, "base_dataloader", loader).generator = torch.Generator()
        return loader

    def report(self) -> None:
        """Update the curriculum with the answers of all processes since the last step."""
        if not self._unreported:
            return
        pairs = [
            (goal, reward)
            for goals, rewards in gather_object(self._unreported)
            for goal, reward in zip(goals, rewards, strict=True)
            if reward is not None and not math.isnan(reward)
        ]
        goals, rewards = [goal for goal, _ in pairs], [reward for _, reward in pairs]
        success = [reward >= self._solved for reward in rewards]
        self.curriculum.update(goals, success, group_advantages(goals, rewards))
        if self._draws is not None:
            self._draws.reported(len(self._unreported))
        self._unreported = []

    def save_curriculum(self, checkpoint: Path) -> None:
        """Write the curriculum and the prefetched draws into a checkpoint of the trainer."""
        tensors: dict[str, Any] = {}
        state = {"curriculum": self.curriculum.state_dict(), "ahead": self._ahead}
        tree = json.dumps(without_arrays(state, "", tensors))
        write_atomically(checkpoint / FILE, save(tensors, {"state": tree}))

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """`GRPOTrainer.train`, which also restores the curriculum from a checkpoint.

        Raises:
            InputError: no checkpoint, none with a curriculum, or one over other goals.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise InputError(
                    f"resume_from_checkpoint: no checkpoint in {self.args.output_dir}; allowed: "
                    "a folder with one"
                )
        if resume_from_checkpoint:
            self._load_curriculum(Path(resume_from_checkpoint) / FILE)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_curriculum(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(
                f"resume_from_checkpoint: {path} is missing; allowed: a checkpoint with one"
            )
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            state = with_arrays(json.loads(file.metadata()["state"]), tensors)
        self.curriculum.load_state_dict(state["curriculum"])
        self._ahead[:] = state["ahead"]


class _Report(TrainerCallback):
    """Updates the curriculum after each step, and saves it in each checkpoint."""

    def __init__(self, trainer: CurriculumGRPOTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.report()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._trainer.save_curriculum(Path(args.output_dir) / f"checkpoint-{state.global_step}")
