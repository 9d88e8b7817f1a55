"""Items of plugins that other modules define, which are imported when an item is used.

A plugin's module is imported by every command.  It returns references, so that `bitwise plugins` imports no opcode
table, and a kernel of one architecture is read without the modules of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitwise_core.assembly.module import Module
    from bitwise_core.execution.architecture import Arch


@dataclass(frozen=True, slots=True)
class Deferred:
    """A name of a module that is imported when it is needed; `target` is "MODULE:NAME"."""

    target: str

    def load(self) -> Any:
        """Import the module, and return what the name stands for."""
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, *arguments: Any) -> Any:
        """Call what the name stands for."""
        return self.load()(*arguments)


@dataclass(frozen=True, slots=True)
class Reference:
    """A launcher, a profile or a patch set by its name; `load` returns it."""

    name: str
    load: Callable[[], Any]

    def loaded(self) -> Any:
        """Return the item.  Raises TypeError where it has another name."""
        item = self.load()
        if getattr(item, "name", None) != self.name:
            raise TypeError(f"the reference to {self.name!r} stands for {item!r}, which has another name")
        return item


@dataclass(frozen=True, slots=True)
class LauncherReference(Reference):
    """A launcher by its name; `missing` is its method of this name, which needs no module of kernels."""

    missing: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class ArchReference:
    """An architecture as a registry lists it; `load` returns its record.

    `extension`, `targets`, `parse` and `audit_tools` are those of the record.  `every_launch` and `bits` state whether
    the record makes these claims, and `approximations` whether the latter includes approximate instructions.
    """

    name: str
    load: Callable[[], Arch]
    extension: str
    targets: tuple[str, ...]
    parse: Callable[[str, str], Module]
    audit_tools: Callable[[], tuple[str, ...]] | None = None
    every_launch: bool = False
    bits: bool = False
    approximations: bool = False

    @classmethod
    def of(cls, arch: Arch) -> ArchReference:
        """Return the reference of a record that is loaded."""
        functions = () if arch.bits is None else arch.bits.functions
        return cls(
            arch.name, lambda: arch, arch.extension, arch.targets, arch.parse, arch.audit_tools,
            every_launch=arch.every_launch is not None, bits=arch.bits is not None,
            approximations=any(".approx" in name for name in functions),
        )  # fmt: skip

    def loaded(self) -> Arch:
        """Return the record.  Raises TypeError where it is no Arch, or not the one that the reference describes."""
        from bitwise_core.execution.architecture import Arch

        arch = self.load()
        if not isinstance(arch, Arch):
            raise TypeError(f"the architecture {self.name!r} is no Arch but a {type(arch).__name__}")
        stated, found = self._facts(), ArchReference.of(arch)._facts()
        wrong = [name for name, fact in stated.items() if fact != found[name]]
        if wrong:
            raise TypeError(f"the reference to the architecture {self.name!r} differs from its record in {wrong[0]}")
        return arch

    def _facts(self) -> dict[str, object]:
        names = ("name", "extension", "targets", "every_launch", "bits", "approximations")
        functions = {"parse": _function(self.parse), "audit_tools": _function(self.audit_tools)}
        return {name: getattr(self, name) for name in names} | functions


def _function(given: object) -> object:
    return given.load() if isinstance(given, Deferred) else given


def loaded(item: Any) -> Any:
    """Return the item that a reference stands for, and any other item itself.  Raises what `load` of it raises."""
    return item.loaded() if isinstance(item, Reference | ArchReference) else item
