"""Train a run in its folder: lock, checkpoints, log, tables and manifest."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from magellan.backends import Backend, check_backend
from magellan.backends.machine import configure_torch
from magellan.config import UNIT_COLUMNS, RunConfig, counted, identity
from magellan.core.errors import (
    InputError,
    JobError,
    OutOfMemoryError,
    StoppedEarly,
    is_out_of_memory,
    shown,
)
from magellan.core.files import write_atomically
from magellan.core.finite import check_weights
from magellan.core.parsing import checked_numbers, read_json_object
from magellan.jobs import export
from magellan.jobs.checkpoint import (
    MALFORMED,
    Checkpoints,
    LoadedCheckpoint,
    invalid_state,
    load_start,
    points,
)
from magellan.jobs.display import Progress, TensorBoard, check_sink, evaluations
from magellan.jobs.folder import MANIFEST, FolderLock, check_folder
from magellan.jobs.log import RunLog, utc_now
from magellan.jobs.provenance import (
    PROVENANCE,
    Attempts,
    Origin,
    ancestry,
    host_description,
    peak_memory_mb,
    provenance,
)
from magellan.jobs.stopping import Stopper, seconds_granted
from magellan.model import chat
from magellan.model.files import check_backbone
from magellan.training.answers import make_trainer
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS

SECONDS_PER_LOGGED_SAVE = 300.0
UNCHECKED = "the world lists no texts: not checked whether the model distinguishes its goals"


def train(
    config: RunConfig,
    output: Path,
    resume: bool,
    progress: str,
    stop_after: float | None = None,
    log: str = "none",
    start: Path | None = None,
    backend: Backend | None = None,
) -> dict[str, Any]:
    """Train one run to its end, write its tables and return the manifest.

    Args:
        config: the resolved configuration.
        output: the run's folder; created if absent.
        resume: continue from the folder's checkpoint, if there is one.
        progress: `bar` (`lines` without a terminal), `lines` or `none`.
        stop_after: minutes until the job is killed: it stops shortly before. The limit in
            SLURM_JOB_END_TIME also applies.
        log: destination of curves during training, `none` or `tensorboard`.
        start: folder of the run that is the beginning of this one, or a checkpoint that a longer
            run kept there, such as `RUN/10000`; ignored if this run has a checkpoint of its own.
        backend: the language model at its start; closed at the end. None: built from the
            configuration.

    Raises:
        InputError: the folder cannot be written, holds another run, or the configuration is wrong.
        JobError: the job failed or was asked to stop (`StoppedEarly`); its last checkpoint is
            intact, and `resume` continues from it.
    """
    stopper = _stopper(config.budget.stop_margin_seconds, stop_after)
    check_sink(log)
    model = check_backbone(config.backbone.model)
    if backend is None:
        check_backend(config.backend, config.backbone)
    check_folder(output)
    lock = FolderLock(output)
    with _undo_on_error(lock):
        origin = Origin.now(config, model)
        checkpoints = Checkpoints(output, config, origin.backbone["sha256"])
        loaded = _load_own(output, checkpoints, config, resume)
        state, started_from, place = _state_at_start(config, loaded, start, origin)
        configure_torch(config.threads, config.backend.deterministic)
        trainer = make_trainer(config, backend, output / chat.NAME)
        if state is not None:
            _restore(trainer, state, place)
    with contextlib.closing(lock), stopper, contextlib.closing(trainer.backend):
        origin = origin.on(trainer.backend)
        job = Job(trainer, output, checkpoints, stopper, origin, log, started_from)
        return job.run(loaded, progress)


@contextlib.contextmanager
def _undo_on_error(lock: FolderLock) -> Iterator[None]:
    """Leave the folder as it was if setting up the run fails."""
    try:
        yield
    except BaseException as error:
        lock.release_without_trace()
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"out of memory while the run was set up, peak {peak_memory_mb()} MB; nothing was "
                "changed, retry with more memory"
            ) from error
        raise


def _stopper(margin: float, stop_after: float | None) -> Stopper:
    granted = seconds_granted(stop_after)
    if stop_after is not None and 60 * stop_after <= margin:
        raise InputError(
            f"--stop-after: {stop_after:g} minutes leave no time to train; allowed: more than "
            f"budget.stop_margin_seconds ({margin:g} s)"
        )
    return Stopper(granted, margin)


def _load_own(
    output: Path, checkpoints: Checkpoints, config: RunConfig, resume: bool
) -> LoadedCheckpoint | None:
    """Load the run's checkpoint with `resume`; refuse a folder that holds another run."""
    present = [MANIFEST] if (output / MANIFEST).exists() else []
    present += [f"{path.parent.name}/{path.name}" for path in checkpoints.paths()]
    present += map(str, points(output))
    if present and not resume:
        raise InputError(
            f"--output: {output} already holds a run ({present[0]}); "
            "pass --resume, or name another folder"
        )
    checkpoints.check_kept()
    loaded = checkpoints.load() if resume else None
    if loaded is None:
        try:
            stored = read_json_object(output / MANIFEST).get("identity")
        except InputError:
            return None  # no manifest, or a damaged one
        if stored != identity(config):
            raise InputError(
                f"--output: {output} holds another run ({MANIFEST}, identity {shown(stored)}, here "
                f"{identity(config)}); name another folder"
            )
    return loaded


