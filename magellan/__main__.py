"""`python -m magellan`."""

import sys


def run() -> int:
    """Entry point; gives the exit status."""
    from magellan.core.environment import prepare

    prepare()
    from magellan.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
