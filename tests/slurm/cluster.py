"""A real Slurm of one node: munged, slurmctld and slurmd on loopback, as root, without systemd."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "scancel")
# Not elsewhere: the executor hides SLURM_CONF from the steps of its jobs.
CONFIG = Path("/etc/slurm/slurm.conf")
DEVICES = CONFIG.with_name("gres.conf")
MARK = "# a throw-away Slurm of tests/slurm, process"
APT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
Value = TypeVar("Value")
GPUS = ("/dev/null", "/dev/zero")  # stand-ins: Slurm counts and hands out files

SETTINGS = """\
{mark} {owner}
ClusterName=magellan
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=8
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1,bf_interval=2
MinJobAge=86400
KillWait=10
InactiveLimit=0
JobRequeue=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES DefaultTime=10 MaxTime=INFINITE PriorityTier=1 State=UP
PartitionName=urgent Nodes={host} DefaultTime=10 MaxTime=INFINITE PriorityTier=10 State=UP
"""


class CampaignError(Exception):
    """The campaign cannot go on; the message says what was waited for or refused."""


def wait_until(
    condition: Callable[[], Value], what: str, seconds: float = 400.0, pause: float = 0.2
) -> Value:
    """The first true value of `condition`.

    Raises:
        CampaignError: it did not come within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise CampaignError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(pause)
    return value


@dataclass(frozen=True)
class Job:
    """A job as squeue lists it.

    Attributes:
        id: Slurm's number.
        state: PENDING, RUNNING, COMPLETED ...
        limit: time limit as Slurm writes it.
        comment: the executor's: rule and wildcards.
    """

    id: str
    state: str
    limit: str
    comment: str


def why_not() -> str | None:
    """Why no Slurm can be started here; None if it can. Changes nothing but apt's lists."""
    if os.geteuid() != 0:
        return "it needs root"
    if _in_use():
        return f"{CONFIG} is there: this machine has a Slurm already, or another test runs"
    try:
        socket.gethostbyname(_host())
    except OSError:
        return f"the name of this machine, {_host()}, has no address"
    if _missing() and shutil.which("apt-get") is None:
        return f"{', '.join(_missing())} are not installed, and there is no apt-get"
    refusal = _install_missing("--simulate")
    if refusal is None:
        return None
    lines = refusal.strip().splitlines() or ["no reason given"]
    return f"apt-get cannot install {' '.join(PACKAGES)}: {lines[-1]}"


def install() -> None:
    """Install what is missing, from Debian's packages."""
    refusal = _install_missing()
    if refusal is not None:
        raise RuntimeError(f"apt-get install {' '.join(PACKAGES)}:\n{refusal}")


def _install_missing(*options: str) -> str | None:
    """What apt-get says against installing the packages, with new lists too; None if it can."""
    if not _missing() or _apt("install", *options, *PACKAGES).returncode == 0:
        return None
    _apt("update")
    done = _apt("install", *options, *PACKAGES)
    return done.stderr if done.returncode != 0 else None


def _missing() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


def _apt(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "-qq", "--yes", "--no-install-recommends", *words]
    return subprocess.run(command, env={**os.environ, **APT}, capture_output=True, text=True)


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _in_use() -> bool:
    """Whether a slurm.conf is there, except one that a dead test left."""
    if not CONFIG.exists():
        return False
    words = CONFIG.read_text(errors="replace").partition("\n")[0].rpartition(" ")
    return words[0] != MARK or Path(f"/proc/{words[2]}").exists()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for endpoint in sockets:
            endpoint.bind(("127.0.0.1", 0))
        return [endpoint.getsockname()[1] for endpoint in sockets]


def call(*command: str) -> str:
    """Output of a Slurm command; its failure is an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


class Cluster:
    """The three daemons, for as long as a `with` block lasts.

    Args:
        folder: empty folder for keys, states and logs; others may read it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._made_folder = False

    def __enter__(self) -> Cluster:
        try:
            self._configure()
            self._start_munge()
            self._start("slurmctld", "-D")
            wait_until(self._controller_answers, "slurmctld")
            self._start("slurmd", "-D")
            wait_until(self._node_is_up, "the node")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def jobs(self) -> list[Job]:
        """All jobs, ended ones included, oldest first."""
        text = call("squeue", "--noheader", "--states=all", "--sort=i", "--format=%A|%T|%l|%k")
        return [Job(*line.split("|", 3)) for line in text.splitlines()]

    def job(self, number: str) -> Job:
        """One of them."""
        return next(job for job in self.jobs() if job.id == number)

    def restarts(self, job: str) -> int:
        """How often Slurm has put a job back into the queue."""
        words = call("scontrol", "show", "job", job).split()
        return int(next(word for word in words if word.startswith("Restarts=")).partition("=")[2])

    def has_gpu(self, job: str) -> bool:
        """Whether a job asked for a GPU; it ran only if it was granted one."""
        text = call("scontrol", "show", "job", job)
        return re.search(r"TresPerJob=gres[:/]gpu", text) is not None

    def restart_controller(self) -> None:
        """End slurmctld and start it again, from its saved state."""
        self._end("slurmctld")
        self._start("slurmctld", "-D")
        wait_until(self._controller_answers, "slurmctld to come back")

    def _configure(self) -> None:
        self._made_folder = not CONFIG.parent.exists()
        CONFIG.parent.mkdir(exist_ok=True)
        for name in ("state", "spool"):
            (self._folder / name).mkdir()
        devices = [f"NodeName={_host()} Name=gpu File={path}\n" for path in GPUS]
        DEVICES.write_text("".join(devices))
        settings = SETTINGS.format(
            mark=MARK,
            owner=os.getpid(),
            host=_host(),
            folder=self._folder,
            ports=_free_ports(2),
            gpus=len(GPUS),
        )
        CONFIG.write_text(settings)

    def _start_munge(self) -> None:
        key, path = self._folder / "munge.key", self._folder / "munge.socket"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        options = {
            "key-file": key,
            "socket": path,
            "pid-file": self._folder / "munged.pid",
            "seed-file": self._folder / "munged.seed",
            "log-file": self._folder / "munged.log",
        }
        self._start("munged", "--foreground", *(f"--{name}={at}" for name, at in options.items()))
        wait_until(path.exists, "munged")

    def _start(self, name: str, *options: str) -> None:
        """Start a daemon that ends with this process, however that ends."""
        with (self._folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "SIGTERM", shutil.which(name) or name, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.terminate()
        try:
            daemon.wait(timeout=30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _controller_answers(self) -> bool:
        return subprocess.run(["scontrol", "ping"], capture_output=True).returncode == 0

    def _node_is_up(self) -> bool:
        return call("sinfo", "--noheader", "--Node", "--format=%T").startswith("idle")

    def _stop(self) -> None:
        with contextlib.suppress(Exception):
            self._end_jobs()
        for name in ("slurmd", "slurmctld", "munged"):
            self._end(name)
        for path in (CONFIG, DEVICES):
            path.unlink(missing_ok=True)
        if self._made_folder:
            with contextlib.suppress(OSError):
                CONFIG.parent.rmdir()

    def _end_jobs(self) -> None:
        if "slurmd" not in self._daemons:
            return
        call("scancel", "--user=root")
        wait_until(lambda: not call("squeue", "--noheader"), "the last jobs to end", seconds=60)
