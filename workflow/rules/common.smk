# Code that needs Snakemake; the rest is in workflow/planning.py.

import gc
import os
import shlex
import sys
from pathlib import Path

# The packages that the rules call lie beside this folder, also if another workflow uses this one as
# a module. A copy of the rules alone, as Snakemake makes of a hosted repository, needs them on
# Python's path.
CHECKOUT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1]
WHOLE = (CHECKOUT / "magellan").is_dir()
if WHOLE:
    sys.path.insert(0, str(CHECKOUT))
    paths = filter(None, (str(CHECKOUT), os.getenv("PYTHONPATH")))
    os.environ.update(PYTHONPATH=os.pathsep.join(paths))

from workflow.planning import *

check_path(CHECKOUT)
check_path(os.getcwd())

# A plan of thousands of runs has millions of long-lived objects: collecting garbage every 700
# allocations takes a tenth of the time.
gc.set_threshold(100_000)

# Rules call plain `python`: make it the one that runs Snakemake, even without an activated
# environment. A conda environment, if requested, still comes first.
os.environ.update(PATH=os.pathsep.join((str(Path(sys.executable).parent), os.getenv("PATH", ""))))


def script(name):
    """Quoted path of a script of this workflow, with escaped braces."""
    path = (
        CHECKOUT / "workflow/scripts" / name
        if WHOLE
        else workflow.source_path(f"../scripts/{name}")
    )
    return shlex.quote(os.path.relpath(path)).replace("{", "{{").replace("}", "}}")


# In a job of the Slurm executor a run is a step of its own, so that it receives Slurm's signals.
IN_SLURM_JOB = workflow.remote_exec and "SLURM_JOB_ID" in os.environ
OUTSIDE = f"bash {script('slurm_step.sh')}" if IN_SLURM_JOB else ""
# With exclusive GPUs, as many as it requests.
STEP = f"{OUTSIDE} python {script('take_gpu.py')} {{resources.gpu}}"

# Snakemake has imported all installed executors.
if "snakemake_executor_plugin_slurm" in sys.modules:
    remember_min_job_age(sys.modules["snakemake_executor_plugin_slurm"])


def analysis_group(wildcards):
    """Group of all jobs after the runs: one job on a cluster.

    None in large dry runs: for each run Snakemake checks whether all others in a group are done.
    """
    return None if workflow.dryrun and len(PLAN.runs) > 1000 else "analysis"


def say(text):
    """Print a message once, not from each job."""
    if text and workflow.is_main_process:
        print(text, file=sys.stderr)


def runs_to_start():
    """Wildcards of each run that this call starts."""
    return [job.wildcards for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
