"""The registry of installed plugins and the items that they provide.

A plugin that cannot be loaded does not affect the others.  It is listed in `Registry.broken` with its distribution, and
is reported in the error of a look-up that finds nothing.  The same holds for an item of a plugin that cannot be loaded
when it is used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from bitwise_core.errors import BitwiseError
from bitwise_core.installed_distributions import entry_points, name_of, version_of
from bitwise_core.known_distributions import ENTRY_POINT_GROUP, advice, known_distributions
from bitwise_core.plugins import hookspecs
from bitwise_core.plugins.references import ArchReference, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import EntryPoint

    from bitwise_core.descriptors.hardware import Hardware
    from bitwise_core.execution.architecture import Arch
    from bitwise_core.known_distributions import Kind
    from bitwise_core.numerics.mma import MmaSpec
    from bitwise_core.plugins.hookspecs import Named
    from bitwise_core.plugins.launchers import Launcher
    from bitwise_core.plugins.profiles import Profile
    from bitwise_core.plugins.tools import Tool

RESTRICT_VARIABLE = "BITWISE_PLUGINS"

NamedT = TypeVar("NamedT", bound="Named")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class DuplicateNameError(BitwiseError, ValueError):
    """Two distributions provide the same name; the message names both and says what to do."""


class UnknownPluginError(BitwiseError, LookupError):
    """No installed distribution provides a plugin of the requested name."""


class UnknownMatrixUnitError(BitwiseError, KeyError):
    """No loaded plugin has the requested matrix unit; the message lists the nearest names and the broken plugins."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownArchError(BitwiseError, KeyError):
    """No loaded plugin models the requested architecture; the message lists the known ones and the broken plugins."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would return the repr of the sentence


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plugin that could not be loaded: its entry point, its distribution, and the reason."""

    name: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} of {self.distribution}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin: its entry point, its distribution and version, its module, and the items of its hooks.

    A profile, a launcher or a patch set may be a `Reference`.
    """

    name: str
    distribution: str
    version: str
    module: object
    arches: tuple[ArchReference, ...]
    matrix_units: tuple[MmaSpec, ...]
    profiles: tuple[Named, ...]
    launchers: tuple[Named, ...]
    patchsets: tuple[Named, ...]
    tools: tuple[Tool, ...]

    def __repr__(self) -> str:
        return f"Plugin({self.name!r} of {self.distribution} {self.version})"


class Items(Sequence[Result]):
    """The items that plugins provide of one kind, each of which is loaded when an iteration comes to it.

    An item that cannot be loaded is left out, and added to `broken`.
    """

    def __init__(self, given: Iterable[tuple[Plugin, Named]], broken: list[BrokenPlugin]) -> None:
        self._given, self._broken = tuple(given), broken
        self._loaded: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Result]:
        for index, (plugin, item) in enumerate(self._given):
            if not isinstance(item, Reference):
                self._loaded[index] = item
            elif index not in self._loaded:
                self._loaded.setdefault(index, _attempted(plugin, item.name, item.loaded, self._broken))
            if not isinstance(self._loaded[index], BrokenPlugin):
                yield self._loaded[index]

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __len__(self) -> int:
        return len(tuple(self))


class Arches(Mapping[str, "Arch"]):
    """The architectures by name, each of which is loaded when it is looked up.

    The look-up raises UnknownArchError for one that cannot be loaded, which is added to `broken`.
    """

    def __init__(self, given: Iterable[tuple[Plugin, ArchReference]], broken: list[BrokenPlugin]) -> None:
        self._given = {reference.name: (plugin, reference) for plugin, reference in given}
        self._broken = broken
        self._loaded: dict[str, Arch | BrokenPlugin] = {}

    @property
    def references(self) -> Mapping[str, ArchReference]:
        """The references by name."""
        return {name: reference for name, (_, reference) in self._given.items()}

    def __getitem__(self, name: str) -> Arch:
        if name not in self._loaded:
            plugin, reference = self._given[name]
            self._loaded[name] = _attempted(plugin, name, reference.loaded, self._broken)
        found = self._loaded[name]
        if isinstance(found, BrokenPlugin):
            raise UnknownArchError(f"the architecture {name} cannot be loaded: {found}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, name: object) -> bool:
        return name in self._given

    @property
    def loadable(self) -> Iterator[Arch]:
        """The architectures that can be loaded."""
        for name in self:
            with contextlib.suppress(UnknownArchError):
                yield self[name]


def _attempted(
    plugin: Plugin, name: str, load: Callable[[], Result], broken: list[BrokenPlugin]
) -> Result | BrokenPlugin:
    """Return an item that a plugin refers to, or the reason why it cannot be loaded, which is added to `broken`."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what a plugin prints must not be read as an answer
            return load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module may raise anything
        _log.debug("%s of the plugin %s failed to load", name, plugin.name, exc_info=True)
        fault = BrokenPlugin(plugin.name, plugin.distribution, f"{name}: {type(error).__name__}: {error}")
        broken.append(fault)
        return fault


