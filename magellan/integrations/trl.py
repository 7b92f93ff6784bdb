"""Goals of TRL's `GRPOTrainer` drawn by a curriculum, its rewards reported back.

This is the hook that TRL's maintainers name for it (trl issue 2801): a subclass that overrides
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

from magellan.core.errors import InputError, shown
from magellan.core.files import write_atomically
from magellan.curriculum import Curriculum
from magellan.jobs.checkpoint import with_arrays, without_arrays

FILE = "curriculum.safetensors"
"""In each checkpoint of the trainer."""
COLUMN = "goal"
"""Of the data set: the number of each row, which reward functions see too."""


class Draws(Sampler[int]):
    """Rows of a data set as TRL's `RepeatSampler` gives them, but drawn when they are needed.

    A batch of goals, each as often as it is to be answered, all that as often as it is learnt from.

    like: the sampler that TRL would have taken.
    ahead: batches that were drawn and not yet reported, oldest first; loaders look ahead.
    """

    def __init__(self, curriculum: Curriculum, like: Any, ahead: list[list[int]]) -> None:
        self._curriculum, self.ahead = curriculum, ahead
        self._goals, self._answers = int(like.batch_size), int(like.mini_repeat_count)
        self._times = int(like.repeat_count)
        self._batches = max(1, len(like) // (self._goals * self._answers * self._times))
        self._handed_out = 0

    def __len__(self) -> int:
        return self._batches * self._goals * self._answers * self._times

    def __iter__(self) -> Iterator[int]:
        for _ in range(self._batches):
            self._draw()
            batch = self.ahead[self._handed_out]
            self._handed_out += 1
            yield from self._times * [goal for goal in batch for _ in range(self._answers)]
        self._draw()  # for the next epoch: a draw comes at the same moment wherever epochs end

    def _draw(self) -> None:
        if self._handed_out == len(self.ahead):
            self.ahead.append(self._curriculum.sample(self._goals).tolist())

    def reported(self, batches: int) -> None:
        """The oldest batches are done with."""
        del self.ahead[:batches]
        self._handed_out = max(0, self._handed_out - batches)


class CurriculumGRPOTrainer(GRPOTrainer):
    """A `GRPOTrainer` that practises what a curriculum draws.

    Each answer is an outcome of its goal: success where the reward reaches `solved`. The curriculum
    hears of them after the optimizer's step, once per batch of answers. Its state is in the
    trainer's checkpoints, and `train(resume_from_checkpoint=...)` goes on from there. A draw is one
    batch older than the last outcomes: the loader fetches a batch ahead.

    Args:
        model, reward_funcs, args, train_dataset, kwargs: as `GRPOTrainer` takes them.
        curriculum: over the rows of `train_dataset`, in order.
        solved: smallest reward that is a success.
        judge: which of `reward_funcs` gives that reward; a plain function.

    Raises:
        InputError: the curriculum has another number of goals, or the judge is no plain function.
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
        self.curriculum, self._solved = curriculum, solved
        self._answered: list[tuple[list[int], list[float | None]]] = []
        self._draws: Draws | None = None
        self._ahead: list[list[int]] = []
        functions = list(reward_funcs) if isinstance(reward_funcs, list) else [reward_funcs]
        functions[judge] = self._watched(functions[judge])
        numbered = train_dataset.add_column(COLUMN, list(range(rows)))
        super().__init__(model, functions, args, numbered, **kwargs)
        self.args.ignore_data_skip = True  # there is no fixed order in which rows could be skipped
        self.add_callback(_Report(self))

    def _watched(self, judge: Any) -> Callable[..., Any]:
        """The same reward function, with a note of each training reward."""
        if (
            not callable(judge)
            or isinstance(judge, nn.Module)
            or inspect.iscoroutinefunction(judge)
        ):
            raise InputError(f"judge: {shown(judge)} is not allowed; allowed: a plain function")

        @functools.wraps(judge)
        def reward(**given: Any) -> Any:
            rewards = judge(**given)
            if self.model.training:
                self._answered.append((list(given[COLUMN]), list(rewards)))
            return rewards

        return reward

    def _get_train_sampler(self, dataset: Any = None) -> Draws:
        like = super()._get_train_sampler(dataset)
        self._draws = Draws(self.curriculum, like, self._ahead)
        return self._draws

    def get_train_dataloader(self) -> Any:
        """As TRL's, but random numbers that answers are drawn with do not pay for its start.

        A loader takes one from the global generator whenever it begins: at other steps after a
        resume, whose epoch begins anew.
        """
        loader = super().get_train_dataloader()
        getattr(loader, "base_dataloader", loader).generator = torch.Generator()
        return loader

    def report(self) -> None:
        """Tell the curriculum of all answers since the last step, of all processes."""
        if not self._answered:
            return
        pairs = [
            (goal, reward >= self._solved)
            for goals, rewards in gather_object(self._answered)
            for goal, reward in zip(goals, rewards, strict=True)
            if reward is not None and not math.isnan(reward)
        ]
        self.curriculum.update([goal for goal, _ in pairs], [success for _, success in pairs])
        if self._draws is not None:
            self._draws.reported(len(self._answered))
        self._answered = []

    def save_curriculum(self, checkpoint: Path) -> None:
        """Write the curriculum and what is drawn ahead into a checkpoint of the trainer."""
        tensors: dict[str, Any] = {}
        state = {"curriculum": self.curriculum.state_dict(), "ahead": self._ahead}
        tree = json.dumps(without_arrays(state, "", tensors))
        write_atomically(checkpoint / FILE, save(tensors, {"state": tree}))

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `GRPOTrainer.train`; a checkpoint brings the curriculum back as well.

        Raises:
            InputError: the checkpoint has none, or one over other goals.
        """
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
        if resume_from_checkpoint:
            self._load_curriculum(Path(resume_from_checkpoint) / FILE)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_curriculum(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(
                f"resume_from_checkpoint: {path} is missing; allowed: with a curriculum"
            )
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            state = with_arrays(json.loads(file.metadata()["state"]), tensors)
        self.curriculum.load_state_dict(state["curriculum"])
        self._ahead[:] = state["ahead"]


class _Report(TrainerCallback):
    """Reports after each step, and saves beside each checkpoint."""

    def __init__(self, trainer: CurriculumGRPOTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.report()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._trainer.save_curriculum(Path(args.output_dir) / f"checkpoint-{state.global_step}")
