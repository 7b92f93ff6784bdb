"""`python -m magellan`."""

import os
import sys


def run() -> int:
    """Entry point; gives the exit status."""
    # Large tensors on large pages. PyTorch looks at this once, before its first tensor.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from magellan.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
