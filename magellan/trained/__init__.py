"""Agents that runs have left: read from checkpoints, exported, watched."""
