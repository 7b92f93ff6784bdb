"""A run in a folder: lock, checkpoints, log, tables and manifest around the training loop."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from magellan.backends import Backend, check_backend
from magellan.backends.machine import settle
from magellan.competence import ESTIMATORS
from magellan.config import (
    UNIT_COLUMNS,
    RunConfig,
    check_backbone,
    counted,
    estimators_of,
    identity,
    phases_of,
)
from magellan.core.errors import (
    InputError,
    JobError,
    OutOfMemoryError,
    StoppedEarly,
    is_out_of_memory,
)
from magellan.core.files import write_atomically
from magellan.core.finite import check_weights
from magellan.core.parsing import checked_numbers
from magellan.core.registry import as_registered
from magellan.jobs import export
from magellan.jobs.attempts import (
    MADE_WITH,
    Attempts,
    host_description,
    made_with,
    peak_memory_mb,
)
from magellan.jobs.checkpoint import (
    MALFORMED,
    Checkpoints,
    Found,
    does_not_fit,
)
from magellan.jobs.folder import MANIFEST, FolderLock, check_folder, held
from magellan.jobs.keeping import Keeper, check_kept, check_start, find_start, points
from magellan.jobs.log import RunLog, utc_now
from magellan.jobs.progress import Progress, TensorBoard, check_sink
from magellan.jobs.stopping import Stopper, seconds_granted
from magellan.jobs.versions import Origin
from magellan.samplers import SAMPLERS
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS

SECONDS_PER_LOGGED_SAVE = 300.0
UNCHECKED = "the world names no texts: whether the model can tell its goals apart was not checked"


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
    """Train one run to its end and write its tables; gives the manifest.

    Args:
        config: the resolved configuration.
        output: the run's folder; made when absent.
        resume: continue from the folder's checkpoint when there is one.
        progress: `bar` (`lines` where there is no terminal), `lines` or `none`.
        stop_after: minutes after which the job will be killed, so that it stops by itself before;
            the limit in SLURM_JOB_END_TIME counts too.
        log: where curves go while it trains, `none` or `tensorboard`.
        start: folder of the run that is the beginning of this one, which goes on where that one
            ended; or a checkpoint that a longer run kept there, such as `RUN/10000`. Not used where
            this one has a checkpoint of its own.
        backend: the language model at its start; closed at the end. None: the one of the
            configuration is made.

    Raises:
        InputError: the folder cannot be written, holds another run, or the configuration is wrong.
        JobError: the job could not go on, or was asked to stop (`StoppedEarly`); its last
            checkpoint is whole, and `resume` goes on from there.
    """
    stopper = _stopper(config, stop_after)
    check_sink(log)
    if start is not None:
        check_start(config)
    model = check_backbone(config.backbone.model)
    if backend is None:
        check_backend(config.backend, config.backbone)
    check_folder(output)
    lock = FolderLock(output)
    with _left_without_trace(lock):
        origin = Origin.now(config, model)
        checkpoints = Checkpoints(output, config, origin.backbone["sha256"])
        _check_unused(output, checkpoints, resume)
        check_kept(output, config, origin.backbone["sha256"])
        found = checkpoints.load() if resume else None
        begun = None
        if start is not None and found is None:
            begun = find_start(start, config, origin.backbone["sha256"])
        trainer = _trainer(config, backend)
        if found is not None:
            _restore(trainer, checkpoints, found)
        elif begun is not None:
            _restore_state(trainer, begun.state, f"--start: {start} {begun.checkpoint}")
    earlier = found.state.get("started_from") if found else None
    started = begun.described() if begun else earlier
    with held(lock), stopper, contextlib.closing(trainer.backend):
        on = origin.on(trainer.backend)
        job = Job(trainer, output, checkpoints, stopper, on, log, started)
        return job.run(found, progress)


@contextlib.contextmanager
def _left_without_trace(lock: FolderLock) -> Iterator[None]:
    """While a run is set up: whatever goes wrong, its folder is as it was."""
    try:
        yield
    except BaseException as error:
        lock.release_without_trace()
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"out of memory while the run was set up, peak {peak_memory_mb()} MB; nothing was "
                "changed, the same call goes on where there is more memory"
            ) from error
        raise


def _stopper(config: RunConfig, stop_after: float | None) -> Stopper:
    margin = config.budget.stop_margin_seconds
    granted = seconds_granted(stop_after)
    if stop_after is not None and 60 * stop_after <= margin:
        raise InputError(
            f"--stop-after: {stop_after:g} minutes leave no time to train; allowed: more than "
            f"budget.stop_margin_seconds ({margin:g} s)"
        )
    return Stopper(granted, margin)


def _check_unused(output: Path, checkpoints: Checkpoints, resume: bool) -> None:
    """Only `resume` may go on in a folder that holds a run."""
    present = [MANIFEST] if (output / MANIFEST).exists() else []
    present += [f"{path.parent.name}/{path.name}" for path in checkpoints.paths()]
    present += [str(point) for point in points(output)]
    if present and not resume:
        raise InputError(
            f"--output: {output} already holds a run ({present[0]}); "
            "pass --resume, or name another folder"
        )


def _trainer(config: RunConfig, backend: Backend | None) -> Trainer:
    settle(config.threads, config.backend.deterministic)
    return Trainer(config, backend)


def _restore(trainer: Trainer, checkpoints: Checkpoints, found: Found) -> None:
    place = f"--resume: {checkpoints.folder / found.name}"
    _restore_state(trainer, found.state.get("trainer", {}), place)
    try:
        _times(found)
        json.dumps(dict(found.state.get("started_from") or {}))  # goes into the manifest
    except MALFORMED as error:
        raise does_not_fit(place, error) from error


def _restore_state(trainer: Trainer, state: dict[str, Any], place: str) -> None:
    try:
        trainer.load_state_dict(state)
    except JobError:
        raise
    except InputError as error:
        raise InputError(f"{place}: {error}; move the checkpoints away to start over") from None
    except Exception as error:  # a checksum can be reckoned anew: whatever a state may hold
        if is_out_of_memory(error):
            raise
        raise does_not_fit(place, error) from error


def _times(found: Found) -> tuple[float, float]:
    """Seconds of training and of saving behind a checkpoint."""
    spent = found.state["seconds"], found.state.get("saving_seconds", 0.0)
    training, saving = (float(checked_numbers(each, "seconds", ())) for each in spent)
    return training, saving


class Job:
    """One attempt at a run, in a folder that this process holds.

    Args:
        trainer: at the beginning, or as a checkpoint left it.
        output: folder of the run.
        checkpoints: where states go.
        stopper: says when to stop.
        origin: code, libraries and backbone at the beginning of the attempt.
        log: where curves go while it trains.
        started: what the run started from, where that is another run's end (`Start.described`).
    """

    def __init__(
        self,
        trainer: Trainer,
        output: Path,
        checkpoints: Checkpoints,
        stopper: Stopper,
        origin: Origin,
        log: str = "none",
        started: Mapping[str, Any] | None = None,
    ) -> None:
        self._started = started
        self._made_with: list[dict[str, Any]] = []
        self._curves: TensorBoard | None = None
        if log == "tensorboard":
            self._curves = TensorBoard(output, trainer.record.tables, trainer.updates)
        self._trainer, self._output, self._origin = trainer, output, origin
        self._checkpoints, self._stopper = checkpoints, stopper
        self._log, self._attempts = RunLog(output), Attempts(output, identity(trainer.config))
        self._begun = self._saved_at = time.monotonic()
        self._spent = self._spent_saving = self._saving = self._last_save = 0.0
        self._next_logged_save = 0.0
        self._logged_rows = len(trainer.record.tables["evaluation"])
        self._keeper = Keeper(output, trainer.config, origin.backbone["sha256"], trainer.spent)

    def run(self, found: Found | None, progress: str) -> dict[str, Any]:
        """Advance to the end, write tables and manifest; notes in the folder how it ended."""
        try:
            self._begin(found)
            shown = Progress(self._trainer, progress)
            self._advance(shown)
            manifest = self._write_results()
            shown.result(self._seconds())
        except (InputError, JobError) as error:
            self._end(f"{error.label}: {error}", error.exit_status)
            raise
        except KeyboardInterrupt:
            self._end("second SIGINT, nothing saved", 130)
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise self._out_of_memory() from error
            self._end(f"failed: {type(error).__name__}: {error}", 1)
            raise
        self._end("complete", 0)
        return manifest

    def _begin(self, found: Found | None) -> None:
        """Note start, configuration, versions and what the run goes on from."""
        self._checkpoints.remove_partial()
        made, now = made_with(found.state if found else {}), self._origin.as_dict()
        now = {key: now[key] for key in MADE_WITH}
        self._made_with = made if made[-1:] == [now] else [*made, now]
        number = self._attempts.begin(found.name if found else None, self._origin.as_dict())
        note = self._log.write
        self._describe(number)
        if found is None and self._started is not None:
            start = self._started
            then = f"was at {start['at']}" if "at" in start else "ended"
            note(f"begins where run {start['run']} {then}, {start['checkpoint']}, {self._where()}")
            return
        if found is None:
            note("begins at episode 0")
            return
        self._spent, self._spent_saving = _times(found)
        aside = self._checkpoints.set_aside(found)
        if aside is not None:
            self._log.warn(
                f"the newest checkpoint is damaged: kept as {aside}, going on from {found.name}"
            )
        note(f"resumed from {found.name}, {self._where()}")

    def _describe(self, number: int) -> None:
        """Note where and with what this attempt runs."""
        config, origin, note = self._trainer.config, self._origin, self._log.write
        host = f"{socket.gethostname()} ({host_description()})"
        note(f"attempt {number} on {host}, process {os.getpid()}")
        versions = ", ".join(f"{name} {value}" for name, value in origin.versions.items())
        note(f"magellan-bench {origin.code_version}, {versions}")
        note("backbone {model}, SHA-256 {sha256}".format(**origin.backbone))
        note(f"processor {origin.cpu}, one core {origin.matmul_gflop_per_second} GFLOP/s")
        backend = self._trainer.backend
        where = f"device {origin.device}, {origin.dtype}"
        note(f"{where}, threads {config.threads}, passes {origin.passes}")
        for path, sha256 in origin.modules.items():
            note(f"module {path}, SHA-256 {sha256}")
        if backend.memory:
            note(backend.memory)
        if not any(WORLDS[config.world].texts()):
            note(UNCHECKED)
        note(f"configuration {identity(config)}: {config.model_dump_json()}")

    def _advance(self, progress: Progress) -> None:
        """Round after round; saves when it is time to, when asked to stop, and at the end."""
        while not self._trainer.done:
            reason = self._stopper.reason
            if reason is not None:
                name = self._save()
                progress.close()
                raise StoppedEarly(f"{reason}: saved {name}, {self._where()}; --resume goes on")
            begun = time.monotonic()
            self._trainer.advance()
            self._stopper.took("round", time.monotonic() - begun)
            progress.show()
            self._log_evaluations()
            if self._curves is not None:
                self._curves.show(self._trainer.record.tables, self._trainer.updates)
            if self._save_is_due() or self._keeper.is_due(self._trainer.spent):
                self._save()
        self._save()
        progress.close()

    def _save_is_due(self) -> bool:
        """Seconds between saves: the configured ones, more where saving would cost too much."""
        budget = self._trainer.config.budget
        fair = self._last_save * (1.0 / budget.checkpoint_share - 1.0)
        return time.monotonic() - self._saved_at >= max(budget.checkpoint_seconds, fair)

    def _save(self) -> str:
        """Write a checkpoint unless a weight is not finite; gives its file name."""
        begun = time.monotonic()
        state = self._trainer.state_dict()
        check_weights(self._trainer.updates, state["backend"])
        spent = {"seconds": self._seconds(), "saving_seconds": self._spent_saving + self._saving}
        made = {"made_with": self._made_with, "started_from": self._started}
        kept = {"trainer": state, **spent, **made}
        self._keep(kept)  # first: a run that is killed between the two comes here again
        path = self._checkpoints.save(kept)
        self._saved_at = time.monotonic()
        self._last_save = self._saved_at - begun
        self._saving += self._last_save
        self._stopper.took("save", self._last_save)
        self._log_save(path)
        return f"{path.parent.name}/{path.name}"

    def _keep(self, state: Mapping[str, Any]) -> None:
        """Leave the state for good, where it is time to."""
        if self._keeper.is_due(self._trainer.spent):
            path = self._keeper.keep(self._trainer.spent, state)
            self._log.write(f"kept {path.relative_to(self._output)}, {self._where()}")

    def _log_save(self, path: Path) -> None:
        """The first, the last and now and then one between."""
        if self._saved_at >= self._next_logged_save or self._trainer.done:
            self._next_logged_save = self._saved_at + SECONDS_PER_LOGGED_SAVE
            size = path.stat().st_size / 2**20
            self._log.write(f"saved {path.name}, {size:.1f} MiB in {self._last_save:.2f} s")

    def _log_evaluations(self) -> None:
        """One line per evaluation and split, by the planned number."""
        unit = UNIT_COLUMNS[self._trainer.config.budget.unit]
        columns = self._trainer.record.columns("evaluation")
        table = self._trainer.record.tables["evaluation"]
        rows = [dict(zip(columns, row, strict=True)) for row in table[self._logged_rows :]]
        self._logged_rows = len(table)
        for planned, split in dict.fromkeys((row[unit], row["split"]) for row in rows):
            shown = ", ".join(
                f"{row['category']} {row['success']:.2f}"
                for row in rows
                if (row[unit], row["split"]) == (planned, split)
            )
            self._log.write(f"evaluation at {unit} {planned}, {split} goals: {shown}")

    def _write_results(self) -> dict[str, Any]:
        """Tables, then what is asked for beside them, then the manifest: all is complete."""
        self._trainer.record.write(self._output)
        if self._trainer.predictions is not None:
            self._trainer.predictions.write(self._output)
        self._export()
        manifest = {
            **_description(self._trainer),
            **self._origin.as_dict(),
            **self._attempts.summary("complete"),
            **({"started_from": self._started} if self._started else {}),
            "finished": utc_now(),
            "wall_seconds": round(self._seconds(), 1),
            "saving_seconds": round(self._spent_saving + self._saving, 2),
            "status": "complete",
        }
        content = (json.dumps(manifest, indent=2) + "\n").encode()
        write_atomically(self._output / MANIFEST, content)
        return manifest

    def _export(self) -> None:
        """Leave the trained agent beside the tables, where the configuration asks for it."""
        config = self._trainer.config
        if not config.budget.export:
            return
        folder = self._output / export.FOLDER
        files = export.agent_files(config, self._trainer.state_dict(), self._origin, folder)
        export.write_agent(folder, files)
        self._log.write(f"exported the agent to {export.FOLDER}/")

    def _out_of_memory(self) -> OutOfMemoryError:
        error = OutOfMemoryError(
            f"out of memory, {self._where()}, peak {peak_memory_mb()} MB; the last checkpoint is "
            "whole, --resume goes on where there is more memory"
        )
        self._end(f"{error.label}: {error}", error.exit_status)
        return error

    def _end(self, reason: str, status: int) -> None:
        """The last words in log and attempts; on a full disk there are none."""
        if self._curves is not None:
            with contextlib.suppress(OSError):
                self._curves.close()
        share = self._saving / max(time.monotonic() - self._begun, 1e-9)
        with contextlib.suppress(JobError):
            self._log.write(f"ended: {reason} ({share:.2%} of the time went into saving)")
        with contextlib.suppress(JobError):
            self._attempts.end(reason, status)

    def _seconds(self) -> float:
        """Seconds of training behind the present state, all attempts together."""
        return self._spent + time.monotonic() - self._begun

    def _where(self) -> str:
        trainer = self._trainer
        return f"update {trainer.updates}, episode {trainer.episodes}"


def _description(trainer: Trainer) -> dict[str, Any]:
    config = trainer.config
    registered = _registered(config)
    return {
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
        **({"registered": registered} if registered else {}),
        "threads": config.threads,
        **({"memory": trainer.backend.memory} if trainer.backend.memory else {}),
        "host": host_description(),
        "updates": trainer.updates,
        "steps": trainer.steps,
        "episodes": trainer.episodes,
    }


def _registered(config: RunConfig) -> dict[str, dict[str, Any]]:
    """How the user's samplers and estimators of a run are called and drawn: by kind and name."""
    samplers = dict.fromkeys(phase.sampler for phase in phases_of(config))
    used = ((SAMPLERS, samplers), (ESTIMATORS, estimators_of(config)))
    found = {registry.kind: as_registered(registry, names) for registry, names in used}
    return {kind: entries for kind, entries in found.items() if entries}
