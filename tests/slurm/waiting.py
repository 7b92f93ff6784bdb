"""Waiting for states instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


class CampaignError(Exception):
    """The campaign cannot go on; the message says what was waited for or refused."""


def wait_until(
    condition: Callable[[], Found], what: str, seconds: float = 400.0, pause: float = 0.2
) -> Found:
    """The first true value of `condition`.

    Raises:
        CampaignError: it did not come within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise CampaignError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(pause)
    return found
