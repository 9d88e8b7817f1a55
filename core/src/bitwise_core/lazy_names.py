"""Names of a package whose modules are imported when a name is first used."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` takes a third of the time in which Python starts
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package; `modules` maps each of its modules to the names that it defines.

    Raises AttributeError for any other name.
    """
    owners = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in owners:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(owners[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return load
