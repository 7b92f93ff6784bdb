# All Python of the workflow: checks of the configuration, names of files, arguments of commands.

import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from analysis.coverage import (
    declared_runs,
    describe_missing,
    is_complete,
    missing_run,
    number_text,
    run_folder,
    run_of,
    seeds_by_sampler,
)
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


def figures_in(folder, runs):
    """Every figure that makes sense for these runs, and the pages of numbers."""
    pages = [f"{folder}/figures/{name}.html" for name in ("coverage", "runs")]
    return pages + [
        f"{folder}/figures/{goal_space}/{name}"
        for goal_space, samplers in seeds_by_sampler(runs).items()
        for name in (
            *(f"{figure}.{end}" for figure in applicable(samplers) for end in ("png", "pdf")),
            "numbers.html",
        )
    ]


def run_files(runs, names):
    """These files of these runs of the experiment."""
    return [(run_folder(Path(FOLDER), run) / name).as_posix() for run in runs for name in names]


def runs_to_report():
    """The whole grid; with `allow_incomplete` the runs of it that are complete."""
    grid = declared_runs(config)
    if not EXPERIMENT.allow_incomplete:
        return grid
    runs = [
        run
        for run in grid
        if is_complete(run_folder(Path(FOLDER), run), RUN_FILES, config_hash(config_of(run)))
    ]
    if not runs:
        stop(
            f"allow_incomplete: none of {len(grid)} runs in {FOLDER} is complete; "
            "allowed with at least one: first call without it, to start them"
        )
    return runs


def runs_left_out():
    """Declared runs that an incomplete report does without."""
    reported = set(RUNS)
    return [run for run in declared_runs(config) if run not in reported]


def missing_text(runs):
    """One line per missing run: which, why, and where its log is."""
    folder = Path(FOLDER)
    return describe_missing([missing_run(folder, run) for run in runs], folder)


def announce_left_out():
    """Say once which runs an incomplete report leaves out."""
    if LEFT_OUT and workflow.is_main_process:
        print(
            f"allow_incomplete: the report is made of {len(RUNS)} complete runs, none is started; "
            f"left out:\n{missing_text(LEFT_OUT)}",
            file=sys.stderr,
        )


def announce_unfinished():
    """After a failure: which runs this call wanted and did not get."""
    jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
    wanted = {(job.wildcards.sampler, job.wildcards.goal_space, job.wildcards.seed) for job in jobs}
    unfinished = [run for run in RUNS if (run[0], run[1], str(run[2])) in wanted]
    if unfinished and workflow.is_main_process:
        print(
            f"{len(unfinished)} of {len(RUNS)} runs are missing, so there is no report:\n"
            f"{missing_text(unfinished)}\n"
            "The same call tries them again; `--config allow_incomplete=true` reports on the rest.",
            file=sys.stderr,
        )


def reference_manifest():
    """Manifest of the tables of the committed reference results."""
    try:
        return read_combined_manifest(Path(REFERENCE) / "tables")
    except InputError as error:
        stop(f"{error}; `snakemake adopt` makes the reference results")


def reference_figures(wildcards):
    """Files of the target `figures`."""
    runs = [run_of(manifest) for manifest in reference_manifest()["runs"]]
    return [*statistics_in(REFERENCE), *figures_in(REFERENCE, runs)]


def declared(folder):
    """Configuration behind a results folder: the present one, or that of the reference."""
    if folder == REFERENCE:
        return reference_manifest()["experiment"]
    return EXPERIMENT.model_dump(mode="json")


def facts(wildcards):
    """What the captions say about intervals."""
    settings = declared(wildcards.folder)["analysis"]
    return {
        "confidence": f"{settings['confidence']:.0%}",
        "resamples": f"{settings['bootstrap_repetitions']:,}",
    }


def numbers_of_seeds(folder, planned):
    """How much the tables of a results folder rest on, for the captions.

    From the tables that are there, so that a report never claims more than it shows; from the
    `planned` runs where there are none yet. Per goal space: n in words, the fewest seeds of a
    sampler, and the seeds of each.
    """
    try:
        manifest = read_combined_manifest(Path(folder) / "tables")
        runs, missing = list(map(run_of, manifest["runs"])), manifest.get("missing", [])
    except InputError:
        runs, missing = planned, []
    spaces = {}
    for goal_space, samplers in seeds_by_sampler(runs).items():
        counts = {sampler: len(seeds) for sampler, seeds in samplers.items()}
        spaces[goal_space] = {
            "n": number_text(counts.values()),
            "fewest": min(counts.values()),
            "most": max(counts.values()),
            "samplers": counts,
        }
    return {"complete": len(runs), "declared": len(runs) + len(missing), "goal_spaces": spaces}


def config_of(run):
    """Resolved configuration of one run: sampler, goal space, seed."""
    named = dict(zip(("sampler", "goal_space", "seed"), run, strict=True))
    return resolve_run(EXPERIMENT.preset, [EXPERIMENT.overrides, named])


def fingerprint(wildcards):
    """Hash of a run's configuration: a parameter, so that a changed value makes the run anew."""
    run = (wildcards.sampler, wildcards.goal_space, int(wildcards.seed))
    return config_hash(config_of(run))


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
