"""Numbers in README and docs are those of the committed results."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.report import claims, summary
from analysis.statistics import comparison, summaries
from analysis.statistics.mastery import times_of
from analysis.statistics.matrices import settings
from analysis.statistics.primary import PRIMARY_SCORE, run_means, run_means_until
from analysis.statistics.primary import comparison as compared
from analysis.studies import behaviour, cost, estimation, gain, halves
from analysis.studies.estimation import with_known_competence
from analysis.tables import printing, store
from analysis.tables.grid import Algorithm
from analysis.tables.labels import sampler_label
from magellan.config import grid, load_experiment, read_yaml, resolve_run
from tests.analysis.synthetic import to_markdown
from tests.faults import cases as faults
from tests.inputs import cases

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "results" / "reference"
STUDIES = ROOT / "config" / "studies"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page(name: str) -> str:
    """A page of the docs, wherever it lies in them."""
    (path,) = (ROOT / "docs").rglob(f"{name}.md")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results():
    return store.load(REFERENCE / "tables")


def flowing(name: str) -> str:
    return " ".join(page(name).split())


def between_markers(name: str, text: str) -> str:
    found = re.search(f"<!-- begin: {name} -->\n(.*)<!-- end: {name} -->", text, re.DOTALL)
    assert found is not None
    return found.group(1).strip()


def test_tables_are_those_of_the_summary(results):
    text = to_markdown(summary, results, summaries.load(REFERENCE / "statistics"))
    assert between_markers("results", page("reference")) == text.strip()


def test_faults_are_those_of_the_campaign():
    assert between_markers("faults", page("faults")) == faults.table()


def test_counts_of_refused_inputs_are_those_of_the_cases():
    counts = dict(cases.COUNTS)
    counts["in all"] = sum(counts.values())
    rows = (counts, ["---"] * len(counts), map(str, counts.values()))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert between_markers("inputs", page("faults")) == table
    assert counts["in all"] >= 60
    injected = re.search(r"\| all \| (\d+) \|", faults.table())
    assert injected is not None
    assert f"{injected[1]} injected faults, {counts['in all']} bad inputs" in README


@pytest.mark.slow
def test_statistics_are_those_of_the_tables(results):
    fresh = summaries.compute(results)
    for name, committed in summaries.load(REFERENCE / "statistics").items():
        pd.testing.assert_frame_equal(fresh[name], committed, rtol=1e-5, check_dtype=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("tables", "reference"),
        ("first", "laptop"),
        ("default", "config"),
        ("pilot", "pilot"),
        ("more_data", "more_data"),
        ("more_updates", "more_updates"),
        ("simulated", "simulated"),
        ("adapters", "adapters"),
        ("noise", "noise"),
        ("pool_again", "pool_again"),
        ("smollm2", "smollm2"),
        ("evolving", "evolving"),
        ("released_pilot", "released_pilot"),
        ("separated", "separated"),
    ],
)
def test_committed_tables_are_those_of_a_configuration(folder, file):
    committed = store.load(REFERENCE / folder)
    (path,) = (ROOT / "config").rglob(f"{file}.yaml")
    experiment = load_experiment(read_yaml(path))
    declared = dict(committed.manifest["experiment"])
    declared["analysis"] = settings(committed).model_dump()  # older tables do not say everything
    settled = store.settled_experiment(experiment)
    assert declared == {key: settled[key] for key in declared}
    planned = {run.identity for run in grid(experiment)}
    assert {run["identity"] for run in committed.manifest["runs"]} == planned


PAPERS_ERRORS = {
    "grasp": (".01", ".98", ".01"),
    "grow_plant": (".05", ".78", ".03"),
    "grow_herbivore": (".08", ".34", ".06"),
    "grow_carnivore": (".30", ".00", ".28"),
}
"""Table 2 of Gaven et al. 2025: MAGELLAN, Online-ALP, EK-Online-ALP."""


def unseen_errors(results) -> str:
    """The same table from the reference study, beside the paper's."""
    frame = estimation.table(results, estimation.OBSERVED, "unseen")
    frame = frame[frame["variant"] == "base"].set_index("sampler")["categories"]
    samplers = ("magellan", "online", "ek_online")
    labels = [sampler_label(name) for name in samplers]
    rows = [[results.categories.named(name).words] for name in PAPERS_ERRORS]
    for row, (name, papers) in zip(rows, PAPERS_ERRORS.items(), strict=True):
        row += [f"{frame[sampler][name]:.2f}".lstrip("0") for sampler in samplers]
        row += papers
    header = ["", *labels, *(f"paper: {label}" for label in labels)]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def test_errors_on_unseen_goals_are_those_of_the_reference_study():
    results = store.load(REFERENCE / "samplers")
    assert between_markers("unseen", page("paper")) == unseen_errors(results)


