"""take_gpu.py N COMMAND...: runs a command on N GPUs that no other run on this machine has.

The GPUs are those of CUDA_VISIBLE_DEVICES where it is set, as in a Slurm job, else those that
`nvidia-smi` lists, of a GPU in MIG mode its parts; the command sees its own in that variable, by
their UUIDs: CUDA numbers GPUs otherwise than `nvidia-smi`. It takes the place of this process
and keeps the locks of its GPUs, which the system gives back when it ends, however it ends. Until
enough of them are free it waits. With N = 0, and where no GPU is found, the command just runs:
what it says then is its own affair.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

VISIBLE, FOLDER, PAUSE = "CUDA_VISIBLE_DEVICES", "MAGELLAN_GPU_LOCKS", "MAGELLAN_GPU_PAUSE"
LISTING = ("nvidia-smi", "-L")
DEVICE = re.compile(r"^ *(GPU|MIG) (.*)\(UUID: *([^)\s]+)\)", re.MULTILINE)


def main(arguments: Sequence[str]) -> None:
    """Take the GPUs and become the command."""
    wanted, command = int(arguments[0]), list(arguments[1:])
    devices = gpus() if wanted else {}
    if devices:
        if wanted > len(devices):
            sys.exit(f"error: gpu: {wanted} is not allowed: there are {len(devices)} here")
        taken = take(wanted, devices, lock_folder())
        os.environ[VISIBLE] = ",".join(taken)
        print(f"on GPU {os.environ[VISIBLE]}", file=sys.stderr, flush=True)
    os.execvp(command[0], command)


def gpus() -> dict[str, str]:
    """GPUs that may be taken, as CUDA_VISIBLE_DEVICES names them, with the name of their lock."""
    found = listed()
    if VISIBLE not in os.environ:
        return {uuid: uuid for uuid in found}
    named = [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()]
    # Slurm gives a job devices of its own, which may all be number 0: its number tells them apart.
    job = os.environ.get("SLURM_JOB_ID")
    return {name: f"job{job}-{name}" if job else uuid_of(name, found) for name in named}


def uuid_of(name: str, found: dict[str, str]) -> str:
    """UUID of a device that is named by that, by its beginning, or by its number; else the name."""
    fitting = (uuid for uuid in found if uuid.startswith(name) or found[uuid] == name)
    return next(fitting, name)


def listed() -> dict[str, str]:
    """Number of each GPU of this machine by its UUID; none where the program is absent or fails.

    CUDA computes on the parts of a GPU in MIG mode, which have no number, and not on that GPU.
    """
    try:
        found = subprocess.run(LISTING, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    devices: dict[str, str] = {}
    whole = ""
    for kind, words, uuid in DEVICE.findall(found.stdout):
        if kind == "GPU":
            whole, devices[uuid] = uuid, words.partition(":")[0]
        else:
            devices.pop(whole, None)
            devices[uuid] = ""
    return devices


def lock_folder() -> Path:
    """Where the locks of this user lie, on this machine and not on a shared file system."""
    usual = Path(tempfile.gettempdir()) / f"magellan-gpus-{os.getuid()}"
    folder = Path(os.environ.get(FOLDER) or usual)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        sys.exit(f"error: {FOLDER}: {folder} is another user's; allowed: a folder of your own")
    return folder


def take(wanted: int, devices: dict[str, str], folder: Path) -> list[str]:
    """Names of so many GPUs, locked by this process and whatever it becomes."""
    told = False
    while True:
        taken: dict[str, int] = {}
        for name, lock in devices.items():
            handle = locked(folder / f"{lock.replace('/', '_')}.lock")
            if handle is not None:
                taken[name] = handle
            if len(taken) == wanted:
                return list(taken)
        for handle in taken.values():
            os.close(handle)
        if not told:
            print(f"waiting for a free GPU ({len(devices)} here)", file=sys.stderr, flush=True)
            told = True
        time.sleep(float(os.environ.get(PAUSE, "2")))


def locked(path: Path) -> int | None:
    """Handle of a lock that a new program inherits; None where another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    os.set_inheritable(handle, True)
    return handle


if __name__ == "__main__":
    main(sys.argv[1:])
