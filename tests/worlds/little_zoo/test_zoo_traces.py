"""Replay of episodes of the reference environment: every string and flag must be the same.

By default the committed sample; LITTLEZOO_TRACES=<folder> replays all *.jsonl.gz of a folder.
"""

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from magellan.worlds.little_zoo import Goal, LittleZooVector

SAMPLE = Path(__file__).parent / "data"
GRASP_RADIUS = 0.125
LISTED = ("possible_actions", "inventory")


def start_object(trace):
    for position, (x, y) in enumerate(trace["init_positions"]):
        if np.hypot(x, y) < GRASP_RADIUS:
            return position
    return -1


@pytest.fixture(scope="module")
def traces():
    folder = Path(os.environ.get("LITTLEZOO_TRACES", SAMPLE))
    loaded = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            loaded += [json.loads(line) for line in lines]
    assert loaded, f"no traces in {folder}"
    return loaded


def recorded(step):
    keys = ("obs", "possible_actions", "inventory", "reward")
    return (*(step[key] for key in keys), step["reward"] == 1.0, step["truncated"], step["done"])


def test_traces_cover_all_cells_and_the_rare_events(traces):
    cells = Counter((t["category"], t["split"], t["policy"]) for t in traces)
    assert len([cell for cell in cells if cell[2] != "scripted+random"]) == 20
    assert min(cells.values()) >= 20
    assert sum(start_object(trace) >= 0 for trace in traces) >= 40
    last = [trace["steps"][-1] for trace in traces]
    assert sum(step["truncated"] and step["reward"] == 1 for step in last) >= 20


@pytest.mark.parametrize("as_text", [False, True], ids=["indices", "strings"])
def test_vector_environment_repeats_every_trace(traces, as_text):
    """All traces at once; those that have ended get -1 and must not change any more."""
    env = LittleZooVector(len(traces))
    goals = [Goal(t["goal"], tuple(t["env_desc"][1:]), t["category"]) for t in traces]
    starts = np.array([start_object(trace) for trace in traces])
    observations, infos = env.reset(options={"goals": goals, "standing_on": starts})
    for i, trace in enumerate(traces):
        start = (observations[i], *(list(infos[key][i]) for key in LISTED))
        assert start == tuple(trace[f"init_{key}"] for key in ("obs", *LISTED))
        assert infos["goal"][i] == trace["goal"]
    np.testing.assert_array_equal(infos["standing_on"], starts)

    mismatches = []
    for round_number in range(max(len(trace["steps"]) for trace in traces)):
        live = [i for i, trace in enumerate(traces) if round_number < len(trace["steps"])]
        actions = [-1] * len(traces)
        for i in live:
            action = traces[i]["steps"][round_number]["action"]
            actions[i] = action if as_text else env.possible_actions[i].index(action)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        for values in (rewards, terminated, truncated):
            assert values.sum() == values[live].sum()
        for i, trace in enumerate(traces):
            step = trace["steps"][min(round_number, len(trace["steps"]) - 1)]
            output = (observations[i], *(list(infos[key][i]) for key in LISTED))
            outcome = rewards[i], terminated[i], truncated[i], terminated[i] or truncated[i]
            output += outcome if i in live else recorded(step)[3:]
            if output != recorded(step):
                mismatches.append((trace["id"], round_number, output))
    assert mismatches == []
