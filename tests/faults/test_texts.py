"""Texts from files, hosts and libraries are printed on one line, without control characters."""

import errno
import fcntl
import json
import re
import unicodedata

from magellan.cli import main
from magellan.core.errors import InputError, JobError, printable
from magellan.jobs import log
from magellan.jobs.run import train
from tests.faults.conftest import TRAIN, config
from tests.runs import stopped
from tests.snippets import raising

HOSTILE = "\x1b[2J\x1b]0;title\x07 one\r\ntwo\x85\x9b31m\u2028\u202ereversed\u2066\ud800 {x} %s"
SHOWN = r"\x1b[2J\x1b]0;title\x07 one\r\ntwo\x85\x9b31m\u2028\u202ereversed\u2066\ud800 {x} %s"


def test_controls_are_shown_escaped_and_all_else_is_kept():
    kept = "Häuser, 猫, 🐈, العربية, a\\nb, ~"
    assert [printable(text) for text in (HOSTILE, kept, SHOWN)] == [SHOWN, kept, SHOWN]
    text = printable("".join(map(chr, range(0x110000))))
    assert {unicodedata.category(letter) for letter in text}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
    for kind in (InputError, JobError):
        assert str(kind(f"reason: {HOSTILE}")) == f"reason: {SHOWN}"


def test_what_a_job_says_and_logs_is_without_controls(tmp_path, capsys, monkeypatch):
    log.RunLog(tmp_path).warn(HOSTILE)
    assert capsys.readouterr().err == f"warning: {SHOWN}\n"
    (line,) = (tmp_path / "run.log").read_bytes().splitlines()
    assert line.endswith(f" warning: {SHOWN}".encode())
    (tmp_path / ".lock").write_text("process 1 on \x1b[31mred\x1b[0m", encoding="utf-8")
    monkeypatch.setattr(fcntl, "flock", raising(BlockingIOError(errno.EAGAIN, "Try again")))
    assert main([*TRAIN, "--output", str(tmp_path)]) == 73
    assert r"in use by process 1 on \x1b[31mred\x1b[0m" in capsys.readouterr().err


def test_braces_and_percent_signs_in_a_reason_are_only_text(tmp_path):
    reason, folder = "on {x} {0} {} %s %(y)d {{z}}", tmp_path / "{x} %s"
    stopped(config(), folder, reason)
    assert f"ended: stopped: {reason}: saved" in (folder / "run.log").read_text()
    manifest = train(config(), folder, resume=True, progress="lines")
    assert manifest["stop_reasons"][0].startswith(f"stopped: {reason}: saved")
    assert json.loads((folder / "manifest.json").read_text()) == manifest
