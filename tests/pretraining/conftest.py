"""The model and tokenizer in a test file's `FOLDER`."""

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def model(request):
    return AutoModelForCausalLM.from_pretrained(request.module.FOLDER)


@pytest.fixture(scope="module")
def tokenizer(request):
    return AutoTokenizer.from_pretrained(request.module.FOLDER)
