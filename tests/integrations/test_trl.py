"""A curriculum behind TRL's hook: a stand-in of its trainer, and TRL itself where it is."""

import functools
import json
import types
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl, TrainerState

from magellan.core.errors import InputError
from magellan.curriculum import Curriculum
from tests.integrations import loaded
from tests.runs import refuses

GOALS = [f"{a} + {b} =" for a in range(4) for b in range(5)]


class RepeatSampler:
    """What the trainer reads of TRL's: three numbers and a length."""

    mini_repeat_count, batch_size, repeat_count = 4, 3, 2

    def __init__(self, rows):
        self._rows = rows

    def __len__(self):
        return self._rows // 3 * 3 * 4 * 2


class Rows:
    def __init__(self, **columns):
        self.columns = columns

    @property
    def column_names(self):
        return list(self.columns)

    def __len__(self):
        return len(self.columns["prompt"])

    def __getitem__(self, name):
        return self.columns[name]

    def add_column(self, name, values):
        return Rows(**self.columns, **{name: values})


class StandIn(Trainer):
    """The parts of `GRPOTrainer` that the hook is about; `train` practises so many batches."""

    _signature_columns: list[str] | None = None

    def _set_signature_columns_if_needed(self):
        self._signature_columns = self._signature_columns or ["prompt"]

    def log(self, logs):
        self.logged = logs

    def __init__(self, model, reward_funcs, args, train_dataset):
        self.model, self.reward_funcs, self.args = model, reward_funcs, args
        self.train_dataset, self.callbacks = train_dataset, []
        self.resumed = None

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def _get_train_sampler(self, dataset=None):
        return RepeatSampler(len(self.train_dataset))

    def get_train_dataloader(self):
        rows = range(len(self.train_dataset))
        return prepare_data_loader(DataLoader(rows, 24, sampler=self._get_train_sampler()))

    def train(self, resume_from_checkpoint=None, batches=0):
        """Rows of each batch; accelerate's loader looks one ahead."""
        self.resumed = resume_from_checkpoint
        loader, drawn = self.get_train_dataloader(), []
        torch.manual_seed(0)
        if resume_from_checkpoint:
            saved = bytearray((Path(resume_from_checkpoint) / "rng_state").read_bytes())
            torch.set_rng_state(torch.frombuffer(saved, dtype=torch.uint8))
        while len(drawn) < batches:
            for rows in islice(loader, batches - len(drawn)):  # an epoch
                drawn.append(rows.tolist())
                self.answer(drawn[-1][:12])
                self.notify("on_step_end", len(drawn))
                self.notify("on_step_end", len(drawn))  # the same answers, learnt from once more
        self.notify("on_save", batches)
        folder = Path(self.args.output_dir) / f"checkpoint-{batches}"
        (folder / "rng_state").write_bytes(torch.get_rng_state().numpy().tobytes())
        return drawn

    def answer(self, rows):
        for function in self.reward_funcs:
            function(prompts=rows, completions=rows, goal=[*rows])

    def notify(self, event, step):
        state = TrainerState(global_step=step, is_world_process_zero=True)
        for callback in self.callbacks:
            getattr(callback, event)(self.args, state, TrainerControl())


@pytest.fixture
def hook():
    with loaded("trl", {"trl": {"GRPOTrainer": StandIn, "RLOOTrainer": StandIn}}) as module:
        yield module


def small(prompts=(), completions=(), goal=(), **_):
    """Goals from 14 on succeed; the answer of goal 3 is not judged."""
    return [None if number == 3 else float(number > 13) for number in goal]


def chats(goals):
    first = {"role": "system", "content": "Reckon."}
    return [[first, {"role": "user", "content": goal}] for goal in goals]


