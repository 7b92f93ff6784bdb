"""The scripts of the yoked control are MAGELLAN's committed practice."""

from analysis.statistics.practice_shares import by_length, run_counts
from analysis.tables.grid import Algorithm
from analysis.tables.store import load
from magellan.config import read_yaml
from tests.snippets import ROOT


def test_scripts_are_those_of_the_committed_practice() -> None:
    """In parts of 10,000, from one evaluation to the next: 250 updates."""
    results, algorithm = load(ROOT / "results/reference/samplers"), Algorithm("magellan", "base")
    where = {**algorithm._asdict(), "goal_space": "25k"}
    counts = by_length(results, where, run_counts(results, algorithm, "25k"))
    shares = (10_000 * counts.div(counts.sum(axis=1), axis=0)).round()
    variants = read_yaml(ROOT / "config/studies/yoked.yaml")["variants"]
    own, other = (variants[name]["scripted"]["by_seed"] for name in ("own", "other"))
    assert list(own) == list(range(1, 13))
    for seed, stages in own.items():
        assert [stage["shares"] for stage in stages] == shares.loc[seed].to_numpy().tolist()
        assert {stage["updates"] for stage in stages} == {250}
        assert other[seed] == own[seed % 12 + 1]
