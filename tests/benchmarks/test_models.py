"""The models that are timed, and what is done with them."""

from types import SimpleNamespace

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from benchmarks import fresh, models
from benchmarks.effort import FULL, QUICK
from benchmarks.products import Timing, record
from benchmarks.shapes import model_folder
from magellan.config import run_model
from magellan.worlds.little_zoo import GoalSpace


def test_t5_has_the_size_and_the_words_of_the_released_timing():
    with model_folder("t5") as folder:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) == 206_080
    assert len(tokenizer) == model.config.vocab_size == 66
    goals = GoalSpace.draw((20, 20, 20, 20, 20), seed=0)
    prompts = [goals.prompt(i, i % 5 - 1) for i in range(len(goals))]
    words = tokenizer([*prompts, "Release all", "Go to carrot seed"], add_special_tokens=False)
    assert not {tokenizer.unk_token_id} & {token for ids in words["input_ids"] for token in ids}


def test_constants_are_the_papers():
    config, paper = models.configuration("zoo-mini", "25k"), run_model()()
    assert config.agent == paper.agent.model_copy(update={"actor_warmup_updates": 0})
    assert config.competence == paper.competence
    assert config.backbone == paper.backbone.model_copy(update={"passes": "torch"})
    assert models.steps_per_update(config) == 64


def test_competence_updates_that_are_timed_hold_no_refresh():
    """One follows the random play, one is counted, the others are timed."""
    assert max(FULL.updates, QUICK.updates) + 2 < run_model()().competence.refresh


class FakeRun:
    """A trainer whose rounds take a second, and 100 where the goal space is evaluated."""

    def __init__(self) -> None:
        self.now = 0.0
        self.config = run_model()()
        self.learned = SimpleNamespace(updates=0, config=self.config.competence)
        self.estimators = SimpleNamespace(by_name={"learned": self.learned})

    def advance(self) -> None:
        self.learned.updates += 1
        self.now += 100.0 if self.learned.updates % self.config.competence.refresh == 0 else 1.0


@pytest.fixture
def run(monkeypatch):
    fake = FakeRun()
    monkeypatch.setattr(models, "time", SimpleNamespace(perf_counter=lambda: fake.now))
    return fake


def test_a_span_holds_one_refresh(run):
    assert models.round_seconds(run, 32) == pytest.approx((31 + 100) / 32)


def test_single_rounds_are_those_without_refresh(run):
    run.learned.updates = 30
    assert models.ModelBenchmark(run).quiet_round_seconds(1) == 1.0
    assert run.learned.updates == 33, "one before, one with a refresh, one timed"


def test_refresh_is_added_to_single_rounds(run):
    parts = {
        "acting": Timing(0.1, 1, 1.0, 0.05),
        "SAC update": Timing(0.5, 1, 10.0, 0.25),
        "competence update": Timing(0.2, 1, 5.0, 0.125),
        "LP refresh": Timing(16.0, 1, 64.0, 8.0),
    }
    timing = models.loop_timing(models.ModelBenchmark(run), parts, "t5", QUICK)
    assert timing == Timing(1.5, QUICK.rounds, 18.0, 0.675)


def test_operations_do_what_they_are_named_for():
    bench = models.ModelBenchmark(models.make_trainer("zoo-mini", "400"))
    learned, trainer = bench.learned, bench.trainer
    assert record(bench.refresh).gflop > 0
    assert learned.updates == bench.config.competence.refresh
    idle = [record(lambda: learned.update(models.NO_OUTCOMES)).gflop for _ in range(31)]
    assert idle == [0.0] * 31, "the model runs at the refresh alone"
    learned.update(models.NO_OUTCOMES)
    assert learned.last_loss is None
    bench.fill()
    assert len(trainer.replay) >= models.TRANSITIONS
    assert learned.last_loss > 0
    bench.sac_update()
    assert trainer.backend.agent.updates == 1
    held = len(trainer.replay)
    bench.acting()
    assert len(trainer.replay) > held


def test_a_run_in_its_own_process_returns_its_figures():
    figures = fresh.play_loop("400", rounds=1)
    assert set(figures) == {"update_seconds", "peak_mb"}
    assert min(figures.values()) > 0


def test_all_goals_are_compared_with_25k(monkeypatch):
    figures = {
        size: {"update_seconds": seconds, "peak_mb": 600.0}
        for size, seconds in (("25k", 0.4), ("all", 0.5))
    }
    monkeypatch.setattr(models, "in_fresh_process", lambda task, size, rounds: figures[size])
    rows = {(row.row, row.size): row.value for row in models.whole_space_rows(QUICK)}
    assert rows["new process: whole loop", "25k"] == pytest.approx(64 / 0.4)
    assert rows["new process: whole loop", "all"] == pytest.approx(64 / 0.5)
    assert rows["whole loop, speed on all over 25k", ""] == pytest.approx(0.8)
