"""Brings a text to one that states every rounding: the hook between the reading and the contraction audit."""

from __future__ import annotations

from bitwise_core.asm import Module
from bitwise_core.machine.domain import Unreadable


def settle_text(text: str, module: Module, entry: str | None) -> tuple[str, str]:
    """The text with every rounding stated, and how that was established.  Raises Unreadable where it is not."""
    from bitwise_nvidia_ptx.contraction import AssemblyFailed, PtxasNotFound, settle

    try:
        settled = settle(text, arch=module.target, entry=entry)
    except PtxasNotFound as error:
        raise Unreadable(f"products may be fused into sums and no assembler is there to settle it: {error}") from None
    except AssemblyFailed as error:
        raise Unreadable(f"the assembler refuses the text: {error}") from None
    if settled.method == "unsettled":
        raise Unreadable(settled.reason or "it is not settled which products the assembler fuses")
    if settled.method == "no candidates":
        return settled.text, "no product can be fused into a sum"
    return settled.text, f"{settled.method} ({settled.ptxas_version})"
