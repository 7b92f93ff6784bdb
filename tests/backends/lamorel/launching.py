"""Start lamorel's launcher as the paper's readers do."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snippets import ROOT

PARTS = ("lamorel", "lamorel_launcher")
MISSING = [name for name in PARTS if importlib.util.find_spec(name) is None]
needs_lamorel = pytest.mark.skipif(
    bool(MISSING), reason="lamorel is not installed here: make lamorel-env (docs/lamorel.md)"
)
CONFIGS = ROOT / "config" / "little_zoo"


def of_model(path: Path | str, kind: str, servers: int) -> list[str]:
    """Overrides of the command line for a model and its number of servers."""
    return [
        f"lamorel_args.llm_args.model_path={path}",
        f"lamorel_args.llm_args.model_type={kind}",
        f"lamorel_args.distributed_setup_args.n_llm_processes={servers}",
    ]


MAIN = ROOT / "magellan" / "main.py"
TINY = ("rl_script_args.preset=smoke", "rl_script_args.goals_distribution=[40,8,4,2,2]")
SECONDS = 1500


def start(
    folder: Path,
    config: str,
    output: Path,
    *overrides: str,
    script: Path | str = MAIN,
    path: str | None = None,
):
    """The launcher as a process of its own, working in `folder`."""
    command = [sys.executable, "-m", "lamorel_launcher.launch"]
    command += ["--config-path", path or str(CONFIGS), "--config-name", config]
    command += [f"rl_script_args.path={script}", f"rl_script_args.output_dir={output}"]
    return subprocess.Popen(
        [*command, *overrides],
        cwd=folder,
        env={**os.environ, "LAMOREL_PORT": str(free_port()), "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def launch(folder: Path, config: str, run: Path, *overrides: str, **where):
    """Exit status of the launcher, and its output."""
    process = start(folder, config, run, *overrides, **where)
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends what it has started
        output, _ = process.communicate()
        pytest.fail(f"not over after {SECONDS} s: {output}")
    return process.returncode, output


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
