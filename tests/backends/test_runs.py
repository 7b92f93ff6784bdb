"""What whole runs import on a machine without a GPU."""

from importlib.util import find_spec

import pytest

from tests.snippets import run_program

SPACE = "40-8-4-2-2"
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
