"""An agent plays one episode in the terminal, as it plays in an evaluation."""

import io
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from magellan.backends import CURRENT, DELAYED
from magellan.cli import main
from magellan.core.codec import stack
from magellan.jobs.trained import TrainedAgent
from magellan.tools.watch import chosen_goal, watch
from magellan.training.evaluate import play
from tests.runs import error_line, printed
from tests.snippets import raising

LION = ["--goal", "Grow lion", "--objects", "lion", "water", "cow", "carrot"]
LINE = re.compile(r"  (\S.*?) +(\d\.\d{3}) (#*) *  Q +(-?\d+\.\d{3})")


@pytest.fixture(scope="module")
def agent(complete):
    return TrainedAgent.read(complete)


@pytest.fixture(scope="module")
def backend(agent):
    return agent.backend({})


def watched(agent, backend, seed=0, greedy=False, words=LION, answers=None, category=None):
    """Whether the goal was reached, and the output."""
    named = (words[1], words[3:]) if words else (None, None)
    out, pause = io.StringIO(), None if answers is None else io.StringIO(answers)
    goal = chosen_goal(agent, *named, category, seed)
    return watch(agent, backend, *goal, seed, greedy, out, pause), out.getvalue()


def steps_of(text):
    """Prompt, [(action, probability, bar, Q)] and action taken of each step."""
    for part in text.split("\nStep ")[1:]:
        prompt = part.split("\n", 1)[1].split("Action:\n")[0] + "Action: "
        yield prompt, LINE.findall(part), re.search(r"\nTakes: (.*)\n", part)[1]


def test_it_plays_as_in_an_evaluation(agent, backend):
    """The same seed, the same start and actions: the same outcome for many goals."""
    outcomes = []
    for seed in range(12):
        reached, text = watched(agent, backend, seed, words=None, category="grasp")
        goals, position = chosen_goal(agent, None, None, "grasp", seed)
        (success,) = play(backend, goals, np.array([position]), np.random.default_rng(seed))
        assert reached == bool(success)
        assert ("Goal reached in " in text) == reached != ("Goal not reached in " in text)
        outcomes.append(reached)
    assert len(set(outcomes)) == 2


@pytest.mark.parametrize("greedy", [False, True])
def test_the_numbers_shown_are_those_of_the_agent(agent, backend, greedy):
    _, text = watched(agent, backend, greedy=greedy)
    assert "Category: Grow carnivore\n" in text
    assert "Goal: Grow lion\nYou see: baby lion, water, baby cow, carrot seed\n" in text
    steps = list(steps_of(text))
    assert 1 <= len(steps) <= 15
    for prompt, shown, taken in steps:
        actions = [action for action, *_ in shown]
        (state,) = backend.codec.pack([prompt], [actions])
        chances, values = backend.probabilities([state])[0], backend.values([state])[0]
        assert taken == actions[chances.argmax()] if greedy else taken in actions
        for (_, chance, bar, value), right, worth in zip(shown, chances, values, strict=True):
            assert float(chance) == printed(right, 3)
            assert float(value) == printed(worth, 3)
            assert len(bar) == round(20 * right)
    prompts = stack(backend.codec.pack([steps[0][0]], [()]))
    now, delayed = backend.competence(prompts, (CURRENT, DELAYED))[:, 0]
    assert abs(now - delayed) > 1e-3
    assert f"Predicted competence: {now:.3f} now, {delayed:.3f} delayed\n" in text
    assert text.isascii()
    assert not {"\r", "\x1b"} & set(text)


def test_a_goal_is_drawn_from_those_of_the_run(agent):
    goals, drawn = agent.goals, set()
    for seed in range(40):
        space, position = chosen_goal(agent, None, None, None, seed)
        assert np.array_equal(space.codes_at(np.arange(80)), goals.codes_at(np.arange(80)))
        drawn.add(goals.goal(position).category)
    assert drawn == set(goals.world.categories.feasible)
    few = SimpleNamespace(goals=goals.world.goals("1-0-2-0-0", 0))
    with pytest.raises(ValueError, match=r"no goal of it; allowed: impossible, grow_plant$"):
        chosen_goal(few, None, None, "grasp", 0)
    assert chosen_goal(few, None, None, None, 0)[0].counts()["grow_plant"] == 2


def test_a_step_waits_for_a_line(agent, backend):
    _, free = watched(agent, backend)
    _, text = watched(agent, backend, answers="\n" * 20)
    assert text.replace("Enter goes on, q stops: ", "") == free
    for answers in ("\nq\n", "\n"):
        reached, text = watched(agent, backend, answers=answers)
        assert not reached
        assert text.endswith("Stopped.\n")
        assert text.count("Takes: ") == 1


def test_a_goal_that_cannot_be_watched(complete, capsys):
    for words, expected in (
        (["--goal", "Grow lion"], "--goal: 'Grow lion' is not allowed without --objects"),
        ([*LION, "--category", "grasp"], "--category: 'grasp' is not allowed with --goal"),
        (["--goal", "Grow\x1b[2J", *LION[2:]], "goal = 'Grow\\x1b[2J'"),
    ):
        assert main(["watch", str(complete), *words]) == 2
        assert expected in error_line(capsys)


def test_an_interrupt_ends_it_quietly(complete, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=raising(KeyboardInterrupt())))
    assert main(["watch", str(complete), "--steps"]) == 130
    out, err = capsys.readouterr()
    assert out.endswith("q stops: \n")
    assert err == "stopped\n"
