"""The benchmark: what it times and counts, what it writes and what it refuses."""

import csv
import itertools
import json
import re
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import bench
from benchmarks.bench import SHAPES, Bench, configuration, model_folder, number, timed
from magellan.backends import make_backend
from magellan.cli import main
from magellan.competence.learned import LearnedSettings
from magellan.config import flat_keys, run_model
from magellan.model import loading
from magellan.model.backbone import GPU_BUCKET
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig
from tests.backends.models import on_a_gpu, prompts, some_states, update
from tests.runs import error_line
from tests.snippets import ROOT

SMALL = {
    "agent": {"batch_size": 8, "num_envs": 4, "steps_per_update": 8, "critic_hidden": [8]},
    "competence": {"batch_size": 8, "hidden": 8},
}
TIMED = ["acting, 8 steps", "SAC update, 8 transitions", "competence update, 8 episodes"]
TIMED += ["refresh, 24,992 goals"]


def test_constants_are_the_papers_and_formats_follow_from_size_and_device():
    config, paper = configuration("zoo-mini", 10, "cpu"), run_model()()
    assert config.agent == paper.agent.model_copy(update={"actor_warmup_updates": 0})
    assert config.competence == paper.competence.model_copy(update={"pool": 100_000})
    large = configuration("zoo-mini", 10**8, "cuda")
    assert (config.backbone.lora_mode, large.backbone.lora_mode) == ("merged", "per_token")
    assert (config.backend.dtype, large.backend.dtype) == ("float32", "bfloat16")
    given = configuration("zoo-mini", 10, "cuda", [{"threads": 2}])
    assert (given.backend.device, given.threads) == ("cuda", 2)


def test_it_ends_in_its_time_and_writes_its_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 3.0)
    settings = [f"--set={key}={value}" for key, value in flat_keys(SMALL).items()]
    settings.append("--set=backbone.passes=torch")
    assert main(["bench", "--output", str(tmp_path / "bench"), *settings]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "bench" / "device.md").read_text()
    lines = [line for line in printed.splitlines() if line.startswith("| ")]
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert [row[0] for row in rows] == TIMED
    for _, seconds, calls, *_ in rows:
        assert all(float(value.replace(",", "")) > 0 for value in (seconds, calls))
    assert re.fullmatch(r"(measured on [\d,]+ of 24,992 goals)?", rows[-1][-1].strip(" |"))


def test_hours_follow_from_rounds_and_evaluations():
    """39,063 rounds of 0.72 s, and 101 evaluations of 512 episodes of 5 steps, 64 in 0.64 s."""
    times = {"acting": 0.64, "SAC update": 0.03, "competence update": 0.04, "refresh": 0.32}
    config = configuration("zoo-mini", 10, "cpu")
    made = SimpleNamespace(config=config, steps=64, seconds=times)
    hours = (39_063 * 0.72 + 101 * 512 * 5 / 100) / 3600
    assert f"**{number(64 / 0.72)} steps/s**" in Bench.loop(made)
    assert f"**{number(hours)} h**" in Bench.loop(made)
    del times["refresh"]
    assert "**not measured**" in Bench.loop(made)


@pytest.mark.slow
@on_a_gpu
def test_on_a_gpu_memory_is_measured():
    with model_folder("t5") as folder:
        rows = list(Bench(configuration(folder, 10**8, "cuda", [SMALL])).rows(20.0))
    assert all(row[1] for row in rows)
    assert torch.version.cuda is None or all(row[3].endswith(" MB") for row in rows)


def test_what_does_not_fit_is_said(monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(bench, "timed", fail)
    made = Bench(configuration("zoo-mini", 10, "cpu", [SMALL]))
    assert {row[-1] for row in made.rows(1.0)} == {"out of memory"}
    assert "**not measured**" in made.loop()


# Seconds of a call and of each unit of its size, in 60 s; what is measured of 256, how often.
SPEEDS = {
    "fast": (0.0, 0.001, 256, bench.MOST_CALLS),
    "slow": (0.0, 1.0, 20, 2),
    "too slow": (0.0, 100.0, 4, 1),
    "as on a GPU": (0.4, 0.0, 256, bench.MOST_CALLS),
}


@pytest.mark.parametrize("speed", SPEEDS)
def test_what_the_time_allows_is_measured(speed, monkeypatch):
    start, each, size, calls = SPEEDS[speed]
    now, sizes = 0.0, []

    def make(n):
        def call():
            nonlocal now
            now += start + each * n + (0.0 if sizes else 5.0)  # one-time costs
            sizes.append(n)

        return call

    monkeypatch.setattr(bench, "timer", lambda: now)
    seconds, *measured = timed(make, 256, 4, 60.0)
    assert seconds == pytest.approx(start + each * 256)
    assert measured == [calls, size]
    assert all(b <= 16 * a for a, b in itertools.pairwise(sizes))


def test_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "Bench", lambda *_: pytest.fail("work before the check"))
    (tmp_path / "file").write_text("")
    assert main(["bench", "--quick", "--output", str(tmp_path / "file" / "bench")]) == 2
    assert error_line(capsys).startswith("error: --output: ")


