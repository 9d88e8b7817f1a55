"""Calls that are ready to run again, in C: `ready_calls.c`, for the most frequent calls of GPU tensors.

It reads tensors through the stable functions for C that PyTorch exports, and is used only where these return the same
properties of tensors as PyTorch's Python interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from bitwise_core.caching.c_modules import c_module
from bitwise_core.plugins import registry

_READ = ("data_ptr", "sizes", "strides", "dim", "dtype", "device_type", "device_index")
"""What the module reads of a tensor, by the ends of the names of PyTorch's functions."""


@cache
def module() -> Any:
    """Return the module, None where it cannot be compiled, and where PyTorch serves no GPUs or has other functions.

    No GPU is asked for: a process that forks others must not have a context.
    """
    import torch

    current_device = getattr(torch._C, "_cuda_getDevice", None)
    return None if current_device is None or not torch.backends.cuda.is_built() else configured(current_device)


def configured(current_device: Callable[[], int]) -> Any:
    """Return the module for a function that returns the current device, None where it cannot be used."""
    import torch

    found: Any = c_module(Path(__file__).with_name("ready_calls.c"))
    if found is None:
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        functions = [getattr(library, f"aoti_torch_get_{name}") for name in _READ]
    except (AttributeError, OSError):
        return None
    addresses = tuple(ctypes.cast(each, ctypes.c_void_p).value for each in functions)
    found.configure(addresses, torch.Tensor, torch.nn.Parameter, torch.dtype, registry, current_device)
    return found if _reads_tensors(found) else None


def _reads_tensors(found: Any) -> bool:
    """Return whether the module reads samples as they are."""
    import torch

    dtypes = torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool
    codes = {found.described(torch.empty(1, dtype=each))[2] for each in dtypes}
    x = torch.empty(4, 6, 5, dtype=torch.bfloat16)
    samples = [x, x[1:], x[:, 1, 2:], x.transpose(0, 2)[::2], torch.empty(()), torch.nn.Parameter(x)]
    return len(codes) == len(dtypes) and all(found.described(each) == _description(each) for each in samples)


def _description(x: Any) -> tuple[int, ...]:
    """Return what the module should say of a tensor on the CPU, of bf16 but for one without axes."""
    from torch.nn import Parameter

    at = x.data_ptr()
    dtype = 15 if x.dim() else 6  # the numbers of bf16 and fp32 in PyTorch's c10::ScalarType, which are stable
    head = 2 | isinstance(x, Parameter) << 8 | x.dim() << 16 | (at & -at & 255) << 32
    axes = [number for axis in zip(x.shape, x.stride(), strict=True) for number in axis]
    return at, head, dtype, x.get_device(), *axes
