"""A run in its folder: lock, attempts, checkpoints, stopping, export."""
