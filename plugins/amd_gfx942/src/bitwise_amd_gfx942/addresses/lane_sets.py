"""Lanes of a wave as a data-flow analysis names them: parts of parts of all lanes.

A name is a path from all lanes, `()`, to a part of the part before it.  So a prefix has at least the lanes of the path.
A step is ("part", n), the lanes that instruction n leaves in a mask, ("rest", n), the others of the part before,
("some", n), lanes that instruction n leaves in some other way, or ("meeting", n), those with which all paths reach it.
Where an instruction is executed again, it names other lanes.
"""

from __future__ import annotations

from typing import TypeAlias

Step: TypeAlias = tuple[object, ...]
Lanes: TypeAlias = tuple[Step, ...]

ALL: Lanes = ()
UNKNOWN: Lanes = (("unknown",),)
"""Lanes about which nothing is known but that they are lanes of the wave."""


def before(lanes: Lanes, step: Step) -> Lanes:
    """Return lanes without a step and those behind it: at least these lanes."""
    if step not in lanes:
        return lanes
    place = lanes.index(step)
    return lanes[:place] if place else UNKNOWN


def includes(one: Lanes, other: Lanes) -> bool:
    """Return whether all lanes of the other are among those of the one."""
    return other[: len(one)] == one


def rest(part: Lanes) -> Lanes:
    """Return the other lanes of the lanes of which these are a part."""
    kind, *number = part[-1]
    return (*part[:-1], ("part" if kind == "rest" else "rest", *number)) if kind in ("part", "rest") else part


def combined(how: str, one: Lanes | None, other: Lanes | None, step: Step) -> Lanes | None:
    """Return the lanes that an operation on two masks leaves, None if nothing is known of them."""
    if how == "and":
        if one is not None and other is not None and includes(one, other):
            return other
        if one is not None and other is not None and includes(other, one):
            return one
        whole = one if other is None else other
        return None if whole is None else (*whole, step)
    if how == "andn2":  # one and not the other
        if one is None:
            return None
        return rest(other) if other is not None and other[:-1] == one and other else (*one, step)
    if one is None or other is None:
        return None
    if how == "or":
        if includes(one, other):
            return one
        if includes(other, one):
            return other
        return one[:-1] if one and other == rest(one) else None
    if how == "xor":
        if other and other[:-1] == one:
            return rest(other)
        return rest(one) if one and one[:-1] == other else None
    return None
