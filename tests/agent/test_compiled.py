"""Compiled passes: equal to PyTorch's in whole updates, the same every time, and never a must."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from magellan.fastpath import SOURCE, CompiledLlama, LlamaPass, compiler
from magellan.fastpath.compiler import NotCompiledError, cache_folder, load
from magellan.model.backbone import Backbone
from magellan.model.scoring import score_candidates
from magellan.model.settings import BackboneConfig
from tests.agent.tiny import needs_compiler
from tests.backends.models import check_same_state, make, packed_states, update_both
from tests.runs import refusal
from tests.snippets import run_program, script


def make_backbone(passes="compiled"):
    return Backbone(BackboneConfig(model="zoo-reader", passes=passes))


@needs_compiler
def test_the_same_bytes_every_time_whatever_memory_held():
    results = []
    for value in (0.0, float("nan"), 1e30):
        dirt = [torch.full((n,), value) for n in (10**4, 10**5, 10**6, 4 * 10**6)]
        del dirt
        backend = make("compiled", "zoo-reader")
        for _ in range(3):
            update_both(backend)
        results.append(backend.state_dict())
    for other in results[1:]:
        check_same_state(other, results[0])


@needs_compiler
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_seen(bad):
    backend = make("compiled", "zoo-reader")
    backbone, states = backend.backbone, packed_states(backend)
    for name, parameter in backbone.adapter("policy").items():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(-1)[3] = bad
            backbone.adapter_changed("policy")
            scores = score_candidates(backbone, "policy", states)
            assert not torch.isfinite(scores.log_policy[scores.valid]).all(), name
            parameter.copy_(kept)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder()


# Those of PyTorch's own kernels, oneDNN, MKL, OpenBLAS, and of the compiled code.
LIBRARIES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "OPENBLAS_CORETYPE")
INSTRUCTIONS = {
    "sse2": ("default", "SSE41", "COMPATIBLE", "Prescott", "x86-64"),
    "avx2": ("avx2", "AVX2", "AVX2", "Haswell", "haswell"),
    "avx512f": ("avx512", "AVX512_CORE", "AVX512", "SkylakeX", "skylake-avx512"),
}
AFFECTED = ("agent/test_passes.py", "agent/test_sac.py")
AFFECTED += ("backends/test_local.py", "training/test_learned.py")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_passes_are_right_with_other_instructions(name):
    """All sets below the processor's own, with which the other tests are run."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.exists() else []
    known = [name for name in INSTRUCTIONS if name in flags]
    if name not in known[:-1]:
        pytest.skip(f"this processor's own instructions are {(known or ['others'])[-1]}")
    *values, processor = INSTRUCTIONS[name]
    compiled = {"CXX": shlex.join([*compiler._compiler(), f"-march={processor}"])}
    files = [f"tests/{file}" for file in AFFECTED]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    env = {**os.environ, **dict(zip(LIBRARIES, values, strict=True)), **compiled}
    here = {"cwd": SOURCE.parents[2], "env": env}
    done = subprocess.run([*command, *files], **here, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_processor_that_is_named_is_compiled_for(cache, monkeypatch):
    text = 'case "$*" in *--version) exit;; esac; echo "error: $*" >&2; exit 1'
    path = script(cache.parent / "cxx", text)
    for more, own in (("", True), (" -mcpu=old", False), (" -O2 -march=old", False)):
        monkeypatch.setenv("CXX", path + more)
        monkeypatch.setattr(compiler, "_native_option", lambda: "-march=own")
        with pytest.raises(NotCompiledError) as refused:
            load(SOURCE)
        assert ("-march=own" in str(refused.value)) == own


def test_no_float_is_compared_as_one_processor_suggests():
    """`close` in tiny.py compares implementations, `printed` in runs.py what has few decimals; all
    else is relative, or the error of a sample."""
    rounding = r"((atol|abs)=|[ (]<=? )(\d[.\d]*e-0?([4-9]|10)\b|0\.000)"
    of_one_processor = re.compile(rf"torch\.\S*close\((?!.*rtol=0, atol=0)|{rounding}")
    paths = Path(__file__).parents[1].rglob("*.py")
    assert [path for path in paths if of_one_processor.search(path.read_text())] == []


def check_fallback(reason):
    """`auto` takes PyTorch and says why; `compiled` is refused for the same reason."""
    backbone = make_backbone(passes="auto")
    assert isinstance(backbone.fast_pass, LlamaPass)
    assert backbone.passes.startswith("torch (")
    assert reason in backbone.passes
    message = refusal(make_backbone)
    assert message.startswith("backbone.passes: 'compiled'")
    assert reason in message


def test_without_a_compiler_or_with_one_that_fails(cache, monkeypatch, tmp_path):
    text = '[ "$1" = --version ] && echo 1.0 && exit; echo "x.cpp:1: error: no" >&2; exit 1'
    monkeypatch.setenv("CXX", script(tmp_path / "failing", text))
    check_fallback("x.cpp:1: error: no")
    assert not list(cache.iterdir())  # nor a temporary folder
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    check_fallback("no C++ compiler")


@needs_compiler
def test_where_the_cache_cannot_be_written(cache):
    cache.write_text("a file where the folder would be")
    check_fallback("Error")


LOAD = "from magellan.fastpath import SOURCE, compiler; compiler.load(SOURCE)[0].llama_weights"


@pytest.mark.slow
@needs_compiler
def test_jobs_share_what_is_in_the_cache_and_mend_it(cache):
    command = [sys.executable, "-c", LOAD]
    jobs = [subprocess.Popen(command, cwd=SOURCE.parents[2]) for _ in range(3)]
    assert [job.wait() for job in jobs] == [0, 0, 0]
    (kept,) = cache.iterdir()
    before = kept.stat()
    load(SOURCE)
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    kept.unlink()
    kept.write_bytes(b"half a file")  # not over the file that this process has loaded
    run_program(LOAD)
    assert kept.stat().st_size == before.st_size


@needs_compiler
def test_auto_takes_one_thread():
    assert isinstance(make_backbone(passes="auto").fast_pass, CompiledLlama)
    assert make_backbone(passes="auto").passes.startswith("compiled (")
    torch.set_num_threads(2)
    assert isinstance(make_backbone(passes="auto").fast_pass, LlamaPass)
    assert isinstance(make_backbone(passes="compiled").fast_pass, CompiledLlama)


def test_large_models_are_not_compiled():
    model = make_backbone(passes="torch")._plain
    assert CompiledLlama.fits(model)
    model.config.hidden_size = 2048
    assert not CompiledLlama.fits(model)
