"""A recording holds the predictions, survives a kill, and is verified by checksums."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from analysis.__main__ import main
from analysis.studies import recording
from magellan.config import identity, resolve_run
from magellan.core.codec import stack
from magellan.core.errors import InputError
from magellan.samplers.signals import learnability
from magellan.training.loop import Trainer
from magellan.training.recording import CHECKSUMS, PREDICTIONS, RECORDED
from tests.runs import error_line, trained
from tests.snippets import write_files

LAYER = {
    "sampler": "magellan",
    "goal_space": "40-20-10-5-5",
    "competence": {"refresh": 2, "delay": 4, "learning_rate": 1e-2},
    "samplers": {"epsilon_decay": 5.0},
    "magellan": {"lp_threshold": 0.002},
}


def config(**layer):
    return resolve_run("smoke", [LAYER, {"budget": {"record_predictions": True}}, layer])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return trained(config(), folder)


def expected_of(trainer: Trainer) -> tuple[np.ndarray, ...]:
    """Recomputed current and delayed competence; hidden states; share of exploiting draws."""
    estimator, goals = trainer.sampler.estimator, trainer.goals
    every = np.arange(len(goals))
    prompts = [goals.prompt(int(goal)) for goal in every]
    packed = stack(trainer.backend.codec.pack(prompts, [()] * len(prompts)))
    vectors = trainer.backend.representation(packed)
    kinds = goals.categories_at(every)
    epsilon, chance = trainer.sampler.epsilon, np.bincount(kinds, trainer.sampler.probabilities())
    exploited = (chance - epsilon * np.bincount(kinds) / len(every)) / max(1 - epsilon, 1e-9)
    return (*estimator.predict(goals, every), vectors, exploited)


def test_values_are_those_of_the_estimator_at_each_refresh(run):
    trainer = Trainer(config())
    expected = {0: expected_of(trainer)}
    while not trainer.done:
        trainer.advance()
        if trainer.updates % 2 == 0 and trainer.updates not in expected:
            expected[trainer.updates] = expected_of(trainer)
    arrays = load_file(run / PREDICTIONS)
    assert arrays["updates"].tolist() == list(expected)
    assert len(expected) > 8
    now, delayed, _, shares = zip(*expected.values(), strict=True)
    np.testing.assert_allclose(arrays["now"], now, rtol=1e-3)
    np.testing.assert_allclose(arrays["delayed"], delayed, rtol=1e-3)
    assert np.abs(np.diff(arrays["now"].astype(float), axis=0)).max(axis=1).min() > 1e-3
    loaded = recording.load(run)
    by_rule = recording.shares(loaded, recording.recorded_rule(loaded))
    np.testing.assert_allclose(by_rule[1:], shares[1:], atol=0.03)
    assert arrays["now"].dtype == arrays["delayed"].dtype == np.float16
    vectors = {int(name[8:]): arrays[name] for name in arrays if name.startswith("vectors_")}
    assert len(vectors) == 6
    for update, recorded in vectors.items():
        assert recorded.dtype == np.float16
        np.testing.assert_allclose(recorded, expected[update][2], rtol=2e-3, atol=2e-3)
    assert not np.allclose(vectors[0], vectors[max(vectors)], atol=5e-3)


def test_goals_and_header_are_those_of_the_run(run):
    loaded, goals = recording.load(run), Trainer(config()).goals
    every = np.arange(len(goals))
    np.testing.assert_array_equal(loaded.codes, goals.codes_at(every))
    np.testing.assert_array_equal(loaded.categories, goals.categories_at(every))
    assert loaded.header["identity"] == identity(config())
    assert loaded.header["categories"] == list(goals.world.categories.names)
    assert loaded.header["threshold"] == 0.002
    assert set(loaded.episodes["explored"]) == {0, 1}
    at = {code: place for place, code in enumerate(loaded.codes.tolist())}
    for goal, number in loaded.episodes[["goal", "number"]].itertuples(index=False):
        assert loaded.categories[at[goal]] == number


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"sampler": "online"}, ("sampler 'online'", "learned")),
        ({"competence": {"pool": 79}}, ("80 goals", "competence.pool = 79")),
        ({"phases": [{"until": 60}, {}]}, ("phases", "one phase")),
    ],
)
def test_what_cannot_be_recorded_is_refused_at_once(layer, words):
    with pytest.raises(InputError, match=r"budget\.record_predictions: true") as refused:
        config(**layer)
    assert all(word in str(refused.value) for word in words)


def test_the_command_prints_what_was_practised_beside_what_the_rule_draws(run, capsys):
    assert main(["recording", str(run)]) == 0
    printed = capsys.readouterr().out
    loaded = recording.load(run)
    drawn = loaded.episodes[loaded.episodes["explored"] == 0]
    last = loaded.episodes["update"].max()
    grasped = (drawn["category"] == "grasp").mean()
    whole = next(line for line in printed.splitlines() if line.startswith(f"| 1 to {last} |"))
    assert whole.split(" | ")[1] == str(len(drawn))
    assert whole.split(" | ")[3].split(" / ")[0] == f"{grasped:.3f}"
    assert f"{len(loaded.updates)} refreshes of 80 goals" in printed


def flipped(name: str):
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-3] ^= 1
        (folder / name).write_bytes(content)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flipped(PREDICTIONS), (PREDICTIONS, "its SHA-256 begins with")),
        (flipped("outcomes.csv"), ("outcomes.csv", "its SHA-256 begins with")),
        (flipped(CHECKSUMS), (CHECKSUMS, "not the checksums")),
        (lambda folder: (folder / PREDICTIONS).unlink(), (PREDICTIONS, "missing")),
        (lambda folder: (folder / CHECKSUMS).unlink(), (CHECKSUMS, "missing")),
        (lambda folder: (folder / CHECKSUMS).write_text(""), (CHECKSUMS, "not the checksums")),
    ],
)
def test_damage_is_refused_in_one_line(change, words, run, tmp_path, capsys):
    for name in (*RECORDED, CHECKSUMS):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert main(["recording", str(tmp_path)]) == 0
    change(tmp_path)
    capsys.readouterr()
    assert main(["recording", str(tmp_path)]) == 2
    error = error_line(capsys)
    assert all(word in error for word in (*words, "budget.record_predictions"))


def test_the_rule_of_the_page_draws_what_the_analysis_says(run, tmp_path, capsys, monkeypatch):
    script = write_files("docs/runs.md", tmp_path)["learnability.py"]
    monkeypatch.setattr(sys, "argv", [script, str(run)])
    runpy.run_path(script)
    lines = capsys.readouterr().out.splitlines()
    loaded = recording.load(run)
    shares = recording.shares(loaded, learnability)
    for line, update, row in zip(lines, loaded.updates, shares, strict=True):
        first, _, rest = line.partition(" ")
        assert int(first) == update
        assert np.fromstring(rest.strip("[]"), sep=" ") == pytest.approx(row, abs=6e-4)


def by_hand() -> recording.Recording:
    """Four goals of two categories; no episodes before update 10."""
    episodes = pd.DataFrame(
        [(1, 0, 0), (10, 1, 0), (11, 1, 0), (12, 0, 1), (20, 0, 0)],
        columns=["update", "number", "explored"],
    )
    now = np.array([[0.5, 0.5, 0.5, 0.5], [0.5, 0.9, 0.5, 0.8]], np.float16)
    delayed = np.array([[0.5] * 4, [0.5, 0.5, 0.505, 0.7]], np.float16)
    kinds = np.array([0, 1, 0, 0], np.int8)
    about = {"identity": "x", "categories": ["a", "b"], "threshold": 0.01}
    updates = np.array([0, 10])
    return recording.Recording(about, updates, now, delayed, kinds, kinds, {}, episodes)


def test_shares_by_hand():
    """Uniform without progress; then .4 for b and .1 for a, ignoring a small change."""
    loaded = by_hand()
    shares = recording.shares(loaded, recording.recorded_rule(loaded))
    np.testing.assert_allclose(shares, [[0.75, 0.25], [0.2, 0.8]], atol=2e-3)


def test_draws_count_at_the_refresh_before_their_end_and_explored_ones_nowhere():
    loaded = by_hand()
    table = recording.compare_draws(loaded, recording.recorded_rule(loaded))
    whole = table.tail(2).set_index("category")
    assert whole["draws"].tolist() == [4, 4]
    assert whole.loc["b", "practised"] == 0.5
    assert whole.loc["b", "by_rule"] == pytest.approx((2 * 0.25 + 2 * 0.8) / 4, abs=2e-3)
    assert table["draws"].iloc[:-2].sum() == 8
