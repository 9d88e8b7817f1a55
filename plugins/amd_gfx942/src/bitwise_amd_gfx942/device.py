"""A GPU through hip-python: what is missing for one, its memory, and kernels loaded from code objects.

hip-python is imported inside functions: it loads ROCm's library libamdhip64 when its first function is called.
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
    """A call of the driver failed; the message names the call and the driver's word for what went wrong."""


def missing_device(architecture: str) -> str | None:
    """What this machine lacks to run code of an architecture, as the end of a sentence; None where nothing is."""
    if find_spec("hip") is None:
        return "hip-python is not installed (pip install hip-python)"
    from hip import hip

    try:
        count = _called("hipGetDeviceCount", hip.hipGetDeviceCount())
    except RuntimeError as error:
        if isinstance(error, DeviceError):
            return f"there is no AMD GPU that ROCm can use ({error})"
        return f"ROCm's library libamdhip64 cannot be loaded ({_plain(error)}): install ROCm, or set ROCM_PATH"
    if not count:
        return "there is no AMD GPU that ROCm can use"
    found = device_architecture()
    return None if found == architecture else f"the GPU is a {found}, not a {architecture}"


def device_architecture() -> str:
    """The architecture of the current device without its features: gfx942 of gfx942:sramecc+:xnack-.

    Raises DeviceError.
    """
    from hip import hip

    device = _called("hipGetDevice", hip.hipGetDevice())
    properties = _called("hipGetDeviceProperties", hip.hipGetDeviceProperties(device))
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
    """Runs the kernel `name` of a code object and gives back the buffers of `results`, as the kernel left them.

    `arguments` fill the kernel's parameters in order: an array is copied to the device and passed as its address,
    None is the null pointer.  `results` are some of these arrays.  Raises DeviceError.
    """
    from hip import hip

    held: dict[int, tuple[Any, Bits]] = {}
    with _loaded(code) as module, _memory(held):
        function = _called("hipModuleGetFunction", hip.hipModuleGetFunction(module, name.encode()))
        passed: list[ctypes._SimpleCData[Any]] = []
        for argument in arguments:
            if argument is None:
                passed.append(ctypes.c_void_p(None))
            elif isinstance(argument, np.ndarray):
                if id(argument) not in held:
                    held[id(argument)] = (_copied(argument), argument)
                passed.append(ctypes.c_void_p(_address(held[id(argument)][0])))
            else:
                passed.append(argument)
        _called(
            "hipModuleLaunchKernel",
            hip.hipModuleLaunchKernel(
                function, *grid, threads, 1, 1, sharedMemBytes=shared_bytes, stream=None, kernelParams=None,
                extra=tuple(passed),
            ),
        )  # fmt: skip
        _called("hipDeviceSynchronize", hip.hipDeviceSynchronize())
        return [_fetched(held[id(result)][0], result) for result in results]


@contextmanager
def _loaded(code: bytes) -> Iterator[Any]:
    from hip import hip

    module = _called("hipModuleLoadData", hip.hipModuleLoadData(code))
    try:
        yield module
    finally:
        _called("hipModuleUnload", hip.hipModuleUnload(module))


@contextmanager
def _memory(held: dict[int, tuple[Any, Bits]]) -> Iterator[None]:
    from hip import hip

    try:
        yield
    finally:
        for memory, _ in held.values():
            _called("hipFree", hip.hipFree(memory))


def _copied(array: Bits) -> Any:
    from hip import hip

    dense = np.ascontiguousarray(array)
    memory = _called("hipMalloc", hip.hipMalloc(max(1, dense.nbytes)))
    if dense.nbytes:
        direction = hip.hipMemcpyKind.hipMemcpyHostToDevice
        _called("hipMemcpy", hip.hipMemcpy(memory, dense, dense.nbytes, direction))
    return memory


def _fetched(memory: Any, like: Bits) -> Bits:
    from hip import hip

    found = np.empty(like.shape, like.dtype)
    if found.nbytes:
        direction = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        _called("hipMemcpy", hip.hipMemcpy(found, memory, found.nbytes, direction))
    return found


def _address(memory: Any) -> int:
    return int(memory.as_c_void_p().value or 0)


def _called(name: str, result: Any) -> Any:
    """What a call gives back beside its error code: nothing, one value, or several.  Raises DeviceError."""
    code, *values = result if isinstance(result, tuple) else (result,)
    if int(code) != 0:
        raise DeviceError(f"{name} answers {getattr(code, 'name', code)}")
    return values[0] if len(values) == 1 else tuple(values) or None


def _plain(error: BaseException) -> str:
    return " ".join(str(error).replace("b'", "").replace("'", "").split())
