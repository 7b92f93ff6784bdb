"""`python -m magellan embed`: how the estimator represents goals, at several moments of a run.

Gaven et al. 2025, Figures 6, 11, 21 and 22: training and unseen goals in MAGELLAN's representation,
before and during training. Writes the hidden states that the estimator's head reads, and its
predictions; `python -m analysis embeddings` draws them.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from magellan.backends import CURRENT, Backend
from magellan.competence.prompt_tokens import PromptTokens
from magellan.config import identity, phases_of
from magellan.core.codec import Packed
from magellan.core.errors import InputError, shown
from magellan.jobs.checkpoint import points
from magellan.jobs.export import check_output, write_agent
from magellan.jobs.trained import ARGUMENT, Point, TrainedAgent
from magellan.training.evaluate import EvaluationSet, evaluated_goals

FORMAT = 1
GOAL_COLUMNS = ("goal", "split", "category", "kind", "code", "prompt")
PREDICTION_COLUMNS = ("moment", "update", "step", "episode", "goal", "competence")


Embedding = tuple[Point, np.ndarray, np.ndarray]
"""The estimator's view of all goals at one moment: the hidden states that its head reads, float32
(goals, width), and its predictions, float64 (goals,)."""


def embed(
    agent: TrainedAgent,
    output: Path,
    per_category: int = 100,
    seed: int = 0,
    backend: Mapping[str, str] | None = None,
    modules: tuple[str, ...] = (),
) -> None:
    """Write a run's embeddings of goals: before training, at kept checkpoints, at the newest one.

    Args:
        agent: newest of a run with the estimator `learned`.
        output: folder to create: `goals.csv`, `predictions.csv`, `vectors.safetensors` (a tensor
            per moment, float32 (goals, width)) and `embedding.json`.
        per_category: maximum goals per category and split.
        seed: of the draw of goals.
        backend: keys of the section `backend`; the run's own is ignored.

    Raises:
        InputError: an agent without predictions, or `output` is not empty.
        StorageError: a file cannot be written.
    """
    check_output(output)
    if not agent.predicts:
        raise InputError(
            f"{ARGUMENT}: {agent.path} has no estimator on its language model; allowed: a run with "
            "the estimator learned, by sampler magellan or among the observers"
        )
    sets = drawn_sets(agent, per_category, seed)
    goals = list(_goal_rows(sets))
    embeddings = list(_embeddings(agent, _kept_agents(agent, modules), sets, backend or {}))
    vectors = {str(i): np.ascontiguousarray(read) for i, (_, read, _) in enumerate(embeddings)}
    predictions = (
        (number, *moment, goal, float(f"{value:.6g}"))
        for number, (moment, _, competence) in enumerate(embeddings)
        for goal, value in enumerate(competence.tolist())
    )
    about = {
        "format": FORMAT,
        "identity": identity(agent.config),
        "config": agent.config.model_dump(mode="json"),
        "world": agent.goals.world.as_dict(),
        "per_category": per_category,
        "seed": seed,
        "complete": agent.complete,
        "made_by": asdict(agent.exported_by),
    }
    files = {
        "goals.csv": _csv(GOAL_COLUMNS, goals),
        "predictions.csv": _csv(PREDICTION_COLUMNS, predictions),
        "vectors.safetensors": save(vectors),
        "embedding.json": (json.dumps(about, indent=2) + "\n").encode(),
    }
    write_agent(output, files)


def drawn_sets(agent: TrainedAgent, per_category: int, seed: int) -> list[EvaluationSet]:
    """Draw goals of both splits, as for an evaluation."""
    phase = phases_of(agent.config)[agent.state["phase"] - 1]
    draw = {"evaluation_goals": per_category, "evaluation_seed": seed}
    budget = agent.config.budget.model_copy(update=draw)
    config = agent.config.model_copy(update={"budget": budget})
    return list(evaluated_goals(config, phase, agent.goals).values())


def _kept_agents(newest: TrainedAgent, modules: tuple[str, ...]) -> Iterator[TrainedAgent]:
    run = newest.path.parents[1]
    for point in points(run):
        agent = TrainedAgent.read(run / str(point), modules)
        if identity(agent.config) != identity(newest.config):
            raise InputError(f"{agent.path} is of another run than {newest.path}")
        if 0 < agent.point.update < newest.point.update:
            yield agent


def _embeddings(
    newest: TrainedAgent,
    kept_agents: Iterator[TrainedAgent],
    sets: list[EvaluationSet],
    backend_settings: Mapping[str, str],
) -> Iterator[Embedding]:
    """Yield embeddings before training, of the kept agents, and of the newest one.

    Checkpoints include the replay memory: at most two are in memory at a time.
    """
    backend = newest.fresh(backend_settings)
    try:
        tokens = PromptTokens(backend.codec)
        prompts = [tokens.pack(goals.space, goals.positions) for goals in sets]
        yield _embedding(backend, prompts, Point(0, 0, 0))
        for agent in itertools.chain(kept_agents, [newest]):
            agent.load(backend)
            yield _embedding(backend, prompts, agent.point)
    finally:
        backend.close()


def _embedding(backend: Backend, prompts: list[Packed], moment: Point) -> Embedding:
    vectors = np.concatenate([backend.representation(batch) for batch in prompts])
    competence = np.concatenate([backend.competence(batch, (CURRENT,))[0] for batch in prompts])
    return moment, vectors, competence


def _goal_rows(sets: list[EvaluationSet]) -> Iterator[tuple[Any, ...]]:
    number = 0
    for goals in sets:
        space, positions = goals.space, goals.positions
        codes, kinds = space.codes_at(positions), space.world.kinds(space, positions)
        if len(kinds) != len(positions) or not all(isinstance(k, str) and k for k in kinds):
            raise InputError(
                f"world {space.world.name}: kinds gives {shown(kinds[:3])} for {len(positions)} "
                "goals; allowed: a text for each goal"
            )
        for position, category, code, kind in zip(
            positions.tolist(), goals.categories.tolist(), codes.tolist(), kinds, strict=True
        ):
            name = space.world.categories.names[category]
            yield number, space.split, name, kind, code, space.prompt(position)
            number += 1


def _csv(columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    # Quoted, since prompts may contain line breaks.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()
