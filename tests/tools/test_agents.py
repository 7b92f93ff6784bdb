"""Agents of run folders: which checkpoint counts; exported, embedded and watched; refused."""

import io
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from magellan.backends import CURRENT, DELAYED, make_backend
from magellan.cli import main
from magellan.competence.prompt_tokens import PromptTokens
from magellan.config import resolve_run
from magellan.config.modules import load_modules
from magellan.core.codec import stack
from magellan.jobs import export, run
from magellan.jobs.checkpoint import Checkpoints, decode, points
from magellan.jobs.export import agent_files, write_agent
from magellan.jobs.folder import check_folder
from magellan.jobs.provenance import Origin
from magellan.jobs.trained import TrainedAgent
from magellan.model.backbone import ADAPTERS
from magellan.tools.embed import embed
from magellan.tools.watch import chosen_goal, watch
from magellan.training.evaluate import play
from magellan.training.loop import Trainer
from tests.agent.tiny import CANDIDATES, PROMPTS, close, in_float64, set_adapters, write
from tests.faults.test_checkpoints import cut
from tests.runs import SPACE, contents, error_line, forge, printed, refusal, refuses, rows
from tests.snippets import raising, write_files


def config(**budget):
    run = config_of("zoo-mini", "log_prob_sum")
    return run.model_copy(update={"seed": 3, "budget": run.budget.model_copy(update=budget)})


@pytest.fixture(scope="session")
def complete(tmp_path_factory):
    """Folder of a run that kept checkpoints and exported its agent; not to be changed."""
    folder = tmp_path_factory.mktemp("complete")
    run.train(config(export=True, keep_every=50), folder, resume=False, progress="none")
    return folder


@pytest.fixture
def spoiled(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "run")


CRITIC = (0.5, 0.0, 1.0)
"""Value, dormant, spread."""


def config_of(model, score="logit_sum", phases=(), reads="own", **backbone):
    layer = {"sampler": "magellan", "goal_space": SPACE, "phases": list(phases)}
    lora = {"passes": "torch", "lora_rank": 4, "lora_alpha": 6, **backbone}
    layer |= {"backbone": {**lora, "model": model}, "competence": {"adapter": reads}}
    layer |= {"agent": {"critic_hidden": (8, 6), "score": score}}
    return resolve_run("smoke", [layer])


def make(config):
    """Started updates; the delayed estimator is an older one than the current."""
    backend = make_backend(config.backbone, config.backend, seed=1)
    backend.start_policy(config.agent, 0)
    backend.start_competence(config.competence, 0)
    set_adapters(backend.backbone, 0.15, seed=2)
    backend.snapshot(keep=1)
    set_adapters(backend.backbone, 0.15, seed=3, names=ADAPTERS[:3])
    for head in (backend.agent.critic, backend.head.head):
        for parameter in head.parameters():
            parameter.data += 0.1
    return backend


def state_of(backend):
    """As a checkpoint's trainer, as far as an export looks."""
    rows = [
        [0, 0, 0, "train", "grasp", 4, 0.25, *CRITIC],
        [7, 70, 20, "train", "grasp", 4, 0.75, *CRITIC],
        [7, 70, 20, "unseen", "grasp", 3, 1 / 3, *CRITIC],
    ]
    counters = {"phase": 1, "updates": 7, "steps": 70, "episodes": 20, "next_evaluation": 60}
    record = {"tables": {"evaluation": rows}}
    return {"backend": backend.state_dict(), **counters, "record": record}


@pytest.fixture
def one_line(capsys, tmp_path):
    """Export, embed and watch a run; returns the one line with which all refuse it."""

    def refuse(folder):
        before, lines, output = contents(folder), set(), ("--output", str(tmp_path / "out"))
        for command, more in (("export", output), ("embed", output), ("watch", ())):
            assert main([command, str(folder), *more]) == 2
            lines.add(re.sub(r" \(\w+\);", ";", error_line(capsys)))  # without Python's name for it
        assert contents(folder) == before
        assert not (tmp_path / "out").exists()
        (line,) = lines
        return line

    return refuse


def exported(folder, tmp_path, capsys, *more):
    """Output of the command, and the folder it leaves."""
    assert main(["export", str(folder), "--output", str(tmp_path / "out"), *more]) == 0
    return capsys.readouterr().out, tmp_path / "out"


def card(folder):
    return (folder / "README.md").read_text()


