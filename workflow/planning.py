"""What the workflow plans: checks of the configuration, names of files, arguments of commands.

The rules keep what needs Snakemake itself. What cannot be ends with one line, before any job.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import analysis
import analysis.statistics.summaries  # registers the statistics of the package
from analysis.figures import applicable
from analysis.report.finding import as_plain_text, numbers, terminal
from analysis.report.finding import facts as caption_facts
from analysis.statistics.registry import (
    FIGURES,
    STATISTICS,
    FigureSpec,
    StatisticSpec,
    statistics_of,
)
from analysis.tables.coverage import describe_missing, is_complete, made_by_other_code, missing_runs
from analysis.tables.grid import Run, run_of, seeds_by_algorithm
from analysis.tables.manifests import advice, read_combined_manifest
from magellan.config import (
    BEGINNING,
    ExperimentConfig,
    PlannedRun,
    PlannedStart,
    check_models,
    check_named,
    flat_keys,
    given_keys,
    grid,
    load_experiment,
    models_of,
    read_yaml,
    resolve_run,
    shared_beginnings,
)
from magellan.config.grid import host_memory_mb
from magellan.core.errors import InputError, printable
from magellan.core.parsing import read_json_object
from magellan.core.registry import is_built_in
from magellan.model.files import MADE_IN, WEIGHTS, is_of_the_hub, made_folder, number_of_parameters
from magellan.worlds import DEFAULT_WORLD

DEFAULT_CONFIG = "config/config.yaml"
REFERENCE = "results/reference"
STUDY = f"{REFERENCE}/samplers"
BACKBONE = "results/backbone"
SMOLLM2 = "smollm2-135m"
RUN_FILES = ("evaluation.csv", "competence.csv", "practice.csv", "training.csv", "manifest.json")
# Where a run lies below `runs`, `logs/train` and `benchmarks/train`.
RUN_PATH = "{sampler}/{goal_space}/seed{seed}/{identity}"
# Minutes that a cluster grants a run at first; nobody enforces them on one machine.
RUNTIME_MINUTES = {"smoke": 10, "laptop": 120, "paper": 7200}
LARGEST_GROWTH = 4
# Rooms whose code tables with statistics, and figures, are made with.
ANALYSIS = Path(analysis.__file__).parent
COMPUTING = ("tables", "statistics")
DRAWING = (*COMPUTING, "studies", "figures")

Paths = Sequence[str | Path]
Spec = FigureSpec | StatisticSpec


def stop(error: object) -> NoReturn:
    """End before any job starts, with one line instead of a traceback."""
    sys.exit(f"error: {error}")


def code_of(*rooms: str) -> list[str]:
    """Files of these rooms of the analysis: an edit of one makes anew what is made with them."""
    files = [path for room in rooms for path in (ANALYSIS / room).glob("*.py")]
    return sorted(map(os.path.relpath, files))


def check_config_file(path: str | Path) -> None:
    """Stop with the file's name and line if it is not YAML, has a key twice, or holds Python."""
    try:
        read_yaml(path)
    except InputError as error:
        stop(error)


def place_modules(values: MutableMapping[str, Any], files: Paths) -> None:
    """Have `modules` of a file relative to it; those of `--config` are relative to here."""
    for path in files or [DEFAULT_CONFIG]:
        given = read_yaml(path)
        if "modules" in given:
            values["modules"] = given["modules"]


def checked_experiment(values: Mapping[str, Any], files: Paths) -> ExperimentConfig:
    """The typed experiment; stops at the first key that is wrong.

    Args:
        values: as Snakemake has put them together.
        files: given with `--configfile`; empty where the default one counts.
    """
    try:
        experiment = load_experiment(values, models=False)
        if files:
            check_named(values, f"config file: {' '.join(map(str, files))}")
    except InputError as error:
        stop(error)
    check_its_models(experiment, may_come=True)
    folder = experiment_folder(experiment)
    if folder in (REFERENCE, BACKBONE):
        stop(
            f"experiment: {experiment.experiment!r} is not allowed: that folder is for other things"
        )
    check_writable(folder)
    return experiment


