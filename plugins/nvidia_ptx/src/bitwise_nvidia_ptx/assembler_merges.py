"""Instructions that ptxas merges with those before them into one whose results differ for some operands.

ptxas replaces `rcp.approx.ftz(ex2.approx.ftz(x))` by the approximation of 2^-x, and a minimum with 1 that is followed
by a maximum with 0 by a saturating sum, which returns 0 for a NaN, and not 1.  Where it does so depends on what it
sees: not through shared memory, a shuffle, or a number that is a parameter.  So the result of such an instruction is
equal only to that of the same execution by the same thread of the same text.

The sequences were found by executing random programs with and without optimisation, and in the machine code of ptxas
12.8 and 12.9 for sm_90.  ptxas 12.6, 12.8, 12.9, 13.0 and 13.1 merge them alike, for sm_90 and sm_100.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any, Protocol, cast

import numpy as np

from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    Vector,
    once_a_kernel,
    program_digest,
    registers_of,
)
from bitwise_core.execution.architecture import Context, OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.program import successors
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, constant_mask
from bitwise_core.execution.values.term_hash import term
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, nan_of
from bitwise_nvidia_ptx.address_numbers import flow_of
from bitwise_nvidia_ptx.assembler_constants import is_assembler_constant
from bitwise_nvidia_ptx.eight_bit_pairs import joined_conversions
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS

_APPROXIMATION = re.compile(r"(rcp\.approx|div\.approx)(\.ftz)?\.f32")
_MERGED_APPROXIMATION = re.compile(r"((ex2|rcp)\.approx|div\.(full|approx))(\.ftz)?\.f32")
_BOUNDED = re.compile(r"(sin|cos|tanh)\.approx(\.ftz)?\.f32")
_SCALING = re.compile(r"(mul|div)\.[\w.]*f32")
_LOW, _HIGH = (re.compile(rf"{verb}(\.ftz)?\.(f16|f32|f64)") for verb in ("min", "max"))
_RECTIFIER = re.compile(r"max(\.ftz)?\.NaN\.b?f16(x2)?")
_SATURATION = re.compile(r"cvt\.(\w+\.)*sat\.b?f(16|32|64)\.\w+")
_SATURATED_INTEGER = re.compile(r"cvt\.([\w.]+\.)?sat\.[su]\d+\.[\w.]+|(add|sub|mad\.hi|mad)\.sat\.s32")
_PAIR_OF_INTEGERS = re.compile(r"(add|sub|min|max)\.[su]16x2")
_PAIR_OF_FLOATS = re.compile(r"(add|sub|mul|fma|min|max)\.[\w.]*b?f16x2")
_SIGN_EXTENDING = re.compile(
    r"(shr|div|rem|mul\.hi|mul\.wide|mad\.hi|mad\.wide|min|max|sad)\.s16|setp?\.[\w.]*s16|cvt\.[\w.]*\.s16"
)
_OF_UNSIGNED_HALVES = re.compile(
    r"(shr|div|rem|mul\.hi|mul\.wide|mad\.hi|mad\.wide|min|max|sad)\.u16|setp?\.[\w.]*u16|cvt\.[\w.]*\.u16"
)
_UPPER_HALF = re.compile(r"(mul|mad)\.hi\.[us]16")
_OF_SHORT_FLOAT = re.compile(r"(add|sub|mul|fma|min|max|abs|neg|cvt|setp?|ex2|tanh)\.([\w.]*\.)?b?f16")
_ROUNDED_FUNCTION = re.compile(r"(sqrt|rcp|div)\.r[nzmp]\.(ftz\.)?f32")
_HALF_NEGATION = re.compile(r"(neg|abs|sub)\.s16")
_LOAD = re.compile(r"ld(\.(volatile|relaxed|acquire)(\.\w+)?)?\.(global|shared)\b")
"""A load whose number no assembler knows."""
_OF_REGISTER = re.compile(r"set\.[\w.]*\.(f32|[su]32)\.\w+")
_NARROW_LOAD = re.compile(r"ldu?\.[\w.:]*\.[bsu](8|16)")
_TO_INTEGER = re.compile(r"cvt\.r[nzmp]i\.[\w.]*f16")
_TO_INTEGERS = frozenset({"rni.", "rzi.", "rmi.", "rpi."})
_OF_SHORT_FLOATS = re.compile(r"cvt\.[\w.]*?(b?f16)\.(b?f16)")
_SATURATED_SIGNED = re.compile(r"cvt\.[\w.]*sat\.[su]\d+\.s(32|64)")
_FLOAT_TO_WORD = re.compile(r"cvt\.r[nzmp]i\.[\w.]*u32\.f32")
_FLUSHED_TO_WORD = re.compile(r"cvt\.r[mp]i\.[\w.]*ftz\.[\w.]*[su]32\.f32")
_SHORT_SHIFT = re.compile(r"sh[lr]\.[bus]16")
_SATURATED_WORD = re.compile(r"cvt\.[\w.]*sat\.[su]\d+\.[su](32|64)")
_FLUSHED_SIGN = re.compile(r"(neg|abs)\.ftz\.f16")
_FORMATS = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
_BITS = {"f16": 16, "f32": 32, "f64": 64}
_RUN_TIME = Effect.LOAD | Effect.CROSS_LANE | Effect.CALL
"""The effects of instructions whose results no assembler knows, but for shuffles, through which it passes literals."""
_OWN_MEMORY = frozenset({"shared", "shared::cta", "local"})
_ONES = {16: 0x3C00, 32: 0x3F800000, 64: 0x3FF0 << 48}


class _Noting(Protocol):
    """The domain of bit patterns, which keeps the assumptions of an execution."""

    notes: dict[str, None]


@dataclass(frozen=True, slots=True)
class _Merge:
    """What ptxas merges, as the end of a sentence, and the lanes whose results may differ.

    `operand`: the operand that decides, of `bits` bits; None: every lane.  `differs` takes its patterns.  `form`: only
    a NaN of this format differs.  `equal`: lanes in which two operands have one value.  `unknown`: only lanes in which
    one of these operands is no known number.  `refused`: the results of which lanes may differ is not followed.
    """

    what: str
    operand: Operand | None = None
    bits: int = 32
    differs: Callable[[Array], Array] | None = None
    form: FloatFormat | None = None
    equal: tuple[Operand, ...] = ()
    unknown: tuple[Operand, ...] = ()
    refused: bool = False


class _Sources:
    """The definitions that the registers of a kernel may hold, through instructions that ptxas looks through."""

    def __init__(self, kernel: Kernel, opcodes: OpcodeTable) -> None:
        self.kernel, self.opcodes, self.flow = kernel, opcodes, flow_of(kernel, opcodes)
        self.use = 0
        """The index of the instruction whose operands are followed."""
        self._reuses_registers = any(len(each) > 1 for each in self.flow.definitions.values())
        self._from_literals: dict[int, bool] = {}
        self._stores: dict[Operand, list[tuple[str, int]]] = {}
        """What is stored in shared and local memory, by the address in the text."""
        for index, instruction in enumerate(kernel.instructions):
            if instruction.opcode.startswith("st.") and not _OWN_MEMORY.isdisjoint(instruction.opcode.split(".")):
                target, *stored = instruction.operands
                self._stores.setdefault(target, []).extend(
                    (name, index) for one in stored for name in registers_of(one)
                )
        ends = (
            index + 1
            for index, each in enumerate(self.flow.infos)
            if each.effects.overlaps(Effect.BRANCH | Effect.CALL)
        )
        self.present = frozenset(each.opcode for each in kernel.instructions)
        """The opcodes of the kernel."""
        self.compared = {
            bits: any(each.startswith("setp.") and each.endswith(f".f{bits}") for each in self.present)
            for bits in _BITS.values()
        }
        """Whether the kernel compares floats of a width."""
        self.some_present: dict[tuple[CodeType, str], bool] = {}
        """Whether an opcode of the kernel fulfils a condition, by its code and the opcode that decides it."""
        self.places = {id(each): index for index, each in enumerate(kernel.instructions)}
        self._starts = sorted({0, *kernel.labels.values(), *ends})
        self._moved: dict[str, frozenset[int] | None] = {}
        self._before: dict[int, set[int]] = defaultdict(set)
        """The instructions after which each basic block may be executed."""
        for index, following in enumerate(successors(kernel, self.flow.infos)):
            for each in following:
                self._before[each].add(index)

    def may_be(self, operand: Operand, holds: Callable[[int], bool], user: Instruction | None = None) -> bool:
        """Return whether the assembler may know a number of an operand of `user` for which a condition holds."""
        if isinstance(operand, Immediate):
            return holds(operand.value)
        if not isinstance(operand, Register):
            return False
        if is_assembler_constant(operand, self.kernel, self.opcodes) is False:
            use = self.use if user is None else self.places[id(user)]
            return any(map(holds, self._literals(operand.name, use))) or self._may_be_computed(operand.name, use)
        numbers = self._numbers_of(operand.name)
        return numbers is None or any(map(holds, numbers))

    def _numbers_of(self, name: str) -> frozenset[int] | None:
        """Return the literals that are moved to a register, None if it may hold other numbers."""
        if name not in self._moved:
            written = [self.kernel.instructions[each] for each in self.flow.definitions.get(name, ())]
            plain = [each.operands[1] for each in written if each.opcode.startswith("mov.") and len(each.operands) == 2]
            numbers = [each.value for each in plain if isinstance(each, Immediate)]
            self._moved[name] = frozenset(numbers) if len(numbers) == len(written) else None
        return self._moved[name]

    def is_known(self, operand: Operand) -> bool:
        """Return whether the assembler may know an operand."""
        if is_assembler_constant(operand, self.kernel, self.opcodes) is not False or not isinstance(operand, Register):
            return True
        literals = any(True for _ in self._literals(operand.name, self.use))
        return literals or self._may_be_computed(operand.name, self.use)

    def _may_be_computed(self, name: str, use: int) -> bool:
        """Return whether a register may hold what instructions compute from literals before an instruction.

        Registers are told apart by the definitions that reach it: one that also holds a loaded number elsewhere is no
        less known here.
        """
        if not self._reuses_registers:
            return False
        return any(
            self.kernel.instructions[index].opcode.partition(".")[0] != "mov" and self._follows_from_literals(index)
            for index in self._reaching(name, use)
        )

    def _follows_from_literals(self, index: int) -> bool:
        """Return whether all that an instruction reads is computed from literals, on every path to it.

        Of a value that is computed from itself, its start decides.
        """
        pending, users, unknown = [index], dict[int, list[int]](), list[int]()
        found: set[int] = set()
        while pending:
            each = pending.pop()
            if each in found:
                continue
            found.add(each)
            places = None if self._from_literals.get(each) is False else self._definitions_read(each)
            if places is None:
                unknown.append(each)
                continue
            for place in places if each not in self._from_literals else ():
                users.setdefault(place, []).append(each)
                pending.append(place)
        self._from_literals.update(dict.fromkeys(found, True))
        while unknown:
            each = unknown.pop()
            self._from_literals[each] = False
            unknown += [user for user in users.pop(each, ()) if self._from_literals[user]]
        return self._from_literals[index]

    def _definitions_read(self, index: int) -> list[int] | None:
        """Return the definitions that an instruction may read; None if it reads something else than registers."""
        instruction, info = self.kernel.instructions[index], self.flow.infos[index]
        moves = instruction.opcode.startswith("shfl.")
        sources = instruction.operands[1:2] if moves else instruction.operands[1:]
        names = {name for each in sources for name in registers_of(each)}
        symbols = any(not isinstance(each, Immediate) and not registers_of(each) for each in sources)
        run_time = not moves and (info.effects.overlaps(_RUN_TIME) or info.accumulation is not None)
        places = [self._reaching(name, index) for name in names]
        if run_time or symbols or not SPECIAL_REGISTERS.isdisjoint(names) or not all(places):
            return None
        return [place for each in places for place in each]

    def _literals(self, name: str, use: int) -> Iterator[int]:
        """Yield the literals that a register which is also written at run time may hold before an instruction."""
        pending, seen = [(name, use)], set[tuple[str, int]]()
        while pending:
            place = pending.pop()
            if place in seen or len(self.flow.definitions.get(place[0], ())) < 2:
                continue
            seen.add(place)
            for index in self._reaching(*place):
                instruction = self.kernel.instructions[index]
                if instruction.opcode.startswith("mov.") and len(instruction.operands) == 2:
                    source = instruction.operands[1]
                    if isinstance(source, Immediate):
                        yield source.value
                    pending += [(each, index) for each in registers_of(source)]

    def of(self, operand: Operand, *, literals: bool = False, user: Instruction | None = None) -> Iterator[Instruction]:
        """Yield the instructions that may have written the number that an operand of `user` holds.

        `literals`: also those from which a literal may come, which ptxas knows through shuffles.  `user` is the
        instruction whose operands are followed, if not given.
        """
        use = self.use if user is None else self.places[id(user)]
        pending = [(name, use) for name in registers_of(operand)]
        seen = set[int]()
        while pending:
            name, use = pending.pop()
            for index in self._reaching(name, use):
                if index in seen:
                    continue
                seen.add(index)
                instruction = self.kernel.instructions[index]
                yield instruction
                if self._passes_on(instruction) or (literals and instruction.opcode.startswith("shfl.")):
                    pending += [(each, index) for each in self.flow.infos[index].reads]
                pending += self._stored(instruction)

    def _stored(self, load: Instruction) -> Sequence[tuple[str, int]]:
        """Return the registers, with their places, that the kernel stores where a load of its own memory reads.

        ptxas passes on what a thread stores and loads by one address of the text, also across a barrier.
        """
        base, *parts = load.opcode.split(".")
        if base != "ld" or _OWN_MEMORY.isdisjoint(parts) or not self._stores:
            return ()
        return self._stores.get(load.operands[1], ())

    def comparisons(self, predicate: Operand, user: Instruction) -> Iterator[Instruction]:
        """Yield the comparisons from which a predicate that `user` reads may be computed."""
        pending = [(name, self.places[id(user)]) for name in registers_of(predicate)]
        seen = set[int]()
        while pending:
            for index in self._reaching(*pending.pop()):
                instruction = self.kernel.instructions[index]
                compares = instruction.opcode.startswith("setp.")
                if index in seen or not (compares or instruction.opcode.endswith(".pred")):
                    continue
                seen.add(index)
                if compares:
                    yield instruction
                pending += [(each, index) for each in self.flow.infos[index].reads]

    def direct(self, operands: Sequence[Operand]) -> Iterator[Instruction]:
        """Yield the instructions that may have written the registers of some operands themselves, without moves."""
        for operand in operands:
            for name in registers_of(operand):
                for index in self._reaching(name, self.use):
                    yield self.kernel.instructions[index]

    def _reaching(self, name: str, use: int) -> Sequence[int]:
        """Return the definitions of a register that an instruction may read: the last ones on the ways to it."""
        every = self.flow.definitions.get(name, ())
        found, seen = set[int](), set[int]()
        ends = [(use, self._start_of(use))]
        while ends:
            end, start = ends.pop()
            for index in reversed(every[bisect_left(every, start) : bisect_left(every, end)]):
                found.add(index)
                if self.kernel.instructions[index].guard is None:
                    break
            else:
                before = self._before.get(start, set()) - seen
                seen |= before
                ends += [(last + 1, self._start_of(last)) for last in before]
        return sorted(found)

    def _start_of(self, index: int) -> int:
        """Return the first instruction of the basic block of an instruction."""
        return self._starts[bisect_right(self._starts, index) - 1]

    def _passes_on(self, instruction: Instruction) -> bool:
        """Return whether an instruction may return an operand, up to its sign."""
        base = instruction.opcode.split(".", 1)[0]
        if base in ("mov", "neg", "abs", "selp", "copysign", "prmt"):
            return True
        sources = instruction.operands[1:]
        names = [each.name for each in sources if isinstance(each, Register)]
        if base in ("min", "max", "and", "or") and len(set(names)) < len(names):
            return True
        bits = _bits_of(instruction)
        low = (1 << bits - 1) - 1
        neutral: Callable[[int], bool] | None = None
        if base in ("add", "sub", "or", "xor", "shl", "shr"):
            neutral = lambda number: not number & low  # noqa: E731
        elif base in ("mul", "fma") and bits in _ONES:
            neutral = lambda number: number & low == _ONES[bits]  # noqa: E731
        elif base == "and":
            neutral = lambda number: number & low == low  # noqa: E731
        return neutral is not None and any(self.may_be(each, neutral, instruction) for each in sources)


def _bits_of(instruction: Instruction) -> int:
    """Return the width of the type of an instruction in bits, 32 where it names none."""
    digits = re.sub(r"\D", "", instruction.opcode.rsplit(".", 1)[-1])
    return int(digits) if digits in ("16", "32", "64") else 32


@once_a_kernel
def _merges(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, _Merge]:
    """Return what ptxas may merge, by the identity of the last instruction of each sequence."""
    sources = _Sources(kernel, opcodes)
    found: dict[int, _Merge] = {}
    for sources.use, instruction in enumerate(kernel.instructions):
        guarded = instruction.guard is not None and instruction.opcode.startswith("mov.")
        if len(instruction.operands) > 1 and (guarded or _may_be_merged(instruction.opcode)):
            merge = _merge_of(instruction, sources)
            if merge is not None:
                found[id(instruction)] = merge
    return found


_BASES = frozenset({"cvt", "min", "max", "selp", "lop3", "shl", "shr", "bfe", "bfi", "copysign", "abs", "set", "setp"})
_OPCODES = (
    _APPROXIMATION, _SCALING, _PAIR_OF_INTEGERS, _RECTIFIER, _SIGN_EXTENDING, _OF_UNSIGNED_HALVES, _PAIR_OF_FLOATS,
    _TO_INTEGER, _LOW, _HIGH, _OF_SHORT_FLOAT, _ROUNDED_FUNCTION,
)  # fmt: skip


@lru_cache(maxsize=1024)
def _may_be_merged(opcode: str) -> bool:
    """Return whether `_merge_of` has a rule on an opcode."""
    base = opcode.split(".", 1)[0]
    return base in _BASES or opcode == "mov.b32" or any(each.fullmatch(opcode) is not None for each in _OPCODES)


def _merge_of(instruction: Instruction, sources: _Sources) -> _Merge | None:
    opcode, base, operands = instruction.opcode, instruction.opcode.split(".", 1)[0], instruction.operands[1:]
    if _APPROXIMATION.fullmatch(opcode) and _of_kind(operands[-1:], sources, _is_merged_approximation):
        return _Merge("an approximation with the one whose result it takes")
    if _SCALING.fullmatch(opcode) and _of_kind(operands, sources, lambda each: each.startswith("div.approx.")):
        scales = any(sources.may_be(each, lambda number: not number & 0x7FFFFF) for each in operands)
        return (
            _Merge("a product with a power of two with the quotient whose rounding it leaves out") if scales else None
        )
    if base == "cvt" and _of_other_sign(opcode, operands, sources):
        return _Merge("a conversion with an operation whose sign it takes for its own")
    if base in ("min", "max") and _flushes_otherwise(opcode, operands, sources):
        return _Merge("an extremum with an operation of which only one flushes subnormal numbers")
    if base == "mov" and instruction.guard is not None:
        return _of_guarded_move(instruction, sources)
    if base == "selp" and _is_bounded_choice(instruction, sources):
        return _Merge("a selection with a function whose NaN it leaves out")
    if opcode == "lop3.b32":
        return _Merge("an operation on one value twice with others", equal=tuple(operands[:3]))
    if base in ("shl", "shr") and _bits_of(instruction) == 64:
        return _of_shifts(opcode, operands, sources)
    if base in ("bfe", "bfi"):
        return _of_bit_fields(base, _bits_of(instruction), operands, sources)
    if opcode == "mov.b32" and isinstance(instruction.operands[0], Vector):
        halves = any(_NARROW_LOAD.fullmatch(each.opcode) for each in sources.direct(operands))
        return _Merge("a move of halves with a load that fills one of them") if halves else None
    if _TO_INTEGER.fullmatch(opcode):
        if _of_kind(operands, sources, lambda each: _FLUSHED_SIGN.fullmatch(each) is not None):
            return _Merge("a rounding to an integer with a sign that flushes")
        if _of_kind(operands, sources, partial(_rounds_otherwise, opcode)):
            return _Merge("a rounding to an integer with a conversion of 16 bits, whose rounding it takes")
    if _SHORT_SHIFT.fullmatch(opcode) and _of_kind(
        operands[1:], sources, lambda each: _FLOAT_TO_WORD.fullmatch(each) is not None
    ):
        return _Merge("a shift of 16 bits with a conversion to an integer, as one of 16 bits")
    if _SATURATED_WORD.fullmatch(opcode) and _of_kind(
        operands, sources, lambda each: _FLUSHED_TO_WORD.fullmatch(each) is not None
    ):
        return _Merge("a saturation with a conversion that flushes subnormal numbers, which it leaves out")
    if base == "copysign":
        return _Merge("a copy of a number's own sign") if operands[0] == operands[1] else None
    if base in ("min", "max") and ".ftz" in opcode and operands[0] in operands[1:]:
        return _Merge("an extremum of a number with itself, which flushes it, with another one")
    if _PAIR_OF_INTEGERS.fullmatch(opcode):
        known = any(map(sources.is_known, operands))
        what = "an operation on pairs of integers with the one that takes a half of it"
        return _Merge(what, unknown=tuple(operands)) if known else None
    if _RECTIFIER.fullmatch(opcode) and _of_kind(operands, sources, partial(_is_rectified_otherwise, opcode)):
        return _Merge("a maximum with a saturating operation, or one of another format")
    if _SATURATED_SIGNED.fullmatch(opcode) and any(_is_negation(each, sources) for each in sources.of(operands[0])):
        least = 1 << _bits_of(instruction) - 1
        what = "a saturation with a negation, of which the least number has a positive one"
        return _Merge(what, operands[0], _bits_of(instruction), lambda numbers: numbers == np.uint64(least))
    if base == "cvt" and _SATURATION.fullmatch(opcode) and _of_kind(operands, sources, _is_saturated_integer):
        return _Merge("a saturation with one to an integer")
    if base == "abs" and opcode.endswith("x2") and _of_kind(operands, sources, lambda each: each.endswith(".f32")):
        return _Merge("the magnitudes of a pair with the operation on fp32 whose result it takes")
    if base in ("set", "setp") and _of_kind(operands, sources, lambda each: _OF_REGISTER.fullmatch(each) is not None):
        return _Merge("a comparison with one whose result is a number")
    if base == "cvt" and ".tf32." in opcode and _of_kind(operands, sources, lambda each: each.endswith("x2")):
        return _Merge("a rounding to tf32 with an operation on pairs, of which it takes one half")
    if id(instruction) in joined_conversions(sources.kernel, sources.opcodes):
        return _Merge("a conversion to eight bits with a pair behind what reads its result", refused=True)
    if _SIGN_EXTENDING.fullmatch(opcode) or (
        _OF_UNSIGNED_HALVES.fullmatch(opcode) and _of_kind(operands, sources, lambda each: each == "abs.s16")
    ):
        # ptxas takes a magnitude of 16 bits for a number that is not negative, with or without a sign.
        return _of_halves(operands, sources)
    if _PAIR_OF_FLOATS.fullmatch(opcode) and any(
        _has_signs(each, sources) or _is_computed_literal(each, sources) for each in operands
    ):
        return _Merge("an operation on pairs with a literal whose halves have two signs")
    if _OF_SHORT_FLOAT.fullmatch(opcode) and _of_kind(operands, sources, _takes_upper_half):
        return _Merge("an operation on a float of 16 bits with the product of which it takes one half")
    if _ROUNDED_FUNCTION.fullmatch(opcode) and _of_kind(operands, sources, lambda each: each.startswith("set.")):
        return _Merge("a quotient or a root with the comparison whose result it takes")
    if _PAIR_OF_FLOATS.fullmatch(opcode) and _share_negated_halves(operands, sources):
        return _Merge("an operation on one pair twice, of which halves are negated one by one")
    return _of_clamps(instruction, sources) if base in ("min", "max", "selp") else None


def _of_other_sign(opcode: str, operands: Sequence[Operand], sources: _Sources) -> bool:
    """Return whether a conversion may follow an operation of the other sign that ptxas joins with it."""
    joined = ""
    if re.fullmatch(r"cvt\.[\w.]*sat\.[su]\d+\.u\d+", opcode):
        joined = r"cvt\.[\w.]*\.u\d+\.b?f\d+|bfe\.s\d+|cvt\.s\d+\.s\d+"
    elif re.fullmatch(r"cvt\.[\w.]*sat\.[su]\d+\.s\d+", opcode):
        joined = r"abs\.s\d+"
    elif re.fullmatch(r"cvt\.[\w.]*\.b?f\d+\.u\d+", opcode):
        joined = r"bfe\.s\d+|cvt\.s\d+\.s\d+"
    return bool(joined) and _of_kind(operands, sources, lambda each: re.fullmatch(joined, each) is not None)


def _flushes_otherwise(opcode: str, operands: Sequence[Operand], sources: _Sources) -> bool:
    """Return whether an extremum of fp16 may follow an operation on fp16 of which only one has .ftz."""
    kind = opcode.rsplit(".", 1)[-1]

    def differs(each: str) -> bool:
        arithmetic = each.split(".", 1)[0] in ("add", "sub", "mul", "fma", "min", "max")
        return arithmetic and each.endswith(f".{kind}") and (".ftz" in each) != (".ftz" in opcode)

    return kind in ("f16", "f16x2") and _of_kind(operands, sources, differs)


def _is_bounded_choice(instruction: Instruction, sources: _Sources) -> bool:
    """Return whether a selection compares a sine, a cosine or a hyperbolic tangent with a literal and may return it."""
    *operands, predicate = _choice(instruction)
    if not _of_kind(operands, sources, lambda each: _BOUNDED.fullmatch(each) is not None):
        return False
    comparisons = (each for each in sources.comparisons(predicate, instruction) if ".f" in each.opcode)
    return any(sources.may_be(one, lambda number: True) for each in comparisons for one in each.operands[1:])


def _rounds_otherwise(rounding: str, opcode: str) -> bool:
    """Return whether a conversion of 16 bits has another format than a rounding, or rounds to no integer.

    ptxas makes one rounding of both: of the format of the second, and to the nearest integer where the first has none.
    """
    found, own = _OF_SHORT_FLOATS.fullmatch(opcode), rounding.rsplit(".", 1)[-1]
    return found is not None and (found.groups() != (own, own) or opcode[4:8] not in _TO_INTEGERS)


def _is_rectified_otherwise(maximum: str, opcode: str) -> bool:
    """Return whether ptxas may make a rectifying operation of one that saturates, or that has the other format."""
    kind, own = (each.rsplit(".", 1)[-1].removesuffix("x2") for each in (opcode, maximum))
    arithmetic = opcode.split(".", 1)[0] in ("add", "sub", "mul", "fma", "min", "max", "cvt")
    return ".sat" in opcode or (arithmetic and kind in ("f16", "bf16") and kind != own)


def _is_saturated_integer(opcode: str) -> bool:
    return _SATURATED_INTEGER.fullmatch(opcode) is not None


def _is_merged_approximation(opcode: str) -> bool:
    return _MERGED_APPROXIMATION.fullmatch(opcode) is not None


def _of_kind(operands: Sequence[Operand], sources: _Sources, holds: Callable[[str], bool]) -> bool:
    """Return whether the opcode of an instruction that may have written an operand fulfils a condition.

    The condition depends on nothing but the opcode of the instruction that `sources` follows.
    """
    plain = holds.func if isinstance(holds, partial) else holds
    # A condition is decided by its own text and by the opcode of the instruction whose operands are followed.
    key = (cast(FunctionType, plain).__code__, sources.kernel.instructions[sources.use].opcode)
    present = sources.some_present.get(key)
    if present is None:
        present = sources.some_present[key] = any(map(holds, sources.present))
    if not present:
        return False
    return any(holds(each.opcode) for operand in operands for each in sources.of(operand))


def _of_shifts(opcode: str, operands: Sequence[Operand], sources: _Sources) -> _Merge | None:
    """A shift of 64 bits: of a number that was widened as `cvt.s64.u32` does, or by 64 and more."""
    if sources.may_be(operands[1], lambda number: number >= 64):
        return _Merge("a shift by 64 or more with a product", bits=64, unknown=(operands[0],))
    if opcode == "shl.b64" and _of_kind(operands[:1], sources, lambda each: each == "cvt.s64.u32"):
        what = "a shift with an extension by zeros, as one by the sign"
        return _Merge(what, operands[0], 64, lambda numbers: numbers >> np.uint64(31) != 0)
    return None


def _of_bit_fields(base: str, bits: int, operands: Sequence[Operand], sources: _Sources) -> _Merge | None:
    """A bit field that ends behind the register, or a field of a field."""
    numbers = [each.value for each in operands[-2:] if isinstance(each, Immediate)]
    inside = len(numbers) == 2 and sum(numbers) <= bits
    known = all(sources.may_be(each, lambda number: True) for each in operands[-2:])
    nested = base == "bfe" and _of_kind(operands[:1], sources, lambda each: each.startswith("bfe."))
    if nested or (known and not inside):
        unknown = tuple(operands[:2] if base == "bfi" else operands[:1])
        # Behind the register, the bits of a number that the assembler does not know depend on what it knows of it.
        evaluated = all(is_assembler_constant(each, sources.kernel, sources.opcodes) for each in unknown)
        what = "a bit field with the operation whose result it takes"
        behind = len(numbers) == 2 and not inside
        return _Merge(what, bits=bits, unknown=unknown if evaluated or not behind else ())
    return None


def _of_halves(operands: Sequence[Operand], sources: _Sources) -> _Merge | None:
    """An operation on a negated number of 16 bits: ptxas negates in 32 bits, where -(-32768) is 32768."""
    for operand in operands:
        for each in sources.of(operand):
            if _HALF_NEGATION.fullmatch(each.opcode) is None:
                continue
            if not each.opcode.startswith("sub") or sources.may_be(each.operands[1], lambda number: not number):
                what = "an operation on 16 bits with a negation or a magnitude, in 32 bits"
                return _Merge(what, operand, 16, lambda numbers: numbers == 0x8000)
    return None


def _is_negation(instruction: Instruction, sources: _Sources) -> bool:
    """Return whether an instruction may negate an integer of 32 or 64 bits."""
    opcode, operands = instruction.opcode, instruction.operands[1:]
    ones = (1 << _bits_of(instruction)) - 1
    if re.fullmatch(r"neg\.s(32|64)", opcode):
        return True
    if re.fullmatch(r"sub\.[su](32|64)", opcode):
        return sources.may_be(operands[0], lambda number: not number & ones, instruction)
    factor = re.fullmatch(r"(mul|mad)\.lo\.[su](32|64)", opcode) is not None
    return factor and any(
        sources.may_be(each, lambda number: number & ones == ones, instruction) for each in operands[:2]
    )


def _has_signs(operand: Operand, sources: _Sources) -> bool:
    """Return whether an operand may be a pair with a negative literal and another half that is none."""

    def mixed(number: int) -> bool:
        return bool((number ^ number >> 16) & 0x8000)

    if isinstance(operand, Immediate):
        return mixed(operand.value)
    for each in sources.of(operand, literals=True):
        for source in each.operands[1:] if each.opcode.startswith(("mov.", "selp.", "prmt.")) else ():
            halves = [Register(name) for name in registers_of(source)]
            if isinstance(source, Immediate) and each.opcode.startswith(("mov.b32", "mov.u32", "selp.b32")):
                if mixed(source.value):
                    return True
            elif len(halves) > 1 and any(sources.may_be(one, lambda number: bool(number & 0x8000)) for one in halves):
                return True
    return False


def _takes_upper_half(opcode: str) -> bool:
    return _UPPER_HALF.fullmatch(opcode) is not None


def _share_negated_halves(operands: Sequence[Operand], sources: _Sources) -> bool:
    """Return whether two operands may be one pair that is put together of halves, of which one may be negated.

    ptxas takes the signs out of the halves, and loses one of them.
    """
    if not any(each.startswith(_HALF_SIGNS) and not each.endswith("x2") for each in sources.present):
        return False
    seen = set[int]()
    for operand in operands:
        made = list(sources.of(operand))
        negated = any(each.opcode.startswith(_HALF_SIGNS) and not each.opcode.endswith("x2") for each in made)
        packs = {id(each) for each in made if isinstance(each.operands[-1], Vector)} if negated else set[int]()
        if not seen.isdisjoint(packs):
            return True
        seen |= packs
    return False


_HALF_SIGNS = ("neg.f16", "neg.bf16", "neg.ftz.f16", "abs.f16", "abs.bf16", "abs.ftz.f16", "xor.b16")
"""The beginnings of opcodes that may change the sign of a number of 16 bits."""


def _is_computed_literal(operand: Operand, sources: _Sources) -> bool:
    """Return whether the assembler computes an operand from literals by an operation on integers."""
    if not isinstance(operand, Register) or not sources.is_known(operand):
        return False
    moves = ("mov", "selp", "prmt", "shfl", "cvt")
    return any(
        each.opcode.split(".", 1)[0] not in moves
        and _PAIR_OF_FLOATS.fullmatch(each.opcode) is None
        and _LOAD.match(each.opcode) is None
        for each in sources.of(operand, literals=True)
    )


def _choice(instruction: Instruction) -> tuple[Operand, ...]:
    """Return what an instruction reads: of a move under a guard what it leaves, too, and the predicate, as a selection.

    ptxas makes a selection of such a move.
    """
    guard = instruction.guard
    if guard is None or not instruction.opcode.startswith("mov."):
        return instruction.operands[1:]
    return (*instruction.operands[1:], instruction.operands[0], Register(guard.register))


def _of_guarded_move(instruction: Instruction, sources: _Sources) -> _Merge | None:
    """A move under a guard that ptxas may merge as a selection, also in threads that do not execute it."""
    if not isinstance(instruction.operands[0], Register) or len(instruction.operands) != 2:
        return None
    clamps = _of_clamps(instruction, sources) is not None
    if not clamps and not _is_bounded_choice(instruction, sources):
        return None
    return _Merge("a move under a guard with the extremum or the function before it", refused=True)


def _of_clamps(instruction: Instruction, sources: _Sources) -> _Merge | None:
    """A maximum with 0 of a minimum with 1, or the reverse, also as selections: a saturating sum with +0."""
    bits = _bits_of(instruction)
    kind = next((name for name, size in _BITS.items() if size == bits), "")

    def is_one(number: int) -> bool:
        return number & (1 << bits) - 1 == _ONES[bits]

    def is_zero(number: int) -> bool:
        return not number & (1 << bits - 1) - 1

    def is_minus_zero(number: int) -> bool:
        return number & (1 << bits) - 1 == 1 << bits - 1

    for outer, inner in (((_HIGH, is_zero), (_LOW, is_one)), ((_LOW, is_one), (_HIGH, is_zero))):
        if not _bounds(instruction, *outer, bits, sources):
            continue
        for operand in _choice(instruction):
            for each in sources.of(operand):
                if not _bounds(each, *inner, bits, sources):
                    continue
                zeros = any(
                    sources.may_be(one, is_minus_zero, user) for user in (instruction, each) for one in _choice(user)
                )
                if zeros:
                    return _Merge("a minimum and a maximum into an operation that returns no zero of this sign")
                if outer[0] is _HIGH:
                    what = "a minimum and a maximum into an operation that returns 0 for a NaN"
                    return _Merge(what, form=FLOAT_FORMATS[_FORMATS[kind]])
    return None


def _bounds(
    instruction: Instruction, verb: re.Pattern[str], bound: Callable[[int], bool], bits: int, sources: _Sources
) -> bool:
    """Return whether an instruction is an extremum with one of some literals, or a selection that may be one."""
    opcode, operands = instruction.opcode, _choice(instruction)
    chooses = opcode.startswith(("selp.", "mov.")) and len(operands) == 3 and sources.compared.get(bits, False)
    if not opcode.endswith(str(bits)) or not (chooses or verb.fullmatch(opcode) is not None):
        return False
    if not any(sources.may_be(each, bound, instruction) for each in operands):
        return False
    if not chooses:
        return True
    comparisons = sources.comparisons(operands[-1], instruction)
    return any(
        each.opcode.endswith(f".f{bits}") and any(sources.may_be(one, bound, each) for one in each.operands[1:])
        for each in comparisons
    )


def unless_merged(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of an instruction, whose result is one of this text where ptxas may merge it with others.

    An execution on bit patterns has a note.  Raises Unsupported in other analyses than the one of terms.
    """
    merge = _merges(context.kernel, context.arch.opcodes).get(id(instruction))
    if merge is None:
        return step
    name = f"{instruction.opcode} at line {instruction.line} of {program_digest(context.module, context.kernel)}"
    reason = f"ptxas may merge {merge.what}: {instruction.opcode}"

    def run(machine: Machine) -> Control | None:
        domain = machine.domain.name
        if domain == "addresses":
            return step(machine)
        if merge.refused and domain != "bits":
            raise Unsupported(reason, instruction.line)
        lanes = _lanes(merge, machine, instruction)
        control = step(machine)
        if not lanes.any():
            return control
        if domain == "bits":
            cast(_Noting, machine.domain).notes[f"{reason}: the bytes are those of the instructions one by one"] = None
            return control
        if domain != "terms":
            raise Unsupported(reason, instruction.line)
        count = machine.memory.executions[instruction.line] = machine.memory.executions.get(instruction.line, 0) + 1
        for destination in map(Register, registers_of(instruction.operands[0])):
            found = as_symbolic_vector(machine.read(destination))
            parts = [found, as_symbolic_vector(machine.thread.astype(np.uint64))]
            own = term(found.bits, f"{name}, execution {count}", parts, recorder=machine.domain.recorder)
            machine.write(destination, blend_values(lanes, own, found))
        return control

    return run


