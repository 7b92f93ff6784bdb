"""Run folders with made-up numbers, in the format of a training run."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.figures import FIGURES
from analysis.tables import store
from analysis.tables.printing import render
from analysis.tables.results import SPLITS, TABLES, Results
from magellan.config import counted, estimators_of, grid, load_experiment
from magellan.samplers import SAMPLERS as REGISTERED
from magellan.worlds.little_zoo.goals import CATEGORIES

FEASIBLE = CATEGORIES[1:]
SAMPLERS = ("random", "online", "ek_online", "magellan")
GOAL_SPACE = "1000-400-200-100-50"
# Episodes at which a category is half learnt: (random, online, ek_online, magellan).
HALF = {
    "grasp": (2_000, 1_800, 1_500, 1_400),
    "grow_plant": (9_000, 8_000, 5_000, 4_500),
    "grow_herbivore": (24_000, 20_000, 11_000, 10_000),
    "grow_carnivore": (60_000, 50_000, 22_000, 17_000),
}
PLAIN_FIGURES = tuple(name for name, spec in FIGURES.items() if not spec.phased)
"""Those of runs with one phase."""
VARIANTS = {"whole": {}, "small": {"competence": {"buffer": 100}}}
"""Two variants that differ for `magellan` only."""


def experiment(samplers=SAMPLERS, goal_spaces=(GOAL_SPACE,), seeds=(0, 1), **changes) -> dict:
    """Configuration of a grid; keys of `analysis` may be given by themselves."""
    analysis = {"bootstrap_repetitions": 200, "confidence": 0.95, "bootstrap_seed": 0}
    for key in (*analysis, "reference"):
        if key in changes:
            analysis[key] = changes.pop(key)
    return {
        "experiment": "synthetic",
        "results": "results",
        "preset": "smoke",
        "samplers": list(samplers),
        "goal_spaces": list(goal_spaces),
        "seeds": list(seeds),
        "overrides": {},
        "analysis": analysis,
        **changes,
    }


VARIED = experiment(("online", "magellan"), variants=VARIANTS)


def plan(declared: dict) -> list:
    return grid(load_experiment(declared))


class Learner:
    """How the agent of a run gets better: a logistic curve per category."""

    def __init__(self, run) -> None:
        place = SAMPLERS.index(run.sampler if run.sampler in SAMPLERS else "online")
        # Another variant learns later, and with other noise.
        late = 0 if run.variant in ("default", "whole") else 1 + len(run.variant)
        self.rng = np.random.default_rng([run.seed, place, late])
        self.shift = (1.0 + 0.15 * self.rng.standard_normal()) * (1.4 if late else 1.0)
        self.half = {category: speeds[place] for category, speeds in HALF.items()}

    def chance(self, episode: float, category: str, split: str) -> float:
        half = self.half[category] * self.shift * (1.15 if split == "unseen" else 1.0)
        return 0.02 + 0.95 / (1.0 + np.exp(-4.0 * (episode - half) / half))


def counts_at(run, point: int) -> tuple[int, int, int]:
    """Update, step and episode at an evaluation point, in the unit of the run's budget."""
    return {
        "episodes": (point // 10, point // 10 * 32, point),
        "steps": (point // 32, point, point // 3),
        "updates": (point, point * 32, point * 10),
    }[run.config.budget.unit]


def practised(run, end: int) -> int:
    """Episodes of a run of this length; runs that end by another unit have various numbers."""
    episodes = counts_at(run, end)[2]
    return episodes if run.config.budget.unit == "episodes" else episodes + 7 * run.seed


def tables_of(run, episodes: int, every: int, goals: int) -> dict[str, list]:
    learner = Learner(run)
    points = range(0, episodes + 1, every)
    evaluation = []
    for point, split, category in itertools.product(points, SPLITS, FEASIBLE):
        success = learner.rng.binomial(goals, learner.chance(point, category, split)) / goals
        where = (*counts_at(run, point), split, category, goals)
        evaluation.append((*where, f"{success:.6g}", 0.25, 0.125, 0.5))  # and of the critic
    competence = []
    names = estimators_of(run.config)
    for (at, name), point, split, category in itertools.product(
        enumerate(names), points, SPLITS, CATEGORIES
    ):
        now, delayed = 0.02, 0.015
        if category != "impossible":
            now = learner.chance(max(0, point - 500 * (at + 1)), category, split)
            delayed = learner.chance(max(0, point - 1_500 * (at + 1)), category, split)
        where = (*counts_at(run, point), name, split, category, goals)
        competence.append((*where, now, delayed, abs(now - delayed)))
    updates = counts_at(run, episodes)[0]
    record_every = run.config.budget.record_every
    training = [
        (update, update * 32, update * 10, 0.1, None, 1.2, 0.02, None, 0.5)
        for update in range(record_every, updates + 1, record_every)
    ]
    return {
        "evaluation": evaluation,
        "competence": competence,
        "practice": practice_of(run, learner, practised(run, episodes), every // 2),
        "training": training,
    }


def practice_of(run, learner: Learner, episodes: int, window: int) -> list:
    rows = []
    start = 0
    for end in sorted({*range(window, episodes + 1, window), episodes}):
        weights = np.array([1_000, 400, 200, 100, 50], dtype=float)
        if run.sampler in ("ek_online", "magellan"):
            progress = [0.0]
            for category in FEASIBLE:
                before = learner.chance(end - 1_000, category, "train")
                progress.append(learner.chance(end, category, "train") - before)
            weights = 0.25 * weights / weights.sum() + np.array(progress) * 3
        counts = learner.rng.multinomial(end - start, weights / weights.sum())
        start = end
        rates = [0.0, *(learner.chance(end, category, "train") for category in FEASIBLE)]
        for category, count, rate in zip(CATEGORIES, counts, rates, strict=True):
            rows.append((end, category, count, learner.rng.binomial(count, rate)))
    return rows


def manifest_of(run, episodes: int) -> dict:
    estimators = estimators_of(run.config)
    costs = {"evaluated_goals": 300, "evaluated_buckets": 200}
    return {
        "schema_version": 2,
        "sampler": run.sampler,
        "goal_space": run.goal_space,
        "seed": run.seed,
        "preset": run.config.preset,
        "config": run.config.model_dump(mode="json"),
        "identity": run.identity,
        "counted": counted(run.config),
        "driver": REGISTERED[run.sampler].estimator,
        "estimation_episodes": {name: costs.get(name, 0) for name in estimators},
        "modules": {},
        "code_version": "0.1.0+0123456789ab",
        "versions": {"python": "3.12.1", "torch": "2.9.0"},
        "updates": counts_at(run, episodes)[0],
        "wall_seconds": 100.0 + run.seed,
        "episodes": practised(run, episodes),
        "status": "complete",
    }


def write_run(folder: Path, run, episodes=16_000, every=1_000, goals=64) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables_of(run, episodes, every, goals).items():
        pd.DataFrame(rows, columns=TABLES[name].columns).to_csv(folder / f"{name}.csv", index=False)
    (folder / "manifest.json").write_text(json.dumps(manifest_of(run, episodes)))
    return folder


def write_runs(results: Path, declared: dict, **settings) -> list[Path]:
    """All runs that an experiment declares, where they lie in a results folder."""
    return [write_run(results / run.path, run, **settings) for run in plan(declared)]


def with_tables(results: Results, **frames) -> Results:
    return Results({**results.tables, **frames}, results.manifest)


def with_manifest(results: Results, **changes) -> Results:
    return Results(results.tables, {**results.manifest, **changes})


def with_configs(results: Results, **changes) -> Results:
    runs = [{**run, "config": {**run["config"], **changes}} for run in results.manifest["runs"]]
    return with_manifest(results, runs=runs)


def to_markdown(module, results, *arguments):
    """Tables of a module of the analysis, as its command prints them."""
    note = module.note(results) if hasattr(module, "note") else ""
    return render(module.tables(results, *arguments), note=note)


def frame_of(table):
    return pd.DataFrame(table.rows, columns=table.columns)


def combined(folder, *arguments, episodes=16_000, **changes):
    """Results of made-up runs written below a folder; arguments of `experiment`."""
    declared = experiment(*arguments, **changes)
    return store.combine(write_runs(folder, declared, episodes=episodes), declared)
