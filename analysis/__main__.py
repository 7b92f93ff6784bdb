"""Command line of the analysis: `python -m analysis --help`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.statistics.registry import FIGURES, statistics_of
from analysis.tables import coverage, printing, store
from analysis.tables.manifests import MANIFEST, GridManifest, advised, read_combined_manifest
from analysis.tables.results import SPLITS, Results
from magellan.config import load_experiment
from magellan.config.modules import load_modules
from magellan.core.arguments import ArgumentParser, file_path
from magellan.core.errors import InputError, StorageError, printable, shown
from magellan.core.parsing import parse_json
from magellan.core.registry import is_built_in
from magellan.core.settings import validated

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OUTPUTS = ("output", "page", "html", "stem", "target")
Arguments = argparse.Namespace
Function = Callable[[Arguments], None]
Option = tuple[tuple[str, ...], dict[str, Any]]

COMMANDS: dict[str, tuple[str, Sequence[Option], Function]] = {}
"""Help, arguments and function of each command, by name."""


def option(*names: str, **settings: Any) -> Option:
    """An argument of a command, as `add_argument` takes it."""
    return names, settings


def path(*names: str, **settings: Any) -> Option:
    """An argument that is a file or a folder."""
    return names, {"type": file_path, **settings}


def command(name: str, text: str, *options: Option) -> Callable[[Function], Function]:
    """Decorator of the function of a command."""

    def add(function: Function) -> Function:
        COMMANDS[name] = text, options, function
        return function

    return add


TABLES = path("tables", help="folder of combined tables")
TABLES_OPTION = path("--tables", required=True, help="folder of combined tables (required)")
STATISTICS_OPTION = path("--statistics", required=True, help="folder of the statistics (required)")
FOLDER = path("folder", help="results folder of an experiment, or a folder of combined tables")
STEM = path("--stem", required=True, help="path without .png and .pdf (required)")
OWN_STEM = path("--stem", help="draw it too: path without .png and .pdf (default: no)")
STUDY = path(
    "--study",
    help="combined tables of a larger study, which says how often an experiment of this size has "
    "its order (default: none)",
)
MODULES = option(
    "--module",
    action="append",
    default=[],
    metavar="FILE",
    help="Python file with statistics or figures of your own, which is run; may be repeated "
    "(default: none)",
)
FORMAT = option(
    "--format",
    choices=tuple(printing.FORMATS),
    default="markdown",
    help="of the printed tables (default: %(default)s)",
)


def several(name: str, text: str) -> Option:
    """An option with names of what is compared."""
    return option(name, nargs="+", metavar="NAME", help=f"{text} (default: none)")


def _print(arguments: Arguments, found: Iterable[printing.Table], note: str = "") -> None:
    """Print tables in the form that was asked for."""
    print(printing.printed(found, arguments.format, note), end="")


def _save(stem: Path | None, draw: Callable[..., Figure], *values: Any) -> None:
    """Draw and write a figure, where a path is given for it."""
    from analysis.figures import style

    if stem is not None:
        for path in style.save(style.settled(draw, *values), stem):
            print(path)


def _of_folder(folder: Path, names: Sequence[str]) -> tuple[Results, dict[str, pd.DataFrame]]:
    """Tables and these statistics of a results folder; computed where it has no statistics.

    Args:
        folder: with `tables` and `statistics` inside, or of combined tables.
        names: of the statistics.
    """
    from analysis.statistics import summaries

    alone = (folder / MANIFEST).exists() and not (folder / "tables").is_dir()
    results = store.load(folder if alone else folder / "tables")
    if alone or not (folder / "statistics").is_dir():
        return results, summaries.compute(results, names)
    return results, summaries.load(folder / "statistics", names, results)


# --- tables ---------------------------------------------------------------------------------------


@command(
    "combine",
    "stack the tables of finished runs",
    path("runs", nargs="+", help="folders of runs"),
    option("--experiment", required=True, help="configuration of the grid, as JSON (required)"),
    path("--output", required=True, help="folder of the combined tables (required)"),
    path(
        "--allow-incomplete",
        metavar="RESULTS",
        help="runs may be missing; the results folder (with runs/, logs/) that says why "
        "(default: none may)",
    ),
)
def _combine(arguments: Arguments) -> None:
    experiment = parse_json(arguments.experiment, "--experiment:")
    validated(GridManifest, experiment, "--experiment: ")
    try:
        load_experiment(experiment, models=False)
    except InputError as error:
        raise InputError(f"--experiment: {error}") from None
    results = store.combine(arguments.runs, experiment, arguments.allow_incomplete)
    store.write(results, arguments.output)
    print(f"{len(arguments.runs)} runs combined in {arguments.output}")
    _print_notes(results)
    if results.manifest["missing"]:
        print(f"{coverage.sentence(results.manifest)}; missing:")
        print(coverage.describe_missing(results.manifest["missing"], arguments.allow_incomplete))


def _print_notes(results: Results) -> None:
    for note in results.manifest.get("notes", ()):
        print(f"not alike: {printable(note)}")


@command(
    "unpack",
    "write the runs of combined tables as finished runs, to go on from them",
    TABLES,
    path("target", help="results folder of the experiment (required)"),
)
def _unpack(arguments: Arguments) -> None:
    written, there = store.unpack(arguments.tables, arguments.target)
    print(f"{written} runs written to {arguments.target}, {there} were there")


@command(
    "adopt",
    "make an experiment's tables the reference",
    path("source", help="results folder with tables/ (required)"),
    path("target", help="results folder to write in (required)"),
)
def _adopt(arguments: Arguments) -> None:
    store.adopt(arguments.source, arguments.target)
    print(f"tables of {arguments.source} copied to {arguments.target}; now run: snakemake figures")


@command(
    "statistics",
    "compute the statistics",
    TABLES,
    path("output", help="folder of the statistics"),
    option(
        "--only",
        action="append",
        metavar="NAME",
        help="compute this one; may be repeated (default: all of them)",
    ),
    MODULES,
)
def _statistics(arguments: Arguments) -> None:
    from analysis.statistics import summaries

    load_modules(arguments.module)
    frames = summaries.compute(store.load(arguments.tables), arguments.only)
    summaries.write(frames, arguments.output)
    print(f"{len(frames)} tables of statistics in {arguments.output}")


# --- figures and pages ----------------------------------------------------------------------------


@command(
    "figure",
    "draw one figure as PNG and PDF",
    option("name", help="its name, for instance success_by_category"),
    TABLES_OPTION,
    STATISTICS_OPTION,
    option("--goal-space", required=True, help="one of the tables (required)"),
    STEM,
    MODULES,
)
def _figure(arguments: Arguments) -> None:
    from analysis import figures
    from analysis.figures import style
    from analysis.statistics import summaries

    load_modules(arguments.module)
    names = statistics_of(FIGURES.find(arguments.name))
    results = store.load(arguments.tables)
    statistics = summaries.load(arguments.statistics, names, results)
    figure = figures.draw(arguments.name, results, statistics, arguments.goal_space)
    own = not is_built_in(FIGURES[arguments.name])
    for path in style.save(figure, arguments.stem, tight=own):
        print(path)


@command(
    "pictures",
    "redraw the pictures beside committed tables",
    path("folder", help="with tables and pictures below it"),
    option(
        "--check",
        action="store_true",
        help="write nothing, and fail where a picture is not what this code draws (default: no)",
    ),
)
def _pictures(arguments: Arguments) -> None:
    from analysis.report import pictures

    stale = []
    for picture in pictures.pictures_in(arguments.folder):
        if not arguments.check:
            picture.redraw()
            print(picture.path)
        elif not picture.is_up_to_date():
            stale.append(str(picture.path))
    if stale:
        raise InputError(
            f"{', '.join(stale)}: not what this code draws; first: python -m analysis pictures "
            f"{arguments.folder}"
        )


@command(
    "summary",
    "print the main numbers of an experiment, or write them as a page",
    FOLDER,
    STUDY,
    path("--html", help="write those of one goal space to this HTML file instead (default: no)"),
    option("--goal-space", help="of the page (default: the first one)"),
    FORMAT,
)
def _summary(arguments: Arguments) -> None:
    from analysis.report import summary

    results, statistics = _of_folder(arguments.folder, summary.STATISTICS)
    study = None if arguments.study is None else store.load(arguments.study)
    if arguments.html is None:
        _print(arguments, summary.tables(results, statistics, study), summary.note(results))
        return
    goal_space = arguments.goal_space or results.goal_spaces[0]
    if goal_space not in results.goal_spaces:
        allowed = ", ".join(results.goal_spaces)
        raise InputError(f"--goal-space: {goal_space!r} is not in the tables; allowed: {allowed}")
    printing.write(summary.to_html(results, statistics, goal_space, study), arguments.html)


@command(
    "page",
    "write a page: what was found, with its figures",
    FOLDER,
    path("html", help="HTML file to write, and a JSON file beside it"),
    MODULES,
)
def _page(arguments: Arguments) -> None:
    from analysis.figures import applicable
    from analysis.report import summary_page

    load_modules(arguments.module)
    results, statistics = _of_folder(arguments.folder, summary_page.STATISTICS)
    shown = [
        (goal_space, FIGURES[name])
        for goal_space in results.goal_spaces
        for name in applicable(results.algorithms_in(goal_space), results.experiment)
    ]
    folder = arguments.folder / "figures"
    summary_page.write(results, statistics, shown, folder, arguments.html)


@command(
    "coverage",
    "write a page: which runs of the grid are there, their time, memory and restarts",
    TABLES,
    path("page", help="HTML file to write"),
)
def _coverage(arguments: Arguments) -> None:
    with advised(arguments.tables):
        manifest = read_combined_manifest(arguments.tables)
    printing.write(coverage.to_html(manifest), arguments.page)


# --- comparisons ----------------------------------------------------------------------------------


@command(
    "compare",
    "variants, samplers or estimators of an experiment, by seed",
    TABLES,
    several("--variants", "variants the first with each other one"),
    several(
        "--samplers",
        "samplers the first with each other one; with --variants: is its "
        "lead the same in the first variant and in each other one?",
    ),
    several(
        "--estimators",
        "errors of estimators in the same runs the first with each other one",
    ),
    option(
        "--known-competence",
        action="store_true",
        help="errors against what the simulated learner could do, instead of what evaluation "
        "observed; with --estimators (default: against what was observed)",
    ),
    option(
        "--against",
        metavar="NAME",
        help="errors on training goals against what this estimator says; with --estimators "
        "(default: against what was observed)",
    ),
    option(
        "--of",
        choices=("success", "error"),
        default="success",
        help="success over training, or the error of the predicted competence (default: success)",
    ),
    FORMAT,
)
def _compare(arguments: Arguments) -> None:
    from analysis.statistics import comparison

    _check_compare(arguments)
    first, of, against = _against(arguments), arguments.of, arguments.against
    if arguments.estimators:
        pairs, of = comparison.pairs_of_estimators(first, arguments.estimators), "error"
    elif arguments.samplers and arguments.variants:
        names = arguments.samplers, arguments.variants
        pairs = comparison.pairs_of_interactions(first, *names)
    elif arguments.samplers:
        pairs = comparison.pairs_of_samplers(first, arguments.samplers)
    else:
        pairs = comparison.pairs_of_variants(first, arguments.variants)
    measured = against in (None, "observed")
    splits = SPLITS if measured else ("train",)  # nobody has measured unseen goals
    _print(arguments, comparison.tables(pairs, of, splits, "" if measured else against))


def _check_compare(arguments: Arguments) -> None:
    """Refuse options that do not go together."""
    for name in ("known_competence", "against"):
        if getattr(arguments, name) and not arguments.estimators:
            raise InputError(f"--{name.replace('_', '-')}: allowed: with --estimators")
    if arguments.known_competence and arguments.against:
        raise InputError("--against: not allowed with --known-competence; allowed: one of the two")
    interaction = bool(arguments.samplers and arguments.variants)
    given = (arguments.variants, arguments.samplers, arguments.estimators)
    if sum(value is not None for value in given) != 1 + interaction:
        raise InputError(
            "compare: allowed: --variants A B, --samplers A B (or both) or --estimators A B"
        )
    if interaction and arguments.of != "success":
        raise InputError("--of: error is not for --samplers with --variants; allowed: success")
    if arguments.against and arguments.against in arguments.estimators:
        raise InputError(
            f"--against: {arguments.against!r} is one of --estimators; allowed: one that is not "
            "compared"
        )


def _against(arguments: Arguments) -> Results:
    """The first tables, with what errors are against as observed success."""
    from analysis.studies import estimation

    first = store.load(arguments.tables)
    if arguments.known_competence:
        return estimation.with_known_competence(first)
    if arguments.against not in (None, estimation.OBSERVED):
        return estimation.with_truth(first, arguments.against)
    return first


def _fraction(text: str) -> float:
    """A number between 0 and 1, without them."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not allowed; allowed: numbers between 0 and 1"
        )
    return value


