"""The installed profiles of libraries by name, and sentences about what no installed plugin describes or runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.errors import BitwiseError
from bitwise_core.known_distributions import advice
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import GroupedProfile, LockableProfile, ProductProfile

SomeProfile = TypeVar("SomeProfile", bound=ProductProfile)


def product_profile(library: str, error: type[BitwiseError]) -> ProductProfile:
    """Return the profile that describes a library's products of tensors.  Raises `error` if there is none."""
    found = [each for each in registry.default().profiles if isinstance(each, ProductProfile)]
    return _named(library, found, "the products of the library", error)


def lockable_profile(library: str, error: type[BitwiseError]) -> LockableProfile:
    """Return the profile that describes a library's products without tensors.  Raises `error` if there is none."""
    found = [each for each in registry.default().profiles if isinstance(each, LockableProfile)]
    return _named(library, found, "the products of the library", error)


def grouped_profile(library: str, error: type[BitwiseError]) -> GroupedProfile:
    """Return the profile that describes a library's grouped products.  Raises `error` if there is none."""
    found = [each for each in registry.default().profiles if isinstance(each, GroupedProfile)]
    return _named(library, found, "grouped products of the library", error)


def _named(
    library: str, profiles: Sequence[SomeProfile], described: str, error: type[BitwiseError]
) -> SomeProfile:  # fmt: skip
    for each in profiles:
        if each.library == library:
            return each
    known = libraries(library, (each.library for each in profiles))
    raise error(f"no installed plugin describes {described} {library!r}; {known}")


def libraries(wanted: object, known: Iterable[str]) -> str:
    """Return which libraries are known, and which distribution to install for the wanted one."""
    listed = ", ".join(sorted(set(known)))
    missing = advice("libraries", str(wanted)) or ("" if listed else advice("libraries"))
    return f"known libraries: {listed or 'none'}{missing and f'; {missing}'}"


def no_launcher(desc: GEMMDesc, device: Any) -> str:
    """Return the sentence that no installed plugin runs a descriptor on a device."""
    architecture = None if desc.instruction is None else desc.instruction.architecture
    missing = "" if architecture is None else advice("targets", architecture)
    return f"no installed plugin runs this descriptor on {device}: {desc.to_text()}{missing and f'; {missing}'}"
