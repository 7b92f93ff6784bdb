"""Find the committed pictures of a folder and check that this code draws the same.

A picture is NAME.png, with or without NAME.pdf, beside its tables; it shows their first goal space.
NAME is a figure of the report, or of a study (`OF_STUDIES`). Pictures that need more than tables,
such as `goals.png`, are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis import figures
from analysis.figures import style
from analysis.figures.cost import draw as draw_cost
from analysis.figures.estimation import draw as draw_estimation
from analysis.statistics import summaries
from analysis.statistics.registry import FIGURES, statistics_of
from analysis.studies import cost, estimation
from analysis.tables import store
from analysis.tables.manifests import MANIFEST
from analysis.tables.results import Results
from magellan.core.errors import InputError

OF_STUDIES: Mapping[str, tuple[Callable[..., Figure], Callable[[Results], pd.DataFrame]]] = {
    "cost": (draw_cost, cost.costs),
    "estimation": (
        draw_estimation,
        lambda results: estimation.table(results, estimation.choose_truth(results, None)),
    ),
}
"""Figures of single studies: what draws them, and its numbers."""


def pictures_in(folder: Path) -> Iterator[Path]:
    """Pictures below a folder, PNG files, that can be drawn from tables.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"pictures: there is no folder {folder}")
    for path in sorted(folder.rglob("*.png")):
        if path.stem in (*FIGURES, *OF_STUDIES) and (path.parent / MANIFEST).is_file():
            yield path


def draw(picture: Path) -> Figure:
    """Draw the figure of a picture with this code."""
    results, name = _load(picture.parent), picture.stem
    if name in OF_STUDIES:
        function, numbers = OF_STUDIES[name]
        return style.draw_settled(function, results, numbers(results))
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
