"""Every bad input is refused in one line, and nothing is written.

Commands, texts and changes of a folder stand in tables, `given -> words | of | the error`.
"""

import itertools
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import analysis.__main__
import magellan.cli
from analysis.statistics import summaries
from analysis.tables import store
from analysis.tables.manifests import MANIFEST
from magellan.config import flat_keys, identity, load_experiment, read_yaml, resolve_run, run_model
from magellan.config.resolve import nested
from magellan.core.errors import InputError
from magellan.worlds.little_zoo.goals import parse_goal_space
from tests.analysis import synthetic
from tests.snippets import ROOT, contents

Change = Callable[[Path], object]


def table(text: str) -> dict[str, str]:
    """Words of the error by input; an indented line continues the one before it."""
    lines = text.strip("\n").replace("\n    ", " ").splitlines()
    return {given: words for given, _, words in (line.partition(" -> ") for line in lines)}


def unescaped(text: str) -> str:
    return text.encode("latin1").decode("unicode_escape")


def shell_words(given: str) -> list[str]:
    return [unescaped(word) for word in shlex.split(given)]


# --- ways to damage a file in a folder ----------------------------------------------------------


def content(name: str, new: str) -> Change:
    return lambda folder: (folder / name).write_text(new)


def replaced(name: str, old: str, new: str) -> Change:

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def cell(name: str, column: str, text: str) -> Change:
    """Replace a cell in the first row of a table."""

    def change(folder: Path) -> None:
        header, first, *rest = (folder / name).read_text().splitlines()
        cells = first.split(",")
        cells[header.split(",").index(column)] = text
        (folder / name).write_text("\n".join([header, ",".join(cells), *rest]) + "\n")

    return change