@dataclass(frozen=True, slots=True)
class Registry:
    """The items of the loaded plugins, in the order of the entry points' names.

    `arches` maps the name of an architecture to its record, `owners` to its distribution; `matrix_units` maps names to
    matrix units.  `faults` lists the plugins and items that could not be loaded so far.
    """

    plugins: tuple[Plugin, ...]
    faults: list[BrokenPlugin]
    arches: Arches
    owners: Mapping[str, str]
    matrix_units: Mapping[str, MmaSpec]
    profiles: Sequence[Profile]
    launchers: Sequence[Launcher]
    patchsets: Sequence[Named]
    tools: tuple[Tool, ...]

    def __repr__(self) -> str:
        return f"Registry(plugins: {', '.join(each.name for each in self.plugins)}; broken: {len(self.broken)})"

    @property
    def broken(self) -> tuple[BrokenPlugin, ...]:
        """The plugins that could not be loaded, and those of which an item could not be."""
        return tuple(self.faults)

    def arch(self, name: str) -> Arch:
        """Return the architecture of that name.  Raises UnknownArchError if no loaded plugin models it."""
        return self.arches[self.reference(name).name]

    def reference(self, name: str) -> ArchReference:
        """Return the reference to the architecture of that name, which is not loaded.  Raises UnknownArchError."""
        if name in self.arches:
            return self.arches.references[name]
        available = ", ".join(sorted(self.arches)) or "none"
        raise UnknownArchError(
            f"no plugin models the architecture {name!r}; available: {available}"
            f"{self.broken_sentence()}{self.advice('targets', name)}"
        )

    def advice(self, kind: Kind, name: str) -> str:
        """Return the end of a sentence that names the distributions to install for what no loaded plugin provides.

        Where no known distribution provides it and no plugin is loaded, these are all that provide any of the kind.
        """
        found = advice(kind, name) or ("" if self.plugins else advice(kind))
        return f"; {found}" if found else ""

    @property
    def hardware(self) -> Hardware:
        """The matrix units and approximate functions of all plugins, for the evaluation of descriptors."""
        from bitwise_core.descriptors.hardware import Hardware

        claims = (arch.bits for arch in self.arches.loadable)
        functions = {name: each for bits in claims if bits is not None for name, each in bits.functions.items()}
        return Hardware(self.matrix_units, MappingProxyType(functions))

    def matrix_unit(self, name: str) -> MmaSpec:
        """Return the matrix unit of that name.  Raises UnknownMatrixUnitError if no loaded plugin has it."""
        if name in self.matrix_units:
            return self.matrix_units[name]
        known = (each for found in known_distributions() for each in found.provides.get("matrix units", ()))
        architecture = next((each for each in known if name.endswith(f"_{each}")), name)
        near = get_close_matches(name, self.matrix_units, n=3, cutoff=0.0)
        raise UnknownMatrixUnitError(
            f"no plugin has a matrix unit {name!r}; the nearest: {', '.join(near) or 'there are none'}"
            f"{self.broken_sentence()}{self.advice('matrix units', architecture)}"
        )

    def broken_sentence(self) -> str:
        """Return the end of a sentence that lists the broken plugins, empty if there are none."""
        return "; plugins that could not be loaded: " + "; ".join(map(str, self.broken)) if self.broken else ""


def load(names: Iterable[str] | None = None) -> Registry:
    """Load the plugins of the entry points `names`, by default of all installed ones, and return the registry.

    Without `names`, the environment variable BITWISE_PLUGINS may restrict them: a comma-separated list of names, of
    which an empty one loads no plugin.  Raises UnknownPluginError for a name that is not installed and
    DuplicateNameError where two distributions provide the same name.  A plugin that fails to load raises nothing and is
    listed in `Registry.broken`.
    """
    loaded: list[Plugin] = []
    broken: list[BrokenPlugin] = []
    for entry_point in _select(names):
        try:
            loaded.append(_load_plugin(entry_point))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a third-party module may raise anything
            _log.debug("plugin %s failed to load", entry_point.name, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
            broken.append(BrokenPlugin(entry_point.name, _distribution(entry_point), reason))
    arch_owners = _owners("architecture", [(plugin, plugin.arches) for plugin in loaded])
    _owners("matrix unit", [(plugin, plugin.matrix_units) for plugin in loaded])
    _owners("profile", [(plugin, plugin.profiles) for plugin in loaded])
    _owners("launcher", [(plugin, plugin.launchers) for plugin in loaded])
    _owners("patch set", [(plugin, plugin.patchsets) for plugin in loaded])
    _owners("tool", [(plugin, plugin.tools) for plugin in loaded])
    return Registry(
        plugins=tuple(loaded),
        faults=broken,
        arches=Arches(((plugin, each) for plugin in loaded for each in plugin.arches), broken),
        owners=MappingProxyType(arch_owners),
        matrix_units=MappingProxyType({unit.name: unit for plugin in loaded for unit in plugin.matrix_units}),
        profiles=Items(((plugin, each) for plugin in loaded for each in plugin.profiles), broken),
        launchers=Items(((plugin, each) for plugin in loaded for each in plugin.launchers), broken),
        patchsets=Items(((plugin, each) for plugin in loaded for each in plugin.patchsets), broken),
        tools=tuple(tool for plugin in loaded for tool in plugin.tools),
    )


@cache
def default() -> Registry:
    """Return the registry of the installed plugins, which is loaded once in a process."""
    return load()


def _select(names: Iterable[str] | None) -> list[EntryPoint]:
    """Return the requested entry points, sorted by name.

    Raises UnknownPluginError for a name that is not installed, DuplicateNameError for one that is installed twice.
    """
    installed = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda found: (found.name, _distribution(found)))
    origin = "the caller requests"
    if names is None and RESTRICT_VARIABLE in os.environ:
        origin = f"{RESTRICT_VARIABLE} names"
        names = [name.strip() for name in os.environ[RESTRICT_VARIABLE].split(",") if name.strip()]
    if names is not None:
        wanted = set(names)
        missing = sorted(wanted - {found.name for found in installed})
        if missing:
            available = ", ".join(found.name for found in installed) or "none"
            raise UnknownPluginError(
                f"{origin} plugins that are not installed: {', '.join(missing)}; installed plugins: {available}"
            )
        installed = [found for found in installed if found.name in wanted]
    for first, second in pairwise(installed):
        if first.name == second.name:
            raise DuplicateNameError(
                f"{_distribution(first)} and {_distribution(second)} both provide a plugin {first.name!r}; "
                f"uninstall one"
            )
    return installed


