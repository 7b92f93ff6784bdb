"""The launcher: configurations of the paper's repository, what is refused, runs, job files."""

import copy
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from magellan.backends.lamorel import section
from magellan.config import identity, resolve_run
from magellan.core.errors import StoppedEarly
from magellan.jobs.run import train
from magellan.launcher.arguments import ADAPTERS, MAGELLAN, NAMES, SCRIPT, WINDOWS, read
from magellan.launcher.run import run
from magellan.model.files import check_backbone
from tests.runs import error_line, refusal, tables
from tests.snippets import ROOT, raising, script

SAMPLERS = ("random", "online", "ek_online", "magellan")
CONFIGS = ROOT / "config" / "little_zoo"


def composed(device, sampler="magellan"):
    """What Hydra makes of one of the files: it on top of the one that it names."""
    own = yaml.safe_load((CONFIGS / f"local_{device}_config_{sampler}.yaml").read_text())
    assert own["defaults"] == [device, "_self_"]
    values = yaml.safe_load((CONFIGS / f"{device}.yaml").read_text())
    for name in ("defaults", "hydra"):  # for Hydra itself
        values.pop(name)
    values[SCRIPT] |= {**own.pop(SCRIPT), "output_dir": "outputs/x", "path": "magellan/main.py"}
    del own["defaults"]
    return values | own


ABSENT = object()


def changed(values, path, value):
    """With another value at a path, or without the key there."""
    values = copy.deepcopy(values)
    *parts, last = path.split(".")
    inner = values
    for part in parts:
        inner = inner.setdefault(part, {})
    inner[last] = value
    if value is ABSENT:
        del inner[last]
    return values


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_gpu_files_are_the_paper_as_the_released_ones_are(sampler):
    """Its preset with nothing changed: every released constant stands in the file, too."""
    config, layer = read(released(sampler)).config, {"sampler": sampler}
    assert identity(config) == identity(resolve_run("paper", [layer]))
    config = read(composed("gpu", sampler)).config
    layer |= {"backend": {"dtype": "bfloat16"}}
    assert identity(config) == identity(resolve_run("paper", [layer]))
    assert (config.backend.kind, config.backend.device) == ("lamorel", "cuda")
    assert (config.backend.dtype, config.backend.micro_batch) == ("bfloat16", 128)
    assert (config.goal_space, config.budget.keep_every) == ("25k", 10_000)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_cpu_files_are_the_default_experiment(sampler):
    launch = read(composed("cpu", sampler))
    layer = {"sampler": sampler, "goal_space": "1000-400-200-100-50"}
    assert identity(launch.config) == identity(resolve_run("reference", [layer]))
    assert launch.config.backend.device == "cpu"
    assert launch.loading is None


def released(sampler):
    """Our file without our own names, and with those of the released one that have one value."""
    values = composed("gpu", sampler)
    for ours in ("preset", "keep_every", "config"):
        del values[SCRIPT][ours]
    values[SCRIPT] |= {"gradient_minibatch_size": None, "adaptation_test": False}
    return values


def other_than(default):
    """Another value that the schema allows, which is no default."""
    return default / 2 if isinstance(default, float) else default + 1


CONVERTED = {
    "goal_sampler": ("random", "random"),
    "env_name": ("LittleZoo", "little_zoo"),
    "goals_distribution": ([40, 8, 4, 2, 2], "40-8-4-2-2"),
    "warmup_updates": (7, 8),
}
EVERY_NAME = [(section, name) for section, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("section", "name"), [key for key in EVERY_NAME if key[1] != "alpha"])
def test_every_name_reaches_its_keys(section, name):
    """A value other than the default one, without the names that set the same key."""
    rule, values = NAMES[section][name], composed("gpu")
    for other, names in NAMES.items():
        for same in [same for same in names if names[same].key == rule.key]:
            values = changed(values, f"{other}.{same}", ABSENT)
    value = CONVERTED.get(name) or (other_than(attrgetter(rule.key)(read(values).config)),) * 2
    config = read(changed(values, f"{section}.{name}", value[0])).config
    for key in (rule.key, *rule.also):
        assert attrgetter(key)(config) == value[1], key


