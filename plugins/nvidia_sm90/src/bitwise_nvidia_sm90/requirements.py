"""What a machine lacks to run launchers: distributions, and a GPU of compute capability 9.0."""

from __future__ import annotations

from importlib.util import find_spec

_REQUIRED = {"torch": "torch", "triton": "triton", "cuda-bindings": "cuda.bindings"}
"""The distributions that a launch needs, each with a module of it."""


def missing() -> str | None:
    """Return what this machine lacks, as the end of a sentence; None where nothing is missing."""
    absent = [name for name, module in _REQUIRED.items() if not _installed(module)]
    if absent:
        *most, last = absent
        return f"{', '.join(most)} and {last} are not installed" if most else f"{last} is not installed"
    import torch

    if not torch.cuda.is_available():
        return "there is no GPU that torch can use"
    found = torch.cuda.get_device_capability()
    return None if found == (9, 0) else f"the GPU has compute capability {found[0]}.{found[1]}, not 9.0"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above the module is not installed
        return False
