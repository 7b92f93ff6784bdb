"""The fault campaign as data: what is done to a job, and what must hold afterwards.

Tests take their cases from here and docs/faults.md its table: `python -m tests.faults.cases`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SAME = "tables identical to the last byte"
INTACT = "one clear error, last good state intact"

SAMPLERS = ("random", "online", "ek_online", "magellan")
KILLS_PER_RUN = 5
# A run of the campaign has about 250 steps, counted by `injection`; an attempt needs 20 to begin.
STEPS_UNTIL_KILL = (5, 80)


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        what: for docs/faults.md.
        outcome: what must hold afterwards.
        cases: one entry for each time it is done.
    """

    what: str
    outcome: str
    cases: tuple


def _moments() -> tuple[tuple[str, int, int], ...]:
    """(sampler, attempt, steps until the kill), drawn once and for all."""
    draw = random.Random(0)
    return tuple(
        (sampler, attempt, draw.randint(*STEPS_UNTIL_KILL))
        for sampler in SAMPLERS
        for attempt in range(KILLS_PER_RUN)
    )


SAVE_CALLS = ("open", "write", "fsync", "close", "replace", "open", "fsync", "close", "unlink")
ERRNOS = ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO")
CUTS = (0, 1, 7, 8, 1000, -100_000, -1)
TABLES = (
    *("evaluation.csv", "competence.csv", "practice.csv", "training.csv"),
    *("goals.csv", "outcomes.csv", "predictions.safetensors", "recording.sha256"),
)
LINKS = (
    *(".lock", "run.log", "attempts.jsonl", "checkpoint.safetensors"),
    *(name + end for name in ("manifest.json", *TABLES) for end in ("", ".part")),
    *("checkpoints", "checkpoints/00000001.safetensors", "checkpoints/00000002.safetensors"),
    *("checkpoints/00000003.safetensors.part", "checkpoints/00000001.safetensors.damaged"),
    *("tensorboard", "tensorboard/events.out.tfevents.1"),
)

