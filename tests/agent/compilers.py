"""Whether this machine can compile the passes."""

import pytest

from magellan.fastpath import SOURCE
from magellan.fastpath.compiler import NotCompiledError, load

try:
    load(SOURCE)
    MISSING = ""
except NotCompiledError as error:
    MISSING = str(error)

needs_compiler = pytest.mark.skipif(bool(MISSING), reason=f"not compiled: {MISSING}")
