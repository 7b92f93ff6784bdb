"""MAGELLAN's practice as scripts that other runs follow: the yoked control.

`python -m analysis.studies.yoked` writes the experiment's scripts from the committed tables.
"""

from __future__ import annotations

from pathlib import Path

from analysis.statistics.practice_shares import by_length, run_counts
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results
from analysis.tables.store import load

FILE = Path("config/studies/yoked.yaml")
START = "variants:\n"
UPDATES = 250  # of a stage: 4,000 environment steps, from one evaluation to the next


def stages(results: Results, algorithm: Algorithm, goal_space: str) -> dict[int, list[list[float]]]:
    """Shares of the categories between evaluations, by seed, in parts of 10,000."""
    where = {**algorithm._asdict(), "goal_space": goal_space}
    counts = by_length(results, where, run_counts(results, algorithm, goal_space))
    shares = 10_000 * counts.div(counts.sum(axis=1), axis=0)
    return {
        int(seed): rows.round().astype(int).to_numpy().tolist()
        for seed, rows in shares.groupby("seed")
    }


def variants(scripts: dict[int, list[list[float]]]) -> str:
    """The variants as YAML: `own` follows the script of the run's seed, `other` of the next."""
    seeds = sorted(scripts)
    lines = [START, "  own:\n    scripted:\n      by_seed:\n"]
    for seed, rows in scripts.items():
        lines.append(f"        {seed}: &seed{seed}\n")
        lines += [f"          - {{updates: {UPDATES}, shares: {row}}}\n" for row in rows]
    following = ", ".join(
        f"{seed}: *seed{after}" for seed, after in zip(seeds, seeds[1:] + seeds[:1], strict=True)
    )
    lines.append(f"  other: {{scripted: {{by_seed: {{{following}}}}}}}\n")
    return "".join(lines)


if __name__ == "__main__":
    results = load(Path("results/reference/samplers"))
    head = FILE.read_text(encoding="utf-8").partition(START)[0]
    text = variants(stages(results, Algorithm("magellan", "base"), "25k"))
    FILE.write_text(head + text, encoding="utf-8")
