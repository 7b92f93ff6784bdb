# All Python of the workflow: checks of the configuration, names of files, arguments of commands.

import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from analysis.figures import FIGURES, applicable
from analysis.manifests import read_combined_manifest
from magellan.config import OPERATIONAL, config_hash, load_experiment, read_yaml, resolve_run
from magellan.errors import InputError

DEFAULT_CONFIG = "config/laptop.yaml"
REFERENCE = "results/reference"
BACKBONE = "results/backbone"
RUN_FILES = (
    "evaluation.csv",
    "competence.csv",
    "practice.csv",
    "training.csv",
    "manifest.json",
)
STATISTICS = (
    "success",
    "scores",
    "aggregates",
    "improvement",
    "profiles",
    "sample_efficiency",
    "calibration",
    "practice",
    "cost",
)
# Minutes that a cluster grants a run at first; nobody enforces them on one machine.
RUNTIME_MINUTES = {"smoke": 10, "laptop": 120, "paper": 7200}
LARGEST_GROWTH = 4

# Rules call plain `python`: let it be the one that runs Snakemake, environment activated or not.
# A conda environment, if asked for, still comes first.
os.environ.update(PATH=os.pathsep.join((str(Path(sys.executable).parent), os.getenv("PATH", ""))))


# In a job of the Slurm executor a run is a step of its own, so that it hears Slurm's signals.
IN_SLURM_JOB = workflow.remote_exec and "SLURM_JOB_ID" in os.environ
STEP = "bash workflow/scripts/slurm_step.sh" if IN_SLURM_JOB else ""


def growing(amount):
    """A resource that grows with the attempt, up to `LARGEST_GROWTH` times the amount."""
    return lambda wildcards, attempt: amount * min(attempt, LARGEST_GROWTH)


def stop(error):
    """End before any job starts, with one line instead of a traceback."""
    sys.exit(f"error: {error}")


def check_yaml(path):
    """Stop with the file's name and line if it is not YAML, or has a key twice."""
    try:
        read_yaml(path)
    except InputError as error:
        stop(error)


def checked_experiment(values):
    """The typed experiment; stops at the first key that is wrong."""
    try:
        experiment = load_experiment(values)
    except InputError as error:
        stop(error)
    if experiment_folder(experiment) in (REFERENCE, BACKBONE):
        stop(
            f"experiment: {experiment.experiment!r} is not allowed: that folder is for other things"
        )
    return experiment


def experiment_folder(experiment):
    """Folder of an experiment's results."""
    return (Path(experiment.results) / experiment.experiment).as_posix()


def check_writable(folder):
    """Stop if the results folder can neither be written nor made, by trying to."""
    place = Path(folder).absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        stop(f"results: {folder!r} cannot be written: {place}: {error.strerror}")


def tables_in(folder):
    """The combined tables of a results folder."""
    return [f"{folder}/tables/{name}" for name in RUN_FILES]


def statistics_in(folder):
    """The tables of statistics of a results folder."""
    return [f"{folder}/statistics/{name}.csv" for name in STATISTICS]


def figures_in(folder, samplers, goal_spaces):
    """Every figure that makes sense for these samplers, and the page of numbers, per goal space."""
    names = [f"{name}.{end}" for name in applicable(samplers) for end in ("png", "pdf")]
    return [
        f"{folder}/figures/{goal_space}/{name}"
        for goal_space in goal_spaces
        for name in (*names, "numbers.html")
    ]


def reference_experiment():
    """Configuration of the committed reference results, from their manifest."""
    try:
        return read_combined_manifest(Path(REFERENCE) / "tables")["experiment"]
    except InputError as error:
        stop(f"{error}; `snakemake adopt` makes the reference results")


def reference_figures(wildcards):
    """Files of the target `figures`."""
    experiment = reference_experiment()
    drawn = figures_in(REFERENCE, experiment["samplers"], experiment["goal_spaces"])
    return [*statistics_in(REFERENCE), *drawn]


def declared(folder):
    """Configuration behind a results folder: the present one, or that of the reference."""
    return reference_experiment() if folder == REFERENCE else EXPERIMENT.model_dump(mode="json")


def facts(wildcards):
    """What the captions say about n and intervals."""
    experiment = declared(wildcards.folder)
    settings = experiment["analysis"]
    return {
        "seeds": len(experiment["seeds"]),
        "confidence": f"{settings['confidence']:.0%}",
        "resamples": f"{settings['bootstrap_repetitions']:,}",
    }


def run_config(wildcards):
    """Resolved configuration of one run."""
    named = {
        "sampler": wildcards.sampler,
        "goal_space": wildcards.goal_space,
        "seed": int(wildcards.seed),
    }
    return resolve_run(EXPERIMENT.preset, [EXPERIMENT.overrides, named])


def fingerprint(wildcards):
    """Hash of a run's configuration: a parameter, so that a changed value makes the run anew."""
    return config_hash(run_config(wildcards))


def override_arguments(experiment, operational):
    """Overrides as arguments of the train command: `--set section.key=value`, value in JSON.

    Operational keys are asked for apart: they say how a job runs, and make nothing anew.
    """
    resolved = resolve_run(experiment.preset, [experiment.overrides]).model_dump(mode="json")
    return [
        word
        for section, keys in experiment.overrides.items()
        for key in keys
        if (section == "budget" and key in OPERATIONAL) == operational
        for word in ("--set", f"{section}.{key}={json.dumps(resolved[section][key])}")
    ]
