"""Conversions of fp32 to bf16 by integers, as LLVM emits them for targets without an instruction.

With b the bits of x, the sequence computes

    carrying = b + bfe(b, 16, 1) + 0x7fff
    result = (x is a number ? carrying : 0x7fff << 16) >> 16

The sum may be one instruction or two, in any order.  The bit may be taken from the high half of x instead, and x may
be read from several copies of one register, such as of an accumulator that no other instruction reads.  The sum carries
into the high half exactly where rounding to nearest even rounds up, and the pattern after the largest number is that of
infinity; a NaN becomes 0x7fff.  So the low half of the result is x rounded to bf16, and its high half is zero:
`bf16_rounded_by_integers_with_selected_nan` of the rules, whose proof this uses.

Where the number is used as fp32 again, a mask replaces the two shifts that undo each other,

    result = x is a number ? carrying & 0xffff0000 : 0x7fff << 16

so that x rounded to bf16 is the high half of the result, and its low half is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from bitwise_amd_gfx942.addresses.address_words import may_read_words
from bitwise_amd_gfx942.registers import storage
from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Operand, Register, Vector
from bitwise_core.execution.instruction_info import InstructionInfo
from bitwise_core.execution.known_sequences import Definition, KnownSequence
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import concat
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

ROUNDING_AND_NAN = 0x7FFF
"""What is added to round, and the result for a NaN."""

NAN_OF_FP32 = ROUNDING_AND_NAN << 16
"""The result for a NaN in the high half."""

HIGH_HALF = 0xFFFF0000
"""The mask of the half that the sum rounds."""

_SUM, _BIT, _SHIFT = "v_add3_u32", "v_bfe_u32", ("v_lshrrev_b32_e32", "v_lshrrev_b32_e64")
_ADD = ("v_add_u32_e32", "v_add_u32_e64")
_SUMS = (_SUM, *_ADD)
_AND = ("v_and_b32_e32", "v_and_b32_e64")
_NUMBER, _NAN = ("v_cmp_o_f32_e32", "v_cmp_o_f32_e64"), ("v_cmp_u_f32_e32", "v_cmp_u_f32_e64")
_HALVES = "v_and_b32_sdwa.dst_sel:DWORD.dst_unused:UNUSED_PAD"
_BIT_OF_HALF = {f"{_HALVES}.src0_sel:WORD_1.src1_sel:DWORD": 0, f"{_HALVES}.src0_sel:DWORD.src1_sel:WORD_1": 1}
"""Where each of these takes the high half of its source."""
_SELECT = ("v_cndmask_b32_e32", "v_cndmask_b32_e64")
_SELECT_HIGH = "v_cndmask_b32_sdwa.dst_sel:DWORD.dst_unused:UNUSED_PAD"
_SELECT_HIGH_TRUE = f"{_SELECT_HIGH}.src0_sel:DWORD.src1_sel:WORD_1"
_SELECT_HIGH_FALSE = f"{_SELECT_HIGH}.src0_sel:WORD_1.src1_sel:DWORD"


@dataclass(frozen=True, slots=True)
class _Read:
    """An instruction with the definitions of its sources; None for a source that is no register.

    `origins` are the definitions of which these are copies, or these themselves.
    """

    instruction: Instruction
    sources: tuple[Definition | None, ...]
    origins: tuple[Definition | None, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands[1:]


def bf16_roundings(kernel: Kernel, infos: Sequence[InstructionInfo], first: int, end: int) -> Iterator[KnownSequence]:
    """Yield the conversions in a run of instructions; see `Arch.sequences`."""
    instructions = kernel.instructions
    if not any(instructions[index].opcode in _TESTS for index in range(first, end)):
        return
    run: dict[int, _Read] = {}
    latest: dict[str, int] = {}
    copied: dict[Definition | None, Definition] = {}
    for index in range(first, end):
        instruction = instructions[index]
        if instruction.opcode in _READ:
            sources = tuple([_definition(each, latest) for each in instruction.operands[1:]])
            run[index] = _Read(instruction, sources, tuple([copied.get(each, each) for each in sources]))
            found = _rounding(run, index)
            if found is not None:
                members = frozenset(id(instructions[each]) for each in found.members)
                yield replace(found, compute=_unless_addresses(found.compute, members))
        if instruction.opcode in _MOVES and all(_is_vector(each) for each in instruction.operands):
            result, source = (_definition(each, latest) for each in instruction.operands)
            if result is not None and source is not None:
                copied[result[0], index] = copied.get(source, source)
        for name in infos[index].writes:
            latest[storage(name)] = index


_SELECTS = (*_SELECT, _SELECT_HIGH_TRUE, _SELECT_HIGH_FALSE)
_MOVES = ("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32", "v_mov_b32_e32", "v_mov_b32_e64")
_TESTS = frozenset((*_NUMBER, *_NAN))
_READ = frozenset((*_SUMS, _BIT, *_BIT_OF_HALF, *_SHIFT, *_AND, *_NUMBER, *_NAN, *_SELECTS))


def _definition(operand: Operand, latest: dict[str, int]) -> Definition | None:
    """Return the definition of a register, or of a pair of registers that are stored together."""
    registers = operand.items if isinstance(operand, Vector) else (operand,)
    keys = {storage(each.name) for each in registers if isinstance(each, Register)}
    if len(keys) != 1 or not all(isinstance(each, Register) for each in registers):
        return None
    (key,) = keys
    return key, latest.get(key, -1)


def _is_vector(operand: Operand) -> bool:
    return isinstance(operand, Register) and operand.name[0] in "va" and operand.name[1:].isdigit()


def _rounding(run: dict[int, _Read], root: int) -> KnownSequence | None:
    """Return the conversion whose last instruction is the select `root`, None if there is none."""
    select = run[root]
    opcode = select.instruction.opcode
    if len(select.sources) != 3 or opcode not in _SELECTS:
        return None
    test = _made(run, select.sources[2], (*_NUMBER, *_NAN))
    if test is None or len(run[test].operands) != 2:
        return None
    # v_cndmask takes its second source where the bit of the mask is set.
    is_number = run[test].instruction.opcode in _NUMBER
    rounded, nan = (1, 0) if is_number else (0, 1)
    members, masks, of_nan = {root, test}, list[_Constant](), ROUNDING_AND_NAN
    shift = _made(run, select.sources[rounded], _SHIFT) if opcode in _SELECT else None
    mask = _made(run, select.sources[rounded], _AND) if opcode in _SELECT else None
    if shift is not None and _is_number(run[shift].operands[0], 16):
        members.add(shift)
        carrying = run[shift].sources[1]
    elif mask is not None and len(run[mask].sources) == 2:
        of_sum = _made(run, run[mask].sources[0], _SUMS) is not None
        carrying = run[mask].sources[0 if of_sum else 1]
        other = 1 if of_sum else 0
        members.add(mask)
        masks, of_nan = [_Constant(run[mask].operands[other], run[mask].sources[other], HIGH_HALF)], NAN_OF_FP32
    elif opcode not in _SELECT and (opcode == _SELECT_HIGH_TRUE) == is_number:
        carrying = select.sources[rounded]
    else:
        return None
    adds, summands = _summands(run, carrying)
    if len(summands) != 3:
        return None
    for place, summand in enumerate(summands):
        bit = _made(run, summand.source, (_BIT, *_BIT_OF_HALF))
        taken = None if bit is None else _bit_of(run[bit])
        if bit is None or taken is None:
            continue
        x, of_bit = taken
        others = [*summands[:place], *summands[place + 1 :]]
        origin = run[bit].origins[run[bit].sources.index(x)]
        halves = [each for each in others if each.origin != origin]
        if len(halves) != 1 or run[test].origins != (origin, origin):
            continue
        read = (x, *(each.source for each in others if each is not halves[0]), *run[test].sources)
        copies = tuple(dict.fromkeys(each for each in read if each is not None))
        constants = [
            _Constant(halves[0].operand, halves[0].source, ROUNDING_AND_NAN),
            _Constant(select.operands[nan], select.sources[nan], of_nan),
            *of_bit,
            *masks,
        ]
        if all(each.given is not None or _is_number(each.operand, each.wanted) for each in constants):
            held = [(each.given, each.wanted) for each in constants if each.given is not None]
            inputs = (*copies, *(given for given, _ in held))
            compute = _rounded_with(len(copies), tuple(wanted for _, wanted in held), mask is not None)
            return KnownSequence(tuple(sorted({*members, *adds, bit})), inputs, compute)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Summand:
    """A summand with its definition, None for a constant in the text, and the definition of which that is a copy."""

    operand: Operand
    source: Definition | None
    origin: Definition | None


def _summands(run: dict[int, _Read], total: Definition | None) -> tuple[tuple[int, ...], tuple[_Summand, ...]]:
    """Return the instructions of a sum and its summands, where one of two is a sum of two with those of this one.

    Sums of integers modulo 2**32 may be made in any order.  No summands: another instruction makes the value.
    """
    add = _made(run, total, _SUMS)
    if add is None:
        return (), ()
    read = run[add]
    own = tuple(map(_Summand, read.operands, read.sources, read.origins))
    if read.instruction.opcode == _SUM:
        return (add,), own
    for place, each in enumerate(own):
        inner = _made(run, each.source, _ADD)
        if inner is not None:
            made = map(_Summand, run[inner].operands, run[inner].sources, run[inner].origins)
            return (add, inner), (*own[:place], *made, *own[place + 1 :])
    return (add,), own


@dataclass(frozen=True, slots=True)
class _Constant:
    """An operand that must hold a number; `given` is its definition where it is a register."""

    operand: Operand
    given: Definition | None
    wanted: int


def _bit_of(bit: _Read) -> tuple[Definition, tuple[_Constant, ...]] | None:
    """Return the value of which an instruction takes bit 16, with the constants that it needs; None for another bit."""
    place = _BIT_OF_HALF.get(bit.instruction.opcode)
    if place is None:
        if len(bit.operands) != 3 or not _is_number(bit.operands[1], 16) or not _is_number(bit.operands[2], 1):
            return None
        return None if bit.sources[0] is None else (bit.sources[0], ())
    x = bit.sources[place] if len(bit.operands) == 2 else None
    return None if x is None else (x, (_Constant(bit.operands[1 - place], bit.sources[1 - place], 1),))


def _made(run: dict[int, _Read], source: Definition | None, opcodes: Iterable[str]) -> int | None:
    """Return the instruction of one of these opcodes that makes a source, None if another one does."""
    if source is None or source[1] not in run or run[source[1]].instruction.opcode not in opcodes:
        return None
    return source[1]


def _is_number(operand: Operand, number: int) -> bool:
    return operand == Immediate(number)


@cache
def _unless_addresses(
    compute: Callable[[Machine, Sequence[Value]], Value | None], members: frozenset[int]
) -> Callable[[Machine, Sequence[Value]], Value | None]:
    """Return a conversion that returns None where its instructions, by identity, may read a word of an address."""

    def unless(machine: Machine, values: Sequence[Value]) -> Value | None:
        return None if may_read_words(machine, members) else compute(machine, values)

    return unless


def _rounded_with(
    copies: int, wanted: tuple[int, ...], is_high: bool
) -> Callable[[Machine, Sequence[Value]], Value | None]:
    """Return the conversion of a value where the numbers after its copies are these; it returns None elsewhere.

    `is_high`: the rounded number is the high half of the result, else the low one.
    """

    def rounded(machine: Machine, values: Sequence[Value]) -> Value | None:
        x, constants = values[0], values[copies:]
        for each, number in zip(constants, wanted, strict=True):
            if not isinstance(each, np.ndarray) or each.size != 1 or int(each.flat[0]) != number:
                return None
        half = machine.domain.floating(operation("convert.rn.bf16.fp32"), [x])
        zero = np.zeros((1, 1), dtype=np.uint16)
        return concat([zero, half] if is_high else [half, zero])

    return rounded
