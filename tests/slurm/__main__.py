"""`python -m tests.slurm`: the campaign; with `--check`, whether it can run here.

Exit status: 0, 1 if something that must hold does not, 77 if no Slurm can be started here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.slurm.campaign import Campaign
from tests.slurm.cluster import CampaignError, Cluster, install, why_not
from tests.slurm.project import Project

SKIPPED = 77
BEGAN = time.monotonic()


def main(words: list[str] | None = None) -> int:
    """Entry point; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it can run here")
    options = parser.parse_args(words)
    reason = why_not()
    if reason is not None:
        print(f"test-slurm cannot run here: {reason}")
        return SKIPPED
    if options.check:
        print("test-slurm can run here")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("test-slurm: ended by SIGTERM"))
    with temporary_folder() as folder:
        return campaign(folder)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that others may read, removed at the end with the processes that work in it."""
    folder = Path(tempfile.mkdtemp(prefix="magellan-slurm-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        end_all_in(folder)
        shutil.rmtree(folder, ignore_errors=True)


def end_all_in(folder: Path) -> None:
    """SIGKILL to every process that works in a folder.

    Snakemake can hang when SIGTERM comes while it notes a failure: its handler waits for a lock
    that the interrupted code holds. Where Slurm tracks processes by cgroup it kills these; by
    parent, as here, it loses them.
    """
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if cwd.readlink().is_relative_to(folder):
                os.kill(int(cwd.parent.name), signal.SIGKILL)


def campaign(folder: Path) -> int:
    """The grid without faults, then on Slurm with faults, then the comparison."""
    say("installing Slurm where it is missing")
    install()
    say("the grid on this machine, without faults")
    plain = Project(folder / "plain")
    if plain.start(*plain.targets()).wait():
        return failed("the grid without faults failed", plain)
    (folder / "slurm").mkdir(mode=0o755)
    on_slurm = Project(folder / "project")
    with Cluster(folder / "slurm") as cluster:
        say("the grid on Slurm, with faults")
        grid = Campaign(cluster, on_slurm, say)
        try:
            grid.run()
        except (CampaignError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            return failed(f"{error}, after {len(grid.faults)} faults", on_slurm)
    different = differences(plain.tables(), on_slurm.tables())
    if different:
        return failed(f"not the same bytes: {', '.join(different)}", on_slurm)
    say(
        f"{len(grid.faults)} faults survived: {len(plain.tables())} tables are those of the grid "
        "without faults, to the last byte"
    )
    return 0


def say(text: str) -> None:
    """A line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:6.0f} s  {text}", flush=True)


def failed(reason: str, project: Project) -> int:
    """Show why, with the last words of the driver; gives the exit status."""
    words = project.words.read_text(errors="replace") if project.words.exists() else ""
    print(words[-6000:], f"\ntest-slurm failed: {reason}", flush=True)
    return 1


def differences(expected: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """Names of tables that are missing on one side or differ in a byte; never empty for none."""
    if not expected:
        return ["no tables"]
    names = sorted(expected.keys() | found.keys())
    return [name for name in names if expected.get(name) != found.get(name)]


if __name__ == "__main__":
    sys.exit(main())
