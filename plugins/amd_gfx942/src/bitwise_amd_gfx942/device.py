"""Access to a GPU through hip-python: availability, device memory, launches of kernels from code objects.

hip-python is imported inside functions, because it loads ROCm's library libamdhip64 at the first call of a function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from bitwise_core.numerics import Bits


class DeviceError(RuntimeError):
    """A call of the driver failed; the message names the call and the driver's error."""


def missing_device(architecture: str) -> str | None:
    """The reason why this machine cannot run code of an architecture, as a clause; None if it can."""
    if find_spec("hip") is None:
        return "hip-python is not installed (pip install hip-python)"
    from hip import hip

    try:
        count = _result_of("hipGetDeviceCount", hip.hipGetDeviceCount())
    except RuntimeError as error:
        if isinstance(error, DeviceError):
            return f"there is no AMD GPU that ROCm can use ({error})"
        return f"ROCm's library libamdhip64 cannot be loaded ({_one_line(error)}): install ROCm, or set ROCM_PATH"
    if not count:
        return "there is no AMD GPU that ROCm can use"
    found = device_architecture()
    return None if found == architecture else f"the GPU is a {found}, not a {architecture}"


def device_architecture() -> str:
    """The architecture of the current device without its feature suffixes: gfx942 for gfx942:sramecc+:xnack-.

    Raises DeviceError.
    """
    from hip import hip

    device = _result_of("hipGetDevice", hip.hipGetDevice())
    properties = _result_of("hipGetDeviceProperties", hip.hipGetDeviceProperties(device))
    name = properties.gcnArchName
    text = name.decode() if isinstance(name, bytes) else str(name)
    return text.split("\0")[0].split(":")[0]


def run_kernel(
    code: bytes,
    name: str,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    arguments: Sequence[Bits | ctypes._SimpleCData[Any] | None],
    results: Sequence[Bits],
) -> list[Bits]:
    """Run the kernel `name` of a code object and return the contents of the buffers of `results` afterwards.

    `arguments` are the kernel's arguments in order: an array is copied to the device and passed as its address,
    None is the null pointer.  `results` are some of these arrays.  `threads` is the block size.  Raises DeviceError.
    """
    from hip import hip

    buffers: dict[int, tuple[Any, Bits]] = {}
    with _loaded(code) as module, _memory(buffers):
        function = _result_of("hipModuleGetFunction", hip.hipModuleGetFunction(module, name.encode()))
        kernel_arguments: list[ctypes._SimpleCData[Any]] = []
        for argument in arguments:
            if argument is None:
                kernel_arguments.append(ctypes.c_void_p(None))
            elif isinstance(argument, np.ndarray):
                if id(argument) not in buffers:
                    buffers[id(argument)] = (_copy_to_device(argument), argument)
                kernel_arguments.append(ctypes.c_void_p(_address(buffers[id(argument)][0])))
            else:
                kernel_arguments.append(argument)
        _result_of(
            "hipModuleLaunchKernel",
            hip.hipModuleLaunchKernel(
                function, *grid, threads, 1, 1, sharedMemBytes=shared_bytes, stream=None, kernelParams=None,
                extra=tuple(kernel_arguments),
            ),
        )  # fmt: skip
        _result_of("hipDeviceSynchronize", hip.hipDeviceSynchronize())
        return [_copy_from_device(buffers[id(result)][0], result) for result in results]


@contextmanager
def _loaded(code: bytes) -> Iterator[Any]:
    from hip import hip

    module = _result_of("hipModuleLoadData", hip.hipModuleLoadData(code))
    try:
        yield module
    finally:
        _result_of("hipModuleUnload", hip.hipModuleUnload(module))


@contextmanager
def _memory(buffers: dict[int, tuple[Any, Bits]]) -> Iterator[None]:
    from hip import hip

    try:
        yield
    finally:
        for memory, _ in buffers.values():
            _result_of("hipFree", hip.hipFree(memory))


def _copy_to_device(array: Bits) -> Any:
    from hip import hip

    dense = np.ascontiguousarray(array)
    memory = _result_of("hipMalloc", hip.hipMalloc(max(1, dense.nbytes)))
    if dense.nbytes:
        direction = hip.hipMemcpyKind.hipMemcpyHostToDevice
        _result_of("hipMemcpy", hip.hipMemcpy(memory, dense, dense.nbytes, direction))
    return memory


def _copy_from_device(memory: Any, like: Bits) -> Bits:
    from hip import hip

    found = np.empty(like.shape, like.dtype)
    if found.nbytes:
        direction = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        _result_of("hipMemcpy", hip.hipMemcpy(found, memory, found.nbytes, direction))
    return found


def _address(memory: Any) -> int:
    return int(memory.as_c_void_p().value or 0)


def _result_of(name: str, result: Any) -> Any:
    """The values that a call returns after its error code: None, one value, or a tuple.  Raises DeviceError."""
    code, *values = result if isinstance(result, tuple) else (result,)
    if int(code) != 0:
        raise DeviceError(f"{name} failed with {getattr(code, 'name', code)}")
    return values[0] if len(values) == 1 else tuple(values) or None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).replace("b'", "").replace("'", "").split())
