"""Tests compute with one thread, whatever another test left behind."""

import os

import pytest
import torch

from magellan.backends.machine import settle
from tests.conftest import THREADS, VARIABLES


@pytest.mark.parametrize("left_behind", [2, 1])
def test_each_test_starts_with_its_threads(left_behind):
    assert torch.get_num_threads() == THREADS
    assert {os.environ[name] for name in VARIABLES} == {str(THREADS)}
    settle(left_behind)
    os.environ[VARIABLES[0]] = str(left_behind)
    assert torch.get_num_threads() == left_behind
