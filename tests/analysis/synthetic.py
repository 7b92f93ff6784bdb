"""Run folders with made-up numbers, in the format of a training run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.tables import SPLITS, TABLES
from magellan.littlezoo.goals import CATEGORIES

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
SPEED = {"random": 0, "online": 1, "ek_online": 2, "magellan": 3}


def experiment(samplers=SAMPLERS, goal_spaces=(GOAL_SPACE,), seeds=(0, 1), **analysis) -> dict:
    settings = {"bootstrap_repetitions": 200, "confidence": 0.95, "bootstrap_seed": 0}
    return {
        "experiment": "synthetic",
        "results": "results",
        "preset": "smoke",
        "samplers": list(samplers),
        "goal_spaces": list(goal_spaces),
        "seeds": list(seeds),
        "overrides": {},
        "analysis": settings | analysis,
    }


def write_run(
    folder: Path, sampler: str, goal_space: str, seed: int, episodes=16_000, every=1_000, goals=64
) -> Path:
    """One run's tables and manifest; success follows a logistic curve per category, plus noise."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, SPEED[sampler]])
    points = range(0, episodes + 1, every)
    shift = 1.0 + 0.15 * rng.standard_normal()

    def chance(episode: float, category: str, split: str) -> float:
        half = HALF[category][SPEED[sampler]] * shift * (1.15 if split == "unseen" else 1.0)
        return 0.02 + 0.95 / (1.0 + np.exp(-4.0 * (episode - half) / half))

    evaluation, competence = [], []
    for point, split, category in itertools.product(points, SPLITS, FEASIBLE):
        update = point // 10
        success = rng.binomial(goals, chance(point, category, split)) / goals
        evaluation.append((update, update * 32, point, split, category, goals, success))
    splits = {"random": (), "online": ("train",), "ek_online": ("train",), "magellan": SPLITS}
    for point, split, category in itertools.product(points, splits[sampler], CATEGORIES):
        update = point // 10
        now, delayed = 0.02, 0.015
        if category != "impossible":
            now = chance(max(0, point - 500), category, split)
            delayed = chance(max(0, point - 1_500), category, split)
        row = (update, update * 32, point, split, category, goals, now, delayed, abs(now - delayed))
        competence.append(row)
    practice = []
    for end in range(every // 2, episodes + 1, every // 2):
        weights = np.array([1_000, 400, 200, 100, 50], dtype=float)
        if sampler in ("ek_online", "magellan"):
            progress = [0.0]
            for category in FEASIBLE:
                progress.append(
                    chance(end, category, "train") - chance(end - 1_000, category, "train")
                )
            weights = 0.25 * weights / weights.sum() + np.array(progress) * 3
        counts = rng.multinomial(every // 2, weights / weights.sum())
        rates = [0.0, *(chance(end, category, "train") for category in FEASIBLE)]
        for category, count, rate in zip(CATEGORIES, counts, rates, strict=True):
            practice.append((end, category, count, rng.binomial(count, rate)))
    training = [
        (update, update * 32, update * 10, 0.1, None, 1.2, 0.02, None, 0.5)
        for update in range(0, episodes // 10, 200)
    ]
    tables = (evaluation, competence, practice, training)
    for (name, spec), rows in zip(TABLES.items(), tables, strict=True):
        pd.DataFrame(rows, columns=spec.columns).to_csv(folder / f"{name}.csv", index=False)
    manifest = {
        "schema_version": 1,
        "sampler": sampler,
        "goal_space": goal_space,
        "seed": seed,
        "preset": "smoke",
        "config": {
            "sampler": sampler,
            "goal_space": goal_space,
            "seed": seed,
            "budget": {"episodes": episodes},
        },
        "wall_seconds": 100.0 + seed,
        "episodes": episodes,
        "status": "complete",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def write_runs(root: Path, declared: dict, **settings) -> list[Path]:
    """All runs that an experiment declares, below `root`."""
    grid = itertools.product(declared["samplers"], declared["goal_spaces"], declared["seeds"])
    return [
        write_run(
            root / sampler / goal_space / f"seed{seed}", sampler, goal_space, seed, **settings
        )
        for sampler, goal_space, seed in grid
    ]
