"""The compiler, as a tool of `bitwise doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.tools import Found, Tool, ToolMissing


def triton() -> list[Found]:
    """Return the installed Triton.  Raises ToolMissing."""
    try:
        return [Found(version("triton"))]
    except PackageNotFoundError:
        raise ToolMissing("Triton is not installed: pip install 'bitwise-triton[triton]'") from None


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """Triton, with which kernels are captured."""
    return [Tool("Triton", "capture, comparison and pruning of the configurations of Triton kernels", triton)]