FAULTS: dict[str, Fault] = {
    "kill": Fault("SIGKILL at a random moment of a run", SAME, _moments()),
    "kill in save": Fault(
        "SIGKILL inside the write of a checkpoint",
        SAME,
        (("write", 2), ("fsync", 2), ("replace", 2), ("unlink", 1)),
    ),
    "kill at the end": Fault(
        "SIGKILL while the tables and the manifest are written",
        SAME,
        (("replace", "competence.csv"), ("write", "training.csv"), ("replace", "manifest.json")),
    ),
    "end in save": Fault(
        "the process ends at any system call of a save",
        "the old or the new checkpoint, whole",
        tuple(enumerate(SAVE_CALLS, 1)),
    ),
    "error in save": Fault(
        "any system call of a save fails: disk full, quota, read-only, no rights, I/O error",
        INTACT,
        tuple((name, nth) for name in ERRNOS for nth in range(1, len(SAVE_CALLS) + 1)),
    ),
    "disk": Fault(
        "full disk, read-only folder or missing rights in a run",
        INTACT + ", then " + SAME,
        (
            ("ENOSPC", "write", "safetensors", 3),
            ("EROFS", "open", "safetensors", 2),
            ("EACCES", "replace", "safetensors", 2),
            ("ENOSPC", "write", "run.log", 9),
            ("ENOSPC", "write", "attempts.jsonl", 1),
            ("ENOSPC", "write", "practice.csv", 1),
            ("EROFS", "replace", "manifest.json", 1),
        ),
    ),
    "unwritable": Fault(
        "output folder that cannot be written from the start",
        "one clear error, nothing made",
        ("EACCES", "EROFS", "ENOSPC"),
    ),
    "bit": Fault(
        "one wrong bit in the newest checkpoint",
        "noticed, set aside, the one before is used",
        tuple(random.Random(1).random() for _ in range(20)),
    ),
    "cut": Fault(
        "the newest checkpoint is cut short",
        "noticed, set aside, the one before is used",
        CUTS,
    ),
    "foreign file": Fault(
        "another file in place of the newest checkpoint",
        "noticed, set aside, the one before is used",
        ("text", "zeros", "json", "other safetensors"),
    ),
    "link": Fault(
        "a link that leads out of the folder, at any name that a run uses",
        "one clear error, nothing touched",
        LINKS,
    ),
    "other format": Fault(
        "checkpoint in the format of an older or newer version",
        "one clear error, nothing touched",
        ("version 0.1.0", "before", "after", "far future"),
    ),
    "other backbone": Fault(
        "the backbone's files change between attempts",
        "one clear error that names both, nothing touched",
        ("weights", "tokenizer"),
    ),
    "damaged run": Fault("a run goes on past a damaged checkpoint", SAME, ("newest of two",)),
    "all damaged": Fault("no checkpoint is whole", "one clear error, nothing touched", (1, 2)),
    "foreign run": Fault(
        "checkpoint of another configuration",
        "one clear error that names the keys, nothing touched",
        ("one key", "many keys"),
    ),
    "not finite": Fault(
        "a loss or a weight turns NaN or infinite",
        INTACT,
        ("critic_loss nan", "actor_loss inf", "competence_loss nan", "weight nan", "weight inf"),
    ),
    "memory": Fault(
        "memory runs out",
        INTACT + ", then " + SAME,
        ("killed", "MemoryError", "allocator"),
    ),
    "memory at the start": Fault(
        "memory runs out while the model is built",
        "one clear error, nothing left behind, then " + SAME,
        ("MemoryError", "allocator", "told by a library", "ENOMEM", "in the trainer"),
    ),
    "clock": Fault(
        "the wall clock jumps backwards (in a run, between attempts)", SAME, ("run", "attempts")
    ),
    "two": Fault(
        "a second driver in the same folder, while the first one works",
        "one clear error, the first one ends undisturbed",
        ("same", "without --resume"),
    ),
    "dead owner": Fault("the owner of the lock is killed", SAME, ("SIGKILL",)),
    "no locks": Fault(
        "a filesystem without file locks", "one clear error, nothing made", ("ENOLCK", "ENOTSUP")
    ),
    "signal": Fault(
        "SIGTERM, SIGINT (Ctrl-C), SIGUSR1, SIGHUP",
        "saved, exit status 75, then " + SAME,
        ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"),
    ),
    "interrupts": Fault(
        "Ctrl-C twice", "stops at once, exit status 130, then " + SAME, ("SIGINT",)
    ),
    "limit": Fault(
        "time limit near (--stop-after, SLURM_JOB_END_TIME)",
        "saved, exit status 75, then " + SAME,
        ("--stop-after", "SLURM_JOB_END_TIME"),
    ),
    "no reader": Fault("the terminal has gone away", SAME, ("lines", "bar")),
    "kill after a start": Fault(
        "SIGKILL in a run that starts where another one ended", SAME, (1, 12, 30, 25)
    ),
    "kill while it keeps": Fault(
        "SIGKILL while a run writes a checkpoint that another run starts from",
        SAME,
        ("open", "write", "replace"),
    ),
    "kill after a kept start": Fault(
        "SIGKILL in a run that starts where a longer one kept a checkpoint", SAME, (1, 12, 25)
    ),
    "start gone": Fault(
        "what a run started from is removed while it works", SAME, ("killed, then resumed",)
    ),
    "damaged start": Fault(
        "the checkpoint that a run starts from is damaged, removed or of another run",
        "one clear error, the other run untouched",
        ("bit", "cut", "removed", "another run", "not ended"),
    ),
    "damaged kept start": Fault(
        "the kept checkpoint that a run starts from is damaged, removed, renamed or of another run",
        "one clear error, the other run untouched",
        ("bit", "cut", "removed", "another run", "renamed"),
    ),
}


def cases(name: str) -> tuple:
    """Cases of one fault."""
    return FAULTS[name].cases


def table() -> str:
    """The table of docs/faults.md."""
    lines = ["| what is done to the job | times | what holds afterwards |", "|---|---|---|"]
    lines += [
        f"| {fault.what} | {len(fault.cases)} | {fault.outcome} |" for fault in FAULTS.values()
    ]
    total = sum(len(fault.cases) for fault in FAULTS.values())
    return "\n".join([*lines, f"| all | {total} | |"])


if __name__ == "__main__":
    print(table())