def gone(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def put(name: str, key: str, *value: object) -> Change:
    """Put JSON or another value into a JSON file, or remove one; `key` has dots and numbers."""

    def change(folder: Path) -> None:
        inner = whole = json.loads((folder / name).read_text())
        *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
        for part in path:
            inner = inner[part]
        if value:
            (inner[last],) = (json.loads(v) if isinstance(v, str) else v for v in value)
        else:
            del inner[last]
        (folder / name).write_text(json.dumps(whole))

    return change


def renamed(name: str, new: str) -> Change:
    return lambda folder: (folder / name).rename(folder / new)


def tensor(name: str, value: str = "", *shape: str) -> Change:
    """Replace one weight by one with this value everywhere, or remove it."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights.pop(name, None)
        if value:
            weights[name] = np.full([*map(int, shape)], float(value), np.float32)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


VERBS = {verb.__name__: verb for verb in (content, replaced, cell, gone, put, renamed, tensor)}


def changes(text: str) -> dict[str, Change]:
    """Changes of a folder by the words of the error: `verb name ... && ... -> words`."""

    def of(commands: list[str]) -> Change:
        made = [VERBS[verb](*rest) for verb, *rest in map(shell_words, commands)]
        return lambda folder: [change(folder) for change in made]

    return {words: of(given.split(" && ")) for given, words in table(text).items()}


def merges_of_merges() -> str:
    """Each of 20 mappings brings ten times the keys of the one before."""
    keys = ", ".join(f"k{number}: 0" for number in range(10))
    lines = [f"a: &a {{{keys}}}"]
    for before, name in itertools.pairwise("abcdefghijklmnopqrst"):
        lines.append(f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}")
    return "\n".join(lines)


EXPERIMENTS = {
    f"modules: [{'x' * 300}.py]": "modules: ' | cannot be read (File name too long)",
    merges_of_merges(): "not valid YAML at line 4, column 4 | << makes 10000 keys | at most 1000",
    "seeds: " + "[" * 2000: "nested too deeply",
    **table(r"""
seeds: [0, 1 -> not valid YAML | line 2 | expected ',' or ']'
overrides: {budget: {episodes: 1:40}} -> line 1, column 32 | '1:40' is 100 in YAML 1.1 | decimal
preset: !!python/name:os.system x -> python/name:os.system
seeds: [0]\npreset: smoke\nseeds: [1] -> line 3 | 'seeds' | twice
preset: smoke -> experiment: key is missing | a name of its own
{1: 2, "1": 3} -> line 1, column 8 | '1' appears twice
{1: 2, 1.0: 3} -> '1.0' appears twice
experiment: a/b -> experiment: 'a/b' | pattern
results: ~/x -> results: '~/x' | pattern
results: -x -> results: '-x' | pattern
seeds: [] -> seeds: [] | at least 1
seeds: [true] -> seeds: [True] | a number, not true or false
seeds: [0, 1, 0] -> seeds: [0, 1, 0] | 0 is listed twice
overrides: {agent: {gamma: 1.5}} -> overrides.agent.gamma: 1.5 | less than or equal to 1
overrides: {backbone: {model: nowhere}}
    -> backbone.model: 'nowhere' is missing | zoo-mini | a folder with config.json
variants: {on: {}} -> variants.name: True is not allowed | on, no, 1e3 | quote the word
variants: {a: {seed: 1}} -> variants.a.seed: 1 | observers, phases, goals
variants: {a: {}, b: {agent: {gamma: 0.99}}} -> variants.b: is the same as variants.a
goal_spaces: [25k, '25000'] -> '25k' is listed twice
goal_spaces: [7-0-0-0-0] -> goal_space = '7-0-0-0-0' | all goals are impossible
__use_yte__: true\n?print('x'): 1 -> __use_yte__ is not allowed | plain YAML
modules: [nowhere.py] -> modules: ' | nowhere.py' is missing
samplers: [magelan] -> samplers.0: | did you mean magellan?
variants: {a: {}}\nanalysis: {labels: {b: Best}} -> analysis.labels.b: not a variant | allowed: a
variants: {a: {}, b: {budget: {episodes: 60}}}
    -> variants.b.budget: length of the last phase is 60, and 20000 for variants.a | the same
variants: {a: {}, b: {budget: {evaluation_goals: 1}}} -> evaluation_goals is 1, and 64
variants: {a: {}, b: {budget: {practice_window: 10}}} -> practice_window is 10, and 500
variants: {a: {budget: {steps: 900}}, b: {budget: {updates: 9}}} -> unit is updates, and steps
experiment: x\nvariants: {a: {}, b: {competence: {buffer: 99}}}\nanalysis: {reference: random/b}
    -> analysis.reference: 'random/b' | an earlier variant | allowed: random/a, online/a,
"""),
}

# --- run configuration: arguments of `train`, those of --set without it ---------------------------

RUNS = {
    f"backbone.model={'x' * 5000}": "backbone.model: 'xxx | is missing | zoo-mini",
    **table(r"""
agent.gama=0.9 -> agent.gama: unknown key | gamma
--goal-space 1-1-1-1-x -> goal_space | '1-1-1-1-x' | impossible, grasp
--goal-space 1-1-1-1-5185 -> goal_space | '1-1-1-1-5185' | 5185 grow_carnivore | at most 5184
agent.gamma=.nan -> agent.gamma: nan | finite number
backend.kind=theirs -> backend.kind: 'theirs' is unknown
backend.kind=lamorel -> backend.kind: 'lamorel' is not allowed here | local
backend.gradient_checkpointing=true -> backend.gradient_checkpointing: True | lora_mode per_token
backbone.quantization=nf4 -> backbone.quantization: 'nf4' | lora_mode per_token
backbone.passes=compiled backbone.lora_mode=per_token
    -> backbone.passes: 'compiled' is not for backbone.lora_mode 'per_token'; allowed
backbone.passes=compiled backend.dtype=bfloat16
    -> backbone.passes: 'compiled' is not for backend.dtype 'bfloat16'; allowed
rewards.transcript=a -> rewards.transcript: 'a' | rewards.model = 'world' | with a chat model
budget.steps=700 budget.updates=20 -> budget.updates: 20 | budget.steps = 700 | allowed: 0
'phases=[{}]' -> phases: one phase | none, or two
'phases=[{}, {}]' -> phases.0.until: missing | more than 0 and less than budget.episodes = 120
'phases=[{until: 50}, {sampler: random}]'
    -> phases.1.sampler: 'random' | last phase | allowed: magellan
'phases=[{until: 50}, {goal_space: 9-9-9-9-900, goals: {split: unseen}}]'
    -> phases.1: goal_space = '9-9-9-9-900' | 900 goals of grow_carnivore | has 648
alp_gmm.most=60 alp_gmm.fit_every=50 -> alp_gmm.most: 60 | allowed: fit_every (50) or less
--sampler random --set observers=[learned] --set competence.adapter=shared
    -> competence.adapter: 'shared' is not allowed | frozen
--sampler pcl --set competence.pool=9 -> competence.pool: 9 | sampler pcl | allowed: 16 or more
'phases=[{until: 50, sampler: frontier}, {}]' competence.pool=9
    -> competence.pool: 9 | sampler frontier
competence.delay=3 -> competence.delay: 3 | competence.refresh = 4 | allowed: 4 or more
--world digits --goal-space 8-8-8-8-4-4-4
    -> agent.num_envs: 8 | 'digits', whose agent writes | preset grpo
--world digits --preset grpo --goal-space 8-8-8-8-4-4-4 --set budget.episodes=64
    -> budget.episodes: 64 | budget.steps = 200000 | allowed: budget.steps = 0
--world digits --preset grpo --goal-space 8-8-8-8-4-4-4 --set budget.export=true
    -> budget.export: true | 'digits' | allowed: false
agent.replay_capacity=15 -> agent.replay_capacity: 15 | agent.batch_size = 16 | allowed: 16 or more
'observers=[learned, learned]' -> observers | 'learned' is listed twice
--sampler regions --set 'observers=[learned]'
    -> observers: learned and learned_groups in one run are not allowed
--identity 0123456789abcdef -> --identity: '0123456789abcdef' is not this run
backbone.lora_layers=9
    -> backbone.lora_layers: 9 is more than the 2 layers | 'zoo-mini' | 0 (all) to 2
"""),
}


# --- command lines; OUT is a folder that must not be made -----------------------------------------

COMMANDS = {
    "": "COMMAND | --help",
    **table(r"""
train --output OUT --fast -> '--fast' | --help
train --output OUT --samplr magellan -> '--samplr' is not an argument | did you mean --sampler?
train --output OUT --se 1 -> --se | --seed, --set
train --output OUT --stop-after 1 -> --stop-after: 1 minutes | budget.stop_margin_seconds (60 s)
train --output OUT --start OTHER -> --start | one phase | runs with phases
replay docs --estimator learned --output OUT
    -> docs is not the folder of a complete run | manifest.json
export docs --output tests -> --output: tests already exists | empty or absent
export docs --output LICENSE/a/b -> --output: LICENSE/a cannot be written | a folder to write
bench --set sampler=random --output OUT -> sampler: 'random' | not timed; allowed: magellan
bench --dtype float16 --output OUT -> backend.dtype: 'float16' | bfloat16
bench --set backend.kind=lamorel --output OUT -> backend.kind: 'lamorel' | not timed; allowed: local
watch docs -> run: docs holds no checkpoint | allowed: the folder
goals --size=25K -> goal_space | '25K' | sizes such as 25k
goals --size=390 -> goal_space | '390' | at least 391
goals --size=2500.5 -> goal_space | '2500.5' | whole sizes
goals --size=0-0-0-0-0 -> goal_space | '0-0-0-0-0' | at least one > 0
play --goal-space 1-0-0-0-0 --category grasp -> 'grasp' | 1-0-0-0-0 | none
backbone --wheel pyproject.toml --output OUT -> --wheel: pyproject.toml | allowed: bcc81830
backbone --world simulated --wheel nowhere.whl --output OUT -> --wheel: not allowed with --world
backbone --world simulated --output magellan/backbones/zoo-mini
    -> --output: magellan/backbones/zoo-mini | another model | another folder
backbone --name digits-mini --output LICENSE/a -> --output: LICENSE/a cannot be written
"""),
}

# TABLES are good tables, STATISTICS statistics of them, BROKEN statistics with an empty file, RUN a
# good run, FILE an empty file.
ANALYSIS_COMMANDS = {
    "": "COMMAND | --help",
    **table(r"""
embeddings docs --by colour --stem OUT -> --by | 'colour' | category
figure pie --tables TABLES --statistics STATISTICS --goal-space x --stem OUT/pie
    -> figure: 'pie' | success_by_category
figure aggregates --tables TABLES --statistics BROKEN --goal-space x --stem OUT/a
    -> BROKEN/aggregates.csv | not a CSV table | python -m analysis statistics
page TABLES / -> is no file; allowed: a path with a name
page TABLES . -> is no file; allowed: a path with a name
statistics TABLES FILE/x -> FILE/x (Not a directory)
combine SOURCE --output OUT --experiment '{"preset": "smoke", "samplers": ["random"], "seeds": [0],
    "goal_spaces": ["25k"], "analysis": {}}' -> manifest.json | missing
combine RUN --output OUT --experiment '{' -> --experiment | not valid JSON | line 1
combine RUN --output OUT --experiment '{}' -> --experiment | samplers | missing
combine RUN --output OUT --experiment '{"preset": "smoke", "samplers": ["random"], "seeds": [0],
    "goal_spaces": ["25k"], "analysis": {}}'
    -> RUN | undeclared | 'random' | seed 0 | '1000-400-200-100-50'