def _load_plugin(entry_point: EntryPoint) -> Plugin:
    """Import one plugin and call its hooks.  Raises any exception of the plugin, and TypeError for a wrong result."""
    with contextlib.redirect_stdout(sys.stderr):  # what a plugin prints must not be read as an answer
        return _loaded_plugin(entry_point, entry_point.load())


def _loaded_plugin(entry_point: EntryPoint, module: object) -> Plugin:
    """Call the hooks of a plugin's module.  Raises any exception of the plugin, and TypeError for a wrong result."""
    from bitwise_core.numerics.mma import MmaSpec
    from bitwise_core.plugins.tools import Tool

    # A manager for each plugin: a hook that raises stops the other plugins' hooks of a shared one.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module, entry_point.name)
    manager.check_pending()
    if not manager.get_hookcallers(module):
        raise TypeError("it implements no hook; mark its functions with bitwise_core.plugins.hookspecs.hookimpl")
    return Plugin(
        name=entry_point.name,
        distribution=_distribution(entry_point),
        version=version_of(entry_point.dist) if entry_point.dist else "unknown",
        module=module,
        arches=tuple(map(_reference, _checked("bitwise_arches", manager.hook.bitwise_arches()))),
        matrix_units=_checked("bitwise_matrix_units", manager.hook.bitwise_matrix_units(), MmaSpec),
        profiles=_checked("bitwise_profiles", manager.hook.bitwise_profiles()),
        launchers=_checked("bitwise_launchers", manager.hook.bitwise_launchers()),
        patchsets=_checked("bitwise_patchsets", manager.hook.bitwise_patchsets()),
        tools=_checked("bitwise_tools", manager.hook.bitwise_tools(), Tool),
    )


def _reference(given: object) -> ArchReference:
    """Return the reference of an item of `bitwise_arches`.  Raises TypeError."""
    if isinstance(given, ArchReference):
        return given
    from bitwise_core.execution.architecture import Arch

    if not isinstance(given, Arch):
        name = getattr(given, "name", None)
        raise TypeError(f"bitwise_arches returned {name!r}, which is no Arch but a {type(given).__name__}")
    return ArchReference.of(given)


def _checked(hook: str, returned: Iterable[Iterable[NamedT]], kind: type[object] = object) -> tuple[NamedT, ...]:
    """Return the items of one plugin's hook.

    Raises TypeError for an item that is not of the kind or has no name, and for a repeated name.
    """
    items = tuple(item for collected in returned for item in collected)
    names: set[str] = set()
    for item in items:
        if not isinstance(getattr(item, "name", None), str):
            raise TypeError(f"{hook} returned {item!r}, which has no name")
        if not isinstance(item, kind):
            raise TypeError(f"{hook} returned {item.name!r}, which is no {kind.__name__} but a {type(item).__name__}")
        if item.name in names:
            raise TypeError(f"{hook} returned {item.name!r} twice")
        names.add(item.name)
    return items


def _owners(kind: str, provided: Iterable[tuple[Plugin, tuple[Named, ...]]]) -> dict[str, str]:
    """Return the distribution of each name of one kind.  Raises DuplicateNameError."""
    owners: dict[str, str] = {}
    for plugin, items in provided:
        for item in items:
            if item.name in owners:
                raise DuplicateNameError(
                    f"{owners[item.name]} and {plugin.distribution} both provide the {kind} {item.name!r}; "
                    f"uninstall one, or name the plugins to load in {RESTRICT_VARIABLE}"
                )
            owners[item.name] = plugin.distribution
    return owners


def _distribution(entry_point: EntryPoint) -> str:
    """Return the name of an entry point's distribution."""
    return name_of(entry_point.dist) if entry_point.dist else "an unknown distribution"
