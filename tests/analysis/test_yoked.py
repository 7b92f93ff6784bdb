"""The scripts of the yoked control are MAGELLAN's committed practice."""

from analysis.studies import yoked
from analysis.tables.grid import Algorithm
from analysis.tables.store import load
from tests.snippets import ROOT


def test_scripts_are_those_of_the_committed_practice() -> None:
    results = load(ROOT / "results/reference/samplers")
    scripts = yoked.stages(results, Algorithm("magellan", "base"), "25k")
    text = (ROOT / yoked.FILE).read_text(encoding="utf-8")
    assert text.endswith(yoked.variants(scripts))
    practised = results.table("practice", sampler="magellan", variant="base", seed=3)
    late = practised[practised["episode"] > practised["episode"].max() - 500]
    share = late.loc[late["category"] == "grow_plant", "n"].sum() / late["n"].sum()
    assert abs(scripts[3][-1][2] / 10_000 - share) < 0.1
