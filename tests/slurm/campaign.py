"""The faults, one after the other, and what must hold after each."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from magellan.config import PlannedRun, grid, load_experiment, read_yaml
from magellan.jobs.provenance import Attempts
from tests.slurm.cluster import CampaignError, Cluster, Job, call, jobs, wait_until
from tests.workflow.conftest import ROOT, copy_checkout

# The smoke grid but for a sampler; its runs have a middle, and states to go on from.
SAMPLERS = ["random", "ek_online", "magellan"]
BUDGET = {
    "episodes": 960,
    "evaluate_every": 240,
    "checkpoint_seconds": 1.0,
    "checkpoint_share": 1.0,
    "stop_margin_seconds": 59.0,  # a run with a limit of one minute stops at once
}
# Polls every few seconds instead of twenty; a GPU per run is what is scarce on this node.
PROFILE = (
    *("--profile", "slurm", "--slurm-init-seconds-before-status-checks", "3"),
    *("--default-resources", "slurm_partition=main", "--set-resources", "train:gpu=1"),
)
# Tables, statistics and one figure: on the cluster a job of several rules.
MADE = ("tables/manifest.json", "statistics/success.csv", "figures/40-20-12-8-8/practice.png")
OUTAGE_SECONDS = 30
BASE_MINUTES = 10  # of the preset `smoke`; the second attempt gets twice as much
Reached = tuple["Run", Job, dict[str, Any]]


class Run:
    """A training run: its folder, the log of its rule, the executor's comment to its jobs."""

    def __init__(self, results: Path, run: PlannedRun) -> None:
        names = (run.sampler, run.goal_space, str(run.seed), run.identity)
        self.folder, self.comment = results / run.path, f"rule_train_wildcards_{'_'.join(names)}"
        self.log = results / "logs/train" / f"{run.path.removeprefix('runs/')}.log"

    def attempts(self) -> list[dict[str, Any]]:
        """Rows of attempts.jsonl, oldest first; one that was killed has ended."""
        return Attempts(self.folder, "").read()

    def in_its_middle(self) -> dict[str, Any] | None:
        """The attempt that works now, if it has saved since it began."""
        *_, last = self.attempts() or [{"ended": True}]
        checkpoints = (self.folder / "checkpoints").glob("*.safetensors")
        saved = max((path.name for path in checkpoints), default="")
        live = "ended" not in last and Path(f"/proc/{last['pid']}").exists()
        return last if live and saved > (last["resumed_from"] or "") else None


