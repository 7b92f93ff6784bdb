import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from matplotlib.text import Text

from analysis import figures, summaries, tables
from analysis.figures import style
from magellan.errors import InputError
from tests.analysis import synthetic

GOAL_SPACE = synthetic.GOAL_SPACE
WIDE = "20000-4000-800-160-32"


def made(tmp_path_factory, **declared):
    experiment = synthetic.experiment(**declared)
    folder = tmp_path_factory.mktemp("other")
    results = tables.combine(synthetic.write_runs(folder, experiment, episodes=4_000), experiment)
    return results, summaries.compute(results)


@pytest.fixture(scope="module")
def experiments(results, statistics, tmp_path_factory):
    """Experiments of several shapes: (results, statistics, goal space)."""
    two = made(tmp_path_factory, samplers=("random", "magellan"), goal_spaces=(WIDE,), seeds=(0,))
    many = made(tmp_path_factory, seeds=(0, 1, 2, 3, 4, 5))
    return {
        "default": (results, statistics, GOAL_SPACE),
        "two samplers, one seed, long name": (*two, WIDE),
        "six seeds": (*many, GOAL_SPACE),
    }


SHAPES = ("default", "two samplers, one seed, long name", "six seeds")


def visible_texts(figure):
    figure.draw_without_rendering()
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text.get_window_extent().width > 0
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", figures.FIGURES)
def test_nothing_is_cut_off_and_the_header_is_not_overprinted(experiments, name, shape):
    figure = figures.draw(name, *experiments[shape])
    canvas = figure.bbox
    for text in visible_texts(figure):
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= canvas.x1 and box.y1 <= canvas.y1
        assert inside, f"{text.get_text()!r} leaves the canvas"
    header = [*(text.get_window_extent() for text in figure.texts)]
    header += [legend.get_window_extent() for legend in figure.legends]
    assert all(box.x0 >= 0 and box.x1 <= canvas.x1 for box in header)
    panels = [ax.get_tightbbox() for ax in figure.axes if ax.get_visible()]
    boxes = header + panels
    for at, box in enumerate(header):
        for other in boxes[at + 1 :]:
            assert not box.overlaps(other)


@pytest.mark.parametrize("name", figures.FIGURES)
def test_each_figure_says_goal_space_and_number_of_seeds(experiments, name):
    for results, statistics, goal_space in experiments.values():
        figure = figures.draw(name, results, statistics, goal_space)
        words = " ".join(text.get_text() for text in figure.texts)
        assert f"n = {len(results.experiment['seeds'])} seed" in words
        assert goal_space in words


@pytest.mark.parametrize("name", figures.FIGURES)
def test_files_are_written_and_have_ink_in_the_colours_of_their_legend(experiments, name, tmp_path):
    results, statistics, goal_space = experiments["default"]
    png, pdf = style.save(figures.draw(name, results, statistics, goal_space), tmp_path / name)
    assert pdf.read_bytes().startswith(b"%PDF")
    pixels = imread(png)[..., :3]
    assert pixels.shape[1] >= 900
    assert (pixels < 0.98).any(axis=2).mean() > 0.01
    samplers = [style.SAMPLER_STYLES[sampler].color for sampler in results.samplers]
    colors = {
        "practice": list(style.CATEGORY_COLORS.values()),
        "calibration": [samplers[-1]],
        "improvement": samplers[:-1],
    }.get(name, samplers)
    body = pixels[int(pixels.shape[0] * 0.2) :]
    for color in colors:
        near = np.abs(body - np.array(to_rgb(color))).max(axis=2) < 0.03
        assert near.sum() > 40, f"{color} is not in {name}"


DRAW_ALL = """
import sys
from pathlib import Path
from analysis import figures, summaries, tables
from analysis.figures import style
results = tables.load(Path(sys.argv[1]))
statistics = summaries.compute(results)
summaries.write(statistics, Path(sys.argv[2]))
for name in figures.FIGURES:
    style.save(figures.draw(name, results, statistics, sys.argv[3]), Path(sys.argv[2]) / name)
"""