def check_its_models(experiment: ExperimentConfig, may_come: bool) -> None:
    """Stop if a language model is missing.

    With `may_come` one of the hub gets a warning: a dry run lists what would run without it.
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
    """Stop if the results folder can neither be written nor made, by trying to."""
    place = Path(folder).absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        stop(f"results: {folder!r} cannot be written: {place}: {error.strerror}")


def tables_in(folder: str) -> list[str]:
    """The combined tables of a results folder."""
    return [f"{folder}/tables/{name}" for name in RUN_FILES]


def built_in(registry: Mapping[str, Spec]) -> list[str]:
    """Names of what is the package's own; the committed reference results have these alone."""
    return [name for name, spec in registry.items() if is_built_in(spec)]


def own(registry: Mapping[str, Spec]) -> list[Any]:
    """Entries that the experiment's modules have added."""
    return [spec for spec in registry.values() if not is_built_in(spec)]


def statistics_in(folder: str, names: Iterable[str] | None = None) -> list[str]:
    """The tables of statistics of a results folder: these, or the package's own."""
    wanted = built_in(STATISTICS) if names is None else names
    return [f"{folder}/statistics/{name}.csv" for name in wanted]


def statistics_behind(figure: FigureSpec) -> list[str]:
    """Statistics that a figure is made of: those that it names, for a user's own."""
    return statistics_in("{folder}", None if is_built_in(figure) else figure.statistics)


def figures_in(folder: str, runs: Iterable[Run], experiment: Mapping[str, Any]) -> list[str]:
    """Every figure that makes sense for these runs, and the pages of numbers."""
    wanted = built_in(FIGURES) if folder == REFERENCE else list(FIGURES)
    files = [f"{folder}/figures/coverage.html"]
    for goal_space, algorithms in seeds_by_algorithm(runs).items():
        here = f"{folder}/figures/{goal_space}"
        drawn = [name for name in applicable(algorithms, experiment) if name in wanted]
        files += [f"{here}/{name}.{end}" for name in drawn for end in ("png", "pdf")]
        files.append(f"{here}/numbers.html")
    return files


def caption_of(figure: FigureSpec) -> str:
    """File with the caption of a figure."""
    return f"../report/{figure.name if is_built_in(figure) else 'own_figure'}.rst"


def captions(checkout: Path) -> list[str]:
    """Texts below the figures."""
    places = [
        checkout / "workflow/report" / f"{name}.rst" for name in (*built_in(FIGURES), "own_figure")
    ]
    return [os.path.relpath(path) for path in places if path.is_file()]


def finding_of(folder: str) -> dict[str, Any]:
    """What the summary of a results folder says; nothing where there is none yet."""
    try:
        return read_json_object(Path(folder) / "summary.json")
    except (InputError, OSError):
        return {}


def first_page(folder: str) -> dict[str, Any]:
    """The same for the report's first page."""
    return {
        key: as_plain_text(said) if isinstance(said, str) else list(map(as_plain_text, said))
        for key, said in finding_of(folder).items()
    }


def constant(value: Any) -> Callable[[Any], Any]:
    """A parameter in which braces are no wildcards."""
    return lambda wildcards: value


def growing(amount: float) -> Callable[[Any, int], float]:
    """A resource that grows with the attempt, up to `LARGEST_GROWTH` times the amount."""
    return lambda wildcards, attempt: amount * min(attempt, LARGEST_GROWTH)


def reference_manifest() -> Mapping[str, Any]:
    """Manifest of the tables of the committed reference results."""
    try:
        return read_combined_manifest(Path(REFERENCE) / "tables")
    except InputError as error:
        _stop_without_reference(error)


def reference_figures(wildcards: Any = None) -> list[str]:
    """Files of the target `figures`; the tables behind them are checked first."""
    from analysis.tables import store

    try:
        manifest = store.load(Path(REFERENCE) / "tables").manifest
    except InputError as error:
        _stop_without_reference(error)
    runs = map(run_of, manifest["runs"])
    return [*statistics_in(REFERENCE), *figures_in(REFERENCE, runs, manifest["experiment"])]