@command(
    "power",
    "print how many seeds an experiment needs",
    TABLES,
    option(
        "--difference",
        type=_fraction,
        default=0.1,
        help="of mean success over training, to be found (default: 0.1)",
    ),
    option("--power", type=_fraction, default=0.8, help="chance to find it (default: 0.8)"),
    FORMAT,
)
def _power(arguments: Arguments) -> None:
    from analysis.statistics import power

    results = store.load(arguments.tables)
    _print(arguments, power.tables(results, arguments.difference, arguments.power))


# --- studies --------------------------------------------------------------------------------------


def _study(name: str, text: str) -> None:
    """A command that prints the tables of the module of studies with its name."""

    @command(name, text, TABLES, FORMAT)
    def run(arguments: Arguments) -> None:
        module = importlib.import_module(f"analysis.studies.{name}")
        _print(arguments, module.tables(store.load(arguments.tables)))


_study("halves", "the comparison in both halves of the seeds: what may be claimed")
_study("behaviour", "what samplers practised, what their estimators believed, and how late")
_study("gain", "success at the end minus at the start: do agents learn at all")


@command(
    "estimation",
    "error of every estimator, and the episodes that it had played to know",
    TABLES,
    option(
        "--against",
        metavar="NAME",
        help="what errors are against: observed, or an estimator of every run (default: "
        "evaluated_buckets where all runs have it, else observed)",
    ),
    option(
        "--split",
        choices=("train", "unseen"),
        default="train",
        help="goals of training, or unseen ones, of which only evaluation knows the truth "
        "(default: %(default)s)",
    ),
    OWN_STEM,
    FORMAT,
)
def _estimation(arguments: Arguments) -> None:
    from analysis.figures.estimation import draw
    from analysis.studies import estimation

    results = store.load(arguments.tables)
    truth = estimation.chosen_truth(results, arguments.against, arguments.split)
    frame = estimation.table(results, truth, arguments.split)
    changes = estimation.growth(results, truth, arguments.split)
    found = estimation.tables(frame, results.categories, results.names)
    _print(arguments, [*found, *estimation.growth_tables(changes, results.names)])
    _save(arguments.stem, draw, results, frame)


