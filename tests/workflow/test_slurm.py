"""What of the Slurm profile can be seen without a Slurm; the rest is `make test-slurm`."""

import os
import subprocess

import pytest

from tests.analysis import synthetic
from tests.workflow.conftest import ROOT

(FIRST, *_) = synthetic.plan(synthetic.experiment(preset="laptop"))
RUN = f"results/default/{FIRST.path}/manifest.json"
COMMENT = f"rule_train_wildcards_random_{synthetic.GOAL_SPACE}_0_{FIRST.identity}"
NAMED = "error: jobs of an earlier driver still wait or run here"
# Fails twice as a locked run does, then with another status.
LOCKED_TWICE = """
echo "$@" >> calls
[ "$(wc -l < calls)" -gt 2 ] && exit 75
exit 73
"""


@pytest.fixture
def tools(tmp_path_factory, monkeypatch):
    """A folder in front of the PATH; call it to put a shell script there."""
    folder = tmp_path_factory.mktemp("tools")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)

    return write


def test_the_profile_is_found_and_plans_the_default_grid(shared_project):
    done = shared_project.snakemake("--profile", "slurm", "-n")
    assert done.returncode == 0, done.stdout
    assert "profiles slurm and workflow specific profile profiles/default" in done.stdout
    assert shared_project.planned("--profile", "slurm") == shared_project.planned()
    # Statistics and figures are one job.
    assert done.stdout.count("Group job analysis") == 1


@pytest.mark.parametrize("comment", [COMMENT, "rule_1a2b"])
def test_jobs_that_a_driver_left_behind_are_named(project, tools, comment):
    tools("squeue", f"echo '41|{project.folder}|{comment}'; echo '42|/elsewhere|{comment}'")
    done = project.snakemake("--", RUN)
    assert done.returncode != 0
    lines = [line for line in done.stdout.splitlines() if line.startswith("error:")]
    assert lines == [f"{NAMED}; end them, nothing is lost: scancel 41"]
    assert not (project / RUN).parent.exists()


@pytest.mark.parametrize(
    "answer",
    [
        f"echo '41|/elsewhere|{COMMENT}'",
        f'echo "41|$PWD|{COMMENT}9"; echo "42|$PWD|my own job"; echo nonsense',
        "echo slurm_load_jobs error >&2; exit 1",
    ],
)
def test_other_jobs_are_none_of_its_business(project, tools, answer):
    # A dry run has no hooks, so this really begins; the trainer stops at once.
    tools("squeue", answer)
    (project / "magellan/__main__.py").write_text("raise SystemExit('the trainer was called')\n")
    done = project.snakemake("--", RUN)
    assert NAMED not in done.stdout
    assert "the trainer was called" in done.stdout


def test_a_step_waits_while_its_run_is_locked(tmp_path, tools):
    tools("srun", LOCKED_TWICE)
    script = ROOT / "workflow/scripts/slurm_step.sh"
    done = subprocess.run(
        ["bash", script, "train", "a run"],
        cwd=tmp_path,
        env={**os.environ, "MAGELLAN_LOCK_PAUSE": "0", "SLURM_CPUS_PER_TASK": "3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 75
    assert done.stdout.count("waiting for the other job to end") == 2
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 3
    assert all("--cpus-per-task=3" in call and call.endswith("train a run") for call in calls)
