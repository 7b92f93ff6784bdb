"""A run in a folder: progress, checkpoints, tables and manifest around the training loop."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from magellan import __version__
from magellan.config import RunConfig, check_backbone, config_hash
from magellan.errors import InputError
from magellan.training.checkpoint import load_checkpoint, save_checkpoint
from magellan.training.loop import Trainer
from magellan.training.machine import settle
from magellan.training.record import write_atomically

LIBRARIES = ("torch", "transformers", "peft", "numpy", "gymnasium", "safetensors", "tokenizers")


def train(config: RunConfig, output: Path, resume: bool, progress: str) -> dict[str, Any]:
    """Train one run to its end and write its tables; gives the manifest.

    Args:
        config: the resolved configuration.
        output: the run's folder; made when absent.
        resume: continue from the folder's checkpoint when there is one.
        progress: `bar`, `lines` or `none`.

    Raises:
        InputError: the folder cannot be written, holds another run, or the configuration is wrong.
    """
    digest = config_hash(config)
    check_backbone(config.backbone.model)
    _prepare_folder(output, resume)
    settle(config.threads)
    started, clock = datetime.now(UTC), time.monotonic()
    state = load_checkpoint(output, digest) if resume else None
    trainer = Trainer(config)
    spent, restarts = 0.0, 0
    if state is not None:
        trainer.load_state_dict(state["trainer"])
        spent, restarts = state["seconds"], state["restarts"] + 1

    def save() -> None:
        seconds = spent + time.monotonic() - clock
        bundle = {"trainer": trainer.state_dict(), "seconds": seconds, "restarts": restarts}
        save_checkpoint(output, bundle, digest)

    _run(trainer, save, Progress(trainer, progress))
    trainer.record.write(output)
    manifest = {
        **_description(trainer, digest),
        "restarts": restarts,
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(spent + time.monotonic() - clock, 1),
        "status": "complete",
    }
    write_atomically(output / "manifest.json", (json.dumps(manifest, indent=2) + "\n").encode())
    return manifest


def _run(trainer: Trainer, save: Callable[[], None], progress: Progress) -> None:
    """Advance to the end; save at the configured interval and once more at the end."""
    saved = time.monotonic()
    while not trainer.done:
        trainer.advance()
        progress.show()
        if time.monotonic() - saved >= trainer.config.budget.checkpoint_seconds:
            save()
            saved = time.monotonic()
    save()
    progress.close()


def _prepare_folder(output: Path, resume: bool) -> None:
    """Make the folder and be sure that it can be written and holds no other run."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        probe = output / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"--output: {output} cannot be written ({error.strerror})") from error
    left = [
        name for name in ("manifest.json", "checkpoint.safetensors") if (output / name).exists()
    ]
    if left and not resume:
        raise InputError(
            f"--output: {output} already holds a run ({left[0]}); "
            "pass --resume, or name another folder"
        )


class Progress:
    """What a person sees: a bar, or a line every 20 seconds, on standard error."""

    SECONDS_PER_LINE = 20.0

    def __init__(self, trainer: Trainer, style: str) -> None:
        self._trainer, self._style = trainer, style
        config = trainer.config
        self._name = f"{config.sampler}/{config.goal_space}/seed{config.seed}"
        self._total = config.budget.episodes
        self._line_at = self._begun = time.monotonic()
        self._first = trainer.episodes
        self._bar = (
            tqdm(total=self._total, initial=self._first, desc=self._name, unit="ep")
            if style == "bar"
            else None
        )

    def show(self) -> None:
        """Called after every round."""
        if self._bar is not None:
            self._bar.set_postfix_str(self._success(), refresh=False)
            self._bar.update(min(self._trainer.episodes, self._total) - self._bar.n)
        elif self._style == "lines" and time.monotonic() - self._line_at >= self.SECONDS_PER_LINE:
            self._line()

    def _line(self) -> None:
        self._line_at = time.monotonic()
        rate = (self._trainer.episodes - self._first) / (self._line_at - self._begun)
        left = (self._total - self._trainer.episodes) / max(rate, 1e-9)
        print(
            f"{self._name}: {self._trainer.episodes:,} of {self._total:,} episodes, "
            f"{self._success()}, {rate:.0f} episodes/s, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def _success(self) -> str:
        """Success of recent practice, from the last closed window."""
        rows = self._trainer.record.tables["practice"][-5:]
        played = sum(row[2] for row in rows)
        return f"success {sum(row[3] for row in rows) / played:.2f}" if played else "success n/a"

    def close(self) -> None:
        """Finish the bar."""
        if self._bar is not None:
            self._bar.close()


def _description(trainer: Trainer, digest: str) -> dict[str, Any]:
    config = trainer.config
    return {
        "schema_version": 1,
        "sampler": config.sampler,
        "goal_space": config.goal_space,
        "seed": config.seed,
        "preset": config.preset,
        "config": config.model_dump(mode="json"),
        "config_hash": digest,
        "code_version": code_version(),
        "versions": library_versions(),
        "threads": config.threads,
        "device": "cpu",
        "host": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "updates": trainer.updates,
        "steps": trainer.steps,
        "episodes": trainer.episodes,
    }


def code_version() -> str:
    """Package version, with the commit when run from a repository."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{commit}"


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that the numbers depend on."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions
