"""take_gpu.py N COMMAND...: run a command with exclusive use of N GPUs of this machine.

Candidates are the GPUs in CUDA_VISIBLE_DEVICES if it is set, as in a Slurm job, else those that
`nvidia-smi` lists, for a GPU in MIG mode its instances. The command gets its GPUs in that variable,
as UUIDs, because CUDA and `nvidia-smi` number GPUs differently. It replaces this process and
inherits the locks of its GPUs, which the system releases when it ends. While too few GPUs are free,
the script waits. With N = 0, or if no GPU is found, the command runs without locks.
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
    count, command = int(arguments[0]), list(arguments[1:])
    devices = gpus() if count else {}
    if devices:
        if count > len(devices):
            sys.exit(f"error: gpu: {count} is not allowed: there are {len(devices)} here")
        os.environ[VISIBLE] = ",".join(take(count, devices, lock_folder()))
        print(f"on GPU {os.environ[VISIBLE]}", file=sys.stderr, flush=True)
    os.execvp(command[0], command)


def gpus() -> dict[str, str]:
    """Candidate GPUs as in CUDA_VISIBLE_DEVICES, with the names of their locks."""
    numbers = numbers_by_uuid()
    if VISIBLE not in os.environ:
        return {uuid: uuid for uuid in numbers}
    names = [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()]
    # The devices of each Slurm job may start at number 0: locks have the job in their name.
    if job := os.environ.get("SLURM_JOB_ID"):
        return {name: f"job{job}-{name}" for name in names}
    # A device is given by UUID, prefix of it, or number.
    found = {n: [u for u in numbers if u.startswith(n) or numbers[u] == n] for n in names}
    return {name: (uuids or [name])[0] for name, uuids in found.items()}


def numbers_by_uuid() -> dict[str, str]:
    """Number of each GPU of this machine by UUID; empty if `nvidia-smi` is absent or fails.

    A GPU in MIG mode is replaced by its instances, on which CUDA computes; these have no number.
    """
    try:
        process = subprocess.run(LISTING, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    devices: dict[str, str] = {}
    gpu = ""
    for kind, text, uuid in DEVICE.findall(process.stdout):
        if kind == "GPU":
            gpu, devices[uuid] = uuid, text.partition(":")[0]
        else:
            devices.pop(gpu, None)
            devices[uuid] = ""
    return devices


def lock_folder() -> Path:
    """Folder of this user's locks, local to this machine."""
    default = Path(tempfile.gettempdir()) / f"magellan-gpus-{os.getuid()}"
    folder = Path(os.environ.get(FOLDER) or default)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        sys.exit(f"error: {FOLDER}: {folder} is another user's; allowed: a folder of your own")
    return folder


def take(count: int, devices: dict[str, str], folder: Path) -> list[str]:
    """Names of `count` GPUs, locked by this process and the command that replaces it."""
    has_printed = False
    while True:
        handles: dict[str, int] = {}
        for name, lock in devices.items():
            handle = locked(folder / f"{lock.replace('/', '_')}.lock")
            if handle is not None:
                handles[name] = handle
            if len(handles) == count:
                return list(handles)
        for handle in handles.values():
            os.close(handle)
        if not has_printed:
            print(f"waiting for a free GPU ({len(devices)} here)", file=sys.stderr, flush=True)
            has_printed = True
        time.sleep(float(os.environ.get(PAUSE, "2")))


def locked(path: Path) -> int | None:
    """Handle of a lock that a new program inherits; None if another process holds it."""
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
