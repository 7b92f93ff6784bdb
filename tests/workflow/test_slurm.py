"""What of the Slurm profile can be seen without a Slurm; the rest is `make test-slurm`."""

import os
import subprocess
from types import SimpleNamespace

import pytest
import yaml

from tests.analysis import synthetic
from tests.workflow.conftest import ROOT
from workflow.planning import orphaned_jobs, remember_min_job_age

(FIRST, *_) = synthetic.plan(synthetic.experiment(preset="reference"))
RUN = f"results/default/{FIRST.path}/manifest.json"
COMMENT = f"rule_train_wildcards_random_{synthetic.GOAL_SPACE}_0_{FIRST.identity}"
NAMED = "error: jobs of an earlier driver still wait or run here"
# Fails twice as a locked run does, then with another status.
LOCKED_TWICE = """
echo "$@" >> calls
[ "$(wc -l < calls)" -gt 2 ] && exit 75
exit 73
"""


@pytest.mark.slow
def test_the_profile_is_found_and_plans_the_default_grid(project):
    text = project.run("--profile", "slurm", "-n")
    assert "profiles slurm and workflow specific profile profiles/default" in text
    assert project.planned("--profile", "slurm") == project.planned()
    # Statistics and figures are one job.
    assert text.count("Group job analysis") == 1


def test_a_failed_poll_is_repeated_for_days():
    """By default the executor asks five times within a second, then forgets all jobs."""
    profile = yaml.safe_load((ROOT / "slurm/config.yaml").read_text())
    seconds = profile["slurm-status-attempts"] / profile["max-status-checks-per-second"]
    assert 3 <= seconds / 86_400 <= 10
    assert profile["max-status-checks-per-second"] <= 1  # kind to a controller in trouble


def test_an_outage_does_not_make_the_executor_poll_sacct():
    """Without an answer for MinJobAge it would; after the outage sacct may still not answer."""
    ask = iter([300, None, 60, None]).__next__
    executor = SimpleNamespace(get_min_job_age=ask, validation=SimpleNamespace())
    remember_min_job_age(executor)
    assert executor.validation.get_min_job_age() == 300  # when the executor starts
    assert [executor.get_min_job_age() for _ in range(3)] == [300, 60, 60]


def test_jobs_that_a_driver_left_behind_are_named(project, tools):
    tools("squeue", f"echo '41|{project.folder}|{COMMENT}'; echo '42|/elsewhere|{COMMENT}'")
    assert project.refused("--", RUN) == f"{NAMED}; end them, nothing is lost: scancel 41"
    assert not (project / RUN).parent.exists()


@pytest.mark.parametrize(
    ("listing", "jobs"),
    [
        ("41|HERE|rule_1a2b", ["41"]),  # a group
        (f"41|HERE|{COMMENT}9\n42|HERE|my own job\nnonsense", []),
    ],
)
def test_only_jobs_of_this_folder_and_these_runs_are_left_behind(listing, jobs):
    assert orphaned_jobs(listing.replace("HERE", "/here"), "/here", {COMMENT}) == jobs


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
