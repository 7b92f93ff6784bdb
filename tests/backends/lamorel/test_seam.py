"""Both ends, the trainer's and the servers', in one process: between them is lamorel's part."""

from dataclasses import replace

import numpy as np
import pytest

from magellan.backends import CURRENT, DELAYED, check_backend
from magellan.backends.lamorel.remote import LamorelBackend, ServerError
from magellan.backends.lamorel.serving import Serving
from magellan.core.errors import (
    InputError,
    JobError,
    OutOfMemoryError,
    ServersDiffer,
    is_out_of_memory,
)
from magellan.model.settings import BackendConfig
from tests.agent.tiny import close, in_float64
from tests.backends.lamorel.models import (
    AGENT,
    InProcess,
    as_local,
    behind,
    holds_no_tensor,
    largest_difference,
    local,
    served,
    updated,
)
from tests.backends.models import (
    check_same_update,
    episodes,
    prompts,
    some_states,
    transitions,
)
from tests.snippets import raising, run_program

SERVERS = pytest.mark.parametrize("servers", [1, 3])


@pytest.fixture
def expected():
    return local()


@SERVERS
def test_it_reads_what_a_local_model_reads(servers, expected):
    backend = as_local(behind(servers), expected)
    states, packed = some_states(expected), prompts(expected)
    which = (CURRENT, DELAYED, 0)

    def read(model, prompts):
        predictions = model.competence(prompts, which)
        return model.probabilities(states), model.values(states), predictions

    library = read(expected, packed)
    with in_float64(expected):
        exact = read(expected, packed)
    for given in (packed, backend.cache_prompts(packed)):
        for values in zip(read(backend, given), library, exact, strict=True):
            close(*values)
    assert np.abs(exact[2][0] - exact[2][1]).max() > 1e-3


@SERVERS
def test_fewer_states_than_servers(servers, expected):
    backend = as_local(behind(servers), expected)
    states, packed = some_states(expected)[:1], prompts(expected, 1)
    assert backend.probabilities(states).shape == (1, 1)
    assert backend.values(states).shape == (1, 1)
    found, library = (model.competence(packed) for model in (backend, expected))
    with in_float64(expected):
        close(found, library, expected.competence(packed))


@SERVERS
def test_one_update_moves_what_a_local_one_moves(servers, expected):
    backend = as_local(behind(servers), expected)
    before, exact = backend.state_dict(), local()
    for learner in ("sac", "competence"):
        found, library = (updated(model, learner) for model in (backend, expected))
        with in_float64(exact):
            check_same_update(found, [library, updated(exact, learner)])
    after = backend.state_dict()
    assert largest_difference(after["sac"]["adapters"], before["sac"]["adapters"]) > 1e-4
    assert largest_difference(after["competence"]["adapter"], before["competence"]["adapter"]) > 0
    assert holds_no_tensor(after)


def test_snapshots_and_prompts_are_kept_and_forgotten(expected):
    backend = as_local(behind(2), expected)
    held = backend.cache_prompts(prompts(expected))
    before = backend.competence(held)[0]
    backend.snapshot(keep=1)
    backend.update_competence(episodes(expected))
    for which in (0, DELAYED):
        np.testing.assert_array_equal(backend.competence(held, (which,))[0], before)
    with pytest.raises(IndexError):
        backend.competence(held, (1,))
    backend.free_prompts(held)
    with pytest.raises(KeyError):
        backend.competence(held)


NO_MEMORY = {
    "ours": (OutOfMemoryError("not even one state fits"), OutOfMemoryError, "^not even one state"),
    "without words": (
        MemoryError(),
        ServerError,
        r"^MemoryError in a server .* \(out of memory\)$",
    ),
}


