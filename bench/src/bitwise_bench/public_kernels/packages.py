"""Modules of packages whose own initialisation needs compiled extensions that are not there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def bare_package(name: str) -> None:
    """Let modules of the package `name` be imported without running its `__init__.py`, and those of its parents.

    Raises ImportError if the package is not on the path.
    """
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        _bare(".".join(parts[:count]))


def _bare(name: str) -> None:
    if name in sys.modules:
        return
    relative = Path(*name.split("."))
    found = next((each for each in sys.path if (Path(each) / relative).is_dir()), None)
    if found is None:
        raise ImportError(f"there is no package {name} on the path")
    module = ModuleType(name)
    module.__path__ = [str(Path(found) / relative)]
    _enter(module)


def stub(name: str, **attributes: object) -> None:
    """Put a module with these attributes in the place of one that is not there; its parents are made as well."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        each = ".".join(parts[:count])
        if each not in sys.modules:
            module = ModuleType(each)
            module.__path__ = []
            _enter(module)
    for attribute, value in attributes.items():
        setattr(sys.modules[name], attribute, value)


def _enter(module: ModuleType) -> None:
    """Make a module importable, and an attribute of its parent."""
    sys.modules[module.__name__] = module
    parent, _, name = module.__name__.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, module)
