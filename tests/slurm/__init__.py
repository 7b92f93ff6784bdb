"""The fault campaign on a real one-node Slurm: `make test-slurm`, or `python -m tests.slurm`."""
