"""Rows in order, from pass rates."""

import json

import numpy as np
import pytest

from magellan.cli import main
from magellan.curriculum import order
from tests.runs import error_line, refuses

RATES = [0.0, 0.125, 0.5, 0.875, 1.0, 0.5]


def write(folder, rows):
    path = folder / "rates.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


def rows(**more):
    prompts = [f"What is {n} + {n}?\u2028" for n in range(6)]
    every = [{"prompt": p, "rate": rate} for p, rate in zip(prompts, RATES, strict=True)]
    return [row | {key: values[i] for key, values in more.items()} for i, row in enumerate(every)]


def run(capsys, *arguments):
    assert main(["order", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]


def test_rows_come_by_falling_probability_and_keep_their_keys(tmp_path, capsys):
    """p (1 - p) of these rates: 0, 7/64, 16/64, 7/64, 0, 16/64."""
    path = write(tmp_path, rows(id=[*"abcde", "\ud800"], group=list("aabbbb")))
    found = run(capsys, path, "--sampler", "learnability")
    assert [row["id"] for row in found] == ["c", "\ud800", "b", "d", "a", "e"]
    expected = np.array([16, 16, 7, 7, 0, 0]) / 46
    np.testing.assert_allclose([row["probability"] for row in found], expected, rtol=1e-5)
    assert {*found[0]} == {"id", "group", "prompt", "rate", "probability"}
    rule_over_groups = ("--groups", "b", "a", "--set", "adarft.batch=8")
    found = run(capsys, path, "--sampler", "adarft", *rule_over_groups)
    assert sum(row["probability"] for row in found) == pytest.approx(1.0, rel=1e-4)


def test_rows_are_drawn_by_probability(tmp_path, capsys):
    path, rule = write(tmp_path, rows()), ("--sampler", "pools", "--set", "pools.extreme=1e-6")
    drawn = run(capsys, path, *rule, "--draws", "40")
    assert (len(drawn), {row["rate"] for row in drawn}) == (40, {0.5})
    assert run(capsys, path, *rule, "--draws", "40") == drawn
    distinct = run(capsys, path, *rule, "--draws", "6", "--distinct")
    assert sorted(row["rate"] for row in distinct) == sorted(RATES)
    assert run(capsys, path, *rule, "--output", str(tmp_path / "out.jsonl")) == []
    assert len((tmp_path / "out.jsonl").read_text().split("\n")) == 7


def embed(texts):
    return np.array([[len(text), int(text[8])] for text in texts], float)


@pytest.mark.parametrize("name", ["bots", "pcl", "frontier", "goldilocks", "vds", "e2h", "adarft"])
def test_probabilities_that_do_not_follow_the_rates_are_no_order(name):
    by_group = {"order": ["a", "b"]} if name in ("e2h", "adarft") else {"embed": embed}
    lines = rows(group="aabbbb") if "order" in by_group else rows()
    refuses(rf"^sampler: {name} gives .*: it tells none", order.ordered, lines, name, **by_group)


RULE = ["--sampler", "random"]
BAD = [
    ([], RULE, "rates.jsonl: no rows"),
    ([5], RULE, "rates.jsonl: line 1: a int; allowed: an object"),
    ([{"rate": 0.5}, {"rate": 1.2}], RULE, "line 2: rate: 1.2 is not allowed; allowed: a number"),
    ([{"rate": float("nan")}], RULE, "line 1: rate: nan is not allowed"),
    ([{"rate": 0.5, "prompt": [{"role": "user"}]}], RULE, "prompt: [{'role': 'user'}] is not"),
    ([{"rate": 0.5, "group": "a"}, {"rate": 0.5}], RULE, "group: in 1 of 2 rows; allowed: all or"),
    ([{"rate": 0.5, "probability": 1}], RULE, "line 1: probability: not allowed, as it is added"),
    (rows(), ["--sampler", "online"], "sampler: online gives the same prob"),
    (
        rows(group="aabbbb"),
        ["--sampler", "sec"],
        "sampler: sec gives the same prob",
    ),
    *(
        (rows(group="ababab"), ["--sampler", name], f"sampler: {name} compares older answers with")
        for name in ("ek_online", "tscl")
    ),
    (rows(), ["--sampler", "sec"], "groups: none given; the sampler sec chooses among groups"),
    (rows(), [*RULE, "--draws", "9", "--distinct"], "draws: 9 is not allowed; allowed"),
]


@pytest.mark.parametrize(("lines", "arguments", "says"), BAD)
def test_bad_rows_and_options_are_one_clear_line(tmp_path, capsys, lines, arguments, says):
    assert main(["order", write(tmp_path, lines), *arguments]) != 0
    assert says in error_line(capsys)
