"""Both ends, the trainer's and the servers', in one process: between them is lamorel's part."""

import copy

import numpy as np
import pytest

from magellan.backends import CURRENT, DELAYED
from magellan.backends.lamorel import serving as serving_module
from magellan.backends.lamorel.remote import READING, LamorelBackend, ServerError
from magellan.backends.lamorel.serving import Served, Serving
from magellan.competence.learned import LearnedSettings
from magellan.core import errors
from magellan.core.errors import JobError, OutOfMemoryError, ServersDiffer
from magellan.model.loading import load_model
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import DEFAULT_WORLD, WORLDS
from tests.agent.tiny import close, in_float64
from tests.backends import models
from tests.backends.models import episodes, make, prompts, some_states, transitions
from tests.snippets import raising, run_program

COMPETENCE = LearnedSettings(hidden=8, learning_rate=1e-3)


def local():
    """Adapters with values of their own; the delayed estimator differs from the current one."""
    backend = make("plain", agent={"joint_update": False})
    adapter = backend.backbone.adapter("competence")
    backend.snapshot(keep=1)
    moved = {name: values.detach() + 0.05 for name, values in adapter.items()}
    backend.backbone.load_adapter("competence", moved)
    return backend


def as_local(backend, expected):
    backend.start_policy(expected.agent.config, 0)
    backend.start_competence(COMPETENCE, 0)
    backend.load_state_dict(expected.state_dict())
    return backend


class InProcess:
    """What lamorel does between the processes, in one: each end has copies of the messages."""

    def __init__(self, servings):
        self.servings = servings
        self.closed = 0

    def _answers(self, contexts, message):
        assert contexts == [str(number) for number in range(len(self.servings))]
        return [
            copy.deepcopy(serving.answer([context], **copy.deepcopy(message)))
            for serving, context in zip(self.servings, contexts, strict=True)
        ]

    def custom_module_fns(self, module_function_keys, contexts, **message):
        assert module_function_keys == [READING]
        return [{READING: answer} for answer in self._answers(contexts, message)]

    def update(self, contexts, candidates, **message):
        assert len(candidates) == len(contexts)
        return self._answers(contexts, message)

    def close(self):
        self.closed += 1


def behind(servers=1, **settings):
    backbone = BackboneConfig(lora_targets="all_linear", lora_rank=4, lora_mode="per_token")
    what = Served(backbone, BackendConfig(**settings), 1, WORLDS[DEFAULT_WORLD], 1)
    servings = [Serving(what, servers) for _ in range(servers)]
    for serving in servings:
        serving.adopt(*load_model(what.backbone.model))
    return LamorelBackend(InProcess(servings), load_model(what.backbone.model)[1], servers)


def updated(backend, learner):
    """Losses, and gradients of the first step of an update, before which nothing has moved."""
    losses, gradients = models.updated(backend, learner)
    return losses, {name: gradients[name] for name in gradients if not name.startswith("actor")}


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
def test_one_update_moves_what_a_local_one_moves(servers, expected):
    backend = as_local(behind(servers), expected)
    before, exact = copy.deepcopy(backend.state_dict()), local()
    for learner in ("sac", "competence"):
        found, library = (updated(model, learner) for model in (backend, expected))
        with in_float64(exact):
            models.check_same_update(found, [library, updated(exact, learner)])
    after = dict(models.leaves(backend.state_dict()))
    moved = {name for name, value in models.leaves(before) if np.any(after.get(name) != value)}
    for part in (".sac.adapters.policy", ".competence.adapter"):
        assert any(name.startswith(part) for name in moved)
    assert not any(hasattr(value, "requires_grad") for value in after.values())


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


def test_a_server_without_memory_reports_it_and_ends_all(monkeypatch):
    ended = []
    error = OutOfMemoryError("not even one state fits")
    monkeypatch.setattr(serving_module, "check_scores", raising(error))
    monkeypatch.setattr(InProcess, "close", lambda caller: ended.append(caller))
    with pytest.raises(OutOfMemoryError, match=r"^not even one state"):
        behind(2)
    assert len(ended) == 1


def test_servers_agree_on_the_smallest_micro_batch(monkeypatch):
    """Each tries for itself; all take the least, also one that a checkpoint holds."""
    settings = local().agent.config
    found = iter((5, 3, settings.batch_size))
    monkeypatch.setattr("magellan.backends.local.find_micro_batch", lambda *_: next(found))
    backend = behind(3, micro_batch="auto")
    backend.start_policy(settings, 0)

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
    [server] = backend._caller.servings
    no_memory = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    monkeypatch.setattr(server.backend.agent, "update_policy", raising(no_memory))
    with pytest.raises(ServerError, match="RuntimeError in a server of lamorel: CUDA out") as error:
        backend.update_policy(transitions(expected))
    assert errors.is_out_of_memory(error.value)


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


def test_servers_that_drift_apart_are_noticed(expected):
    backend = as_local(behind(2), expected)
    head = backend._caller.servings[1].backend.agent.critic
    head.get_parameter("0.weight").data.add_(0.1)
    with pytest.raises(ServersDiffer, match="servers differ after update_policy"):
        backend.update_policy(transitions(expected))
    for serving in backend._caller.servings:  # the trainer ends a run that is not finite
        serving.backend.agent.critic.get_parameter("0.weight").data.fill_(np.nan)
    assert np.isnan(backend.update_policy(transitions(expected))["critic_loss"])


def test_nothing_of_it_is_imported_with_the_package():
    program = (
        "import sys\nimport magellan.cli, magellan.backends, magellan.lamorel_main\n"
        "import magellan.launcher.arguments, magellan.launcher.run, magellan.backends.lamorel\n"
        "print(sorted({'lamorel', 'hydra', 'omegaconf', 'torch'} & set(sys.modules)))"
    )
    assert run_program(program) == "[]"
