"""`python -m magellan`."""

import sys


def run() -> int:
    """Run the command line; return the exit status."""
    from magellan.core.environment import prepare

    prepare()
    from magellan.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
