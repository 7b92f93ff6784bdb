"""The fault campaign as data: faults, and what must hold after them.

Tests take their cases from here and docs/faults.md its list: `python -m tests.faults.cases`.
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
    """Fixed random (sampler, attempt, steps until the kill)."""
    draw = random.Random(0)
    return tuple(
        (sampler, attempt, draw.randint(*STEPS_UNTIL_KILL))
        for sampler in SAMPLERS
        for attempt in range(KILLS_PER_RUN)
    )


SAVE_CALLS = ("open", "write", "fsync", "close", "replace", "open", "fsync", "close", "unlink")
ERRNOS = ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO")
CUTS = (0, 1, 7, 8, 1000, -100_000, -1)
FOREIGN = ("text", "zeros", "json", "other safetensors")
TABLES = (
    *("evaluation.csv", "competence.csv", "practice.csv", "training.csv"),
    *("goals.csv", "outcomes.csv"),
)
LINKS = (
    *(".lock", "run.log", "attempts.jsonl"),
    *(name + end for name in ("manifest.json", *TABLES) for end in ("", ".part")),
    *("checkpoints", "checkpoints/00000001.safetensors", "checkpoints/00000002.safetensors"),
    *("checkpoints/00000003.safetensors.part", "checkpoints/00000001.safetensors.damaged"),
    *("tensorboard", "tensorboard/events.out.tfevents.1"),
)

WINDOW = "collector/windows/*"  # the first of them
ESTIMATOR = "sampler/estimator"


def fill(value):
    return lambda old: old.clone().fill_(value)


def cut(old):
    return old[:-1].contiguous()


def flat(old):
    return old.reshape(1, -1).contiguous()


def halves(old):
    return old.double()


# Forged values in a state with a valid checksum, one of each kind: path below the trainer's state,
# and another value, or a function of the tensor there.
FORGED = {
    "tokens flat": (f"{WINDOW}/tokens", flat),
    "token negative": (f"{WINDOW}/tokens", fill(-1)),
    "segments in disorder": (f"{WINDOW}/segments", fill(5)),
    "action unknown": (f"{WINDOW}/action", 99),
    "goal unknown": ("collector/positions", fill(10**6)),
    "transition unknown": ("collector/serials", [[10**9], []]),
    "environments too few": ("collector/env/elapsed", cut),
    "stream of another kind": ("collector/policy_rng/bit_generator", "MT19937"),
    "replay too short": ("replay/fields/returns", cut),
    "replay of another type": ("replay/fields/discounts", halves),
    "replay without end": ("replay/added", 10**30),
    "optimizer a number": ("backend/sac/optimizers/joint", 3),
    "snapshots counted too low": ("backend/competence/taken", 0),
    "snapshot not there": (f"{ESTIMATOR}/snapshots/0/number", 99),
    "snapshot says NaN": (f"{ESTIMATOR}/snapshots/1/goals", fill(float("nan"))),
    "snapshot's weights cut": ("backend/competence/snapshots/1/head/0.weight", cut),
    "estimator's goal unknown": (f"{ESTIMATOR}/buffer", fill(10.0**6)),
    "sampler's step a text": ("sampler/step", "x"),
    "observer's outcome unknown": ("estimators/observers/per_goal/ring", fill(7)),
    "observer's counts negative": ("estimators/observers/per_goal/seen", fill(-1)),
    "tables gone": ("record/tables", {}),
    "row too long": ("record/tables/practice/0", [0] * 20),
    "row's number a text": ("record/tables/evaluation/0/6", "x"),
    "practised by fewer categories": ("record/practised", cut),
    "outcomes of no category": ("record/outcomes", fill(99)),
    "pending of no goal": ("pending", [{"goals": [10**6], "success": [1.0]}]),
}

# The same below the whole state that a run starts from.
STARTS = ("ended", "kept")
FORGED_STARTS = {
    "no trainer": ("trainer", None),
    "seconds without end": ("seconds", 10**400),
    "next evaluation a text": ("trainer/next_evaluation", "x"),
    "no snapshots": ("trainer/sampler/estimator/snapshots", {}),
}

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
        tuple((ERRNOS[nth % len(ERRNOS)], nth) for nth in range(1, len(SAVE_CALLS) + 1)),
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
    "damage": Fault(
        "the newest checkpoint has a wrong bit, is cut short or another file",
        "noticed, set aside, the one before is used",
        (*(random.Random(1).random() for _ in range(8)), *CUTS, *FOREIGN),
    ),
    "link": Fault(
        "a link that leads out of the folder, at any name that a run uses",
        "one clear error, nothing touched",
        LINKS,
    ),
    "other format": Fault(
        "checkpoint in the format of an older or newer version",
        "one clear error, nothing touched",
        ("3", "5", "1000"),
    ),
    "forged": Fault(
        "a value of the newest checkpoint is changed, and its checksum with it",
        "one clear error, nothing touched",
        tuple(FORGED),
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
        (
            ({"gamma": 0.5}, "agent.gamma is 0.5 here and 0.99 there;"),
            ({"gamma": 0.5, "n_step": 2, "polyak": 0.5, "batch_size": 8}, " and 1 more;"),
        ),
    ),
    "not finite": Fault(
        "a loss or a weight turns NaN or infinite",
        INTACT,
        ("critic_loss nan", "actor_loss inf", "competence_loss nan", "weight nan", "weight inf"),
    ),
    "memory": Fault(
        "memory runs out", INTACT + ", then " + SAME, ("killed", "MemoryError", "allocator")
    ),
    "memory at the start": Fault(
        "memory runs out while a run is set up",
        "one clear error, nothing left behind, then " + SAME,
        ("allocator", "told by a library", "ENOMEM", "in the trainer", "on a GPU"),
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
        "SIGKILL in a run that starts where another one ended, or kept a checkpoint",
        SAME,
        tuple((of, step) for of in STARTS for step in (1, 12, 30)),
    ),
    "kill while it keeps": Fault(
        "SIGKILL while a run writes a checkpoint that another run starts from",
        SAME,
        ("open", "write", "replace"),
    ),
    "start gone": Fault(
        "what a run started from is removed while it works", SAME, ("killed, then resumed",)
    ),
    "damaged start": Fault(
        "the checkpoint that a run starts from is damaged, removed, renamed or of another run",
        "one clear error, the other run untouched",
        (
            *(("ended", case) for case in ("cut", "removed", "another run", "not ended")),
            *(("kept", case) for case in ("bit", "removed", "another run", "renamed")),
        ),
    ),
    "forged start": Fault(
        "a value of what a run starts from is changed, and its checksum with it",
        "one clear error, the other run untouched",
        tuple((of, case) for of in STARTS for case in FORGED_STARTS),
    ),
}


def cases(name: str) -> tuple:
    """Cases of one fault."""
    return FAULTS[name].cases


def table() -> str:
    """The list of docs/faults.md: for each outcome what was done to the job, and how often."""
    lines = []
    for outcome in dict.fromkeys(fault.outcome for fault in FAULTS.values()):
        alike = [fault for fault in FAULTS.values() if fault.outcome == outcome]
        lines += [f"- **{outcome}**", *(f"    - {f.what}: {len(f.cases)}" for f in alike)]
    return "\n".join([*lines, f"- all: {sum(len(fault.cases) for fault in FAULTS.values())}"])


if __name__ == "__main__":
    print(table())
