"""`python -m magellan`."""

import sys

from magellan.cli import main

sys.exit(main())