def trainer(hook, folder, name="online", **given):
    settings = {"samplers": {"epsilon_decay": 3.0}}
    curriculum = Curriculum(GOALS, name, seed=1, settings=settings)
    saves = given.pop("saves", {})
    args = types.SimpleNamespace(output_dir=str(folder), ignore_data_skip=False, **saves)
    for step in range(9):
        (folder / f"checkpoint-{step}").mkdir(exist_ok=True)
    model = types.SimpleNamespace(training=True)
    rows = Rows(prompt=GOALS)
    functions = given.pop("reward_funcs", [small])
    return hook.CurriculumGRPOTrainer(model, functions, args, rows, curriculum=curriculum, **given)


def test_goals_come_in_groups_and_batches_as_trl_wants_them(hook, tmp_path):
    grpo = trainer(hook, tmp_path)
    sampler = grpo._get_train_sampler()
    assert len(sampler) == len(RepeatSampler(20)) == len(list(sampler))
    batch = np.array(list(islice(sampler, 24))).reshape(2, 3, 4)
    assert (batch[0] == batch[1]).all()
    assert (batch == batch[:, :, :1]).all()
    assert grpo.args.ignore_data_skip


def test_draws_saved_for_another_batch_size_are_drawn_anew(hook, tmp_path):
    grpo = trainer(hook, tmp_path)
    grpo._ahead[:] = [[1, 2]]
    with pytest.warns(UserWarning, match="saved ahead are not of 3 goals"):
        sampler = grpo._get_train_sampler()
    assert len(list(sampler)) == len(sampler)


def test_a_curriculum_gets_each_answer_once_and_draws_by_it(hook, tmp_path):
    grpo, outcomes = trainer(hook, tmp_path, "learnability"), []
    update = grpo.curriculum.update
    grpo.curriculum.update = lambda *outcome: (outcomes.append(outcome), update(*outcome))
    drawn = grpo.train(batches=5)
    assert len(outcomes) == grpo.curriculum.sampler.step == 5
    for batch, (goals, success) in zip(drawn, outcomes, strict=True):
        assert goals == batch[:12]
        assert success == [None if goal == 3 else goal > 13 for goal in goals]
    assert grpo.curriculum.metrics()["lost"] == sum(batch[:12].count(3) for batch in drawn)
    grpo.log({"loss": 0.5})
    assert grpo.logged["loss"] == 0.5
    assert grpo.logged["curriculum/coverage"] == grpo.curriculum.metrics()["coverage"] > 0


def test_a_goal_drawn_twice_in_a_batch_has_two_groups(hook, tmp_path, monkeypatch):
    def generate(self, rows):
        self.answer(rows)
        return {"advantages": torch.ones(len(rows))}

    monkeypatch.setattr(StandIn, "_generate_and_score_completions", generate, raising=False)
    judge = {"reward_funcs": [lambda **_: [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]]}
    grpo = trainer(hook, tmp_path, gate="spread", **judge)
    grpo.num_generations, grpo.accelerator = 2, types.SimpleNamespace(process_index=0)
    output = grpo._generate_and_score_completions([5, 5, 5, 5, 6, 6])
    assert output["advantages"].tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("strategy", "at", "generation", "warned"),
    [("steps", 5, 4, True), ("epoch", 5, 4, False), ("steps", 0.1, 1, False)],
)
def test_checkpoints_between_two_generations_are_warned_of(
    hook, tmp_path, strategy, at, generation, warned
):
    """Answers are generated every `generation` * 2 passes, and a step has two of them."""
    saves = {"save_strategy": strategy, "save_steps": at, "max_steps": -1, "num_iterations": 2}
    saves |= {"gradient_accumulation_steps": 2, "steps_per_generation": generation}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer(hook, tmp_path, saves=saves)
    found = [str(warning.message) for warning in said if "save_steps" in str(warning.message)]
    assert [words.endswith("allowed: a multiple of 4") for words in found] == [True] * warned


