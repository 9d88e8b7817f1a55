"""Whether machine code keeps the order in which a text accesses global memory.

An assembler may exchange two accesses that cannot meet in one thread, or duplicate, join and remove some.  The line
information of the machine code says from which line of the text each instruction comes.  Of two lines,

- if no path of the text leads from the second to the first, no path of the machine code may lead from an instruction of
  the second line to one of the first: all executions of the first come before all of the second;
- if paths lead both ways, as in a loop, every path of the text and every path of the machine code must alternate
  between them, and begin with the same one.

Both lines must have such instructions, and only loads and stores of the forms that were measured
(`bitwise_bench.hardware_facts.warp_order`).  Paths of the machine code are taken along every label that an instruction
names, and after BSYNC to each place that a BSSY names.  A conflict of a line with itself needs one instruction.
Anything that is not understood is an order that is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bitwise_core.assembly.module import Address, Instruction, Module
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_core.execution.program import successors
from bitwise_nvidia_ptx.addresses.numbers import flow_of
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import AssemblyFailed, Ptxas
from bitwise_nvidia_ptx.machine_code.sass_listing import listed_functions

LOADS = frozenset({"ca", "cg", "cs", "L1::evict_first", "L1::evict_last", "L1::no_allocate"})
STORES = LOADS - {"ca"} | {"wb", "wt"}
"""The cache operators and priorities of accesses whose order was measured."""

_TYPE = re.compile(r"[bfsu](8|16|32|64)")
_VECTORS = frozenset({"v2", "v4"})
_PLACED = frozenset({"ld", "st", "ldmatrix", "stmatrix", "prefetch", "prefetchu"})
"""The instructions of a text with an address, of a kernel whose order is followed."""

_NAMED = re.compile(r"`\(([^)]*)\)")
_ENDS = frozenset({"EXIT", "BRA"})
_NOT_FOLLOWED = frozenset({"BRX", "BRXU", "JMP", "JMX", "JMXU", "BREAK", "CALL", "RET", "RTT", "KILL", "BPT"})
_OTHER_ACCESSES = re.compile(r"(LD|ST|ATOM|ATOMG|RED|REDG|LDGSTS|UBLKCP|UTMA\w+|SUST|SULD|SUATOM|SURED|CCTL\w*)\b")


@dataclass(frozen=True, slots=True)
class _Code:
    """Instructions as a graph: what may follow each, and the numbers of the instructions of each line."""

    following: Sequence[Collection[int]]
    of_line: Mapping[int, Collection[int]]
    after_line: dict[int, set[int]] = field(default_factory=dict)
    """The instructions that may be executed after those of a line, of the lines that were looked up."""

    def reached(self, line: int) -> set[int]:
        """Return the instructions that may be executed after one of a line."""
        found = self.after_line.get(line)
        if found is not None:
            return found
        found = self.after_line[line] = set()
        waiting = [each for start in self.of_line[line] for each in self.following[start]]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self.following[each]
        return found

    def next_of(self, starts: Iterable[int], wanted: Collection[int]) -> set[int]:
        """Return the first of the `wanted` instructions on each path from the places `starts` on, these included."""
        found, seen = set[int](), set[int]()
        waiting = list(starts)
        while waiting:
            each = waiting.pop()
            if each in wanted:
                found.add(each)
            elif each not in seen:
                seen.add(each)
                waiting += self.following[each]
        return found

    def precedes(self, first: int, second: int) -> bool:
        """Return whether a path leads from a line to another one."""
        return not self.reached(first).isdisjoint(self.of_line[second])

    def alternates(self, first: int, second: int) -> bool:
        """Return whether every path alternates between two lines, beginning with the first."""
        one, other = self.of_line[first], self.of_line[second]
        both = {*one, *other}

        def after(lines: Collection[int]) -> set[int]:
            return self.next_of([each for start in lines for each in self.following[start]], both)

        begins = self.next_of([0], both) <= set(one)
        return begins and after(one) <= set(other) and after(other) <= set(one)


def keeps_order(
    opcodes: OpcodeTable, module: Module, text: str, entry: str, pairs: Collection[tuple[int, int]]
) -> bool:
    """Return whether the machine code of a kernel keeps the order of the accesses of each pair of lines of its text.

    `module` was parsed from `text`.  False also where that cannot be found out.
    """
    written = _of_text(opcodes, module, entry, {line for pair in pairs for line in pair})
    if written is None:
        return False
    try:
        listing = Ptxas.locate(module.target, text=text).access_listing(text)
    except (PtxasNotFound, AssemblyFailed):
        return False
    made = None if listing is None else _of_listing(listing, entry, written.of_line.keys())
    return made is not None and all(_is_kept(written, made, *pair) for pair in pairs)


def _is_kept(written: _Code, made: _Code, first: int, second: int) -> bool:
    if first == second:
        return len(made.of_line[first]) == 1
    forth, back = written.precedes(first, second), written.precedes(second, first)
    if forth and back:
        return any(
            written.alternates(one, other) and made.alternates(one, other)
            for one, other in ((first, second), (second, first))
        )
    if forth:
        return not made.precedes(second, first)
    return back and not made.precedes(first, second)


def _of_text(opcodes: OpcodeTable, module: Module, entry: str, lines: Collection[int]) -> _Code | None:
    """Return the graph of the text with the accesses of these lines; None if one is no access that was measured."""
    kernel = module.kernel(entry)
    infos = flow_of(kernel, opcodes).infos
    of_line: dict[int, list[int]] = {line: [] for line in lines}
    for index, each in enumerate(kernel.instructions):
        root = each.opcode.partition(".")[0]
        if root == "call" or (root not in _PLACED and any(isinstance(one, Address) for one in each.operands)):
            return None
        if each.line in of_line:
            if not _was_measured(each):
                return None
            of_line[each.line].append(index)
    if any(len(places) != 1 for places in of_line.values()):
        return None
    count = len(kernel.instructions)
    following = [[place for place in after if 0 <= place < count] for after in successors(kernel, infos)]
    return _Code(following, of_line)


def _was_measured(instruction: Instruction) -> bool:
    """Return whether an instruction is a load or a store of global memory of a form that was measured."""
    root, *modifiers = instruction.opcode.split(".")
    if root not in ("ld", "st") or modifiers[:1] != ["global"]:
        return False
    *options, kind = modifiers[1:] or [""]
    cache = LOADS if root == "ld" else STORES
    return _TYPE.fullmatch(kind) is not None and all(each in cache or each in _VECTORS for each in options)


def _of_listing(listing: str, entry: str, lines: Collection[int]) -> _Code | None:
    """Return the graph of the machine code of a kernel; None where it is not understood.

    Each line must have a load or a store of global memory, and no other access.
    """
    try:
        function = listed_functions(listing).get(entry)
    except ValueError:
        return None
    if function is None:
        return None
    rows, labels = function.instructions, {name: address // 16 for name, address in function.labels.items()}
    joins = {label for each in rows if each.opcode == "BSSY" for label in _NAMED.findall(each.operation)}
    of_line: dict[int, list[int]] = {line: [] for line in lines}
    following: list[set[int]] = []
    for index, each in enumerate(rows):
        opcode, mnemonic = each.opcode, each.mnemonic
        if opcode in _NOT_FOLLOWED:
            return None
        named = _NAMED.findall(each.operation)
        if opcode == "BSYNC":
            named = [*named, *joins]
        if any(label not in labels for label in named) or (opcode == "BRA" and not named):
            return None
        always = opcode == "EXIT" or (mnemonic == "BRA" and len(each.operands) == 1)
        ends = opcode in _ENDS and each.guard is None and always
        after = {labels[label] for label in named} | (set() if ends else {index + 1})
        following.append({place for place in after if place < len(rows)})
        if each.line in of_line:
            if mnemonic.startswith(("LDG.", "STG.")) and ".CONSTANT" not in mnemonic:
                of_line[each.line].append(index)
            elif _OTHER_ACCESSES.match(opcode):
                return None
    return _Code(following, of_line) if rows and all(of_line.values()) else None