def test_what_is_translated():
    values = composed("cpu")
    assert read(changed(values, f"{SCRIPT}.goals_distribution", "100k")).config.goal_space == "100k"
    agent = read(changed(values, f"{SCRIPT}.alpha", 0.3)).config.agent
    assert (agent.temperature, agent.temperature_initial) == ("fixed", 0.3)
    agent = read(changed(values, f"{SCRIPT}.alpha", "auto")).config.agent
    assert agent.temperature == "released"
    more = {"agent": {"n_step": 7}, "observers": ["per_goal"]}
    config = read(changed(values, f"{SCRIPT}.config", more)).config
    assert (config.agent.n_step, config.observers) == (7, ("per_goal",))
    assert str(read(changed(values, f"{SCRIPT}.loading_path", "a/10000")).loading) == "a/10000"
    for (name, trains), adapter in ADAPTERS.items():
        named = changed(values, f"{MAGELLAN}.sr_adapters", name)
        config = read(changed(named, f"{MAGELLAN}.train_llm", trains)).config
        assert config.competence.adapter == adapter


# Path, value, and the message after the path, or the whole one where it begins otherwise.
MODEL = "lamorel_args.llm_args"
NUMBERS = "lamorel_args.distributed_setup_args"
CONFIG = f"{SCRIPT}.config"
UNKNOWN = ": unknown key; allowed: "
REFUSED = {
    "unknown": (f"{SCRIPT}.learning_rate", 1e-3, UNKNOWN),
    "no output": (f"{SCRIPT}.output_dir", "???", ": key is missing; all"),
    "value": (f"{SCRIPT}.gamma", 2.0, "agent.gamma: 2.0 is not allowed"),
    "config of a section": (CONFIG, {"backend": 5}, ".backend: 5 is not a mapping"),
    "device": (CONFIG, {"backend": {"device": "cpu"}}, ".backend: device is not allo"),
    "two seeds": (CONFIG, {"seed": 7}, ".seed: 7 is not allowed beside rl_script_args.s"),
    "two spaces": (CONFIG, {"goal_space": "25k"}, ".goal_space: '25k' is not allowed b"),
    "folder": (f"{SCRIPT}.output_dir", ["a"], ": ['a'] is not allowed; allowed: a folder, as text"),
    "empty folder": (f"{SCRIPT}.output_dir", "", ": '' is not allowed; allowed: a folder, as text"),
    "no folder": (f"{SCRIPT}.loading_path", True, ": True is not allowed; allowed: a folder, as "),
    "null": (f"{SCRIPT}.gamma", None, ": None is not allowed; allowed: a value, or no such key"),
    "another section's": (f"{SCRIPT}.N", 100, ": unknown key; it belongs to magellan_args; all"),
    "unknown section": ("malp_args", {"epsilon_end": 0.5}, ": unknown section; allowed: lamorel_a"),
    "saves by updates": (f"{SCRIPT}.save_freq", 500, ": 500 is not allowed: the released code cou"),
    "world": (f"{SCRIPT}.env_name", "BabyAI", ": 'BabyAI' is not allowed; allowed: LittleZoo; "),
    "adapter": (f"{MAGELLAN}.sr_adapters", "own", ": 'own' is not allowed; allowed: sr_adapters"),
    "4 bits": (f"{MODEL}.load_in_4bit", True, ": "),
    "two trainers": (f"{NUMBERS}.n_rl_processes", 2, ": 2 is not allowed; allowed: 1 "),
    "unknown in lamorel's": ("lamorel_args.gloo_timout", 60, f"{UNKNOWN}accelerate_args, allow_su"),
}


