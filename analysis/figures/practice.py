"""Which goals did each sampler hand out over training?"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import stacked
from analysis.practised import window_shares
from analysis.results import Results

WORDS = ("What each sampler practised", "share of episodes", "")


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per algorithm: stacked shares of the categories in each window."""
    algorithms = results.algorithms_in(goal_space)
    return stacked.draw(results, goal_space, algorithms, window_shares, WORDS)
