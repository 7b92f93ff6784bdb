"""Figures, and pictures and numbers of how an estimator reads goals."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from safetensors.numpy import save_file

from analysis import figures
from analysis.figures import style
from analysis.figures.embeddings import PREDICTIONS, draw, load
from analysis.statistics import summaries
from analysis.statistics.practice_shares import exploited_window_shares
from analysis.tables import store
from analysis.tables.grid import Algorithm, algorithm_labels
from magellan.samplers import SAMPLERS
from magellan.worlds import WORLDS
from tests.analysis import synthetic
from tests.inputs.test_refusals import cell, gone, put
from tests.runs import refusal, refuses
from tests.snippets import contents, run_program

GOAL_SPACE = synthetic.GOAL_SPACE
PLAIN_FIGURES = synthetic.PLAIN_FIGURES


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Results, statistics and goal space of long labels, watchers and eight seeds."""
    results = synthetic.combined(
        tmp_path_factory.mktemp("crowded"),
        ("online", "magellan"),
        ("20000-4000-900-160-32",),
        tuple(range(8)),
        overrides={"observers": ["per_goal", "learned", "evaluated_goals"]},
        variants={"whole": {}, "a_very_long_name_of_a_variant": {"competence": {"buffer": 9}}},
        reference="online",
        episodes=4_000,
    )
    return results, summaries.compute(results), results.goal_spaces[0]


def visible_texts(figure):
    figure.draw_without_rendering()
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text.get_window_extent().width > 0
    ]


def assert_whole(figure):
    """Nothing is cut off, nothing in the header lies over something else."""
    canvas = figure.bbox
    for text in visible_texts(figure):
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= canvas.x1 and box.y1 <= canvas.y1
        assert inside, f"{text.get_text()!r} leaves the canvas"
    header = [item.get_window_extent() for item in (*figure.texts, *figure.legends)]
    assert all(box.x0 >= 0 and box.x1 <= canvas.x1 for box in header)
    panels = [ax.get_tightbbox() for ax in figure.axes if ax.get_visible()]
    for box, other in itertools.combinations(header + panels, 2):
        assert not box.overlaps(other)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN_FIGURES)
def test_nothing_is_cut_off_and_the_header_is_not_overprinted(crowded, name):
    assert_whole(figures.draw(name, *crowded))


DRAW = """
import sys
from pathlib import Path
from analysis import figures
from analysis.figures import style
from analysis.statistics import summaries
from analysis.tables import store
results = store.load(Path(sys.argv[1]))
statistics = summaries.compute(results)
for name in sys.argv[4:]:
    style.save(figures.draw(name, results, statistics, sys.argv[3]), Path(sys.argv[2]) / name)
"""
SETTINGS_OF_A_USER = {
    "text.usetex": True,
    "axes.facecolor": "black",
    "savefig.facecolor": "black",
    "lines.linewidth": 9.0,
    "savefig.bbox": "tight",
    "figure.constrained_layout.use": True,
    "pdf.compression": 0,
}


@pytest.mark.slow
def test_pictures_are_the_same_files_for_everybody(folder, results, statistics, tmp_path):
    """In a process with another order of sets and a user's settings, seconds later."""
    for name in PLAIN_FIGURES:
        figure = figures.draw(name, results, statistics, GOAL_SPACE)
        style.save(figure, tmp_path / "first" / name)
    rc = tmp_path / "matplotlibrc"
    rc.write_text("".join(f"{key}: {value}\n" for key, value in SETTINGS_OF_A_USER.items()))
    words = (str(folder), str(tmp_path / "second"), GOAL_SPACE, *PLAIN_FIGURES)
    notebook = {"MPLBACKEND": "module://absent"}
    run_program(DRAW, *words, PYTHONHASHSEED="1", MATPLOTLIBRC=str(rc), **notebook)
    assert len(contents(tmp_path / "first")) == 2 * len(PLAIN_FIGURES)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


MIX = np.array([1_000, 400, 200, 100, 50]) / 1_750
EVEN = np.full(5, 0.2)


@pytest.mark.parametrize(("sampler", "explored"), [("magellan", MIX), ("ek_online", EVEN)])
def test_what_was_chosen_is_what_is_left_without_exploration(results, sampler, explored):
    """Half of 4,000 episodes explore; of the others a quarter grasp, the rest grow herbivores."""
    chosen = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    practice, training = (results.tables[name].copy() for name in ("practice", "training"))
    rows = practice["sampler"] == sampler
    mixed = dict(zip(results.categories.names, 0.5 * explored + 0.5 * chosen, strict=True))
    practice.loc[rows, "n"] = (practice.loc[rows, "category"].map(mixed) * 4_000).round()
    training.loc[training["sampler"] == sampler, "epsilon"] = 0.5
    half = synthetic.with_tables(results, practice=practice, training=training)
    _, shares = exploited_window_shares(half, Algorithm(sampler, "default"), GOAL_SPACE)
    np.testing.assert_allclose(shares, np.tile(chosen[:, None], shares.shape[1]), atol=1e-3)


