"""The hook specifications of the entry-point group `bitwise`.

A plugin is a module named by an entry point of that group. It implements some of these hooks with `hookimpl`:

    from bitwise_core.plugins.hookspecs import hookimpl

    @hookimpl
    def bitwise_arches():
        return [TOY]

Every hook takes no arguments and returns an iterable; the results of all plugins are combined. Each item has a `name`
that is unique among its kind. A hook is called once, when plugins are loaded, which every command does. It should not
compile, use a device or import an optional dependency. An architecture may be an `ArchReference`, and a profile, a
launcher or a patch set a `Reference` (`bitwise_core.plugins.references`): its module is then imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bitwise_core.execution.architecture import Arch
    from bitwise_core.numerics.mma import MmaSpec
    from bitwise_core.plugins.launchers import Launcher
    from bitwise_core.plugins.profiles import Profile
    from bitwise_core.plugins.references import ArchReference, Reference
    from bitwise_core.plugins.tools import Tool

PROJECT = "bitwise"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Named(Protocol):
    """An item that a hook returns: it has a name that is unique among its kind."""

    @property
    def name(self) -> str:
        """The name by which the item is looked up."""
        ...


@hookspec
def bitwise_arches() -> Iterable[Arch | ArchReference]:
    """Return the architectures that this plugin models: parsers and the semantics of their instructions."""
    raise NotImplementedError


@hookspec
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """Return the matrix units that this plugin models: the exact arithmetic of one native step of an instruction."""
    raise NotImplementedError


@hookspec
def bitwise_profiles() -> Iterable[Profile | Reference]:
    """Return the profiles of libraries: descriptors of their kernels by version, architecture and configuration."""
    raise NotImplementedError


@hookspec
def bitwise_launchers() -> Iterable[Launcher | Reference]:
    """Return the launchers that run a descriptor on a device and return the output's bytes."""
    raise NotImplementedError


@hookspec
def bitwise_patchsets() -> Iterable[Named]:
    """Return the patch sets that pin the bits of a compiler or a library."""
    raise NotImplementedError


@hookspec
def bitwise_tools() -> Iterable[Tool]:
    """Return the assemblers, libraries, compilers and devices that the plugin uses: `bitwise doctor` looks for them."""
    raise NotImplementedError