"""),
}

TABLES = changes(r"""
replaced evaluation.csv update,step step,update
    -> columns are | allowed: sampler, variant, goal_space, seed, update
cell evaluation.csv n 64,0 -> evaluation.csv | more cells than the 14 columns
cell evaluation.csv n many -> line 2 | n is 'many' | a number
cell evaluation.csv success 1.01 -> line 2: success is 1.01 | 0 and 1
cell evaluation.csv success 0.333333 -> line 2: success is 0.333333 | a multiple of 1/n
cell evaluation.csv step 99999999
    -> evaluation.csv: step falls to 0 for | 'random' | order of training
cell practice.csv successes 99999 -> line 2: successes is 99999 | at most n
replaced practice.csv grasp fly -> category is 'fly' | grasp
replaced practice.csv 'successes\n'
    'successes\nrandom,default,1000-400-200-100-50,0,500,grasp,1,0\n'
    -> practice.csv | two rows | episode 500
content manifest.json '{"runs": [], "runs": []}' -> 'runs' | twice
put manifest.json experiment.seeds '[0, 1, 7]' -> no run | seed 7
put manifest.json runs.0.schema_version 1 -> runs.0.schema_version: 1 | older version | allowed: 2
put manifest.json plan -> 'plan' is missing | older
put manifest.json runs.1.identity '"0000000000000000"'
    -> identity is '0000000000000000' | 'random' | seed 1
