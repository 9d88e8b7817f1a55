"""The current GPU and its driver, as provenance."""

from __future__ import annotations

import ctypes

UNKNOWN = "unknown"


def driver_version(library: str = "libnvidia-ml.so.1") -> str:
    """The driver's version from NVML, or `unknown`."""
    try:
        functions = ctypes.CDLL(library)
        if functions.nvmlInit_v2():
            return UNKNOWN
        text = ctypes.create_string_buffer(81)
        failed = functions.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
        functions.nvmlShutdown()
    except (OSError, AttributeError):
        return UNKNOWN
    return UNKNOWN if failed else text.value.decode("ascii", "replace")


def gpu_provenance() -> dict[str, str]:
    """The current GPU's name and the driver's version, each `unknown` if it cannot be read."""
    try:
        import torch

        name = torch.cuda.get_device_properties(torch.cuda.current_device()).name
    except (ImportError, RuntimeError, AssertionError):
        name = UNKNOWN
    return {"device": str(name), "driver": driver_version()}
