"""The summary page of an experiment, `results/NAME/summary.html`.

It is self-contained: pictures and style are embedded, and it has no script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from analysis.figures import applicable
from analysis.report import claims
from analysis.report.finding import Finding, as_plain_text, finding, name_of, numbers
from analysis.report.summary import SummaryTables, note
from analysis.report.summary import tables as numbers_of
from analysis.statistics.matrices import settings
from analysis.statistics.registry import FIGURES, FigureSpec
from analysis.tables import printing
from analysis.tables.coverage import notes_text, sentence
from analysis.tables.labels import names_of, sampler_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results
from magellan.core.errors import printable
from magellan.core.files import write_atomically
from magellan.core.registry import is_built_in

CAPTIONS = Path(__file__).resolve().parents[2] / "workflow" / "report"
"""Texts below the figures, shared with the report of Snakemake."""
Statistics = Mapping[str, pd.DataFrame]


def write(results: Results, statistics: Statistics, figures: Path, page: Path) -> None:
    """Write the page, and beside it the finding as JSON for the terminal and the report.

    Args:
        results: combined tables.
        statistics: those named in `summary.STATISTICS`.
        figures: folder of the figures, GOAL_SPACE/NAME.png; those without a file are left out.
        page: HTML file to write; the JSON has its name.
    """
    summary = finding(results, statistics)
    printing.write(to_html(results, statistics, summary, figures), page)
    text = f"{json.dumps(summary._asdict(), indent=1)}\n"
    write_atomically(page.with_suffix(".json"), text.encode())


def to_html(results: Results, statistics: Statistics, summary: Finding, figures: Path) -> str:
    """The page: finding, short tables, claims, figures, limits, all numbers, provenance."""
    title = f"{results.experiment['experiment']}: what was found"
    parts = [
        printing.element("h1", title),
        printing.items([f"{text}." for text in (*summary.told, *summary.untold)], "found"),
        *([printing.element("p", note(results))] if note(results) else []),
        printing.element("p", f"{summary.measured}. {names(results)}".strip()),
        *(printing.table(table) for table in tables(results, statistics)),
        *_listed("Claims", claims.verdicts(results)),
        *markup(results, figures),
        *_listed("What so few runs cannot show", summary.limits),
        printing.element("h2", "All numbers"),
        *map(printing.table, numbers_of(results, statistics)),
        printing.element("h2", "Where this comes from"),
        printing.table(provenance(results)),
    ]
    return printing.document(title, ["<main>", *filter(None, parts), "</main>"])


def _listed(heading: str, texts: Sequence[str]) -> list[str]:
    """A section with a list; none without texts."""
    return [printing.element("h2", heading), printing.items(texts)] if texts else []


def names(results: Results) -> str:
    """Explain labels that differ from names: of samplers, and of variants in figures."""
    samplers = [
        f"{name} is {label}"
        for name in dict.fromkeys(algorithm.sampler for algorithm in results.algorithms)
        if (label := sampler_label(name)).lower() != name
    ]
    labels = names_of(results.algorithms).variants.items()
    variants = [f"{name} is \u201c{label}\u201d" for name, label in labels]
    return " ".join(
        f"In {where} {', '.join(parts)}."
        for where, parts in (("tables and figures", samplers), ("figures", variants))
        if parts
    )


def tables(results: Results, statistics: Statistics) -> Iterator[Table]:
    """The comparison on both splits, and success at the end of training."""
    for goal_space in results.goal_spaces:
        space = SummaryTables(results, statistics, goal_space)
        comparison = space.short_comparison()
        if comparison.rows:
            yield comparison
        yield space.success(practised_split(results))


# --- figures --------------------------------------------------------------------------------------


def markup(results: Results, folder: Path) -> Iterator[str]:
    """Figures whose files exist, with their captions."""
    for goal_space in results.goal_spaces:
        for name in applicable(results.algorithms_in(goal_space), results.experiment):
            path = folder / goal_space / f"{name}.png"
            if path.is_file():
                caption = caption_html(FIGURES[name], results, goal_space)
                yield printing.figure(path.read_bytes(), FIGURES[name].label, caption)


def caption_html(spec: FigureSpec, results: Results, goal_space: str) -> str:
    """The figure's caption from the report as HTML; its label if it has none."""
    from docutils.core import publish_parts
    from jinja2 import Template

    path = CAPTIONS / f"{spec.name if is_built_in(spec) else 'own_figure'}.rst"
    if not path.is_file():
        return printing.element("p", spec.label)
    missing = len(results.manifest["missing"])
    tables = numbers(results.runs, missing, results.experiment)
    text = Template(path.read_text(encoding="utf-8")).render(
        snakemake=SimpleNamespace(
            config={"tables": tables},
            wildcards=SimpleNamespace(goal_space=goal_space),
            params=SimpleNamespace(label=spec.label, caption=as_plain_text(spec.caption)),
        )
    )
    quiet = {"raw_enabled": False, "file_insertion_enabled": False, "report_level": 5}
    return str(publish_parts(text, writer="html5", settings_overrides=quiet)["body"])


# --- provenance -----------------------------------------------------------------------------------


def provenance(results: Results) -> Table:
    """The runs, their code, libraries and machines."""
    experiment, runs = results.experiment, results.manifest["runs"]
    seconds = sum(run.get("wall_seconds") or 0.0 for run in runs)
    rows = {
        "Experiment": f"{experiment['experiment']}, preset {experiment['preset']}",
        "Samplers": ", ".join(name_of(algorithm, results) for algorithm in results.algorithms),
        "Goal spaces": ", ".join(results.goal_spaces),
        "Seeds": ", ".join(map(str, experiment["seeds"])),
        "Runs": f"{sentence(results.manifest)}; {seconds / 3600:.1f} hours of training in all",
        "Made": _span(runs),
        "Code": _join_distinct(run.get("code_version") for run in runs),
        "Libraries": _join_distinct(_libraries(run) for run in runs),
        "Machines": _join_distinct(run.get("cpu") or run.get("host") for run in runs),
        "Intervals": f"{settings(results).bootstrap_repetitions:,} resamples of whole runs, seed "
        f"{settings(results).bootstrap_seed}",
        "Not alike": notes_text(results.manifest),
    }
    return Table("", ("", ""), tuple((key, text) for key, text in rows.items() if text))


def _libraries(run: Mapping[str, Any]) -> str:
    versions = run.get("versions") or {}
    return ", ".join(f"{name} {versions[name]}" for name in ("python", "torch") if name in versions)


def _join_distinct(values: Iterator[Any]) -> str:
    """Distinct values in order of appearance; empty ones are left out."""
    return printable("; ".join(dict.fromkeys(str(value) for value in values if value)))


def _span(runs: Sequence[Mapping[str, Any]]) -> str:
    """Days of the first start and the last finish."""
    days = sorted(
        str(run[key])[:10] for run in runs for key in ("started", "finished") if run.get(key)
    )
    return printable(" to ".join(dict.fromkeys([*days[:1], *days[-1:]])))
