"""The faults, one after the other, and what must hold after each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.slurm.cluster import CampaignError, Cluster, Job, call, wait_until
from tests.slurm.project import ASKED_BY_A_POLL, OUTAGE_SECONDS, Project, Run, end

# Polls every few seconds instead of twenty; a GPU per run is what is scarce on this node.
PROFILE = (
    *("--profile", "slurm"),
    *("--slurm-init-seconds-before-status-checks", "3"),
    *("--default-resources", "slurm_partition=main"),
    *("--set-resources", "train:gpu=1"),
)
BASE_MINUTES = 10  # of the preset `smoke`; the second attempt gets twice as much
SECONDS_PER_RUN = 300
SECONDS_TO_THE_END = 900  # what is left of the runs, and the analysis, on a slow machine
LOCKED = "cannot be locked"
WAITS = "waiting for the other job"


@dataclass(frozen=True)
class Fault:
    """A fault that was injected.

    Attributes:
        what: for the table at the end.
        survived: what was seen, right after it, to hold.
        run: the run that it hit, with the attempt that it ended; None if it hit no single run.
        attempt: number of that attempt.
    """

    what: str
    survived: str
    run: Run | None = None
    attempt: int = 0


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process that stands still, so that a fault finds it in its middle."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Campaign:
    """Drives the grid through Slurm while doing to it what clusters do.

    Args:
        cluster: a running one.
        project: a fresh one.
        say: called with a line after each fault.
    """

    def __init__(self, cluster: Cluster, project: Project, say: Callable[[str], None]) -> None:
        self._cluster, self._project, self._say = cluster, project, say
        self._driver: subprocess.Popen[str] | None = None
        self._spared: Run | None = None  # by all faults, until its own has come
        self.faults: list[Fault] = []

    def run(self) -> None:
        """The whole campaign; `faults` has what was done.

        Raises:
            CampaignError: something that must hold did not.
        """
        try:
            self._driver = self._project.start(*PROFILE)
            self._grant_too_little_time()
            self._start_a_second_driver()
            self._strike("scancel", self._cancel, "tried again by the driver")
            self._strike("scontrol requeue", self._requeue, "the same job came back")
            self._strike("pre-emption by an urgent job", self._preempt, "the same job came back")
            self._strike("time limit moved to now", self._move_limit, "tried again by the driver")
            self._restart_controller()
            self._strike("SIGKILL of a run", self._kill_run, "tried again by the driver")
            self._see_the_limit_grow()
            self._kill_the_driver()
            self._hold_a_run()
            self._fail_a_poll()
            self._finish()
        finally:
            if self._driver is not None:
                end(self._driver)

    # what happens to single runs

    def _strike(self, what: str, do: Callable[[Job, int], None], survived: str) -> None:
        """Do something to a run in its middle; again to another one if it ended before that."""
        for _ in range(5):
            run, job, attempt = wait_until(self._in_the_middle, "a run in its middle")
            number = attempt["attempt"]
            with paused(attempt["pid"]):
                if run.live_attempt() != attempt:
                    continue
                do(job, attempt["pid"])
            over = wait_until(lambda run=run, n=number: run.attempt(n), f"{what} to end {job}")
            if over["reason"] != "complete":
                self._note(Fault(what, survived, run, number))
                return
        raise CampaignError(f"{what}: five runs ended before it came")

    def _in_the_middle(self) -> tuple[Run, Job, dict] | None:
        """A run that works and has saved; rather one that nothing happened to so far."""
        if self._driver is not None and self._driver.poll() is not None:
            raise CampaignError("the driver ended too early")
        jobs = {job.comment: job for job in self._cluster.jobs() if job.state == "RUNNING"}
        hit = [fault.run for fault in self.faults]
        for run in sorted(self._project.runs, key=hit.count):
            if run.comment not in jobs or run == self._spared:
                continue
            attempt = run.live_attempt()
            if attempt is not None:
                return run, jobs[run.comment], attempt
        return None

    def _cancel(self, job: Job, _: int) -> None:
        call("scancel", job.id)
        self._wait_for_state(job, "CANCELLED")

    def _requeue(self, job: Job, _: int) -> None:
        call("scontrol", "requeue", job.id)
        wait_until(lambda: self._cluster.restarts(job.id), f"job {job.id} to be requeued")

    def _preempt(self, job: Job, _: int) -> None:
        urgent = ("--partition=urgent", "--cpus-per-task=8", "--time=1", "--output=/dev/null")
        call("sbatch", *urgent, "--wrap", "sleep 1")
        wait_until(lambda: self._cluster.restarts(job.id), f"job {job.id} to be pre-empted")

    def _move_limit(self, job: Job, _: int) -> None:
        """Slurm looks at limits twice a minute."""
        call("scontrol", "update", f"JobId={job.id}", "EndTime=now+1")
        self._wait_for_state(job, "COMPLETING", "TIMEOUT")

    def _kill_run(self, job: Job, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._wait_for_state(job, "FAILED")

    def _wait_for_state(self, job: Job, *states: str) -> None:
        wait_until(
            lambda: self._cluster.job(job.id).state in states, f"job {job.id}: {', '.join(states)}"
        )

    def _jobs_of(self, run: Run) -> list[Job]:
        return [job for job in self._cluster.jobs() if job.comment == run.comment]

    # too little time, seen from inside

    def _grant_too_little_time(self) -> None:
        """Cut the limit of a job that has not begun: its run stops by itself, saved."""
        runs = {run.comment: run for run in self._project.runs}

        def waiting() -> list[Job]:
            jobs = self._cluster.jobs()
            return [job for job in jobs if job.state == "PENDING" and job.comment in runs]

        job = wait_until(waiting, "a job that waits")[0]
        call("scontrol", "update", f"JobId={job.id}", "TimeLimit=1")
        self._spared = runs[job.comment]

    def _see_the_limit_grow(self) -> None:
        run = self._spared

        def stopped() -> list[int]:
            rows = run.attempts()
            return [row["attempt"] for row in rows if "time limit" in row["reason"]]

        number = wait_until(stopped, "a run to stop before its limit", SECONDS_PER_RUN)[0]
        grown = f"{2 * BASE_MINUTES}:00"
        wait_until(
            lambda: any(job.limit == grown for job in self._jobs_of(run)),
            f"a retry with {2 * BASE_MINUTES} minutes",
        )
        self._spared = None
        self._note(Fault("too little time", "stopped itself; the retry got twice", run, number))

    # what happens around the runs

    def _start_a_second_driver(self) -> None:
        status, words = self._project.ask(*PROFILE)
        if status == 0 or LOCKED not in words:
            raise CampaignError(f"a second driver was not refused (exit status {status})")
        self._note(Fault("second driver beside the first", "refused; the first went on"))

    def _restart_controller(self) -> None:
        self._cluster.restart_controller()
        self._note(Fault("slurmctld ends and comes back", "the driver went on"))

    def _kill_the_driver(self) -> None:
        """SIGKILL; then as docs/slurm.md says: unlock, end what was left behind, start."""
        wait_until(self._in_the_middle, "a run in its middle")
        end(self._driver)
        status, words = self._project.ask(*PROFILE)
        if status == 0 or LOCKED not in words:
            raise CampaignError(f"the folder of a killed driver is not locked (status {status})")
        self._project.ask(*PROFILE, "--unlock")
        status, words = self._project.ask(*PROFILE)
        command = re.search(r"scancel ([\d ]*\d)", words)
        if status == 0 or command is None:
            raise CampaignError(f"jobs that a driver left behind are not named (status {status})")
        self._note(Fault("jobs left behind by a killed driver", "named by the next one"))
        call("scancel", *command[1].split())
        wait_until(lambda: not call("squeue", "--noheader"), "the old jobs to end")
        self._driver = self._project.start(*PROFILE)
        self._note(Fault("SIGKILL of the driver", "a new one went on"))

    def _hold_a_run(self) -> None:
        """A run's folder belongs to another process when its job starts: the job waits."""
        run = wait_until(self._next_to_go_on, "a run that is to go on")
        number = run.attempts()[-1]["attempt"]
        with (run.folder / ".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wait_until(lambda: WAITS in run.words(), "a job that waits")
        self._note(Fault("run held by another process", "waited for it", run, number))

    def _next_to_go_on(self) -> Run | None:
        """The run with the oldest job that has not begun, of those with a state to go on from."""
        waiting = [job.comment for job in self._cluster.jobs() if job.state == "PENDING"]
        begun = {run.comment: run for run in self._project.runs if run.attempts()}
        return next((begun[comment] for comment in waiting if comment in begun), None)

    def _fail_a_poll(self) -> None:
        """While jobs are left; `_finish` sees that the driver has not forgotten them."""
        self._project.fail_at_the_next_poll()
        wait_until(self._project.outage_is_over, "a poll that fails")
        what = f"{' and '.join(ASKED_BY_A_POLL)} fail for {OUTAGE_SECONDS} s, from a poll on"
        self._note(Fault(what, "the driver asked again"))

    def _finish(self) -> None:
        driver = self._driver
        status = wait_until(
            lambda: [driver.poll()] if driver.poll() is not None else None,
            "the driver to end",
            SECONDS_TO_THE_END,
        )[0]
        if status != 0:
            raise CampaignError(f"the driver ended with exit status {status}")
        for fault in self.faults:
            self._check_resumed(fault)
        if not self._cluster.has_gpu(self._jobs_of(self._project.runs[0])[-1].id):
            raise CampaignError("a run asked for no GPU: --set-resources was lost")

    def _check_resumed(self, fault: Fault) -> None:
        if fault.run is None:
            return
        rows = fault.run.attempts()
        later = [row for row in rows if row["attempt"] > fault.attempt]
        if not later or later[0]["resumed_from"] is None or rows[-1]["reason"] != "complete":
            raise CampaignError(f"{fault.what}: {fault.run.folder} did not go on from its state")

    def _note(self, fault: Fault) -> None:
        self.faults.append(fault)
        self._say(f"{fault.what}: {fault.survived}")
