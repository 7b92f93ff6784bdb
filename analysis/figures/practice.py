"""Which goals did each sampler hand out over training?"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import shares
from analysis.statistics.practice_shares import window_shares
from analysis.tables.results import Results

WORDS = ("What each sampler practised", "share of episodes", "")


def draw(results: Results, statistics: Mapping[str, pd.DataFrame], goal_space: str) -> Figure:
    """One panel per category: the share of each algorithm's episodes in each window."""
    algorithms = results.algorithms_in(goal_space)
    return shares.draw(results, goal_space, algorithms, window_shares, WORDS)
