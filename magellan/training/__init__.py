"""The training core: collect, learn, evaluate, record, checkpoint."""
