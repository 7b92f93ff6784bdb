"""Find the committed pictures of a folder and check that this code draws the same.

A picture is NAME.png, with or without NAME.pdf, beside its tables; it shows their first goal space.
NAME is a figure of the report, or `ESTIMATION`. Those in `OF_SEVERAL` lie above the folders of
several studies. Pictures that need more than tables, such as `goals.png`, are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis import figures
from analysis.figures import style
from analysis.figures.estimation import draw as draw_estimation
from analysis.figures.overview import overview
from analysis.report.leaderboard import draw as draw_leaderboard
from analysis.statistics import summaries
from analysis.statistics.practice_shares import of_runs
from analysis.statistics.registry import FIGURES, statistics_of
from analysis.studies import estimation
from analysis.tables import store
from analysis.tables.manifests import MANIFEST
from magellan.core.errors import InputError

ESTIMATION = "estimation"
"""The figure of a single study, which is not one of the report."""
SAME_LEARNER = (
    *("samplers", "samplers_settings", "rules_long", "frontier", "memory"),
    *("estimator_adapters", "other_build"),
)
"""Studies of twelve seeds and 112,000 steps whose learners have the same constants."""
LONGER = "paper_small"


def same_learner(reference: Path) -> pd.DataFrame:
    """Practice and mastery in the runs of `SAME_LEARNER`, each once."""
    return of_runs([store.load(reference / name) for name in SAME_LEARNER])


def _draw_why(reference: Path) -> Figure:
    """The overview of the reference study, with the paper's length and the same learner's runs."""
    results = store.load(reference / SAME_LEARNER[0])
    own = {run["identity"] for run in results.manifest["runs"]}
    every = same_learner(reference)
    further = every[~every["identity"].isin(own)]
    longer = store.load(reference / LONGER)
    return style.draw_frozen(overview, results, {}, results.goal_spaces[0], longer, further)


OF_SEVERAL: Mapping[str, Callable[[Path], Figure]] = {
    "why": _draw_why,
    "leaderboard": lambda reference: style.draw_frozen(
        draw_leaderboard, pd.read_csv(reference / "leaderboard.csv")
    ),
}
"""Figures of several studies: what draws them from the folder above."""


def pictures_in(folder: Path) -> Iterator[Path]:
    """Pictures below a folder, PNG files, that can be drawn from tables.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"pictures: there is no folder {folder}")
    for path in sorted(folder.rglob("*.png")):
        of_one = (path.parent / MANIFEST).is_file()
        if path.stem in ((*FIGURES, ESTIMATION) if of_one else OF_SEVERAL):
            yield path


def draw(picture: Path) -> Figure:
    """Draw the figure of a picture with this code."""
    if not (picture.parent / MANIFEST).is_file():
        return OF_SEVERAL[picture.stem](picture.parent)
    results, name = _load(picture.parent), picture.stem
    if name == ESTIMATION:
        numbers = estimation.table(results, estimation.choose_truth(results, None))
        return style.draw_frozen(draw_estimation, results, numbers)
    frames = summaries.compute(results, statistics_of(FIGURES.find(name)))
    return figures.draw(name, results, frames, results.goal_spaces[0])


def is_up_to_date(picture: Path) -> bool:
    """Whether the file shows what this code draws."""
    return style.fingerprint_of(picture) == style.fingerprint(draw(picture))


def redraw(picture: Path) -> None:
    """Rewrite the PNG, and the PDF if there is one."""
    pdf = picture.with_suffix(".pdf")
    has_pdf = pdf.exists()
    style.save(draw(picture), picture.with_suffix(""))
    if not has_pdf:
        pdf.unlink()


_load = functools.lru_cache(maxsize=1)(store.load)
