"""A configuration value passes through few files."""

import pytest

from tests.training.following import VALUES, follow, table

MOST_FILES, MOST_BACK = 5, 0


@pytest.mark.slow
def test_ways_are_short():
    for line in table().splitlines()[2:]:
        _, files, _, back = (cell.strip() for cell in line.strip("|").split("|"))
        assert 0 < int(files) <= MOST_FILES
        assert int(back) <= MOST_BACK


def test_a_value_is_found_where_it_ends():
    """The optimizer is the last to receive a learning rate."""
    assert follow("competence.learning_rate").files[-1] == "agent/learning.py"
    assert len(VALUES) == 6
