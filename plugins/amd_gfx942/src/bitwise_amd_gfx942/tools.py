"""The GPU, as a tool of `bitwise doctor`."""

from __future__ import annotations

from bitwise_amd_gfx942.device import device_architecture, missing_device
from bitwise_amd_gfx942.requirements import ARCHITECTURE
from bitwise_core.plugins.tools import Found, ToolMissing


def gpu() -> list[Found]:
    """Return the GPU that ROCm uses.  Raises ToolMissing."""
    missing = missing_device(ARCHITECTURE)
    if missing is not None:
        raise ToolMissing(missing)
    return [Found(device_architecture())]
