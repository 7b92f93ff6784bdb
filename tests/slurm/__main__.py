"""`python -m tests.slurm`: a grid through a real Slurm with faults has the tables of one without.

Exit status: 0, 1 if something that must hold does not, 77 if no Slurm can be started here.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm.campaign import Campaign, Project
from tests.slurm.cluster import CampaignError, Cluster, why_not

BEGAN = time.monotonic()


def main() -> int:
    """Entry point; gives the exit status."""
    reason = why_not()
    if reason is not None:
        print(f"test-slurm cannot run here: {reason}")
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("test-slurm: ended by SIGTERM"))
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            return campaign(folder)
        finally:
            end_all_in(folder)


def end_all_in(folder: Path) -> None:
    """SIGKILL to every process that works in a folder: Slurm tracks jobs by parent, as here."""
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if cwd.readlink().is_relative_to(folder):
                os.kill(int(cwd.parent.name), signal.SIGKILL)


def campaign(folder: Path) -> int:
    """The grid without faults, then on Slurm with faults, then the comparison."""
    plain, on_slurm = Project(folder / "plain"), Project(folder / "project")
    say("the grid on this machine, without faults")
    if plain.start().wait():
        return failed("the grid without faults failed", plain)
    (folder / "slurm").mkdir()
    with Cluster(folder / "slurm") as cluster:
        say("the grid on Slurm, with faults")
        try:
            Campaign(cluster, on_slurm, say).run()
        except (CampaignError, OSError, subprocess.SubprocessError) as error:
            return failed(str(error), on_slurm)
    expected, found = plain.tables(), on_slurm.tables()
    different = [name for name in {*expected, *found} if expected.get(name) != found.get(name)]
    if different or not expected:
        return failed(f"not the same bytes: {', '.join(different)}", on_slurm)
    say(f"{len(expected)} tables are those of the grid without faults, to the last byte")
    return 0


def say(text: str) -> None:
    """A line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:6.0f} s  {text}", flush=True)


def failed(reason: str, project: Project) -> int:
    """Show why, with the last words of the driver; gives the exit status."""
    print(project.words.read_text(errors="replace")[-6000:], f"\ntest-slurm failed: {reason}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
