"""What must hold after a fault: tests name it with their cases, docs/faults.md lists it."""

from importlib import import_module
from pathlib import Path

import pytest

SAME = "identical tables"
INTACT = "one clear error, last good state intact"
UNTOUCHED = "one clear error, nothing touched"
SAVED = f"saved, exit status 75, then {SAME}"
_FAULTS: dict[str, dict[str, int]] = {}


def listed(promise: str, what: str, cases) -> list:
    """The cases of a fault, after which a promise holds."""
    cases = list(cases)
    _FAULTS.setdefault(promise, {})[what] = len(cases)
    return cases


def fault(promise: str, what: str, names: str, cases):
    """Mark a test as that of a fault, with its arguments for each case."""
    return pytest.mark.parametrize(names, listed(promise, what, cases))


def table() -> str:
    """The list of docs/faults.md: for each promise what is done to the job, and how often."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        import_module(f"tests.faults.{path.stem}")
    lines = []
    for promise, faults in sorted(_FAULTS.items()):
        counted = "; ".join(f"{what} ({n})" for what, n in sorted(faults.items()))
        lines.append(f"- **{promise}**: {counted}")
    return "\n".join([*lines, f"- all: {sum(sum(faults.values()) for faults in _FAULTS.values())}"])
