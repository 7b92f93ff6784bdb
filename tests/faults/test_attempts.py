"""Foreign attempts.jsonl: wrong types, huge numbers, deep nesting."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magellan.core.errors import InputError, NotFiniteError
from magellan.jobs.provenance import LARGEST, LOGGED, Attempts, check_worth_trying
from magellan.jobs.run import train
from tests.faults.conftest import config
from tests.runs import tables

START = {"attempt": 1, "identity": "abc", "started": "2026-01-01T00:00:00Z"}
END = {"attempt": 1, "reason": "stopped: on SIGTERM", "peak_memory_mb": 1, "seconds": 0.5}
HUGE = 10**400


def written(folder, *lines):
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "attempts.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return Attempts(folder, "abc")


def check(attempts):
    """Any content of the file is read, counted and continued."""
    rows = attempts.read()
    assert all(type(row["attempt"]) is int and isinstance(row["reason"], str) for row in rows)
    number = attempts.begin("00000001.safetensors", {"code_version": "1", "versions": {"a": "b"}})
    summary = attempts.summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["stop_reasons"][-1] == "complete"
    last = summary["attempt_log"][-1]
    assert last["attempt"] == number
    assert tuple(last) == LOGGED
    assert (last["code_version"], last["versions"], last["reason"]) == ("1", {"a": "b"}, "complete")
    assert len(summary["attempt_log"]) == summary["attempts"] == len(summary["stop_reasons"])
    attempts.end("complete")
    assert attempts.read()[-1]["reason"] == "complete"
    return summary


@pytest.mark.parametrize(("status", "error"), [(2, InputError), (70, NotFiniteError)])
def test_what_failed_for_good_ends_the_same_way_again(status, error, tmp_path):
    end = {"attempt": 1, "reason": "error: update 4: critic_loss is nan", "status": status}
    written(tmp_path, START, end)
    with pytest.raises(error, match=r"^update 4: critic_loss is nan$"):
        check_worth_trying(tmp_path, "abc")
    check_worth_trying(tmp_path, "another run")
    killed = {**START, "attempt": 2}
    for lines in ((), (START, END), (START, {**END, "status": 75}), (START, end, killed)):
        written(tmp_path, *lines)
        check_worth_trying(tmp_path, "abc")


LINES = {
    "number of 400 digits": {**START, "attempt": HUGE},
    "largest number": {**START, "attempt": LARGEST},
    "number true": {**START, "attempt": True},
    "number a text": {**START, "attempt": "1"},
    "hash a list": {**START, "identity": ["abc"]},
    "memory infinite": json.dumps({**START, **END})[:-1] + ', "peak_memory_mb": Infinity}',
    "reason a mapping": {**START, "reason": {"a": 1}},
    "reason half a character": {**START, "reason": "\ud800"},
    "versions of numbers": {**START, "versions": {"torch": 2}},
    "nested deeply": "[" * 100_000,
    "a list": [1],
    "binary": "\0\1\2",
}


@pytest.mark.parametrize("case", LINES)
def test_a_line_that_no_trainer_wrote(case, tmp_path):
    check(written(tmp_path, LINES[case]))
    summary = check(written(tmp_path, START, LINES[case], END))
    assert summary["started"] == "2026-01-01T00:00:00Z"
    assert 1 < summary["peak_memory_mb"] <= LARGEST


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(HUGE)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = ("attempt", "reason", "started", "identity", "resumed_from", "peak_memory_mb", "versions")


@settings(max_examples=200)
@given(lines=st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=7), max_size=4))
def test_any_lines_are_read_and_counted(lines, tmp_path):
    check(written(tmp_path, START, *lines))


def test_bytes_that_are_no_text_and_places_that_are_no_file(tmp_path):
    attempts = written(tmp_path, START)
    (tmp_path / "attempts.jsonl").write_bytes(bytes(range(256)) * 20 + b"\n")
    check(attempts)
    (tmp_path / "attempts.jsonl").unlink()
    os.mkfifo(tmp_path / "attempts.jsonl")  # reading it would wait for ever
    assert attempts.read() == []
    (tmp_path / "attempts.jsonl").unlink()
    (tmp_path / "attempts.jsonl").mkdir()
    assert attempts.read() == []


def test_a_run_goes_on_beside_hostile_attempts(undisturbed, tmp_path):
    lines = [line if isinstance(line, str) else json.dumps(line) for line in LINES.values()]
    (tmp_path / "attempts.jsonl").write_text("\n".join(lines))
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    manifest = train(config(), tmp_path, resume=True, progress="none")
    assert manifest["attempts"] == 1
    assert tables(tmp_path) == undisturbed["random"]
    assert json.loads((tmp_path / "manifest.json").read_text()) == manifest
