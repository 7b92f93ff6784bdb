# What only a cluster needs: a driver that was killed leaves its jobs behind. A second copy of them
# would wipe the outputs of the first, so a driver that finds some stops and says how to end them.
# `--no-hooks` does without.

import subprocess


def left_behind(listing, folder, comments):
    """Slurm jobs of an earlier driver that work on what is about to start.

    Args:
        listing: lines `job|folder|comment` of squeue.
        folder: working directory of this driver.
        comments: comments of the jobs that it is about to submit. That of a group has no
            wildcards and does not say what is in it: any such job counts.
    """
    jobs = [line.split("|", 2) for line in listing.splitlines() if line.count("|") >= 2]
    return [
        job
        for job, place, comment in jobs
        if place == folder
        and comment.startswith("rule_")
        and (comment in comments or "_wildcards_" not in comment)
    ]


def jobs_in_the_queue():
    """Lines `job|folder|comment`; none where there is no Slurm, or it does not answer."""
    try:
        asked = subprocess.run(
            ["squeue", "--me", "--noheader", "--format=%A|%Z|%k"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout


def check_no_jobs_left_behind():
    """Stop if jobs of an earlier driver still wait or run for the runs of this one."""
    runs = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
    comments = {f"rule_train_wildcards_{'_'.join(job.wildcards)}" for job in runs}
    jobs = left_behind(jobs_in_the_queue(), os.getcwd(), comments)
    if jobs:
        stop(
            f"jobs of an earlier driver still wait or run here; end them, nothing is lost: "
            f"scancel {' '.join(jobs)}"
        )


onstart:
    if workflow.is_main_process:
        check_no_jobs_left_behind()
        check_models_of_runs()