put manifest.json plan.1.identity '"0000000000000000"'
    -> '0000000000000000' in the plan | 'random' | seed 1
put manifest.json runs.0.status '"running"' -> runs.0.status: 'running' | 'complete'
put manifest.json common.default.config.budget.episodes 9
    -> budget.episodes is 9 | counted values | 'random' | seed 0
""")

# --- backbones: changes of a copy of zoo-mini ----------------------------------------------------

# Detected from the files alone, before the run's folder is touched.
BACKBONE_FILES = changes(r"""
put config.json architectures '["ViTForImageClassification"]'
    -> 'ViTForImageClassification' | not a language model
content adapter_config.json {} -> adapter_config.json | merge
gone model.safetensors -> no model.safetensors
renamed model.safetensors pytorch_model.bin
    -> pytorch_model.bin, a pickle | never loaded | model.safetensors
gone model.safetensors && content model.safetensors.index.json {}
    -> model.safetensors.index.json | weight_map
gone tokenizer.json -> no tokenizer | tokenizer.json
put config.json vocab_size 50 -> vocabulary of 50 | token 57
""")

# Detected when the model is built, before any episode.
BACKBONE_MODELS = changes(r"""
put config.json hidden_size 32 -> (58, 64) | embed_tokens | (58, 32)
put config.json num_hidden_layers 1 -> no use for | model.layers.1.input_layernorm.weight, | 6 more
tensor lm_head.weight 0 58 64
    -> different weights for model.embed_tokens.weight and lm_head.weight | one
tensor model.norm.weight -> no weights for model.norm.weight
tensor model.norm.weight nan 64 -> NaN | model.norm.weight
put config.json auto_map '{"AutoConfig": "own.Config"}' && put config.json model_type '"own"'
    && content own.py 'raise SystemExit("this was run")' -> custom code