def test_an_empty_panel_gives_the_reason(results):
    """As in a mix of 100-150-50-0-0, of which unseen goals are evaluated all the same."""
    kept = {
        table: frame.query("split != 'train' or category != 'grow_carnivore'")
        for table, frame in results.tables.items()
        if "split" in frame
    }
    fewer = synthetic.with_tables(results, **kept)
    figure = figures.draw("success_by_category", fewer, {}, GOAL_SPACE)
    texts = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert texts == ["no goals of this category\nin the goal space"]
    assert figure.axes[3].texts
    assert_whole(figure)


def test_a_picture_knows_what_it_shows(results, statistics, tmp_path):
    """Its fingerprint is in the file; it follows words and data, and no noise of rounding."""
    figure = figures.draw("success_by_category", results, statistics, GOAL_SPACE)
    before = style.fingerprint(figure)
    png, _ = style.save(figure, tmp_path / "picture")
    assert style.fingerprint_of(png) == before
    again = figures.draw("success_by_category", results, statistics, GOAL_SPACE)
    line = again.axes[1].get_lines()[-1]
    line.set_ydata(line.get_ydata() * (1 + 1e-12))
    assert style.fingerprint(again) == before
    line.set_ydata(line.get_ydata() + 0.01)
    assert style.fingerprint(again) != before
    figure.axes[1].set_title("another")
    assert style.fingerprint(figure) != before


def test_no_two_looks_are_the_same():
    built_in = [Algorithm(name, "default") for name in SAMPLERS]
    new = [Algorithm(f"new_{number}", "default") for number in range(20)]
    variants = [Algorithm("magellan", f"v{number}") for number in range(20)]
    for algorithms in (built_in + new, built_in + variants):
        looks = list(style.algorithm_styles(algorithm_labels(algorithms)).values())
        assert len({(look.color, look.marker) for look in looks}) == len(looks)
        assert len({(str(look.dash), look.marker) for look in looks}) == len(looks)  # in grey
        first = looks[: len(SAMPLERS) + len(style.SPARE_LOOKS)]
        for key in ("color", "marker", "dash"):
            assert len({str(getattr(look, key)) for look in first}) == len(first)
        assert len({look.label for look in looks}) == len(looks)


def test_labels_of_variants_and_of_what_is_not_registered_here():
    pairs = [("mine", "whole"), ("magellan", "whole"), ("magellan", "small")]
    algorithms = [Algorithm(*pair) for pair in pairs]
    labels = algorithm_labels(algorithms, {"small": "few episodes kept"})
    styles = style.algorithm_styles(labels)
    assert list(labels.values()) == ["mine", "MAGELLAN, whole", "MAGELLAN, few episodes kept"]
    assert next(iter(styles.values())).color == style.SPARE_LOOKS[0].color
    assert style.estimator_styles(["theirs"])["theirs"].label == "theirs"


def test_a_figure_that_was_not_laid_out_keeps_its_labels(tmp_path):
    figure = Figure(figsize=(2.0, 1.5))
    ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))  # its labels lie outside the page
    ax.set_xlabel("success lost")
    cut, _ = style.save(figure, tmp_path / "cut")
    whole, _ = style.save(figure, tmp_path / "whole", tight=True)
    assert imread(whole).shape[0] > imread(cut).shape[0] + 20


def test_long_labels_are_cut_in_the_middle_and_stay_apart():
    long, alike = "a_variant_with_a_name_of_many_letters", "a_variant_under_a_name_of_many_letters"
    for variants in (["whole", long], [alike, long]):
        algorithms = [Algorithm("magellan", variant) for variant in variants]
        styles = style.algorithm_styles(algorithm_labels(algorithms))
        labels = [look.label for look in styles.values()]
        assert len(set(labels)) == 2
        assert (labels[1] == "MAGELLAN, a_varia…_of_many_letters") == (variants[0] == "whole")


def test_only_figures_that_make_sense_are_offered(runs):
    def offered(samplers, *algorithms, **changes):
        declared = synthetic.experiment(samplers, **changes)
        names = figures.applicable([Algorithm(*pair) for pair in algorithms], declared)
        return {"improvement", "calibration"} & set(names)

    plain, whole = ("magellan", "default"), ("magellan", "whole")
    assert offered(["magellan"], plain) == {"calibration"}
    watched = {"overrides": {"observers": ["learned"]}}
    assert offered(["random"], ("random", "default")) == set()
    assert offered(["random"], ("random", "default"), **watched) == {"calibration"}
    two = {"variants": synthetic.VARIANTS}
    assert "improvement" in offered(["magellan"], whole, ("magellan", "small"), **two)
    both = [("random", "default"), plain]
    assert offered(["random", "magellan"], *both, reference="random") == {"improvement"}
    results = store.combine(runs[:2], synthetic.experiment(samplers=("random",)))
    for name, goal_space, word in [
        ("improvement", GOAL_SPACE, "two algorithms"),
        ("exploitation", GOAL_SPACE, "chooses by what it estimates"),
        ("practice", "25k", "25k"),
    ]:
        refuses(word, figures.draw, name, results, {}, goal_space)


