"""Curricula in other trainers: TRL, verl. Not imported by the rest of the package."""
