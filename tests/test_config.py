"""Configuration and command line: every bad input is one clear line, before any work."""

import argparse
import os
import re
import subprocess
import sys
import types
import unicodedata

import pytest
import yaml

from analysis.__main__ import command as of_analysis
from magellan.cli import command as of_magellan
from magellan.cli import main
from magellan.config import flat_keys, phases_of, resolve_run
from magellan.config.grid import host_memory_mb
from magellan.core.environment import READ_ONCE
from magellan.core.errors import InputError, JobError, OutOfMemoryError, printable
from magellan.jobs.log import RunLog
from magellan.tools import commands
from magellan.worlds.little_zoo import parse_goal_space
from tests.runs import refuses
from tests.snippets import ROOT, raising, run_program


def trained(monkeypatch, *arguments):
    configs = []
    module = types.SimpleNamespace(train=lambda config, *_: configs.append(config))
    monkeypatch.setitem(sys.modules, "magellan.jobs.run", module)
    assert main(["train", "--preset", "smoke", "--output", "nowhere", *arguments]) == 0
    return configs[0]


def test_options_stand_above_assignments_and_these_above_the_file(tmp_path, monkeypatch):
    path = tmp_path / "run.yaml"
    path.write_text("sampler: online\nseed: 3\nthreads: 2\nagent: {gamma: 0.5, polyak: 0.5}\n")
    from_file = ["--config", str(path), "--set", "agent.polyak=0.25", "--set", "seed=4"]
    config = trained(monkeypatch, *from_file)
    assert (config.sampler, config.seed, config.threads) == ("online", 4, 2)
    assert (config.agent.gamma, config.agent.polyak) == (0.5, 0.25)
    config = trained(monkeypatch, *from_file, "--seed", "5", "--sampler", "random")
    assert (config.sampler, config.seed, config.threads) == ("random", 5, 2)
    assert trained(monkeypatch) == resolve_run("smoke", [])


def test_modules_of_the_command_line_come_after_those_of_the_file(tmp_path, monkeypatch):
    for name in ("theirs.py", "mine.py"):
        (tmp_path / name).touch()
    (tmp_path / "run.yaml").write_text("modules: [theirs.py]\n")
    mine = str(tmp_path / "mine.py")
    config = trained(monkeypatch, "--config", str(tmp_path / "run.yaml"), "--module", mine)
    assert list(config.modules) == [str(tmp_path / "theirs.py"), mine]


def test_check_lists_the_runs(tmp_path, capsys):
    path = tmp_path / "grid.yaml"
    path.write_text(
        "experiment: grid\npreset: smoke\nsamplers: [random, magellan]\n"
        "goal_spaces: ['25k']\nseeds: [0, 5]\n"
    )
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.split() == [
        f"{sampler}/25k/seed{seed}" for sampler in ("random", "magellan") for seed in (0, 5)
    ]


PAPER = """
agent: {polyak: 0.005, critic_hidden: [1024, 1024], score: logit_sum, temperature_initial: 0.0498}
competence: {hidden: 128}
magellan: {lp_threshold: 0.01}
expert_buckets: {drop_standing_starts: true}
"""


def test_paper_preset_has_the_papers_constants():
    """Those that config/little_zoo does not have (backends/lamorel/test_launcher.py)."""
    config = resolve_run("paper", [])
    values = flat_keys(config.model_dump(mode="json"))
    for key, value in flat_keys(yaml.safe_load(PAPER)).items():
        exact = isinstance(value, str)
        assert values[key] == (value if exact else pytest.approx(value, rel=1e-3)), key
    assert config.competence.pool >= sum(parse_goal_space("100k"))  # every goal, as in the paper


@pytest.mark.parametrize(
    ("start", "command"),
    [("magellan.__main__", "magellan.cli"), ("magellan.lamorel_main", "magellan.launcher.run")],
)
def test_what_is_read_once_is_set_before_torch_is_imported(start, command, monkeypatch):
    code = f"""
import os, sys, types
def main():
    print("torch" in sys.modules, *map(os.environ.get, {list(READ_ONCE)}))
sys.modules["{command}"] = types.SimpleNamespace(main=main)
from {start} import run
run()
"""
    for variable in READ_ONCE:
        monkeypatch.delenv(variable, raising=False)
    assert run_program(code).split() == ["False", "1", ":4096:8", "1"]


