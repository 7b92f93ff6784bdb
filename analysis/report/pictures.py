"""The committed pictures of a folder: which they are, and whether this code draws the same.

A picture is NAME.png, with or without NAME.pdf, beside the tables that it is made of, or in
`figures/GOAL_SPACE` beside `tables` and `statistics`, as in `results/reference`. NAME is a figure
of the report, or `cost`. What cannot be drawn from tables alone, such as `goals.png`, is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from analysis import figures
from analysis.figures import style
from analysis.statistics import summaries
from analysis.statistics.registry import FIGURES, statistics_of
from analysis.tables import store
from analysis.tables.manifests import MANIFEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.tables.results import Results

COST = "cost"


class Picture(NamedTuple):
    """A committed picture.

    Attributes:
        path: of the PNG.
        tables: folder of the tables that it shows.
        statistics: folder of statistics; None where they are computed.
        goal_space: that it shows; empty is the first.
    """

    path: Path
    tables: Path
    statistics: Path | None
    goal_space: str

    def draw(self) -> Figure:
        """The figure as this code draws it."""
        results, name = _results(self.tables), self.path.stem
        if name == COST:
            from analysis.figures.cost import draw
            from analysis.studies.cost import costs

            return style.settled(draw, results, costs(results))
        needed = statistics_of(FIGURES.find(name))
        if self.statistics is not None:
            frames = summaries.load(self.statistics, needed, results)
        else:
            frames = summaries.compute(results, list(needed)) if needed else {}
        return figures.draw(name, results, frames, self.goal_space or results.goal_spaces[0])

    def is_up_to_date(self) -> bool:
        """Whether the file shows what this code draws."""
        return style.fingerprint_of(self.path) == style.fingerprint(self.draw())

    def redraw(self) -> None:
        """Write the PNG anew, and the PDF where there is one."""
        pdf = self.path.with_suffix(".pdf")
        had = pdf.exists()
        style.save(self.draw(), self.path.with_suffix(""))
        if not had:
            pdf.unlink()


def pictures_in(folder: Path) -> Iterator[Picture]:
    """The pictures below a folder that can be drawn from tables."""
    for path in sorted(folder.rglob("*.png")):
        if path.stem not in (*FIGURES, COST):
            continue
        beside, above = path.parent, path.parent.parent.parent
        if (beside / MANIFEST).is_file():
            yield Picture(path, beside, None, "")
        elif (above / "tables" / MANIFEST).is_file():
            yield Picture(path, above / "tables", above / "statistics", beside.name)


@functools.lru_cache(maxsize=1)
def _results(folder: Path) -> Results:
    return store.load(folder)
