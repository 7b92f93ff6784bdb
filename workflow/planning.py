"""Planning of the workflow: checks of the configuration, file names, command arguments.

The rules contain only what needs Snakemake. Errors end with one line, before any job.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import analysis
import analysis.statistics.summaries  # registers the built-in statistics
from analysis.figures import applicable
from analysis.report.finding import terminal
from analysis.statistics.registry import (
    FIGURES,
    STATISTICS,
    FigureSpec,
    StatisticSpec,
    statistics_of,
)
from analysis.tables.coverage import describe_missing, is_complete, made_by_other_code, missing_runs
from analysis.tables.grid import run_of, seeds_by_algorithm
from magellan.config import PlannedRun, flat_keys, grid, load_experiment, read_yaml, resolve_run
from magellan.config.grid import (
    BEGINNING,
    PlannedStart,
    asked_models,
    check_models,
    given_keys,
    host_memory_mb,
    models_of,
    shared_beginnings,
)
from magellan.config.modules import forget_modules
from magellan.config.resolve import check_named
from magellan.config.schema import ExperimentConfig
from magellan.core.errors import InputError, not_allowed, printable, shown
from magellan.core.parsing import is_old_number, parse_yaml, read_json_object
from magellan.core.registry import is_built_in
from magellan.model.files import MADE_IN, WEIGHTS, is_of_the_hub, made_folder, number_of_parameters
from magellan.worlds import DEFAULT_WORLD

DEFAULT_CONFIG = "config/config.yaml"
REFERENCE = "results/reference"
BACKBONE = "results/backbone"
SMOLLM2 = "smollm2-135m"
RUN_FILES = ("evaluation.csv", "competence.csv", "practice.csv", "training.csv", "manifest.json")
# Path of a run below `runs` and `logs/train`.
RUN_PATH = "{sampler}/{goal_space}/seed{seed}/{identity}"
# Initial time limit of a run on a cluster, in minutes; not enforced on a single machine.
RUNTIME_MINUTES = {"smoke": 10, "reference": 120, "grpo": 60, "paper": 7200}
LARGEST_GROWTH = 4
# Packages of the analysis behind statistics and figures.
ANALYSIS = Path(analysis.__file__).parent
COMPUTING = ("tables", "statistics")
DRAWING = (*COMPUTING, "studies", "figures")

Paths = Sequence[str | Path]
Spec = FigureSpec | StatisticSpec


def stop(error: object) -> NoReturn:
    """Exit with one line instead of a traceback, before any job starts."""
    sys.exit(f"error: {error}")


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Stop at an InputError."""
    try:
        yield
    except InputError as error:
        stop(error)


def code_of(*packages: str) -> list[str]:
    """Files of packages of the analysis; editing one remakes the outputs."""
    files = [path for package in packages for path in (ANALYSIS / package).glob("*.*")]
    return sorted(map(os.path.relpath, files))


def check_config_file(path: str | Path) -> None:
    """Stop with file name and line if a file is invalid YAML, repeats a key, or contains Python."""
    with stopping():
        read_yaml(path)


def resolve_modules(values: MutableMapping[str, Any], files: Paths) -> None:
    """Resolve `modules` of a file relative to it; those of `--config` are relative to the cwd."""
    for path in files or [DEFAULT_CONFIG]:
        content = read_yaml(path)
        if "modules" in content:
            values["modules"] = content["modules"]


def checked_experiment(
    values: Mapping[str, Any], files: Paths, overrides: Mapping[str, Any]
) -> ExperimentConfig:
    """The typed experiment; stops at the first wrong key.

    Args:
        values: configuration as merged by Snakemake.
        files: files given with `--configfile`; empty: the default one.
        overrides: values of `--config`, which are among `values`.
    """
    forget_modules()
    with stopping():
        check_overrides(overrides, values)
        named = [str(path) for path in files if "experiment" in read_yaml(path)]
        if len(named) > 1:  # Snakemake merges files: keys of one would leak into the other
            stop(
                f"--configfile: {' '.join(named)} are not allowed together: each names an "
                "experiment; allowed: one of them, and files of keys that change it"
            )
        experiment = load_experiment(values)
        if files:
            check_named(values, f"config file: {' '.join(map(str, files))}")
    for path in experiment.modules:
        check_path(path)
    check_experiment_models(experiment, may_come=True)
    folder = experiment_folder(experiment)
    if os.path.realpath(folder) in map(os.path.realpath, (REFERENCE, BACKBONE)):
        stop(
            f"experiment: {experiment.experiment!r} is not allowed: its results folder is reserved"
        )
    check_writable(folder)
    return experiment


