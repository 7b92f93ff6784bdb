"""A curriculum behind verl's interfaces, against stand-ins of them."""

import types
from abc import abstractmethod
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler

from magellan.core.errors import InputError
from tests.integrations import loaded
from tests.runs import refuses


class AbstractCurriculumSampler(Sampler[int]):
    @abstractmethod
    def __init__(self, data_source, data_config): ...

    @abstractmethod
    def update(self, batch): ...


class PPOTrainerSync:
    """The parts of verl's trainer that ours is about."""

    def __init__(self, config):
        self.config, self.train_dataset = config, ROWS
        self._init_dataloader()

    def _init_dataloader(self):
        self.train_dataloader = DataLoader(ROWS, batch_size=4, collate_fn=list)

    def _compute_advantage(self, batch, metrics):
        metrics["advantages"] = len(batch.keys)
        return batch


QUEUE = {}
"""TransferQueue: what workers put, by key."""


def kv_batch_get(keys, partition_id, select_fields):
    assert partition_id == "train"
    columns = {field: [QUEUE[key][field] for key in keys] for field in select_fields}
    for name, values in columns.items():
        if isinstance(values[0], torch.Tensor):
            columns[name] = torch.nested.nested_tensor(values, layout=torch.jagged)
    return columns


def kv_batch_put(keys, partition_id, fields):
    assert partition_id == "train"
    for name, values in fields.items():
        for key, value in zip(keys, values.unbind(), strict=True):
            QUEUE[key][name] = value


@pytest.fixture
def make_sampler():
    interface = {"AbstractCurriculumSampler": AbstractCurriculumSampler}
    with loaded("verl", {"verl.experimental.dataset.sampler": interface}) as module:

        def make(rows, **curriculum):
            data = {"train_batch_size": 4, "prompt_key": "prompt", "curriculum": curriculum}
            return module.CurriculumSampler(types.SimpleNamespace(dataframe=rows), data)

        yield make


@pytest.fixture
def make_trainer():
    trainers = {}
    register = {"register_trainer": lambda name: lambda cls: trainers.setdefault(name, cls)}
    stand_ins = {
        "verl.trainer.ppo.v1": {"PPOTrainerSync": PPOTrainerSync, **register},
        "torchdata.stateful_dataloader": {"StatefulDataLoader": DataLoader},
        "transfer_queue": {"kv_batch_get": kv_batch_get, "kv_batch_put": kv_batch_put},
        "tensordict": {"TensorDict": lambda fields, batch_size: fields},
    }
    with loaded("verl_trainer", stand_ins):

        def make(filter_groups=None, other=None, gate=None, **curriculum):
            config = types.SimpleNamespace(
                algorithm={"filter_groups": filter_groups, "gate": gate},
                data={"curriculum": curriculum, "sampler": {"class_path": other}},
                trainer=types.SimpleNamespace(v1=types.SimpleNamespace(trainer_mode="curriculum")),
            )
            return trainers["curriculum"](config)

        yield make


# Long prompts were filtered out, so a row's index is not its place.
ROWS = [
    {"prompt": [{"role": "user", "content": f"What is {n} + {n}?"}], "extra_info": {"index": 2 * n}}
    for n in range(10)
]
SETTINGS = {"samplers": {"epsilon_decay": 2.0}}


def step(sampler, places):
    """A step of verl's trainer: three answers to each row, scored at their last token."""
    info = np.repeat([ROWS[place]["extra_info"] for place in places], 3)
    scores = torch.zeros(len(info), 5)
    solvable = torch.tensor([extra["index"] > 9 for extra in info])
    scores[:, -1] = torch.tensor([1.0, 0.0, 0.25]).repeat(len(places)) * solvable
    tell(sampler, info, scores)


def tell(sampler, info, scores):
    """Other columns of the rows go to the rollout and do not come back."""
    batch, rows = {"token_level_scores": scores}, {"extra_info": info}
    sampler.update(batch=types.SimpleNamespace(batch=batch, non_tensor_batch=rows))


