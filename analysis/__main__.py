"""Command line of the analysis: `python -m analysis --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.statistics.registry import FIGURES, statistics_of
from analysis.tables import coverage, printing, store
from analysis.tables.manifests import MANIFEST, GridManifest
from analysis.tables.results import SPLITS, Results
from magellan.config import load_experiment
from magellan.config.modules import load_modules
from magellan.core.arguments import Commands, Option, option, output, path, several
from magellan.core.errors import InputError, StorageError, printable
from magellan.core.parsing import parse_json
from magellan.core.registry import is_built_in
from magellan.core.settings import validated

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Arguments = argparse.Namespace

command = Commands("python -m analysis", str(__doc__))
TABLES = path("tables", help="folder of combined tables")
FOLDER = path("folder", help="results folder of an experiment, or a folder of combined tables")
STEM = output("--stem", required=True, help="path without .png and .pdf")
MODULES = several(
    "--module",
    metavar="FILE",
    help="Python file with your own statistics or figures; it is executed; may be repeated",
)
FORMAT = option(
    "--format",
    choices=tuple(printing.FORMATS),
    default="markdown",
    help="format of the printed tables",
)


def against(default: str) -> Option:
    """The option that names the reference of errors."""
    text = "reference of the errors: observed (success), known (the competence of the simulated "
    text += f"learner), or an estimator of every run, on training goals (default: {default})"
    return option("--against", metavar="NAME", help=text)


def _print(arguments: Arguments, tables: Iterable[printing.Table], note: str = "") -> None:
    """Print tables in the format of `--format`."""
    print(printing.render(tables, arguments.format, note), end="")


def _save(stem: Path, draw: Callable[..., Figure], *values: Any) -> None:
    from analysis.figures import style

    for saved in style.save(style.draw_frozen(draw, *values), stem):
        print(saved)


def _load_folder(folder: Path, names: Sequence[str]) -> tuple[Results, dict[str, pd.DataFrame]]:
    """Tables and statistics of a folder; statistics are computed if it has none."""
    from analysis.statistics import summaries

    tables_only = (folder / MANIFEST).exists() and not (folder / "tables").is_dir()
    results = store.load(folder if tables_only else folder / "tables")
    if tables_only or not (folder / "statistics").is_dir():
        return results, summaries.compute(results, names)
    return results, summaries.load(folder / "statistics", names, results)


# --- tables ---------------------------------------------------------------------------------------


@command(
    path("runs", nargs="+", help="folders of runs"),
    option("--experiment", required=True, help="configuration of the grid, as JSON"),
    path("--output", required=True, help="folder of the combined tables"),
    path(
        "--allow-incomplete",
        metavar="RESULTS",
        help="allow missing runs; the results folder (with runs/, logs/) in which to look for the "
        "reasons (default: all runs must be there)",
    ),
)
def _combine(arguments: Arguments) -> None:
    """Stack the tables of finished runs."""
    experiment = parse_json(arguments.experiment, "--experiment:")
    validated(GridManifest, experiment, "--experiment: ")
    try:
        load_experiment(experiment)
    except InputError as error:
        raise InputError(f"--experiment: {error}") from None
    results = store.combine(arguments.runs, experiment, arguments.allow_incomplete)
    store.write(results, arguments.output)
    print(f"{len(arguments.runs)} runs combined in {arguments.output}")
    for note in results.manifest.get("notes", ()):
        print(f"not alike: {printable(note)}")
    if results.manifest["missing"]:
        print(f"{coverage.sentence(results.manifest)}; missing:")
        print(coverage.describe_missing(results.manifest["missing"], arguments.allow_incomplete))


@command(TABLES, path("target", help="results folder of the experiment (required)"))
def _unpack(arguments: Arguments) -> None:
    """Write the runs of combined tables as run folders, to continue from them."""
    written, existing = store.unpack(arguments.tables, arguments.target)
    print(f"{written} runs written to {arguments.target}, {existing} were there")


@command(
    TABLES,
    path("others", nargs="*", help="folders that hold these runs (default: none, all are written)"),
)
def _share(arguments: Arguments) -> None:
    """Leave runs of combined tables to folders beside them that have the same runs."""
    shared = store.share(arguments.tables, arguments.others)
    print(f"{shared} runs left to {len(arguments.others)} folders beside {arguments.tables}")


@command(
    TABLES,
    path("output", help="folder of the statistics"),
    option(
        "--only",
        action="append",
        metavar="NAME",
        help="compute only this one; may be repeated (default: all of them)",
    ),
    MODULES,
)
def _statistics(arguments: Arguments) -> None:
    """Compute the statistics."""
    from analysis.statistics import summaries

    load_modules(arguments.module)
    frames = summaries.compute(store.load(arguments.tables), arguments.only)
    summaries.write(frames, arguments.output)
    print(f"{len(frames)} tables of statistics in {arguments.output}")


# --- figures and pages ----------------------------------------------------------------------------


@command(
    option("name", help="its name, such as success_by_category"),
    path("--tables", required=True, help="folder of combined tables"),
    path("--statistics", required=True, help="folder of the statistics"),
    option("--goal-space", required=True, help="a goal space of the tables"),
    STEM,
    MODULES,
)
def _figure(arguments: Arguments) -> None:
    """Draw one figure as PNG and PDF."""
    from analysis import figures
    from analysis.figures import style
    from analysis.statistics import summaries

    load_modules(arguments.module)
    names = statistics_of(FIGURES.find(arguments.name))
    results = store.load(arguments.tables)
    statistics = summaries.load(arguments.statistics, names, results)
    figure = figures.draw(arguments.name, results, statistics, arguments.goal_space)
    for saved in style.save(figure, arguments.stem, tight=not is_built_in(FIGURES[arguments.name])):
        print(saved)


@command(
    path("folder", help="folder with tables and pictures below it"),
    option(
        "--check",
        action="store_true",
        help="write nothing, and fail if a picture is not what this code draws (default: no)",
    ),
)
def _pictures(arguments: Arguments) -> None:
    """Redraw the pictures beside committed tables."""
    from analysis.report import pictures

    stale = []
    for picture in pictures.pictures_in(arguments.folder):
        if not arguments.check:
            pictures.redraw(picture)
            print(picture)
        elif not pictures.is_up_to_date(picture):
            stale.append(str(picture))
    if stale:
        raise InputError(
            f"{', '.join(stale)}: not what this code draws; first: python -m analysis pictures "
            f"{arguments.folder}"
        )


@command(FOLDER, FORMAT)
def _summary(arguments: Arguments) -> None:
    """Print the main numbers of an experiment."""
    from analysis.report import summary

    results, statistics = _load_folder(arguments.folder, summary.STATISTICS)
    _print(arguments, summary.tables(results, statistics), summary.note(results))


@command(FOLDER, output("html", help="HTML file to write, with a JSON file beside it"), MODULES)
def _page(arguments: Arguments) -> None:
    """Write the summary page: the finding, figures and numbers."""
    from analysis.report import summary, summary_page

    if arguments.html.suffix == ".json":
        raise InputError(f"html: {arguments.html} is not allowed: the JSON has that name")
    load_modules(arguments.module)
    results, statistics = _load_folder(arguments.folder, summary.STATISTICS)
    summary_page.write(results, statistics, arguments.folder / "figures", arguments.html)


# --- comparisons ----------------------------------------------------------------------------------


@command(
    TABLES,
    option(
        "contrasts",
        nargs="+",
        metavar="CONTRAST",
        help='such as "magellan - random", with p corrected over all that are given; a term is '
        "SAMPLER, SAMPLER/VARIANT (default: the variant of the reference), and with --of error "
        "or collapse SAMPLER:ESTIMATOR; with @GOAL-SPACE in one of them (default: in each)",
    ),
    option(
        "--of",
        choices=("success", "equal", "error", "gain", "collapse"),
        default="success",
        help="success over training, the same until the fewest episodes of any run (steps, if "
        "episodes end the runs), error of the predicted competence, success at the end minus at "
        "the start, or learning progress at a category's first collapse minus its largest "
        "before (default: success)",
    ),
    against("observed"),
    FORMAT,
)
def _compare(arguments: Arguments) -> None:
    """Compare algorithms of an experiment, paired by seed."""
    from analysis.statistics import contrasts
    from analysis.studies import estimation

    truth = arguments.against or estimation.OBSERVED
    terms = [term for text in arguments.contrasts for term in contrasts.parse(text)]
    if arguments.of != "error" and arguments.against:
        raise InputError("compare: --against is allowed with --of error")
    if arguments.of not in ("error", "collapse") and any(term.estimator for term in terms):
        raise InputError("compare: :ESTIMATOR is allowed with --of error and --of collapse")
    results = store.load(arguments.tables)
    if truth in {t.estimator or results.driver_of(t.algorithm(results)) for t in terms}:
        raise InputError(f"--against: {truth!r} is compared; allowed: one that is not")
    results = estimation.with_truth(results, truth)
    observed = truth in (estimation.OBSERVED, estimation.KNOWN)
    splits = SPLITS if observed else ("train",)  # estimators measure no unseen goals
    truth = "" if truth == estimation.OBSERVED else truth
    _print(arguments, contrasts.tables(results, arguments.contrasts, arguments.of, splits, truth))


# --- studies --------------------------------------------------------------------------------------


@command(TABLES, FORMAT)
def _behaviour(arguments: Arguments) -> None:
    """Print practice, predictions and their lag, by sampler."""
    from analysis.studies import behaviour

    _print(arguments, behaviour.tables(store.load(arguments.tables)))


@command(
    TABLES,
    against("evaluated_buckets if all runs have it, else observed"),
    option(
        "--split",
        choices=("train", "unseen"),
        default="train",
        help="training goals, or unseen ones, only against observed success",
    ),
    output("--stem", help="draw it too: path without .png and .pdf (default: no)"),
    FORMAT,
)
def _estimation(arguments: Arguments) -> None:
    """Print the error of every estimator, and the episodes played to estimate."""
    from analysis.figures.estimation import draw
    from analysis.studies import estimation

    results = store.load(arguments.tables)
    truth = estimation.choose_truth(results, arguments.against, arguments.split)
    frame = estimation.table(results, truth, arguments.split)
    _print(arguments, estimation.tables(results, frame))
    if arguments.stem is not None:
        _save(arguments.stem, draw, results, frame)


@command(
    path("folder", help="output folder of python -m magellan embed (required)"),
    option(
        "--by",
        choices=("category", "kind"),
        default="category",
        help="colour by category, or by finer kind, such as the reason why a goal is impossible ",
    ),
    STEM,
)
def _embeddings(arguments: Arguments) -> None:
    """Draw an estimator's hidden states of goals."""
    from analysis.figures.embeddings import draw, load

    _save(arguments.stem, draw, load(arguments.folder), arguments.by)


