"""The benchmark of one model on one device: its rows, its files, its arithmetic."""

import json

import pytest
import torch

from benchmarks import device
from benchmarks.device import DeviceBenchmark, Part, device_configuration, hours_of, to_markdown
from benchmarks.rows import number
from benchmarks.shapes import FLAN, FLAN_SIZES, model_folder
from benchmarks.timed import Deadline
from magellan.cli import main
from tests.backends.models import on_a_gpu

SMALL = {
    "agent": {"batch_size": 8, "num_envs": 4, "steps_per_update": 8, "critic_hidden": [8]},
    "competence": {"batch_size": 8, "hidden": 8},
}
ROWS = [
    *((name, "") for name in ("acting", "SAC update", "competence update")),
    *(("refresh", "25k"), ("refresh", "100k"), ("whole loop", "25k")),
]


def row(name: str, size: str, seconds: float, value: float | None = None) -> Part:
    return Part(name, size, "", value or seconds, "steps/s" if value else "s", seconds, 3)


FACTS = {
    "model": "m",
    "parameters": 1,
    "random_weights": False,
    "device": "cpu",
    "device_name": "",
    "cpu": "x",
    "dtype": "float32",
    "backbone": {"lora_mode": "merged"},
    "micro_batch": 0,
    "passes": "torch",
    "deterministic": True,
    "versions": {"torch": "2"},
    "threads": 1,
    "process_memory_mb": 1,
    "peak_tflops": 1.0,
}


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr(device, "SECONDS", 3.0)
    monkeypatch.setattr(device, "GOALS", {"25k": 16, "100k": 16})


def benchmark(parameters: int = 10, *, seconds: float, model="zoo-mini") -> DeviceBenchmark:
    config = device_configuration(model, parameters, "cpu", None, [SMALL])
    return DeviceBenchmark(config, Deadline(seconds))


def settings() -> list[str]:
    flat = [(f"{name}.{key}", v) for name, keys in SMALL.items() for key, v in keys.items()]
    return [word for key, value in flat for word in ("--set", f"{key}={value}")]


def test_it_ends_in_its_time_and_writes_its_files(tmp_path, capsys):
    output = tmp_path / "bench"
    assert main(["bench", "--model", "zoo-mini", "--output", str(output), *settings()]) == 0
    printed = capsys.readouterr().out
    assert printed == (output / "device.md").read_text()
    facts = json.loads((output / "device.json").read_text())
    assert [(part["row"], part["size"]) for part in facts["rows"]] == ROWS
    assert facts["device"] == "cpu"
    assert (facts["dtype"], facts["deterministic"], facts["micro_batch"]) == ("float32", True, 0)
    assert facts["versions"]["torch"] == torch.__version__
    assert f"Peak: {number(facts['peak_tflops'])} TFLOP/s, measured with a 1024" in printed
    timed = [part for part in facts["rows"] if part["value"] is not None]
    assert len(timed) == 6
    assert all(part["seconds"] > 0 for part in timed)
    assert "measured on" in timed[4]["note"], "100k goals in a fraction of three seconds"
    assert f"of {99_968:,} goals" in timed[4]["note"]
    assert f"500,000 episodes: **{number(facts['hours'])} h**: " in printed


def test_hours_follow_from_rounds_and_evaluations():
    """39,063 rounds of 0.72 s, and 101 evaluations of 512 episodes of 5 steps at 100 steps/s."""
    config = device_configuration("zoo-mini", 10, "cpu", None)
    parts = [row("acting", "", 0.64, 100.0), row("whole loop", "25k", 0.72, 64 / 0.72)]
    hours, explanation = hours_of(parts, config)
    assert hours == pytest.approx((39_063 * 0.72 + 101 * 512 * 5 / 100) / 3600)
    assert "39,063 updates x 0.72 s" in explanation
    assert hours_of(parts[:1], config) is None
    text = to_markdown(FACTS, [Part("whole loop", "25k", "not measured")], None)
    assert "500,000 episodes: **not measured" in text


def test_formats_follow_from_size_and_device():
    small, large = (device_configuration("zoo-mini", n, "cpu", None) for n in (10, 10**8))
    assert (small.backbone.lora_mode, large.backbone.lora_mode) == ("merged", "per_token")
    assert small.backend.dtype == "float32"
    assert device_configuration("zoo-mini", 10, "cuda", None).backend.dtype == "bfloat16"
    given = device_configuration("zoo-mini", 10, "cuda", "float32", [{"threads": 2}])
    assert (given.backend.dtype, given.threads) == ("float32", 2)


def test_the_loop_follows_from_its_parts_where_there_is_no_time():
    bench = benchmark(seconds=0.0)
    parts = {"acting": row("acting", "", 2.0, 4.0), "25k": row("refresh", "25k", 64.0)}
    assert bench._loop(parts).note == "not measured: SAC is not"
    parts |= {name: row(name, "", 3.0) for name in ("SAC", "competence")}
    bench._shares["loop"] = 1
    loop = bench._loop(parts)
    assert loop.seconds == pytest.approx(2 + 3 + 3 + 64 / 32)
    assert loop.note.startswith("not measured: acting, both updates")
    assert loop.repetitions == 0


def test_what_does_not_fit_is_not_measured():
    def fail(seconds: float) -> Part:
        raise torch.OutOfMemoryError("CUDA out of memory")

    part = benchmark(seconds=1.0)._measure("SAC", "SAC update", "", fail)
    assert part == Part("SAC update", "", "not measured: out of memory on cpu")


def test_products_of_a_first_call_are_counted_in_proportion():
    bench = benchmark(10**8, seconds=9.0)
    bench.peak = 0.5
    part = bench._sac(0.0)
    assert part.note == "measured on 4 of 8 transitions; first call, nothing was warm"
    assert part.utilisation == pytest.approx(part.gflop / 1e3 / part.seconds / 0.5)
    bench.backend.passes = "compiled (gcc)"
    assert bench._sac(0.0).gflop is None


@pytest.mark.slow
def test_random_weights_of_the_papers_shape(monkeypatch):
    """Its layers, with fewer of them: the whole has a gigabyte."""
    shrunk = {"num_layers": 1, "d_ff": 64}
    monkeypatch.setattr("benchmarks.shapes.FLAN_SIZES", {**FLAN_SIZES, **shrunk})
    monkeypatch.setattr("benchmarks.shapes.FLAN_WORDS", 128)
    with model_folder(FLAN) as folder:
        bench = benchmark(10**8, seconds=1.0, model=folder)
        part = bench._acting(0.1)
    assert bench.backend.backbone.width == 768
    assert part.utilisation > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dtype", "int8"], "backend.dtype: 'int8'"),
        (["--set", "backend.speed=1"], "backend.speed: unknown key"),
    ],
)
def test_a_wrong_setting_is_refused_before_any_work(arguments, words, tmp_path, capsys):
    output = tmp_path / "out"
    assert main(["bench", "--device", "cpu", *arguments, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {words}")
    assert error.count("\n") == 1
    assert not output.exists()


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