def test_it_draws_rows_and_gets_answers(make_sampler):
    sampler = make_sampler(ROWS, sampler="learnability", settings=SETTINGS)
    assert isinstance(sampler, AbstractCurriculumSampler)
    assert len(list(sampler)) == len(sampler) == 10
    for _ in range(6):
        step(sampler, list(range(10)))
    now, _ = sampler.curriculum.competence()
    np.testing.assert_allclose(now, np.where(np.arange(10) > 4, 1 / 3, 0.0))
    chances = sampler.curriculum.probabilities()
    assert chances[5:].min() > chances[:5].max() > 0


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("taken", [4, 10])
def test_epochs_are_whole_also_after_a_resume(size, taken):
    """Ten rows in batches of `size`, of which a loader drops what is left over."""
    with loaded("verl", {}) as module:
        data = {"train_batch_size": size, "curriculum": {"sampler": "random"}}

        def batches(sampler):
            return [*BatchSampler(sampler, size or 1, drop_last=True)]

        first, again = (module.CurriculumSampler(ROWS, data) for _ in range(2))
        epoch = iter(BatchSampler(first, size or 1, drop_last=True))
        for _ in range(taken // (size or 1)):
            next(epoch)
        again.load_state_dict(first.state_dict())
        rest, others = batches(again), [*epoch]
        if not others:  # the epoch was at its end: the next one begins
            others = batches(first)
        assert rest == others
        assert len(rest[0]) == (size or 1)
        assert batches(again) == batches(first)
        next(iter(first))  # an iterator that is given up
        assert len([*first]) == 10


@pytest.mark.parametrize(
    ("rows", "curriculum", "says"),
    [
        ([ROWS[0]] * 2, {"sampler": "random"}, "extra_info.index: missing, or the same in two "),
        (ROWS, {"smpler": "random"}, "data.curriculum: 'smpler' is not allowed; allowed: "),
        (ROWS, {"sampler": "random"}, "extra_info.index: 99 is not allowed; allowed"),
    ],
)
def test_bad_input_is_one_clear_line(make_sampler, rows, curriculum, says):
    with pytest.raises(InputError, match=f"^{says}"):
        make_sampler(rows, **curriculum).record([{"index": 99}], np.ones(1))


@pytest.mark.parametrize("part", [{"drawn": "x"}, {"drawn": -5}, {"curriculum": None}])
def test_a_refused_state_changes_nothing(make_sampler, part):
    first, again = (make_sampler(ROWS, sampler="learnability") for _ in range(2))
    step(first, [7, 8])
    before = again.state_dict()
    with pytest.raises(InputError, match=r"^(drawn|curriculum): "):
        again.load_state_dict({**first.state_dict(), **part})
    assert again.state_dict() == before


def test_scores_that_are_not_finite_are_lost(make_sampler):
    sampler = make_sampler(ROWS, sampler="plr", solved=0.7)
    scores = np.array([np.nan, 0.7, np.inf, 0.0], np.float32)
    sampler.record([{"index": 0}] * 4, scores)
    metrics = sampler.curriculum.metrics()
    assert (metrics["lost"], metrics["informative"]) == (2, 1)
    step(sampler, [1, 7])  # every answer to 1 scores 0
    chances = sampler.curriculum.probabilities()
    assert chances[7] > chances[1]


def test_scores_in_half_precision_are_read_in_their_format(make_sampler):
    sampler = make_sampler(ROWS, sampler="online", solved=0.7)
    scores = torch.tensor([[0.0, 0.7], [0.0, 0.2]], dtype=torch.bfloat16)
    tell(sampler, [{"index": 0}, {"index": 2}], scores)
    assert sampler.curriculum.metrics()["mastered"] == 0.5


MASKS = ("response_mask", "loss_mask")


def answers(place, scores, draw="row", **tag):
    """Put a row's answers, each in two parts with its score, into the queue; their tags."""
    tags = {}
    for number, score in enumerate(scores):
        for part in range(2):
            key = f"{draw}{place}_{number}_{part}"
            rewards = torch.zeros(3 + part)
            rewards[-1] = score
            ones = {name: torch.ones(3 + part) for name in ("advantages", *MASKS)}
            extra = ROWS[place]["extra_info"]
            QUEUE[key] = {"extra_info": extra, "rm_scores": rewards, **ones}
            tags[key] = {"status": "success", **tag}
    return tags


def practise(trainer, tags):
    batch = types.SimpleNamespace(keys=list(tags), tags=list(tags.values()), partition_id="train")
    metrics = {}
    assert trainer._compute_advantage(batch, metrics) is batch
    assert metrics.pop("advantages") == len(tags)
    metrics.pop("curriculum/admitted", None)
    assert {*metrics} == {*trainer.curriculum_sampler.curriculum.metrics("curriculum/")}


def test_the_trainer_counts_each_answer_once_and_no_padding(make_trainer):
    trainer = make_trainer(sampler="online", settings=SETTINGS)
    for _ in range(2):
        practise(trainer, answers(7, [1.0, 0.0, 1.0, 0.5]) | answers(2, [1.0], is_padding=True))
    curriculum = trainer.curriculum_sampler.curriculum
    now, _ = curriculum.competence()
    assert now[7] == 0.5
    assert now[2] == 0.0
    assert curriculum.state_dict()["episodes"] == 8


@pytest.mark.parametrize(("gate", "kept"), [(None, {2, 5, 7}), ("spread", {7})])
def test_answers_that_the_gate_refuses_are_not_trained_on(make_trainer, gate, kept):
    trainer = make_trainer(gate=gate, sampler="random")
    put = answers(7, [1.0, 0.0]) | answers(2, [0.0, 0.0]) | answers(5, [1.0, 1.0])
    practise(trainer, put | answers(3, [1.0], is_padding=True))
    for key in put:
        trained = int(key[3]) in kept
        for name in ("advantages", *MASKS):
            assert (QUEUE[key][name] == trained).all(), (key, name)
    assert trainer.curriculum_sampler.curriculum.state_dict()["episodes"] == 6
    practise(trainer, answers(2, [0.0, 0.0]))  # a mean over no tokens would not be a number
    row = QUEUE["row2_0_0"]
    assert (row["advantages"] == (gate is None)).all()
    assert (row["response_mask"] == 1).all()


def test_a_row_drawn_twice_in_a_batch_has_two_groups(make_trainer):
    trainer = make_trainer(gate="spread", sampler="random")
    twice = answers(7, [0.0, 0.0]) | answers(7, [1.0, 1.0], draw="again")
    practise(trainer, twice | answers(2, [1.0, 0.0]))
    assert all((QUEUE[key]["advantages"] == 0.0).all() for key in twice)
    assert (QUEUE["row2_0_0"]["advantages"] == 1.0).all()


def test_the_trainer_draws_by_its_curriculum(make_trainer):
    greedy = {"samplers": {"epsilon_end": 0.0, "epsilon_decay": 1.0}}
    trainer = make_trainer(sampler="learnability", settings=greedy)
    assert trainer.config.trainer.v1.trainer_mode == "sync"
    for _ in range(40):
        practise(trainer, answers(7, [1.0, 0.0]) | answers(2, [0.0, 0.0]))
    batches = list(trainer.train_dataloader)
    assert [len(rows) for rows in batches] == [4, 4]  # the rest of ten rows is dropped
    drawn = [row["extra_info"]["index"] for rows in batches for row in rows]
    assert drawn.count(14) >= 6


def test_the_trainer_refuses_to_lose_groups(make_trainer):
    make_trainer(filter_groups={"enable": False}, sampler="random")
    for given, says in (
        ({"filter_groups": {"enable": True}}, "algorithm.filter_groups.enable: True; .*ed: False"),
        ({"gate": "none"}, "algorithm.gate: 'none' is not allowed; allowed: all, s"),
        ({"other": "pkg://mine"}, "data.sampler.class_path: 'pkg://mine' is not allowed"),
    ):
        refuses(f"^{says}", make_trainer, **given, sampler="random")


def test_verl_0_5_to_0_7_themselves_make_it_and_tell_it_scores():
    """Not 0.6, which imports what transformers 5 no longer has."""
    pytest.importorskip("verl.experimental.dataset.sampler", reason="none of these is installed")
    main_ppo = pytest.importorskip("verl.trainer.main_ppo", exc_type=ImportError)
    omegaconf = pytest.importorskip("omegaconf")
    from verl import DataProto

    class Data(list[dict[str, Any]]):
        dataframe = ROWS

    place = {"class_path": "pkg://magellan.integrations.verl", "class_name": "CurriculumSampler"}
    curriculum = {"sampler": "mopps", "seed": 1}
    data = {"sampler": place, "dataloader_num_workers": 0, "curriculum": curriculum}
    sampler = main_ppo.create_rl_sampler(omegaconf.OmegaConf.create(data), Data(ROWS))
    assert len([*sampler]) == len(ROWS)
    rows = np.repeat(np.arange(len(ROWS)), 4)
    scores = torch.zeros(len(rows), 5)
    scores[:, -1] = torch.tensor(rows > 6) * (torch.arange(len(rows)) % 2)
    extra = np.array([ROWS[row]["extra_info"] for row in rows], dtype=object)
    for _ in range(4):
        sampler.update(DataProto.from_dict({"token_level_scores": scores}, {"extra_info": extra}))
    assert sampler.curriculum.probabilities()[7:].sum() > 0.9
