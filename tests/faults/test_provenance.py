"""What a run records about its code, libraries and model."""

import shutil
import subprocess
import time

import pytest
import torch

from magellan import __version__
from magellan.backends.machine import core_speed, cpu_model
from magellan.config import beginning
from magellan.core.errors import InputError
from magellan.jobs import provenance
from magellan.jobs.checkpoint import decode
from magellan.jobs.provenance import ancestry, code_version
from magellan.jobs.run import train
from magellan.model import tokenizers
from magellan.model.files import check_backbone, model_digest
from magellan.model.loading import load_tokenizer
from tests.faults.conftest import config
from tests.runs import stopped, trained
from tests.snippets import raising

REFUSED = raising(PermissionError(13, "Permission denied"))


def git(folder, *arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """A repository with a package `magellan` and a file outside it."""
    (tmp_path / "magellan").mkdir()
    for name in ("magellan/code.py", "magellan/data.json", "README.md"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def change(name):
    return lambda clone: (clone / name).write_text("2\n")


def staged(clone):
    (clone / "magellan/code.py").write_text("2\n")
    git(clone, "add", ".")


STATES = {
    "clean": (lambda clone: None, ""),
    "data changed": (change("magellan/data.json"), ".dirty"),
    "code staged": (staged, ".dirty"),
    "code gone": (lambda clone: (clone / "magellan/code.py").unlink(), ".dirty"),
    "new code": (change("magellan/more.py"), ".dirty"),
    "new notes": (change("magellan/notes.txt"), ""),
    "changed elsewhere": (change("README.md"), ""),
}


@pytest.mark.parametrize("case", STATES)
def test_a_tree_that_differs_from_its_commit_is_marked(case, clone, monkeypatch):
    spoil, mark = STATES[case]
    spoil(clone)
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook
    version = code_version(clone / "magellan")
    monkeypatch.delenv("GIT_DIR")
    assert version == f"{__version__}+{git(clone, 'rev-parse', '--short=12', 'HEAD')}{mark}"


def test_a_repository_around_an_installed_package_is_ignored(clone, monkeypatch):
    installed = clone / ".venv/lib/python3/site-packages/magellan"
    shutil.copytree(clone / "magellan", installed)
    assert code_version(installed) == __version__
    monkeypatch.setenv("PATH", str(clone / "empty"))  # no git
    assert code_version(clone / "magellan") == __version__


def test_every_attempt_records_its_code_libraries_and_machine(tmp_path, monkeypatch):
    speeds, code = iter([50.04, 25.0]), iter(["first", "second.dirty", "too late"])
    monkeypatch.setattr(provenance, "cpu_model", lambda: "A Processor 1234")
    monkeypatch.setattr(provenance, "core_speed", lambda: next(speeds))
    monkeypatch.setattr(provenance, "code_version", lambda: f"0.1.0+{next(code)}")
    stopped(config(), tmp_path)
    manifest = train(config(), tmp_path, resume=True, progress="none")
    assert next(code) == "too late"
    keys = ("attempt", "code_version", "resumed_from", "cpu", "matmul_gflop_per_second")
    assert [tuple(row[key] for key in keys) for row in manifest["attempt_log"]] == [
        (1, "0.1.0+first", None, "A Processor 1234", 50.0),
        (2, "0.1.0+second.dirty", "00000001.safetensors", "A Processor 1234", 25.0),
    ]
    first, second = manifest["attempt_log"]
    assert [manifest[key] for key in ("code_version", "cpu")] == [
        "0.1.0+second.dirty",
        "A Processor 1234",
    ]
    assert first["reason"].startswith("stopped: on SIGTERM: saved")
    assert (
        manifest["stop_reasons"]
        == [first["reason"], "complete"]
        == [first["reason"], second["reason"]]
    )
    assert first["started"] == manifest["started"]
    assert first["versions"] == second["versions"] == manifest["versions"]
    assert manifest["versions"]["torch"]
    log = (tmp_path / "run.log").read_text()
    assert "magellan-bench 0.1.0+second.dirty, python" in log
    assert "processor A Processor 1234, one core 25.0" in log


PLAIN = {"passes": "torch"}


def made(rows):
    """Format, device, and whether its passes were those of PLAIN."""
    return [(row["dtype"], row["device"], row["passes"] == "torch") for row in rows]


MADE = [("float32", "cpu", False), ("float32", "cpu", True)]


def test_every_attempt_records_its_format_device_and_passes(tmp_path):
    stopped(config(), tmp_path)
    with pytest.raises(InputError, match=r"backend.dtype is 'bfloat16' here and 'float32' there"):
        train(config(backend={"dtype": "bfloat16"}), tmp_path, resume=True, progress="none")
    other = config(backbone=PLAIN)
    stopped(other, tmp_path)
    manifest = train(other, tmp_path, resume=True, progress="none")
    assert made(manifest["attempt_log"]) == [MADE[0], MADE[1], MADE[1]]
    assert manifest["attempt_log"][0]["modules"] == manifest["modules"] == {}
    assert made([manifest]) == MADE[1:]
    assert "device cpu, float32, threads 1, passes torch" in (tmp_path / "run.log").read_text()
    # A checkpoint lists each change once, as runs that start from it need.
    metadata, state = decode(sorted((tmp_path / "checkpoints").iterdir())[-1])
    assert made(state["made_with"]) == MADE
    digest = model_digest(check_backbone("zoo-mini"))
    assert manifest["backbone"] == {"model": "zoo-mini", "sha256": digest}
    assert metadata["backbone"] == digest


def test_a_run_records_what_its_start_was_made_with(tmp_path, monkeypatch):
    phases = [{"until": 10}, {"goals": {"split": "unseen"}, "until": 20}, {}]
    whole = config(phases=phases)
    second = beginning(whole)
    first = beginning(second)
    monkeypatch.setattr(provenance, "code_version", lambda: "0.1.0+first")
    start = trained(first, tmp_path / "first")
    monkeypatch.setattr(provenance, "code_version", lambda: "0.1.0+second")
    plain = second.backbone.model_copy(update=PLAIN)
    second = second.model_copy(update={"backbone": plain})
    start = trained(second, tmp_path / "second", start)
    stopped(whole, tmp_path / "whole", start=start)
    manifest = train(whole, tmp_path / "whole", resume=True, progress="none", start=start)
    begun = manifest["started_from"]["made_with"]
    assert made(begun) == MADE
    assert [row["code_version"] for row in begun] == ["0.1.0+first", "0.1.0+second"]
    assert begun[0]["versions"] == manifest["versions"]
    assert made(manifest["attempt_log"]) == MADE[:1] * 2


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, [{"dtype": 3, "modules": [1]}]])
def test_what_no_trainer_wrote_into_a_checkpoint_is_left_out(value):
    assert ancestry({"made_with": value, "started_from": value}) in ([], [{}])
    assert ancestry(value) == []