def _stop_without_reference(error: InputError) -> NoReturn:
    """Say how to get whole reference tables, before a job could remove what was made of them."""
    how = advice(Path(REFERENCE) / "tables") or "`snakemake adopt` makes the reference results"
    stop(f"{error}; {how}")


def study_of(wildcards: Any) -> list[str]:
    """Tables of the reference study, which says how often a smaller experiment is right."""
    files = [f"{STUDY}/{name}" for name in RUN_FILES]
    there = wildcards.folder != REFERENCE and all(Path(path).is_file() for path in files)
    return files if there else []


def files_of_smollm2() -> list[str]:
    """Files of the model that this workflow makes, the weights first."""
    folder = (made_folder() / SMOLLM2).as_posix()
    if re.search("[{}<>]", folder):
        stop(f"{MADE_IN}: {folder!r} is not allowed: Snakemake takes no braces and no < or > there")
    names = (WEIGHTS, "config.json", "tokenizer.json", "tokenizer_config.json")
    return [f"{folder}/{name}" for name in (*names, "build.json", "README.md")]


class Plan:
    """An experiment as the workflow carries it out.

    Attributes:
        values: the whole experiment, as its tables list it.
        folder: of its results.
        grid: all runs that it declares.
        runs: those that the report is made of: the grid, or with `allow_incomplete` what is
            complete of it; `left_out` are the others.
        starts: what runs start from, by their identity.
    """

    def __init__(self, experiment: ExperimentConfig) -> None:
        self.experiment = experiment
        self.values = experiment.model_dump(mode="json")
        self.folder = experiment_folder(experiment)
        self.grid = grid(experiment)
        self.starts = shared_beginnings(self.grid)
        self.beginnings = [start.run for start in self.starts.values()]
        self._run = {run.identity: run for run in (*self.beginnings, *self.grid)}
        self.runs = self._runs_to_report()
        reported = {run.identity for run in self.runs}
        self.left_out = [run for run in self.grid if run.identity not in reported]

    def _is_complete(self, run: PlannedRun) -> bool:
        return is_complete(Path(self.folder) / run.path, RUN_FILES, run.identity)

    def _runs_to_report(self) -> list[PlannedRun]:
        if not self.experiment.allow_incomplete:
            return self.grid
        runs = [run for run in self.grid if self._is_complete(run)]
        if not runs:
            stop(
                f"allow_incomplete: none of {len(self.grid)} runs in {self.folder} is complete; "
                "allowed with at least one: first call without it, to start them"
            )
        return runs

    # --- files and facts for the analysis ---------------------------------------------------------

    def run_files(self, names: Iterable[str]) -> list[str]:
        """These files of each run that is reported."""
        names = list(names)
        return [f"{self.folder}/{run.path}/{name}" for run in self.runs for name in names]

    def tables_experiment(self) -> str:
        """The experiment as combined tables have it, in JSON; variants keep their order."""
        whole = self.experiment.model_dump(mode="json", exclude={"allow_incomplete"})
        return json.dumps(whole)

    def _places(self) -> list[Run]:
        return [run_of(run.declared()) for run in self.runs]

    def figures(self) -> list[str]:
        """Figures of the experiment; stops if one of a module is not as it must be."""
        try:
            for spec in own(FIGURES):
                statistics_of(spec)
            return figures_in(self.folder, self._places(), self.values)
        except InputError as error:
            stop(error)

    def pictures(self, wildcards: Any) -> list[str]:
        """Figures that the summary of a results folder shows."""
        files = reference_figures() if wildcards.folder == REFERENCE else self.figures()
        return [path for path in files if path.endswith(".png")]

    def facts(self, wildcards: Any) -> dict[str, str]:
        """What the captions say about intervals: of this experiment or of the reference."""
        of_reference = wildcards.folder == REFERENCE
        return caption_facts(reference_manifest()["experiment"] if of_reference else self.values)

    def numbers_of_seeds(self, folder: str) -> dict[str, Any]:
        """How much the tables of a results folder rest on, for the captions.

        From the tables that are there, so that a report never claims more than it shows; from the
        planned runs where there are none yet.
        """
        try:
            manifest = read_combined_manifest(Path(folder) / "tables")
        except InputError:
            return numbers(self._places(), 0, self.values)
        runs, missing = list(map(run_of, manifest["runs"])), manifest.get("missing", [])
        return numbers(runs, len(missing), manifest["experiment"])

    def module_words(self, needed: bool = True) -> list[str]:
        """Words of a command that make the experiment's modules known, where it needs them."""
        return [word for path in self.experiment.modules if needed for word in ("--module", path)]

    def code_behind(self, spec: Spec) -> list[str]:
        """Files of code that a figure, or a statistic of the user's own, depends on."""
        code = code_of(*(DRAWING if isinstance(spec, FigureSpec) else COMPUTING))
        if is_built_in(spec):
            return code
        modules = self.experiment.modules
        files = [path for path in modules if str(Path(path).resolve()) == spec.source]
        return [*code, *sorted(files or modules)]

    # --- training ---------------------------------------------------------------------------------

    def gpus(self, wildcards: Any) -> int:
        """GPUs of a run: one where the experiment names `cuda`."""
        return int(self._run[wildcards.identity].config.backend.device == "cuda")

    def memory_mb(self) -> int:
        """Memory that a run asks for at first, of the run that needs most."""
        models = models_of(self.experiment)
        # Nobody knows the size of one that is yet to come.
        size = {name: 0 if is_of_the_hub(name) else number_of_parameters(name) for name in models}
        return max(host_memory_mb(run.config, size[run.config.backbone.model]) for run in self.grid)

    def in_words(self, wildcards: Any, output: Any) -> str:
        """The variant of a run as it stands behind the name of its sampler."""
        variant = self._run[wildcards.identity].variant
        if variant == BEGINNING:
            return ", the beginning of others,"
        return f", variant {variant}," if self.experiment.variants else ""

    def made_backbone(self, wildcards: Any) -> list[str]:
        """Weights of a model that this workflow makes, which come last of its files; or nothing."""
        if self._run[wildcards.identity].config.backbone.model != SMOLLM2:
            return []
        return [(made_folder() / SMOLLM2 / WEIGHTS).as_posix()]

    def _start(self, identity: str) -> PlannedStart | None:
        """What a run starts from; None where it is trained whole.

        A run that is there, as one from committed tables, needs no beginning that is not.
        """
        start = self.starts.get(identity)
        if start is None:
            return None
        there = self._is_complete(self._run[identity])
        return start if self._is_complete(start.run) or not there else None

    def start_files(self, wildcards: Any) -> list[str]:
        """Input of a run that starts from another one: that one's manifest, its last file."""
        start = self._start(wildcards.identity)
        return [] if start is None else [f"{self.folder}/{start.run.path}/manifest.json"]

    def start_arguments(self, wildcards: Any, output: Any) -> list[str]:
        """Words of the train command that say where a run starts."""
        start = self._start(wildcards.identity)
        return [] if start is None else ["--start", f"{self.folder}/{start.path}"]

    def train_arguments(self, wildcards: Any, output: Any) -> list[str]:
        """Words of the train command that say what the run is.

        Keys that the experiment gives, `--set section.key=value` with the value in JSON; the
        trainer refuses if they make another run than the identity says.
        """
        run, experiment = self._run[wildcards.identity], self.experiment
        words = ["--sampler", run.sampler, "--goal-space", run.goal_space, "--seed", str(run.seed)]
        words += ["--preset", experiment.preset, "--identity", run.identity, *self.module_words()]
        # Snakemake compares calls: those of the default world are as before there were others.
        words += ["--world", experiment.world] if experiment.world != DEFAULT_WORLD else []
        words += ["--log", experiment.log] if experiment.log != "none" else []
        resolved = flat_keys(run.config.model_dump(mode="json"))
        if run.variant == BEGINNING:
            given: Iterable[str] = self._own_keys(run, resolved)
        else:
            given = given_keys(self.values, run.variant)
        return words + [w for key in given for w in ("--set", f"{key}={json.dumps(resolved[key])}")]

    def _own_keys(self, run: PlannedRun, resolved: Mapping[str, Any]) -> list[str]:
        """Flat keys of a run that its name and its preset do not give it."""
        named = {"sampler": run.sampler, "goal_space": run.goal_space, "seed": run.seed}
        config = resolve_run(self.experiment.preset, [self.experiment.common, named])
        plain = flat_keys(config.model_dump(mode="json"))
        return [key for key, value in resolved.items() if value != plain[key]]

    # --- what is said -----------------------------------------------------------------------------

    def missing_text(self, runs: Iterable[PlannedRun]) -> str:
        """One line per missing run: which, why, and where its log is."""
        folder = Path(self.folder)
        return describe_missing(missing_runs(folder, runs, self.grid), folder)

    def before(self) -> str:
        """What is said when the plan is made: which runs are left out, or are by other code."""
        said = []
        if self.left_out:
            said.append(
                f"allow_incomplete: the report is made of {len(self.runs)} complete runs, none is "
                f"started; left out:\n{self.missing_text(self.left_out)}"
            )
        if self.experiment.modules:
            words = made_by_other_code(Path(self.folder), [*self.grid, *self.beginnings])
            said += [f"warning: {words}"] if words else []
        return "\n".join(said)

    def after(self, files: Paths) -> str:
        """Five lines at the end: what was found, and where to go on; empty without a summary."""
        found = finding_of(self.folder)
        if not found:
            return ""
        words = [word for path in files for word in ("--configfile", os.path.relpath(path))]
        words += ["--config", "allow_incomplete=true"] if self.experiment.allow_incomplete else []
        drawn = ["snakemake", *words, "--report", f"{self.folder}/report.html"]
        commands = [
            f"python -m analysis summary {shlex.quote(self.folder)}   # all numbers",
            f"{shlex.join(drawn)}   # all figures, with how to read them",
        ]
        return "\n".join(["", *map(printable, terminal(found, self.folder, commands))])

    def unfinished(self, wanted: Iterable[str]) -> str:
        """After a failure: which runs of these identities were not made; empty if none."""
        identities = set(wanted)
        runs = [run for run in self.runs if run.identity in identities]
        if not runs:
            return ""
        return (
            f"{len(runs)} of {len(self.runs)} runs are missing, so there is no report:\n"
            f"{self.missing_text(runs)}\n"
            "The same call goes on, each from its last checkpoint where it has one; "
            "`--config allow_incomplete=true` reports on the rest."
        )