@command(
    "cost",
    "episodes of a category until it is mastered, in runs of the sampler scripted",
    TABLES,
    OWN_STEM,
    FORMAT,
)
def _cost(arguments: Arguments) -> None:
    from analysis.figures.cost import draw
    from analysis.studies import cost

    results = store.load(arguments.tables)
    frame = cost.costs(results)
    _print(arguments, [cost.table(frame)])
    _save(arguments.stem, draw, results, frame)


@command(
    "embeddings",
    "draw how an estimator reads goals, and say how well it tells them apart",
    path("folder", help="what python -m magellan embed has written (required)"),
    option(
        "--by",
        choices=("category", "kind"),
        default="category",
        help="what colours tell: categories, or finer kinds, such as why a goal is impossible "
        "(default: %(default)s)",
    ),
    STEM,
    FORMAT,
)
def _embeddings(arguments: Arguments) -> None:
    from analysis.figures.embeddings import draw
    from analysis.studies import embeddings

    found = embeddings.load(arguments.folder)
    _print(arguments, [embeddings.table(found)])
    _save(arguments.stem, draw, found, arguments.by)


@command(
    "recording",
    "check a recording; what its rule draws beside what was practised",
    path("folder", help="of a run with budget.record_predictions (required)"),
    FORMAT,
)
def _recording(arguments: Arguments) -> None:
    from analysis.studies import recording

    found = recording.load(arguments.folder)
    _print(arguments, [recording.table(found)], recording.described(found))


