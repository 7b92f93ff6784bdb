"""The training loop: collect, update, evaluate, record."""
