"""Tables of runs: planning, coverage, checks, and one tidy frame of all runs."""