def test_the_speed_of_a_core_is_measured_quickly_and_changes_no_setting(monkeypatch):
    torch.manual_seed(1)
    before = torch.get_num_threads(), torch.get_rng_state()
    begun = time.process_time()
    assert core_speed() > 0.01
    assert time.process_time() - begun < 0.5  # 0.05, and one product on a slow core
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert cpu_model()
    monkeypatch.setattr("pathlib.Path.read_text", REFUSED)
    monkeypatch.setattr("platform.processor", lambda: "sparc")
    assert cpu_model() == "sparc"


OTHERS = {
    "transformers 4.9, here is": (provenance, "library_versions", lambda: {"transformers": "4.9"}),
    "other token ids: .* SHA-256 a{12} there": (tokenizers, "digest", lambda _: "a" * 64),
}


@pytest.mark.parametrize("words", OTHERS)
def test_what_another_library_has_read_is_not_continued(words, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*OTHERS[words])
        stopped(config(), tmp_path)
    before = sorted((tmp_path / "checkpoints").iterdir())
    with pytest.raises(InputError, match=rf"^--resume: .*safetensors was made with {words}"):
        train(config(), tmp_path, resume=True, progress="none")
    assert sorted((tmp_path / "checkpoints").iterdir()) == before


def test_what_records_no_token_ids_is_continued(tmp_path, monkeypatch):
    names = [name for name in provenance.PROVENANCE if name != "tokens"]
    monkeypatch.setattr("magellan.jobs.run.PROVENANCE", names)  # as older versions
    stopped(config(), tmp_path)
    monkeypatch.undo()
    manifest = train(config(), tmp_path, resume=True, progress="none")
    assert manifest["tokens"] == tokenizers.digest(load_tokenizer("zoo-mini"))


def spoil_end(name):
    def spoil(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return spoil


def exchange(folder):
    """Two files swap their contents: the same bytes are read in the same order."""
    first, second = (folder / name for name in ("config.json", "tokenizer_config.json"))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


DIGESTS = {
    "weights": (spoil_end("model.safetensors"), False),
    "tokenizer": (spoil_end("tokenizer.json"), False),
    "settings of the tokenizer": (spoil_end("tokenizer_config.json"), False),
    "exchanged": (exchange, False),
    "weights that are not read": (lambda folder: (folder / "b.safetensors").touch(), True),
    "card": (spoil_end("README.md"), True),
}


@pytest.mark.parametrize("case", DIGESTS)
def test_a_digest_is_that_of_the_files_that_count(case, tmp_path):
    spoil, same = DIGESTS[case]
    source, copy = check_backbone("zoo-mini"), tmp_path / "copy"
    shutil.copytree(source, copy)
    assert model_digest(copy) == model_digest(source)
    spoil(copy)
    assert (model_digest(copy) == model_digest(source)) == same


def test_a_file_that_cannot_be_read_is_one_error(tmp_path, monkeypatch):
    shutil.copytree(check_backbone("zoo-mini"), tmp_path / "copy")
    monkeypatch.setattr("pathlib.Path.open", REFUSED)
    with pytest.raises(InputError, match=r"^backbone.model: .*Permission denied.*; allowed: "):
        model_digest(tmp_path / "copy")
