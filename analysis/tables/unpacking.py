"""Run folders from combined tables: an experiment goes on where its committed tables end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.tables.grid import RUN_COLUMNS
from analysis.tables.manifests import MANIFEST
from analysis.tables.store import load_whole
from magellan.config import run_path
from magellan.core.files import write_atomically


def unpack(source: Path, target: Path) -> tuple[int, int]:
    """Write the runs of combined tables to where the workflow looks for finished runs.

    A run that is there already is left as it is. `combine` of what was written gives the same
    tables again.

    Args:
        source: folder of combined tables.
        target: results folder of the experiment; the runs go below its `runs`.

    Returns:
        how many runs were written, and how many were there.

    Raises:
        InputError: the tables are damaged or hold runs that do not compare.
    """
    results = load_whole(source)
    written = 0
    for manifest in results.manifest["runs"]:
        place = (manifest[key] for key in ("sampler", "goal_space", "seed", "identity"))
        folder = target / run_path(*place)
        if (folder / MANIFEST).exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in results.tables.items():
            columns = [column for column in frame.columns if column not in RUN_COLUMNS]
            text = _rows_of(frame, manifest, columns).to_csv(index=False, lineterminator="\n")
            write_atomically(folder / f"{name}.csv", text.encode())
        own = {key: value for key, value in manifest.items() if key != "variant"}
        # The manifest comes last: what has one is complete.
        write_atomically(folder / MANIFEST, f"{json.dumps(own, indent=1)}\n".encode())
        written += 1
    return written, len(results.manifest["runs"]) - written


def _rows_of(
    frame: pd.DataFrame, manifest: Mapping[str, Any], columns: Sequence[str]
) -> pd.DataFrame:
    """The rows of one run, without the columns that say whose they are."""
    mine = pd.Series(True, index=frame.index)
    for column in RUN_COLUMNS:
        mine &= frame[column] == manifest[column]
    return frame.loc[mine, list(columns)]
