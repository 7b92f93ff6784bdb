"""`python -m magellan submit`: check a sampler of your own, run it, and write a card.

A pull request has the sampler's file and the card, in JSON and Markdown. CI checks the card
(`check_card`) without training.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from magellan.config import grid, load_experiment, read_yaml, resolve_run
from magellan.config.modules import load_modules
from magellan.core.errors import InputError, NotFiniteError, not_allowed
from magellan.core.files import new_folder, reading, write_atomically
from magellan.core.parsing import parse_json
from magellan.core.settings import Fraction, Positive, Section, Seed, validated
from magellan.jobs.log import utc_now
from magellan.jobs.provenance import code_version
from magellan.jobs.run import train
from magellan.samplers import SAMPLERS
from magellan.samplers.conformance import CHECKS, track_of

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = ROOT / "config" / "studies" / "rules.yaml"
REFERENCE = ROOT / "results" / "reference" / "rules"
FLOOR = "random"
SMOKE = "40-20-12-8-8"
"""Goal space of the smoke run, as in config/smoke.yaml."""
_log = partial(print, flush=True)


class CardRun(Section):
    """One run of the study of all samplers."""

    seed: Seed
    identity: str
    success: Fraction
    seconds: Positive
    estimation_episodes: int = Field(ge=0)


class Card(Section):
    """A submitted sampler: code, docstrings, constants, contract and runs.

    compared: comparison with the committed runs of these seeds, in Markdown.
    """

    sampler: str
    track: str
    file: str
    sha256: str
    description: str
    constants: dict[str, Any]
    contract: tuple[str, ...]
    runs: tuple[CardRun, ...] = ()
    compared: str = ""
    version: str
    date: str


def registered_by(file: Path) -> str:
    """Load a file and return the name of the one sampler that it registers.

    Raises:
        InputError: the file fails to load, or registers none or several.
    """
    load_modules([str(file)])
    names = [name for name in SAMPLERS if Path(SAMPLERS[name].source).resolve() == file.resolve()]
    if len(names) != 1:
        listed = ", ".join(names) or "no sampler"
        raise InputError(f"{file}: registers {listed}; allowed: exactly one sampler")
    return names[0]


def check_contract(file: Path, name: str) -> tuple[str, ...]:
    """Run all checks; InputError names the first that fails, whatever it raises."""
    for text, check in CHECKS.items():
        try:
            check(name)
        except Exception as error:
            kind = "" if isinstance(error, InputError | NotFiniteError) else type(error).__name__
            reason = ": ".join(filter(None, [kind, str(error)]))
            raise InputError(f"{file}: {name} breaks the contract, {text}: {reason}") from error
        _log(f"yes: {text}")
    return tuple(CHECKS)


def submit(file: Path, runs: int, output: Path) -> Path:
    """Check a sampler, run it with the experiment's first seeds, and write its card into `output`.

    Raises:
        InputError: no sampler or several, a broken contract, more runs than seeds.
        JobError: a run failed.
    """
    name = registered_by(file)
    experiment = _experiment(file, name, runs)
    contract = check_contract(file, name)
    new_folder(output)
    with tempfile.TemporaryDirectory() as folder:
        layer = {"sampler": name, "modules": [str(file)], "goal_space": SMOKE}
        train(resolve_run("smoke", [layer]), Path(folder) / "smoke", False, "none")
    _log("yes: a smoke run succeeds")
    card_runs, compared = _train_and_compare(experiment, name, output) if runs else ((), "")
    card = Card(**_card_header(file, name), contract=contract, runs=card_runs, compared=compared)
    path = output / f"{name}.json"
    write_atomically(path, json.dumps(card.model_dump(mode="json"), indent=1).encode() + b"\n")
    write_atomically(path.with_suffix(".md"), markdown(card).encode())
    return path


def _card_header(file: Path, name: str) -> dict[str, Any]:
    spec = SAMPLERS[name]
    texts = (sys.modules[spec.build.__module__].__doc__, spec.build.__doc__)
    return {
        "sampler": name,
        "track": track_of(name),
        "file": f"{name}.py",  # as which it is published, whatever its author calls it
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "description": "\n\n".join(inspect.cleandoc(text) for text in texts if text),
        "constants": spec.settings().model_dump(mode="json"),
        "version": code_version(),
        "date": utc_now()[:10],
    }


def _experiment(file: Path, name: str, runs: int) -> dict[str, Any]:
    """The study of all samplers, this one alone, the first seeds; empty without runs."""
    if not runs:
        return {}
    if not (EXPERIMENT.is_file() and (REFERENCE / "manifest.json").is_file()):
        raise InputError("--runs: the study of all samplers is absent; run this in a clone")
    values = read_yaml(EXPERIMENT)
    if runs > len(values["seeds"]):
        allowed = f"0 to {len(values['seeds'])}, the seeds of the committed runs"
        raise not_allowed("--runs", runs, allowed)
    own = {"samplers": [name], "seeds": values["seeds"][:runs], "analysis": {}}
    return values | own | {"modules": [str(file.resolve())]}


def _train_and_compare(
    experiment: dict[str, Any], name: str, output: Path
) -> tuple[tuple[CardRun, ...], str]:
    """Train the runs one after the other; return them and a comparison with committed runs."""
    from analysis.statistics import standing
    from analysis.tables import printing, store

    committed, planned = store.load(REFERENCE), grid(load_experiment(experiment))
    minutes = [len(planned) * run["wall_seconds"] / 60 for run in committed.manifest["runs"]]
    _log(f"{len(planned)} runs, {min(minutes):.0f} to {max(minutes):.0f} minutes on a free core")
    for run in planned:
        train(run.config, output / run.path, True, "lines")
    results = store.combine([output / run.path for run in planned], experiment)
    seeds = experiment["seeds"]
    scores = standing.scores_of(committed, seeds) | standing.scores_of(results)
    card_runs = tuple(
        CardRun(
            seed=row["seed"],
            identity=row["identity"],
            success=round(success, 6),
            seconds=row["wall_seconds"],
            estimation_episodes=sum(row["estimation_episodes"].values()),
        )
        for row, success in zip(results.manifest["runs"], scores[name].tolist(), strict=True)
    )
    if len(seeds) < 2:
        return card_runs, ""
    ranked = standing.standings(scores, {rule: track_of(rule) for rule in scores}, FLOOR)
    compared = printing.render([standing.table("Success over training", ranked)])
    _log(compared)
    return card_runs, compared.strip()


def markdown(card: Card) -> str:
    """Render a card as Markdown."""
    listed = [f"{card.sampler}.{key} = {value!r}" for key, value in card.constants.items()]
    listed += [f"yes: {text}" for text in card.contract]
    listed += [
        f"seed {run.seed}: success over training {run.success:.3f}, {run.seconds:.0f} s, "
        f"{run.estimation_episodes:,} episodes to estimate, run {run.identity}"
        for run in card.runs
    ]
    parts = [
        f"# {card.sampler}",
        card.description,
        f"Track: {card.track}. {card.date}, version {card.version}.",
        f"`{card.file}`, SHA-256 {card.sha256}",
        "\n".join(f"- {text}" for text in listed),
        card.compared,
        f"    python -m magellan submit {card.file} --runs {len(card.runs)}",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def check_card(path: Path, file: Path) -> None:
    """Check that a card belongs to this file and settings, and that the file keeps the contract.

    Raises:
        InputError: the first mismatch.
    """
    with reading(f"{path}:"):
        values = parse_json(path.read_text(encoding="utf-8", errors="replace"), f"{path}:")
        text = path.with_suffix(".md").read_text(encoding="utf-8", errors="replace")
    card = validated(Card, values, f"{path}: ")
    name = registered_by(file)
    planned = grid(load_experiment(_experiment(file, name, len(card.runs)))) if card.runs else []
    keys = ("sampler", "track", "file", "sha256", "description", "constants")
    header, fields = _card_header(file, name), card.model_dump(mode="json")
    pairs = {key: (fields[key], header[key]) for key in keys} | {
        "contract": (fields["contract"], list(CHECKS)),
        "runs": ([run.identity for run in card.runs], [run.identity for run in planned]),
        "Markdown": (text, markdown(card)),
    }
    for key, (actual, expected) in pairs.items():
        if actual != expected:
            raise not_allowed(f"{path}: {key}", actual, "the file's own, as `submit` writes it")
    check_contract(file, name)
