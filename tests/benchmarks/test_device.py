"""What is measured of one model on one device."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks import device
from benchmarks.device import DeviceBenchmark, Part, device_configuration, quiet_round_seconds
from benchmarks.shapes import SHAPES, model_folder
from benchmarks.timed import Deadline
from magellan.config import run_model
from tests.backends.models import on_a_gpu

SMALL = {
    "agent": {"batch_size": 8, "num_envs": 4, "steps_per_update": 8, "critic_hidden": [8]},
    "competence": {"batch_size": 8, "hidden": 8},
}


def row(name: str, size: str, seconds: float, value: float | None = None) -> Part:
    return Part(name, size, "", value or seconds, "steps/s" if value else "s", seconds, 3)


def benchmark(parameters: int = 10, *, seconds: float, model="zoo-mini") -> DeviceBenchmark:
    config = device_configuration(model, parameters, "cpu", None, [SMALL])
    return DeviceBenchmark(config, Deadline(seconds))


def test_constants_are_the_papers():
    config, paper = device_configuration("zoo-mini", 10, "cpu", None), run_model()()
    assert config.agent == paper.agent.model_copy(update={"actor_warmup_updates": 0})
    assert config.competence == paper.competence.model_copy(update={"pool": 100_000})
    assert device.steps_per_update(config) == 64


def test_formats_follow_from_size_and_device():
    small, large = (device_configuration("zoo-mini", n, "cpu", None) for n in (10, 10**8))
    assert (small.backbone.lora_mode, large.backbone.lora_mode) == ("merged", "per_token")
    assert small.backend.dtype == "float32"
    assert device_configuration("zoo-mini", 10, "cuda", None).backend.dtype == "bfloat16"
    given = device_configuration("zoo-mini", 10, "cuda", "float32", [{"threads": 2}])
    assert (given.backend.dtype, given.threads) == ("float32", 2)


def test_the_loop_follows_from_its_parts_where_there_is_no_time():
    bench = benchmark(seconds=0.0)
    parts = {"acting": row("acting", "", 2.0, 4.0), "refresh": row("refresh", "25k", 64.0)}
    assert bench._loop(parts).note == "not measured: SAC update is not"
    parts |= {name: row(name, "", 3.0) for name in ("SAC update", "competence update")}
    loop = bench._loop(parts)
    assert loop.seconds == pytest.approx(2 + 3 + 3 + 64 / 32)
    assert loop.note.startswith("not measured: acting, both updates")
    assert loop.repetitions == 0


def test_rounds_of_the_loop_are_those_without_refresh(monkeypatch):
    """Rounds that take a second, and 100 where the goal space is scored."""
    now, config = 0.0, run_model()().competence
    learned = SimpleNamespace(updates=30, config=config)

    def advance() -> None:
        nonlocal now
        learned.updates += 1
        now += 100.0 if learned.updates % config.refresh == 0 else 1.0

    estimators = SimpleNamespace(by_name={"learned": learned})
    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=lambda: now))
    trainer = SimpleNamespace(advance=advance, estimators=estimators)
    assert quiet_round_seconds(trainer, 1) == 1.0
    assert learned.updates == 33, "one before, one with a refresh, one timed"


def test_what_does_not_fit_is_not_measured():
    def fail(seconds: float) -> Part:
        raise torch.OutOfMemoryError("CUDA out of memory")

    part = benchmark(seconds=1.0)._measure("SAC update", "", fail)
    assert part == Part("SAC update", "", "not measured: out of memory on cpu")


def test_products_of_a_first_call_are_counted_in_proportion():
    bench = benchmark(10**8, seconds=9.0)
    bench.peak = 0.5
    part = bench._sac(0.0)
    assert part.note == "measured on 4 of 8 transitions; first call, nothing was warm"
    assert part.utilisation == pytest.approx(part.gflop / 1e3 / part.seconds / 0.5)
    bench.backend.passes = "compiled (gcc)"
    assert bench._sac(0.0).gflop is None


def test_a_large_goal_space_is_measured_in_part():
    assert "of 24,992 goals" in benchmark(seconds=9.0)._refresh(0.0).note


@pytest.mark.slow
def test_random_weights_of_the_papers_shape(monkeypatch):
    """Its layers, with fewer of them: the whole has a gigabyte."""
    name = "flan-t5-base-shape"
    shrunk = {"num_layers": 1, "d_ff": 64, "vocab_size": 128}
    monkeypatch.setitem(SHAPES, name, {**SHAPES[name], **shrunk})
    with model_folder(name) as folder:
        bench = benchmark(10**8, seconds=1.0, model=folder)
        part = bench._acting(0.1)
    assert bench.backend.backbone.width == 768
    assert part.utilisation > 0


@pytest.mark.slow
@on_a_gpu
def test_on_a_gpu_memory_is_measured(monkeypatch):
    pretended = torch.version.cuda is None
    if pretended:  # a CPU would take the whole time for one product of a GPU's size
        monkeypatch.setitem(device.SQUARE, "cuda", 256)
    config = device_configuration("zoo-mini", 10**8, "cuda", None, [SMALL])
    parts = list(DeviceBenchmark(config, Deadline(20.0)).parts())
    assert all(part.value is not None for part in parts)
    assert pretended or all(part.memory_mb > 0 for part in parts)
