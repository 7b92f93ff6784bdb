"""Goals of the five kinds of BabyAI-Text, about objects with colours; two colours are held out."""

from __future__ import annotations

from functools import cache

KINDS = ("go_to", "pick_up", "open_door", "put_next_to", "pick_up_then_go_to")
COLORS = {"train": ("red", "green", "blue", "purple"), "unseen": ("yellow", "grey")}
TYPES = ("ball", "box", "key")
PLACES = ("", " on your left", " on your right", " in front of you", " behind you")


@cache
def texts(split: str) -> tuple[tuple[str, ...], ...]:
    """Return all goals of a split by kind.

    An unseen goal is about objects with held-out colours only.
    """
    colors = COLORS[split]
    objects = [f"the {color} {kind}" for color in colors for kind in TYPES]
    doors = [f"the {color} door" for color in colors]
    placed = [f"{thing}{place}" for thing in objects for place in PLACES]
    pairs = [(a, b) for a in objects for b in objects if a != b]
    return (
        tuple(f"go to {each}" for each in placed),
        tuple(f"pick up {each}" for each in placed),
        tuple(f"open {door}{place}" for door in doors for place in PLACES),
        tuple(f"put {a} next to {b}" for a, b in pairs),
        tuple(f"pick up {a} then go to {b}" for a, b in pairs),
    )
