"""Device and number format of whole runs, as recorded in manifest and log."""

import json
from importlib.util import find_spec

import pytest

from magellan.cli import main
from tests.snippets import run_program

SPACE = "40-8-4-2-2"
BRIEF = {"episodes": 30, "record_outcomes": True}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Folder of a finished run in bfloat16, with micro-batches."""
    folder = tmp_path_factory.mktemp("half") / "run"
    options = ["--sampler", "magellan", "--goal-space", SPACE, "--preset", "smoke", "--seed", "3"]
    options += ["--device", "auto", "--dtype", "bfloat16", "--set", "backend.micro_batch=8"]
    settings = [f"budget.{key}={json.dumps(value)}" for key, value in BRIEF.items()]
    options += [part for setting in settings for part in ("--set", setting)]
    assert main(["train", *options, "--progress", "none", "--output", str(folder)]) == 0
    return folder


def test_a_replay_is_computed_in_the_format_of_its_options(half, tmp_path, capsys):
    arguments = ["replay", str(half), "--estimator", "learned"]
    assert main([*arguments, "--dtype", "bfloat16", "--output", str(tmp_path / "half")]) == 0
    assert main([*arguments, "--output", str(tmp_path / "full")]) == 0
    half_table, full_table = (
        (tmp_path / name / "competence.csv").read_bytes() for name in ("half", "full")
    )
    assert half_table != full_table
    assert main([*arguments, "--dtype", "int4", "--output", str(tmp_path / "none")]) == 2
    assert "backend.dtype: 'int4' is not allowed" in capsys.readouterr().err


IMPORTS = """
import builtins, runpy, sys
FOR_GPUS = {"triton", "bitsandbytes", "flash_attn", "xformers", "pynvml", "cupy", "kernels"}
wanted, own = set(), builtins.__import__
def noted(name, globals=None, *more, **named):
    by = (globals or {}).get("__name__") or ""
    if name.split(".")[0] in FOR_GPUS and by.split(".")[0] in ("magellan", "__main__"):
        wanted.add(f"{name} by {by}")
    return own(name, globals, *more, **named)
builtins.__import__ = noted
try:
    runpy.run_module("magellan", run_name="__main__")
except SystemExit as end:
    import torch
    there = {name for name in FOR_GPUS & sys.modules.keys() if name not in ALLOWED}
    print(end.code, sorted(wanted), torch.cuda.is_initialized(), sorted(there))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merged", "per_token"])
def test_on_a_cpu_nothing_for_gpus_is_imported(mode, tmp_path):
    """Neither by this package, nor by a library that would find it missing; and no GPU is woken.

    Where bitsandbytes or triton are installed, peft and PyTorch import them by themselves.
    """
    options = ["--preset", "smoke", "--goal-space", SPACE, "--set", "budget.episodes=4"]
    options += ["--set", f"backbone.lora_mode={mode}", "--device", "cpu", "--progress", "none"]
    allowed = [name for name in ("triton", "bitsandbytes", "pynvml", "kernels") if find_spec(name)]
    program = IMPORTS.replace("ALLOWED", repr(allowed))
    printed = run_program(program, "train", *options, "--output", str(tmp_path / "run"))
    assert printed.splitlines()[-1] == "0 [] False []"
