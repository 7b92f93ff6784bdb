"""Two states that the agent's tests share: five distinct candidates, and two equal ones."""

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