def test_the_column_of_goals_is_kept(hook, tmp_path):
    grpo = trainer(hook, tmp_path)
    for _ in range(2):
        grpo._set_signature_columns_if_needed()
    assert grpo._signature_columns == ["prompt", "goal"]


def test_the_judge_is_the_one_that_is_named(hook, tmp_path):
    def partly(goal, **_):
        return [0.5 for _ in goal]

    def one_by_one(**arguments):
        yield from small(**arguments)

    grpo = trainer(hook, tmp_path, reward_funcs=[partly, one_by_one], judge=1, solved=0.25)
    assert list(grpo.reward_funcs[1](goal=[3, 14])) == [None, 1.0]
    grpo._unreported.clear()
    assert grpo.reward_funcs[0] is partly
    named = functools.partial(functools.partial(partly, n=1), m=2)
    assert trainer(hook, tmp_path, reward_funcs=named).reward_funcs[0].__name__ == "partly"
    for _ in range(2):
        grpo.answer([1, 14])
        grpo.report()
    now, _ = grpo.curriculum.competence()
    assert (now[1], now[14]) == (0.0, 1.0)


@pytest.mark.parametrize("name", ["random", "learnability"])
def test_a_resumed_trainer_draws_as_one_that_never_stopped(hook, tmp_path, name):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def judge(goal, **_):  # answers are sampled with torch
        return (torch.rand(len(goal)) < torch.tensor(goal) / 20).double().tolist()

    def begun(folder):
        return trainer(hook, tmp_path / folder, name, reward_funcs=judge)

    whole = begun("a").train(batches=8)  # an epoch has six
    first = begun("b").train(batches=3)
    again = begun("b")
    rest = again.train(str(tmp_path / "b" / "checkpoint-3"), batches=5)
    assert first + rest == whole
    assert again.resumed == str(tmp_path / "b" / "checkpoint-3")
    file, before = tmp_path / "b" / "checkpoint-3" / hook.FILE, again.curriculum.state_dict()
    for ahead in ([[0, "a"]], [[99]], [3], None):
        file.write_text(json.dumps({**json.loads(file.read_text()), "ahead": ahead}))
        refuses(r"^\S+curriculum.json: ahead: ", again.train, str(file.parent))
    assert again.curriculum.state_dict() == before


def test_bad_input_is_one_clear_line(hook, tmp_path):
    with pytest.raises(InputError, match=r"^resume_from_checkpoint: \S+curriculum.* is missing"):
        trainer(hook, tmp_path).train(str(tmp_path / "checkpoint-2"))

    class Waits:
        async def __call__(self, goal, **_):
            return [1.0 for _ in goal]

    for judge in ("a/model", Waits(), Waits().__call__):
        refuses("^judge: .*; allowed: a plain", trainer, hook, tmp_path, reward_funcs=[judge])

    def made(data, goals=GOALS, **given):
        given["curriculum"] = Curriculum(goals, "random")
        return hook.CurriculumGRPOTrainer(None, [small], types.SimpleNamespace(), data, **given)

    rows = Rows(prompt=GOALS)
    for says, data, given in (
        (r"^curriculum: 5 goals are not allowed; allowed: the 20", rows, {"goals": GOALS[:5]}),
        (r"^judge: 1 is not allowed; allowed: 0 to 0", rows, {"judge": 1}),
        (r"^train_dataset: a \w+ is not allowed; allowed: a D", {"train": rows}, {}),
        (r"^train_dataset: row 0 is '\d \+ \d =', another", Rows(prompt=GOALS[::-1]), {}),
        (r"^train_dataset: row 0 is '\d \+ \d =', another", Rows(prompt=chats(GOALS[::-1])), {}),
        (r"^train_dataset: a list is not allowed; allowed: a Dataset", [{"prompt": ""}] * 20, {}),
        (r"^solved: nan is not allowed; allowed: a finite number", rows, {"solved": np.nan}),
        (r"^train_dataset: a column 'goal'", rows.add_column("goal", GOALS), {}),
    ):
        refuses(says, made, data, **given)
    made(Rows(prompt=chats(GOALS)))


