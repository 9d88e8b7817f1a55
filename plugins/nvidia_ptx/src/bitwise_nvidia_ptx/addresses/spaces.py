"""State spaces in opcodes of loads and stores."""

from __future__ import annotations

from collections.abc import Collection

_OTHERS = frozenset({"global", "shared", "shared::cta", "shared::cluster", "param", "param::entry", "param::func"})


def may_be_local(parts: Collection[str]) -> bool:
    """Return whether a load or a store accesses local memory, or may by a generic address; `parts` are its opcode's."""
    return "local" in parts or (_OTHERS.isdisjoint(parts) and "const" not in parts)
