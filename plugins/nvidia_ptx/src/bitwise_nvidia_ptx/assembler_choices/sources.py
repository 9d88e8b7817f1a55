"""The instructions that may have written a number, as an assembler sees them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import CodeType, FunctionType
from typing import Any, cast

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Operand, Register, registers_of
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import successors
from bitwise_nvidia_ptx.addresses.numbers import flow_of
from bitwise_nvidia_ptx.assembler_choices.constants import is_assembler_constant
from bitwise_nvidia_ptx.assembler_choices.found_numbers import found_numbers
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS

WIDTHS = {"f16": 16, "f32": 32, "f64": 64}
"""The widths of the types of floating-point numbers that instructions compare."""
ONES = {16: 0x3C00, 32: 0x3F800000, 64: 0x3FF0 << 48}
"""The pattern of 1 by width."""
LOAD = re.compile(r"ld(\.(volatile|relaxed|acquire)(\.\w+)?)?\.(global|shared)\b")
"""A load whose number no assembler knows."""
_RUN_TIME = Effect.LOAD | Effect.CROSS_LANE | Effect.CALL
"""The effects of instructions whose results no assembler knows, but for shuffles, through which it passes literals."""
_INVERTIBLE = re.compile(r"(add|sub|neg)\.(cc\.)?[su]\d+|(xor|not|brev)\.b\d+")
"""Operations on integers that another one may undo."""
_PRODUCT = re.compile(r"mul\.lo\.[su]\d+")
_BETWEEN_INTEGERS = re.compile(r"cvt\.(sat\.)?[su]\d+\.[su]\d+")
_OF_INTEGERS = re.compile(r"(mul\.(lo|wide)|mad\.(lo|wide|hi)|min|max|div)\.(cc\.)?[su]\d+")
_SAME_FORMAT = re.compile(r"cvt\.(ftz\.)?(b?f16|f32|f64)\.\2")
"""Conversions that return their operand, or flush it."""
EXTREMUM_OF_FLOATS = re.compile(r"(min|max)(\.\w+)*\.(b?f16(x2)?|f32|f64)")
_OWN_MEMORY = frozenset({"shared", "shared::cta", "local"})
_SHARED = frozenset({"shared", "shared::cta"})
_BARRIER = re.compile(r"(bar|barrier)(\.cta)?\.sync(\.aligned)?")


class Sources:
    """The definitions that the registers of a kernel may hold, through instructions that ptxas looks through."""

    def __init__(self, kernel: Kernel, opcodes: OpcodeTable) -> None:
        self.kernel, self.opcodes, self.flow = kernel, opcodes, flow_of(kernel, opcodes)
        self.use = 0
        """The index of the instruction whose operands are followed."""
        self._reuses_registers = any(len(each) > 1 for each in self.flow.definitions.values())
        self._from_literals: dict[int, bool] = {}
        self._stores: dict[Operand, list[tuple[str, int]]] = {}
        """What is stored in shared and local memory, by the address in the text."""
        self._stored_locally: list[tuple[str, int]] = []
        for index, instruction in enumerate(kernel.instructions):
            parts = instruction.opcode.split(".")
            if parts[0] == "st" and not _OWN_MEMORY.isdisjoint(parts):
                target, *stored = instruction.operands
                kept = [(name, index) for one in stored for name in registers_of(one)]
                self._stores.setdefault(target, []).extend(kept)
                if "local" in parts:
                    self._stored_locally += kept
        ends = (
            index + 1
            for index, each in enumerate(self.flow.infos)
            if each.effects.overlaps(Effect.BRANCH | Effect.CALL)
        )
        self.present = frozenset(each.opcode for each in kernel.instructions)
        """The opcodes of the kernel."""
        self.compared = {
            bits: any(each.startswith("setp.") and each.endswith(f".f{bits}") for each in self.present)
            for bits in WIDTHS.values()
        }
        """Whether the kernel compares floats of a width."""
        self.ranges: dict[int, Any] = {}
        """The ranges of the results of instructions, by their identities (`ranges`)."""
        self.of_one_number: set[int] = set()
        """The extrema of floats whose operands may be one number, by their identities (`roots`)."""
        self.knows_extrema = False
        self.computations: dict[tuple[int, int], Hashable] = {}
        """What instructions compute, by their identities and the depth to which it is known (`roots`)."""
        self.versions: dict[Hashable, set[tuple[int, int]]] = {}
        """In which versions of shared memory loads read what they do, by what they compute (`roots`)."""
        self._some_present: dict[tuple[CodeType, str], bool] = {}
        """Whether an opcode of the kernel fulfils a condition, by its code and the opcode that decides it."""
        self.places = {id(each): index for index, each in enumerate(kernel.instructions)}
        self._starts = sorted({0, *kernel.labels.values(), *ends})
        self._moved: dict[str, frozenset[int] | None] = {}
        self._reached: dict[tuple[str, int], Sequence[int]] = {}
        """The definitions of a register that an instruction may read, by both (`_reaching`)."""
        self._literals_held: dict[tuple[str, int], tuple[int, ...]] = {}
        """The literals that a register may hold before an instruction, by both (`_literals`)."""
        self._computed: dict[tuple[str, int], bool] = {}
        """Whether a register may hold what is computed from literals, by the same (`_may_be_computed`)."""
        self._passing: dict[int, bool] = {}
        """Whether an instruction may return an operand, by its identity (`passes_on`)."""
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
        if operand.name in found_numbers(self.kernel, self.opcodes):
            return True
        if is_assembler_constant(operand, self.kernel, self.opcodes) is False:
            use = self.use if user is None else self.places[id(user)]
            return any(map(holds, self._literals(operand.name, use))) or self._may_be_computed(operand.name, use)
        numbers = self._numbers_of(operand.name)
        return numbers is None or any(map(holds, numbers))

    def is_literal(self, operand: Operand) -> bool:
        """Return whether an operand holds nothing but literals that the assembler certainly knows."""
        if isinstance(operand, Register) and self._numbers_of(operand.name):
            return True
        return is_assembler_constant(operand, self.kernel, self.opcodes) is True

    def moves_literal(self, operand: Operand, holds: Callable[[int], bool], user: Instruction) -> bool:
        """Return whether a literal for which a condition holds may be moved to an operand of `user`."""
        if isinstance(operand, Immediate):
            return holds(operand.value)
        if not isinstance(operand, Register):
            return False
        numbers = self._numbers_of(operand.name)
        return any(map(holds, self._literals(operand.name, self.places[id(user)]) if numbers is None else numbers))

    def finds(self, instruction: Instruction) -> bool:
        """Return whether the assembler may find the number that an instruction writes, whatever it reads."""
        return not self.flow.infos[self.places[id(instruction)]].writes.isdisjoint(
            found_numbers(self.kernel, self.opcodes)
        )

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
        if operand.name in found_numbers(self.kernel, self.opcodes):
            return True
        return bool(self._literals(operand.name, self.use)) or self._may_be_computed(operand.name, self.use)

    def _may_be_computed(self, name: str, use: int) -> bool:
        """Return whether a register may hold what instructions compute from literals before an instruction.

        Registers are told apart by the definitions that reach it: one that also holds a loaded number elsewhere is no
        less known here.
        """
        if not self._reuses_registers:
            return False
        found = self._computed.get((name, use))
        if found is None:
            found = self._computed[name, use] = any(
                self.kernel.instructions[index].opcode.partition(".")[0] != "mov" and self.follows_from_literals(index)
                for index in self._reaching(name, use)
            )
        return found

    def follows_from_literals(self, index: int) -> bool:
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

    def _literals(self, name: str, use: int) -> tuple[int, ...]:
        """Return the literals that a register which is also written at run time may hold before an instruction."""
        found = self._literals_held.get((name, use))
        if found is None:
            found = self._literals_held[name, use] = tuple(self._found_literals(name, use))
        return found

    def _found_literals(self, name: str, use: int) -> Iterator[int]:
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
                if self.passes_on(instruction) or (literals and instruction.opcode.startswith("shfl.")):
                    pending += [(each, index) for each in self.flow.infos[index].reads]
                pending += self.restored(index)
                pending += self.stored(instruction)

    def of_kind(self, operands: Sequence[Operand], holds: Callable[[str], bool]) -> bool:
        """Return whether the opcode of an instruction that may have written an operand fulfils a condition.

        The condition depends on nothing but its code and the opcode of the instruction whose operands are followed.
        """
        plain = holds.func if isinstance(holds, partial) else holds
        key = (cast(FunctionType, plain).__code__, self.kernel.instructions[self.use].opcode)
        present = self._some_present.get(key)
        if present is None:
            present = self._some_present[key] = any(map(holds, self.present))
        return present and any(holds(each.opcode) for operand in operands for each in self.of(operand))

    def restored(self, index: int) -> Iterator[tuple[str, int]]:
        """Yield the registers, with their places, that an operation on integers may restore: operands of another one.

        The other one changes them, and its result is an operand of this one, also behind moves.
        """
        if not self.is_invertible(self.kernel.instructions[index]):
            return
        pending = [(name, index) for name in self.flow.infos[index].reads]
        seen = set[int]()
        while pending:
            for inner in self._reaching(*pending.pop()):
                if inner in seen:
                    continue
                seen.add(inner)
                instruction = self.kernel.instructions[inner]
                reads = [(name, inner) for name in self.flow.infos[inner].reads]
                if self.is_invertible(instruction):
                    yield from reads
                elif self.passes_on(instruction):
                    pending += reads

    def is_invertible(self, instruction: Instruction) -> bool:
        """Return whether an instruction is an operation on integers that another one may undo."""
        if _INVERTIBLE.fullmatch(instruction.opcode) is not None:
            return True
        product = _PRODUCT.fullmatch(instruction.opcode) is not None
        return product and any(self.may_be(each, _is_odd, instruction) for each in instruction.operands[1:])

    def stored(self, load: Instruction) -> Sequence[tuple[str, int]]:
        """Return the registers, with their places, that the kernel stores where a load of its own memory reads.

        ptxas passes on what a thread stores and loads by one address of the text, also across a barrier, and in local
        memory by any.
        """
        base, *parts = load.opcode.split(".")
        if base != "ld" or _OWN_MEMORY.isdisjoint(parts) or not self._stores:
            return ()
        return self._stored_locally if "local" in parts else self._stores.get(load.operands[1], ())

    @cached_property
    def versions_read(self) -> Mapping[int, tuple[int, int] | None]:
        """The basic block and the version of shared memory that each load from it reads, by its place; None: any.

        A barrier behind a store begins a version: what another thread has stored may be read from it on.  A load before
        the first one of its basic block may read that of any other block.  ptxas 12.8 passes on what a load returns to
        another one of the same text only where neither a store nor a barrier is between them.
        """
        found: dict[int, tuple[int, int] | None] = {}
        starts, block, version, is_stored = set(self._starts), 0, 0, False
        for index, instruction in enumerate(self.kernel.instructions):
            if index in starts:
                block, version, is_stored = index, 0, False
            base, *parts = instruction.opcode.split(".")
            if base == "ldmatrix" or (base == "ld" and not _SHARED.isdisjoint(parts)):
                found[index] = (block, version) if version else None
            elif base in ("st", "stmatrix") and not _SHARED.isdisjoint(parts):
                is_stored = True
            elif _BARRIER.fullmatch(instruction.opcode) and instruction.guard is None and is_stored:
                version, is_stored = version + 1, False
        return found

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
            yield from self.defined(operand, self.kernel.instructions[self.use])

    def defined(self, operand: Operand, user: Instruction) -> Iterator[Instruction]:
        """Yield the instructions that may have written the registers of an operand of `user` themselves."""
        for name in registers_of(operand):
            for index in self._reaching(name, self.places[id(user)]):
                yield self.kernel.instructions[index]

    def _reaching(self, name: str, use: int) -> Sequence[int]:
        """Return the definitions of a register that an instruction may read: the last ones on the ways to it."""
        known = self._reached.get((name, use))
        if known is None:
            known = self._reached[name, use] = self._found_on_ways(name, use)
        return known

    def _found_on_ways(self, name: str, use: int) -> Sequence[int]:
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

    def passes_on(self, instruction: Instruction) -> bool:
        """Return whether an instruction may return an operand, up to its sign."""
        known = self._passing.get(id(instruction))
        if known is None:
            known = self._passing[id(instruction)] = self._returns_operand(instruction)
        return known

    def _returns_operand(self, instruction: Instruction) -> bool:
        base = instruction.opcode.split(".", 1)[0]
        if base in ("mov", "neg", "abs", "selp", "copysign", "prmt"):
            return True
        sources = instruction.operands[1:]
        names = [each.name for each in sources if isinstance(each, Register)]
        if base in ("min", "max", "and", "or", "sad") and len(set(names)) < len(names):
            return True
        if _SAME_FORMAT.fullmatch(instruction.opcode) is not None:
            return True
        bounds = EXTREMUM_OF_FLOATS.fullmatch(instruction.opcode) is not None
        if bounds and any(map(self.is_literal, sources)):
            return True
        if base in ("lop3", "bfe", "bfi", "shf", "dp4a", "addc", "subc", "madc") or _BETWEEN_INTEGERS.fullmatch(
            instruction.opcode
        ):
            return True
        bits = bits_of(instruction)
        low = (1 << bits - 1) - 1
        if _OF_INTEGERS.fullmatch(instruction.opcode):
            # A product with 1 or -1, or one with 0 that is added; the largest or the smallest number.
            ones = 2 * low + 1
            special = frozenset({0, 1, ones}) if base in ("mul", "mad", "div") else frozenset({0, ones, low, low + 1})
            return any(self.may_be(each, lambda number: number & ones in special, instruction) for each in sources)
        neutral: Callable[[int], bool] | None = None
        if base in ("add", "sub", "or", "xor", "shl", "shr"):
            neutral = lambda number: not number & low  # noqa: E731
        elif base in ("mul", "fma", "div") and bits in ONES:
            neutral = lambda number: number & low == ONES[bits]  # noqa: E731
        elif base == "and":
            neutral = lambda number: number & low == low  # noqa: E731
        return neutral is not None and any(self.may_be(each, neutral, instruction) for each in sources)


def _is_odd(number: int) -> bool:
    return bool(number & 1)


def bits_of(instruction: Instruction) -> int:
    """Return the width of the type of an instruction in bits, 32 where it names none."""
    digits = re.sub(r"\D", "", instruction.opcode.rsplit(".", 1)[-1])
    return int(digits) if digits in ("16", "32", "64") else 32
