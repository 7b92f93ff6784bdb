"""A user's own statistic and figure: files outside the package, named on the command line."""

import pytest

from analysis import figures
from analysis.statistics import summaries
from analysis.statistics.registry import FIGURES, STATISTICS
from analysis.tables import store
from magellan.config.modules import load_modules
from tests.analysis import synthetic
from tests.runs import refusal

SPACE = synthetic.GOAL_SPACE


def modules(*paths):
    return [word for path in paths for word in ("--module", path)]


def draw(name, folder, *paths):
    """Words of the command that draws one figure into the folder beside the tables."""
    tables = ["--tables", folder, "--statistics", folder.parent / "statistics"]
    picture = ["--goal-space", SPACE, "--stem", folder.parent / name]
    return ["figure", name, *tables, *picture, *modules(*paths)]


def test_a_file_named_by_tables_is_not_run(tmp_path, runs, printed):
    """Only what the command names: tables may come from somebody else."""
    trap = tmp_path / "trap.py"
    trap.write_text("")
    foreign = synthetic.experiment(modules=[str(trap)])
    store.write(store.combine(runs, foreign), tmp_path / "tables")
    trap.write_text("from pathlib import Path\nPath(__file__).with_suffix('.sprung').touch()\n")
    assert str(trap) in (tmp_path / "tables/manifest.json").read_text()
    printed("statistics", tmp_path / "tables", tmp_path / "statistics")
    printed(*draw("success_by_category", tmp_path / "tables"))
    assert not (tmp_path / "trap.sprung").exists()


COMPUTE, DRAW = "def compute(results): ...", "def draw(results, statistics, goal_space): ..."


def statistic(arguments, function=COMPUTE):
    imported = "from analysis.statistics.summaries import register_statistic"
    return f"{imported}\n@register_statistic({arguments})\n{function}\n"


def figure(arguments, function=DRAW):
    return (
        f"from analysis.figures import register_figure\n@register_figure({arguments})\n{function}\n"
    )


def sampler(arguments):
    imported = "from magellan.samplers import register_sampler"
    return f"{imported}\n@register_sampler('mine', {arguments})\ndef build(parts, settings): ...\n"


# Files by the words of the error.
REFUSED = {
    "statistic: name 'success' is taken by ": statistic("'success'"),
    "statistic: name '../x' is not allowed; allowed: lower-case letters": statistic("'../x'"),
    "is not allowed; allowed: a function of results": statistic(
        "'mine'", "def compute(results, more): ..."
    ),
    "cannot be loaded (ZeroDivisionError": statistic("1 / 0"),
    "cannot be loaded (SystemExit": "raise SystemExit",
    "mine: look: 'red' is not allowed; allowed: a Look": sampler("look='red'"),
    "mine: label: 5 is not allowed; allowed: text": sampler("label=5"),
    r"mine: label: '$\\frac$' is not allowed": sampler(r"label=r'$\frac$'"),
    "mine: settings: <class 'dict'> is not allowed; allowed: a subclass": sampler("settings=dict"),
    "allowed: a subclass of Section, with a default for each key": (
        "from magellan.core.settings import Section\n"
        f"class Mine(Section):\n    size: int\n{sampler('settings=Mine')}"
    ),
    "figure: 'mine': label '{seed}' is not allowed; allowed: up to 40 letters": figure(
        "'mine', '{seed}', 'Mine'"
    ),
    "statistics 'success' is not allowed; allowed: names in a tuple": figure(
        "'mine', 'Mine', 'Mine', 'success'"
    ),
    "lacks: 'a seed' is not allowed; allowed: a function of algorithms, predicting, reference": (
        figure("'mine', 'Mine', 'Mine', lacks='a seed'")
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_file_that_registers_what_cannot_be_is_named_and_leaves_nothing(words, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(REFUSED[words])
    before = [dict(STATISTICS), dict(FIGURES)]
    line = refusal(load_modules, [str(path)])
    assert line.startswith("modules: ")
    assert "broken.py'" in line
    assert words in line
    assert [dict(STATISTICS), dict(FIGURES)] == before


# What a function does, by the words of the error.
WRONG = {
    "statistic mine failed (line 4: AttributeError: 'Results' object has": "return results.tabels",
    "statistic mine gave [1, 2]; allowed: pandas": "return [1, 2]",
    "statistic mine gave the columns ['a', 'a']; allowed: texts, each once": (
        "import pandas\n    return pandas.DataFrame([[1, 2]], columns=['a', 'a'])"
    ),
    "statistic mine gave an index with names, ['sampler'], which a CSV file loses; allowed": (
        "return results.tables['evaluation'].groupby('sampler')[['success']].mean()"
    ),
    "figure mine gave 'a figure'; allowed: matplotlib.figure.Figure": "return 'a figure'",
    # One that cannot be laid out.
    "figure mine failed (": (
        "from matplotlib.figure import Figure\n    f = Figure()\n    f.text(0, 0, '$a^b^c$')\n"
        "    return f"
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_goes_wrong_is_one_line_with_its_file(words, folder, statistics, refused):
    path, output = folder.parent / "mine.py", folder.parent / "statistics"
    if words.startswith("statistic"):
        path.write_text(statistic("'mine'", COMPUTE.replace("...", f"\n    {WRONG[words]}")))
        line = refused("statistics", folder, output, "--only", "mine", *modules(path))
    else:
        summaries.write(statistics, output)
        function = DRAW.replace("...", f"\n    {WRONG[words]}")
        path.write_text(figure("'mine', 'Mine', 'Mine', ('success',)", function))
        line = refused(*draw("mine", folder, path))
    assert line.startswith(f"error: modules: '{path}': {words}")
    assert not (output / "mine.csv").exists()
    assert not (folder.parent / "mine.png").exists()


def test_a_figure_names_what_a_goal_space_lacks_for_it(folder, results, tmp_path, refused):
    path = tmp_path / "mine.py"
    text = figure("'mine', 'Mine', 'Mine', lacks=lacks")
    start = "def lacks(algorithms, predicting, reference):\n    return {}\n"
    path.write_text(start.format("'' if len(algorithms) > 9 else 'ten algorithms'") + text)
    load_modules([str(path)])
    assert "mine" not in figures.applicable(results.algorithms, results.experiment)
    assert refused(*draw("mine", folder, path)) == "error: figure: mine needs ten algorithms\n"
    path.write_text(start.format("1 / 0") + text)
    load_modules([str(path)])
    line = refusal(figures.applicable, results.algorithms, results.experiment)
    assert "figure mine failed (line 2: ZeroDivisionError" in line