@pytest.mark.parametrize("name", [name for name in PLAIN_FIGURES if name != "improvement"])
def test_each_figure_shows_variants_apart(varied, varied_statistics, name):
    figure = figures.draw(name, varied, varied_statistics, GOAL_SPACE)
    words = " | ".join(text.get_text() for text in visible_texts(figure))
    assert "small" in words
    assert "whole" in words
    if name == "calibration":
        assert len(figure.axes) == 2 * 3 * 5
        upper, lower = (figure.axes[at].get_lines()[-1].get_ydata() for at in (2, 15 + 2))
        assert not np.array_equal(upper, lower)
    elif name != "overview":  # dots
        for look in style.styles_of(varied).values():
            colors = [{line.get_color() for line in ax.get_lines()} for ax in figure.axes]
            assert all(look.color in drawn for drawn in colors), look.label


NAMES = ("impossible", "grasp", "grow_plant")
EACH = 12


def write(folder, vectors, kinds=None):
    """Twelve goals of each of three categories, the same of both splits; one moment per array."""
    folder.mkdir(exist_ok=True)
    goals, names = pd.DataFrame({"goal": range(6 * EACH)}), np.tile(np.repeat(NAMES, EACH), 2)
    goals["split"], goals["category"] = np.repeat(["train", "unseen"], 3 * EACH), names
    goals["kind"], goals["code"] = names if kinds is None else kinds, goals["goal"]
    goals.assign(prompt="Goal: x\nAction: ").to_csv(folder / "goals.csv", index=False)
    predictions = goals[["goal"]].assign(competence=np.linspace(0, 1, len(goals)))
    numbers = range(len(vectors))
    moments = [predictions.assign(moment=at, update=at, step=at, episode=20 * at) for at in numbers]
    pd.concat(moments)[list(PREDICTIONS.columns)].to_csv(folder / "predictions.csv", index=False)
    save_file({str(i): array for i, array in enumerate(vectors)}, folder / "vectors.safetensors")
    run = {"sampler": "magellan", "goal_space": "25k", "seed": 3, "world": "little_zoo"}
    about = {"format": 1, "config": run, "world": WORLDS["little_zoo"].as_dict()}
    (folder / "embedding.json").write_text(json.dumps(about))
    return folder


def clusters(spread, seed=0):
    noise = np.random.default_rng(seed).normal(size=(6 * EACH, 3)) * spread
    corners = np.tile(np.repeat(np.eye(3), EACH, axis=0), (2, 1))
    return (corners + noise).astype(np.float32)


def test_the_command_draws_the_same_bytes_twice(tmp_path, printed):
    folder = write(tmp_path / "e", [clusters(1.0), clusters(0.1)])
    pictures = []
    for name in ("a", "b"):
        printed("embeddings", folder, "--stem", tmp_path / name)
        pictures.append([(tmp_path / f"{name}.{end}").read_bytes() for end in ("png", "pdf")])
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("by", ["category", "kind"])
def test_a_panel_for_each_moment_and_a_mark_for_each_goal(tmp_path, by):
    kinds = np.tile(np.repeat(["no water", "no plant", "Grasp", "Grow plant"], [4, 8, 12, 12]), 2)
    figure = draw(load(write(tmp_path / "e", [clusters(1.0), clusters(0.1)], kinds)), by)
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["Before training", "Episode 20"]
    for ax in panels:
        sizes = [len(points.get_offsets()) for points in ax.collections]
        assert sum(size for size in sizes if size > 1) == 6 * EACH
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    named = {"category": ["Impossible"], "kind": ["no plant", "no water"]}[by]
    assert labels == [*named, "Grasp", "Grow plant", "Training goals", "Unseen goals"]


# Folders that are spoiled, by the words of the error.
SPOILT = {
    "goals.csv: file is missing": gone("goals.csv"),
    "cannot be read (KeyError": put("embedding.json", "config", {}),
    "category is 'fly' for goal 0; allowed: impossible, grasp": cell(
        "goals.csv", "category", "fly"
    ),
    "goals are not numbered": cell("goals.csv", "goal", "7"),
    "allowed: finite numbers, a row for each of the 72 goals": lambda folder: save_file(
        {"0": clusters(1.0)[:5]}, folder / "vectors.safetensors"
    ),
    "moments are not those of vectors.safetensors": lambda folder: save_file(
        {"1": clusters(1.0)}, folder / "vectors.safetensors"
    ),
}


@pytest.mark.parametrize("words", SPOILT)
def test_what_cannot_be_read_is_refused_in_one_line(words, tmp_path):
    folder = write(tmp_path / "e", [clusters(1.0)])
    SPOILT[words](folder)
    assert words in refusal(load, folder)
