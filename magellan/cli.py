"""The command line: the list of commands, and errors as one line."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Sequence

from magellan.core.arguments import command
from magellan.core.errors import InputError, JobError, is_out_of_memory, out_of_memory
from magellan.jobs import command as _train  # noqa: F401
from magellan.pretraining import command as _backbone  # noqa: F401
from magellan.tools import commands as _tools  # noqa: F401

MODEL_PACKAGES = (
    *("filelock", "huggingface_hub", "jinja2", "peft", "safetensors", "tokenizers", "torch"),
    *("tqdm", "transformers"),
)
INSTALL_MODELS = "pip install 'magellan-bench[model]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or after an error its `exit_status`."""
    try:
        return command.run(arguments)
    except (InputError, JobError) as error:
        return _report(error)
    except ModuleNotFoundError as error:
        if error.name not in MODEL_PACKAGES:
            raise
        return _report(InputError(f"the package {error.name} is missing; run: {INSTALL_MODELS}"))
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            return _report(InputError(f"standard output cannot be written ({error.strerror})"))
        if not is_out_of_memory(error):
            raise
        return _report(out_of_memory(error))


def _report(error: InputError | JobError) -> int:
    """Print an error; return its exit status."""
    with contextlib.suppress(OSError):
        print(f"{error.label}: {error}", file=sys.stderr, flush=True)
    return error.exit_status
