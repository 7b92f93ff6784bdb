"""The fault campaign as data: faults, and what must hold after them.

Tests take their cases from here and docs/faults.md its list: `python -m tests.faults.cases`.
"""

from __future__ import annotations

import random

SAME = "tables identical to the last byte"
INTACT = "one clear error, last good state intact"

SAMPLERS = ("random", "online", "ek_online", "magellan")
KILLS_PER_RUN = 5
# A run of the campaign has about 250 steps, counted by `injection`; an attempt needs 20 to begin.
STEPS_UNTIL_KILL = (5, 80)


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
    *(".lock", "run.log", "attempts.jsonl", "transcript.jsonl"),
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
    "snapshot not there": ("backend/competence/snapshots", {}),
    "snapshot says NaN": (f"{ESTIMATOR}/snapshots/1", fill(float("nan"))),
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

_KILLS = {
    "kill": ("SIGKILL at a random moment of a run", _moments()),
    "kill in save": (
        "SIGKILL inside the write of a checkpoint",
        (("write", 2), ("fsync", 2), ("replace", 2), ("unlink", 1)),
    ),
    "kill at the end": (
        "SIGKILL while the tables and the manifest are written",
        (("replace", "competence.csv"), ("write", "training.csv"), ("replace", "manifest.json")),
    ),
    "kill after a start": (
        "SIGKILL in a run that starts where another one ended, or kept a checkpoint",
        tuple((of, step) for of in STARTS for step in (1, 12, 30)),
    ),
    "kill while it keeps": (
        "SIGKILL while a run writes a checkpoint that another run starts from",
        ("open", "write", "replace"),
    ),
    "dead owner": ("the owner of the lock is killed", ("SIGKILL",)),
    "damaged run": ("a run goes on past a damaged checkpoint", ("newest of two",)),
    "clock": ("the wall clock jumps backwards (in a run, between attempts)", ("run", "attempts")),
    "no reader": ("the terminal has gone away", ("lines", "bar")),
    "start gone": ("what a run started from is removed while it works", ("killed, then resumed",)),
}
_REFUSED = {
    "link": ("a link that leads out of the folder, at any name that a run uses", LINKS),
    "other format": (
        "checkpoint in the format of an older or newer version",
        ("4", "6", "1000"),
    ),
    "forged": (
        "a value of the newest checkpoint is changed, and its checksum with it",
        tuple(FORGED),
    ),
    "all damaged": ("no checkpoint is whole", (1, 2)),
    "other backbone": (
        "the backbone's files change between attempts: both are named",
        ("weights", "tokenizer"),
    ),
    "foreign run": (
        "checkpoint of another configuration: its keys are named",
        (
            ({"gamma": 0.5}, "agent.gamma is 0.5 here and 0.99 there;"),
            ({"gamma": 0.5, "n_step": 2, "polyak": 0.5, "batch_size": 8}, " and 1 more;"),
        ),
    ),
}
FAULTS = {
    SAME: _KILLS,
    "the old or the new checkpoint, whole": {
        "end in save": (
            "the process ends at any system call of a save",
            tuple(enumerate(SAVE_CALLS, 1)),
        ),
    },
    INTACT: {
        "error in save": (
            "any system call of a save fails: disk full, quota, read-only, no rights, I/O error",
            tuple((ERRNOS[nth % len(ERRNOS)], nth) for nth in range(1, len(SAVE_CALLS) + 1)),
        ),
        "not finite": (
            "a loss or a weight turns NaN or infinite",
            ("critic_loss nan", "actor_loss inf", "competence_loss nan", "weight nan"),
        ),
    },
    f"{INTACT}, then {SAME}": {
        "disk": (
            "full disk, read-only folder or missing rights in a run",
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
        "memory": ("memory runs out", ("killed", "MemoryError", "allocator")),
    },
    f"one clear error, nothing left behind, then {SAME}": {
        "memory at the start": (
            "memory runs out while a run is set up",
            ("allocator", "told by a library", "ENOMEM", "in the trainer", "on a GPU"),
        ),
    },
    "one clear error, nothing made": {
        "unwritable": (
            "output folder that cannot be written from the start",
            ("EACCES", "EROFS", "ENOSPC"),
        ),
        "no locks": ("a filesystem without file locks", ("ENOLCK", "ENOTSUP")),
    },
    "one clear error, nothing touched": _REFUSED,
    "one clear error, the first one ends undisturbed": {
        "two": (
            "a second driver in the same folder, while the first one works",
            ("same", "without --resume"),
        ),
    },
    "one clear error, the other run untouched": {
        "damaged start": (
            "the checkpoint that a run starts from is damaged, removed, renamed or of another run",
            (
                *(("ended", case) for case in ("cut", "removed", "another run", "not ended")),
                *(("kept", case) for case in ("bit", "removed", "another run", "renamed")),
            ),
        ),
        "forged start": (
            "a value of what a run starts from is changed, and its checksum with it",
            tuple((of, case) for of in STARTS for case in FORGED_STARTS),
        ),
    },
    "noticed, set aside, the one before is used": {
        "damage": (
            "the newest checkpoint has a wrong bit, is cut short or another file",
            (*(random.Random(seed).random() for seed in range(8)), *CUTS, *FOREIGN),
        ),
    },
    f"saved, exit status 75, then {SAME}": {
        "signal": (
            "SIGTERM, SIGINT (Ctrl-C), SIGUSR1, SIGHUP",
            ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"),
        ),
        "limit": (
            "time limit near (--stop-after, SLURM_JOB_END_TIME)",
            ("--stop-after", "SLURM_JOB_END_TIME"),
        ),
    },
    f"stops at once, exit status 130, then {SAME}": {"interrupts": ("Ctrl-C twice", ("SIGINT",))},
}
"""Faults by what must hold afterwards: name, what is done, and a case for each time it is done."""
NAMED = {name: fault for faults in FAULTS.values() for name, fault in faults.items()}


def cases(name: str) -> tuple:
    """Cases of one fault."""
    return NAMED[name][1]


def table() -> str:
    """The list of docs/faults.md: for each outcome what was done to the job, and how often."""
    lines = []
    for outcome, faults in FAULTS.items():
        lines += [
            f"- **{outcome}**",
            *(f"    - {what}: {len(done)}" for what, done in faults.values()),
        ]
    return "\n".join([*lines, f"- all: {sum(len(done) for _, done in NAMED.values())}"])


if __name__ == "__main__":
    print(table())
