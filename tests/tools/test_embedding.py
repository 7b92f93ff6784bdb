"""`python -m magellan embed`: vectors and predictions are the estimator's, then and now."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from magellan.cli import main
from magellan.competence.prompt_tokens import PromptTokens
from magellan.config import resolve_run
from magellan.core.errors import InputError
from magellan.jobs import run
from magellan.jobs.checkpoint import points
from magellan.jobs.trained import TrainedAgent
from magellan.tools.embed import embed
from tests.agent.tiny import close, in_float64
from tests.runs import refusal, rows
from tests.tools.conftest import config


@pytest.fixture(scope="module")
def read(complete, tmp_path_factory):
    output = tmp_path_factory.mktemp("embedding") / "out"
    newest = TrainedAgent.read(complete)
    embed(newest, output, per_category=4, seed=5)
    on_the_way = [TrainedAgent.read(complete / str(point)) for point in points(complete)]
    agents = [a for a in on_the_way if a.state["updates"] < newest.state["updates"]]
    agents.append(newest)
    vectors = load_file(output / "vectors.safetensors")
    return agents, rows(output, "goals"), rows(output, "predictions"), vectors


def test_moments_are_the_start_what_was_kept_and_the_end(read):
    agents, goals, predictions, vectors = read
    updates = [0, *(agent.state["updates"] for agent in agents)]
    assert len(agents) == 3
    assert updates == sorted(set(updates))
    moments = {int(row["moment"]): int(row["update"]) for row in predictions}
    assert [moments[i] for i in range(4)] == updates
    assert sorted(vectors) == ["0", "1", "2", "3"]
    assert len(predictions) == 4 * len(goals)


@pytest.mark.parametrize("moment", [1, 3])
def test_the_head_of_that_time_makes_its_prediction_of_the_vectors(read, moment):
    agents, _, predictions, vectors = read
    head = agents[moment - 1].state["backend"]["competence"]["head"]
    hidden = np.tanh(vectors[str(moment)] @ head["0.weight"].T + head["0.bias"])
    expected = 1 / (1 + np.exp(-(hidden @ head["2.weight"].T + head["2.bias"])[:, 0]))
    found = [float(row["competence"]) for row in predictions if row["moment"] == str(moment)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_last_moment_is_the_present_agent(complete, read):
    *_, _predictions, vectors = read
    agent = TrainedAgent.read(complete)
    backend, goals = agent.backend({}), agent.goals
    assert np.abs(vectors["3"] - vectors["2"]).max() > 1e-4  # the adapter has moved
    prompts = PromptTokens(backend.codec).pack(goals, np.arange(len(goals)))
    training = vectors["3"][:20]

    def nearest():
        present = backend.representation(prompts)
        return present[np.abs(training[:, None] - present[None]).max(axis=2).argmin(axis=1)]

    present = nearest()
    with in_float64(backend):
        close(training, present, nearest())


def test_the_command_prints_and_records_what_it_has_written(complete, tmp_path, capsys):
    few = ["--per-category", "1"]
    assert main(["embed", str(complete), *few, "--output", str(tmp_path / "e")]) == 0
    assert "from before training to update " in capsys.readouterr().out
    about = json.loads((tmp_path / "e/embedding.json").read_text())
    assert about["config"]["sampler"] == "magellan"
    assert about["world"]["categories"][0]["name"] == "impossible"


def test_a_run_that_predicts_nothing_is_refused(tmp_path):
    other = config().model_dump(mode="json") | {"sampler": "random", "observers": []}
    run.train(resolve_run("smoke", [other]), tmp_path / "run", resume=False, progress="none")
    with pytest.raises(InputError, match="has no estimator on its language model; allowed: a run"):
        embed(TrainedAgent.read(tmp_path / "run"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_run_is_refused(spoiled, tmp_path):
    other = config(keep_every=50).model_copy(update={"seed": 4})
    run.train(other, tmp_path / "other", resume=False, progress="none")
    shutil.rmtree(spoiled / "50")
    shutil.copytree(tmp_path / "other/50", spoiled / "50")
    assert "is of another run than" in refusal(embed, TrainedAgent.read(spoiled), tmp_path / "out")
