"""Order rows by a sampler, from one pass rate each: for trainers without a hook for samplers.

Rows are lines of JSON. Each has a `rate`, from 0 to 1: the share of answers to it that succeeded.
It may have a `prompt`, a text or the turns of a conversation, and a `group`; other keys are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from magellan.competence.windows import ExpertBuckets
from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import parse_json, read_json_text
from magellan.curriculum.build import Settings
from magellan.curriculum.curriculum import Curriculum

NO_EXPLORATION = {"epsilon_start": 0.0, "epsilon_end": 0.0}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read and check the rows.

    Raises:
        InputError: names the line, the key, the value and what is allowed.
    """
    rows = []
    for number, line in enumerate(read_json_text(path).split("\n"), 1):
        if line.strip():
            where = f"{path}: line {number}"
            row = parse_json(line, where)
            if not isinstance(row, dict):
                raise InputError(f"{where}: a {type(row).__name__}; allowed: an object")
            _check(row, where)
            rows.append(row)
    if not rows:
        raise InputError(f"{path}: no rows; allowed: a line of JSON for each row")
    grouped = sum("group" in row for row in rows)
    if grouped not in (0, len(rows)):
        raise InputError(f"{path}: group: in {grouped} of {len(rows)} rows; allowed: all or none")
    return rows


def _check(row: Mapping[str, Any], where: str) -> None:
    rate, prompt = row.get("rate"), row.get("prompt", "")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise not_allowed(f"{where}: rate", rate, "a number from 0 to 1")
    if not isinstance(row.get("group", ""), str):
        raise not_allowed(f"{where}: group", row["group"], "a text")
    turns = prompt if isinstance(prompt, list) else [{"content": prompt}]
    texts = [turn.get("content") if isinstance(turn, dict) else None for turn in turns]
    if not all(isinstance(text, str) for text in texts):
        raise not_allowed(f"{where}: prompt", prompt, "a text, or turns with a `content` each")
    if "probability" in row:
        raise InputError(f"{where}: probability: not allowed, as it is added; allowed: other keys")


def ordered(
    rows: Sequence[dict[str, Any]],
    sampler: str,
    answers: int = 8,
    draws: int | None = None,
    distinct: bool = False,
    seed: int = 0,
    settings: Settings | None = None,
    **arguments: Any,
) -> list[dict[str, Any]]:
    """Return the rows with their probability, the most probable first; or `draws` of them.

    answers: that a rate stands for; it is rounded to a share of them.
    draws: number of rows to draw by their probabilities, in the order of practice.
    distinct: draw each at most once.
    arguments: of `Curriculum`: embed, order, impossible.

    Raises:
        InputError: the sampler needs something else, tells no row from another by a rate, or there
            are fewer rows than draws.
    """
    if distinct and draws is not None and draws > len(rows):
        raise not_allowed("draws", draws, f"at most {len(rows)}, the rows, if each is drawn once")
    settings = dict(settings or {})
    settings["samplers"] = NO_EXPLORATION | dict(settings.get("samplers", {}))
    texts = [_text(row, number) for number, row in enumerate(rows)]
    groups = [row["group"] for row in rows] if "group" in rows[0] else None
    places = np.repeat(np.arange(len(rows)), answers)

    def told(solved: np.ndarray) -> Curriculum:
        """A curriculum that knows of each row how many answers succeeded, (rows,)."""
        known: Any = {"seed": seed, "groups": groups, "settings": settings}
        curriculum = Curriculum(texts, sampler, **known, **arguments)
        curriculum.update(places, (np.arange(answers) < solved[:, None]).ravel())
        return curriculum

    solved = np.array([math.floor(row["rate"] * answers + 0.5) for row in rows])
    curriculum, why = told(solved), ""
    chances = curriculum.probabilities()
    shares = np.round(chances / chances.max(), 9)
    if sampler != "random" and np.ptp(solved):
        equal = told(np.full(len(rows), round(solved.mean()))).probabilities()
        # A model that learns from the rates moves a little with any.
        if np.allclose(chances, equal, rtol=1e-2, atol=0.0):
            why = "gives the same probabilities as for equal rates"
        if sampler == "tscl" or isinstance(curriculum.sampler.estimator, ExpertBuckets):
            why = "compares older answers with newer ones, and rows are of one time"
    if why:
        raise InputError(
            f"sampler: {sampler} {why}: it tells none from another by one rate each; allowed: "
            "others, such as learnability, pools, mopps"
        )
    if draws is None:
        chosen = np.argsort(-shares, kind="stable")
    else:
        chosen = curriculum.sample(draws, replace=not distinct)
    return [{**rows[row], "probability": float(f"{chances[row]:.6g}")} for row in chosen]


def _text(row: Mapping[str, Any], number: int) -> str:
    prompt = row.get("prompt", f"row {number}")
    return prompt if isinstance(prompt, str) else "\n".join(turn["content"] for turn in prompt)


def written(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as lines of JSON, in ASCII, which any terminal shows."""
    return "".join(json.dumps(row) + "\n" for row in rows)
