"""The same model here and behind lamorel's own servers, in processes that its launcher starts."""

import json

import pytest

from benchmarks.shapes import model_folder
from tests.agent.tiny import TIMES
from tests.backends.lamorel.launching import CONFIGS, launch, needs_lamorel, of_model

COMPARING = CONFIGS.parents[1] / "tests" / "backends" / "lamorel" / "comparing.py"
TYPES = {"zoo-mini": "causal", "t5": "seq2seq"}
CASES = {
    "causal": ("zoo-mini", 1),
    "encoder-decoder": ("t5", 1),
    "two servers": ("t5", 2),
}

pytestmark = needs_lamorel


@pytest.fixture(scope="module", params=CASES)
def gaps(request, tmp_path_factory):
    shape, servers = CASES[request.param]
    folder = tmp_path_factory.mktemp("gaps")
    with model_folder(shape) as model:
        status, output = launch(
            folder,
            "local_cpu_config_magellan",
            folder,
            *of_model(model, TYPES[shape], servers),
            script=COMPARING,
        )
    assert status == 0, output
    gaps = json.loads((folder / "gaps.json").read_text())
    assert gaps["device"].endswith("1 server" if servers == 1 else f"{servers} servers")
    print(gaps)
    return gaps


def test_it_reads_and_learns_as_the_same_model_here(gaps):
    """All adapters differ: a server that read with another one would be off by more than this."""
    assert max(gaps["errors"].values()) <= TIMES
    assert gaps["current_from_delayed"] > 1e-3
    for losses, expected in zip(*gaps["losses"], strict=True):
        assert losses == pytest.approx(expected, rel=1e-4)
    assert gaps["policy_moved"] > 1e-4
    assert gaps["critic_reached_adapter"] > 0
