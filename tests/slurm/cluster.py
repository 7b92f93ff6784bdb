"""A real Slurm of one node: munged, slurmctld and slurmd on loopback, as root, without systemd."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "scancel")
# Not elsewhere: the executor hides SLURM_CONF from the steps of its jobs.
CONFIG = Path("/etc/slurm/slurm.conf")
DEVICES = CONFIG.with_name("gres.conf")
HOST = socket.gethostname().split(".")[0]
SETTINGS = f"""\
ClusterName=magellan
SlurmctldHost={HOST}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge.socket,cred_expire=8
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/slurmd.pid
SlurmctldLogFile=FOLDER/slurmctld.log
SlurmdLogFile=FOLDER/slurmd.log
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1,bf_interval=2
MinJobAge=86400
KillWait=10
InactiveLimit=0
JobRequeue=0
GresTypes=gpu
NodeName={HOST} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes={HOST} Default=YES DefaultTime=10 MaxTime=INFINITE State=UP
"""
# Stand-ins: Slurm counts and hands out files.
GPUS = f"NodeName={HOST} Name=gpu File=/dev/null\nNodeName={HOST} Name=gpu File=/dev/zero\n"
Value = TypeVar("Value")


class CampaignError(Exception):
    """The campaign cannot go on; the message says what was waited for or refused."""


def wait_until(condition: Callable[[], Value], what: str, seconds: float = 400.0) -> Value:
    """The first true value of `condition`; a CampaignError if none came within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise CampaignError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.2)
    return value


class Job(NamedTuple):
    """A job as squeue lists it; the comment is the executor's: rule and wildcards."""

    id: str
    state: str
    limit: str
    comment: str


def why_not() -> str | None:
    """Why no Slurm can be started here; None if it can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} are missing: apt-get install slurmd slurmctld slurm-client"
    if CONFIG.exists():
        return f"{CONFIG} is there: this machine has a Slurm, or a killed campaign has left it"
    return None


def call(*command: str) -> str:
    """Output of a Slurm command; its failure is an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise CampaignError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def jobs() -> list[Job]:
    """All jobs, ended ones included, oldest first."""
    text = call("squeue", "--noheader", "--states=all", "--sort=i", "--format=%A|%T|%l|%k")
    return [Job(*line.split("|", 3)) for line in text.splitlines()]


class Cluster:
    """The three daemons, for as long as a `with` block lasts; `folder` is empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Cluster":
        for name in ("state", "spool"):
            (self._folder / name).mkdir()
        key = self._folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        CONFIG.write_text(SETTINGS.replace("FOLDER", str(self._folder)))
        DEVICES.write_text(GPUS)
        files = ("socket", "pid-file", "seed-file", "log-file")
        own = [f"--{name}={self._folder}/munge.{name.partition('-')[0]}" for name in files]
        try:
            self.start("munged", "--foreground", f"--key-file={key}", *own)
            wait_until((self._folder / "munge.socket").exists, "munged")
            self.start_controller()
            self.start("slurmd", "-D")
            wait_until(lambda: call("sinfo", "-h", "-N", "-o", "%T").startswith("idle"), "slurmd")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            call("scancel", "--user=root")
            wait_until(lambda: not call("squeue", "--noheader"), "the last jobs", seconds=60)
        for name in ("slurmd", "slurmctld", "munged"):
            self.end(name)
        for path in (CONFIG, DEVICES):
            path.unlink(missing_ok=True)

    def start_controller(self) -> None:
        """Start slurmctld, from its saved state if it has one."""
        self.start("slurmctld", "-D")
        ping = ["scontrol", "ping"]
        wait_until(lambda: not subprocess.run(ping, capture_output=True).returncode, "slurmctld")

    def start(self, name: str, *options: str) -> None:
        """Start a daemon that ends with this process, however that ends."""
        with (self._folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "SIGTERM", shutil.which(name) or name, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, name: str) -> None:
        """End a daemon that may run."""
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.terminate()
        try:
            daemon.wait(timeout=30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
