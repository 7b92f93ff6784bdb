"""A job file of lamorel (`slurm/lamorel_*.sbatch`) on the cluster, where a lamorel is at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.slurm.campaign import Fault
from tests.slurm.cluster import CampaignError, Cluster, call, wait_until
from tests.slurm.project import ROOT, Project, Run

SAMPLER = "magellan"
SEED = 3
GOALS = (40, 8, 4, 2, 2)
EPISODES = 240
TABLES = ("evaluation", "competence", "practice", "training")
# Saved after each update, to be met in its middle; a limit of one minute is too little time.
WORDS = (
    "rl_script_args.preset=smoke",
    f"rl_script_args.goals_distribution={list(GOALS)}".replace(" ", ""),
    f"+rl_script_args.num_episodes={EPISODES}",
    "+rl_script_args.config.budget.checkpoint_seconds=0",
    "+rl_script_args.config.budget.stop_margin_seconds=59",
)
SECONDS = 900


def python_with_lamorel() -> Path | None:
    """The interpreter that the job is to use: LAMOREL_PYTHON, or that of `make lamorel-env`."""
    named = os.environ.get("LAMOREL_PYTHON", ROOT / ".venv-lamorel" / "bin" / "python")
    path = shutil.which(str(named))
    return None if path is None else Path(path)


class JobFile:
    """One seed behind lamorel: stops before its time limit, is requeued by hand, ends.

    Args:
        cluster: a running one.
        project: where the job file is called.
        python: an interpreter that has lamorel.
        say: called with a line after each fault.
    """

    def __init__(
        self, cluster: Cluster, project: Project, python: Path, say: Callable[[str], None]
    ) -> None:
        self._cluster, self._folder, self._python, self._say = cluster, project.folder, python, say
        folder = self._folder / "outputs" / SAMPLER / f"seed{SEED}"
        self._run = Run(folder, "", self._folder / "job.log")
        self.faults: list[Fault] = []

    def run(self) -> None:
        """All of it; `faults` has what was done.

        Raises:
            CampaignError: something that must hold did not.
        """
        number = self._submit()
        self._wait(lambda: self._restarts(number) == 1, "a job to put itself back")
        self._note("lamorel's job file: too little time", "saved, put itself back into the queue")
        call("scontrol", "update", f"JobId={number}", "TimeLimit=20")
        self._wait(self._run.live_attempt, "a run behind lamorel in its middle")
        call("scontrol", "requeue", number)
        self._wait(lambda: self._restarts(number) == 2, "a job to be requeued")
        self._note("lamorel's job file: scontrol requeue", "the same job came back")
        self._wait(lambda: self._state(number) == "COMPLETED", "the run behind lamorel to end")
        self._check()

    def _submit(self) -> str:
        """Number of the job of one seed."""
        options = ("--parsable", f"--array={SEED}", "--time=1", f"--output={self._run.log}")
        words = call(
            *("env", "-C", str(self._folder), f"LAMOREL_PYTHON={self._python}"),
            *("LAMOREL_CONFIG=local_cpu_config", "sbatch", *options),
            *(f"slurm/lamorel_{SAMPLER}.sbatch", *WORDS),
        )
        return words.partition(";")[0]

    def _state(self, number: str) -> str:
        state = self._cluster.job(number).state
        if state in ("FAILED", "CANCELLED", "TIMEOUT"):
            raise CampaignError(f"the job behind lamorel is {state}")
        return state

    def _restarts(self, number: str) -> int:
        self._state(number)
        return self._cluster.restarts(number)

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        try:
            wait_until(condition, what, SECONDS)
        except CampaignError as error:
            raise CampaignError(f"{error}\n{self._run.words()[-4000:]}") from error

    def _note(self, what: str, survived: str) -> None:
        self.faults.append(Fault(what, survived))
        self._say(f"{what}: {survived}")

    def _check(self) -> None:
        """Three attempts, the later ones from a checkpoint, and the tables of a run at home."""
        rows = self._run.attempts()
        if len(rows) != 3 or rows[2]["resumed_from"] is None or rows[2]["reason"] != "complete":
            raise CampaignError(f"the run behind lamorel did not go on from its state: {rows}")
        here = self._folder / "here"
        local(here)
        for name in TABLES:
            expected, actual = (folder / f"{name}.csv" for folder in (here, self._run.folder))
            if expected.read_bytes() != actual.read_bytes():
                raise CampaignError(f"behind lamorel {name}.csv is not what it is without")


def local(folder: Path) -> None:
    """The same run without lamorel, with the interpreter of this process."""
    command = [sys.executable, "-m", "magellan", "train", "--preset", "smoke", "--seed", str(SEED)]
    command += ["--sampler", SAMPLER, "--goal-space", "-".join(map(str, GOALS))]
    command += ["--set", f"budget.episodes={EPISODES}", "--output", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