def real(folder, name, batches, base, **given):
    """A trainer of TRL's on a small model; `batches` gets the rows of each batch."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from magellan.integrations import trl as ours
    from magellan.integrations.hugging_face import HiddenStates
    from magellan.model.files import BACKBONES

    tokenizer = AutoTokenizer.from_pretrained(BACKBONES / "zoo-mini")
    model = AutoModelForCausalLM.from_pretrained(BACKBONES / "zoo-mini")
    things = ("cow", "lion", "deer", "carrot", "potato", "door", "sofa", "desk")
    rows = [f"Goal: {verb} {thing}" for thing in things for verb in ("Grasp", "Grow")]

    def reward(completion_ids, goal, **_):
        batches.append(goal)
        return [float(sum(ids) % 2 == n % 2) for ids, n in zip(completion_ids, goal, strict=True)]

    settings = {"samplers": {"epsilon_decay": 2.0}}
    if name == "magellan":
        settings["competence"] = {"refresh": 2, "delay": 2, "learning_rate": 1e-2}
    curriculum = Curriculum(rows, name, HiddenStates(model, tokenizer), settings=settings)

    twice = ("steps_per_generation", "gradient_accumulation_steps", "num_iterations")
    sizes = dict.fromkeys(twice, 2) | {"per_device_train_batch_size": 8, "num_generations": 4}
    sizes |= {"max_completion_length": 4, "max_steps": 12, "save_steps": 6, "learning_rate": 1e-3}
    here = {"report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True}
    args = getattr(trl, f"{base}Config")(str(folder), **sizes, **here)
    data = Dataset.from_dict({"prompt": rows})
    given |= {"curriculum": curriculum, "processing_class": tokenizer}
    return getattr(ours, f"Curriculum{base}Trainer")(model, reward, args, data, **given)


@pytest.mark.parametrize(("name", "base"), [("magellan", "GRPO"), ("dps", "RLOO")])
def test_trl_itself_goes_on_where_it_stopped(tmp_path, name, base):
    whole = []
    rest = []
    first, again = (real(tmp_path, name, batches, base, gate="spread") for batches in (whole, rest))
    first.train()
    # Twelve steps learn from six batches of four goals, four answers each, twice.
    assert [len(batch) for batch in whole] == [16] * 6
    assert all(np.ptp(np.reshape(batch, (4, 4)), axis=1).max() == 0 for batch in whole)
    assert first.curriculum.sampler.step == 6
    assert np.ptp(first.curriculum.probabilities()) > 0
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert rest == whole[3:]
    assert again.curriculum.sampler.step == 6
    chances = [grpo.curriculum.probabilities() for grpo in (first, again)]
    np.testing.assert_array_equal(*chances)


@pytest.mark.parametrize("base", ["GRPO", "RLOO"])
@pytest.mark.parametrize("gate", ["all", "none", "even"])
def test_answers_that_a_gate_refuses_change_no_weight(tmp_path, gate, base):
    """Gradients are those of the admitted goals alone: none if there are none."""
    gates = {"all": "all", "none": lambda groups: np.zeros(len(groups), bool)}
    gates["even"] = lambda groups: groups.goals % 2 == 0
    grpo = real(tmp_path, "random", [], base, gate=gates[gate])
    before = {name: weight.clone() for name, weight in grpo.model.named_parameters()}
    grpo.train()
    moved = any((before[name] != weight).any() for name, weight in grpo.model.named_parameters())
    assert moved == (gate != "none")
    logged = [row for row in grpo.state.log_history if "curriculum/admitted" in row]
    shares = {"all": 1.0, "none": 0.0}
    assert all(row["curriculum/admitted"] == shares[gate] for row in logged if gate in shares)
    assert all(np.isfinite(row.get("loss", 0.0)) for row in logged)
