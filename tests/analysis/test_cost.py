"""Episodes of a category until it is mastered, worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.studies import cost
from analysis.studies.cost import costs
from analysis.tables.printing import to_markdown
from analysis.tables.results import TABLES, Results
from tests.snippets import ROOT

RUN = {"sampler": "scripted", "variant": "slow.stairs", "goal_space": "25k", "seed": 1}
CATEGORIES = ("impossible", "grasp", "grow_plant", "grow_herbivore", "grow_carnivore")


def table(name: str, rows: list[dict]) -> pd.DataFrame:
    columns = [*RUN, *TABLES[name].columns]
    return pd.DataFrame([{**RUN, **row} for row in rows]).reindex(columns=columns)


@pytest.fixture
def results() -> Results:
    """Grasping is mastered at episode 150, in the middle of the second window; plants never."""
    looks = [(0, 0, 0.1, 0.0), (40, 150, 0.9, 0.2), (80, 300, 0.5, 0.8)]
    evaluation = [
        {"step": step, "episode": episode, "split": split, "category": category, "n": 10}
        | {"success": success if split == "train" else 1.0, "dormant": step / 100, "spread": 0.5}
        for step, episode, *rates in looks
        for split in ("train", "unseen")
        for category, success in zip(CATEGORIES[1:3], rates, strict=True)
    ]
    shares = {"impossible": (0, 0, 0), "grasp": (90, 40, 30), "grow_plant": (10, 60, 70)}
    practice = [
        {"episode": 100 * (window + 1), "category": category, "n": n[window], "successes": 0}
        for window in range(3)
        for category, n in shares.items()
    ]
    manifest = {
        "experiment": {"goal_spaces": ["25k"], "samplers": ["scripted"], "variants": {}},
        "runs": [{**RUN, "config": {"budget": {"steps": 80}, "world": "little_zoo"}}],
    }
    frames = {
        "evaluation": table("evaluation", evaluation),
        "practice": table("practice", practice),
    }
    return Results(frames, manifest)


def test_cost_is_counted_up_to_the_first_evaluation_at_nine_tenths(results: Results) -> None:
    frame = costs(results).set_index("category")
    assert list(frame.index) == ["grasp", "grow_plant"]
    grasp, plant = frame.loc["grasp"], frame.loc["grow_plant"]
    assert (grasp["cost"], grasp["length"]) == (90 + 20, 40)  # half of the second window's 40
    assert (grasp["practised"], grasp["best"], grasp["success"]) == (160, 0.9, 0.5)
    assert np.isnan(plant["cost"])
    assert np.isnan(plant["length"])
    assert (plant["practised"], plant["best"], plant["dormant"]) == (140, 0.8, 0.8)


def test_the_table_shows_what_was_never_mastered(results: Results) -> None:
    text = to_markdown(cost.table(costs(results)))
    assert "| slow.stairs | grasp | 110 | 1 | 0.80 | 0.50 |" in text
    assert "| slow.stairs | grow_plant | never in 140 (0.80) | 1 | 0.80 | 0.50 |" in text


def test_other_tables_are_refused(refused) -> None:
    words = "error: cost: no run has the sampler scripted; allowed: tables with such runs"
    assert refused("cost", ROOT / "results/reference/smollm2") == f"{words}\n"