@command(path("table", help="CSV file of python -m magellan axes"), FORMAT)
def _axes(arguments: Arguments) -> None:
    """Print where each sampler breaks on a simulated learner."""
    from analysis.studies import axes

    _print(arguments, axes.tables(axes.load(arguments.table)))


@command(
    path(
        "--claims", help="file of claims and their criteria (default: analysis/report/claims.yaml)"
    ),
    path(
        "--reference",
        default=Path("results/reference"),
        help="folder with a folder of tables for each study",
    ),
    FORMAT,
)
def _claims(arguments: Arguments) -> None:
    """Print claims of the paper and of others, each with its verdict."""
    from analysis.report import claims

    loaded = claims.load(arguments.claims or claims.DEFAULT)
    _print(arguments, claims.to_tables(loaded, claims.judge(loaded, arguments.reference)))


@command(
    path(
        "--reference",
        default=Path("results/reference"),
        help="folder with the tables, where leaderboard.csv is written",
    ),
    path(
        "--page",
        default=Path("docs/leaderboard.md"),
        help="page with the block `leaderboard`",
    ),
)
def _leaderboard(arguments: Arguments) -> None:
    """Write the leaderboard from committed tables: a block of a page, a CSV and a picture."""
    from analysis.report import leaderboard, pictures

    rows, numbers = leaderboard.rows(arguments.reference), arguments.reference / "leaderboard.csv"
    leaderboard.write(rows, arguments.page, numbers)
    pictures.redraw(numbers.with_suffix(".png"))
    print(f"{len(rows)} rows in {arguments.page} and {numbers}")


# --- the program ----------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run one command; exit status 2 and one line on standard error for bad input."""
    try:
        return command.run(argv)
    except (InputError, StorageError) as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
    except OSError as error:  # files are written with StorageErrors
        where = error.filename or "standard output: cannot be written"
        print(f"error: {printable(str(where))} ({error.strerror or error})", file=sys.stderr)
    return 2


if __name__ == "__main__":
    # Figures are files. A notebook tells its processes a backend that may be absent here.
    os.environ["MPLBACKEND"] = "agg"
    sys.exit(main())