put config.json max_position_embeddings 8 -> reads 8 tokens at most | a prompt with an action has 2
put config.json rope_parameters.rope_theta 0 -> NaN or infinity for a prompt
put tokenizer.json model.vocab 5 && put tokenizer.json added_tokens 5 -> cannot be loaded
""")

# Names of backbones: files below `made` and the cache `hub`, name, words.
FLAN = "google/flan-t5-base"
HUB = "hub/models--google--flan-t5-base"
SNAPSHOT = {f"{HUB}/snapshots/abc123/config.json": b'{"model_type": "t5"}'}
BRANCH = SNAPSHOT | {f"{HUB}/refs/main": b"abc123"}
BACKBONE_NAMES = [
    ({}, FLAN, "'google/flan-t5-base' is missing | hub; if | `hf download google/flan-t5-base`"),
    (SNAPSHOT, FLAN, "without its branch main | name | snapshots/abc123;"),
    (BRANCH, FLAN, "no model.safetensors | snapshots/abc123 | `hf download google/flan-t5-base`"),
]

ZOO_MINI = ROOT / "magellan/backbones/zoo-mini"
SMALL = ["train", "--preset", "smoke", "--goal-space", "8-4-2-1-1", "--progress", "none"]


@pytest.fixture
def refused(capfd, monkeypatch):
    """Run a command line and check its one-line error."""

    def run(main, arguments, *words):
        monkeypatch.chdir(ROOT)
        assert main([str(argument) for argument in arguments]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n"), err[-1]) == ("", 1, "\n"), err
        assert err.startswith("error: ")
        missing = [word for part in words for word in part.split(" | ") if word not in err]
        assert not missing, f"{missing} not in {err}"

    return run


def spoiled(folder: Path, into: Path, change: Change) -> Path:
    copy = shutil.copytree(folder, into / "spoiled")
    change(copy)
    return copy


def case_of(mapping):
    """Parametrise by the cases of a mapping, named by their truncated keys."""
    return pytest.mark.parametrize("case", mapping, ids=lambda case: case[:60])


@case_of(EXPERIMENTS)
def test_experiment_file(case, tmp_path, refused):
    path = tmp_path / "experiment.yaml"
    path.write_text(unescaped(case) + "\n")
    refused(magellan.cli.main, ["check", path, "--run-modules"], EXPERIMENTS[case])


@case_of(RUNS)
def test_run_configuration(case, tmp_path, refused):
    words = shell_words(case)
    if not case.startswith("--"):
        words = [word for value in words for word in ("--set", value)]
    refused(magellan.cli.main, [*SMALL, "--output", tmp_path / "run", *words], RUNS[case])
    assert not (tmp_path / "run").exists()


@case_of(COMMANDS)
def test_command_line(case, tmp_path, refused):
    arguments = [tmp_path / "out" if word == "OUT" else word for word in shell_words(case)]
    refused(magellan.cli.main, arguments, COMMANDS[case])
    assert not (tmp_path / "out").exists()


@case_of(ANALYSIS_COMMANDS)
def test_command_line_of_the_analysis(case, places, tmp_path, refused):
    named = {**places, "OUT": tmp_path / "out"}
    before = contents(places["SOURCE"])

    def placed(word):
        name, *rest = word.split("/")
        return str(named[name].joinpath(*rest)) if name in named else word

    words = map(placed, ANALYSIS_COMMANDS[case].split(" | "))
    refused(analysis.__main__.main, map(placed, shell_words(case)), *words)
    assert not (tmp_path / "out").exists()
    assert contents(places["SOURCE"]) == before


@case_of(TABLES)
def test_combined_tables(case, places, tmp_path, refused):
    folder = spoiled(places["TABLES"], tmp_path, TABLES[case])
    before = contents(folder)
    refused(analysis.__main__.main, ["statistics", folder, tmp_path / "out"], case)
    assert not (tmp_path / "out").exists()
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        (SMALL, "manifest.json", "manifest.json | --resume"),
        (SMALL, "checkpoints/1.safetensors", "checkpoints/1.safetensors | --resume"),
        (["backbone", "--world", "simulated"], "500/checkpoints/1.safetensors", "a run (500)"),
    ],
)
def test_folder_that_holds_a_run(command, name, words, tmp_path, refused):
    folder = tmp_path / "run"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("{}")
    refused(magellan.cli.main, [*command, "--output", folder], words)
    assert contents(folder) == {name: b"{}"}


@case_of(BACKBONE_FILES | BACKBONE_MODELS)
def test_backbone(case, tmp_path, refused):
    model = spoiled(ZOO_MINI, tmp_path, (BACKBONE_FILES | BACKBONE_MODELS)[case])
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    refused(magellan.cli.main, arguments, "backbone.model | allowed", str(model)[:40], case)
    if case in BACKBONE_FILES:
        assert not (tmp_path / "run").exists()
    assert not contents(tmp_path / "run")


@pytest.mark.parametrize(("files", "model", "words"), BACKBONE_NAMES)
def test_name_of_a_backbone(files, model, words, tmp_path, refused, monkeypatch):
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.setenv("MAGELLAN_BACKBONES", str(tmp_path / "made"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    refused(magellan.cli.main, arguments, "backbone.model | allowed", words)
    assert not (tmp_path / "run").exists()


def test_unspoiled_inputs_are_accepted(places, tmp_path):
    """The cases are refused for their changes; without them they pass."""
    tables, out = places["TABLES"], tmp_path / "out"
    assert analysis.__main__.main(["statistics", str(tables), str(out)]) == 0
    assert len(list(out.iterdir())) > 5
    resolve_run("smoke", [{"backbone": {"model": str(ZOO_MINI)}}])
    assert sum(parse_goal_space("8-4-2-1-1")) == 16


@pytest.fixture(scope="session")
def places(tmp_path_factory) -> dict[str, Path]:
    """Good inputs by the names that the cases use; tests must not change them."""
    root = tmp_path_factory.mktemp("good")
    declared = synthetic.experiment(("random", "magellan"), bootstrap_repetitions=100)
    runs = synthetic.write_runs(root, declared, episodes=2_000)
    results = store.combine(runs, declared)
    store.write(results, root / "tables")
    summaries.write(summaries.compute(results), root / "statistics")
    shutil.copytree(root / "statistics", root / "broken")
    (root / "broken" / "aggregates.csv").write_bytes(b"")
    (root / "file").touch()
    return {
        "SOURCE": root,
        "TABLES": root / "tables",
        "STATISTICS": root / "statistics",
        "BROKEN": root / "broken",
        "RUN": runs[0],
        "FILE": root / "file",
    }


def outcome(function, *arguments):
    """Return a function's result, or its one-line error."""
    try:
        return function(*arguments), None
    except InputError as error:
        return None, str(error)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.dates(),
    st.lists(st.one_of(st.integers(-2, 9), st.text(max_size=2), st.none()), max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), st.integers(), max_size=2),
)
DEFAULTS = run_model()().model_dump()
KEYS = dict.fromkeys([*DEFAULTS, *flat_keys(DEFAULTS)])


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=25)
@given(value=JUNK)
def test_any_value_of_a_run_key_is_taken_or_refused_by_key(key, value):
    config, line = outcome(resolve_run, "smoke", [nested(key.split("."), value)])
    if config is None:
        # Of two incompatible keys either may be named first.
        assert line.startswith(("goal_space = ", key)) or f" {key} = " in line
    else:
        text = json.dumps(config.model_dump(mode="json"), allow_nan=False)
        assert type(config).model_validate(json.loads(text)) == config
        assert len(identity(config)) == 16


YAML_TEXT = st.one_of(
    st.text(max_size=40),
    st.text("ab:-[]{}#&*!|>\"'\n\t 01.,?%@~<=", max_size=40),
    st.binary(max_size=40),
)


@settings(max_examples=300)
@given(text=YAML_TEXT)
def test_any_file_is_a_mapping_or_refused_by_name(tmp_path, text):
    path = tmp_path / "any.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    values, line = outcome(read_yaml, path)
    if values is None:
        assert line.startswith(f"config file: {path}")
        return
    assert isinstance(values, dict)
    experiment, line = outcome(load_experiment, values)
    assert experiment is not None or line


CSV_NAMES = tuple(f"{name}.csv" for name in store.TABLES)


@settings(max_examples=60)
@given(name=st.sampled_from((*CSV_NAMES, MANIFEST)), data=st.data())
def test_a_file_that_lost_its_end_is_refused(places, name, data):
    folder = places["TABLES"]
    good = (folder / name).read_bytes()
    kept = data.draw(st.integers(0, len(good.rstrip()) - 1))
    try:
        (folder / name).write_bytes(good[:kept])
        _, line = outcome(store.load, folder)
    finally:
        (folder / name).write_bytes(good)
    assert line is not None
    assert name in line