@pytest.mark.slow
def test_halves_and_behaviour_are_those_of_the_tables(results):
    assert between_markers("halves", page("reference")) == to_markdown(halves, results).strip()
    assert (
        between_markers("behaviour", page("reference")) == to_markdown(behaviour, results).strip()
    )


@pytest.mark.parametrize(("folder", "name"), [("default", "default"), ("first", "first")])
def test_comparisons_are_those_of_their_tables(folder, name):
    found = compared(store.load(REFERENCE / folder))
    found = found[found["score"] == PRIMARY_SCORE]
    assert len(found) == 6
    for row in found.itertuples():
        ends = f"{row.difference:+.3f} | {row.low:+.3f} to {row.high:+.3f}"
        chances = " | ".join(f"{p:.3f}".lstrip("0") for p in (row.p, row.p_holm))
        assert f"| `{row.baseline}` | {ends} | {chances} |" in page(name)


@pytest.mark.slow
def test_the_readme_quotes_the_differences_of_the_claims():
    """Those of the reference study, as soon as it is whole."""
    listed = claims.load()
    for each in claims.judge(listed, REFERENCE):
        if each.claim.question == "samplers" and each.verdict != "not tested":
            ends = f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})"
            assert ends in " ".join(README.split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_pictures_and_files_exist(path):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_readme_is_short_and_every_page_is_named_there_or_among_the_studies():
    assert len(README.splitlines()) <= 120
    pages = {path for path in PAGES if ROOT / "docs" in path.parents}
    index = ROOT / "docs" / "studies" / "README.md"
    named = set()
    for path in (ROOT / "README.md", index):
        links = re.findall(r"\]\(([\w/.]+\.md)\)", path.read_text(encoding="utf-8"))
        named |= {(path.parent / link).resolve() for link in links}
    unnamed = pages - named
    assert not unnamed


def test_expert_buckets_learn_everything_and_uniform_choice_stops_at_plants(results):
    """What the regime must be to be of use: practice decides what is learnt."""
    evaluation = results.table("evaluation", split="train")
    final = evaluation[evaluation["step"] == evaluation["step"].max()]
    ends = final.groupby(["sampler", "variant", "category"])["success"].mean()
    assert ends["ek_online", "base"].min() >= 0.8
    assert ends["random", "base"].drop(["grasp", "grow_plant"]).max() <= 0.1


@pytest.mark.parametrize(("marker", "pool"), [("pool", "small"), ("pool quarter", "quarter")])
def test_the_pool_study_is_that_of_its_tables(marker, pool):
    results = store.load(REFERENCE / "pool")
    found = to_markdown(comparison, comparison.pairs_of_variants(results, [pool, "whole"]))
    assert between_markers(marker, page("pool")) == found.strip()


def test_the_second_pool_study_is_that_of_its_tables():
    results = store.load(REFERENCE / "pool_again")
    found = to_markdown(comparison, comparison.pairs_of_variants(results, ["small", "whole"]))
    assert between_markers("pool again", page("pool")) == found.strip()
    assert (
        between_markers("pool again halves", page("pool")) == to_markdown(halves, results).strip()
    )
    found = to_markdown(behaviour, results).strip()
    assert between_markers("pool again behaviour", page("pool")) == found


@pytest.mark.parametrize("name", ["more_data", "more_updates"])
def test_the_regime_is_that_of_its_tables(name):
    pairs = comparison.pairs_of_variants(store.load(REFERENCE / name), ["twice", "base"])
    assert between_markers(name, page("regime")) == to_markdown(comparison, pairs).strip()


@pytest.mark.parametrize(
    ("name", "row"), [("more_data", "twice the practice"), ("more_updates", "twice the updates")]
)
def test_the_seeds_of_the_regime_are_those_of_its_tables(name, row):
    pairs = comparison.pairs_of_variants(store.load(REFERENCE / name), ["twice", "base"])
    cells = []
    for pair in pairs:
        sides = [
            comparison.success_of(side, "25k", "train")[1] for side in (pair.first, pair.second)
        ]
        differences = (sides[0] - sides[1]).mean(axis=1)
        cells.append(", ".join(signed(each) for each in differences))
    [line] = [line for line in page("regime").splitlines() if line.startswith(f"| {row} |")]
    found = [cell.strip() for cell in line.strip("|").split("|")[1:]]
    assert found == cells


def test_half_the_updates_are_a_part_of_twice_the_practice():
    """Over the first 64,000 steps both variants practise as much, with 8,000 and 4,000 updates."""
    results = store.load(REFERENCE / "more_data")
    found = {}
    for sampler in results.experiment["samplers"]:
        both = [Algorithm(sampler, name) for name in ("base", "twice")]
        early = [run_means_until(results, each, "25k", "train", 64_000).mean() for each in both]
        whole = [run_means(results, each, "25k", "train").mean() for each in both]
        found[sampler] = [f"{abs(pair[1] - pair[0]):.3f}".lstrip("0") for pair in (early, whole)]
    said = "`random` is {} ahead already (in all {}), and `ek_online` {} behind"
    assert said.format(*found["random"], found["ek_online"][0]) in flowing("regime")


def test_replay_ratios_are_those_of_the_files():
    """Transitions that are learnt from for each environment step."""
    text = (ROOT / "DEVIATIONS.md").read_text(encoding="utf-8")
    study = grid(load_experiment(read_yaml(STUDIES / "reference.yaml")))[0].config.agent
    paper, laptop = (resolve_run(name, []).agent for name in ("paper", "laptop"))
    ratios = [each.batch_size // each.steps_per_update for each in (paper, laptop, study)]
    assert f"{ratios[0]} transitions for each environment step (replay ratio)" in text
    assert f"64 every 32 steps, {ratios[1]} for each" in text
    times = paper.steps_per_update // study.steps_per_update
    assert f"replay ratio {ratios[2]}, and {times} times as many updates" in text


def test_lockstep_by_the_measure_of_the_protocol(monkeypatch):
    """Over the whole training, the evaluation before it included."""
    monkeypatch.setattr(behaviour, "SETTLED", -1.0)
    results = store.load(REFERENCE / "adapters")
    for name in ("own", "shared", "ignored"):
        frame = behaviour.beliefs(results, Algorithm("magellan", name), "25k")
        found = frame.groupby("category")["lockstep"].mean()[list(PAPERS_ERRORS)]
        numbers = " ".join(f"{value:.2f}".replace("0.", ".") for value in found)
        assert f"`{name}` {'has ' * (name == 'own')}{numbers}" in flowing("adapters")


def signed(value: float) -> str:
    """As the pages write differences below one; without a sign where nothing is left of it."""
    text = f"{value:+.2f}".replace("0.", ".")
    return text.strip("+-") if float(text) == 0.0 else text


@pytest.mark.parametrize("block", ["observed", "known"])
def test_the_simulated_learner_is_that_of_its_tables(block):
    results = store.load(REFERENCE / "simulated")
    if block == "known":
        results = with_known_competence(results)
    pairs = comparison.pairs_of_estimators(results, ["learned", "per_goal", "expert_buckets"])
    assert (
        between_markers(block, page("simulated")) == to_markdown(comparison, pairs, "error").strip()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variants", "measures"),
    [
        ("adapters", ["own", "ignored", "shared", "policy", "frozen"], ["error", "success"]),
        ("noise", ["base", "five", "ten"], ["success"]),
    ],
)
def test_a_study_of_variants_is_that_of_its_tables(name, variants, measures):
    results = store.load(REFERENCE / name)
    pairs = comparison.pairs_of_variants(results, variants)
    for measure in measures:
        found = to_markdown(comparison, pairs, measure).strip()
        assert between_markers(f"{name} {measure}", page(name)) == found
    assert (
        between_markers(f"{name} behaviour", page(name)) == to_markdown(behaviour, results).strip()
    )


def test_the_real_language_model_is_that_of_its_tables():
    results = store.load(REFERENCE / "smollm2")
    errors = estimation.table(results, estimation.OBSERVED)
    found = {
        "gain": to_markdown(gain, results),
        "estimation": to_markdown(estimation, errors, results.categories),
        "behaviour": to_markdown(behaviour, results),
    }
    for name, text in found.items():
        assert between_markers(f"smollm2 {name}", page("smollm2")) == text.strip()


def test_replaced_goals_are_those_of_their_tables():
    results = store.load(REFERENCE / "evolving")
    samplers = ["magellan", "random", "online", "ek_online"]
    pairs = comparison.pairs_of_samplers(results, samplers)
    found = {
        "success": to_markdown(comparison, pairs, "success"),
        "gain": to_markdown(gain, results),
        "behaviour": to_markdown(behaviour, results),
    }
    for name, text in found.items():
        assert between_markers(f"evolving {name}", page("evolving")) == text.strip()
    errors = {
        name: behaviour.beliefs(results, Algorithm(name, "default"), "25k")
        .groupby("category")["error"]
        .mean()["grasp"]
        for name in ("online", "magellan")
    }
    assert f"an error of {errors['online']:.2f} on grasping" in flowing("evolving")
    assert f"MAGELLAN's error on grasping is {errors['magellan']:.2f}" in flowing("evolving")


def test_what_is_forgotten_of_the_former_goals():
    table = gain.compute(store.load(REFERENCE / "evolving"))
    former = table[table["split"] == "train"]
    grasp = former[former["category"] == "grasp"]
    assert (grasp["high"] > 0).all()
    lost = f"by {-grasp['gain'].max():.3f} to {-grasp['gain'].min():.3f}, within intervals"
    assert f"grasping falls with all four, {lost}" in flowing("evolving")
    mean = former[former["category"] == "mean"]["gain"]
    assert f"by {mean.min():.3f} to {mean.max():.3f}. (" in flowing("evolving")


def test_the_budget_of_the_released_defects_is_the_pilots():
    results = store.load(REFERENCE / "released_pilot")
    frame = results.table("evaluation", split="train")
    end = frame[frame["step"] == frame["step"].max()]
    lines = between_markers("released pilot", page("released")).splitlines()[2:]
    runs = end.groupby(["sampler", "seed"], sort=False)["success"]
    assert len(lines) == len(runs) == 4
    for line, ((sampler, seed), success) in zip(lines, runs, strict=True):
        cells = [f"{value:.2f}" for value in (*success, success.mean())]
        assert line == f"| {sampler} | {seed} | {' | '.join(cells)} |"
        assert sampler == "random" or success.mean() > 0.8
    planned = load_experiment(read_yaml(STUDIES / "released.yaml"))
    assert planned.overrides["budget"]["steps"] == 64_000


def test_the_pilot_is_that_of_its_tables():
    frame = store.load(REFERENCE / "pilot").table("evaluation", split="train")
    lines = between_markers("pilot", page("pilot")).splitlines()[2:]
    runs = frame.groupby(["sampler", "variant", "seed"], sort=False)
    assert len(lines) == len(runs) == 6
    for line, ((sampler, variant, seed), run) in zip(lines, runs, strict=True):
        cells = [
            ", ".join(f"{of.set_index('episode')['success'][at]:.2f}" for at in (3_000, 8_000))
            for _, of in run.groupby("category", sort=False)
        ]
        assert line == f"| {sampler}, {variant} | {seed} | {' | '.join(cells)} |"


def finding() -> str:
    """A row for each sampler of the reference study: what its runs master, and when."""
    results = store.load(REFERENCE / "samplers")
    rows = []
    for sampler in ("ek_online", "magellan", "online", "random"):
        algorithm = Algorithm(sampler, "base")
        areas = [
            f"{run_means(results, algorithm, '25k', split).mean():.2f}"
            for split in ("train", "unseen")
        ]
        times = times_of(results, algorithm, "25k", "train").values()
        count = len(results.seeds_of(algorithm, "25k"))
        mastered = [
            f"{flags.sum()} of {count}" + (f", {np.median(at[flags]):,.0f}" if flags.any() else "")
            for at, flags in times
        ]
        rows.append([f"`{sampler}`", *areas, *mastered])
    header = ["sampler", "success over training", "unseen goals", "grasping mastered"]
    header += ["plants", "herbivores", "carnivores"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def separated() -> str:
    """A row for each run that goes on from MAGELLAN: success, mastery, dormant units."""
    results = store.load(REFERENCE / "separated")
    frame = results.tables["evaluation"]
    frame = frame[frame["split"] == "train"]
    rows = []
    for sampler in ("magellan", "scripted"):
        algorithm = Algorithm(sampler, "default")
        areas = dict(
            zip(
                results.seeds_of(algorithm, "25k"),
                run_means(results, algorithm, "25k", "train"),
                strict=True,
            )
        )
        mastered = times_of(results, algorithm, "25k", "train")
        for place, seed in enumerate(results.seeds_of(algorithm, "25k")):
            run = frame[(frame["sampler"] == sampler) & (frame["seed"] == seed)]
            hunters = run[run["category"] == "grow_carnivore"].sort_values("step")
            cells = []
            for name in ("grow_plant", "grow_herbivore", "grow_carnivore"):
                at, flags = (each[place] for each in mastered[name])
                last = run[run["category"] == name].sort_values("step")["success"].iloc[-1]
                cells.append(f"{last:.2f}, " + (f"{at:,.0f}" if flags else "never"))
            dormant = (f"{hunters['dormant'].iloc[at]:.2f}" for at in (0, -1))
            rows.append([f"`{sampler}`", str(seed), f"{areas[seed]:.2f}", *cells, *dormant])
    header = ["sampler", "seed", "success over the phase", "plants: at the end, mastered after"]
    header += ["herbivores", "carnivores", "dormant on carnivores, first", "last"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def test_what_came_of_going_on_is_that_of_the_tables():
    assert between_markers("separated", page("separated")) == separated()


@pytest.mark.parametrize("text", [README, page("samplers")], ids=["README", "samplers"])
def test_the_finding_is_that_of_the_tables(text):
    assert between_markers("finding", text) == finding()


def test_the_reference_studys_comparison_is_that_of_its_tables():
    results = store.load(REFERENCE / "samplers")
    names = ["magellan", "random", "online", "ek_online"]
    text = to_markdown(comparison, comparison.pairs_of_samplers(results, names))
    assert between_markers("samplers success", page("samplers")) == text.strip()


@pytest.mark.slow
def test_verdicts_on_claims_are_those_of_the_tables():
    listed = claims.load()
    text = printing.printed(claims.to_tables(listed, claims.judge(listed, REFERENCE)))
    assert between_markers("claims", page("claims")) == text.strip()


def test_costs_of_practice_are_those_of_the_tables():
    text = printing.printed([cost.table(cost.costs(store.load(REFERENCE / "learner")))])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert between_markers("learner", page("learner")) == "\n".join(rows)
