"""Parses operands as LLVM writes them: registers and ranges, constants, labels, and neg, abs and sext of a source."""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from bitwise_core.assembly.module import Immediate, Modified, Operand, Register, Symbol, Vector

_REGISTER = re.compile(r"([vsa])(\d{1,3})")
_RANGE = re.compile(r"([vsa]|ttmp)\[(\d{1,3}):(\d{1,3})\]")
_INTEGER = re.compile(r"-?\d{1,20}|-?0[xX][0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"[.$A-Za-z_][\w.$]*(?:@\w+)*(?:[-+]\d+)?")
_FUNCTION = re.compile(r"([a-z_]\w*)\((.*)\)")
_REGISTER_COUNTS = {"v": 256, "a": 256, "s": 102}

NAMED_PAIRS = {
    "vcc": ("vcc_lo", "vcc_hi"),
    "exec": ("exec_lo", "exec_hi"),
    "flat_scratch": ("flat_scratch_lo", "flat_scratch_hi"),
    "xnack_mask": ("xnack_mask_lo", "xnack_mask_hi"),
}
"""Register pairs with a name, and the names of their halves."""

_SINGLE = {
    "m0", "scc", "src_scc", "src_vccz", "src_execz", "src_shared_base", "src_shared_limit", "src_private_base",
    "src_private_limit", "src_pops_exiting_wave_id", *(half for pair in NAMED_PAIRS.values() for half in pair),
}  # fmt: skip

_INVERSE_TWO_PI = {0.15915494: 0x3FC45F306DC9C882, 0.15915494309189532: 0x3FC45F306DC9C882, 0.1592: 0x3FC45F306DC9C882}
"""The fp64 pattern of the inline constant 1 / (2 pi), by the decimal text that LLVM prints for each width."""


class OperandError(ValueError):
    """The text is not an operand; the message says why."""


def make_register(letter: str, number: int) -> Register:
    """The register of a file (v, s or a) with a number.  Raises OperandError where it does not exist."""
    if number >= _REGISTER_COUNTS.get(letter, 16):
        raise OperandError(f"there is no register {letter}{number}")
    return Register(f"{letter}{number}")


@lru_cache(maxsize=1 << 16)
def parse_operand(text: str) -> Operand:
    """Parse an operand; a pair with a name is the vector of its halves.  Raises OperandError."""
    found = _REGISTER.fullmatch(text)
    if found:
        return make_register(found[1], int(found[2]))
    found = _RANGE.fullmatch(text)
    if found:
        first, last = int(found[2]), int(found[3])
        if not first <= last <= first + 31:
            raise OperandError(f"{text} is not a range of registers")
        return Vector(tuple(make_register(found[1], number) for number in range(first, last + 1)))
    if text in NAMED_PAIRS:
        return Vector(tuple(Register(half) for half in NAMED_PAIRS[text]))
    if text in _SINGLE:
        return Register(text)
    if _INTEGER.fullmatch(text):
        return Immediate(int(text, 0) if "x" in text.lower() else int(text))
    if _FLOAT.fullmatch(text):
        return _float(text)
    return _other(text)


def _float(text: str) -> Immediate:
    number = float(text)
    pattern = _INVERSE_TWO_PI.get(abs(number))
    if pattern is None:
        if number not in (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0):
            raise OperandError(f"{text} is not an inline constant")
        pattern = int.from_bytes(struct.pack("<d", number), "little")
    elif number < 0:
        raise OperandError(f"{text} is not an inline constant")
    return Immediate(pattern, "f64")


def _other(text: str) -> Operand:
    if text.startswith("-") and len(text) > 1:
        inner = parse_operand(text[1:])
        changes = inner.changes if isinstance(inner, Modified) else ()
        return Modified(
            inner.operand if isinstance(inner, Modified) else _signed_operand(inner, text), (*changes, "neg")
        )
    if text.startswith("|") and text.endswith("|") and len(text) > 2:
        return Modified(_signed_operand(parse_operand(text[1:-1]), text), ("abs",))
    found = _FUNCTION.fullmatch(text)
    if found and found[1] in ("abs", "neg", "sext"):
        inner = parse_operand(found[2])
        if isinstance(inner, Modified):
            return Modified(inner.operand, (*inner.changes, found[1]))
        return Modified(_signed_operand(inner, text), (found[1],))
    if found or _NAME.fullmatch(text):
        return Symbol(text)
    raise OperandError(f"{text!r} is not an operand")


def _signed_operand(inner: Operand, text: str) -> Operand:
    if not isinstance(inner, Register | Vector | Immediate):
        raise OperandError(f"{text!r} has neg, abs or sext on an operand that is not a register or constant")
    return inner
