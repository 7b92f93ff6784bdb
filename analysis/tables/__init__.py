"""Tables of runs: what was planned, what is there, and one tidy frame of it."""
