"""`python -m magellan embed`: how the estimator reads goals, at several moments of a run.

Gaven et al. 2025, Figures 6, 11, 21 and 22: goals of training and unseen ones in the space in which
MAGELLAN tells goals apart, before training and on the way. Written are the hidden states that the
estimator's head reads, and what it predicts from them; `python -m analysis embeddings` draws them.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from magellan.backends import CURRENT, Backend
from magellan.competence.prompt_tokens import PromptTokens
from magellan.config import identity, phases_of
from magellan.core.codec import Packed
from magellan.core.errors import InputError, shown
from magellan.jobs.export import check_output, write_agent
from magellan.jobs.keeping import points
from magellan.tools.recorded import Point
from magellan.tools.trained import ARGUMENT, TrainedAgent
from magellan.training.evaluate import EvaluationSet
from magellan.training.parts import evaluated_goals
from magellan.worlds import GoalSet

FORMAT = 1
GOALS, PREDICTIONS, VECTORS, ABOUT = (
    "goals.csv",
    "predictions.csv",
    "vectors.safetensors",
    "embedding.json",
)
GOAL_COLUMNS = ("goal", "split", "category", "kind", "code", "prompt")
PREDICTION_COLUMNS = ("moment", "update", "step", "episode", "goal", "competence")


class Read(NamedTuple):
    """What the estimator made of all goals at one moment.

    vectors: float32 (goals, width), the hidden states that its head reads.
    competence: float64 (goals,).
    """

    moment: Point
    vectors: np.ndarray
    competence: np.ndarray


def embed(
    run: Path,
    output: Path,
    per_category: int = 100,
    seed: int = 0,
    backend: Mapping[str, str] | None = None,
    modules: tuple[str, ...] = (),
) -> TrainedAgent:
    """Write how a run's estimator read goals: before training, where a checkpoint was kept, last.

    Args:
        run: folder of a run that has the estimator `learned`; it is not changed.
        output: folder to make: `goals.csv`, `predictions.csv`, `vectors.safetensors` (one tensor
            for each moment, float32 (goals, width)) and `embedding.json`.
        per_category: goals of each category and split, at most.
        seed: of the draw of goals.
        backend: keys of the section `backend`; that of the run does not count.
        modules: see `TrainedAgent.read`.

    Returns:
        the newest agent.

    Raises:
        InputError: no agent is there, it predicts nothing, or `output` is not empty.
        StorageError: a file cannot be written.
    """
    check_output(output)
    newest = TrainedAgent.read(run, modules)
    if not newest.predicts:
        raise InputError(
            f"{ARGUMENT}: {run} is a run whose language model predicts nothing; allowed: one with "
            "the estimator learned, as sampler magellan or among the observers"
        )
    sets = drawn_sets(newest, per_category, seed)
    goals = list(_goal_rows(sets))
    found = list(_readings(newest, _kept(run, newest, modules), sets, backend or {}))
    files = {
        GOALS: _csv(GOAL_COLUMNS, goals),
        PREDICTIONS: _csv(PREDICTION_COLUMNS, _prediction_rows(found)),
        VECTORS: save({str(i): np.ascontiguousarray(r.vectors) for i, r in enumerate(found)}),
        ABOUT: (json.dumps(_about(newest, per_category, seed), indent=2) + "\n").encode(),
    }
    write_agent(output, files)
    return newest


def drawn_sets(agent: TrainedAgent, per_category: int, seed: int) -> list[EvaluationSet]:
    """Goals of both splits, drawn as for an evaluation."""
    phase = phases_of(agent.config)[agent.state["phase"] - 1]
    drawn = {"evaluation_goals": per_category, "evaluation_seed": seed}
    budget = agent.config.budget.model_copy(update=drawn)
    config = agent.config.model_copy(update={"budget": budget})
    return list(evaluated_goals(config, phase, agent.goals).values())


def _kept(run: Path, newest: TrainedAgent, modules: tuple[str, ...]) -> Iterator[TrainedAgent]:
    """Those of the checkpoints that were kept on the way, one after the other, oldest first."""
    last = newest.state["updates"]
    for point in points(run):
        agent = TrainedAgent.read(run / str(point), modules)
        if identity(agent.config) != identity(newest.config):
            raise InputError(f"{agent.path} is of another run than {newest.path}")
        if 0 < agent.state["updates"] < last:
            yield agent


def _readings(
    newest: TrainedAgent,
    kept: Iterator[TrainedAgent],
    sets: list[EvaluationSet],
    given: Mapping[str, str],
) -> Iterator[Read]:
    """What each agent makes of all goals, the newest one last; first, before training.

    A checkpoint holds the replay memory, too: no more than two are in memory at a time.
    """
    backend = newest.fresh(given)
    try:
        packed = PromptTokens(backend.codec)
        prompts = [packed.pack(each.space, each.positions) for each in sets]
        yield _read(backend, prompts, Point(0, 0, 0))
        for agent in itertools.chain(kept, [newest]):
            agent.load(backend)
            reached = (agent.state[key] for key in ("updates", "steps", "episodes"))
            yield _read(backend, prompts, Point(*reached))
    finally:
        backend.close()


def _read(backend: Backend, prompts: list[Packed], moment: Point) -> Read:
    vectors = np.concatenate([backend.representation(each) for each in prompts])
    competence = np.concatenate([backend.competence(each, (CURRENT,))[0] for each in prompts])
    return Read(moment, vectors, competence)


def _goal_rows(sets: list[EvaluationSet]) -> Iterator[tuple[Any, ...]]:
    number = 0
    for each in sets:
        space, positions = each.space, each.positions
        codes, kinds = space.codes_at(positions), _kinds(space, positions)
        for position, category, code, kind in zip(
            positions.tolist(), each.categories.tolist(), codes.tolist(), kinds, strict=True
        ):
            name = space.world.categories.names[category]
            yield number, space.split, name, kind, code, space.prompt(position)
            number += 1


def _kinds(space: GoalSet, positions: np.ndarray) -> list[str]:
    """In words, as the world tells them."""
    kinds = space.world.kinds(space, positions)
    if len(kinds) != len(positions) or not all(isinstance(each, str) and each for each in kinds):
        raise InputError(
            f"world {space.world.name}: kinds gives {shown(kinds[:3])} for {len(positions)} goals; "
            "allowed: a text for each goal"
        )
    return kinds


def _prediction_rows(found: list[Read]) -> Iterator[tuple[Any, ...]]:
    for number, read in enumerate(found):
        for goal, competence in enumerate(read.competence.tolist()):
            yield number, *read.moment, goal, float(f"{competence:.6g}")


def _about(agent: TrainedAgent, per_category: int, seed: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "identity": identity(agent.config),
        "config": agent.config.model_dump(mode="json"),
        "world": agent.goals.world.as_dict(),
        "per_category": per_category,
        "seed": seed,
        "complete": agent.complete,
        "made_by": agent.exported_by.as_dict(),
    }


def _csv(columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    # Quoted, so that a prompt may hold whatever ends a line.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()
