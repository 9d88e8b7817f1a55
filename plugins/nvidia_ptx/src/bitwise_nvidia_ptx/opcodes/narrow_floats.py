"""cvt of numbers of 4 and 6 bits (e2m1, e2m3, e3m2) and of scales (ue8m0), two at a time.

Source: PTX ISA 8.8, "cvt": two numbers of e2m1 are the halves of a byte; one of e2m3 or e3m2 is the lower 6 bits of a
byte, and one of ue8m0 a byte.  A value above the largest number becomes that number, and a NaN the positive one.  Each
operation acts on whole bytes.  No GPU with these instructions was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import UnknownInstruction, named
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import FLOAT_FORMATS, declare, operation
from bitwise_nvidia_ptx.opcodes.common import BITS, FORMATS, operands_of

NARROW = {"e2m1x2": "e2m1", "e2m3x2": "e2m3", "e3m2x2": "e3m2", "ue8m0x2": "ue8m0"}
"""The packed types, and their elements."""
_WIDE = {"f16x2": "f16", "bf16x2": "bf16"}


def _function(name: str) -> Callable[[Array], Array]:
    found = operation(name).function
    assert found is not None
    return found


def _pair(high: Array, low: Array) -> Array:
    """Return two fp32 numbers as numbers of e2m1 in a byte."""
    rounded = _function("convert.rn.satfinite.e2m1.fp32")
    found: Array = rounded(high) << np.uint8(4) | rounded(low)
    return found


def _widened(name: str, shift: int, bits: int, pattern: Array) -> Array:
    """Return the result of a conversion of `bits` bits of bytes, from bit `shift` on."""
    return _function(name)(pattern >> np.uint8(shift) & np.uint8((1 << bits) - 1))


for _form, _shifts in (("e2m1", {"_low": 0, "_high": 4}), ("e2m3", {"": 0}), ("e3m2", {"": 0})):
    for _name, _shift in _shifts.items():
        for _target in ("fp16", "bf16"):
            _says = f"the number of {_form} in the byte a{_name.replace('_', ', ')}"
            _exact = partial(_widened, f"convert.{_target}.{_form}", _shift, FLOAT_FORMATS[_form].bits)
            declare("ptx", f"from_{_form}{_name}", (f"{_target}.b8",), says=_says, function=_exact)
            declare("ptx", f"from_{_form}{_name}_relu", (f"{_target}.b8",), says=f"{_says}, 0 if it is negative")
declare(
    "ptx", "from_ue8m0", ("bf16.b8",), says="the scale of ue8m0 in the byte a",
    function=_function("convert.bf16.ue8m0"),
)  # fmt: skip
declare(
    "ptx", "to_e2m1", ("b8.fp32",), ("", ""), says="a and b rounded to e2m1, in the upper and the lower half of a byte",
    function=_pair,
)  # fmt: skip
declare("ptx", "to_e2m1_relu", ("b8.fp32",), ("", ""), says="as to_e2m1, 0 for negative numbers")
for _form in ("e2m3", "e3m2"):
    _says = f"a rounded to {_form}, in a byte"
    declare("ptx", f"to_{_form}", ("b8.fp32",), says=_says, function=_function(f"convert.rn.satfinite.{_form}.fp32"))
    declare("ptx", f"to_{_form}_relu", ("b8.fp32",), says=f"{_says}, 0 for negative numbers")
for _rounding, _words in (("rz", "towards zero"), ("rp", "upwards")):
    declare("ptx", f"to_ue8m0_{_rounding}", ("b8.fp32", "b8.bf16"), says=f"a rounded {_words} to a power of two")


def narrow_conversion(instruction: Instruction, modifiers: Sequence[str], to: str, source: str) -> Step | None:
    """Return the step of a conversion from or to one of NARROW, None for another one.  Raises UnknownInstruction."""
    if to in NARROW:
        return _to_narrow(instruction, modifiers, NARROW[to], source)
    if source in NARROW:
        return _from_narrow(instruction, modifiers, NARROW[source], to)
    return None


def _to_narrow(instruction: Instruction, modifiers: Sequence[str], form: str, source: str) -> Step:
    scale, suffix = form == "ue8m0", "_relu" if "relu" in modifiers else ""
    known = [["rn", "satfinite"], ["rn", "satfinite", "relu"]]
    if scale:
        known = [["rz", "satfinite"], ["rp", "satfinite"]]
        suffix = f"_{modifiers[0]}" if modifiers else ""
    if list(modifiers) not in known or source not in (["f32", "bf16x2"] if scale else ["f32"]):
        raise UnknownInstruction(instruction)
    element = _WIDE.get(source, source)
    meaning, width = named(instruction, f"to_{form}{suffix}.b8.{FORMATS[element]}@ptx"), BITS[element]
    destination, *operands = operands_of(instruction, 2 if source in _WIDE else 3)

    def step(machine: Machine) -> None:
        if source in _WIDE:
            whole = machine.read_bits(operands[0], 2 * width)
            high, low = extract(whole, width, width), extract(whole, 0, width)
        else:
            high, low = (machine.read_bits(each, width) for each in operands)
        if form == "e2m1":
            machine.write(destination, machine.domain.floating(meaning, [high, low]))
            return
        machine.write(destination, concat([machine.domain.floating(meaning, [each]) for each in (low, high)]))

    return step


def _from_narrow(instruction: Instruction, modifiers: Sequence[str], form: str, to: str) -> Step:
    known = [["rn"]] if form == "ue8m0" else [["rn"], ["rn", "relu"]]
    if list(modifiers) not in known or to not in _WIDE or (form == "ue8m0" and to != "bf16x2"):
        raise UnknownInstruction(instruction)
    halves = ("_low", "_high") if form == "e2m1" else ("", "")
    relu = "_relu" if "relu" in modifiers else ""
    target = FORMATS[_WIDE[to]]
    meanings = [named(instruction, f"from_{form}{half}{relu}.{target}.b8@ptx") for half in halves]
    destination, operand = operands_of(instruction, 2)

    def step(machine: Machine) -> None:
        if form == "e2m1":
            value = machine.read_bits(operand, 8)
            bytes_of = [value, value]
        else:
            value = machine.read_bits(operand, 16)
            bytes_of = [extract(value, low, 8) for low in (0, 8)]
        parts = [machine.domain.floating(each, [part]) for each, part in zip(meanings, bytes_of, strict=True)]
        machine.write(destination, concat(parts))

    return step
