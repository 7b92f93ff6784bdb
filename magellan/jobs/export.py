"""A trained agent as files: adapters, heads, model card."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import yaml

from magellan.config import UNIT_COLUMNS, RunConfig, identity, phases_of
from magellan.config.phases import goals_of
from magellan.core.columns import COLUMNS, PHASE
from magellan.core.errors import InputError, printable
from magellan.core.files import (
    PARTIAL,
    check_writable,
    reading,
    refuse_link,
    sync_folder,
    write_atomically,
    writing,
)
from magellan.jobs.provenance import Origin
from magellan.model.files import check_backbone, portable_reference
from magellan.worlds import SPLITS, WORLDS, GoalSet

FOLDER = "agent"
"""Where a run with `budget.export` leaves its agent."""
ADAPTERS = ("policy", "critic_target", "competence", "competence_delayed")
HEADS, CARD = "heads.safetensors", "README.md"
CARD_TEMPLATE = Path(__file__).with_name("card.md")


def agent_files(
    config: RunConfig, state: Mapping[str, Any], origin: Origin, folder: Path
) -> dict[str, bytes]:
    """Return the files of a trained agent, by path in its folder.

    state: trainer state, as in a checkpoint.
    folder: where the files will be; the code on the card names it.

    Raises:
        InputError: the language model is missing.
        KeyError, TypeError, ValueError: the state does not fit the configuration.
    """
    from magellan.model.saving import adapter_files, head_file, is_encoder_decoder

    encoder_decoder = is_encoder_decoder(check_backbone(config.backbone.model))
    adapters, heads = _adapters_and_heads(state["backend"], config.section("competence").adapter)
    files = {
        f"{name}/{file}": content
        for name, parameters in adapters.items()
        for file, content in adapter_files(parameters, config.backbone, encoder_decoder).items()
    }
    card = _card(config, state, origin, encoder_decoder, folder)
    return {**files, HEADS: head_file(heads), CARD: card.encode()}


def _card(
    config: RunConfig, state: Mapping[str, Any], origin: Origin, encoder_decoder: bool, folder: Path
) -> str:
    """The model card in Markdown, with the front matter that model hubs read."""
    base, phases = portable_reference(config.backbone.model), phases_of(config)
    prompt, actions = _first_state(goals_of(config, phases[int(state["phase"]) - 1]))
    front = {
        "library_name": "peft",
        # Hubs only resolve model names here, not paths.
        **({} if Path(base).is_absolute() else {"base_model": base}),
        "tags": ["lora", "reinforcement-learning", config.world, config.sampler],
    }
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"cell": lambda text: printable(text).replace("|", r"\|"), "repr": repr}
    given = {"config": config, "state": state, "origin": origin, "phases": phases}
    example = {"model": base, "prompt": prompt, "actions": actions}
    return environment.from_string(CARD_TEMPLATE.read_text("utf-8")).render(
        {**given, **example, "encoder_decoder": encoder_decoder, "agent": str(folder.resolve())},
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True).rstrip(),
        identity=identity(config),
        world=WORLDS[config.world].label,
        complete=is_complete(config, state),
        success=_last_success(config, state["record"]["tables"]["evaluation"]),
        splits={"train": "training goals", "unseen": "unseen goals"},
    )


def _last_success(config: RunConfig, table: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Success at the last evaluation, which may predate the agent if the run was stopped.

    Returns:
        `at`, the run's length then, and `cells`: text by category and split; empty without one.
    """
    unit, columns = UNIT_COLUMNS[config.budget.unit], (PHASE, *COLUMNS["evaluation"])
    # Only runs with phases have the first column.
    rows = [dict(zip(columns[-len(row) :], row, strict=True)) for row in table]
    last = [row for row in rows if all(row.get(k) == rows[-1].get(k) for k in (PHASE, unit))]
    cells: dict[str, dict[str, str]] = {}
    for row in last:
        of_category = cells.setdefault(str(row["category"]), dict.fromkeys(SPLITS, ""))
        of_category[row["split"]] = f"{row['success']:.2f} (n = {row['n']})"
    return {"at": last[-1][unit], "cells": cells} if last else {}


def is_complete(config: RunConfig, state: Mapping[str, Any]) -> bool:
    """Whether a trainer's state is that of a finished run."""
    phases = phases_of(config)
    return bool(state["phase"] == len(phases) and state["next_evaluation"] > phases[-1].ends)


def _adapters_and_heads(
    state: Mapping[str, Any], adapter: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Adapters and heads of a backend's state, arrays by name; adapter: `competence.adapter`."""
    sac, learned = state["sac"], state.get("competence")
    adapters = {name: sac["adapters"][name] for name in ADAPTERS[:2]}
    heads = {"critic": sac["critic"], "target": sac["target"]}
    if learned is not None:
        delayed = learned["snapshots"]["0"]
        adapters |= {"competence": learned["adapter"], "competence_delayed": delayed["adapter"]}
        if adapter == "ignored":  # the estimator reads the policy's
            adapters |= dict.fromkeys(ADAPTERS[2:], adapters["policy"])
        heads |= {"competence": learned["head"], "competence_delayed": delayed["head"]}
        _check_same_shapes(learned["head"], delayed["head"])
    _check_same_shapes(*adapters.values())
    _check_same_shapes(sac["critic"], sac["target"])
    return adapters, heads


def _check_same_shapes(*copies: Mapping[str, Any]) -> None:
    """Raise ValueError if the copies differ in names, shapes or types of their arrays."""
    shapes = [{name: (a.shape, a.dtype) for name, a in arrays.items()} for arrays in copies]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("copies of different shapes")


def _first_state(goals: GoalSet) -> tuple[str, list[str]]:
    """Prompt and possible actions at the start of an episode, of a feasible goal if any."""
    sizes = goals.sizes * goals.feasible
    category = int(np.flatnonzero(sizes if sizes.any() else goals.sizes)[0])
    goal = goals.goal(int(goals.nth(category, np.zeros(1, np.int64))[0]))
    env = goals.world.environment(1)
    env.reset(seed=0, options={"goals": [goal]})
    return env.prompts()[0], list(env.possible_actions[0])


def check_output(folder: Path) -> None:
    """Check a user's output folder before any work.

    Raises:
        InputError: it is a link, not empty, the current folder or in one that cannot be written, or
            FOLDER.part exists beside it.
    """
    check_writable(folder.parent)
    with reading(f"--output: {folder}"):
        if folder.exists() and folder.samefile("."):
            place = f"{folder} is the current folder"
            raise InputError(f"--output: {place}; allowed: another one, empty or absent")
        taken = folder.is_symlink() or (folder.exists() and any(folder.iterdir()))
        partial = folder if taken else folder.with_name(folder.name + PARTIAL)
        if partial.is_symlink() or partial.exists():
            raise InputError(
                f"--output: {partial} already exists; allowed: a folder that is empty or absent, "
                "without a folder of that name and .part beside it"
            )


def write_agent(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write an agent's folder, whole or not at all; one that is there is removed just before.

    Raises:
        StorageError: full disk, read-only folder or the like.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    try:
        with writing(folder):
            _remove(partial)
            partial.mkdir(parents=True)
            for name, content in files.items():
                path = partial / name
                path.parent.mkdir(exist_ok=True)
                write_atomically(path, content)
            _remove(folder)
            os.replace(partial, folder)
            sync_folder(folder.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(partial)
        raise


def _remove(folder: Path) -> None:
    """Remove a folder with its contents; links in it are removed, not followed."""
    refuse_link(folder)
    if folder.exists():
        shutil.rmtree(folder)
