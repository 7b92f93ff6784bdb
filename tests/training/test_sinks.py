"""Curves in addition to tables: each row once, also after a resume; no other effect."""

import importlib.util
from typing import ClassVar

import pytest

from magellan.core.errors import InputError, StoppedEarly
from magellan.jobs import progress, run
from magellan.jobs.run import train
from tests.runs import config, rows, tables


class Writer:
    """Stores points as TensorBoard shows them: a new writer discards points past its start."""

    points: ClassVar[list] = []

    def __init__(self, folder, from_update):
        self.folder = folder
        Writer.points = [point for point in Writer.points if point[2] < from_update]

    def add_scalar(self, tag, scalar_value, global_step):
        Writer.points.append((tag, float(scalar_value), global_step))

    def close(self):
        self.folder.mkdir(exist_ok=True)


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.setattr(progress, "_tensorboard_writer", Writer)
    monkeypatch.setattr(run, "check_sink", lambda name: None)
    Writer.points = []
    return Writer


def train_with_curves(folder, resume=False):
    train(config(), folder, resume=resume, progress="none", log="tensorboard")


@pytest.mark.slow
def test_curves_change_no_table_and_have_every_evaluation(writer, tmp_path):
    train(config(), tmp_path / "plain", resume=False, progress="none")
    assert writer.points == []
    train_with_curves(tmp_path / "curves")
    assert tables(tmp_path / "curves") == tables(tmp_path / "plain")
    expected = [
        (f"success/{row['split']}/{row['category']}", float(row["success"]), int(row["update"]))
        for row in rows(tmp_path / "curves", "evaluation")
    ]
    shown = [point for point in writer.points if point[0].startswith("success/")]
    assert [point[::2] for point in shown] == [point[::2] for point in expected]
    assert [point[1] for point in shown] == pytest.approx([p[1] for p in expected])
    names = {tag.split("/")[0] for tag, _, _ in writer.points}
    assert names == {"success", "competence", "learning_progress", "practice", "training"}


@pytest.mark.slow
def test_a_resumed_run_has_the_curves_of_one_that_was_not_stopped(writer, tmp_path, monkeypatch):
    train_with_curves(tmp_path / "whole")
    whole, writer.points = writer.points, []
    stopped = []

    class Stopper(run.Stopper):
        @property
        def reason(self):
            if not stopped and len(writer.points) > len(whole) // 2:
                stopped.append(True)
                return "asked to"
            return None

    monkeypatch.setattr(run, "Stopper", Stopper)
    with pytest.raises(StoppedEarly):
        train_with_curves(tmp_path / "cut")
    train_with_curves(tmp_path / "cut", resume=True)
    assert sorted(writer.points) == sorted(whole)


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is not None, reason="tensorboard is installed"
)
def test_a_missing_package_is_refused_before_any_work(tmp_path):
    with pytest.raises(InputError, match="pip install tensorboard"):
        train_with_curves(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
def test_real_tensorboard_reads_the_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_with_curves(tmp_path)
    events = EventAccumulator(str(tmp_path / progress.TENSORBOARD)).Reload()
    assert "success/train/grasp" in events.Tags()["scalars"]