@pytest.mark.parametrize("case", NO_MEMORY)
def test_a_server_without_memory_reports_it_and_ends_all(case, monkeypatch):
    from magellan.backends.lamorel import serving
    from tests.backends.lamorel import models

    error, kind, words = NO_MEMORY[case]
    ended = []
    monkeypatch.setattr(serving, "check_scores", raising(error))
    monkeypatch.setattr(models.InProcess, "close", lambda caller: ended.append(caller))
    with pytest.raises(kind, match=words) as caught:
        behind(2)
    assert len(ended) == 1
    assert isinstance(caught.value, OutOfMemoryError) or is_out_of_memory(caught.value)


def test_servers_agree_on_the_smallest_micro_batch(monkeypatch):
    """Each tries for itself; all take the least, also one that a checkpoint holds."""
    auto = replace(served(), settings=BackendConfig(micro_batch="auto"))
    found = iter((5, 3, AGENT.batch_size))
    monkeypatch.setattr("magellan.backends.local.find_micro_batch", lambda *_: next(found))
    backend = behind(3, auto)
    backend.start_policy(AGENT, 0)

    def chosen():
        return {server.backend.backbone.micro_batch for server in backend._caller.servings}

    assert chosen() == {3}
    assert backend.memory == "micro-batch 3 (auto: the least of 3 servers)"
    backend.update_policy(transitions(local()))
    backend.load_state_dict({**backend.state_dict(), "micro_batch": 2})
    assert chosen() == {2}
    assert backend.memory == "micro-batch 2 (auto: as this run began)"


def test_what_goes_wrong_in_a_server_is_raised_here(expected, monkeypatch):
    backend = as_local(behind(), expected)
    batch = transitions(expected)
    no_memory = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    [server] = backend._caller.servings
    monkeypatch.setattr(server.backend.agent, "update", raising(no_memory))
    with pytest.raises(ServerError, match="RuntimeError in a server of lamorel: CUDA out") as error:
        backend.update_policy(batch)
    assert is_out_of_memory(error.value)


def test_a_server_that_has_ended_is_one_line(expected, monkeypatch):
    """Then no server can be asked to end: the launcher ends the others."""
    backend = as_local(behind(), expected)
    caller = backend._caller
    gone = RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer [::1]:1")
    monkeypatch.setattr(caller, "update", raising(gone))
    with pytest.raises(JobError, match=r"^a server of lamorel .* answer .*; --resume goes on"):
        backend.snapshot(1)
    backend.close()
    assert caller.closed == 0
    monkeypatch.setattr(InProcess, "update", raising(gone))
    with pytest.raises(JobError, match=r"^a server of lamorel .* see its last output above$"):
        behind()  # nothing to go on from: it ended while it loaded


def test_a_missing_gpu_is_reported_by_the_server_and_raised_here(monkeypatch):
    refuse = raising(RuntimeError("CUDA error: invalid device ordinal"))
    monkeypatch.setattr("torch.cuda.set_device", refuse)
    serving = Serving(replace(served(), settings=BackendConfig(device="cuda")), 1)
    serving.adopt(None, None, 7)
    with pytest.raises(ServerError, match="invalid device ordinal"):
        LamorelBackend(InProcess([serving]), None, 1)


def test_servers_that_drift_apart_are_noticed(expected):
    backend = as_local(behind(2), expected)
    head = backend._caller.servings[1].backend.agent.critic
    head.get_parameter("0.weight").data.add_(0.1)
    with pytest.raises(ServersDiffer, match="servers differ after update_policy"):
        backend.update_policy(transitions(expected))


def test_without_its_launcher_it_is_one_line():
    with pytest.raises(InputError, match=r"^backend.kind: 'lamorel' is not allowed here: .*local$"):
        check_backend(BackendConfig(kind="lamorel"))


def test_nothing_of_it_is_imported_with_the_package():
    program = (
        "import sys\nimport magellan.cli, magellan.backends, magellan.main\n"
        "import magellan.launcher.arguments, magellan.launcher.run, magellan.backends.lamorel\n"
        "print(sorted({'lamorel', 'hydra', 'omegaconf', 'torch'} & set(sys.modules)))"
    )
    assert run_program(program) == "[]"
