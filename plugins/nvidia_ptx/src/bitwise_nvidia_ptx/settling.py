"""Brings a text to one that states every rounding: the hook between the reading and the contraction audit."""

from __future__ import annotations

from bitwise_core.asm import Module
from bitwise_core.machine.domain import Unreadable


def settle_text(text: str, module: Module, entry: str | None) -> tuple[str, str]:
    """The text with every rounding stated, and how that was established.  Raises Unreadable where it is not."""
    from bitwise_nvidia_ptx.contraction import settle

    settled = settle(text, arch=module.target, entry=entry)
    if settled.method == "unsettled":
        raise Unreadable(settled.reason or "it is not settled which products the assembler fuses")
    return settled.text, settled.method