def check_overrides(given: Any, values: Any, key: str = "") -> None:
    """Refuse what Snakemake does not take from `--config` as a file would.

    Numbers that a file may not have, which it leaves as text, and empty mappings, which it adds to
    those of the file.

    Args:
        given: with `--config`, below `key`.
        values: there, in the merged configuration.
    """
    if isinstance(given, Mapping):
        if key and values and not given:
            why = ", as mappings are merged and those of the file stay"
            raise not_allowed(f"--config: {key}", given, "keys to change, or another file", why)
        for name, value in given.items():
            below = values.get(name) if isinstance(values, Mapping) else None
            check_overrides(value, below, f"{key}.{name}" if key else str(name))
    elif isinstance(given, list):
        for index, value in enumerate(given):
            check_overrides(value, None, f"{key}.{index}")
    elif isinstance(given, str) and is_old_number(given):
        parse_yaml(given, f"--config: {key}")


def check_path(path: str | Path) -> None:
    """Stop if Snakemake would take a part of this path for a wildcard."""
    if re.search("[{}]", str(path)):
        stop(f"{path}: braces in this path are not allowed: Snakemake takes them for wildcards")


def check_experiment_models(experiment: ExperimentConfig, may_come: bool) -> None:
    """Stop if a language model is missing.

    With `may_come`, a missing model of the hub is a warning, so that a dry run can list its runs.
    """
    try:
        check_models(experiment)
    except InputError as error:
        if not (may_come and any(map(is_of_the_hub, models_of(experiment)))):
            stop(error)
        print(f"warning: no run can start yet: {error}", file=sys.stderr)


def experiment_folder(experiment: ExperimentConfig) -> str:
    """Folder of an experiment's results."""
    return (Path(experiment.results) / experiment.experiment).as_posix()


def check_writable(folder: str) -> None:
    """Stop if the results folder can be neither written nor created."""
    existing = Path(folder).absolute()
    try:
        while not (existing.exists() or existing.is_symlink()):
            existing = existing.parent
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        stop(f"results: {shown(folder)} cannot be written: {error.strerror}")


def tables_in(folder: str) -> list[str]:
    """The combined tables of a results folder."""
    return [f"{folder}/tables/{name}" for name in RUN_FILES]


def user_defined(registry: Mapping[str, Spec]) -> list[Any]:
    """Entries added by the experiment's modules."""
    return [spec for spec in registry.values() if not is_built_in(spec)]


def statistics_in(folder: str, names: Iterable[str] | None = None) -> list[str]:
    """Files of statistics in a results folder: these, or the built-in ones."""
    if names is None:
        names = [name for name, spec in STATISTICS.items() if is_built_in(spec)]
    return [f"{folder}/statistics/{name}.csv" for name in names]


def input_statistics(folder: str, figure: FigureSpec) -> list[str]:
    """Input statistics of a figure: all built-in ones, or those that a user's figure names."""
    return statistics_in(folder, None if is_built_in(figure) else figure.statistics)


def finding_of(folder: str) -> dict[str, Any]:
    """The finding in the summary of a results folder; empty if there is none yet."""
    try:
        return read_json_object(Path(folder) / "summary.json")
    except (InputError, OSError):
        return {}


def constant(value: Any) -> Callable[[Any], Any]:
    """A parameter whose braces are not wildcards."""
    return lambda wildcards: value


def growing(amount: float) -> Callable[[Any, int], float]:
    """A resource that grows with the attempt, up to `LARGEST_GROWTH` times `amount`."""
    return lambda wildcards, attempt: amount * min(attempt, LARGEST_GROWTH)


