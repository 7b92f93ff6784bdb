"""Choice of the micro-batch by trial; refusal of models that cannot fit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import psutil
import torch

from magellan.core.codec import Codec, PackedState
from magellan.core.errors import OutOfMemoryError, is_out_of_memory
from magellan.model.files import backbone_folder, number_of_weights
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import World

SPARE = 1.25
"""States tried for each one of a micro-batch: room for what a run allocates later."""
ENVIRONMENTS, STEPS = 16, 12
MB = 1e6


def check_room(backbone: BackboneConfig, backend: BackendConfig, device: torch.device) -> None:
    """Check that the weights alone fit into the free memory.

    Raises:
        OutOfMemoryError: they are not.
    """
    weights = number_of_weights(backbone_folder(backbone.model))
    width = torch.finfo(getattr(torch, backend.dtype)).bits / 8
    if backbone.quantization != "none":
        width = 0.5
    copies = 2 if backbone.lora_mode == "merged" else 1
    free = free_bytes(device)
    needed = int(weights * width * copies)
    if needed > free:
        raise OutOfMemoryError(
            f"backbone.model: the weights of {backbone.model!r} take {needed / MB:,.0f} MB, "
            f"{free / MB:,.0f} MB are free on {device}; it needs more memory, bfloat16, or a "
            "smaller model"
        )


def free_bytes(device: torch.device) -> int:
    """Memory that this process may still take on a device."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    available: int = psutil.virtual_memory().available
    return available


def find_micro_batch(work: Callable[[int], object], batch: int, device: str) -> int:
    """The largest micro-batch that runs; smaller ones are tried after each out-of-memory error.

    Args:
        work: runs a pass with gradients over this many of the longest states.
        batch: states of an update, tried first.
        device: its name, for the message.

    Returns:
        states per pass, 1 to `batch`.

    Raises:
        OutOfMemoryError: not even one state fits.
    """
    from accelerate.utils import find_executable_batch_size

    def try_size(size: int) -> int:
        work(math.ceil(SPARE * size))
        return size

    try:
        return int(find_executable_batch_size(try_size, starting_batch_size=batch)())
    except Exception as error:  # the library has no type of its own
        if not (is_out_of_memory(error) or "reached zero" in str(error)):
            raise
        raise OutOfMemoryError(
            f"backend.micro_batch: 'auto': not even one state fits on {device}; it needs more "
            "memory, or backend.gradient_checkpointing: true, or a smaller model"
        ) from error


def longest_state(codec: Codec, world: World) -> PackedState:
    """The state with most tokens in a short random play."""
    goals = world.unseen(ENVIRONMENTS, 0)
    rng = np.random.default_rng(0)
    n = min(len(goals), ENVIRONMENTS)
    env = world.environment(n)
    env.reset(seed=0, options={"goals": [goals.goal(number) for number in range(n)]})
    states: list[PackedState] = []
    for _ in range(STEPS):
        candidates = env.possible_actions
        states += codec.pack(env.prompts(), candidates)
        actions = np.array([rng.integers(len(texts)) for texts in candidates])
        _, _, terminated, truncated, _ = env.step(actions)
        ended = terminated | truncated
        if ended.any():
            new_goals = [goals.goal(int(number)) for number in np.flatnonzero(ended)]
            env.reset(options={"reset_mask": ended, "goals": new_goals})
    return max(states, key=lambda state: len(state.tokens))
