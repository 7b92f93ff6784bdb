"""The truth in place of its sample: what the simulated learner could do, rebuilt from its practice.

The world `simulated` knows each goal's competence. Its evaluation draws outcomes from it, with the
same chances each time, so what it observes is off by the same amount in all runs. What the learner
practised is in the tables, and its competence follows from that.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.results import Results
from magellan.core.errors import InputError
from magellan.worlds import DEFAULT_WORLD
from magellan.worlds.simulated import KINDS, SimulatedWorld, chance, practised

RUN = list(RUN_COLUMNS)


def with_known_competence(results: Results) -> Results:
    """The same tables with the learner's competence as success of every evaluation.

    Within a window of the table of practice, goals are taken to be spread evenly, as their order is
    not recorded.

    Raises:
        InputError: another world, or runs of several phases, whose earlier practice is not there.
    """
    for run in results.manifest["runs"]:
        world = run["config"].get("world", DEFAULT_WORLD)
        if world != SimulatedWorld.name:
            raise InputError(
                f"known competence: world is {world!r}; allowed: {SimulatedWorld.name}"
            )
        if run["config"].get("phases"):
            raise InputError("known competence: runs have phases; allowed: runs of one phase")
    practice = dict(tuple(results.tables["practice"].groupby(RUN, sort=False)))
    evaluation = results.tables["evaluation"].copy()
    for run, rows in evaluation.groupby(RUN, sort=False):
        skills = skills_of(practice[run], rows["episode"].max())
        evaluation.loc[rows.index, "success"] = [
            float(chance(skills[episode], np.array([KINDS.index(category)]), split)[0])
            for episode, category, split in zip(
                rows["episode"], rows["category"], rows["split"], strict=True
            )
        ]
    return Results({**results.tables, "evaluation": evaluation}, results.manifest)


def skills_of(practice: pd.DataFrame, episodes: int) -> np.ndarray:
    """Skill in each kind after each number of episodes: float64 (episodes + 1, kinds).

    Args:
        practice: one run's table of practice.
        episodes: how far.
    """
    counts = practice.pivot_table(index="episode", columns="category", values="n", aggfunc="sum")
    counts = counts.reindex(columns=list(KINDS)).fillna(0.0).sort_index()
    ends = np.concatenate([[0], counts.index.to_numpy()])
    done = np.concatenate([np.zeros((1, len(KINDS))), counts.to_numpy().cumsum(axis=0)])
    points = np.arange(episodes + 1)
    practised_by = np.column_stack([np.interp(points, ends, column) for column in done.T])
    skills = np.zeros((episodes + 1, len(KINDS)))
    for episode, tried in enumerate(np.diff(practised_by, axis=0), start=1):
        skills[episode] = practised(skills[episode - 1], tried)
    return skills
