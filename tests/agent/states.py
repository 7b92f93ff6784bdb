"""Two states that the agent's tests share: five distinct candidates, and two equal ones."""

from torch import Tensor

from magellan.model.scoring import Scores

PROMPTS = (
    "Goal: Grow lion\nYou see: baby lion, water, baby cow, carrot seed\n"
    "You are standing on: nothing\nInventory (0/2): empty\nAction: ",
    "Goal: Grasp water\nYou see: water\nYou are standing on: water\n"
    "Inventory (2/2): carrot seed, carrot seed\nAction: ",
)
CANDIDATES = (
    ("Grasp", "Go to baby lion", "Go to water", "Go to baby cow", "Go to carrot seed"),
    ("Grasp", "Go to water", "Release carrot seed", "Release carrot seed"),
)


def features_of(scores: Scores, row: int) -> Tensor:
    """Features of one state's candidates, in their order: (candidates, width)."""
    mine = (scores.slots // scores.log_policy.shape[1]) == row
    return scores.features[mine][scores.slots[mine].argsort()]