@command(
    "axes",
    "where each sampler breaks, on a simulated learner",
    path("table", help="what python -m magellan axes has written"),
    FORMAT,
)
def _axes(arguments: Arguments) -> None:
    from analysis.studies import axes

    _print(arguments, axes.tables(axes.load(arguments.table)))


@command(
    "claims",
    "claims of the paper and of others, each with its verdict",
    path("--claims", help="file of claims and their rules (default: analysis/report/claims.yaml)"),
    path(
        "--reference",
        default=Path("results/reference"),
        help="folder with a folder of tables for each study (default: %(default)s)",
    ),
    FORMAT,
)
def _claims(arguments: Arguments) -> None:
    from analysis.report import claims

    listed = claims.load(arguments.claims or claims.DEFAULT)
    _print(arguments, claims.to_tables(listed, claims.judge(listed, arguments.reference)))


@command(
    "leaderboard",
    "write the leaderboard from committed tables: a block of a page, and a CSV",
    path(
        "--reference",
        default=Path("results/reference"),
        help="folder with the tables, where leaderboard.csv is written (default: %(default)s)",
    ),
    path(
        "--page",
        default=Path("docs/leaderboard.md"),
        help="page whose block `leaderboard` is written (default: %(default)s)",
    ),
)
def _leaderboard(arguments: Arguments) -> None:
    from analysis.report import leaderboard

    found = leaderboard.rows(arguments.reference)
    leaderboard.write(found, arguments.page, arguments.reference / "leaderboard.csv")
    print(f"{len(found)} rows in {arguments.page} and {arguments.reference / 'leaderboard.csv'}")


# --- the program ----------------------------------------------------------------------------------


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m analysis", description=__doc__)
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (text, options, function) in COMMANDS.items():
        added = parsers.add_parser(name, help=text)
        added.set_defaults(run=function)
        for names, settings in options:
            added.add_argument(*names, **settings)
    return parser


def _output(arguments: Arguments | None) -> str:
    """What a command writes to, for an error that does not say it."""
    places = [getattr(arguments, name, None) for name in OUTPUTS]
    return str(next((place for place in places if place is not None), "standard output"))


def main(argv: list[str] | None = None) -> int:
    """Run one command; exit status 2 and one line on standard error for bad input."""
    arguments = None
    try:
        arguments = _parser().parse_args(argv)
        arguments.run(arguments)
        sys.stdout.flush()
    except (InputError, StorageError) as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        place, reason = error.filename or _output(arguments), error.strerror or error
        print(f"error: {place}: cannot be written ({reason})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
