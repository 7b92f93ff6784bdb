"""The Snakemake workflow: rules, and `planning` with their inputs and arguments."""
