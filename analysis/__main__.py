"""Command line of the analysis: `python -m analysis --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.statistics.registry import statistics_of
from analysis.tables import coverage, html, markdown, runs, store
from analysis.tables.git_hint import advised
from analysis.tables.manifests import MANIFEST, GridManifest, read_combined_manifest
from analysis.tables.results import SPLITS
from magellan.config import load_experiment
from magellan.config.modules import load_modules
from magellan.core.arguments import ArgumentParser, file_path, whole_number
from magellan.core.errors import InputError, StorageError, printable, shown
from magellan.core.parsing import parse_json
from magellan.core.registry import is_built_in
from magellan.core.settings import validated

if TYPE_CHECKING:
    import pandas as pd

    from analysis.tables.results import Results

    Commands = argparse._SubParsersAction[ArgumentParser]

MOST_SEEDS = 1_000
TABLES_HELP = "folder of combined tables (required)"
AGAINST_HELP = (
    "what errors are against: observed, or an estimator of every run (default: evaluated_buckets "
    "where all runs have it, else observed)"
)
STEM_HELP = "draw it too: path without .png and .pdf (default: no)"
STATISTICS_HELP = "folder of the statistics (required)"
FOLDER_HELP = "results folder of an experiment, or a folder of combined tables"
STUDY_HELP = (
    "combined tables of a larger study, which says how often an experiment of this size has its "
    "order (default: none)"
)
PRINTING = (
    *("summary", "compare", "halves", "behaviour", "gain", "power"),
    *("estimation", "cost", "embeddings", "recording", "claims"),
)
"""Commands that print tables."""


def _combine(arguments: argparse.Namespace) -> None:
    experiment = parse_json(arguments.experiment, "--experiment:")
    validated(GridManifest, experiment, "--experiment: ")
    try:
        load_experiment(experiment, models=False)
    except InputError as error:
        raise InputError(f"--experiment: {error}") from None
    results = store.combine(arguments.runs, experiment, arguments.allow_incomplete)
    store.write(results, arguments.output)
    print(f"{len(arguments.runs)} runs combined in {arguments.output}")
    for note in results.manifest["notes"]:
        print(f"not alike: {printable(note)}")
    if results.manifest["missing"]:
        print(f"{coverage.sentence(results.manifest)}; missing:")
        print(coverage.describe_missing(results.manifest["missing"], arguments.allow_incomplete))


def _check(arguments: argparse.Namespace) -> None:
    results = store.load(arguments.tables)
    runs = len(results.manifest["runs"])
    print(f"{arguments.tables}: {runs} comparable runs")
    for note in results.manifest.get("notes", ()):
        print(f"not alike: {printable(note)}")


def _statistics(arguments: argparse.Namespace) -> None:
    from analysis.statistics import summaries

    load_modules(arguments.module)
    frames = summaries.compute(store.load(arguments.tables), arguments.only)
    summaries.write(frames, arguments.output)
    print(f"{len(frames)} tables of statistics in {arguments.output}")


def _figure(arguments: argparse.Namespace) -> None:
    from analysis import figures
    from analysis.figures import style
    from analysis.statistics import summaries

    load_modules(arguments.module)
    names = statistics_of(figures.FIGURES.find(arguments.name))
    results = store.load(arguments.tables)
    statistics = summaries.load(arguments.statistics, names, results)
    figure = figures.draw(arguments.name, results, statistics, arguments.goal_space)
    own = not is_built_in(figures.FIGURES[arguments.name])
    for path in style.save(figure, arguments.stem, tight=own):
        print(path)


def _pictures(arguments: argparse.Namespace) -> None:
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


def _summary(arguments: argparse.Namespace) -> None:
    from analysis.report import summary

    results, statistics = _of_folder(arguments.folder, summary.STATISTICS)
    study = None if arguments.study is None else store.load(arguments.study)
    found = summary.tables(results, statistics, study)
    _print(arguments, found, summary.note(results))


def _page(arguments: argparse.Namespace) -> None:
    from analysis.figures import FIGURES, applicable
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


def _print(arguments: argparse.Namespace, found: Iterable[markdown.Table], note: str = "") -> None:
    """Print tables in the form that was asked for."""
    print(markdown.printed(found, arguments.format, note), end="")


def _numbers(arguments: argparse.Namespace) -> None:
    from analysis.report import summary
    from analysis.statistics import summaries

    results = store.load(arguments.tables)
    statistics = summaries.load(arguments.statistics, results=results)
    study = None if arguments.study is None else store.load(arguments.study)
    goal_space = arguments.goal_space or results.goal_spaces[0]
    if goal_space not in results.goal_spaces:
        allowed = ", ".join(results.goal_spaces)
        raise InputError(f"--goal-space: {goal_space!r} is not in the tables; allowed: {allowed}")
    html.write(summary.to_html(results, statistics, goal_space, study), arguments.html)


def _manifest(folder: Path) -> dict[str, Any]:
    with advised(folder):
        return read_combined_manifest(folder)


def _coverage(arguments: argparse.Namespace) -> None:
    html.write(coverage.to_html(_manifest(arguments.tables)), arguments.page)


def _runs(arguments: argparse.Namespace) -> None:
    html.write(runs.to_html(_manifest(arguments.tables)), arguments.page)


def _compare(arguments: argparse.Namespace) -> None:
    from analysis.statistics import comparison

    for option in ("known_competence", "against"):
        if getattr(arguments, option) and not arguments.estimators:
            raise InputError(f"--{option.replace('_', '-')}: allowed: with --estimators")
    if arguments.known_competence and arguments.against:
        raise InputError("--against: not allowed with --known-competence; allowed: one of the two")
    named = [arguments.variants, arguments.samplers, arguments.estimators]
    given = [arguments.second, *named]
    interaction = bool(arguments.samplers and arguments.variants)
    if sum(each is not None for each in given) != 1 + interaction:
        raise InputError(
            "compare: allowed: two folders of tables, or one and --variants A B, --samplers A B "
            "(or both) or --estimators A B"
        )
    if interaction and arguments.of != "success":
        raise InputError("--of: error is not for --samplers with --variants; allowed: success")
    first = store.load(arguments.first)
    if arguments.known_competence:
        from analysis.studies.ground_truth import with_known_competence

        first = with_known_competence(first)
    against = None if arguments.against == "observed" else arguments.against
    if against:
        from analysis.studies.estimation import with_truth

        if against in arguments.estimators:
            raise InputError(
                f"--against: {against!r} is one of --estimators; allowed: one that is not compared"
            )
        first = with_truth(first, against)
    if arguments.estimators:
        pairs, of = comparison.pairs_of_estimators(first, arguments.estimators), "error"
    elif interaction:
        names = arguments.samplers, arguments.variants
        pairs, of = comparison.pairs_of_interactions(first, *names), arguments.of
    elif arguments.samplers:
        pairs, of = comparison.pairs_of_samplers(first, arguments.samplers), arguments.of
    elif arguments.variants:
        pairs, of = comparison.pairs_of_variants(first, arguments.variants), arguments.of
    else:
        pairs = comparison.pairs_of_experiments(first, store.load(arguments.second))
        of = arguments.of
    splits = ("train",) if against else SPLITS  # nobody has measured unseen goals
    _print(arguments, comparison.tables(pairs, of, splits, against or ""))


def _power(arguments: argparse.Namespace) -> None:
    from analysis.statistics import power

    results = store.load(arguments.tables)
    sizes = tuple(arguments.seeds or power.SIZES)
    _print(arguments, power.tables(results, arguments.difference, arguments.power, sizes))


def _adopt(arguments: argparse.Namespace) -> None:
    store.adopt(arguments.source, arguments.target)
    print(f"tables of {arguments.source} copied to {arguments.target}; now run: snakemake figures")


def _halves(arguments: argparse.Namespace) -> None:
    from analysis.studies import halves

    _print(arguments, halves.tables(store.load(arguments.tables)))


def _behaviour(arguments: argparse.Namespace) -> None:
    from analysis.studies import behaviour

    _print(arguments, behaviour.tables(store.load(arguments.tables)))


def _gain(arguments: argparse.Namespace) -> None:
    from analysis.studies import gain

    _print(arguments, gain.tables(store.load(arguments.tables)))


def _estimation(arguments: argparse.Namespace) -> None:
    from analysis.studies import estimation

    results = store.load(arguments.tables)
    truth = estimation.chosen_truth(results, arguments.against, arguments.split)
    frame = estimation.table(results, truth, arguments.split)
    changes = estimation.growth(results, truth, arguments.split)
    found = estimation.tables(frame, results.categories, results.names)
    _print(arguments, [*found, *estimation.growth_tables(changes, results.names)])
    if arguments.stem is not None:
        from analysis.figures import style
        from analysis.figures.estimation import draw

        for path in style.save(style.settled(draw, results, frame), arguments.stem):
            print(path)


def _cost(arguments: argparse.Namespace) -> None:
    from analysis.studies import cost

    results = store.load(arguments.tables)
    frame = cost.costs(results)
    _print(arguments, [cost.table(frame)])
    if arguments.stem is not None:
        from analysis.figures import style
        from analysis.figures.cost import draw

        for path in style.save(style.settled(draw, results, frame), arguments.stem):
            print(path)


def _embeddings(arguments: argparse.Namespace) -> None:
    from analysis.figures import style
    from analysis.figures.embeddings import draw
    from analysis.studies import embeddings

    found = embeddings.load(arguments.folder)
    _print(arguments, [embeddings.table(found)])
    for path in style.save(style.settled(draw, found, arguments.by), arguments.stem):
        print(path)


def _claims(arguments: argparse.Namespace) -> None:
    from analysis.report import claims

    listed = claims.load(arguments.claims or claims.DEFAULT)
    _print(arguments, claims.to_tables(listed, claims.judge(listed, arguments.reference)))


def _recording(arguments: argparse.Namespace) -> None:
    from analysis.studies import recording

    found = recording.load(arguments.folder)
    _print(arguments, [recording.table(found)], recording.described(found))


def _unpack(arguments: argparse.Namespace) -> None:
    from analysis.tables import unpacking

    written, there = unpacking.unpack(arguments.tables, arguments.target)
    print(f"{written} runs written to {arguments.target}, {there} were there")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _add_combine,
        _add_tables,
        _add_figures,
        _add_pages,
        _add_compare,
        _add_claims,
        _add_power,
    ):
        add(commands)
    for name in PRINTING:
        commands.choices[name].add_argument(
            "--format",
            choices=tuple(markdown.FORMATS),
            default="markdown",
            help="of the printed tables (default: %(default)s)",
        )
    return parser


def _add_combine(commands: Commands) -> None:
    combine = commands.add_parser("combine", help="stack the tables of finished runs")
    combine.add_argument("runs", nargs="+", type=file_path, help="folders of runs")
    combine.add_argument(
        "--experiment", required=True, help="configuration of the grid, as JSON (required)"
    )
    combine.add_argument(
        "--output", required=True, type=file_path, help="folder of the combined tables (required)"
    )
    combine.add_argument(
        "--allow-incomplete",
        type=file_path,
        metavar="RESULTS",
        help="runs may be missing; the results folder (with runs/, logs/) that says why "
        "(default: none may)",
    )
    combine.set_defaults(run=_combine)


def _add_tables(commands: Commands) -> None:
    check = commands.add_parser("check", help="check that the runs in a tables folder compare")
    check.add_argument("tables", type=file_path, help="folder of combined tables")
    check.set_defaults(run=_check)

    statistics = commands.add_parser("statistics", help="compute the statistics")
    statistics.add_argument("tables", type=file_path, help="folder of combined tables")
    statistics.add_argument("output", type=file_path, help="folder of the statistics")
    statistics.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="compute this one; may be repeated (default: all of them)",
    )
    _add_modules(statistics)
    statistics.set_defaults(run=_statistics)

    unpack = commands.add_parser(
        "unpack", help="write the runs of combined tables as finished runs, to go on from them"
    )
    unpack.add_argument("tables", type=file_path, help="folder of combined tables (required)")
    unpack.add_argument(
        "target", type=file_path, help="results folder of the experiment (required)"
    )
    unpack.set_defaults(run=_unpack)

    adopt = commands.add_parser("adopt", help="make an experiment's tables the reference")
    adopt.add_argument("source", type=file_path, help="results folder with tables/ (required)")
    adopt.add_argument("target", type=file_path, help="results folder to write in (required)")
    adopt.set_defaults(run=_adopt)


def _add_figures(commands: Commands) -> None:
    _add_figure(commands)
    _add_pictures(commands)
    _add_embeddings(commands)
    _add_estimation(commands)
    _add_cost(commands)
    _add_recording(commands)
    _add_summary(commands)


def _add_pictures(commands: Commands) -> None:
    pictures = commands.add_parser("pictures", help="redraw the pictures beside committed tables")
    pictures.add_argument("folder", type=file_path, help="with tables and pictures below it")
    pictures.add_argument(
        "--check",
        action="store_true",
        help="write nothing, and fail where a picture is not what this code draws (default: no)",
    )
    pictures.set_defaults(run=_pictures)


def _add_pages(commands: Commands) -> None:
    for name, function, text in (
        ("coverage", _coverage, "write a page: which runs of the grid are there"),
        ("runs", _runs, "write a page: time, memory and restarts of each run"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("tables", type=file_path, help="folder of combined tables")
        command.add_argument("page", type=file_path, help="HTML file to write")
        command.set_defaults(run=function)


def _add_recording(commands: Commands) -> None:
    recording = commands.add_parser(
        "recording", help="check a recording; what its rule draws beside what was practised"
    )
    recording.add_argument(
        "folder", type=file_path, help="of a run with budget.record_predictions (required)"
    )
    recording.set_defaults(run=_recording)


def _add_claims(commands: Commands) -> None:
    claims = commands.add_parser(
        "claims", help="claims of the paper and of others, each with its verdict"
    )
    claims.add_argument(
        "--claims",
        type=file_path,
        help="file of claims and their rules (default: analysis/report/claims.yaml)",
    )
    claims.add_argument(
        "--reference",
        type=file_path,
        default=Path("results/reference"),
        help="folder with a folder of tables for each study (default: %(default)s)",
    )
    claims.set_defaults(run=_claims)


def _add_compare(commands: Commands) -> None:
    compare = commands.add_parser(
        "compare", help="two experiments, or variants or samplers of one, by seed"
    )
    compare.add_argument("first", type=file_path, help="folder of combined tables")
    compare.add_argument(
        "second", nargs="?", type=file_path, help="another, of the same samplers and seeds"
    )
    compare.add_argument(
        "--variants",
        nargs="+",
        metavar="NAME",
        help="variants of the first folder, the first with each other one (default: none)",
    )
    compare.add_argument(
        "--samplers",
        nargs="+",
        metavar="NAME",
        help="samplers of the first folder, the first with each other one; with --variants: is its "
        "lead the same in the first variant and in each other one? (default: none)",
    )
    compare.add_argument(
        "--estimators",
        nargs="+",
        metavar="NAME",
        help="errors of estimators in the same runs of the first folder, the first with each "
        "other one (default: none)",
    )
    compare.add_argument(
        "--known-competence",
        action="store_true",
        help="errors against what the simulated learner could do, instead of what evaluation "
        "observed; with --estimators (default: against what was observed)",
    )
    compare.add_argument(
        "--against",
        metavar="NAME",
        help="errors on training goals against what this estimator says; with --estimators "
        "(default: against what was observed)",
    )
    compare.add_argument(
        "--of",
        choices=("success", "error"),
        default="success",
        help="success over training, or the error of the predicted competence (default: success)",
    )
    compare.set_defaults(run=_compare)


def _add_power(commands: Commands) -> None:
    halves = commands.add_parser(
        "halves", help="the comparison in both halves of the seeds: what may be claimed"
    )
    halves.add_argument("tables", type=file_path, help="folder of combined tables")
    halves.set_defaults(run=_halves)

    behaviour = commands.add_parser(
        "behaviour", help="what samplers practised, what their estimators believed, and how late"
    )
    behaviour.add_argument("tables", type=file_path, help="folder of combined tables")
    behaviour.set_defaults(run=_behaviour)

    gain = commands.add_parser(
        "gain", help="success at the end minus at the start: do agents learn at all"
    )
    gain.add_argument("tables", type=file_path, help="folder of combined tables")
    gain.set_defaults(run=_gain)

    power = commands.add_parser("power", help="print how many seeds an experiment needs")
    power.add_argument("tables", type=file_path, help="folder of combined tables")
    power.add_argument(
        "--difference",
        type=_fraction,
        default=0.1,
        help="of mean success over training, to be found (default: 0.1)",
    )
    power.add_argument(
        "--power", type=_fraction, default=0.8, help="chance to find it (default: 0.8)"
    )
    power.add_argument(
        "--seeds",
        nargs="+",
        type=_count,
        metavar="N",
        help="sizes for the chance of the right order (default: 4 5 8 10 20)",
    )
    power.set_defaults(run=_power)


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


def _count(text: str) -> int:
    """A number of seeds."""
    count = whole_number(text)
    if not 1 <= count <= MOST_SEEDS:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not allowed; allowed: whole numbers from 1 to {MOST_SEEDS}"
        )
    return count


OUTPUTS = ("output", "page", "html", "stem", "target")


def _output(arguments: argparse.Namespace | None) -> str:
    """What a command writes to, for an error that does not say it."""
    places = [getattr(arguments, name, None) for name in OUTPUTS]
    return str(next((place for place in places if place is not None), "standard output"))


def _add_figure(commands: Commands) -> None:
    figure = commands.add_parser("figure", help="draw one figure as PNG and PDF")
    figure.add_argument("name", help="its name, for instance success_by_category")
    figure.add_argument("--tables", required=True, type=file_path, help=TABLES_HELP)
    figure.add_argument("--statistics", required=True, type=file_path, help=STATISTICS_HELP)
    figure.add_argument("--goal-space", required=True, help="one of the tables (required)")
    figure.add_argument(
        "--stem", required=True, type=file_path, help="path without .png and .pdf (required)"
    )
    _add_modules(figure)
    figure.set_defaults(run=_figure)


def _add_estimation(commands: Commands) -> None:
    estimation = commands.add_parser(
        "estimation", help="error of every estimator, and the episodes that it had played to know"
    )
    estimation.add_argument("tables", type=file_path, help="folder of combined tables")
    estimation.add_argument("--against", metavar="NAME", help=AGAINST_HELP)
    estimation.add_argument(
        "--split",
        choices=("train", "unseen"),
        default="train",
        help="goals of training, or unseen ones, of which only evaluation knows the truth "
        "(default: %(default)s)",
    )
    estimation.add_argument("--stem", type=file_path, help=STEM_HELP)
    estimation.set_defaults(run=_estimation)


def _add_cost(commands: Commands) -> None:
    cost = commands.add_parser(
        "cost", help="episodes of a category until it is mastered, in runs of the sampler scripted"
    )
    cost.add_argument("tables", type=file_path, help="folder of combined tables")
    cost.add_argument("--stem", type=file_path, help=STEM_HELP)
    cost.set_defaults(run=_cost)


def _add_embeddings(commands: Commands) -> None:
    embeddings = commands.add_parser(
        "embeddings", help="draw how an estimator reads goals, and say how well it tells them apart"
    )
    embeddings.add_argument(
        "folder", type=file_path, help="what python -m magellan embed has written (required)"
    )
    embeddings.add_argument(
        "--by",
        choices=("category", "kind"),
        default="category",
        help="what colours tell: categories, or finer kinds, such as why a goal is impossible "
        "(default: %(default)s)",
    )
    embeddings.add_argument(
        "--stem", required=True, type=file_path, help="path without .png and .pdf (required)"
    )
    embeddings.set_defaults(run=_embeddings)


def _add_modules(command: ArgumentParser) -> None:
    command.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with statistics or figures of your own, which is run; may be repeated "
        "(default: none)",
    )


def _add_summary(commands: Commands) -> None:
    summary = commands.add_parser("summary", help="print the main numbers of an experiment")
    summary.add_argument("folder", type=file_path, help=FOLDER_HELP)
    summary.add_argument("--study", type=file_path, help=STUDY_HELP)
    summary.set_defaults(run=_summary)

    page = commands.add_parser("page", help="write a page: what was found, with its figures")
    page.add_argument("folder", type=file_path, help=FOLDER_HELP)
    page.add_argument("html", type=file_path, help="HTML file to write, and a JSON file beside it")
    _add_modules(page)
    page.set_defaults(run=_page)

    numbers = commands.add_parser("numbers", help="write a page: the main numbers of a goal space")
    numbers.add_argument("--tables", required=True, type=file_path, help=TABLES_HELP)
    numbers.add_argument("--statistics", required=True, type=file_path, help=STATISTICS_HELP)
    numbers.add_argument(
        "--html", required=True, type=file_path, help="HTML file to write (required)"
    )
    numbers.add_argument("--study", type=file_path, help=STUDY_HELP)
    numbers.add_argument("--goal-space", help="of the page (default: the first one)")
    numbers.set_defaults(run=_numbers)


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