# --- on a cluster: a driver that was killed leaves its jobs behind ------------------------------


def check_no_jobs_left_behind(wildcards: Iterable[Sequence[str]]) -> None:
    """Stop if jobs of an earlier driver still wait or run for what this one is about to start.

    A second copy of them would wipe the outputs of the first.

    Args:
        wildcards: of each run that this driver is about to submit.
    """
    comments = {f"rule_train_wildcards_{'_'.join(values)}" for values in wildcards}
    jobs = left_behind(jobs_in_the_queue(), os.getcwd(), comments)
    if jobs:
        stop(
            f"jobs of an earlier driver still wait or run here; end them, nothing is lost: "
            f"scancel {' '.join(jobs)}"
        )


def jobs_in_the_queue() -> str:
    """Lines `job|folder|comment`; none where there is no Slurm, or it does not answer."""
    command = ["squeue", "--me", "--noheader", "--format=%A|%Z|%k"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def left_behind(listing: str, folder: str, comments: set[str]) -> list[str]:
    """Slurm jobs of an earlier driver that work on what is about to start.

    Args:
        listing: lines `job|folder|comment` of squeue.
        folder: working directory of this driver.
        comments: of the jobs that it is about to submit. That of a group has no wildcards and
            does not say what is in it: any such job counts.
    """
    jobs = [line.split("|", 2) for line in listing.splitlines() if line.count("|") >= 2]
    return [
        job
        for job, place, comment in jobs
        if place == folder
        and comment.startswith("rule_")
        and (comment in comments or "_wildcards_" not in comment)
    ]
