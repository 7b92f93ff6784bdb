"""Runs started by lamorel's launcher, with the configuration keys of the paper's repository."""
