"""Mnemonics parsed into name, encoding and modifiers, and the opcode table that looks names up without the encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.machine import Step

_ENCODINGS = ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa")

DPP_CONTROLS = (
    "quad_perm", "row_shl", "row_shr", "row_ror", "wave_shl", "wave_rol", "wave_shr", "wave_ror", "row_mirror",
    "row_half_mirror", "row_bcast", "row_newbcast",
)  # fmt: skip
"""The modifiers of DPP that say from which lane a source is taken."""

DPP_MODIFIERS = (*DPP_CONTROLS, "row_mask", "bank_mask", "bound_ctrl")
SDWA_MODIFIERS = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
_MODIFIERS_OF_ENCODING = {"dpp": frozenset(DPP_MODIFIERS), "sdwa": frozenset(SDWA_MODIFIERS)}
"""The modifiers that only one encoding has."""


@dataclass(frozen=True, slots=True)
class Form:
    """A mnemonic: the name without the encoding, the encoding (e32, e64, e64_dpp, dpp, sdwa or ""), the modifiers."""

    name: str
    encoding: str
    modifiers: Mapping[str, str]


@lru_cache(maxsize=1 << 14)
def form(opcode: str) -> Form:
    """Parse a mnemonic with its modifiers, such as v_mov_b32_dpp.row_shl:1."""
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
    if not encoding:  # without a suffix, the modifiers determine the encoding
        encoding = next((each for each, only_here in _MODIFIERS_OF_ENCODING.items() if only_here & found.keys()), "")
    return Form(name, encoding, found)


def check_modifiers(instruction: Instruction, *allowed: str) -> Form:
    """The instruction's form.  Raises UnknownInstruction for a modifier that is not allowed or not in its encoding."""
    found = form(instruction.opcode)
    for each in found.modifiers:
        if each not in allowed:
            raise UnknownInstruction(instruction, f"has the modifier {each}, which is not modelled")
    for encoding, only_here in _MODIFIERS_OF_ENCODING.items():
        misplaced = only_here & found.modifiers.keys()
        if misplaced and not found.encoding.endswith(encoding):
            raise UnknownInstruction(
                instruction, f"has the modifier {min(misplaced)}, which its encoding does not have"
            )
    return found


def modifier_value(instruction: Instruction, text: str) -> int:
    """The value of a modifier as an integer.  Raises UnknownInstruction where it is not one."""
    try:
        return int(text, 0)
    except ValueError:
        raise UnknownInstruction(
            instruction, f"has the value {text!r} in a modifier, which is not an integer"
        ) from None


def immediate_offset(
    instruction: Instruction, found: Form, bits: int, name: str = "offset", *, signed: bool = False
) -> int:
    """The constant offset of an access, 0 without the modifier.

    Raises UnknownInstruction where it does not fit a field of `bits` bits.
    """
    value = modifier_value(instruction, found.modifiers.get(name, "0"))
    low = -(1 << bits - 1) if signed else 0
    if not low <= value < low + (1 << bits):
        raise UnknownInstruction(instruction, f"has an {name} that does not fit {bits} bits")
    return value


def bit_list(instruction: Instruction, text: str, count: int) -> tuple[bool, ...]:
    """A bracketed list of at most `count` zeros and ones, as of op_sel, padded with zeros.

    Raises UnknownInstruction for any other list.
    """
    items = text.strip("[]").split(",")
    if not set(items) <= {"0", "1"} or len(items) > count:
        raise UnknownInstruction(instruction, f"has the list {text} in a modifier, which is not modelled")
    return tuple(each == "1" for each in items) + (False,) * (count - len(items))


class Table(OpcodeTable):
    """An opcode table that looks a mnemonic up without its encoding."""

    def name_of(self, instruction: Instruction) -> str:
        """See `OpcodeTable.name_of`."""
        return form(instruction.opcode).name

    def build(self, instruction: Instruction, context: Context) -> Step:
        """See `OpcodeTable.build`."""
        try:
            return super().build(instruction, context)
        except (IndexError, ValueError):  # the builder accessed an operand that the instruction does not have
            raise UnknownInstruction(instruction, "does not take these operands") from None
