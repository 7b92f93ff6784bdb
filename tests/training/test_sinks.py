"""Curves in addition to tables: each row once, also after a resume; no other effect."""

import importlib.util

import pytest

from magellan.core.errors import InputError, StoppedEarly
from magellan.jobs import progress, run
from magellan.jobs.run import train
from tests.runs import config, rows, tables

THERE = importlib.util.find_spec("tensorboard") is not None


def train_with_curves(folder, resume=False):
    train(config(), folder, resume=resume, progress="none", log="tensorboard")


def curves(folder):
    """Points as TensorBoard shows them: a new writer discards points past its start."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / progress.TENSORBOARD), {"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in tags}


@pytest.mark.skipif(THERE, reason="tensorboard is installed")
def test_a_missing_package_is_refused_before_any_work(tmp_path):
    with pytest.raises(InputError, match="pip install tensorboard"):
        train_with_curves(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not THERE, reason="tensorboard is not installed")
def test_curves_have_every_row_once_also_after_a_resume(tmp_path, monkeypatch):
    train(config(), tmp_path / "plain", resume=False, progress="none")
    train_with_curves(tmp_path / "whole")
    assert tables(tmp_path / "whole") == tables(tmp_path / "plain")
    whole = curves(tmp_path / "whole")
    kinds = {"success", "competence", "learning_progress", "practice", "training"}
    assert {tag.split("/")[0] for tag in whole} == kinds
    for row in rows(tmp_path / "whole", "evaluation"):
        point = (int(row["update"]), pytest.approx(float(row["success"])))
        assert point in whole[f"success/{row['split']}/{row['category']}"]

    class Stopper(run.Stopper):
        asked = 0

        @property
        def reason(self):
            Stopper.asked += 1
            return "asked to" if Stopper.asked == 12 else None

    monkeypatch.setattr(run, "Stopper", Stopper)
    with pytest.raises(StoppedEarly):
        train_with_curves(tmp_path / "cut")
    train_with_curves(tmp_path / "cut", resume=True)
    assert curves(tmp_path / "cut") == whole
