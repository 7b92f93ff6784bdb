"""The architecture page lists the files that a configuration value passes through."""

import pytest

from tests.training.following import VALUES, follow, table
from tests.workflow.conftest import ROOT

MOST_FILES, MOST_BACK = 9, 4


@pytest.mark.slow
def test_the_page_has_the_ways_and_they_are_short():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    ways = table()
    assert f"<!-- begin: ways -->\n{ways}\n<!-- end: ways -->" in page
    for line in ways.splitlines()[2:]:
        _, files, _, back = (cell.strip() for cell in line.strip("|").split("|"))
        assert 0 < int(files) <= MOST_FILES
        assert int(back) <= MOST_BACK


def test_a_value_is_found_where_it_ends():
    """The optimizer is the last to receive a learning rate."""
    assert follow("competence.learning_rate").files[-1] == "agent/learning.py"
    assert len(VALUES) == 6
