"""Model, tokenizer and figures in a test file's `FOLDER`."""

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def model(request):
    return AutoModelForCausalLM.from_pretrained(request.module.FOLDER)


@pytest.fixture(scope="module")
def tokenizer(request):
    return AutoTokenizer.from_pretrained(request.module.FOLDER)


@pytest.fixture(scope="module")
def figures(request):
    return json.loads((request.module.FOLDER / "build.json").read_text())["figures"]
