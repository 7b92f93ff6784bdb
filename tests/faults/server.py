"""Starts training jobs as forks of one process with all imports done. Protocol: JSON lines.

{"start": [arguments of the command line], "strikes": [[signal, n-th, step, file], ...],
 "errors": file} starts a job that sends itself each signal at the given step;
{"signal": [process, number]} lets a job that has stopped itself go on, or kills it.
Each is answered by [process, status]: "stopped", an exit status, or minus a signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from magellan.cli import main
from magellan.config import resolve_run
from magellan.jobs.stopping import END_TIME, JOB, SIGNALS
from magellan.training.loop import Trainer
from tests.faults.injection import Once, install


def start(call: list[str], strikes: list, errors: str) -> int:
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
        descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        own = [Once(partial(os.kill, os.getpid(), number), *where) for number, *where in strikes]
        os.fsync = lambda _: None  # a kill, unlike a power cut, loses nothing without it
        install(lambda step, file: [strike(step, file) for strike in own])
        status = main(call)
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a fork would not take other threads along
    Trainer(resolve_run("smoke", [{"goal_space": "2-1-1-1-1"}]))  # imports what a model needs
    for request in map(json.loads, sys.stdin):
        if "start" in request:
            process = start(request["start"], request["strikes"], request["errors"])
        else:
            process, number = request["signal"]
            os.kill(process, number)
        _, status = os.waitpid(process, os.WUNTRACED)
        ended = "stopped" if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        print(json.dumps([process, ended]), flush=True)
