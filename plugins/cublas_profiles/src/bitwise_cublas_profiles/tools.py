"""The GPUs and the library, as tools of `bitwise doctor`."""

from __future__ import annotations

from bitwise_core.plugins.tools import Found, ToolMissing
from bitwise_cublas_profiles.driver import driver_version, installed_gpus
from bitwise_cublas_profiles.library import find_library
from bitwise_cublas_profiles.query import CublasError


def gpus() -> list[Found]:
    """Return the GPUs of the driver.  Raises ToolMissing."""
    try:
        found = installed_gpus()
    except OSError as error:
        raise ToolMissing(f"no NVIDIA driver answers ({error}): install the driver of the GPU") from None
    if not found:
        raise ToolMissing("the driver has no GPU")
    driver = driver_version()
    return [Found(name, "", f"compute capability {capability}, driver {driver}") for name, capability in found]


def library() -> list[Found]:
    """Return the cuBLASLt of this environment, which is not loaded.  Raises ToolMissing."""
    try:
        path = find_library()
    except CublasError:
        raise ToolMissing("no cuBLASLt is in this Python environment: PyTorch for CUDA brings it") from None
    return [Found(path.name, str(path))]
