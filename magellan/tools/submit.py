"""`python -m magellan submit`: a sampler of one's own, its contract, its runs, and a card of them.

The card is what a pull request brings, beside the file: JSON, and the same in Markdown. CI checks
it (`check_card`) without training.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field

from magellan.config import grid, load_experiment, read_yaml, resolve_run
from magellan.config.modules import load_modules
from magellan.core.errors import InputError, NotFiniteError, shown
from magellan.core.files import write_atomically
from magellan.core.parsing import parse_json
from magellan.core.settings import Fraction, Positive, Section, Seed, validated
from magellan.jobs.log import utc_now
from magellan.jobs.run import train
from magellan.jobs.versions import code_version
from magellan.samplers import SAMPLERS
from magellan.samplers.conformance import CHECKS, track_of

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT, REFERENCE = ROOT / "config" / "config.yaml", ROOT / "results" / "reference" / "default"
FLOOR = "random"
SMOKE = "40-20-12-8-8"
"""Goal space of the smoke run, as in config/smoke.yaml."""
Say = Callable[[str], Any]  # takes lines for the user


class CardRun(Section):
    """One run of the default experiment."""

    seed: Seed
    identity: str
    success: Fraction
    seconds: Positive
    estimation_episodes: int = Field(ge=0)


class Card(Section):
    """A submitted sampler: its code, docstrings and constants, the contract, and its runs.

    compared: how it stands beside the committed runs of these seeds, in Markdown.
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
    """Name of the one sampler that a file registers, once it was run.

    Raises:
        InputError: the file cannot be run, or registers none or several.
    """
    load_modules([str(file)])
    names = [name for name in SAMPLERS if Path(SAMPLERS[name].source).resolve() == file.resolve()]
    if len(names) != 1:
        found = ", ".join(names) or "no sampler"
        raise InputError(f"{file}: registers {found}; allowed: exactly one sampler")
    return names[0]


def check_contract(file: Path, name: str, say: Say) -> tuple[str, ...]:
    """Run all checks; InputError names the first that fails, whatever the file's code raises."""
    for text, check in CHECKS.items():
        try:
            check(name)
        except Exception as error:
            kind = "" if isinstance(error, InputError | NotFiniteError) else type(error).__name__
            reason = ": ".join(filter(None, [kind, str(error)]))
            raise InputError(f"{file}: {name} breaks the contract, {text}: {reason}") from error
        say(f"yes: {text}")
    return tuple(CHECKS)


def submit(file: Path, runs: int, output: Path, say: Say) -> Path:
    """Check a sampler, run it with the experiment's first seeds, and write its card into `output`.

    Raises:
        InputError: no sampler or several, a broken contract, more runs than there are seeds.
        JobError: a run could not go on.
    """
    name = registered_by(file)
    experiment = _experiment(file, name, runs)
    contract = check_contract(file, name, say)
    with tempfile.TemporaryDirectory() as folder:
        named = {"sampler": name, "modules": [str(file)], "goal_space": SMOKE}
        train(resolve_run("smoke", [named]), Path(folder) / "smoke", False, "none")
    say("yes: a smoke run ends well")
    made, compared = _made(experiment, name, output, say) if runs else ((), "")
    card = Card(**_known(file, name), contract=contract, runs=made, compared=compared)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{name}.json"
    write_atomically(path, json.dumps(card.model_dump(mode="json"), indent=1).encode() + b"\n")
    write_atomically(path.with_suffix(".md"), markdown(card).encode())
    return path


def _known(file: Path, name: str) -> dict[str, Any]:
    """What a card says of the file itself, and when."""
    spec = SAMPLERS[name]
    texts = (sys.modules[spec.build.__module__].__doc__, spec.build.__doc__)
    return {
        "sampler": name,
        "track": track_of(name),
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "description": "\n\n".join(inspect.cleandoc(text) for text in texts if text),
        "constants": spec.settings().model_dump(mode="json"),
        "version": code_version(),
        "date": utc_now()[:10],
    }


def _experiment(file: Path, name: str, runs: int) -> dict[str, Any]:
    """The default experiment with this sampler alone and its first seeds; empty without runs."""
    if not runs:
        return {}
    if not (EXPERIMENT.is_file() and (REFERENCE / "manifest.json").is_file()):
        raise InputError("--runs: the default experiment is absent; run this in a clone")
    values = read_yaml(EXPERIMENT)
    if runs > len(values["seeds"]):
        raise InputError(
            f"--runs: {runs} is not allowed; allowed: 0 to {len(values['seeds'])}, the seeds that "
            "the committed runs of the other samplers have"
        )
    seeds = values["seeds"][:runs]
    return values | {"samplers": [name], "seeds": seeds, "modules": [str(file.resolve())]}


def _made(
    experiment: dict[str, Any], name: str, output: Path, say: Say
) -> tuple[tuple[CardRun, ...], str]:
    """The runs, one after the other, and how they stand beside the committed ones."""
    from analysis.statistics import standing
    from analysis.tables import printing, store

    committed, planned = store.load(REFERENCE), grid(load_experiment(experiment))
    minutes = [len(planned) * run["wall_seconds"] / 60 for run in committed.manifest["runs"]]
    say(f"{len(planned)} runs, {min(minutes):.0f} to {max(minutes):.0f} minutes on a free core")
    for each in planned:
        train(each.config, output / each.path, True, "lines")
    results = store.combine([output / each.path for each in planned], experiment)
    seeds = experiment["seeds"]
    scores = standing.scores_of(committed, seeds) | standing.scores_of(results)
    found = [
        CardRun(
            seed=run["seed"],
            identity=run["identity"],
            success=round(success, 6),
            seconds=run["wall_seconds"],
            estimation_episodes=sum(run["estimation_episodes"].values()),
        )
        for run, success in zip(results.manifest["runs"], scores[name].tolist(), strict=True)
    ]
    if len(seeds) < 2:
        return tuple(found), ""
    ranked = standing.standings(scores, {rule: track_of(rule) for rule in scores}, FLOOR)
    compared = printing.render([standing.table("Success over training", ranked)])
    say(compared)
    return tuple(found), compared.strip()


def markdown(card: Card) -> str:
    """The card to read."""
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


def check_card(path: Path, file: Path, say: Say) -> None:
    """What CI does: the card is of this file, which keeps the contract, and of these settings.

    Raises:
        InputError: the first thing that is wrong.
    """
    try:
        values = parse_json(path.read_text(encoding="utf-8"), f"{path}:")
        text = path.with_suffix(".md").read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    card = validated(Card, values, f"{path}: ")
    name = registered_by(file)
    planned = grid(load_experiment(_experiment(file, name, len(card.runs)))) if card.runs else []
    same = ("sampler", "track", "file", "sha256", "description", "constants")
    known, said = _known(file, name), card.model_dump(mode="json")
    there = {key: (said[key], known[key]) for key in same} | {
        "contract": (said["contract"], list(CHECKS)),
        "runs": ([run.identity for run in card.runs], [run.identity for run in planned]),
        "Markdown": (text, markdown(card)),
    }
    for what, (mine, true) in there.items():
        if mine != true:
            allowed = "the file's own, as `submit` writes it"
            raise InputError(f"{path}: {what}: {shown(mine)} is not allowed; allowed: {allowed}")
    check_contract(file, name, say)
