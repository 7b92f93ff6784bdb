"""The commands of the paper's repository: begin, end, be killed, go on."""

import importlib.util
import json
import os
import signal
import time
from pathlib import Path

import pytest

from magellan.config import resolve_run
from magellan.jobs.run import train
from tests.backends.lamorel.launching import (
    CONFIGS,
    ROOT,
    SECONDS,
    TINY,
    launch,
    needs_lamorel,
    start,
)
from tests.runs import tables

pytestmark = needs_lamorel
NAME = "local_cpu_config_magellan"
KEPT = "rl_script_args.keep_every=50"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of a finished run behind lamorel."""
    folder = tmp_path_factory.mktemp("whole")
    status, output = launch(folder, NAME, Path("outputs/magellan"), *TINY, KEPT)
    assert status == 0, output
    assert [path.name for path in folder.iterdir()] == ["outputs"]
    return folder / "outputs" / "magellan"


def test_the_manifest_names_the_backend(whole):
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["device"] == "cpu, lamorel with 1 server"
    assert ", lamorel " in manifest["passes"]
    assert manifest["config"]["backend"]["kind"] == "lamorel"


def test_a_local_run_is_the_same_run_with_the_same_tables(whole, tmp_path):
    layer = {"sampler": "magellan", "goal_space": "40-8-4-2-2"}
    manifest = train(resolve_run("smoke", [layer]), tmp_path / "run", False, "none")
    assert manifest["identity"] == json.loads((whole / "manifest.json").read_text())["identity"]
    assert tables(tmp_path / "run") == tables(whole)


def as_printed() -> tuple[str, str]:
    """Folder of configurations, and program, in the words of the paper's page."""
    [launcher] = importlib.util.find_spec("lamorel_launcher").submodule_search_locations
    if not (Path(launcher) / "configs").exists():
        pytest.skip("lamorel's launcher has no link to configs/ (docs/lamorel.md)")
    return f"configs/{CONFIGS.name}/", "magellan/main.py"


def test_the_commands_of_the_papers_page_as_they_are_printed(whole, tmp_path):
    """From the root of the project, with a relative folder and a relative program."""
    path, script = as_printed()
    more = {"script": script, "path": path}
    status, output = launch(ROOT, NAME, tmp_path / "run", *TINY, KEPT, **more)
    assert status == 0, output
    assert tables(tmp_path / "run") == tables(whole)
    status, output = launch(ROOT, NAME, tmp_path / "run", *TINY, KEPT, **more)
    assert status != 0
    assert f"error: rl_script_args.output_dir: {tmp_path}/run already holds a run (" in output
    assert f"; pass rl_script_args.loading_path={tmp_path}/run, or name another folder" in output


def test_a_server_that_is_killed_is_one_line(tmp_path):
    folder = tmp_path / "run"
    saving = "+rl_script_args.config.budget.checkpoint_seconds=0"
    process = start(tmp_path, NAME, folder, *TINY, saving)
    pid = trainer_of(folder, process)
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (server,) = {int(child) for child in children} - {pid}
    os.kill(server, signal.SIGKILL)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode != 0
    (error,) = [line for line in output.splitlines() if line.startswith("error:")]
    assert error.startswith("error: a server of lamorel has ended or does not answer (")
    assert error.endswith(f"rl_script_args.loading_path={folder} goes on from the last checkpoint")


def test_it_goes_on_from_a_number_of_episodes(whole, tmp_path):
    loading = f"rl_script_args.loading_path={whole}/50"
    status, output = launch(tmp_path, NAME, tmp_path / "run", *TINY, loading)
    assert status == 0, output
    assert tables(tmp_path / "run") == tables(whole)


def test_it_goes_on_after_a_signal_and_after_a_kill(whole, tmp_path):
    """SIGTERM to the launcher, which hands it on; SIGKILL to the process that trains."""
    folder = tmp_path / "run"
    # Saves after every update, so that it is met in the middle however fast it is.
    saving = (*TINY, "+rl_script_args.config.budget.checkpoint_seconds=0")
    more = saving
    for kill, number in ((False, signal.SIGTERM), (True, signal.SIGKILL)):
        process = start(tmp_path, NAME, folder, *more)
        pid = trainer_of(folder, process)
        os.kill(pid if kill else process.pid, number)
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode != 0, output
        assert not (folder / "manifest.json").exists(), output
        assert ("stopped: on SIGTERM: saved" in output) is not kill, output
        more = (*saving, f"rl_script_args.loading_path={folder}")
    status, output = launch(tmp_path, NAME, folder, *more)
    assert status == 0, output
    assert tables(folder) == tables(whole)
    assert json.loads((folder / "manifest.json").read_text())["restarts"] == 2


def trainer_of(folder: Path, process) -> int:
    """Process that trains, once it has saved a checkpoint of its own."""
    before = {path.name for path in (folder / "checkpoints").glob("*.safetensors")}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        if {path.name for path in (folder / "checkpoints").glob("*.safetensors")} - before:
            return int(json.loads((folder / "attempts.jsonl").read_text().splitlines()[-1])["pid"])
        time.sleep(0.1)
    process.terminate()
    pytest.fail(f"no checkpoint: {process.communicate()[0]}")
