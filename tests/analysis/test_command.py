"""What every command does on a full disk, with damaged tables."""

import errno
import io
import json
import os
import sys

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.statistics import summaries
from analysis.tables import store
from analysis.tables.grid import reference_algorithm
from analysis.tables.printing import FORMATS, Table, render
from tests.snippets import ROOT, raising


def test_on_a_full_disk_a_command_names_the_file_and_leaves_no_half(
    folder, tmp_path, monkeypatch, refused
):
    real, count, output = os.write, iter(range(10**6)), tmp_path / "statistics"

    def write(descriptor, content):
        """From the second write on the disk is full."""
        if next(count) > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    line = refused("statistics", folder, output)
    first, second, *_ = summaries.STATISTICS
    assert line == f"error: {output}/{second}.csv cannot be written (No space left on device)\n"
    assert [path.name for path in output.iterdir()] == [f"{first}.csv"]


def test_an_output_that_is_closed_or_lacks_a_sign_ends_no_command(folder, monkeypatch):
    latin = io.TextIOWrapper(io.BytesIO(), "latin-1")
    for output in (latin, None):
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["behaviour", str(folder)]) == 0
        print("\u2020", flush=True)
    assert latin.buffer.getvalue().endswith(rb"\u2020" + b"\n")


def test_an_interrupted_command_says_so(folder, monkeypatch, capsys):
    monkeypatch.setattr(store, "load", raising(KeyboardInterrupt()))
    assert main(["behaviour", str(folder)]) == 130
    assert capsys.readouterr().err == "stopped\n"


TABLE = Table("A_b: 95% of", ["name", "p", "n"], [['a|b, "c"', "< .001", "5"], ["d", ".5", "n/a"]])


def test_tables_in_every_form():
    whole = '**A_b: 95% of**\n\n| name | p | n |\n|---|---|---|\n| a\\|b, "c" | < .001 | 5 |\n'
    assert render([TABLE, TABLE]).count(whole) == 2
    text = render([TABLE], "csv", "so")
    assert text.startswith("# so\n\n# A_b: 95% of\nname,p,n\n")
    frame = pd.read_csv(io.StringIO(text), comment="#", dtype=str, keep_default_na=False)
    assert frame.to_numpy().tolist() == TABLE.rows
    latex = render([TABLE], "latex")
    assert r"\caption{A\_b: 95\% of}" in latex
    assert r"\begin{tabular}{lrr}" in latex
    assert r"a\textbar{}b, " in latex
    assert r'"c" & \textless{} .001 & 5 \\' in latex


# Commands, and how often they print cells in Markdown.
COMMANDS = {
    "summary": {},
    "compare magellan random": {},
    "behaviour": {"| MAGELLAN |": 3 + 5 + 2},
    "claims": {"| not tested": 1},
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_tables_in_the_form_that_is_asked_for(folder, printed, command, form):
    name, *options = command.split()
    where = [folder]
    if name == "claims":
        claim = {"claim": "c", "study": folder.name, "question": "q", "measure": "success"}
        claim |= {"value": "magellan - random", "expected": "above 0"}
        studies = {folder.name: {"seeds": 99, "setting": "a", "fixed": "b"}}
        path = folder / "claims.yaml"
        path.write_text(json.dumps({"studies": studies, "claims": [claim]}))
        where = ["--claims", path, "--reference", folder.parent]
    text = printed(name, *where, *options, "--format", form)
    begin = {"markdown": "**", "csv": "# ", "latex": r"\begin{table}"}[form]
    blocks = text.strip().split("\n\n")[:: 2 if form == "markdown" else 1]
    assert all(block.startswith(begin) for block in blocks)
    if form == "markdown":
        assert "| nan |" not in text
        rows = text.partition("**Claims of the paper**")[2] or text  # below the short table
        counts = {cells: rows.count(cells) for cells in COMMANDS[command]}
        assert counts == COMMANDS[command]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame, base: (frame.query("sampler != 'oracle'"), base), "oracle has no finished"),
        (lambda frame, base: (pd.concat([frame, frame.tail(1)]), base), "is there twice"),
        (lambda frame, base: (frame.assign(success="a"), base), "success is 'a'; allowed"),
        (lambda frame, base: (frame, {**base, "noise": None}), "no number of the axis 'noise'"),
    ],
)
def test_damaged_axes_are_refused(change, says, tmp_path, refused):
    committed = ROOT / "results/reference/axes"
    about = json.loads((committed / "axes.json").read_text(encoding="utf-8"))
    frame, about["base"] = change(pd.read_csv(committed / "axes.csv"), about["base"])
    frame.to_csv(tmp_path / "axes.csv", index=False)
    (tmp_path / "axes.json").write_text(json.dumps(about), encoding="utf-8")
    assert says in refused("axes", tmp_path / "axes.csv")


def test_the_reference_is_what_the_experiment_is_about():
    for samplers, given, reference in (
        (["random", "magellan", "sharp"], "", "magellan"),
        (["random", "ek_online"], "", "random"),
        (["random", "ek_online"], "ek_online", "ek_online"),
    ):
        experiment = {"samplers": samplers, "analysis": {"reference": given}}
        assert reference_algorithm(experiment) == (reference, "default")
