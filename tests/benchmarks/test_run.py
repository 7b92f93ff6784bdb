"""The command, its files and its arithmetic, and what it refuses."""

import json
import sys
from importlib.metadata import version

import pytest

from benchmarks import run
from benchmarks.device import Part, device_configuration
from benchmarks.run import hours_of, number, to_markdown
from magellan.cli import main
from magellan.config import flat_keys
from tests.benchmarks.test_device import SMALL, row

ROWS = [
    *((name, "") for name in ("acting", "SAC update", "competence update")),
    *(("refresh", "25k"), ("whole loop", "25k")),
]
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


def settings() -> list[str]:
    flat = flat_keys(SMALL).items()
    return [word for key, value in flat for word in ("--set", f"{key}={value}")]


def test_it_ends_in_its_time_and_writes_its_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "SECONDS", 3.0)
    output = tmp_path / "bench"
    assert main(["bench", "--output", str(output), *settings()]) == 0
    printed = capsys.readouterr().out
    assert printed == (output / "device.md").read_text()
    facts = json.loads((output / "device.json").read_text())
    assert [(part["row"], part["size"]) for part in facts["rows"]] == ROWS
    assert (facts["model"], facts["device"]) == ("zoo-mini", "cpu")
    assert (facts["dtype"], facts["deterministic"], facts["micro_batch"]) == ("float32", True, 0)
    assert facts["versions"]["torch"] == version("torch")
    assert 1 < facts["process_memory_mb"] < 100_000
    assert f"Peak: {number(facts['peak_tflops'])} TFLOP/s, measured with a 1024" in printed
    assert all(part["value"] > 0 and part["seconds"] > 0 for part in facts["rows"])
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


def test_markdown_shows_each_row():
    part = Part("SAC update", "", "warm", 0.5, "s", 0.5, 9, 20.0, 3828, 0.25, 1234.5)
    lines = to_markdown(FACTS, [part], None).splitlines()
    assert lines[4] == "| SAC update |  | 0.500 s | 9 | 20.0 | 3,828 | 25.0% | 1,234 MB | warm |"
    assert {line.count("|") for line in lines[2:5]} == {10}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (12_345.6, "12,346"), (100, "100"), (14, "14.0"), (0.21, "0.210"), (0, "0.00")],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize("setting", ["sampler=random", "backend.kind=lamorel"])
def test_what_is_not_timed_is_refused_before_any_work(setting, tmp_path, capsys):
    output = tmp_path / "out"
    assert main(["bench", "--set", setting, "--output", str(output)]) == 2
    key, value = setting.split("=")
    error = capsys.readouterr().err
    assert error.startswith(f"error: {key}: '{value}' is not timed here; allowed: ")
    assert not output.exists()


def test_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "DeviceBenchmark", lambda *_: pytest.fail("work before the check"))
    (tmp_path / "file").write_text("")
    assert main(["bench", "--quick", "--output", str(tmp_path / "file" / "bench")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --output: ")
    assert error.count("\n") == 1


def test_without_the_package_the_command_says_where_it_runs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "benchmarks.run", None)
    assert main(["bench"]) == 2
    assert "clone of the repository" in capsys.readouterr().err
