"""Curricula in other trainers: TRL, verl, prime-rl. Not imported by the rest of the package."""