@pytest.mark.slow
def test_the_folder_beside_the_tables_is_the_export(complete, tmp_path, capsys):
    before = contents(complete)
    printed, out = exported(complete, tmp_path, capsys)
    files, expected = contents(out), contents(complete / export.FOLDER)
    own, other = (f"agent = {str(folder)!r}" for folder in (out, complete / export.FOLDER))
    files["README.md"] = files["README.md"].replace(own.encode(), other.encode())
    assert files == expected
    assert contents(complete) == before
    assert ", complete) in" in printed
    assert "not complete" not in card(out)
    assert "agent/" in (complete / "run.log").read_text()


def test_a_damaged_checkpoint_gives_way_and_is_left_alone(tmp_path, capsys):
    folder, trainer = tmp_path / "run", Trainer(config())
    folder.mkdir()
    for _ in range(2):
        for _ in range(10):
            trainer.advance()
        Checkpoints(folder, config()).save({"trainer": trainer.state_dict()})
    newest = folder / "checkpoints/00000002.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    before = contents(folder)
    printed, out = exported(folder, tmp_path, capsys)
    _, state = decode(folder / "checkpoints/00000001.safetensors")
    files = agent_files(config(), state["trainer"], TrainedAgent.read(folder).exported_by, out)
    assert f"damaged, using an older one: {newest}\n" in printed
    assert (out / "heads.safetensors").read_bytes() == files["heads.safetensors"]
    assert contents(folder) == before


def only_checkpoint(folder):
    *older, path = sorted((folder / "checkpoints").iterdir())  # more than one on a slow machine
    for one in older:
        one.unlink()
    return path


def test_another_backbone(spoiled, one_line):
    _, state = decode(only_checkpoint(spoiled))
    path = Checkpoints(spoiled, config(), "0" * 64).save(state)
    assert f"{path}: the agent was trained on another backbone" in one_line(spoiled)


FORGED = [("backend", None), ("backend/sac/critic/*", cut), ("updates", True)]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "value"), FORGED)
def test_a_forged_agent_is_one_line(where, value, spoiled, one_line):
    path = only_checkpoint(spoiled)
    forge(path, f"trainer/{where}", value)
    assert one_line(spoiled).startswith(f"error: {path} does not fit this version of the code; ")


def test_files_of_the_user_are_named_again_or_not_run(tmp_path, one_line, capsys):
    module = write_files("docs/extend.md", tmp_path)["my_world.py"]
    layer = {"modules": [module], "world": "doors", "goal_space": "30-10", "sampler": "random"}
    backbone = {"passes": "torch", "model": str(tmp_path / "model")}
    from magellan.pretraining import own_words
    from magellan.worlds import WORLDS

    load_modules([module])
    own_words.write(WORLDS["doors"], tmp_path / "model")
    capsys.readouterr()  # a bar of the library
    settings = resolve_run("smoke", [layer, {"backbone": backbone}])
    folder = tmp_path / "run"
    Checkpoints(folder, settings).folder.parent.mkdir()
    Checkpoints(folder, settings).save({"trainer": Trainer(settings).state_dict()})
    line = one_line(folder)
    assert "name them with --module if you trust them" in line
    _, out = exported(folder, tmp_path, capsys, "--module", module)
    assert "not been evaluated yet" in card(out)
    assert "competence" not in card(out)  # the agent has no estimator
    left = {"policy", "critic_target", "heads.safetensors", "README.md"}
    assert {path.name for path in out.iterdir()} == left
    assert main(["watch", str(folder), "--module", module]) == 0
    printed = capsys.readouterr().out
    assert "Takes: " in printed
    assert "competence" not in printed
    words = ["--goal", "Open it", "--objects", "door"]
    assert main(["watch", str(folder), "--module", module, *words]) == 2
    line = capsys.readouterr().err
    assert re.match(r"error: --goal: 'Open it' is not allowed: world 'doors' reads no", line)


