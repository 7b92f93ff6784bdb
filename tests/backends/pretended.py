"""A GPU that is not there: placement is checked as CUDA checks it, a CPU does the arithmetic.

PyTorch without a GPU refuses `device="cuda"`, so on such a machine no line of the GPU's way would
ever be run. Here it is. A tensor that is put on `cuda` holds a tensor of the CPU, says `cuda:0`,
and keeps to CUDA's rules: what is computed from it lies there too; it cannot be computed with a
tensor of the CPU (numbers and indices apart), nor read by NumPy, nor drawn with a CPU's generator.

What it cannot show: what a GPU's own kernels do (rounding, memory, speed, fused attention, which
of them refuse to be deterministic), its random stream, and C++ that looks a device up by itself.
Autocast changes nothing here. Where a pretended GPU has been, PyTorch takes CUDA for initialised:
asked for `cuda`, it fails with other words.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

HERE = torch.device("cuda:0")
# What PyTorch's C++ takes it for: autograd needs no device thread for it. The number tells it from
# the device `meta` that a caller means.
INSIDE = torch.device("meta", 1)
CPU = torch.device("cpu")
FREE = 8 * 2**30
aten = torch.ops.aten
# Calls in which two places may meet: copies, and indices, which CUDA takes from the CPU as well.
MEETING = {aten.copy_.default, aten._to_copy.default, aten._index_put_impl_.default}
MEETING |= {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
MEETING |= {aten._unsafe_index.Tensor}
# What torch.cuda answers.
ANSWERS = {
    **dict.fromkeys(("_lazy_init", "reset_peak_memory_stats", "synchronize", "empty_cache")),
    **dict.fromkeys(("set_device", "set_rng_state")),
    **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
    **dict.fromkeys(("current_device", "memory_allocated", "memory_reserved"), 0),
    "device_count": 1,
    "max_memory_allocated": 2**20,
    "mem_get_info": (FREE, FREE),
    "get_device_name": "pretended GPU",
    "get_device_capability": (9, 0),
}


class OnGpu(torch.Tensor):
    held: torch.Tensor
    device = property(lambda self: HERE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "OnGpu":
        form = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        form |= {"dtype": held.dtype, "device": INSIDE}
        made = torch.Tensor._make_wrapper_subclass(cls, held.size(), **form)
        made.held = held
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Lets `Module.to` put a tensor of this class in a parameter's place."""
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], *_: Any) -> "OnGpu":
        return OnGpu(parts["held"])

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        if function == torch.Tensor.data.__set__:
            args[0].held = args[1].held
        if function is torch.Tensor.tolist:
            return args[0].held.tolist()
        if function is torch.Tensor.to and _stays(*args, **kwargs):
            return args[0]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return compute(function, args, kwargs or {})


class Made(TorchDispatchMode):
    """Catches what is made on `cuda` or moved there, where no argument lies there yet."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return compute(function, args, kwargs or {})


class Numbered(TorchFunctionMode):
    """`cuda` is its first GPU; PyTorch asks a driver which one it is."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function is not torch.device:
            args, kwargs = tree_map(_numbered, (args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def _stays(tensor: OnGpu, *args: Any, copy: bool = False, **kwargs: Any) -> bool:
    """Whether `Tensor.to` has nothing to do, and gives the tensor itself back."""
    if copy or (args and isinstance(args[0], torch.Tensor)) or "other" in kwargs:
        return False
    device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
    there = device is None or device.type == "cuda"
    return there and dtype in (None, tensor.dtype) and layout is None


def _numbered(value: Any) -> Any:
    unnumbered = isinstance(value, torch.device) and value.type == "cuda" and value.index is None
    return HERE if unnumbered or (isinstance(value, str) and value == "cuda") else value


def compute(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation, on a CPU; its results lie where CUDA would leave them.

    Raises:
        RuntimeError: tensors or a generator of two devices, where CUDA takes one; a GPU that is
            not there; or a tensor that C++ gave another shape behind its back.
    """
    there = [value for value in tree_leaves((args, kwargs)) if isinstance(value, OnGpu)]
    target = kwargs.get("device")
    on_gpu = bool(there) if target is None else _is_gpu(torch.device(target))
    if function is aten.copy_.default:
        on_gpu = isinstance(args[0], OnGpu)
    generator = kwargs.get("generator")
    if on_gpu and generator is not None and generator.device.type != "cuda":
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if there and function not in MEETING:
        for tensor in tree_leaves((args, kwargs)):
            here = isinstance(tensor, torch.Tensor) and not isinstance(tensor, OnGpu)
            if here and tensor.dim():  # a number may lie anywhere
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but {function} found {HERE} "
                    "and cpu"
                )
    if function is aten._fused_sdp_choice.default and there:
        return 0  # attention by its formula
    if on_gpu and target is not None:
        kwargs = {**kwargs, "device": CPU}
        kwargs.pop("pin_memory", None)
    known = {id(value.held): value for value in there}

    def outside(value: Any) -> Any:
        if not on_gpu or not isinstance(value, torch.Tensor):
            return value
        found = known[id(value)] if id(value) in known else OnGpu(value)
        if found.shape != value.shape:
            raise RuntimeError(f"{function} changes a shape in place: not pretended")
        return found

    found = function(*tree_map(_inside, args), **tree_map(_inside, kwargs))
    return tree_map(outside, found)


def _is_gpu(device: torch.device) -> bool:
    if device.type == "cuda" and device.index:
        raise RuntimeError(f"{device}: there is one pretended GPU, {HERE}")
    return device.type == "cuda" or device == INSIDE


def _inside(value: Any) -> Any:
    return value.held if isinstance(value, OnGpu) else value


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Within it `cuda` is there: one GPU, 8 GB free."""
    with pytest.MonkeyPatch.context() as patch, Made(), Numbered():
        patch.setattr(torch.backends.cuda, "is_built", _answer(True))
        # A build with CUDA would ask its driver here.
        patch.setattr(torch.accelerator, "current_accelerator", _answer(None))
        for name, value in ANSWERS.items():
            patch.setattr(torch.cuda, name, _answer(value))
        patch.setattr(torch.cuda, "get_rng_state", _answer(torch.zeros(1, dtype=torch.uint8)))
        lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(..., device="cuda")` comes by
        try:
            yield
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)
