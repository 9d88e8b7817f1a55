"""PyTorch, as a tool of `bitwise doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.tools import Found, Tool, ToolMissing


def pytorch() -> list[Found]:
    """Return the installed PyTorch, from its metadata: importing it takes seconds.  Raises ToolMissing."""
    try:
        return [Found(version("torch"))]
    except PackageNotFoundError:
        raise ToolMissing("PyTorch is not installed: install the build for this machine, as on pytorch.org") from None


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """PyTorch, whose products are computed, locked and replayed."""
    return [Tool("PyTorch", "matrix products of tensors, lock files and receipts of programs", pytorch)]