def test_memory_that_runs_out_in_any_command_is_one_line(monkeypatch, capsys):
    error = MemoryError("Unable to allocate 9 GiB\nfor an array")
    monkeypatch.setattr(commands, "experiment_schema", raising(error))
    assert main(["schema"]) == OutOfMemoryError.exit_status
    line = "error: out of memory (MemoryError: Unable to allocate 9 GiB for an array); use "
    assert capsys.readouterr().err == f"{line}more memory, a smaller model, or bfloat16\n"
    monkeypatch.setattr(commands, "experiment_schema", raising(RuntimeError("another")))
    with pytest.raises(RuntimeError, match="another"):
        main(["schema"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    ("words", "colon"),
    [("magellan goals --size 25k", ""), ("analysis behaviour results/reference/default", ":")],
)
def test_a_full_standard_output_is_one_line(words, colon):
    command = [sys.executable, "-m", *words.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    first = done.stderr.splitlines()[0]
    assert first == f"error: standard output{colon} cannot be written (No space left on device)"
    assert done.returncode


@pytest.mark.parametrize(
    ("device", "mode", "expected"),
    [("cpu", "per_token", 35_175), ("auto", "per_token", 35_175), ("cuda:1", "merged", 5_981)],
)
def test_the_machines_own_memory_by_device(device, mode, expected):
    layer = {"backend": {"device": device}, "backbone": {"lora_mode": mode}}
    run = resolve_run("paper", [layer, {"agent": {"batch_size": 256}}])
    assert host_memory_mb(run, 247_577_856) == expected


def test_each_run_can_draw_its_own_goals() -> None:
    """`goals.seed: run` is the run's seed, in every phase that does not set another."""

    def seeds(**given) -> list[int]:
        config = resolve_run("smoke", [{"goals": {"seed": "run"}, "seed": 7, **given}])
        return [phase.goals.seed for phase in phases_of(config)]

    assert seeds() == [7]
    assert seeds(phases=[{"until": 5, "goals": {"seed": 3}}, {"seed": 9}]) == [3, 7]
    refuses(r"goals\.seed", seeds, goals={"seed": "each"})


def test_help_states_the_default():
    for parser in (of_magellan.parser, of_analysis.parser):
        (choice,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        for name, of in choice.choices.items():
            assert of.format_help()
            for action in of._actions:
                if not action.option_strings or action.dest == "help":
                    continue
                text, where = action.help % vars(action), (name, action.option_strings[0])
                default = "" if action.default in (None, False, []) else f"{action.default})"
                expected = "(required)" if action.required else f"(default: {default}"
                assert expected in text, where


HOSTILE = "\x1b[2J\x1b]0;title\x07 one\r\ntwo\x85\x9b31m\u2028\u202ereversed\u2066\ud800 {x} %s"
SHOWN = r"\x1b[2J\x1b]0;title\x07 one\r\ntwo\x85\x9b31m\u2028\u202ereversed\u2066\ud800 {x} %s"


def test_controls_are_shown_escaped_and_all_else_is_kept(tmp_path, capsys):
    kept = "Häuser, 猫, 🐈, العربية, a\\nb, ~"
    assert [printable(text) for text in (HOSTILE, kept, SHOWN)] == [SHOWN, kept, SHOWN]
    text = printable("".join(map(chr, range(0x110000))))
    assert {unicodedata.category(letter) for letter in text}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
    for kind in (InputError, JobError):
        assert str(kind(f"reason: {HOSTILE}")) == f"reason: {SHOWN}"
    RunLog(tmp_path).warn(HOSTILE)
    assert capsys.readouterr().err == f"warning: {SHOWN}\n"
    (line,) = (tmp_path / "run.log").read_bytes().splitlines()
    assert line.endswith(f" warning: {SHOWN}".encode())
