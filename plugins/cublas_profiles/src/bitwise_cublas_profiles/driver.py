"""The current GPU and its driver, as provenance."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

UNKNOWN = "unknown"

NVML = "libnvidia-ml.so.1"
"""The library of the driver that describes its GPUs."""


def driver_version(library: str = NVML) -> str:
    """The driver's version from NVML, or `unknown`."""
    try:
        with _management(library) as functions:
            text = ctypes.create_string_buffer(81)
            failed = functions.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
    except (OSError, AttributeError):
        return UNKNOWN
    return UNKNOWN if failed else text.value.decode("ascii", "replace")


def installed_gpus(library: str = NVML) -> list[tuple[str, str]]:
    """The name and the compute capability of each GPU of the driver, such as "9.0".

    Raises OSError where there is no driver, or where it does not answer.
    """
    found = []
    try:
        with _management(library) as functions:
            count = ctypes.c_uint(0)
            if functions.nvmlDeviceGetCount_v2(ctypes.byref(count)):
                raise OSError("the driver does not count its GPUs")
            for index in range(count.value):
                device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
                major, minor = ctypes.c_int(0), ctypes.c_int(0)
                functions.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
                functions.nvmlDeviceGetName(device, name, ctypes.c_uint(len(name)))
                functions.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
                found.append((name.value.decode("ascii", "replace"), f"{major.value}.{minor.value}"))
    except AttributeError as error:
        raise OSError(f"the driver's library lacks a function ({error})") from None
    return found


@contextmanager
def _management(library: str) -> Iterator[ctypes.CDLL]:
    """Provide the functions of NVML.  Raises OSError, and AttributeError for another library."""
    functions = ctypes.CDLL(library)
    if functions.nvmlInit_v2():
        raise OSError("the driver does not answer")
    try:
        yield functions
    finally:
        functions.nvmlShutdown()


def gpu_provenance() -> dict[str, str]:
    """The current GPU's name and the driver's version, each `unknown` if it cannot be read."""
    try:
        import torch

        name = torch.cuda.get_device_properties(torch.cuda.current_device()).name
    except (ImportError, RuntimeError, AssertionError):
        name = UNKNOWN
    return {"device": str(name), "driver": driver_version()}
