"""The Snakemake workflow: rules, and `planning`, what they are made of."""
