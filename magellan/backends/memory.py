"""Micro-batches from the memory that is free, and what cannot fit at all."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from magellan.core.codec import Codec, PackedState
from magellan.core.errors import OutOfMemoryError, is_out_of_memory
from magellan.model.files import backbone_folder, number_of_weights
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import World

SHARE = 0.8
"""Of the free memory that an update may take; the rest is for gaps in it, and for others."""
TRIED = 4
"""States of the second measured pass: what it takes more than the first is three states' memory."""
ENVIRONMENTS, STEPS = 16, 12
MB = 1e6
CGROUPS = Path("/sys/fs/cgroup")
SECOND_VERSION = "memory.max", "memory.current", "inactive_file"
FIRST_VERSION = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
"""Files of a control group with its limit and its use, and its cache of files in memory.stat."""


def check_room(backbone: BackboneConfig, backend: BackendConfig, device: torch.device) -> None:
    """The weights alone must be smaller than the free memory.

    Raises:
        OutOfMemoryError: they are not.
    """
    numbers = number_of_weights(backbone_folder(backbone.model))
    width = torch.finfo(getattr(torch, backend.dtype)).bits / 8
    if backbone.quantization != "none":
        width = 0.5
    copies = 2 if backbone.lora_mode == "merged" else 1
    there = free_bytes(device)
    wanted = int(numbers * width * copies)
    if there is not None and wanted > there:
        raise OutOfMemoryError(
            f"backbone.model: the weights of {backbone.model!r} take {wanted / MB:,.0f} MB, "
            f"{there / MB:,.0f} MB are free on {device}; it needs more memory, bfloat16, or a "
            "smaller model"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that this process may still take on a device; None where the system does not say."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    known = [each for each in (_available(), _left_to_group()) if each is not None]
    return min(known, default=None)


def _available() -> int | None:
    """What Linux can give without swapping."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def _left_to_group(own: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> int | None:
    """What the control groups around this process leave it: containers, jobs of a cluster."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    left = [
        _left_in(group, files)
        for folder, files in _groups(lines, root)
        for group in (folder, *folder.parents)
        if group.is_relative_to(root)
    ]
    return min((each for each in left if each is not None), default=None)


def _groups(lines: list[str], root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Folder of each group of memory, and what its files are called there."""
    for line in lines:
        number, controllers, name = line.split(":", 2)
        if number == "0" and not controllers:
            yield root / name.strip("/"), SECOND_VERSION
        elif "memory" in controllers.split(","):
            yield root / "memory" / name.strip("/"), FIRST_VERSION


def _left_in(group: Path, files: tuple[str, str, str]) -> int | None:
    """Limit minus use, without the cache of files, which gives way; None without a limit."""
    try:
        limit, used = (int((group / name).read_text(encoding="ascii")) for name in files[:2])
        stat = (group / "memory.stat").read_text(encoding="ascii").split()
        cache = int(stat[stat.index(files[2]) + 1])
    except (OSError, ValueError, IndexError):
        return None
    return max(limit - used + cache, 0)


class StoragePeak(TorchDispatchMode):
    """Largest memory of all tensors that were made inside and lived at one time, bytes.

    For a CPU, where PyTorch does not count. Backward passes are inside as well; what a single
    operation takes for itself is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._live = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Do what would have been done, and count what it made."""
        given = {id(each.untyped_storage()) for each in tree_leaves((args, kwargs)) if _is(each)}
        made = function(*args, **(kwargs or {}))
        for each in filter(_is, tree_leaves(made)):
            if id(each.untyped_storage()) not in given:
                self._count(each.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self._live += size
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._live -= size


def _is(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Largest memory that some work takes on a device beyond what is taken already."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with StoragePeak() as counted:
        work()
    return counted.peak


@dataclass(frozen=True)
class Room:
    """What an update may take, and what it takes.

    fixed, each: bytes of any pass with gradients, and of each of its longest states.
    free: bytes on the device.
    device: in words.
    """

    fixed: int
    each: int
    free: int
    device: str

    def fitting(self, batch: int) -> int:
        """States per pass: the whole batch, or a power of two; 0 where not even one fits."""
        fit = math.floor((SHARE * self.free - self.fixed) / max(self.each, 1))
        if fit >= batch:
            return batch
        return 0 if fit < 1 else 2 ** int(math.log2(fit))

    def words(self, batch: int) -> str:
        """The choice and its reason, for the log."""
        return f"micro-batch {self.fitting(batch)} of {batch} states (auto: {self._figures()})"

    def _figures(self) -> str:
        return (
            f"{self.fixed / MB:,.0f} MB and {self.each / MB:,.1f} MB a state, "
            f"{self.free / MB:,.0f} MB free on {self.device}"
        )

    def check(self) -> None:
        """At least one state must fit.

        Raises:
            OutOfMemoryError: it does not.
        """
        if self.fitting(1) == 0:
            raise OutOfMemoryError(
                f"backend.micro_batch: 'auto': not even one state fits ({self._figures()}, of "
                f"which {SHARE:.0%} may be used); it needs more memory, or "
                "backend.gradient_checkpointing: true, or a smaller model"
            )


def measured_room(work: Callable[[int], object], device: torch.device, words: str) -> Room | None:
    """Memory of a pass by its number of states, from two small ones; None if none can be known.

    Args:
        work: a pass with gradients over so many of the longest states.
        device: where it computes, in `words` for people.

    Raises:
        OutOfMemoryError: the first pass does not fit.
    """
    work(1)  # what is made once and kept
    free = free_bytes(device)
    if free is None:
        return None
    try:
        one, some = (peak_bytes(partial(work, n), device) for n in (1, TRIED))
    except Exception as error:  # the library's own kinds
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"backend.micro_batch: 'auto': {TRIED} states do not fit into {free / MB:,.0f} MB on "
            f"{words}; it needs more memory, or backend.gradient_checkpointing: true"
        ) from error
    each = max((some - one) // (TRIED - 1), 1)
    return Room(max(one - each, 0), each, free, words)


def longest_state(codec: Codec, world: World) -> PackedState:
    """The state with most tokens in some random play."""
    goals = world.unseen(ENVIRONMENTS, 0)
    rng = np.random.default_rng(0)
    env = world.environment(min(len(goals), ENVIRONMENTS))
    n = min(len(goals), ENVIRONMENTS)
    env.reset(seed=0, options={"goals": [goals.goal(each) for each in range(n)]})
    found: list[PackedState] = []
    for _ in range(STEPS):
        possible = env.possible_actions
        found += codec.pack(env.prompts(), possible)
        actions = np.array([rng.integers(len(each)) for each in possible])
        _, _, terminated, truncated, _ = env.step(actions)
        ended = terminated | truncated
        if ended.any():
            again = [goals.goal(int(each)) for each in np.flatnonzero(ended)]
            env.reset(options={"reset_mask": ended, "goals": again})
    return max(found, key=lambda state: len(state.tokens))
