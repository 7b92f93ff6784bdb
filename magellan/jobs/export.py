"""A trained agent as files: adapters, heads, model card."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from magellan.config import RunConfig, check_backbone, phases_of
from magellan.core.errors import InputError
from magellan.core.files import PARTIAL, cannot_write, sync_folder, write_atomically
from magellan.jobs.card import About, model_card
from magellan.jobs.versions import Origin
from magellan.training.parts import goals_of
from magellan.worlds import GoalSet

FOLDER = "agent"
"""Where a run with `budget.export` leaves its agent."""
ADAPTERS = ("policy", "critic_target", "competence", "competence_delayed")
HEADS, CARD = "heads.safetensors", "README.md"


def agent_files(
    config: RunConfig, state: Mapping[str, Any], origin: Origin, folder: Path
) -> dict[str, bytes]:
    """All files of a trained agent, by their path in its folder.

    Args:
        config: of the run.
        state: of the trainer, as a checkpoint has it.
        origin: code and libraries that made it, and its language model.
        folder: where they are to lie, which the code on the card names.

    Raises:
        InputError: the language model is missing.
        KeyError, TypeError, ValueError: the state is not one of this configuration.
    """
    from magellan.model.saving import adapter_files, head_file, is_encoder_decoder

    encoder_decoder = is_encoder_decoder(check_backbone(config.backbone.model))
    adapters, heads = _parts(state["backend"], config.section("competence").adapter)
    prompt, actions = _beginning(goals_of(config, phases_of(config)[int(state["phase"]) - 1]))
    about = About(
        config=config,
        reached={key: int(state[f"{key}s"]) for key in ("update", "step", "episode")},
        complete=is_complete(config, state),
        evaluation=state["record"]["tables"]["evaluation"],
        origin=origin,
        encoder_decoder=encoder_decoder,
        adapters=tuple(adapters),
        prompt=prompt,
        actions=actions,
        folder=folder,
    )
    files = {
        f"{name}/{file}": content
        for name, parameters in adapters.items()
        for file, content in adapter_files(parameters, config.backbone, encoder_decoder).items()
    }
    return {**files, HEADS: head_file(heads), CARD: model_card(about).encode()}


def is_complete(config: RunConfig, state: Mapping[str, Any]) -> bool:
    """Whether a trainer's state is that of the end of its run."""
    phases = phases_of(config)
    return bool(state["phase"] == len(phases) and state["next_evaluation"] > phases[-1].ends)


def _parts(state: Mapping[str, Any], reads: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Adapters, and heads, from a backend's state: arrays by name.

    reads: `competence.adapter`; the files hold what the estimator predicts with.
    """
    sac, learned = state["sac"], state.get("competence")
    adapters = {name: sac["adapters"][name] for name in ADAPTERS[:2]}
    heads = {"critic": sac["critic"], "target": sac["target"]}
    if learned is not None:
        delayed = learned["snapshots"][str(learned["restored"])]
        now, then = learned["adapter"], delayed["adapter"]
        if reads == "ignored":
            now = then = adapters["policy"]
        adapters |= {"competence": now, "competence_delayed": then}
        heads |= {"competence": learned["head"], "competence_delayed": delayed["head"]}
        _check_alike(learned["head"], delayed["head"])
    _check_alike(*adapters.values())
    _check_alike(sac["critic"], sac["target"])
    return adapters, heads


def _check_alike(first: Mapping[str, Any], *others: Mapping[str, Any]) -> None:
    """ValueError: what a run has several copies of has not the same arrays in all."""
    shapes = {name: (each.shape, each.dtype) for name, each in first.items()}
    for other in others:
        if {name: (each.shape, each.dtype) for name, each in other.items()} != shapes:
            raise ValueError("copies of different shapes")


def _beginning(goals: GoalSet) -> tuple[str, list[str]]:
    """Prompt and possible actions at the start of an episode of some goal that can be reached."""
    sizes = goals.sizes * goals.feasible
    category = int(np.flatnonzero(sizes if sizes.any() else goals.sizes)[0])
    goal = goals.goal(int(goals.nth(category, np.zeros(1, np.int64))[0]))
    env = goals.world.environment(1)
    env.reset(seed=0, options={"goals": [goal]})
    return env.prompts()[0], list(env.possible_actions[0])


def check_output(folder: Path) -> None:
    """Look at the folder that a user names, before any work.

    Raises:
        InputError: it is a link, or not empty, or the present folder, or the one beside it in which
            it is made is there.
    """
    try:
        if folder.exists() and folder.samefile("."):
            raise InputError(
                f"--output: {folder} is the present folder; allowed: one that is empty or absent, "
                "which is made anew"
            )
        taken = folder.is_symlink() or (folder.exists() and any(folder.iterdir()))
        partial = folder if taken else folder.with_name(folder.name + PARTIAL)
        if partial.is_symlink() or partial.exists():
            raise InputError(
                f"--output: {partial} is there already; allowed: a folder that is empty or absent, "
                "without one of the same name and .part beside it"
            )
    except OSError as error:
        raise InputError(f"--output: {folder} cannot be read ({error.strerror})") from error


def write_agent(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write an agent's folder, whole or not at all; one that was there gives way.

    Raises:
        StorageError: full disk, read-only folder or the like.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    try:
        _remove(partial)
        partial.mkdir(parents=True)
        for name, content in files.items():
            path = partial / name
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, content)
        _remove(folder)
        os.replace(partial, folder)
        sync_folder(folder.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _remove(partial)
        if isinstance(error, OSError):
            raise cannot_write(folder, error) from error
        raise


def _remove(folder: Path) -> None:
    """Remove a folder with all that is in it; links in it are removed, not followed."""
    if folder.is_symlink() or folder.exists():
        shutil.rmtree(folder)  # refuses what is itself a link
