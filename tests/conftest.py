"""Every test computes with one thread, so that its numbers are those of any number of cores.

A test about threads sets them itself; what a test changed is put back after it.
"""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from magellan.core.environment import prepare
from magellan.core.registry import REGISTRIES, is_built_in

THREADS = 1
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Libraries read these once, when test modules import them; processes that tests start inherit them.
os.environ.update(dict.fromkeys(VARIABLES, str(THREADS)))
prepare()
# A temporary folder for Hypothesis, which needs it at collection.
HYPOTHESIS_HOME = tempfile.TemporaryDirectory(prefix="hypothesis-")
set_hypothesis_home_dir(HYPOTHESIS_HOME.name)
settings.register_profile(
    "same examples every time",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("same examples every time")
FROZEN = [0]
"""Numbers of modules that were imported when garbage collections last forgot them."""


def pytest_runtest_setup() -> None:
    """Keep what has been imported out of garbage collections: statsmodels asks for one in each
    correction of p values.
    """
    if len(sys.modules) > FROZEN[-1] + 100:
        gc.collect()
        gc.freeze()
        FROZEN.append(len(sys.modules))


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`THREADS` threads at the start of each test, in this process and in its children."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(THREADS))
    _configure_torch()
    yield
    _configure_torch()


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    before = [{*registry} for registry in REGISTRIES]
    yield
    for registry, names in zip(REGISTRIES, before, strict=False):
        for name in registry.keys() - names:
            if not is_built_in(registry[name]):
                registry.remove(name)


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is marked `gpu` runs on one, or on a pretended one where there is none.

    What such a test puts on the GPU it makes itself: fixtures of a module come before this one.
    """
    gpu: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if request.node.get_closest_marker("gpu") is not None:
        import torch

        from tests.backends.pretended import pretended_gpu

        gpu = gpu if torch.cuda.is_available() else pretended_gpu()
    with gpu:
        yield


def _configure_torch() -> None:
    torch = sys.modules.get("torch")  # tests of the workflow and of configurations do without
    if torch is not None and torch.get_num_threads() != THREADS:
        torch.set_num_threads(THREADS)
