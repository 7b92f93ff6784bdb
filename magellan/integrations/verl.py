"""A curriculum that draws the rows of verl's data set.

For verl 0.9 `verl_trainer` has a trainer with it. verl 0.5 to 0.7 have an interface for curriculum
samplers, which 0.8 removed; they save checkpoints before the curriculum's update, which therefore
lack the outcomes of their last step. In their configuration (the loader must have no workers, so
that draws follow the last update):

    data.sampler.class_path=pkg://magellan.integrations.verl
    data.sampler.class_name=CurriculumSampler
    data.dataloader_num_workers=0
    +data.curriculum.sampler=learnability
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

try:
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler as Sampler
except ImportError:  # from verl 0.8 on
    from torch.utils.data import Sampler

from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import is_whole
from magellan.curriculum import Curriculum


class CurriculumSampler(Sampler):
    """Draws rows of the data set, as many an epoch as it has; its state goes to checkpoints.

    Args:
        data_source: verl's data set. Each row has a `prompt`, a text or the turns of a
            conversation, and a unique `extra_info.index`, which identifies it in batches.
        data_config: verl's section `data`; its key `curriculum` has arguments of `Curriculum`.

    Raises:
        InputError: a row without a unique index, or an unknown key.
    """

    def __init__(self, data_source: Any, data_config: Any) -> None:
        arguments = _plain(data_config.get("curriculum") or {})
        allowed = list(inspect.signature(Curriculum).parameters)[1:]
        for name in arguments.keys() - {*allowed}:
            raise not_allowed("data.curriculum", name, ", ".join(allowed))
        rows = list(getattr(data_source, "dataframe", data_source))
        indices = [(row.get("extra_info") or {}).get("index") for row in rows]
        self._row_of = {index: row for row, index in enumerate(indices)}
        if None in self._row_of or len(self._row_of) < len(rows):
            raise InputError("extra_info.index: missing, or the same in two rows; allowed: its own")
        key = data_config.get("prompt_key") or "prompt"
        try:
            self.curriculum = Curriculum([_text(row[key]) for row in rows], **arguments)
        except InputError as error:
            raise InputError(f"data.curriculum.{error}") from None
        sizes = (data_config.get(name) for name in ("gen_batch_size", "train_batch_size"))
        self._batch = next(filter(None, sizes), 1)
        self._drawn, self._resumes = 0, False  # in this epoch; whether it goes on with a saved one

    def __len__(self) -> int:
        return len(self.curriculum)

    def __iter__(self) -> Iterator[int]:
        if self._resumes and len(self) - self._drawn < self._batch:
            # Nothing is left of the epoch, or what the loader draws at its end and drops.
            while self._drawn < len(self):
                self._draw()
            self._resumes = False
        self._drawn = self._drawn if self._resumes else 0
        self._resumes = False
        while self._drawn < len(self):
            yield self._draw()
        self._drawn = 0

    def _draw(self) -> int:
        self._drawn += 1
        return int(self.curriculum.sample(1)[0])

    def update(self, batch: Any) -> None:
        """Learn from the answers of a step, a `DataProto`: verl 0.5 to 0.7 call this."""
        scores = batch.batch["token_level_scores"].sum(-1)
        self.record(batch.non_tensor_batch["extra_info"], scores)

    def record(self, extra_info: Iterable[Mapping[str, Any]], scores: Any) -> list[int]:
        """Learn from answers, given the `extra_info` of their rows, and their scores: (answers,).

        Returns: the row of each.
        """
        indices = [info.get("index") for info in extra_info]
        for index in indices:
            if index not in self._row_of:
                raise not_allowed("extra_info.index", index, "those of the data set")
        goals = [self._row_of[index] for index in indices]
        self.curriculum.update(goals, scores)
        return goals

    def state_dict(self) -> dict[str, Any]:
        """For verl's stateful data loader."""
        return {"drawn": self._drawn, "curriculum": self.curriculum.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; `InputError` if it is refused, and then nothing changes."""
        drawn: Any = state.get("drawn")
        if not is_whole(drawn, 0):
            raise not_allowed("drawn", drawn, "a whole number >= 0")
        self.curriculum.load_state_dict(state.get("curriculum", {}))
        self._drawn, self._resumes = int(drawn), True


def _plain(values: Any) -> dict[str, Any]:
    """Convert a configuration section to plain dictionaries."""
    return {key: _plain(v) if hasattr(v, "items") else v for key, v in values.items()}


def _text(prompt: Any) -> str:
    """The text of a prompt."""
    return prompt if isinstance(prompt, str) else "\n".join(str(turn["content"]) for turn in prompt)