@pytest.mark.parametrize("kind", ["link", "partial"])
def test_an_output_that_is_in_use(kind, complete, tmp_path, capsys):
    if kind == "link":
        (tmp_path / "disk").mkdir()
        (tmp_path / "out").symlink_to(tmp_path / "disk")
    else:
        (tmp_path / "out.part").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(complete), "--output", str(tmp_path / "out")]) == 2
    assert re.match(r"error: --output: \S+ ", capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == before


def test_no_link_in_an_agent_is_followed(spoiled, tmp_path, capsys):
    place, theirs = spoiled / "agent/policy", tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").write_text("theirs")
    shutil.rmtree(place)
    place.symlink_to(theirs)
    refuses(f"--output: {place} is a symbolic link; allowed", check_folder, spoiled)
    assert main(["watch", str(spoiled)]) == 2
    assert f"error: run: {place} is a symbolic link" in capsys.readouterr().err
    (tmp_path / "agent").symlink_to(theirs)  # put there later
    with pytest.raises(RuntimeError, match=r"cannot be written \(.*symbolic link"):
        write_agent(tmp_path / "agent", {"README.md": b""})
    assert [path.name for path in theirs.iterdir()] == ["precious"]


def test_an_older_agent_and_a_half_written_one_give_way(spoiled):
    expected = contents(spoiled / "agent")  # a copy: its card names the folder that it is of
    original = re.search(rb"^agent = '(.*)'$", expected["README.md"], re.MULTILINE)[1]
    copy = str(spoiled / "agent").encode()
    expected["README.md"] = expected["README.md"].replace(original, copy)
    (spoiled / "manifest.json").unlink()
    (spoiled / "agent/policy/adapter_model.safetensors").write_bytes(b"old")
    shutil.copytree(spoiled / "agent", spoiled / "agent.part")
    run.train(config(export=True), spoiled, resume=True, progress="none")
    assert contents(spoiled / "agent") == expected
    assert not (spoiled / "agent.part").exists()


ORIGIN = Origin("1.2.3+abc", {"torch": "9.9"}, {"model": "zoo-mini", "sha256": "ab" * 32})
FOLDER = Path("agent")


@pytest.mark.parametrize(
    ("model", "score", "targets", "mode", "reads"),
    [
        ("zoo-mini", "logit_sum", "attention_qv", "merged", "own"),
        ("zoo-mini", "log_prob_sum", "all_linear", "per_token", "ignored"),
        ("t5", "logit_sum", "attention_qv", "merged", "policy"),
        ("t5", "log_prob_sum", "all_linear", "per_token", "own"),
    ],
)
def test_the_code_on_the_card_predicts_what_the_agent_predicts(
    model, score, targets, mode, reads, tmp_path, monkeypatch
):
    """Run in another folder than the one where the run named its model and the agent was left."""
    for folder in (tmp_path / "elsewhere", tmp_path / "there"):
        folder.mkdir()
        monkeypatch.chdir(folder)
    if model == "t5":
        write(Path(model), model)
    config = config_of(model, score, reads=reads, lora_targets=targets, lora_mode=mode)
    backend = make(config)
    write_agent(FOLDER, agent_files(config, state_of(backend), ORIGIN, FOLDER))
    card = Path("agent/README.md").read_text()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert not re.search("^(from|import) magellan", code, re.MULTILINE)  # not there elsewhere
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    packed = backend.codec.pack(PROMPTS, CANDIDATES)
    prompts = stack(backend.codec.pack(PROMPTS, [()] * len(PROMPTS)))

    def read():
        estimates = backend.competence(prompts, (CURRENT, DELAYED))
        return backend.probabilities(packed), backend.values(packed), estimates

    expected = read()
    with in_float64(backend):
        exact = read()
    found = [np.zeros_like(values) for values in exact]
    for row, (prompt, actions) in enumerate(zip(PROMPTS, CANDIDATES, strict=True)):
        for values, judged in zip(found, names["judge"](prompt, actions), strict=False):
            values[row, : len(actions)] = judged
        estimators = ("competence", "competence_delayed")
        found[2][:, row] = [names["competence"](prompt, name) for name in estimators]
    assert np.abs(np.subtract(*exact[2])).min() > 1e-3
    for values in zip(found, expected, exact, strict=True):
        close(*values)


def card_of(config, state):
    return agent_files(config, state, ORIGIN, FOLDER)["README.md"].decode()


def test_the_card_describes_the_training():
    config = config_of("zoo-mini")
    state = state_of(make(config))
    rows = [*state["record"]["tables"]["evaluation"]]
    rows.append([7, 70, 20, "train", "a|\x1b[2J\n# b", 4, 0.5, *CRITIC])
    state["record"] = {"tables": {"evaluation": rows}}
    _, front, text = card_of(config, state).split("---\n", 2)
    assert "base_model" not in yaml.safe_load(front)  # a hub has none of that name
    assert "| language model | `zoo-mini` |" in text
    assert "| grasp | 0.75 (n = 4) | 0.33 (n = 3) |" in text
    assert r"| a\|\x1b[2J\n# b | 0.50 (n = 4) |" in text
    assert "0.25" not in text  # an earlier evaluation
    assert "| budget | 20 of 120 episodes |" in text
    assert "**not complete**" in text
    assert "ab" * 32 in text
    assert "magellan-bench 1.2.3+abc; torch 9.9" in text
    complete = {**state, "next_evaluation": config.budget.end + 1}
    assert "not complete" not in card_of(config, complete)


def test_of_a_run_with_phases_the_last_one_counts():
    config = config_of("zoo-mini", phases=[{"until": 60}, {"goal_space": "10-9-8-7-6"}])
    before = [1, 7, 70, 60, "train", "grasp", 4, 0.75, *CRITIC]
    rows = [before, [2, 7, 70, 60, "train", "grow_plant", 4, 0.5, *CRITIC]]
    state = {**state_of(make(config)), "phase": 2, "next_evaluation": 120}
    state["record"] = {"tables": {"evaluation": rows}}
    card = card_of(config, state)
    assert "| grow_plant | 0.50 (n = 4) |  |" in card
    assert "0.75" not in card
    assert "40-20-10-5-5 (training goals, drawn with seed 0), then 10-9-8-7-6 (" in card
    assert "not complete" in card
    state["next_evaluation"] = 121
    assert "not complete" in card_of(config, {**state, "phase": 1})
    assert "not complete" not in card_of(config, state)


@pytest.fixture(scope="module")
def embedded(complete, tmp_path_factory):
    output = tmp_path_factory.mktemp("embedding") / "out"
    newest = TrainedAgent.read(complete)
    embed(newest, output, per_category=4, seed=5)
    on_the_way = [TrainedAgent.read(complete / str(point)) for point in points(complete)]
    agents = [a for a in on_the_way if a.state["updates"] < newest.state["updates"]]
    agents.append(newest)
    vectors = load_file(output / "vectors.safetensors")
    return agents, rows(output, "goals"), rows(output, "predictions"), vectors


def test_moments_are_the_start_what_was_kept_and_the_end(embedded):
    agents, goals, predictions, vectors = embedded
    updates = [0, *(agent.state["updates"] for agent in agents)]
    assert len(agents) == 3
    assert updates == sorted(set(updates))
    moments = {int(row["moment"]): int(row["update"]) for row in predictions}
    assert [moments[i] for i in range(4)] == updates
    assert sorted(vectors) == ["0", "1", "2", "3"]
    assert len(predictions) == 4 * len(goals)


@pytest.mark.parametrize("moment", [1, 3])
def test_the_head_of_that_time_makes_its_prediction_of_the_vectors(embedded, moment):
    agents, _, predictions, vectors = embedded
    head = agents[moment - 1].state["backend"]["competence"]["head"]
    hidden = np.tanh(vectors[str(moment)] @ head["0.weight"].T + head["0.bias"])
    expected = 1 / (1 + np.exp(-(hidden @ head["2.weight"].T + head["2.bias"])[:, 0]))
    found = [float(row["competence"]) for row in predictions if row["moment"] == str(moment)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_last_moment_is_the_present_agent(complete, embedded):
    *_, _predictions, vectors = embedded
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
    agent, words = TrainedAgent.read(tmp_path / "run"), "has no estimator on its language model"
    refuses(f"{words}; allowed: a run", embed, agent, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_run_is_refused(spoiled, tmp_path):
    other = config(keep_every=50).model_copy(update={"seed": 4})
    run.train(other, tmp_path / "other", resume=False, progress="none")
    shutil.rmtree(spoiled / "50")
    shutil.copytree(tmp_path / "other/50", spoiled / "50")
    assert "is of another run than" in refusal(embed, TrainedAgent.read(spoiled), tmp_path / "out")


LION = ["--goal", "Grow lion", "--objects", "lion", "water", "cow", "carrot"]
LINE = re.compile(r"  (\S.*?) +(\d\.\d{3}) (#*) *  Q +(-?\d+\.\d{3})")


@pytest.fixture(scope="module")
def agent(complete):
    return TrainedAgent.read(complete)


@pytest.fixture(scope="module")
def backend(agent):
    return agent.backend({})


def watched(agent, backend, seed=0, greedy=False, words=LION, answers=None, category=None):
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
    words = "no goal of it; allowed: impossible, grow_plant$"
    refuses(words, chosen_goal, few, None, None, "grasp", 0)
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