def test_without_the_package_the_command_says_where_it_runs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "benchmarks.bench", None)
    assert main(["bench"]) == 2
    assert "clone of the repository" in error_line(capsys)


# What each line of the page's table says: (row, shape, size) of the committed bench.csv.
ALL = [(f"new process: {row}", "zoo-mini", "all") for row in ("whole loop", "peak memory of a run")]
SHOWN = [("whole loop", "zoo-mini", "25k")], ALL, [("whole loop", "t5", "25k")]


def test_speeds_on_the_page_are_the_committed_ones():
    committed = ROOT / "results" / "reference" / "bench"
    core = json.loads((committed / "manifest.json").read_text())["matmul_gflop_per_second"]
    figures = {
        (row["row"], row["shape"], row["size"]): f"{number(float(row['value']))} {row['unit']}"
        for row in csv.DictReader((committed / "bench.csv").read_text().splitlines())
    }
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    table = re.search("<!-- begin: speed -->\n(.*)\n<!-- end: speed -->", page, re.DOTALL)
    head, _, *lines = table[1].splitlines()
    assert f"multiplies matrices at {number(core)} GFLOP/s" in head
    speeds = [line.split(" | ")[1].removesuffix(" |") for line in lines]
    assert speeds == ["; ".join(figures[key] for key in keys) for keys in SHOWN]


def test_t5_has_the_size_of_the_released_timing():
    with model_folder("t5") as folder:
        assert bench.number_of_parameters(folder) == 206_080


NO_KERNEL = {"_unsafe_view", "_fused_sdp_choice", "_record_function_exit", "lift_fresh"}
NO_KERNEL |= {"_record_function_enter_new", "empty", "empty_like", "empty_strided", "new_empty"}
NO_KERNEL |= {"new_empty_strided"}
"""Calls that compute nothing, besides views."""


class Kernels(TorchDispatchMode):
    """Counts the calls that start a kernel; a norm is one, as on a GPU, not a CPU's several."""

    def __enter__(self):
        self.calls, self._norms = Counter(), torch.library.Library("aten", "IMPL")
        for norm in (torch.ops.aten._fused_rms_norm, torch.ops.aten._fused_rms_norm_backward):
            self._norms.impl(norm.__name__, decomposition_table[norm.default], "CPU")
        return super().__enter__()

    def __exit__(self, *error):
        self._norms._destroy()
        super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if not function.is_view and name not in NO_KERNEL:
            self.calls[name] += 1
        return function(*args, **(kwargs or {}))


# By shape: sizes, where only depth changes a count; bounds of an acting pass, a SAC update, a
# competence update and a refresh of at most 512 goals.
T5 = {"d_model": 48, "d_kv": 8, "d_ff": 64, "num_heads": 6, "vocab_size": 128}
SMOLLM2 = {"model_type": "llama", "num_hidden_layers": 30, "tie_word_embeddings": True}
SMOLLM2 |= {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}
BOUNDS = {
    "flan-t5-base-shape": (SHAPES["flan-t5-base-shape"] | T5, (900, 3_500, 1_700, 700)),
    "smollm2": (SMOLLM2 | {"intermediate_size": 96, "vocab_size": 128}, (900, 4_200, 1_700, 700)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", BOUNDS)
def test_kernels_of_a_pass_are_few(name, dtype, monkeypatch):
    """At full depth, by the way that a GPU takes."""
    shape, bounds = BOUNDS[name]
    monkeypatch.setitem(SHAPES, name, shape)
    monkeypatch.setattr(loading, "attention_on", lambda device: None)
    with model_folder(name) as folder:
        config = BackboneConfig(model=folder, lora_mode="per_token")
        backend = make_backend(config, BackendConfig(dtype=dtype))
    backend.backbone._bucket = GPU_BUCKET
    backend.start_policy(AgentConfig(actor_warmup_updates=0, critic_hidden=(8,) * 2), 0)
    backend.start_competence(LearnedSettings(hidden=8), 0)
    held = backend.cache_prompts(prompts(backend))
    operations = (
        lambda: backend.probabilities(some_states(backend)),
        lambda: update(backend, "sac"),
        lambda: update(backend, "competence"),
        lambda: backend.competence(held),
    )
    for operation, bound in zip(operations, bounds, strict=True):
        operation()  # the moments of the optimizers, and what is kept
        with Kernels() as kernels:
            operation()
        assert 100 < kernels.calls.total() <= bound, kernels.calls.most_common(9)
