import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analysis import synthetic
from tests.snippets import ROOT, script

PARTS = ("Snakefile", "workflow", "profiles", "slurm", "config", "analysis", "magellan")
PARTS += ("environment.yml",)
# Stands in for config/config.yaml, so that no test depends on how long the default experiment is.
# Few resamples, to be quick.
SMALL_DEFAULT = f"""
experiment: default
preset: reference
samplers: [random, online, ek_online, magellan]
goal_spaces: [{synthetic.GOAL_SPACE}]
seeds: [0, 1]
analysis: {{bootstrap_repetitions: 100}}
"""


# Stands in for the trainer: takes a finished run from a shelf, or fails like one that breaks down
# after its first checkpoint.
STAND_IN = """
import shutil
import sys
from pathlib import Path

from magellan.core.errors import NotFiniteError
from magellan.jobs.provenance import Attempts


def train(config, output, resume, progress, stop_after, log, start):
    output.mkdir(parents=True, exist_ok=True)
    name = f"{config.sampler}/{config.goal_space}/seed{config.seed}"
    print(f"{name}: half way, resume {resume}", file=sys.stderr, flush=True)
    (output / "checkpoint").write_text(name)
    if Path("broken").exists() and name == Path("broken").read_text():
        raise RuntimeError("out of luck")
    if Path("hopeless").exists() and name == Path("hopeless").read_text():
        attempts = Attempts(output, output.name)
        attempts.begin(None)
        attempts.end("error: critic_loss is nan", 70)
        raise NotFiniteError("critic_loss is nan")
    shutil.copytree(Path("shelf/runs") / name / output.name, output, dirs_exist_ok=True)
"""


def copy_checkout(folder: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=skipped)
        else:
            shutil.copy(ROOT / part, folder / part)


class Project:
    """A folder with a workflow in which a test may run and edit things."""

    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def copied(cls, folder: Path) -> "Project":
        """A copy of the checkout, with a small default experiment."""
        copy_checkout(folder)
        (folder / "config/config.yaml").write_text(SMALL_DEFAULT)
        return cls(folder)

    def __truediv__(self, path: str) -> Path:
        return self.folder / path

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run it as a user would, with stdout and stderr together in `stdout`."""
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )

    def run(self, *arguments: str) -> str:
        done = self.snakemake(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """The one line with which a call ends that may not go on, without a traceback."""
        done = self.snakemake(*arguments)
        assert done.returncode != 0
        assert "Traceback" not in done.stdout
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
        return line

    def planned(self, *arguments: str) -> dict[str, int]:
        """Number of jobs per rule that a dry run announces; empty when nothing is to be done."""
        _, _, table = self.run("-n", *arguments).partition("Job stats:")
        rows = re.findall(r"^(\w+) +(\d+)$", table, flags=re.MULTILINE)
        return {rule: int(count) for rule, count in rows if rule not in ("total", "all")}

    def read_json(self, path: str):
        return json.loads((self / path).read_text())

    def folder_of(self, place: str) -> Path:
        """Folder of the only run that lies in SAMPLER/GOAL_SPACE/seedN."""
        (folder,) = (self / "results/default/runs" / place).iterdir()
        return folder


def put_stand_in(project: Project) -> None:
    """Let runs of two samplers be taken from a shelf instead of being trained."""
    (project / "magellan/training/__init__.py").write_text("")
    (project / "magellan/jobs/run.py").write_text(STAND_IN)
    experiment = synthetic.experiment(preset="reference", samplers=("random", "online"))
    synthetic.write_runs(project / "shelf", experiment, episodes=2_000)


@contextlib.contextmanager
def edited(path: Path, text: str, later: float = 0.0) -> Iterator[None]:
    """A file with another text, so many seconds later; at the end it is as it was."""
    original, times = path.read_bytes(), path.stat()
    path.write_text(text)
    os.utime(path, (time.time() + later,) * 2)
    try:
        yield
    finally:
        path.write_bytes(original)
        os.utime(path, (times.st_atime, times.st_mtime))


@pytest.fixture
def tools(tmp_path_factory, monkeypatch):
    """A folder in front of the PATH; call it to put a shell script there."""
    folder = tmp_path_factory.mktemp("tools")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return lambda name, text: script(folder / name, text)


@pytest.fixture
def project(tmp_path):
    return Project.copied(tmp_path)
