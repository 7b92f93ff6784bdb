"""A run of the paper's repository, where lamorel is installed: stopped, killed, to the end."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from magellan.config import resolve_run
from magellan.jobs.run import train
from tests.runs import tables
from tests.snippets import ROOT

PARTS = ("lamorel", "lamorel_launcher")
SECONDS = 1500


def start(output, *overrides):
    """The launcher as a process; its run saves after every update, to be met in the middle."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = [f"path={ROOT}/magellan/lamorel_main.py", f"output_dir={output}", "preset=smoke"]
    given += ["goals_distribution=[40,8,4,2,2]", *overrides]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "lamorel_launcher.launch"),
            *("--config-path", ROOT / "config/little_zoo"),
            *("--config-name", "local_cpu_config_magellan"),
            *(f"rl_script_args.{word}" for word in given),
            "+rl_script_args.config.budget.checkpoint_seconds=0",
        ],
        cwd=output.parent,
        env={**os.environ, "LAMOREL_PORT": port, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def trainer_of(folder, process):
    """Process that trains, once it has saved a checkpoint of its own."""

    def saved():
        return {path.name for path in (folder / "checkpoints").glob("*.safetensors")}

    before, end = saved(), time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        if saved() - before:
            return int(json.loads((folder / "attempts.jsonl").read_text().splitlines()[-1])["pid"])
        time.sleep(0.1)
    process.terminate()
    pytest.fail(f"no checkpoint: {process.communicate()[0]}")


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PARTS)), reason="make lamorel-env (docs/lamorel.md)"
)
def test_a_run_that_was_stopped_and_killed_has_the_tables_of_a_local_one(tmp_path):
    """SIGTERM to the launcher, which hands it on; SIGKILL to the process that trains."""
    folder, more = tmp_path / "run", []
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = start(folder, *more)
        pid = trainer_of(folder, process)
        os.kill(process.pid if number == signal.SIGTERM else pid, number)
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode != 0, output
        assert ("stopped: on SIGTERM: saved" in output) == (number == signal.SIGTERM), output
        more = [f"loading_path={folder}"]
    process = start(folder, *more)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["device"], manifest["restarts"]) == ("cpu, lamorel with 1 server", 2)
    model = {"model": "zoo-reader"}  # of config/little_zoo
    layer = {"sampler": "magellan", "goal_space": "40-8-4-2-2", "backbone": model}
    local = train(resolve_run("smoke", [layer]), tmp_path / "local", False, "none")
    assert local["identity"] == manifest["identity"]
    assert tables(folder) == tables(tmp_path / "local")