def files_of_smollm2() -> list[str]:
    """Files of the model that this workflow builds, the weights first."""
    folder = (made_folder() / SMOLLM2).as_posix()
    if re.search("[{}<>]", folder):
        stop(f"{MADE_IN}: {folder!r} is not allowed: Snakemake takes no braces and no < or > there")
    names = (WEIGHTS, "config.json", "tokenizer.json", "tokenizer_config.json")
    return [f"{folder}/{name}" for name in (*names, "build.json", "README.md")]


class Plan:
    """An experiment as the workflow executes it.

    Attributes:
        values: the complete configuration, as in its tables.
        folder: results folder.
        grid: all declared runs.
        runs: reported runs: the grid, or its complete runs with `allow_incomplete`; `left_out` are
            the rest.
        starts: where runs start from, by their identity.
    """

    def __init__(self, experiment: ExperimentConfig) -> None:
        self.experiment = experiment
        self.values = experiment.model_dump(mode="json")
        self.folder = experiment_folder(experiment)
        with stopping():
            self.grid = grid(experiment)
        self.starts = shared_beginnings(self.grid)
        self.beginnings = [start.run for start in self.starts.values()]
        self._run = {run.identity: run for run in (*self.beginnings, *self.grid)}
        # Now: another experiment of the same workflow replaces the registered samplers.
        self._models = {identity: asked_models(run.config) for identity, run in self._run.items()}
        self.runs = self.grid
        if experiment.allow_incomplete:
            self.runs = [run for run in self.grid if self._is_complete(run)]
            if not self.runs:
                stop(
                    f"allow_incomplete: none of {len(self.grid)} runs in {self.folder} is "
                    "complete; allowed with at least one: first call without it, to start them"
                )
        reported = {run.identity for run in self.runs}
        self.left_out = [run for run in self.grid if run.identity not in reported]

    def _is_complete(self, run: PlannedRun) -> bool:
        return is_complete(Path(self.folder) / run.path, RUN_FILES, run.identity)

    # --- inputs of the analysis -------------------------------------------------------------------

    def run_files(self, names: Iterable[str]) -> list[str]:
        """These files of each reported run."""
        names = list(names)
        return [f"{self.folder}/{run.path}/{name}" for run in self.runs for name in names]

    def run_folders(self) -> list[str]:
        """The folder of each reported run."""
        return [f"{self.folder}/{run.path}" for run in self.runs]

    def tables_experiment(self) -> str:
        """The experiment for combined tables, in JSON; variants keep their order."""
        return json.dumps(self.experiment.model_dump(mode="json", exclude={"allow_incomplete"}))

    def figures(self) -> list[str]:
        """Files of all applicable figures; stops if a module's figure is invalid."""
        files = []
        with stopping():
            for spec in user_defined(FIGURES):
                statistics_of(spec)
            runs = [run_of(run.declared()) for run in self.runs]
            for goal_space, algorithms in seeds_by_algorithm(runs).items():
                path = f"{self.folder}/figures/{goal_space}"
                names = applicable(algorithms, self.values)
                files += [f"{path}/{name}.{suffix}" for name in names for suffix in ("png", "pdf")]
        return files

    def pictures(self) -> list[str]:
        """Figures in the summary."""
        return [path for path in self.figures() if path.endswith(".png")]

    def module_args(self, needed: bool = True) -> list[str]:
        """Command arguments that load the experiment's modules, if needed."""
        return [word for path in self.experiment.modules if needed for word in ("--module", path)]

    def source_files(self, spec: Spec) -> list[str]:
        """Source files that a figure or a user's statistic depends on."""
        code = code_of(*(DRAWING if isinstance(spec, FigureSpec) else COMPUTING))
        if is_built_in(spec):
            return code
        modules = self.experiment.modules
        files = [path for path in modules if str(Path(path).resolve()) == spec.source]
        return [*code, *sorted(files or modules)]

    def remove_old_outputs(self, is_recorded: Callable[[str], Any]) -> str:
        """Remove figures and statistics of an earlier, wider experiment; returns what is removed.

        is_recorded: whether Snakemake has made a file; others stay.
        """
        wanted = {*self.figures(), *statistics_in(self.folder, STATISTICS)}
        removed: list[str] = []
        for part in ("figures", "statistics"):
            folder = Path(self.folder) / part
            for path in sorted(folder.rglob("*"), reverse=True):  # files before their folder
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
                elif (name := path.as_posix()) not in wanted and is_recorded(name):
                    path.unlink(missing_ok=True)
                    removed.append(name)
        listed = ", ".join(reversed(removed))
        return f"removed, as the experiment has no such output any more: {listed}" if listed else ""

    # --- training ---------------------------------------------------------------------------------

    def gpus(self, wildcards: Any) -> int:
        """GPUs of a run: one if its device is `cuda`."""
        return int(self._run[wildcards.identity].config.backend.device == "cuda")

    def memory_mb(self) -> int:
        """Initial memory request: that of the run that needs most."""
        models = models_of(self.experiment)
        # The size of models of the hub may not be known yet.
        size = {name: 0 if is_of_the_hub(name) else number_of_parameters(name) for name in models}
        return max(host_memory_mb(run.config, size[run.config.backbone.model]) for run in self.grid)

    def variant_text(self, wildcards: Any, output: Any) -> str:
        """The variant of a run, as it follows its sampler in messages."""
        variant = self._run[wildcards.identity].variant
        if variant == BEGINNING:
            return ", the shared beginning of others,"
        return f", variant {variant}," if self.experiment.variants else ""

    def backbone_files(self, wildcards: Any) -> list[str]:
        """Weights of a model that this workflow builds for a run, the last of its files."""
        run = self._run[wildcards.identity]
        if SMOLLM2 not in self._models[run.identity] or self._is_complete(run):
            return []
        return [(made_folder() / SMOLLM2 / WEIGHTS).as_posix()]

    def _start(self, identity: str) -> PlannedStart | None:
        """Where a run starts from; None if it starts from scratch, or is complete."""
        return None if self._is_complete(self._run[identity]) else self.starts.get(identity)

    def start_files(self, wildcards: Any) -> list[str]:
        """Input of a run that starts from another one: that run's manifest, its last file."""
        start = self._start(wildcards.identity)
        return [] if start is None else [f"{self.folder}/{start.run.path}/manifest.json"]

    def start_arguments(self, wildcards: Any, output: Any) -> list[str]:
        """Arguments of the train command for the start of a run."""
        start = self._start(wildcards.identity)
        return [] if start is None else ["--start", f"{self.folder}/{start.path}"]

    def train_arguments(self, wildcards: Any, output: Any) -> list[str]:
        """Arguments of the train command that define the run.

        Keys of the experiment are passed as `--set section.key=value` with the value in JSON; the
        trainer refuses them if they do not give the identity.
        """
        run, experiment = self._run[wildcards.identity], self.experiment
        args = ["--sampler", run.sampler, "--goal-space", run.goal_space, "--seed", str(run.seed)]
        args += ["--preset", experiment.preset, "--identity", run.identity, *self.module_args()]
        # Snakemake compares calls, so the default world must not change them.
        args += ["--world", experiment.world] if experiment.world != DEFAULT_WORLD else []
        args += ["--log", experiment.log] if experiment.log != "none" else []
        resolved = flat_keys(run.config.model_dump(mode="json"))
        keys: Iterable[str] = given_keys(self.values, run.variant)
        if run.variant == BEGINNING:
            names = {"sampler": run.sampler, "goal_space": run.goal_space, "seed": run.seed}
            config = resolve_run(experiment.preset, [experiment.common, names])
            plain = flat_keys(config.model_dump(mode="json"))
            keys = [key for key, value in resolved.items() if value != plain[key]]
        # YAML reads JSON's escapes of signs beyond 16 bits otherwise.
        texts = {key: json.dumps(resolved[key], ensure_ascii=False) for key in keys}
        return args + [word for key, text in texts.items() for word in ("--set", f"{key}={text}")]

    # --- messages ---------------------------------------------------------------------------------

    def missing_text(self, runs: Iterable[PlannedRun]) -> str:
        """One line per missing run: its name, the reason, and its log."""
        folder = Path(self.folder)
        return describe_missing(missing_runs(folder, runs), folder)

    def before(self) -> str:
        """Message at the start: runs that are left out, equal or were made with other code."""
        idle = sorted(self.experiment.variants.keys() - {run.variant for run in self.grid})
        reason = "has no runs, as they would equal those of an earlier one"
        messages = [f"warning: variants.{name}: {reason}" for name in idle]
        if self.left_out:
            messages.append(
                f"allow_incomplete: the report is made of {len(self.runs)} complete runs, none is "
                f"started; left out:\n{self.missing_text(self.left_out)}"
            )
        if self.experiment.modules:
            warning = made_by_other_code(Path(self.folder), [*self.grid, *self.beginnings])
            messages += [f"warning: {warning}"] if warning else []
        return "\n".join(messages)

    def after(self, files: Paths, overrides: Mapping[str, Any]) -> str:
        """Five lines at the end: the finding, and the next commands; empty without a summary.

        files, overrides: given with `--configfile` and `--config`.
        """
        summary = finding_of(self.folder)
        if not summary:
            return ""
        options = ["--configfile", *map(os.path.relpath, files)] if files else []
        options += ["--config"] * bool(overrides)
        for key, value in overrides.items():
            text = value if isinstance(value, str) else json.dumps(value)
            options.append(f"{key}={'' if value is None else text}")
        report = ["snakemake", *options, "--report", f"{self.folder}/report.html"]
        commands = [
            f"python -m analysis summary {shlex.quote(self.folder)}   # all numbers",
            f"{shlex.join(report)}   # the summary, and each figure",
        ]
        return "\n".join(["", *map(printable, terminal(summary, self.folder, commands))])

    def unfinished(self, identities: Iterable[str]) -> str:
        """Message after a failure: the missing runs among these identities; may be empty."""
        identities = set(identities)
        runs = [run for run in self.runs if run.identity in identities]
        if not runs:
            return ""
        return (
            f"{len(runs)} of {len(self.runs)} runs are missing, so there is no report:\n"
            f"{self.missing_text(runs)}\n"
            "The same call resumes them, from their last checkpoints if they have any; "
            "`--config allow_incomplete=true` reports on the rest."
        )


