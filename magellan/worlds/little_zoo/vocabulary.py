"""The 37 objects of Little-Zoo: kinds, food, names, and which are held out.

Little-Zoo is the text world of Gaven et al. 2025. An object is an id, its position in `OBJECTS`:
the 25 objects of the training split come first (24 types and water), so an id below `NUM_TRAIN` is
also the digit that stands for the object in a goal's code; the 12 held-out types follow.
"""

from magellan.core.errors import InputError

KINDS = ("furniture", "plant", "herbivore", "carnivore", "supply")
FURNITURE, PLANT, HERBIVORE, CARNIVORE, SUPPLY = range(len(KINDS))

TRAIN_TYPES = (
    ("door", "chair", "desk", "sofa", "bookshelf", "bed"),
    ("carrot", "potato", "berry", "onion", "tomato", "cucumber"),
    ("cow", "elephant", "bison", "deer", "sheep", "giraffe"),
    ("lion", "jackal", "bobcat", "panthera", "coyote", "wolf"),
    ("water",),
)
HELD_OUT_TYPES = (
    ("lamp", "table", "cupboard"),
    ("spinach", "broccoli", "lettuce"),
    ("goat", "horse", "rabbit"),
    ("leopard", "hyena", "tiger"),
    (),
)

TRAIN_OBJECTS = tuple(name for group in TRAIN_TYPES for name in group)
HELD_OUT_OBJECTS = tuple(name for group in HELD_OUT_TYPES for name in group)
OBJECTS = TRAIN_OBJECTS + HELD_OUT_OBJECTS
NUM_TRAIN = len(TRAIN_OBJECTS)
WATER = OBJECTS.index("water")

KIND_OF = tuple(
    kind
    for types in (TRAIN_TYPES, HELD_OUT_TYPES)
    for kind, group in enumerate(types)
    for _ in group
)
"""Kind of each object id, a position in `KINDS`."""

FOOD_OF = {PLANT: SUPPLY, HERBIVORE: PLANT, CARNIVORE: HERBIVORE}
"""Kind that grows -> kind that it eats. Other kinds never grow."""

_ID_OF = {name: identity for identity, name in enumerate(OBJECTS)}
_YOUNG_NAME = {PLANT: "{} seed", HERBIVORE: "baby {}", CARNIVORE: "baby {}"}


def object_id(name: str, key: str = "object") -> int:
    """Return the id of an object type; `InputError` (naming `key`) if there is no such type."""
    try:
        return _ID_OF[name]
    except (KeyError, TypeError):
        raise InputError(f"{key} = {name!r}: allowed are {', '.join(OBJECTS)}") from None


def display_name(identity: int, grown: bool) -> str:
    """Return the name in observations: "carrot seed" until it has grown, then "carrot"."""
    name = OBJECTS[identity]
    return name if grown else _YOUNG_NAME.get(KIND_OF[identity], "{}").format(name)


def feeds(food: int, food_grown: bool, eater: int) -> bool:
    """Return whether `eater` can eat `food`: water always, other food once grown."""
    return FOOD_OF.get(KIND_OF[eater]) == KIND_OF[food] and (food_grown or food == WATER)