@pytest.mark.parametrize(("path", "value", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(path, value, words):
    message = refusal(read, changed(composed("cpu"), path, value))
    assert message.startswith(f"{path}{words}" if words[0] in ":." else words)


def test_one_word_may_have_two_meanings_and_two_names_of_a_key_may_not_differ():
    values = changed(released("magellan"), f"{SCRIPT}.buffer_size", 700)
    config = read(changed(values, f"{MAGELLAN}.buffer_size", 60)).config
    assert (config.agent.replay_capacity, config.competence.buffer) == (700, 60)
    values = changed(released("online"), MAGELLAN, {"epsilon_end": 0.5})
    assert refusal(read, values).startswith(f"{WINDOWS}.epsilon_end: 0.2 is not allowed beside")


EVERY_KEY = [
    (f"lamorel_args.{place}".rstrip(".") + f".{key}", rule)
    for place, keys in section.KEYS.items()
    for key, rule in keys.items()
]


@pytest.mark.parametrize(("path", "rule"), EVERY_KEY)
def test_a_key_that_lamorel_would_miss_is_one_line(path, rule):
    """Before a model is loaded; with lamorel it is a traceback in each process."""
    values, missing = composed("cpu"), ": key is missing; allowed: "
    assert missing in refusal(read, changed(values, path, "???"))
    without, null = (changed(values, path, value) for value in (ABSENT, None))
    if rule.optional:
        read(without)
    else:  # a section that is missing lacks its first key
        assert re.match(f"{re.escape(path)}.*{missing}", refusal(read, without))
    if rule.null:
        read(null)
    elif not rule.optional:
        assert path in refusal(read, null)


def test_without_the_launcher_it_is_one_line(monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    assert run(composed("cpu")) == 2
    line = "error: magellan/lamorel_main.py: started by itself; allowed: python -m lamorel"
    assert error_line(capsys).startswith(line)


@pytest.mark.parametrize("key", ["auto_map", "attn_implementation"])
def test_a_folder_whose_code_would_run_is_refused(key, tmp_path, monkeypatch, capsys):
    """lamorel loads with `trust_remote_code`, and with the attention that the model asks for."""
    monkeypatch.setenv("RANK", "0")
    model = Path(shutil.copytree(check_backbone("zoo-mini"), tmp_path / "theirs"))
    stored = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(stored | {key: "org/own"}))
    assert run(changed(composed("cpu"), f"{MODEL}.model_path", str(model))) == 2
    error = error_line(capsys)
    assert error.startswith("error: lamorel_args.llm_args.model_path: '")
    assert f" has {key} in config.json, " in error


RUN = "magellan.launcher.run._run"


def test_messages_name_the_options_of_the_launcher(monkeypatch, capsys):
    """The launcher's command has no --resume and no --output."""
    error = StoppedEarly("--output: a already holds a run; pass --resume")
    monkeypatch.setattr(RUN, raising(error))
    monkeypatch.setenv("RANK", "0")
    assert run({SCRIPT: {"output_dir": "a/b"}}) == 0
    line = "rl_script_args.output_dir: a already holds a run; pass rl_script_args.loading_path=a/b"
    assert capsys.readouterr().err == f"stopped: {line}\n"


def test_a_server_that_loses_its_connection_leaves_the_error_to_the_trainer(monkeypatch, capsys):
    error = "[/somewhere/gloo/transport/tcp/pair.cc:1] Connection closed by peer"
    monkeypatch.setattr(RUN, raising(RuntimeError(error)))
    monkeypatch.setenv("RANK", "1")
    assert run({}) == 1
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RuntimeError):
        run({})


PARTS = ("lamorel", "lamorel_launcher")
SECONDS = 1500


def start(output, *overrides):
    """The launcher as a process; its run saves after every update, to be met in the middle."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = [f"path={ROOT}/magellan/lamorel_main.py", f"output_dir={output}", "preset=smoke"]
    given += ["goals_distribution=[40,8,4,2,2]", *overrides]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "lamorel_launcher.launch"),
            *("--config-path", ROOT / "config/little_zoo"),
            *("--config-name", "local_cpu_config_magellan"),
            *(f"rl_script_args.{word}" for word in given),
            "+rl_script_args.config.budget.checkpoint_seconds=0",
        ],
        cwd=output.parent,
        env={**os.environ, "LAMOREL_PORT": port, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def trainer_of(folder, process):
    """Process that trains, once it has saved a checkpoint of its own."""

    def saved():
        return {path.name for path in (folder / "checkpoints").glob("*.safetensors")}

    before, end = saved(), time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        if saved() - before:
            return int(json.loads((folder / "attempts.jsonl").read_text().splitlines()[-1])["pid"])
        time.sleep(0.1)
    process.terminate()
    pytest.fail(f"no checkpoint: {process.communicate()[0]}")


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PARTS)), reason="make lamorel-env (docs/lamorel.md)"
)
def test_a_run_that_was_stopped_and_killed_has_the_tables_of_a_local_one(tmp_path):
    """SIGTERM to the launcher, which hands it on; SIGKILL to the process that trains."""
    folder, more = tmp_path / "run", []
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = start(folder, *more)
        pid = trainer_of(folder, process)
        os.kill(process.pid if number == signal.SIGTERM else pid, number)
        output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode != 0, output
        assert ("stopped: on SIGTERM: saved" in output) == (number == signal.SIGTERM), output
        more = [f"loading_path={folder}"]
    process = start(folder, *more)
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["device"], manifest["restarts"]) == ("cpu, lamorel with 1 server", 2)
    model = {"model": "zoo-reader"}  # of config/little_zoo
    layer = {"sampler": "magellan", "goal_space": "40-8-4-2-2", "backbone": model}
    local = train(resolve_run("smoke", [layer]), tmp_path / "local", False, "none")
    assert local["identity"] == manifest["identity"]
    assert tables(folder) == tables(tmp_path / "local")


RECORDING = 'echo "$(basename "$0") $LAMOREL_PORT $*" >> {calls}\n{more}'


@pytest.fixture
def project(tmp_path):
    for folder in ("slurm", "config"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "bin").mkdir()
    return tmp_path


def recorded(project, file, *words, ends="", **environment):
    """Lines that the stand-ins wrote; `ends` is what the run does."""
    for name, more in (("python", ends), ("scontrol", "")):
        script(project / "bin" / name, RECORDING.format(calls=project / "calls", more=more))
    where = {"PATH": f"{project}/bin:{os.environ['PATH']}", "LAMOREL_PYTHON": "python"}
    command = ["bash", f"slurm/{file}", *words, "rl_script_args.lr=1e-3"]
    subprocess.run(command, cwd=project, env={**where, **environment}, check=True)
    return (project / "calls").read_text().splitlines()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_sampler_has_a_job_for_each_seed(project, sampler):
    text = (ROOT / "slurm" / f"lamorel_{sampler}.sbatch").read_text()
    assert "#SBATCH --array=0-7\n" in text
    [line] = recorded(project, f"lamorel_{sampler}.sbatch", SLURM_ARRAY_TASK_ID="3")
    assert f"--config-name local_gpu_config_{sampler} " in line
    assert f"rl_script_args.output_dir=outputs/{sampler}/seed3 " in line
    assert line.endswith("loading_path=null rl_script_args.seed=3 rl_script_args.lr=1e-3")


@pytest.mark.parametrize(
    ("file", "words", "job_name"),
    [
        ("lamorel_magellan.sbatch", ("online",), "lamorel_magellan.sbatch"),
        ("lamorel_magellan.sbatch", (), "online.sl"),  # as the paper calls it: Slurm runs a copy
    ],
)
def test_the_sampler_is_the_first_word_or_in_the_name_of_the_job(project, file, words, job_name):
    [line] = recorded(project, file, *words, SLURM_JOB_NAME=job_name)
    assert "--config-name local_gpu_config_online " in line


def test_a_job_that_stopped_early_is_put_back_and_goes_on(project):
    lines = recorded(project, "lamorel_random.sbatch", ends=saves(1), SLURM_JOB_ID="20041")
    assert lines[0].startswith("python 20041 ")
    assert lines[1] == "scontrol 20041 requeue 20041"
    ends = "touch outputs/random/seed0/manifest.json"
    lines = recorded(project, "lamorel_random.sbatch", ends=ends, SLURM_JOB_ID="7")
    assert "rl_script_args.loading_path=outputs/random/seed0 " in lines[2]
    assert len(lines) == 3


def saves(updates):
    """A run that stops by itself after so many updates, and notes it as a run does."""
    folder = "outputs/random/seed0"
    reason = f"stopped: on SIGTERM: saved 1.safetensors, update {updates}, episode 9; --resume"
    return (
        f"mkdir -p {folder}/checkpoints; touch {folder}/checkpoints/{updates}.safetensors; "
        f'echo \'{{"reason": "{reason}"}}\' >> {folder}/attempts.jsonl'
    )


def test_a_job_that_comes_no_further_is_not_put_back_for_ever(project):
    recorded(project, "lamorel_random.sbatch", ends=saves(0), SLURM_JOB_ID="7")
    with pytest.raises(subprocess.CalledProcessError):
        recorded(project, "lamorel_random.sbatch", ends=saves(0), SLURM_JOB_ID="7")
    lines = (project / "calls").read_text().splitlines()
    assert len([line for line in lines if line.startswith("scontrol")]) == 1
    recorded(project, "lamorel_random.sbatch", ends=saves(3), SLURM_JOB_ID="7")
    assert (project / "calls").read_text().splitlines()[-1].startswith("scontrol")
