"""The launch-free reading: one signature per kernel that speaks of every launch."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_core.asm import Kernel, Module
from bitwise_core.engine.program_text import text_signature
from bitwise_core.machine.arch import Arch


@dataclass(frozen=True, slots=True)
class Signature:
    """Equal values mean: the same bits for every launch with the same arguments, under what `notes` name."""

    value: bytes
    notes: tuple[str, ...] = ()


def launch_free_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of a settled text's kernel.  Raises Unreadable with the line that stops it."""
    return Signature(text_signature(module, kernel, arch), ("text: the kernels are one program up to names",))


