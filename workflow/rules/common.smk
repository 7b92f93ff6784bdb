# All Python of the workflow: checks of the configuration, names of files, arguments of commands.

import gc
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

# The packages that the rules call lie beside this folder: found also where another workflow, in a
# folder of its own, takes this one as a module. A copy of the rules alone, as Snakemake makes of a
# hosted repository, needs them installed.
CHECKOUT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1]
WHOLE = (CHECKOUT / "magellan").is_dir()
if WHOLE:
    sys.path.insert(0, str(CHECKOUT))
    found = filter(None, (str(CHECKOUT), os.getenv("PYTHONPATH")))
    os.environ.update(PYTHONPATH=os.pathsep.join(found))

from analysis.report.captions import facts as caption_facts
from analysis.report.captions import as_plain_text, numbers
from analysis.tables.coverage import describe_missing, is_complete, made_by_other_code, missing_runs
from analysis.figures import FIGURES, applicable
from analysis.report.finding import terminal
from analysis.tables.grid import run_of, seeds_by_algorithm
from analysis.tables.manifests import read_combined_manifest
from analysis.statistics.registry import statistics_of
from analysis.tables.git_hint import advice
from analysis.figures.sources import sources, sources_of_file
from analysis.statistics.summaries import STATISTICS
from magellan.config import (
    BEGINNING,
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
from magellan.model.files import (
    MADE_IN,
    WEIGHTS,
    is_of_the_hub,
    made_folder,
    number_of_parameters,
)
from magellan.core.parsing import read_json_object
from magellan.core.registry import is_built_in
from magellan.worlds import DEFAULT_WORLD

# A plan of thousands of runs is millions of objects that live as long as it does: looking for garbage
# among them every 700 objects takes a tenth of the time.
gc.set_threshold(100_000)

DEFAULT_CONFIG = "config/config.yaml"
REFERENCE = "results/reference"
BACKBONE = "results/backbone"
SMOLLM2 = "smollm2-135m"
RUN_FILES = (
    "evaluation.csv",
    "competence.csv",
    "practice.csv",
    "training.csv",
    "manifest.json",
)
# Where a run lies below `runs`, `logs/train` and `benchmarks/train`.
RUN_PATH = "{sampler}/{goal_space}/seed{seed}/{identity}"
# Minutes that a cluster grants a run at first; nobody enforces them on one machine.
RUNTIME_MINUTES = {"smoke": 10, "laptop": 120, "paper": 7200}
LARGEST_GROWTH = 4

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


def growing(amount):
    """A resource that grows with the attempt, up to `LARGEST_GROWTH` times the amount."""
    return lambda wildcards, attempt: amount * min(attempt, LARGEST_GROWTH)


def gpus(wildcards):
    """GPUs of a run: one where the experiment names `cuda`, and a run takes one that is free."""
    return int(run_with(wildcards.identity).config.backend.device == "cuda")


def analysis_group(wildcards):
    """On a cluster all jobs behind the runs are one job.

    For each run Snakemake asks a group whether all others are done. A dry run starts nothing.
    """
    return None if workflow.dryrun and len(RUNS) > 1000 else "analysis"


def stop(error):
    """End before any job starts, with one line instead of a traceback."""
    sys.exit(f"error: {error}")


def check_config_file(path):
    """Stop with the file's name and line if it is not YAML, has a key twice, or holds Python."""
    try:
        read_yaml(path)
    except InputError as error:
        stop(error)


def place_modules(values):
    """Have `modules` of a file relative to it; those of `--config` are relative to here."""
    if workflow.modifier.skip_configfile or "modules" in workflow.config_settings.config:
        return
    for path in workflow.overwrite_configfiles or [DEFAULT_CONFIG]:
        given = read_yaml(path)
        if "modules" in given:
            values["modules"] = given["modules"]


def checked_experiment(values):
    """The typed experiment; stops at the first key that is wrong."""
    files = workflow.overwrite_configfiles
    try:
        experiment = load_experiment(values, models=False)
        if files:
            check_named(values, f"config file: {' '.join(map(str, files))}")
    except InputError as error:
        stop(error)
    check_its_models(experiment, may_come=True)
    if experiment_folder(experiment) in (REFERENCE, BACKBONE):
        stop(
            f"experiment: {experiment.experiment!r} is not allowed: that folder is for other things"
        )
    return experiment


def check_its_models(experiment, may_come):
    """Stop if a language model is missing.

    With `may_come` one of the hub gets a warning: a dry run lists what would run without it.
    """
    try:
        check_models(experiment)
    except InputError as error:
        if not (may_come and any(map(is_of_the_hub, models_of(experiment)))):
            stop(error)
        print(f"warning: no run can start yet: {error}", file=sys.stderr)


def check_models_of_runs():
    """Stop before the first run if a language model is still missing."""
    if any(job.rule.name == "train" for job in workflow.dag.needrun_jobs()):
        check_its_models(EXPERIMENT, may_come=False)


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


def built_in(registry):
    """Names of what is the package's own; the committed reference results have these alone."""
    return [name for name, spec in registry.items() if is_built_in(spec)]


def own(registry):
    """Entries that the experiment's modules have added."""
    return [spec for spec in registry.values() if not is_built_in(spec)]


def statistics_in(folder, names=None):
    """The tables of statistics of a results folder: these, or the package's own."""
    wanted = built_in(STATISTICS) if names is None else names
    return [f"{folder}/statistics/{name}.csv" for name in wanted]


def figures_in(folder, runs, experiment):
    """Every figure that makes sense for these runs, and the pages of numbers."""
    wanted = built_in(FIGURES) if folder == REFERENCE else list(FIGURES)
    found = [f"{folder}/figures/{name}.html" for name in ("coverage", "runs")]
    for goal_space, algorithms in seeds_by_algorithm(runs).items():
        here = f"{folder}/figures/{goal_space}"
        drawn = [name for name in applicable(algorithms, experiment) if name in wanted]
        found += [f"{here}/{name}.{end}" for name in drawn for end in ("png", "pdf")]
        found.append(f"{here}/numbers.html")
    return found


def planned_figures():
    """Figures of the experiment; stops if one of a module is not as it must be."""
    try:
        for spec in own(FIGURES):
            statistics_of(spec)
        return figures_in(FOLDER, PLACES, config)
    except InputError as error:
        stop(error)


def pictures(wildcards):
    """Figures that the summary of a results folder shows."""
    if wildcards.folder == REFERENCE:
        files = reference_figures(wildcards)
    else:
        files = planned_figures()
    return [path for path in files if path.endswith(".png")]


def captions():
    """Texts below the figures."""
    names = [*built_in(FIGURES), "own_figure"]
    places = [CHECKOUT / "workflow/report" / f"{name}.rst" for name in names]
    return [os.path.relpath(path) for path in places if path.is_file()]


def modules_of_figures():
    """Words of a command that make figures of the user's own known."""
    return [word for path in EXPERIMENT.modules if own(FIGURES) for word in ("--module", path)]


def finding_of(folder):
    """What the summary of a results folder says; nothing where there is none yet."""
    try:
        return read_json_object(Path(folder) / "summary.json")
    except (InputError, OSError):
        return {}


def announce_finding():
    """Five lines at the end: what was found, and where to go on."""
    wanted = {job.rule.name for job in workflow.dag.jobs}
    found = finding_of(FOLDER)
    if found and "summary" in wanted and workflow.is_main_process:
        files = map(os.path.relpath, workflow.overwrite_configfiles)
        words = [word for path in files for word in ("--configfile", path)]
        words += ["--config", "allow_incomplete=true"] if EXPERIMENT.allow_incomplete else []
        drawn = ["snakemake", *words, "--report", f"{FOLDER}/report.html"]
        commands = [
            f"python -m analysis summary {shlex.quote(FOLDER)}   # all numbers",
            f"{shlex.join(drawn)}   # all figures, with how to read them",
        ]
        lines = map(printable, terminal(found, FOLDER, commands))
        print("", *lines, sep="\n", file=sys.stderr)


def statistics_behind(figure):
    """Statistics that a figure is made of: those that it names, for a user's own."""
    if is_built_in(figure):
        return statistics_in("{folder}")
    return statistics_in("{folder}", figure.statistics)


def code_behind(figure):
    """Files of code that a figure depends on."""
    if is_built_in(figure):
        return sorted(
            {*sources("analysis.tables.store"), *sources(f"analysis.figures.{figure.name}")}
        )
    return sorted({*sources("analysis.tables.store"), *files_of_own(figure)})


def files_of_own(spec):
    """The user's file that a statistic or figure is in, with what it imports from the package."""
    files = [path for path in EXPERIMENT.modules if str(Path(path).resolve()) == spec.source]
    return sorted({file for path in files or EXPERIMENT.modules for file in sources_of_file(path)})


def caption_of(figure):
    """File with the caption of a figure."""
    return f"../report/{figure.name if is_built_in(figure) else 'own_figure'}.rst"


def modules_for(spec):
    """Words of a command that make the experiment's modules known, where it needs them."""
    if is_built_in(spec):
        return []
    return [word for path in EXPERIMENT.modules for word in ("--module", path)]


def constant(value):
    """A parameter in which braces are no wildcards."""
    return lambda wildcards: value


def run_files(runs, names):
    """These files of these runs of the experiment."""
    return [f"{FOLDER}/{run.path}/{name}" for run in runs for name in names]


def runs_to_report():
    """The whole grid; with `allow_incomplete` the runs of it that are complete."""
    if not EXPERIMENT.allow_incomplete:
        return GRID
    runs = [run for run in GRID if is_complete(Path(FOLDER) / run.path, RUN_FILES, run.identity)]
    if not runs:
        stop(
            f"allow_incomplete: none of {len(GRID)} runs in {FOLDER} is complete; "
            "allowed with at least one: first call without it, to start them"
        )
    return runs


def runs_left_out():
    """Declared runs that an incomplete report does without."""
    reported = {run.identity for run in RUNS}
    return [run for run in GRID if run.identity not in reported]


def missing_text(runs):
    """One line per missing run: which, why, and where its log is."""
    folder = Path(FOLDER)
    return describe_missing(missing_runs(folder, runs, GRID), folder)


def announce_left_out():
    """Say once which runs an incomplete report leaves out."""
    if LEFT_OUT and workflow.is_main_process:
        print(
            f"allow_incomplete: the report is made of {len(RUNS)} complete runs, none is started; "
            f"left out:\n{missing_text(LEFT_OUT)}",
            file=sys.stderr,
        )


def announce_other_code():
    """Say once which runs are there by another version of a user's file."""
    if EXPERIMENT.modules and workflow.is_main_process:
        words = made_by_other_code(Path(FOLDER), [*GRID, *starting_runs()])
        if words:
            print(f"warning: {words}", file=sys.stderr)


def announce_unfinished():
    """After a failure: which runs this call wanted and did not get."""
    jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
    wanted = {job.wildcards.identity for job in jobs}
    unfinished = [run for run in RUNS if run.identity in wanted]
    if unfinished and workflow.is_main_process:
        print(
            f"{len(unfinished)} of {len(RUNS)} runs are missing, so there is no report:\n"
            f"{missing_text(unfinished)}\n"
            "The same call goes on, each from its last checkpoint where it has one; "
            "`--config allow_incomplete=true` reports on the rest.",
            file=sys.stderr,
        )


def reference_manifest():
    """Manifest of the tables of the committed reference results."""
    try:
        return read_combined_manifest(Path(REFERENCE) / "tables")
    except InputError as error:
        stop_without_reference(error)


def stop_without_reference(error):
    """Say how to get whole reference tables, before a job could remove what was made of them."""
    how = advice(Path(REFERENCE) / "tables") or "`snakemake adopt` makes the reference results"
    stop(f"{error}; {how}")


def reference_figures(wildcards):
    """Files of the target `figures`; the tables behind them are checked first."""
    from analysis.tables import store

    try:
        manifest = store.load(Path(REFERENCE) / "tables").manifest
    except InputError as error:
        stop_without_reference(error)
    runs = list(map(run_of, manifest["runs"]))
    return [*statistics_in(REFERENCE), *figures_in(REFERENCE, runs, manifest["experiment"])]


def declared(folder):
    """Configuration behind a results folder: the present one, or that of the reference."""
    if folder == REFERENCE:
        return reference_manifest()["experiment"]
    return EXPERIMENT.model_dump(mode="json")


def facts(wildcards):
    """What the captions say about intervals."""
    return caption_facts(declared(wildcards.folder))


def study_of(wildcards):
    """Tables of the reference study, which says how often a smaller experiment is right."""
    if wildcards.folder == REFERENCE:
        return []
    files = tables_in(REFERENCE)
    return files if all(Path(path).is_file() for path in files) else []


def numbers_of_seeds(folder, planned, experiment):
    """How much the tables of a results folder rest on, for the captions.

    From the tables that are there, so that a report never claims more than it shows; from the
    `planned` runs of the experiment where there are none yet.
    """
    try:
        manifest = read_combined_manifest(Path(folder) / "tables")
    except InputError:
        return numbers(planned, 0, experiment)
    runs, missing = list(map(run_of, manifest["runs"])), manifest.get("missing", [])
    return numbers(runs, len(missing), manifest["experiment"])


def starting_runs():
    """The runs that others start from."""
    return [start.run for start in STARTS.values()]


def run_with(identity):
    """The run of this identity: of the grid, or one that runs of the grid start from."""
    return BY_IDENTITY[identity]


def in_words(variant):
    """A variant as it stands behind the name of its sampler."""
    if variant == BEGINNING:
        return ", the beginning of others,"
    return f", variant {variant}," if EXPERIMENT.variants else ""


def planned_start(identity):
    """What a run starts from; None where it is trained whole.

    A run that is there, as one from committed tables, needs no beginning that is not.
    """
    start, folder = STARTS.get(identity), Path(FOLDER)
    if start is None:
        return None
    there = is_complete(folder / run_with(identity).path, RUN_FILES, identity)
    begun = is_complete(folder / start.run.path, RUN_FILES, start.run.identity)
    return start if begun or not there else None


def start_files(wildcards):
    """Input of a run that starts from another one: that one's manifest, its last file."""
    start = planned_start(wildcards.identity)
    return [] if start is None else [f"{FOLDER}/{start.run.path}/manifest.json"]


def files_of_smollm2():
    """Files of the model that this workflow makes, the weights first."""
    folder = (made_folder() / SMOLLM2).as_posix()
    if re.search("[{}<>]", folder):
        stop(f"{MADE_IN}: {folder!r} is not allowed: Snakemake takes no braces and no < or > there")
    names = (WEIGHTS, "config.json", "tokenizer.json", "tokenizer_config.json")
    return [f"{folder}/{name}" for name in (*names, "build.json", "README.md")]


def made_backbone(wildcards):
    """Weights of a model that this workflow makes, which come last of its files; else nothing."""
    if run_with(wildcards.identity).config.backbone.model != SMOLLM2:
        return []
    return [(made_folder() / SMOLLM2 / WEIGHTS).as_posix()]


def start_arguments(wildcards):
    """Words of the train command that say where a run starts."""
    start = planned_start(wildcards.identity)
    return [] if start is None else ["--start", f"{FOLDER}/{start.path}"]


def train_arguments(wildcards, output):
    """Words of the train command that say what the run is.

    Keys that the experiment gives, `--set section.key=value` with the value in JSON; the trainer
    refuses if they make another run than the identity says.
    """
    run = run_with(wildcards.identity)
    named = ("sampler", "goal_space", "seed")
    words = [w for key in named for w in (f"--{key.replace('_', '-')}", str(getattr(run, key)))]
    words += ["--preset", EXPERIMENT.preset, "--identity", run.identity]
    words += [word for path in EXPERIMENT.modules for word in ("--module", path)]
    # A run of the default world is called as before there were others: Snakemake compares calls.
    words += ["--world", EXPERIMENT.world] if EXPERIMENT.world != DEFAULT_WORLD else []
    words += ["--log", EXPERIMENT.log] if EXPERIMENT.log != "none" else []
    resolved = flat_keys(run.config.model_dump(mode="json"))
    if run.variant == BEGINNING:
        given = own_keys(run)
    else:
        given = given_keys(config, run.variant)
    return words + [w for key in given for w in ("--set", f"{key}={json.dumps(resolved[key])}")]


def own_keys(run):
    """Flat keys of a run that its name and its preset do not give it."""
    named = {"sampler": run.sampler, "goal_space": run.goal_space, "seed": run.seed}
    plain = resolve_run(EXPERIMENT.preset, [EXPERIMENT.common, named])
    plain = flat_keys(plain.model_dump(mode="json"))
    found = flat_keys(run.config.model_dump(mode="json"))
    return [key for key, value in found.items() if value != plain[key]]


def memory_mb():
    """Memory that a run asks for at first, of the run that needs most."""
    numbers = {model: parameters(model) for model in models_of(EXPERIMENT)}
    return max(host_memory_mb(run.config, numbers[run.config.backbone.model]) for run in GRID)


def parameters(model):
    """Numbers in a model's weights; 0 for one that is yet to come."""
    return 0 if is_of_the_hub(model) else number_of_parameters(model)
