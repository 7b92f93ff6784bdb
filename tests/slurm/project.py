"""A copy of the project in which drivers run, and what their training runs leave."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from magellan.config import PlannedRun, grid, load_experiment, read_yaml
from magellan.jobs.provenance import Attempts
from tests.workflow.conftest import ROOT, copy_checkout

EXPERIMENT = "campaign.yaml"
# The smoke grid, with runs long enough to have a middle, and states to go on from.
OVERRIDES = {
    "budget": {
        "episodes": 960,
        "evaluate_every": 240,
        "checkpoint_seconds": 1.0,
        "checkpoint_share": 1.0,
        "stop_margin_seconds": 59.0,  # a run with a limit of one minute stops at once
    }
}
# These tell of minutes and megabytes.
TELL_OF_TIME = ("statistics/cost.csv",)
ASKED_BY_A_POLL = ("scontrol", "squeue")
OUTAGE_SECONDS = 60
# Stands in for such a command: fails from the first call of a driver after its folder has a file
# `armed`, which begins the outage, until it is over. Jobs are answered.
FAILING = f"""\
#!/bin/sh
cd "$(dirname "$0")"
if [ -z "$SLURM_JOB_ID" ] && [ -e armed ]; then
  [ -e begun ] || touch begun
  if [ $(($(date +%s) - $(stat -c %Y begun))) -lt {OUTAGE_SECONDS} ]; then
    echo "slurm_load error: Unable to contact slurm controller (connect failure)" >&2
    exit 1
  fi
fi
"""


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        folder: its folder.
        comment: what the executor calls its Slurm jobs.
        log: the rule's log of its present or last job.
    """

    folder: Path
    comment: str
    log: Path

    def attempts(self) -> list[dict[str, Any]]:
        """Rows of attempts.jsonl, oldest first."""
        return Attempts(self.folder, "").read()

    def live_attempt(self) -> dict[str, Any] | None:
        """The attempt whose process works now, if it has saved since it began."""
        rows = self.attempts()
        if not rows or "ended" in rows[-1] or not alive(rows[-1]["pid"]):
            return None
        checkpoints = (self.folder / "checkpoints").glob("*.safetensors")
        saved = max((path.name for path in checkpoints), default="")
        return rows[-1] if saved > (rows[-1]["resumed_from"] or "") else None

    def attempt(self, number: int) -> dict[str, Any] | None:
        """An attempt that is over; None while its process lives."""
        row = next(row for row in self.attempts() if row["attempt"] == number)
        return row if "ended" in row or not alive(row["pid"]) else None

    def words(self) -> str:
        """What the rule's log says; empty without one."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


class Project:
    """A copy of the checkout with the experiment of the campaign in it.

    Args:
        folder: where it goes; made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        copy_checkout(folder)
        smoke = read_yaml(ROOT / "config/smoke.yaml")
        values = {**smoke, "overrides": OVERRIDES}
        (folder / EXPERIMENT).write_text(yaml.safe_dump(values))
        experiment = load_experiment(values)
        self.results = folder / experiment.results / experiment.experiment
        self.runs = [self._run(planned) for planned in grid(experiment)]
        self._tools = folder / "tools"
        self._tools.mkdir()
        for name in filter(shutil.which, ASKED_BY_A_POLL):
            (self._tools / name).write_text(f'{FAILING}exec {shutil.which(name)} "$@"\n')
            (self._tools / name).chmod(0o755)

    def _run(self, run: PlannedRun) -> Run:
        names = (run.sampler, run.goal_space, str(run.seed), run.identity)
        place = run.path.removeprefix("runs/")
        return Run(
            folder=self.results / run.path,
            comment=f"rule_train_wildcards_{'_'.join(names)}",
            log=self.results / "logs/train" / f"{place}.log",
        )

    def targets(self) -> list[str]:
        """Tables and statistics, without figures."""
        files = ("tables/manifest.json", "statistics/success.csv")
        return [str((self.results / name).relative_to(self.folder)) for name in files]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """A driver, as a user starts it; its words go to driver.log in the folder."""
        path = f"{self._tools}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "MAGELLAN_LOCK_PAUSE": "3"}
        with self.words.open("a") as words:
            return subprocess.Popen(
                [sys.executable, "-m", "snakemake", f"--configfile={EXPERIMENT}", *options],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )

    def fail_at_the_next_poll(self) -> None:
        """Let what the driver asks at its next poll fail, and for `OUTAGE_SECONDS` after that."""
        (self._tools / "armed").touch()

    def outage_is_over(self) -> bool:
        """Whether it began so long ago."""
        begun = self._tools / "begun"
        return begun.exists() and time.time() > begun.stat().st_mtime + OUTAGE_SECONDS + 1

    @property
    def words(self) -> Path:
        """What the drivers said."""
        return self.folder / "driver.log"

    def ask(self, *options: str) -> tuple[int, str]:
        """Exit status and words of a driver that ends soon."""
        begin = self.words.stat().st_size if self.words.exists() else 0
        status = self.start(*options).wait(timeout=120)
        return status, self.words.read_bytes()[begin:].decode(errors="replace")

    def tables(self) -> dict[str, bytes]:
        """Combined tables and statistics by name, except those that tell of time."""
        paths = [*self.results.glob("tables/*.csv"), *self.results.glob("statistics/*.csv")]
        names = {path.relative_to(self.results).as_posix(): path for path in paths}
        return {
            name: path.read_bytes()
            for name, path in sorted(names.items())
            if name not in TELL_OF_TIME
        }


def end(driver: subprocess.Popen[str]) -> None:
    """End a driver that may still run."""
    if driver.poll() is None:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
