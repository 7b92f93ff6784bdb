"""A run stopped anywhere and resumed from its checkpoint leaves the same files."""

import pytest

from magellan.config import resolve_run
from magellan.jobs.checkpoint import Checkpoints
from magellan.training.answers import make_trainer
from tests.runs import EVALUATED, config, contents, finish, watchers

STOPS = (0, 5, 12)  # updates
PHASES = [{"until": 60, "sampler": "magellan", "seed": 5}, {"goals": {"split": "unseen"}}]
GROUPS = {"refresh": 2, "delay": 4, "regroup": 3, "regions": 6}
ERRORS = {"false_positive": 0.3, "false_negative": 0.2}
SHORT = {"episodes": 40, "evaluate_every": 40}
RUNS = {
    "steps": config(budget={"steps": 700, "evaluate_every": 300, "record_outcomes": True}),
    "watched by all": config(
        observers=watchers("magellan"), budget={"record_goals": True}, **EVALUATED
    ),
    **{
        adapter: config(competence={"refresh": 2, "delay": 4, "adapter": adapter}, budget=SHORT)
        for adapter in ("shared", "ignored")
    },
    "ignored, then fewer goals": config(
        competence={"refresh": 1, "delay": 20, "adapter": "ignored"},
        phases=[{"until": 20}, {"goal_space": "9-8-7-6-5"}],
        budget={"episodes": 40, "evaluate_every": 20, "practice_window": 20},
    ),
    "regions": config("regions", competence=GROUPS),
    "frontier": config("frontier", competence={"refresh": 2, "delay": 4}, frontier={"kinds": 6}),
    "asked": config(
        "experimenter_goals",
        experimenter_goals={"ask_every": 3, "retrieved": 3},
        phases=[{"until": 60, "sampler": "experimenter"}, {"goals": {"split": "unseen"}}],
        experimenter={"ask_every": 3},
    ),
    "an evaluator that errs": config(
        "proposer", rewards={**ERRORS, "model": "scripted"}, proposer={"ask_every": 3}
    ),
    "phases": config("online", phases=PHASES, observers=["learned", "expert_buckets"]),
    "features": config(
        "alp_gmm",
        phases=[{"until": 60, "sampler": "vds"}, {"goals": {"split": "unseen"}}],
        alp_gmm={"fit_every": 50},
    ),
    "answers": resolve_run(
        "grpo",
        [
            {"world": "digits", "goal_space": "8-8-8-4-4-2-2", "sampler": "plr"},
            {"grpo": {"prompts": 3, "answers": 4}, "observers": ["learned"]},
            {"budget": {"steps": 900, "evaluate_every": 300, "record_outcomes": True}},
        ],
    ),
    "all goals": config("online", goal_space="all", competence={"pool": 25_000}, budget=SHORT),
}


def written(trainer, folder):
    folder.mkdir()
    trainer.record.write(folder)
    return contents(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_stopped_and_resumed_it_leaves_the_same_files(name, tmp_path):
    straight, checkpoints, states = make_trainer(RUNS[name]), Checkpoints(tmp_path, RUNS[name]), {}
    while not straight.done:
        if straight.updates in STOPS:
            path = checkpoints.save(straight.state_dict())
            assert path.stat().st_size < 4_000_000  # no entry for each of millions of goals
            states[straight.updates] = checkpoints.load().state
        straight.advance()
    expected = written(straight, tmp_path / "straight")
    assert set(states) >= set(STOPS[:2])
    for updates, state in states.items():
        resumed = make_trainer(RUNS[name])
        resumed.load_state_dict(state)
        assert written(finish(resumed), tmp_path / str(updates)) == expected
