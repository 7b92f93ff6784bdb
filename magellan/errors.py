"""Errors that a user can mend."""

from __future__ import annotations

import reprlib
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 160
_SHORT.maxlong = 40
_SHORT.maxlevel = 3


class InputError(ValueError):
    """Bad input: one line that names the key, the value and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__("\\n".join(message.splitlines()))


def shown(value: Any) -> str:
    """A value as it stands in an error: its repr, cut where it would fill the screen."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python does not print whole numbers of more than 4,300 digits
        return f"{type(value).__name__} too long to show"
