"""Errors that a user can mend."""


class InputError(ValueError):
    """Bad input: one line that names the key, the value and what is allowed."""