def _lanes(merge: _Merge, machine: Machine, instruction: Instruction) -> Array:
    """Return the active lanes whose results may differ."""
    if merge.equal:
        values = [machine.read_bits(each, 32) for each in merge.equal]
        vectors = [as_symbolic_vector(each) for each in values if not isinstance(each, np.ndarray)]
        pairs = [_same(one, other) for one, other in combinations(vectors, 2)]
        found: Array = np.any(np.broadcast_arrays(*pairs), axis=0) if pairs else np.zeros((1, 1), dtype=bool)
        return np.logical_and(machine.active(), found) if found.any() else found
    active: Array = machine.active()
    if merge.form is not None:
        operands = instruction.operands[1:-1] if instruction.opcode.startswith("selp.") else instruction.operands[1:]
        sources, bits = [each for each in operands if isinstance(each, Register)], merge.form.bits
        differing = [_differing(machine.read_bits(each, bits), bits, merge, machine) for each in sources]
        return np.logical_and(active, np.any(np.broadcast_arrays(*differing), axis=0)) if differing else active
    if merge.unknown:
        known = [constant_mask(as_symbolic_vector(machine.read_bits(each, merge.bits))) for each in merge.unknown]
        every: Array = np.all(np.broadcast_arrays(*map(np.asarray, known)), axis=0)
        return np.logical_and(active, np.logical_not(every))
    if merge.operand is None:
        return active
    value = machine.read_bits(merge.operand, merge.bits)
    return np.logical_and(active, _differing(value, merge.bits, merge, machine))


def _differing(value: Value, bits: int, merge: _Merge, machine: Machine) -> Array:
    vector = as_symbolic_vector(value)
    known: Any = np.asarray(constant_mask(vector))
    if merge.form is not None:
        numbers = nan_of(vector.words[0].astype(f"u{bits // 8}"), merge.form)
        unknown: Any = ~np.asarray(machine.domain.assumed_finite(value, merge.form))
    else:
        assert merge.differs is not None
        numbers, unknown = merge.differs(vector.words[0]), np.True_
    found: Array = np.where(known, numbers, unknown)
    return found


def _same(one: SymbolicVector, other: SymbolicVector) -> Array:
    """Return the lanes in which two values are one that is no known number."""
    equal: Array = (one.words == other.words).all(axis=0) & ~np.asarray(constant_mask(one))
    return equal