class Project:
    """A copy of the checkout in a new folder, with the experiment of the campaign in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        copy_checkout(folder)
        values = read_yaml(ROOT / "config/smoke.yaml")
        values |= {"samplers": SAMPLERS, "overrides": {"budget": BUDGET}}
        (folder / "campaign.yaml").write_text(yaml.safe_dump(values))
        experiment = load_experiment(values)
        self.folder, self.words = folder, folder / "driver.log"
        self.results = folder / experiment.results / experiment.experiment
        self.runs = [Run(self.results, planned) for planned in grid(experiment)]

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """A driver, as a user starts it; its words go to driver.log in the folder."""
        command = (sys.executable, "-m", "snakemake", "--configfile=campaign.yaml")
        with self.words.open("a") as words:
            return subprocess.Popen(
                [*command, *(f"results/smoke/{name}" for name in MADE), *options],
                cwd=self.folder,
                env={**os.environ, "MAGELLAN_LOCK_PAUSE": "3"},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ask(self, *options: str) -> tuple[int, str]:
        """Exit status and words of a driver that ends soon."""
        begin = self.words.stat().st_size
        status = self.start(*options).wait(timeout=120)
        return status, self.words.read_bytes()[begin:].decode(errors="replace")

    def tables(self) -> dict[str, bytes]:
        """Combined tables and statistics by name, but cost.csv, which tells of time."""
        paths = [*self.results.glob("tables/*.csv"), *self.results.glob("statistics/*.csv")]
        kept = [path for path in paths if path.name != "cost.csv"]
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in kept}


class Campaign:
    """Drives the grid through Slurm while doing to it what clusters do; says so after each."""

    def __init__(self, cluster: Cluster, project: Project, say: Callable[[str], None]) -> None:
        self._cluster, self._project, self._say = cluster, project, say
        self._spared: Run | None = None  # by all faults, until its own has come
        self._hit: list[tuple[Run, int]] = []  # runs, and the attempt that a fault ended

    def run(self) -> None:
        """The whole campaign; a CampaignError if something that must hold did not."""
        self._driver = self._project.start(*PROFILE)
        try:
            self._grant_too_little_time()
            self._restart_controller()
            self._strike(
                "scancel, tried again by the driver", lambda job, _: call("scancel", job.id)
            )
            self._strike("scontrol requeue, the same job came back", self._requeue)
            self._strike(
                "SIGKILL of a run, tried again by the driver",
                lambda _, pid: os.kill(pid, signal.SIGKILL),
            )
            self._see_the_limit_grow()
            self._kill_the_driver()
            self._hold_a_run()
            self._finish()
        finally:
            self._driver.kill()
            self._driver.wait()

    def _strike(self, what: str, do: Callable[[Job, int], None]) -> None:
        """Do something to a run in its middle; again to another one if it ended before that."""
        for _ in range(5):
            run, job, attempt = wait_until(self._in_the_middle, "a run in its middle")
            number = attempt["attempt"]
            do(job, attempt["pid"])
            gone = Path(f"/proc/{attempt['pid']}").exists
            wait_until(lambda gone=gone: not gone(), f"{what}: {job} to end")
            if run.attempts()[number - 1]["reason"] != "complete":
                self._hit.append((run, number))
                self._say(what)
                return
        raise CampaignError(f"{what}: five runs ended before it came")

    def _in_the_middle(self) -> Reached | None:
        """A run that works and has saved; rather one that nothing happened to so far."""
        if self._driver.poll() is not None:
            raise CampaignError("the driver ended too early")
        running = {job.comment: job for job in jobs() if job.state == "RUNNING"}
        hit = [run for run, _ in self._hit]
        for run in sorted(self._project.runs, key=hit.count):
            attempt = run.in_its_middle() if run.comment in running else None
            if attempt is not None and run is not self._spared:
                return run, running[run.comment], attempt
        return None

    @staticmethod
    def _requeue(job: Job, _: int) -> None:
        call("scontrol", "requeue", job.id)
        shown = ("scontrol", "show", "job", job.id)
        wait_until(lambda: "Restarts=1" in call(*shown), f"job {job.id} to be requeued")

    def _grant_too_little_time(self) -> None:
        """Cut the limit of a job that has not begun: its run stops by itself, saved."""
        runs = {run.comment: run for run in self._project.runs}

        def waiting() -> list[Job]:
            known = [job for job in jobs() if job.comment in runs]
            there = len(known) >= len(runs)
            return [job for job in known if job.state == "PENDING"] if there else []

        job = wait_until(waiting, "a job that waits, when all are there")[0]
        call("scontrol", "update", f"JobId={job.id}", "TimeLimit=1")
        self._spared = runs[job.comment]

    def _see_the_limit_grow(self) -> None:
        run = self._spared

        def stopped() -> list[int]:
            return [row["attempt"] for row in run.attempts() if "time limit" in row["reason"]]

        self._hit.append((run, wait_until(stopped, "a run to stop before its limit")[0]))

        def limits() -> set[str]:
            return {job.limit for job in jobs() if job.comment == run.comment}

        wait_until(lambda: f"{2 * BASE_MINUTES}:00" in limits(), "a retry with twice the time")
        self._spared = None
        self._say("too little time: stopped itself, and the retry got twice")

    def _restart_controller(self) -> None:
        """Polls of the driver fail for a while; `_finish` sees that it has forgotten no job."""
        self._cluster.end("slurmctld")
        time.sleep(OUTAGE_SECONDS)
        self._cluster.start_controller()
        self._say(f"slurmctld ends and comes back after {OUTAGE_SECONDS} s: the driver went on")

    def _kill_the_driver(self) -> None:
        """SIGKILL; then as docs/slurm.md says: unlock, end what was left behind, start."""
        wait_until(self._in_the_middle, "a run in its middle")
        self._driver.kill()
        self._driver.wait()
        status, words = self._project.ask(*PROFILE)
        if status == 0 or "cannot be locked" not in words:
            raise CampaignError(f"the folder of a killed driver is not locked (status {status})")
        self._project.ask(*PROFILE, "--unlock")
        status, words = self._project.ask(*PROFILE)
        command = re.search(r"scancel ([\d ]*\d)", words)
        if status == 0 or command is None:
            raise CampaignError(f"jobs that a driver left behind are not named (status {status})")
        call("scancel", *command[1].split())
        wait_until(lambda: not call("squeue", "--noheader"), "the old jobs to end")
        self._driver = self._project.start(*PROFILE)
        self._say("SIGKILL of the driver: its jobs are named by the next one, which went on")

    def _hold_a_run(self) -> None:
        """A run's folder belongs to another process when its job starts: the job waits."""
        begun = {run.comment: run for run in self._project.runs if run.attempts()}

        def to_go_on() -> list[Run]:
            waiting = [job.comment for job in jobs() if job.state == "PENDING"]
            return [begun[comment] for comment in waiting if comment in begun]

        run = wait_until(to_go_on, "a run that is to go on")[0]
        self._hit.append((run, run.attempts()[-1]["attempt"]))
        with (run.folder / ".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            words = b"waiting for the other job"
            wait_until(lambda: run.log.exists() and words in run.log.read_bytes(), "a job's wait")
        self._say("run held by another process: its job waited for it")

    def _finish(self) -> None:
        wait_until(lambda: self._driver.poll() is not None, "the driver to end", seconds=900)
        if self._driver.returncode != 0:
            raise CampaignError(f"the driver ended with exit status {self._driver.returncode}")
        for run, number in self._hit:
            rows = run.attempts()
            if rows[number]["resumed_from"] is None or rows[-1]["reason"] != "complete":
                raise CampaignError(f"{run.folder} did not go on after attempt {number}")
        last = [job for job in jobs() if job.comment == self._project.runs[0].comment][-1]
        if not re.search(r"TresPerJob=gres[:/]gpu", call("scontrol", "show", "job", last.id)):
            raise CampaignError("a run asked for no GPU: --set-resources was lost")
