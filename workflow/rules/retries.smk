# A run that can never succeed is not tried again: bad input (exit status 2) and numbers that became
# NaN or infinite (70) end the same way each time. Snakemake's `retries` cannot look at a status, and
# a driver of a cluster never sees one, so the job leaves a file and the number of retries follows it.

from snakemake.jobs import Job


def hopeless_file(wildcards):
    """File beside a run's log in which its job notes such a status."""
    return f"{FOLDER}/logs/train/{RUN_PATH.format(**wildcards)}.hopeless"


def retries_of(job):
    """Retries that a job has: those of its rule, and none when it cannot succeed."""
    if job.rule.name == "train" and Path(hopeless_file(job.wildcards)).is_file():
        return 0
    return job.rule.restart_times


Job.restart_times = property(retries_of)
