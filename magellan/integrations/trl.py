"""A curriculum for TRL's trainers: it draws the goals and gets the rewards.

Uses the hook that TRL's maintainers recommend (trl issue 2801): a subclass that overrides
`_get_train_sampler`, and a callback. `CurriculumMixin` is that subclass for any trainer:

    class Mine(CurriculumMixin, SomeTrainer): ...

Written for TRL 1.16.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import nn
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOTrainer, RLOOTrainer

from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.files import write_atomically
from magellan.core.parsing import read_json_object
from magellan.curriculum import Curriculum, Gate, checked_gate
from magellan.curriculum.answers import checked_threshold

FILE = "curriculum.json"
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


class CurriculumMixin(Trainer):
    """`GRPOTrainer`, `RLOOTrainer` or a subclass of them, named behind it, on a curriculum's goals.

    All answers to a goal are one outcome; a reward of None, or one that is not finite, is lost. The
    curriculum is updated after the optimizer's step, once per batch of answers, and its `metrics`
    are logged with the trainer's. Its state is in the trainer's checkpoints, and
    `train(resume_from_checkpoint=...)` restores it. Draws lag one batch behind the last outcomes,
    as the loader prefetches a batch.

    Args:
        model, reward_funcs, args, train_dataset, kwargs: as in `GRPOTrainer`.
        curriculum: over the rows of `train_dataset`, in order.
        solved: smallest reward that is a success; by default the curriculum's.
        judge: index in `reward_funcs` of that reward; a plain function.
        gate: which answers are trained on, as in `Curriculum.admitted`: "spread" leaves out groups
            of equal rewards, as DAPO does. The curriculum learns from all.

    Raises:
        InputError: goals and rows differ in number or order, the data set has no length, a column
            is named `goal`, which this adds, the judge is no plain function, or the gate unknown.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: Any = None,
        train_dataset: Any = None,
        *,
        curriculum: Curriculum,
        solved: float | None = None,
        judge: int = 0,
        gate: str | Gate = "all",
        **kwargs: Any,
    ) -> None:
        checked_gate(gate)
        _check_rows(train_dataset, curriculum)
        self.curriculum = curriculum
        if solved is not None:
            curriculum.solved = checked_threshold(solved)
        self._unreported: list[tuple[list[int], list[Any]]] = []
        self._draws: Draws | None = None
        self._gate, self._admitted = gate, 1.0
        self._ahead: list[list[int]] = []
        functions = list(reward_funcs) if isinstance(reward_funcs, list) else [reward_funcs]
        if judge not in range(len(functions)):
            raise not_allowed("judge", judge, f"0 to {len(functions) - 1}, in reward_funcs")
        functions[judge] = self._recording_judge(functions[judge])
        numbered = train_dataset.add_column(COLUMN, list(range(len(curriculum))))
        super().__init__(model, functions, args, train_dataset=numbered, **kwargs)
        self.args.ignore_data_skip = True  # rows have no fixed order to skip in
        self.add_callback(Report(self))
        _warn_of_lost_answers(self.args)

    def _recording_judge(self, judge: Any) -> Callable[..., Any]:
        """Wrap a reward function so that training rewards are recorded."""
        model = isinstance(judge, nn.Module)
        waits = map(inspect.iscoroutinefunction, (judge, getattr(judge, "__call__", None)))  # noqa: B004
        if model or not callable(judge) or any(waits):
            raise not_allowed("judge", judge, "a plain function")

        @functools.wraps(judge)
        def reward(**arguments: Any) -> Any:
            rewards = judge(**arguments)
            rewards = rewards if hasattr(rewards, "__len__") else list(rewards)
            if self.model.training:
                own = [r.detach().cpu() if isinstance(r, torch.Tensor) else r for r in rewards]
                self._unreported.append((list(arguments[COLUMN]), own))
            return rewards

        named = judge
        while isinstance(named, functools.partial):
            named = named.func
        reward.__name__ = getattr(named, "__name__", type(named).__name__)  # as TRL names it
        return reward

    def _get_train_sampler(self, dataset: Any = None) -> Draws:
        like = super()._get_train_sampler(dataset)
        if {len(batch) for batch in self._ahead} - {like.batch_size}:
            warnings.warn(
                f"resume_from_checkpoint: draws saved ahead are not of {like.batch_size} goals, as "
                "batches are now, and are drawn anew",
                stacklevel=2,
            )
            self._ahead.clear()
        self._draws = Draws(self.curriculum, like, self._ahead)
        return self._draws

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """TRL's answers, advantages and masks; answers that the gate refuses get no gradient."""
        generating: Any = super()
        output = generating._generate_and_score_completions(inputs)
        if self._gate == "all" or not self.model.training:
            return output
        own = list(zip(*self._unreported[-1], strict=True))
        pairs = gather_object(own)
        goals, rewards = ([pair[i] for pair in pairs] for i in (0, 1))
        draws = [answer // self.num_generations for answer in range(len(pairs))]
        every = self.curriculum.admitted(goals, rewards, self._gate, draws)
        self._admitted = float(every.mean())
        first = self.accelerator.process_index * len(own)
        advantages = output["advantages"]
        kept = torch.tensor(every[first : first + len(own)], device=advantages.device)
        output["advantages"] = torch.where(kept, advantages, 0.0)
        if "num_items_in_batch" in output:  # GRPO: not in its mean over tokens either
            mask = output["completion_mask"] * kept[:, None]
            tokens = mask * output.get("tool_mask", 1)
            output["completion_mask"] = mask
            output["num_items_in_batch"] = self.accelerator.gather(tokens.sum()).sum()
        return output

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if COLUMN not in self._signature_columns:
            self._signature_columns.append(COLUMN)  # kept with `remove_unused_columns`

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """The trainer's `log`, in training with the curriculum's metrics and the gate's."""
        if self.model.training:
            logs.update(self.curriculum.metrics("curriculum/"))
            logs["curriculum/admitted"] = self._admitted
        super().log(logs, *args, **kwargs)

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
        every = gather_object(self._unreported)
        self.curriculum.update(*(list(chain(*columns)) for columns in zip(*every, strict=True)))
        if self._draws is not None:
            self._draws.reported(len(self._unreported))
        self._unreported = []

    def save_curriculum(self, checkpoint: Path) -> None:
        """Write the curriculum and the prefetched draws into a checkpoint of the trainer."""
        state = {"curriculum": self.curriculum.state_dict(), "ahead": self._ahead}
        write_atomically(checkpoint / FILE, json.dumps(state).encode())

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The trainer's `train`, which also restores the curriculum from a checkpoint.

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
            path = Path(resume_from_checkpoint) / FILE
            if not path.is_file():
                raise InputError(
                    f"resume_from_checkpoint: {path} is missing; allowed: a checkpoint with one"
                )
            state = read_json_object(path)
            ahead: Any = state.get("ahead")
            listed = isinstance(ahead, list) and all(isinstance(batch, list) for batch in ahead)
            rows = chain(*ahead) if listed else ()
            if not listed or any(row not in range(len(self.curriculum)) for row in rows):
                raise not_allowed(f"{path}: ahead", ahead, "lists of rows of train_dataset")
            self.curriculum.load_state_dict(state.get("curriculum", {}))
            self._ahead[:] = ahead
        return super().train(resume_from_checkpoint, *args, **kwargs)


class CurriculumGRPOTrainer(CurriculumMixin, GRPOTrainer):
    """A `GRPOTrainer` on goals drawn by a curriculum."""


class CurriculumRLOOTrainer(CurriculumMixin, RLOOTrainer):
    """An `RLOOTrainer` on goals drawn by a curriculum."""


def _check_rows(rows: Any, curriculum: Curriculum) -> None:
    """Check that a data set has a row for each goal, in order."""
    table = hasattr(rows, "__len__") and hasattr(rows, "column_names")
    if rows is not None and (isinstance(rows, Mapping) or not table):
        kind = type(rows).__name__
        allowed = "a Dataset with a length"
        raise InputError(f"train_dataset: a {kind} is not allowed; allowed: {allowed}")
    n = 0 if rows is None else len(rows)
    if rows is None or n != len(curriculum):
        raise InputError(
            f"curriculum: {len(curriculum)} goals are not allowed; allowed: the {n} rows of "
            "train_dataset"
        )
    if COLUMN in rows.column_names:
        raise InputError(
            f"train_dataset: a column {COLUMN!r} is not allowed, as the trainer adds one; "
            "allowed: other names"
        )
    goals = curriculum.goals
    known = {*goals}
    for row, prompt in enumerate(rows["prompt"] if "prompt" in rows.column_names else ()):
        turns = [prompt] if isinstance(prompt, str) else [str(turn["content"]) for turn in prompt]
        texts = {"\n".join(turns), *turns[-1:]}
        if goals[row] not in texts and texts & known:
            raise InputError(
                f"train_dataset: row {row} is {shown(turns[-1])}, another goal of the curriculum, "
                f"whose goal {row} is {shown(goals[row])}; allowed: the same order"
            )


def _warn_of_lost_answers(args: Any) -> None:
    """Warn if a checkpoint may fall between two generations: TRL saves no answers."""
    strategy = getattr(args, "save_strategy", "no")
    if getattr(strategy, "value", strategy) != "steps":
        return
    every = args.steps_per_generation * args.num_iterations  # backward passes
    every //= math.gcd(every, args.gradient_accumulation_steps)
    steps = args.save_steps
    if steps < 1 and args.max_steps > 0:  # a share of all steps
        steps = math.ceil(steps * args.max_steps)
    if every > 1 and steps % every:
        warnings.warn(
            f"save_steps: at {args.save_steps} checkpoints lose answers that are still in use, so "
            f"a resumed run differs from an uninterrupted one; allowed: a multiple of {every}",
            stacklevel=3,
        )


class Report(TrainerCallback):
    """Updates the curriculum after each step, and saves it in each checkpoint."""

    def __init__(self, trainer: CurriculumMixin) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.report()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._trainer.save_curriculum(Path(args.output_dir) / f"checkpoint-{state.global_step}")