def _state_at_start(
    config: RunConfig, loaded: LoadedCheckpoint | None, start: Path | None, origin: Origin
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
    """Trainer's state that the attempt begins with, `started_from`, and the place of both."""
    if loaded is not None:
        place = f"--resume: {loaded.path}"
        state, started_from = loaded.state.get("trainer", {}), loaded.state.get("started_from")
        try:
            _seconds_spent(loaded)
            json.dumps(dict(started_from or {}))  # goes into the manifest
        except MALFORMED as error:
            raise invalid_state(place, error) from error
        origin.check_reads_alike(ancestry(loaded.state), place)
        return state, started_from, place
    if start is None:
        return None, None, ""
    state, started_from = load_start(start, config, origin.backbone["sha256"])
    place = f"--start: {start} {started_from['checkpoint']}"
    origin.check_reads_alike(started_from["made_with"], place)
    return state, started_from, place


def _restore(trainer: Trainer, state: dict[str, Any], place: str) -> None:
    try:
        trainer.load_state_dict(state)
    except JobError:
        raise
    except InputError as error:
        raise InputError(f"{place}: {error}; move the checkpoints away to start over") from None
    except Exception as error:  # a valid checksum does not imply a valid state
        if is_out_of_memory(error):
            raise
        raise invalid_state(place, error) from error


def _seconds_spent(loaded: LoadedCheckpoint) -> tuple[float, float]:
    times = loaded.state["seconds"], loaded.state.get("saving_seconds", 0.0)
    training, saving = (float(checked_numbers(seconds, "seconds", ())) for seconds in times)
    return training, saving


class Job:
    """One attempt at a run, in a folder that this process has locked.

    trainer: new, or restored from a checkpoint.
    started_from: the other run's state that the run started from, if any (see `load_start`).
    """

    def __init__(
        self,
        trainer: Trainer,
        output: Path,
        checkpoints: Checkpoints,
        stopper: Stopper,
        origin: Origin,
        log: str,
        started_from: Mapping[str, Any] | None,
    ) -> None:
        self._started_from = started_from
        self._provenance: list[dict[str, Any]] = []
        self._curves: TensorBoard | None = None
        if log == "tensorboard":
            self._curves = TensorBoard(output, trainer.record.tables, trainer.updates)
        self._trainer, self._output, self._origin = trainer, output, origin
        self._checkpoints, self._stopper = checkpoints, stopper
        self._log, self._attempts = RunLog(output), Attempts(output, identity(trainer.config))
        self._start_time = self._saved_at = time.monotonic()
        self._spent = self._spent_saving = self._saving = self._last_save = 0.0
        self._next_logged_save = 0.0
        self._logged_rows = len(trainer.record.tables["evaluation"])
        self._kept = self._last_point()

    def run(self, loaded: LoadedCheckpoint | None, progress: str) -> dict[str, Any]:
        """Train to the end, write tables and manifest; log how the attempt ended."""
        try:
            self._begin(loaded)
            display = Progress(self._trainer, progress)
            with contextlib.closing(display):  # errors begin on a line of their own
                self._advance(display)
            manifest = self._write_results()
            display.result(self._seconds())
        except (InputError, JobError) as error:
            self._end(f"{error.label}: {error}", error.exit_status)
            raise
        except KeyboardInterrupt:
            self._end("second SIGINT, nothing saved", 130)
            raise
        except Exception as error:
            if not is_out_of_memory(error):
                self._end(f"failed: {type(error).__name__}: {error}", 1)
                raise
            memory = OutOfMemoryError(
                f"out of memory, {self._where()}, peak {peak_memory_mb()} MB; the last checkpoint "
                "is intact, retry with --resume and more memory"
            )
            self._end(f"{memory.label}: {memory}", memory.exit_status)
            raise memory from error
        self._end("complete", 0)
        return manifest

    def _begin(self, loaded: LoadedCheckpoint | None) -> None:
        self._checkpoints.remove_partial()
        earlier, origin = provenance(loaded.state if loaded else {}), asdict(self._origin)
        current = {key: origin[key] for key in PROVENANCE}
        self._provenance = earlier if earlier[-1:] == [current] else [*earlier, current]
        self._log_environment(self._attempts.begin(loaded.path.name if loaded else None, origin))
        text, start = "begins at episode 0", self._started_from
        if loaded is not None:
            self._spent, self._spent_saving = _seconds_spent(loaded)
            aside = self._checkpoints.set_aside(loaded)
            if aside is not None:
                damaged = f"the newest checkpoint is damaged: kept as {aside}"
                self._log.warn(f"{damaged}, continuing from {loaded.path.name}")
            text = f"resumed from {loaded.path.name}, {self._where()}"
        elif start is not None:
            point = f"was at {start['at']}" if "at" in start else "ended"
            text = f"begins where run {start['run']} {point}, {start['checkpoint']}"
            text = f"{text}, {self._where()}"
        self._log.write(text)

    def _log_environment(self, attempt: int) -> None:
        config, origin, log = self._trainer.config, self._origin, self._log.write
        host = f"{socket.gethostname()} ({host_description()})"
        log(f"attempt {attempt} on {host}, process {os.getpid()}")
        versions = ", ".join(f"{name} {value}" for name, value in origin.versions.items())
        log(f"magellan-bench {origin.code_version}, {versions}")
        log("backbone {model}, SHA-256 {sha256}".format(**origin.backbone))
        log(f"processor {origin.cpu}, one core {origin.matmul_gflop_per_second} GFLOP/s")
        backend = self._trainer.backend
        device = f"device {origin.device}, {origin.dtype}"
        log(f"{device}, threads {config.threads}, passes {origin.passes}")
        for path, sha256 in origin.modules.items():
            log(f"module {path}, SHA-256 {sha256}")
        if backend.memory:
            log(backend.memory)
        if not any(WORLDS[config.world].texts()):
            log(UNCHECKED)
        log(f"configuration {identity(config)}: {config.model_dump_json()}")

    def _advance(self, progress: Progress) -> None:
        while not self._trainer.done:
            reason = self._stopper.reason
            if reason is not None:
                name = self._save()
                raise StoppedEarly(f"{reason}: saved {name}, {self._where()}; --resume continues")
            start_time = time.monotonic()
            self._trainer.advance()
            self._stopper.record_duration("round", time.monotonic() - start_time)
            progress.show()
            unit = UNIT_COLUMNS[self._trainer.config.budget.unit]
            for (at, split), success in evaluations(self._trainer, self._logged_rows).items():
                self._log.write(f"evaluation at {unit} {at}, {split} goals: {success}")
            self._logged_rows = len(self._trainer.record.tables["evaluation"])
            if self._curves is not None:
                self._curves.show(self._trainer.record.tables, self._trainer.updates)
            if self._save_is_due() or self._last_point() > self._kept:
                self._save()
        self._save()

    def _save_is_due(self) -> bool:
        """Whether `checkpoint_seconds` have passed, or more to respect `checkpoint_share`."""
        budget = self._trainer.config.budget
        interval = self._last_save * (1.0 / budget.checkpoint_share - 1.0)
        return time.monotonic() - self._saved_at >= max(budget.checkpoint_seconds, interval)

    def _last_point(self) -> int:
        """Length at which to keep a checkpoint, the last that the run has passed; 0: none."""
        every = self._trainer.config.budget.keep_every
        return self._trainer.spent // every * every if every else 0

    def _save(self) -> str:
        """Write a checkpoint unless a weight is not finite; return its file name."""
        start_time = time.monotonic()
        state = self._trainer.state_dict()
        check_weights(self._trainer.updates, state["backend"])
        content = {
            "trainer": state,
            "seconds": self._seconds(),
            "saving_seconds": self._spent_saving + self._saving,
            "made_with": self._provenance,
            "started_from": self._started_from,
        }
        # Keep first: a run killed between the two saves repeats both.
        every = self._trainer.config.budget.keep_every
        for point in range(self._kept + every, self._last_point() + 1, every) if every else ():
            kept = self._checkpoints.keep(content, point)
            self._kept = point
            self._log.write(f"kept {kept.relative_to(self._output)}, {self._where()}")
        path = self._checkpoints.save(content)
        self._saved_at = time.monotonic()
        self._last_save = self._saved_at - start_time
        self._saving += self._last_save
        self._stopper.record_duration("save", self._last_save)
        if self._saved_at >= self._next_logged_save or self._trainer.done:
            self._next_logged_save = self._saved_at + SECONDS_PER_LOGGED_SAVE
            size = path.stat().st_size / 2**20
            self._log.write(f"saved {path.name}, {size:.1f} MiB in {self._last_save:.2f} s")
        return f"{path.parent.name}/{path.name}"

    def _write_results(self) -> dict[str, Any]:
        """Write the tables, then optional results, then the manifest that marks completion."""
        trainer, config = self._trainer, self._trainer.config
        trainer.record.write(self._output)
        if config.budget.export:
            folder, state = self._output / export.FOLDER, trainer.state_dict()
            files = export.agent_files(config, state, self._origin, folder)
            export.write_agent(folder, files)
            self._log.write(f"exported the agent to {export.FOLDER}/")
        manifest = {
            "schema_version": 2,
            "sampler": config.sampler,
            "world": WORLDS[config.world].as_dict(),
            "goal_space": config.goal_space,
            "goal_counts": trainer.goals.counts(),  # of the last phase
            "seed": config.seed,
            "preset": config.preset,
            "config": config.model_dump(mode="json"),
            "identity": identity(config),
            "counted": counted(config),
            "estimation_episodes": trainer.estimators.cost(),
            "driver": trainer.estimators.driver,
            **trainer.sampler.facts(),
            **trainer.evaluator.facts(),
            "threads": config.threads,
            **({"memory": trainer.backend.memory} if trainer.backend.memory else {}),
            "host": host_description(),
            "updates": trainer.updates,
            "steps": trainer.steps,
            "episodes": trainer.episodes,
            **asdict(self._origin),
            **self._attempts.summary(),
            **({"started_from": self._started_from} if self._started_from else {}),
            "finished": utc_now(),
            "wall_seconds": round(self._seconds(), 1),
            "saving_seconds": round(self._spent_saving + self._saving, 2),
            "status": "complete",
        }
        content = (json.dumps(manifest, indent=2) + "\n").encode()
        write_atomically(self._output / MANIFEST, content)
        return manifest

    def _end(self, reason: str, status: int) -> None:
        """Record the end in log and attempts, unless the disk is full."""
        if self._curves is not None:
            with contextlib.suppress(OSError):
                self._curves.close()
        share = self._saving / max(time.monotonic() - self._start_time, 1e-9)
        with contextlib.suppress(JobError):
            self._log.write(f"ended: {reason} ({share:.2%} of the time went into saving)")
        with contextlib.suppress(JobError):
            self._attempts.end(reason, status)

    def _seconds(self) -> float:
        return self._spent + time.monotonic() - self._start_time

    def _where(self) -> str:
        trainer = self._trainer
        return f"update {trainer.updates}, episode {trainer.episodes}"
