"""Keys of launch arguments that are equal only if Triton and the kernel cannot distinguish the arguments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bitwise_triton.arguments import PointerStandIn


def argument_key(value: Any) -> Hashable:
    """A hashable key of `value`, equal only for values that give the same kernel and the same launch.

    Numbers differ by type and by the sign of zero. Containers and descriptors are compared by contents. An object that
    is not hashable has a unique key.
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
    """Compares equal for the same object only, and keeps it alive so that its id is not reused."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value
