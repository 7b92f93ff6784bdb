import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.analysis import synthetic

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "Snakefile",
    "workflow",
    "profiles",
    "slurm",
    "config",
    "analysis",
    "magellan",
    "environment.yml",
)


# Stands in for config/config.yaml, so that no test depends on how long the default experiment is.
SMALL_DEFAULT = f"""
experiment: default
preset: laptop
samplers: [random, online, ek_online, magellan]
goal_spaces: [{synthetic.GOAL_SPACE}]
seeds: [0, 1]
"""


class Project:
    """A copy of the checkout in which a test may run and edit things."""

    def __init__(self, folder: Path):
        self.folder = folder
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=skipped)
            else:
                shutil.copy(ROOT / part, folder / part)
        (folder / "config/config.yaml").write_text(SMALL_DEFAULT)

    def __truediv__(self, path: str) -> Path:
        return self.folder / path

    def snakemake(
        self, *arguments: str, timeout: float = 900, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        """Run it as a user would, with stdout and stderr together in `stdout`."""
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=self.folder,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )

    def refused(self, *arguments: str, **options) -> str:
        """The one line with which a call ends that may not go on."""
        return the_error(self.snakemake(*arguments, **options))

    def planned(self, *arguments: str) -> dict[str, int]:
        """Number of jobs per rule that a dry run announces; empty when nothing is to be done."""
        done = self.snakemake("-n", *arguments)
        assert done.returncode == 0, done.stdout
        _, _, table = done.stdout.partition("Job stats:")
        rows = re.findall(r"^(\w+) +(\d+)$", table, flags=re.MULTILINE)
        return {rule: int(count) for rule, count in rows if rule not in ("total", "all")}

    def write_runs(self, **declared) -> None:
        """Finished runs of the default experiment, with made-up numbers."""
        experiment = synthetic.experiment(preset="laptop", **declared)
        synthetic.write_runs(self / "results/default", experiment, episodes=4_000)

    def folder_of(self, place: str) -> Path:
        """Folder of the only run that lies in SAMPLER/GOAL_SPACE/seedN."""
        (folder,) = (self / "results/default/runs" / place).iterdir()
        return folder


def the_error(done: subprocess.CompletedProcess) -> str:
    """The only line about an error of a call that failed, without a traceback."""
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in done.stdout
    return line


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory):
    """For tests that only look."""
    return Project(tmp_path_factory.mktemp("project"))
