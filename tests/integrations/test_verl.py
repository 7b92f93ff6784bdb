"""A curriculum behind verl's interface, against a stand-in of it."""

from __future__ import annotations

import importlib
import sys
import types
from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Sampler

from magellan.core.errors import InputError


class AbstractCurriculumSampler(Sampler[int]):
    """The interface as verl documents it."""

    @abstractmethod
    def __init__(self, data_source: Any, data_config: Any) -> None: ...

    @abstractmethod
    def update(self, batch: Any) -> None: ...


@pytest.fixture
def make_sampler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the sampler as verl does."""
    path = "verl.experimental.dataset.sampler"
    parts = path.split(".")
    for end in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType("verl"))
    stand_in = types.SimpleNamespace(AbstractCurriculumSampler=AbstractCurriculumSampler)
    monkeypatch.setitem(sys.modules, path, stand_in)
    monkeypatch.delitem(sys.modules, "magellan.integrations.verl", raising=False)
    module = importlib.import_module("magellan.integrations.verl")

    def make(rows: list[dict[str, Any]], **curriculum: Any) -> Any:
        data = {"train_batch_size": 4, "prompt_key": "prompt", "curriculum": curriculum}
        return module.CurriculumSampler(types.SimpleNamespace(dataframe=rows), data)

    yield make
    sys.modules.pop("magellan.integrations.verl", None)


# Long prompts were filtered out, so a row's index is not its place.
ROWS = [
    {"prompt": [{"role": "user", "content": f"What is {n} + {n}?"}], "extra_info": {"index": 2 * n}}
    for n in range(10)
]
SETTINGS = {"samplers": {"epsilon_decay": 2.0}}


def step(sampler: Any, places: list[int]) -> None:
    """A step of verl's trainer: three answers to each row, scored at their last token."""
    info = np.repeat([ROWS[place]["extra_info"] for place in places], 3)
    scores = torch.zeros(len(info), 5)
    solvable = torch.tensor([extra["index"] > 9 for extra in info])
    scores[:, -1] = torch.tensor([1.0, 0.0, 0.25]).repeat(len(places)) * solvable
    sampler.update(  # other columns of the rows go to the rollout and do not come back
        batch=types.SimpleNamespace(
            batch={"token_level_scores": scores}, non_tensor_batch={"extra_info": info}
        )
    )


def test_it_draws_rows_and_gets_answers(make_sampler: Any) -> None:
    sampler = make_sampler(ROWS, sampler="learnability", settings=SETTINGS)
    assert isinstance(sampler, AbstractCurriculumSampler)
    assert len(list(sampler)) == len(sampler) == 10
    for _ in range(6):
        step(sampler, list(range(10)))
    now, _ = sampler.curriculum.competence()
    np.testing.assert_allclose(now, np.where(np.arange(10) > 4, 1 / 3, 0.0))
    chances = sampler.curriculum.probabilities()
    assert chances[5:].min() > chances[:5].max() > 0


def test_it_goes_on_where_it_stopped(make_sampler: Any) -> None:
    first, again = (make_sampler(ROWS, sampler="online", settings=SETTINGS) for _ in range(2))
    for _ in range(4):
        step(first, list(range(8)))
    epoch = iter(first)
    assert len(list(islice(epoch, 4))) == 4
    again.load_state_dict(first.state_dict())
    rest = list(again)
    assert len(rest) == 6
    assert rest == list(epoch)
    assert list(again) == list(first)


def test_solved_is_the_threshold_of_a_success(make_sampler: Any) -> None:
    sampler = make_sampler(ROWS, sampler="online", solved=0.25)
    for _ in range(2):
        step(sampler, [7])
    assert sampler.curriculum.competence()[0][7] == pytest.approx(2 / 3)


def test_scores_give_advantages_to_rules_that_need_them(make_sampler: Any) -> None:
    sampler = make_sampler(ROWS, sampler="plr", settings=SETTINGS)
    step(sampler, [0, 7])  # every answer to 0 scores 0
    assert sampler.curriculum.probabilities().argmax() == 7


@pytest.mark.parametrize("index", [None, 0])
def test_rows_that_cannot_be_told_apart_are_refused(make_sampler: Any, index: int | None) -> None:
    rows = [{"prompt": "a", "extra_info": {"index": 0}}, {"prompt": "b"}]
    if index is not None:
        rows[1]["extra_info"] = {"index": index}
    with pytest.raises(InputError, match=r"^extra_info.index: missing, or the same in two rows"):
        make_sampler(rows, sampler="random")
