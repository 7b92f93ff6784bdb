"""Choice of the micro-batch by free memory; refusal of models that cannot fit."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from magellan.core.codec import Codec, PackedState
from magellan.core.errors import OutOfMemoryError, is_out_of_memory
from magellan.model.files import backbone_folder, number_of_weights
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import World

SHARE = 0.8
"""Share of the free memory for an update; the rest is for fragmentation and other processes."""
TRIED = 4
"""States of the second measured pass; it needs the memory of three states more than the first."""
ENVIRONMENTS, STEPS = 16, 12
MB = 1e6
CGROUPS = Path("/sys/fs/cgroup")
SECOND_VERSION = "memory.max", "memory.current", "inactive_file"
FIRST_VERSION = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
"""By version of control groups: files of limit and use, key of the file cache in memory.stat."""


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
    in_groups = _free_in_groups()
    return available if in_groups is None else min(available, in_groups)


def _free_in_groups(own: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> int | None:
    """Free memory within this process's control groups: containers, jobs of a cluster."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    limits = [
        _free_in_group(group, files)
        for folder, files in _memory_groups(lines, root)
        for group in (folder, *folder.parents)
        if group.is_relative_to(root)
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def _memory_groups(lines: list[str], root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Folder of each memory control group, and the names of its files."""
    for line in lines:
        number, controllers, name = line.split(":", 2)
        if number == "0" and not controllers:
            yield root / name.strip("/"), SECOND_VERSION
        elif "memory" in controllers.split(","):
            yield root / "memory" / name.strip("/"), FIRST_VERSION


def _free_in_group(group: Path, files: tuple[str, str, str]) -> int | None:
    """Limit minus use, without the reclaimable file cache; None without a limit."""
    try:
        limit, used = (int((group / name).read_text(encoding="ascii")) for name in files[:2])
        stat = (group / "memory.stat").read_text(encoding="ascii").split()
        cache = int(stat[stat.index(files[2]) + 1])
    except (OSError, ValueError, IndexError):
        return None
    return max(limit - used + cache, 0)


class StoragePeak(TorchDispatchMode):
    """Peak memory, in bytes, of the tensors created in this context.

    For a CPU, where PyTorch keeps no count. Includes backward passes, but not the internal buffers
    of single operations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._live = 0
        self._counted: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run an operation and count the memory of its new tensors."""
        inputs = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if _is_tensor(t)}
        result = function(*args, **(kwargs or {}))
        for tensor in filter(_is_tensor, tree_leaves(result)):
            if id(tensor.untyped_storage()) not in inputs:
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._counted:
            return
        self._counted.add(key)
        self._live += size
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self._live -= size


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Peak memory that some work takes on a device, beyond what is in use."""
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
    """Memory that an update needs and memory that is free.

    fixed, per_state: bytes of any pass with gradients, and of each of its longest states.
    free: bytes on the device.
    device: its name.
    """

    fixed: int
    per_state: int
    free: int
    device: str

    def fitting(self, batch: int) -> int:
        """States per pass: the whole batch, or a power of two; 0 where not even one fits."""
        fit = math.floor((SHARE * self.free - self.fixed) / max(self.per_state, 1))
        if fit >= batch:
            return batch
        return 0 if fit < 1 else 2 ** int(math.log2(fit))

    def words(self, batch: int) -> str:
        """The choice and its reason, as text for the log."""
        return f"micro-batch {self.fitting(batch)} of {batch} states (auto: {self._figures()})"

    def _figures(self) -> str:
        return (
            f"{self.fixed / MB:,.0f} MB and {self.per_state / MB:,.1f} MB a state, "
            f"{self.free / MB:,.0f} MB free on {self.device}"
        )

    def check(self) -> None:
        """Raise OutOfMemoryError if not even one state fits."""
        if self.fitting(1) == 0:
            raise OutOfMemoryError(
                f"backend.micro_batch: 'auto': not even one state fits ({self._figures()}, of "
                f"which {SHARE:.0%} may be used); it needs more memory, or "
                "backend.gradient_checkpointing: true, or a smaller model"
            )


def measured_room(work: Callable[[int], object], device: torch.device, name: str) -> Room:
    """Measure two small passes.

    Args:
        work: runs a pass with gradients over this many of the longest states.
        device: where it runs.
        name: of the device, for messages.

    Raises:
        OutOfMemoryError: the first pass does not fit.
    """
    work(1)  # allocates what stays
    free = free_bytes(device)
    try:
        one, several = (peak_bytes(partial(work, n), device) for n in (1, TRIED))
    except Exception as error:  # the type is the library's choice
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"backend.micro_batch: 'auto': {TRIED} states do not fit into {free / MB:,.0f} MB on "
            f"{name}; it needs more memory, or backend.gradient_checkpointing: true"
        ) from error
    per_state = max((several - one) // (TRIED - 1), 1)
    return Room(max(one - per_state, 0), per_state, free, name)


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