def test_two_reports_from_the_same_tables_are_identical_files(results, statistics, tmp_path):
    tables.write(results, tmp_path / "tables")
    summaries.write(statistics, tmp_path / "first")
    for name in figures.FIGURES:
        figure = figures.draw(name, results, statistics, GOAL_SPACE)
        style.save(figure, tmp_path / "first" / name)
    # Another process with another order of sets, and seconds later: no dates may show.
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", DRAW_ALL, tmp_path / "tables", tmp_path / "second", GOAL_SPACE]
    subprocess.run(command, check=True, env=environment, cwd=os.getcwd())
    first = sorted((tmp_path / "first").iterdir())
    assert len(first) == len(summaries.STATISTICS) + 2 * len(figures.FIGURES)
    for path in first:
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name


def lines_of(ax, color):
    return [line for line in ax.get_lines() if line.get_color() == color]


def test_success_panels_show_the_means_of_their_sampler_category_and_split(results, statistics):
    figure = figures.draw("success_by_category", results, statistics, GOAL_SPACE)
    panel = figure.axes[4 + 1]  # second row: unseen; second column: grow plant
    assert figure.axes[1].get_title() == "Grow plant"
    assert "Unseen" in figure.axes[4].get_ylabel()
    rows = results.table("evaluation", sampler="online", split="unseen", category="grow_plant")
    by_seed = [run.sort_values("episode") for _, run in rows.groupby("seed")]
    mean = np.mean([run["success"] for run in by_seed], axis=0)
    *thin, thick = lines_of(panel, style.SAMPLER_STYLES["online"].color)
    np.testing.assert_allclose(thick.get_ydata(), mean)
    for line, run in zip(thin, by_seed, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run["success"])
        np.testing.assert_array_equal(line.get_xdata(), run["episode"])


def test_practice_shares_add_up_and_follow_the_table(results):
    from analysis.figures.practice import window_shares

    ends, shares = window_shares(results, "magellan", GOAL_SPACE)
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    rows = results.table("practice", sampler="magellan", category="grow_plant", episode=ends[2])
    assert shares[2, 2] == pytest.approx(rows["n"].sum() / 1_000)


def test_calibration_panels_compare_the_same_split(results, statistics):
    figure = figures.draw("calibration", results, statistics, GOAL_SPACE)
    panel = figure.axes[5 + 2]  # unseen, grow plant
    where = {"sampler": "magellan", "split": "unseen", "category": "grow_plant"}
    predicted = results.table("competence", **where).groupby("episode")["competence"].mean()
    observed = results.table("evaluation", **where).groupby("episode")["success"].mean()
    drawn = panel.get_lines()
    np.testing.assert_allclose(drawn[-1].get_ydata(), predicted)
    np.testing.assert_allclose(drawn[-2].get_ydata(), observed)
    impossible = figure.axes[0].get_lines()
    assert (impossible[-2].get_ydata() == 0).all()


def test_interval_marks_are_the_statistics(results, statistics):
    figure = figures.draw("aggregates", results, statistics, GOAL_SPACE)
    frame = statistics["aggregates"].set_index(["score", "split", "statistic", "sampler"])
    row = frame.loc[("final", "unseen", "optimality_gap", "ek_online")]
    bar, mark = lines_of(figure.axes[3 + 2], style.SAMPLER_STYLES["ek_online"].color)
    np.testing.assert_allclose(bar.get_xdata(), [row["low"], row["high"]])
    assert mark.get_xdata()[0] == row["value"]


def test_samplers_and_categories_share_no_colour_and_samplers_no_mark():
    samplers = style.SAMPLER_STYLES.values()
    colors = [look.color for look in samplers] + list(style.CATEGORY_COLORS.values())
    assert len(set(colors)) == len(colors)
    assert len({look.marker for look in samplers}) == len(samplers)
    assert len({str(look.dash) for look in samplers}) == len(samplers)
    new = style.sampler_style("newcomer", ("random", "newcomer"))
    assert new.label == "newcomer"
    assert new.color not in {look.color for look in samplers}


def test_only_figures_that_make_sense_are_offered(runs):
    assert "improvement" not in figures.applicable(["magellan"])
    assert "calibration" in figures.applicable(["magellan"])
    assert "calibration" not in figures.applicable(["random", "online"])
    results = tables.combine(runs[:2], synthetic.experiment(samplers=("random",)))
    for name, goal_space, word in [
        ("improvement", GOAL_SPACE, "magellan"),
        ("pie", GOAL_SPACE, "pie"),
        ("practice", "25k", "25k"),
    ]:
        with pytest.raises(InputError, match=word):
            figures.draw(name, results, {}, goal_space)
