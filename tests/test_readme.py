"""Numbers in README and docs are those of the committed results."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis import comparison, summaries, summary, tables
from analysis.primary import PRIMARY_SCORE
from analysis.primary import comparison as compared
from magellan.config import grid, load_experiment, read_yaml
from tests.faults import cases as faults
from tests.inputs import cases

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "results" / "reference"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results():
    return tables.load(REFERENCE / "tables")


def between_markers(name: str, text: str) -> str:
    found = re.search(f"<!-- begin: {name} -->\n(.*)<!-- end: {name} -->", text, re.DOTALL)
    assert found is not None
    return found.group(1).strip()


def test_tables_are_those_of_the_summary(results):
    text = summary.to_markdown(results, summaries.load(REFERENCE / "statistics"))
    assert between_markers("results", page("results")) == text.strip()


def test_faults_are_those_of_the_campaign():
    assert between_markers("faults", page("faults")) == faults.table()


def test_counts_of_refused_inputs_are_those_of_the_cases():
    counts = {kind: len(listed) for kind, listed in cases.KINDS.items()}
    counts["in all"] = sum(counts.values())
    rows = (counts, ["---"] * len(counts), map(str, counts.values()))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert between_markers("inputs", page("faults")) == table
    assert counts["in all"] >= 60
    injected = re.search(r"\| all \| (\d+) \|", faults.table())
    assert injected is not None
    assert f"{injected[1]} injected faults, {counts['in all']} bad inputs" in README


def test_statistics_are_those_of_the_tables(results):
    fresh = summaries.compute(results)
    for name, committed in summaries.load(REFERENCE / "statistics").items():
        pd.testing.assert_frame_equal(fresh[name], committed, rtol=1e-5, check_dtype=False)


def test_reference_is_the_first_experiment(results):
    experiment = load_experiment(read_yaml(ROOT / "config" / "laptop.yaml"))
    declared = results.manifest["experiment"]
    assert declared == {key: experiment.model_dump(mode="json")[key] for key in declared}
    planned = {run.identity for run in grid(experiment)}
    assert {run["identity"] for run in results.manifest["runs"]} == planned


def test_what_make_shows_is_that_of_its_tables():
    results = tables.load(REFERENCE / "default")
    experiment = load_experiment(read_yaml(ROOT / "config" / "config.yaml"))
    declared = results.manifest["experiment"]
    assert declared == {key: experiment.model_dump(mode="json")[key] for key in declared}
    found = compared(results)
    found = found[found["score"] == PRIMARY_SCORE]
    assert len(found) == 6
    for row in found.itertuples():
        ends = f"{row.difference:+.3f} | {row.low:+.3f} to {row.high:+.3f}"
        chances = " | ".join(f"{p:.3f}".lstrip("0") for p in (row.p, row.p_holm))
        assert f"| `{row.baseline}` | {ends} | {chances} |" in page("default")
    ahead = found[found["split"] == "train"].set_index("baseline")
    assert f"by {-ahead.loc['ek_online', 'difference']:.2f} in mean success" in README
    assert f"ahead of `online` by {ahead.loc['online', 'difference']:.2f} " in README
    assert f"from `random`: {ahead.loc['random', 'difference']:+.2f} " in README


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_pictures_and_files_exist(path):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_readme_is_short_and_names_every_page():
    assert len(README.splitlines()) <= 120
    unnamed = {path.name for path in PAGES if path.parent.name == "docs"}
    unnamed -= set(re.findall(r"\]\(docs/([a-z_]+\.md)\)", README))
    assert unnamed <= {"protocol.md"}  # results.md leads there


def test_expert_buckets_master_growing_plants(results):
    """What the default experiment must show to be of use: learning is visible."""
    evaluation = results.table("evaluation", sampler="ek_online")
    final = evaluation[evaluation["episode"] == evaluation["episode"].max()]
    plants = final[(final["category"] == "grow_plant") & (final["split"] == "train")]
    assert plants["success"].mean() >= 0.8
    assert json.loads((REFERENCE / "tables" / "manifest.json").read_text())["runs"]


@pytest.mark.parametrize(("marker", "pool"), [("pool", "small"), ("pool quarter", "quarter")])
def test_the_pool_study_is_that_of_its_tables(marker, pool):
    results = tables.load(REFERENCE / "pool")
    found = comparison.to_markdown(comparison.pairs_of_variants(results, ["whole", pool]))
    assert between_markers(marker, page("pool")) == found.strip()


def test_the_pilot_is_that_of_its_tables():
    frame = tables.load(REFERENCE / "pilot").table("evaluation", split="train")
    lines = between_markers("pilot", page("pilot")).splitlines()[2:]
    runs = frame.groupby(["sampler", "variant", "seed"], sort=False)
    assert len(lines) == len(runs) == 6
    for line, ((sampler, variant, seed), run) in zip(lines, runs, strict=True):
        cells = [
            ", ".join(f"{of.set_index('episode')['success'][at]:.2f}" for at in (3_000, 8_000))
            for _, of in run.groupby("category", sort=False)
        ]
        assert line == f"| {sampler}, {variant} | {seed} | {' | '.join(cells)} |"
