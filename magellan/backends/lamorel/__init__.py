"""The model behind lamorel's servers: the same updates in other processes (docs/lamorel.md).

`remote` is what the trainer's process has, `serving` what each server has, `server` how lamorel
reaches that, `connection` brings all into being. Importing this package imports neither lamorel
nor torch.
"""

from __future__ import annotations

from magellan.backends.lamorel.remote import LamorelBackend, ServerError

__all__ = ["LamorelBackend", "ServerError"]
