"""A trained agent, read from the folder of its run, which is not changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from magellan.backends import Backend, check_backend, make_backend
from magellan.config import RunConfig, phases_of, stored_config
from magellan.config.phases import goals_of
from magellan.core.errors import InputError, JobError, is_out_of_memory, shown
from magellan.core.parsing import parse_json
from magellan.core.randomness import initial_seeds
from magellan.core.settings import validated
from magellan.jobs.checkpoint import FOLDER, MALFORMED, newest
from magellan.jobs.export import agent_files, is_complete
from magellan.jobs.folder import check_folder
from magellan.jobs.provenance import Origin, code_version, library_versions
from magellan.model.files import check_backbone, model_digest
from magellan.model.settings import BackendConfig
from magellan.worlds import WORLDS, GoalSet

ARGUMENT = "run"


class Point(NamedTuple):
    """A moment of a run, as in its tables."""

    update: int
    step: int
    episode: int


@dataclass(frozen=True)
class TrainedAgent:
    """The agent of a run's newest intact checkpoint.

    path: of the checkpoint.
    backbone: SHA-256 of the language model's files.
    state: of the trainer.
    damaged: newer, damaged checkpoints.
    """

    path: Path
    config: RunConfig
    backbone: str
    state: Mapping[str, Any]
    damaged: tuple[Path, ...]

    @classmethod
    def read(cls, folder: Path, modules: tuple[str, ...] = ()) -> TrainedAgent:
        """Read the folder of a run, complete or not.

        modules: Python files with samplers, estimators or worlds of the run outside this package;
            they are executed.

        Raises:
            InputError: no intact checkpoint of this code, or the language model is missing or
                differs.
        """
        check_folder(folder, ARGUMENT)
        allowed = f"allowed: the folder of a run with a whole checkpoint in {FOLDER}/"
        loaded = newest(folder / FOLDER, ARGUMENT, allowed)
        if loaded is None:
            raise InputError(f"{ARGUMENT}: {folder} holds no checkpoint; {allowed}")
        path, metadata, state = loaded.path, loaded.metadata, loaded.state
        values = parse_json(metadata["config"], f"{path}: config")
        if not isinstance(values, dict):
            raise InputError(f"{path}: config is {shown(values)}; allowed: a mapping")
        config = stored_config(values, metadata["identity"], modules, path)
        if WORLDS[config.world].answer_tokens:
            raise InputError(
                f"{ARGUMENT}: {folder} is not allowed: in its world {config.world!r} the agent "
                "writes, and its model is in the checkpoint alone; allowed: runs with actions"
            )
        digest = model_digest(check_backbone(config.backbone.model))
        if digest != metadata["backbone"]:
            raise InputError(
                f"{path}: the agent was trained on another backbone: backbone.model is "
                f"{shown(config.backbone.model)}, whose files have SHA-256 {digest[:12]}, and had "
                f"{metadata['backbone'][:12]} then; allowed: the same files"
            )
        trainer = state.get("trainer")
        if not isinstance(trainer, dict):
            raise InputError(f"{path} holds no trained agent; allowed: a checkpoint of a run")
        agent = cls(path, config, digest, trainer, tuple(loaded.damaged))
        with agent.fitting():  # counters that all readers use, and a model
            counters = [*agent.point, trainer["phase"]]
            valid = all(type(number) is int and number >= 0 for number in counters)
            valid = valid and isinstance(trainer["backend"], dict)
            if not valid or not 1 <= counters[-1] <= len(phases_of(config)):
                raise ValueError("counters, or no model")
            agent.complete  # noqa: B018  # raises if the state is invalid
        return agent

    @property
    def complete(self) -> bool:
        """Whether the run is complete."""
        return is_complete(self.config, self.state)

    @property
    def point(self) -> Point:
        """Progress of the run."""
        return Point(*(self.state[key] for key in ("updates", "steps", "episodes")))

    @property
    def where(self) -> str:
        """Progress of the run, as text."""
        progress = f"update {self.point.update}, episode {self.point.episode}"
        return f"{progress}, {'complete' if self.complete else 'not complete'}"

    @property
    def exported_by(self) -> Origin:
        """The current code and libraries, and the agent's language model."""
        model = {"model": self.config.backbone.model, "sha256": self.backbone}
        return Origin(code_version(), library_versions(), model)

    def files(self, output: Path) -> dict[str, bytes]:
        """Adapters, heads and model card, by path in the folder `output`.

        output: also named in the code on the card.

        Raises:
            InputError: the state is incompatible with this code.
        """
        with self.fitting():
            return agent_files(self.config, self.state, self.exported_by, output)

    @property
    def goals(self) -> GoalSet:
        """The training goals of the run's last phase."""
        return goals_of(self.config, phases_of(self.config)[self.state["phase"] - 1])

    @property
    def predicts(self) -> bool:
        """Whether the language model predicts its own success."""
        return "competence" in self.state["backend"]

    def backend(self, keys: Mapping[str, str]) -> Backend:
        """The agent's language model, with threads and determinism of the process set.

        Args and errors: those of `fresh` and `load`.
        """
        backend = self.fresh(keys)
        self.load(backend)
        return backend

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """Turn errors of an incompatible state into InputError; keep other errors."""
        try:
            yield
        except (InputError, JobError):
            raise
        except (*MALFORMED, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise InputError(
                f"{self.path} does not fit this version of the code ({type(error).__name__}); "
                "allowed: a checkpoint that this code has written"
            ) from error

    def fresh(self, keys: Mapping[str, str]) -> Backend:
        """The language model before the run's first update; sets threads and determinism.

        keys: of the section `backend`; the run's own is ignored.

        Raises:
            InputError: no such device, or the model cannot be loaded.
            OutOfMemoryError: the weights exceed the free memory.
        """
        from magellan.backends.machine import configure_torch

        config = self.config
        settings = validated(BackendConfig, keys, "backend.")
        check_backend(settings, config.backbone)
        configure_torch(config.threads, settings.deterministic)  # before the model's first product
        # Compiled passes do not pay for a few states.
        backbone = config.backbone.model_copy(update={"passes": "torch"})
        adapters, agent, estimators = initial_seeds(phases_of(config)[0].seed)
        backend = make_backend(backbone, settings, adapters, self.goals.world)
        with self.fitting():
            backend.start_policy(config.agent, agent)
            if self.predicts:
                backend.start_competence(config.section("competence"), estimators)
        return backend

    def load(self, backend: Backend) -> None:
        """Load the state of this agent into a language model from `fresh`.

        Raises:
            InputError: the state does not fit.
        """
        with self.fitting():
            backend.load_state_dict(self.state["backend"])
