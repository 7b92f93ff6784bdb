"""The summary page of an experiment, `results/NAME/summary.html`.

It is self-contained: pictures and style are embedded, and it has no script.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader

from analysis.figures import applicable
from analysis.report import claims
from analysis.report.finding import finding, name_of
from analysis.report.summary import SummaryTables, note
from analysis.report.summary import tables as numbers_of
from analysis.statistics.matrices import settings
from analysis.statistics.registry import FIGURES
from analysis.tables import grid
from analysis.tables.coverage import sentence
from analysis.tables.grid import number_text, sampler_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results
from magellan.config import read_yaml
from magellan.core.errors import printable
from magellan.core.files import write_atomically
from magellan.core.registry import is_built_in

HERE = Path(__file__).parent
CAPTIONS = HERE / "captions.yaml"
TEMPLATE = Environment(loader=FileSystemLoader(HERE), autoescape=True).get_template("page.html")
Statistics = Mapping[str, pd.DataFrame]


def write(results: Results, statistics: Statistics, figures: Path, page: Path) -> None:
    """Write the page, and beside it the finding as JSON for the terminal.

    The page: finding, short tables, claims, figures, limits, all numbers, provenance.

    Args:
        statistics: those named in `summary.STATISTICS`.
        figures: folder of the figures, GOAL_SPACE/NAME.png; those without a file are left out.
        page: HTML file to write; the JSON has its name.
    """
    summary = finding(results, statistics)
    html = TEMPLATE.render(
        title=f"{results.experiment['experiment']}: what was found",
        found=[f"{text}." for text in (*summary.told, *summary.untold)],
        notes=filter(None, (note(results), f"{summary.measured}. {names(results)}".strip())),
        tables=[
            SummaryTables(results, statistics, space).success(practised_split(results))
            for space in results.goal_spaces
        ],
        claims=claims.verdicts(results),
        figures=pictures(results, figures),
        limits=summary.limits,
        numbers=numbers_of(results, statistics),
        provenance=filter(None, (provenance(results), missing(results))),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, html.encode())
    text = f"{json.dumps(summary._asdict(), indent=1)}\n"
    write_atomically(page.with_suffix(".json"), text.encode())


def names(results: Results) -> str:
    """Explain labels that differ from names: of samplers, and of variants in figures."""
    samplers = [
        f"{name} is {label}"
        for name in dict.fromkeys(algorithm.sampler for algorithm in results.algorithms)
        if (label := sampler_label(name)).lower() != name
    ]
    labels = (results.experiment["analysis"].get("labels") or {}).items()
    variants = [f"{name} is \u201c{label}\u201d" for name, label in labels]
    return " ".join(
        f"In {where} {', '.join(parts)}."
        for where, parts in (("tables and figures", samplers), ("figures", variants))
        if parts
    )


# --- figures --------------------------------------------------------------------------------------


def pictures(results: Results, folder: Path) -> Iterator[dict[str, Any]]:
    """Figures whose files exist, with their captions."""
    captions = read_yaml(CAPTIONS)
    for space in results.goal_spaces:
        values = _values(results, space)
        for name in applicable(results.algorithms_in(space), results.experiment):
            path, spec = folder / space / f"{name}.png", FIGURES[name]
            if path.is_file():
                text = captions[name].format(**values) if is_built_in(spec) else spec.caption
                yield {
                    "label": spec.label,
                    "goal_space": space,
                    "data": base64.b64encode(path.read_bytes()).decode(),
                    "caption": [*text.split("\n\n"), f"n = {values['n']} seeds each."],
                }


def _values(results: Results, goal_space: str) -> dict[str, str]:
    reference, counts = results.reference, results.seed_counts(goal_space)
    return {
        "n": number_text(counts),
        "reference": results.figure_labels[reference],
        "reference_sampler": sampler_label(reference.sampler),
        "across": grid.UNIT_LABELS[results.unit],
        "unit": grid.UNIT_WORDS[results.unit],
        "confidence": f"{100 * settings(results).confidence:g}%",
        "resamples": f"{settings(results).bootstrap_repetitions:,}",
    }


# --- provenance -----------------------------------------------------------------------------------


def provenance(results: Results) -> Table:
    """The runs, their code, libraries and machines."""
    experiment, runs = results.experiment, results.manifest["runs"]
    seconds = sum(run.get("wall_seconds") or 0.0 for run in runs)
    times = (run[key] for run in runs for key in ("started", "finished") if run.get(key))
    days = sorted(str(time)[:10] for time in times)
    rows = {
        "Experiment": f"{experiment['experiment']}, preset {experiment['preset']}",
        "Samplers": ", ".join(name_of(algorithm, results) for algorithm in results.algorithms),
        "Goal spaces": ", ".join(results.goal_spaces),
        "Seeds": ", ".join(map(str, experiment["seeds"])),
        "Runs": f"{sentence(results.manifest)}; {seconds / 3600:.1f} hours of training in all",
        "Made": printable(" to ".join(dict.fromkeys([*days[:1], *days[-1:]]))),
        "Code": _join_distinct(run.get("code_version") for run in runs),
        "Libraries": _join_distinct(_libraries(run) for run in runs),
        "Machines": _join_distinct(run.get("cpu") or run.get("host") for run in runs),
        "Intervals": f"{settings(results).bootstrap_repetitions:,} resamples of whole runs, seed "
        f"{settings(results).bootstrap_seed}",
        "Not alike": ". ".join(map(printable, results.manifest.get("notes", ()))),
    }
    return Table("", ("", ""), tuple((key, text) for key, text in rows.items() if text))


def missing(results: Results) -> Table | None:
    """Missing runs, with the reason and the path of the log; None without any."""
    rows = [
        (grid.run_name(grid.run_of(run)), printable(run["reason"]), run["log"] or "none")
        for run in results.manifest["missing"]
    ]
    return Table("Missing runs", ("Run", "Reason", "Log"), rows) if rows else None


def _libraries(run: Mapping[str, Any]) -> str:
    versions = run.get("versions") or {}
    return ", ".join(f"{name} {versions[name]}" for name in ("python", "torch") if name in versions)


def _join_distinct(values: Iterator[Any]) -> str:
    return printable("; ".join(dict.fromkeys(str(value) for value in values if value)))
