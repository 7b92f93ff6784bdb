"""The model behind lamorel's servers: the same updates in other processes (docs/lamorel.md).

`remote` runs in the trainer's process, `serving` in each server, `server` adapts it to lamorel's
classes, and `connection` starts both sides. Importing this package imports neither lamorel nor
torch.
"""

from __future__ import annotations

from magellan.backends.lamorel.remote import LamorelBackend, ServerError

__all__ = ["LamorelBackend", "ServerError"]
