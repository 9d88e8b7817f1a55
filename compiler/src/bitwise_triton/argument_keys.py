"""Keys under which two sets of launch arguments meet only if Triton and a kernel cannot tell them apart."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bitwise_triton.arguments import PointerStandIn


def argument_key(value: Any) -> Hashable:
    """A hashable key of `value`, equal only for values that make the same kernel and the same launch.

    Numbers differ by type and sign of zero; containers and descriptors go by what they hold; an object that cannot be
    hashed meets nothing, not even itself.
    """
    if isinstance(value, (bool, int, float, str, type(None), PointerStandIn)):
        return (type(value).__name__, repr(value))
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *map(argument_key, value))
    if isinstance(value, dict):
        return ("dict", *((key, argument_key(inner)) for key, inner in value.items()))
    if isinstance(getattr(value, "base", None), PointerStandIn):
        return (type(value).__name__, argument_key(vars(value)))
    try:
        hash(value)
    except TypeError:
        return object()
    return _ByIdentity(value)


class _ByIdentity:
    """Equal for one and the same object, which it keeps alive so that its identity is not given to another."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value
