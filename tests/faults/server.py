"""Starts training jobs as forks of one process with all imports done. Protocol: JSON lines.

{"start": [arguments of the command line], "strikes": [[signal, n-th, step, file], ...],
 "errors": file} starts a job that sends itself each signal at the given step;
{"continue": process} lets a job go on that has stopped itself; {"kill": process} kills it.
Each is answered by {"process": id, "status": ...}: "stopped", an exit status, or minus a signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from magellan.cli import main  # noqa: E402
from magellan.config import resolve_run  # noqa: E402
from magellan.jobs.stopping import END_TIME, JOB, SIGNALS  # noqa: E402
from magellan.training.loop import Trainer  # noqa: E402
from tests.faults.injection import Count, install  # noqa: E402


def serve() -> None:
    """Answer requests until the connection closes."""
    torch.set_num_threads(1)  # a fork would not take other threads along
    Trainer(resolve_run("smoke", [{"goal_space": "2-1-1-1-1"}]))  # imports what a model needs
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            process = start(request)
        else:
            process = request.get("continue") or request["kill"]
            os.kill(process, signal.SIGCONT if "continue" in request else signal.SIGKILL)
        print(json.dumps({"process": process, "status": wait(process)}), flush=True)


def start(request: dict) -> int:
    """Fork a job; return its process id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        # As in a terminal, however the tests themselves were started.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for name in (END_TIME, JOB):
            os.environ.pop(name, None)
        descriptor = os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        strikes = [Count(sender(number), *where) for number, *where in request["strikes"]]
        os.fsync = lambda _: None  # a kill, unlike a power cut, loses nothing without it
        install(lambda step, file: [strike(step, file) for strike in strikes])
        status = main(request["start"])
        sys.stderr.flush()
    finally:
        os._exit(status)


def sender(number: int):
    """Sends a signal to the process itself."""
    return lambda: os.kill(os.getpid(), number)


def wait(process: int) -> int | str:
    """Status of a job that has ended or stopped itself."""
    _, status = os.waitpid(process, os.WUNTRACED)
    return "stopped" if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    serve()