# --- on a cluster: outages, jobs of a killed driver ---------------------------------------------


def remember_min_job_age(executor: Any) -> None:
    """Let the Slurm executor poll squeue again after an outage in which scontrol fails, too.

    At each poll it asks scontrol for MinJobAge. It takes no answer for an age of zero and polls
    sacct instead, which never answers without an accounting database.

    Args:
        executor: the executor's package; changed in place.
    """
    ask, known = executor.get_min_job_age, list[int]()

    def min_job_age() -> int | None:
        answer = ask()
        if answer is not None:
            known[:] = [answer]
        return known[0] if known else None

    # The second asks once, when the executor starts.
    for module in (executor, executor.validation):
        module.get_min_job_age = min_job_age


def check_no_orphaned_jobs(wildcards: Iterable[Sequence[str]]) -> None:
    """Stop if jobs of an earlier driver still wait or run for the same outputs.

    A second copy would delete the outputs of the first.

    Args:
        wildcards: wildcards of each run to submit.
    """
    comments = {f"rule_train_wildcards_{'_'.join(values)}" for values in wildcards}
    command = ["squeue", "--me", "--noheader", "--format=%A|%Z|%k"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return  # Slurm is absent or does not answer
    jobs = orphaned_jobs(listing, os.getcwd(), comments)
    if jobs:
        stop(
            f"jobs of an earlier driver still wait or run here; end them, nothing is lost: "
            f"scancel {' '.join(jobs)}"
        )


def orphaned_jobs(listing: str, folder: str, comments: set[str]) -> list[str]:
    """Slurm jobs of an earlier driver with the same outputs.

    Args:
        listing: lines `job|folder|comment` of squeue.
        folder: working directory of this driver.
        comments: comments of the jobs to submit. The comment of a group has no wildcards and does
            not tell its jobs, so any group counts.
    """
    jobs = [line.split("|", 2) for line in listing.splitlines() if line.count("|") >= 2]
    return [
        job
        for job, directory, comment in jobs
        if directory == folder
        and comment.startswith("rule_")
        and (comment in comments or "_wildcards_" not in comment)
    ]
