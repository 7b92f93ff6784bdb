# What needs Snakemake itself; the rest is in workflow/planning.py.

import gc
import os
import shlex
import sys
from pathlib import Path

# The packages that the rules call lie beside this folder: found also where another workflow, in a
# folder of its own, takes this one as a module. A copy of the rules alone, as Snakemake makes of a
# hosted repository, needs them on Python's path.
CHECKOUT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1]
WHOLE = (CHECKOUT / "magellan").is_dir()
if WHOLE:
    sys.path.insert(0, str(CHECKOUT))
    places = filter(None, (str(CHECKOUT), os.getenv("PYTHONPATH")))
    os.environ.update(PYTHONPATH=os.pathsep.join(places))

from workflow.planning import *

# A plan of thousands of runs is millions of objects that live as long as it does: looking for garbage
# among them every 700 objects takes a tenth of the time.
gc.set_threshold(100_000)

# Rules call plain `python`: let it be the one that runs Snakemake, environment activated or not.
# A conda environment, if asked for, still comes first.
os.environ.update(PATH=os.pathsep.join((str(Path(sys.executable).parent), os.getenv("PATH", ""))))


def script(name):
    """Path of a script of this workflow, as a word of a command; braces in it are no wildcards."""
    place = (
        CHECKOUT / "workflow/scripts" / name
        if WHOLE
        else workflow.source_path(f"../scripts/{name}")
    )
    return shlex.quote(os.path.relpath(place)).replace("{", "{{").replace("}", "}}")


# In a job of the Slurm executor a run is a step of its own, so that it hears Slurm's signals.
IN_SLURM_JOB = workflow.remote_exec and "SLURM_JOB_ID" in os.environ
OUTSIDE = f"bash {script('slurm_step.sh')}" if IN_SLURM_JOB else ""
# On the GPUs that it asks for, which no other run of the machine has.
STEP = f"{OUTSIDE} python {script('take_gpu.py')} {{resources.gpu}}"


def analysis_group(wildcards):
    """On a cluster all jobs behind the runs are one job.

    For each run Snakemake asks a group whether all others are done. A dry run starts nothing.
    """
    return None if workflow.dryrun and len(PLAN.runs) > 1000 else "analysis"


def say(text):
    """Tell the person who called, and once: not from each job."""
    if text and workflow.is_main_process:
        print(text, file=sys.stderr)


def runs_to_start():
    """Wildcards of each run that this call has to make."""
    return [job.wildcards for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
