"""The model behind lamorel's servers: the same updates in other processes (docs/lamorel.md).

`remote` runs in the trainer's process, `serving` in each server, and `connection` starts both sides
and adapts them to lamorel's classes. Importing this package imports neither lamorel nor torch.
"""
