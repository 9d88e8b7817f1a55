"""PyTorch and a C compiler, as tools of `bitwise doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from bitwise_core.caching.c_modules import OFF_VARIABLE, c_compiler
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.tools import Found, Tool, ToolMissing


def pytorch() -> list[Found]:
    """Return the installed PyTorch, from its metadata: importing it takes seconds.  Raises ToolMissing."""
    try:
        return [Found(version("torch"))]
    except PackageNotFoundError:
        raise ToolMissing("PyTorch is not installed: install the build for this machine, as on pytorch.org") from None


def compiler() -> list[Found]:
    """Return the C compiler.  Raises ToolMissing."""
    found = c_compiler()
    if found is None:
        raise ToolMissing("there is no C compiler: install one, or set CC to one")
    return [Found("", found, f"{OFF_VARIABLE}=1 leaves its modules out")]


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """PyTorch, whose products are computed, locked and replayed, and what makes repeated calls cheaper."""
    return [
        Tool("PyTorch", "matrix products of tensors, lock files and receipts of programs", pytorch),
        Tool("C compiler", "repeated calls at a fraction of the host time; without it they run in Python", compiler),
    ]
