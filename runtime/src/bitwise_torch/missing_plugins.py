"""Ends of sentences about what no installed plugin describes or runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.known_distributions import advice


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
