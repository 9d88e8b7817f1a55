"""An instruction's mnemonic taken apart, and the table that knows mnemonics without their encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.machine import Step

_ENCODINGS = ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa")


_EXCHANGES = frozenset({
    "quad_perm", "row_shl", "row_shr", "row_ror", "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mirror",
    "row_half_mirror", "row_bcast", "row_newbcast", "row_mask", "bank_mask", "bound_ctrl",
})  # fmt: skip
_PARTS = frozenset({"dst_sel", "dst_unused", "src0_sel", "src1_sel"})
_OWN = {"dpp": _EXCHANGES, "sdwa": _PARTS}
"""The modifiers that an encoding has alone."""


@dataclass(frozen=True, slots=True)
class Form:
    """A mnemonic without its encoding, the encoding (e32, e64, dpp, sdwa, nothing), the modifiers with their values."""

    name: str
    encoding: str
    modifiers: Mapping[str, str]


@lru_cache(maxsize=1 << 14)
def form(opcode: str) -> Form:
    """The form of a mnemonic with its modifiers."""
    mnemonic, *modifiers = opcode.split(".")
    name, encoding = mnemonic, ""
    for each in _ENCODINGS:
        if mnemonic.endswith(each):
            name, encoding = mnemonic[: -len(each)], each[1:]
            break
    found = {}
    for each in modifiers:
        key, _, value = each.partition(":")
        found[key] = value
    if not encoding:  # a mnemonic that leaves its encoding open has the one that its modifiers need
        encoding = next((each for each, own in _OWN.items() if own & found.keys()), "")
    return Form(name, encoding, found)


def check_modifiers(instruction: Instruction, *allowed: str) -> Form:
    """The instruction's form.  Raises UnknownInstruction where it has a modifier that is not among the allowed ones."""
    found = form(instruction.opcode)
    for each in found.modifiers:
        if each not in allowed:
            raise UnknownInstruction(instruction, f"has the modifier {each}, which is not modelled")
    for encoding, own in _OWN.items():
        strange = own & found.modifiers.keys()
        if strange and not found.encoding.endswith(encoding):
            raise UnknownInstruction(instruction, f"has the modifier {min(strange)}, which its encoding does not have")
    return found


def number(instruction: Instruction, text: str) -> int:
    """The value of a modifier as a number.  Raises UnknownInstruction."""
    try:
        return int(text, 0)
    except ValueError:
        raise UnknownInstruction(instruction, f"has the value {text!r} in a modifier, which is no number") from None


def offset_of(instruction: Instruction, found: Form, bits: int, name: str = "offset", *, signed: bool = False) -> int:
    """An access's constant offset of so many bits; 0 where it has none.  Raises UnknownInstruction."""
    value = number(instruction, found.modifiers.get(name, "0"))
    low = -(1 << bits - 1) if signed else 0
    if not low <= value < low + (1 << bits):
        raise UnknownInstruction(instruction, f"has an {name} that does not fit {bits} bits")
    return value


def flags(instruction: Instruction, text: str, count: int) -> tuple[bool, ...]:
    """A list of zeros and ones in brackets, such as op_sel's.  Raises UnknownInstruction."""
    items = text.strip("[]").split(",")
    if not set(items) <= {"0", "1"} or len(items) > count:
        raise UnknownInstruction(instruction, f"has the list {text} in a modifier, which is not modelled")
    return tuple(each == "1" for each in items) + (False,) * (count - len(items))


class Table(OpcodeTable):
    """A table that looks a mnemonic up without its encoding."""

    def name_of(self, instruction: Instruction) -> str:
        """See `OpcodeTable.name_of`."""
        return form(instruction.opcode).name

    def build(self, instruction: Instruction, context: Context) -> Step:
        """See `OpcodeTable.build`."""
        try:
            return super().build(instruction, context)
        except (IndexError, ValueError):  # the builder looks at operands that are not there
            raise UnknownInstruction(instruction, "does not take these operands") from None
