"""A goal space in words: its counts, and an example of each category."""

from __future__ import annotations

import numpy as np

from magellan.worlds.base import World


def describe(world: World, name: str, seed: int, split: str = "train") -> str:
    """Return the counts of a goal space and one example prompt for each of its categories."""
    goals, totals = world.goals(name, seed, split), world.totals(split)
    lines = [f"Goal space {name}, {split} split, seed {seed}: {len(goals):,} goals", ""]
    lines.append(f"{'category':16}{'goals':>10}" + (f"{'of':>14}" if totals else ""))
    counts = [*goals.counts().items(), ("total", len(goals))]
    for place, (category, count) in enumerate(counts):
        of = f"{(*totals, sum(totals))[place]:>14,}" if totals else ""
        lines.append(f"{category:16}{count:>10,}{of}")
    for number in np.flatnonzero(goals.sizes).tolist():
        first = goals.nth(number, np.array([0]))[0]
        example = goals.prompt(int(first)).rstrip()
        lines += ["", f"Example of {world.categories[number].name}:", example]
    return "\n".join(lines)
