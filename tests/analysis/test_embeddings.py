"""Pictures and numbers of how an estimator reads goals."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from analysis.figures.embeddings import PREDICTIONS, draw, load
from magellan.worlds import WORLDS
from tests.inputs.test_refusals import cell, gone, put
from tests.runs import refusal

NAMES = ("impossible", "grasp", "grow_plant")
EACH = 12


def write(folder, vectors, kinds=None):
    """Twelve goals of each of three categories, the same of both splits; one moment per array."""
    folder.mkdir(exist_ok=True)
    goals, names = pd.DataFrame({"goal": range(6 * EACH)}), np.tile(np.repeat(NAMES, EACH), 2)
    goals["split"], goals["category"] = np.repeat(["train", "unseen"], 3 * EACH), names
    goals["kind"], goals["code"] = names if kinds is None else kinds, goals["goal"]
    goals.assign(prompt="Goal: x\nAction: ").to_csv(folder / "goals.csv", index=False)
    predictions = goals[["goal"]].assign(competence=np.linspace(0, 1, len(goals)))
    numbers = range(len(vectors))
    moments = [predictions.assign(moment=at, update=at, step=at, episode=20 * at) for at in numbers]
    pd.concat(moments)[list(PREDICTIONS.columns)].to_csv(folder / "predictions.csv", index=False)
    save_file({str(i): array for i, array in enumerate(vectors)}, folder / "vectors.safetensors")
    run = {"sampler": "magellan", "goal_space": "25k", "seed": 3, "world": "little_zoo"}
    about = {"format": 1, "config": run, "world": WORLDS["little_zoo"].as_dict()}
    (folder / "embedding.json").write_text(json.dumps(about))
    return folder


def clusters(spread, seed=0):
    noise = np.random.default_rng(seed).normal(size=(6 * EACH, 3)) * spread
    corners = np.tile(np.repeat(np.eye(3), EACH, axis=0), (2, 1))
    return (corners + noise).astype(np.float32)


def test_the_command_draws_the_same_bytes_twice(tmp_path, printed):
    folder = write(tmp_path / "e", [clusters(1.0), clusters(0.1)])
    pictures = []
    for name in ("a", "b"):
        printed("embeddings", folder, "--stem", tmp_path / name)
        pictures.append([(tmp_path / f"{name}.{end}").read_bytes() for end in ("png", "pdf")])
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("by", ["category", "kind"])
def test_a_panel_for_each_moment_and_a_mark_for_each_goal(tmp_path, by):
    kinds = np.tile(np.repeat(["no water", "no plant", "Grasp", "Grow plant"], [4, 8, 12, 12]), 2)
    figure = draw(load(write(tmp_path / "e", [clusters(1.0), clusters(0.1)], kinds)), by)
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["Before training", "Episode 20"]
    for ax in panels:
        sizes = [len(points.get_offsets()) for points in ax.collections]
        assert sum(size for size in sizes if size > 1) == 6 * EACH
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    named = {"category": ["Impossible"], "kind": ["no plant", "no water"]}[by]
    assert labels == [*named, "Grasp", "Grow plant", "Training goals", "Unseen goals"]


# Folders that are spoiled, by the words of the error.
SPOILT = {
    "goals.csv: file is missing": gone("goals.csv"),
    "cannot be read (KeyError": put("embedding.json", "config", {}),
    "category is 'fly' for goal 0; allowed: impossible, grasp": cell(
        "goals.csv", "category", "fly"
    ),
    "goals are not numbered": cell("goals.csv", "goal", "7"),
    "allowed: finite numbers, a row for each of the 72 goals": lambda folder: save_file(
        {"0": clusters(1.0)[:5]}, folder / "vectors.safetensors"
    ),
    "moments are not those of vectors.safetensors": lambda folder: save_file(
        {"1": clusters(1.0)}, folder / "vectors.safetensors"
    ),
}


@pytest.mark.parametrize("words", SPOILT)
def test_what_cannot_be_read_is_refused_in_one_line(words, tmp_path):
    folder = write(tmp_path / "e", [clusters(1.0)])
    SPOILT[words](folder)
    assert words in refusal(load, folder)
