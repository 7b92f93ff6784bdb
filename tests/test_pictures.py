"""Committed pictures are what the code draws of the tables beside them."""

import pytest

from analysis.report.pictures import is_up_to_date, pictures_in
from tests.snippets import ROOT

PICTURES = list(pictures_in(ROOT / "results/reference"))


@pytest.mark.slow
@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: "/".join(picture.parts[-2:]))
def test_a_committed_picture_is_what_the_code_draws(picture):
    """What it shows, in words and rounded numbers: pixels may differ between machines."""
    assert is_up_to_date(picture), "first: python -m analysis pictures results/reference"


def test_all_pictures_of_pages_are_looked_at():
    assert len(PICTURES) >= 17
