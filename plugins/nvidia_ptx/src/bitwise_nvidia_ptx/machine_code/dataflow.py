"""Prove that two SASS functions compute the same, whatever registers and order ptxas chose.

Two texts that state the same roundings may differ in register allocation, in the order of independent instructions, in
how a constant reaches an instruction, and in which factor carries the sign of a product.  The theorem: started in the
same state, both functions execute corresponding blocks in the same sequence and leave the same memory.

*Proof.*  The reachable basic blocks of both functions correspond by their order in the code.  At the entry of each pair
of blocks the registers of both functions are divided into classes; the invariant says that registers of one class hold
equal values.  A block is executed symbolically.  An instruction is an uninterpreted function of its text without the
names of registers and of the values that it reads, so equal terms denote equal values.  The invariant holds at the
entry of the function, where a register has its own class in both, and each edge between blocks preserves it: registers
of one class have equal terms at the end of every predecessor.  In each pair of blocks, the instructions with effects
must be equal term by term and in the same order, and the last ones must lead to corresponding blocks under equal
conditions.

A call of a function outside of the object file, for example of `__assertfail`, ends what is proved: the functions are
equal up to a thread that makes such a call, and their conditions for it are equal.  The analysis follows no such call.

What is ordered: everything that writes memory or orders accesses to it, with the exchanges that synchronise; and the
exchanges between lanes with whatever changes which lanes execute together.  A load is a function of its address and of
the number of ordered accesses before it.  This assumes that memory is free of races, as the analysis does, and that
code of ptxas waits for its own asynchronous results.

Interpreted are only: copies; constants; the guard of an instruction for what it reads; in fp32 and 16 bits, addends and
factors that commute, and the sign of a product, which is that of the exact result; in fp32 also a fused product by 1 or
-1, which is exact, a product by 1 of a value that is no NaN but the canonical one, and whether a sum is positive; and
the opcodes of 32-bit integer sums, of shifts to the left, and of sums with a multiple or with a carry.  Results of this
floating-point arithmetic do not carry the sign or the payload of a NaN; those of fp64 may.

Words of the stack are like registers if no instruction computes the address of one (`stack`).

What an instruction reads and writes is taken from nvdisasm.  Only the opcodes of `steps` are accepted, and each
register that an operand names must be one that nvdisasm counts as read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bitwise_core.execution.time_limit import check_time
from bitwise_nvidia_ptx.machine_code.blocks import block_starts, blocks_of, reachable, return_sites
from bitwise_nvidia_ptx.machine_code.registers import MachineFunction, MachineInstruction
from bitwise_nvidia_ptx.machine_code.stack import is_on_stack, stack_words
from bitwise_nvidia_ptx.machine_code.steps import Place, Steps
from bitwise_nvidia_ptx.machine_code.terms import NotUnderstood, Term, Terms


def equal_functions(left: MachineFunction, right: MachineFunction) -> bool:
    """Return whether two functions are proved to compute the same.

    The caller compares constant banks, initialised memory and relocations.
    """
    try:
        return _Proof(left, right).holds()
    except NotUnderstood:
        return False


def rounds_exponentials(function: MachineFunction) -> bool:
    """Return whether it is proved that no square of an exponential is fused into a sum or scaled.

    ptxas computes `ex2.approx` of a low argument as the square of the result for half of it.  A fused square is a fused
    or scaled product of an exponential with itself.
    """
    try:
        return not any(
            terms.may_be_exponential(value)
            for terms, line, value in _Proof(function, function).squares()
            if line.mnemonic not in ("FMUL", "FMUL.FTZ")
        )
    except NotUnderstood:
        return False


class _Proof:
    def __init__(self, left: MachineFunction, right: MachineFunction) -> None:
        self.functions = (left, right)
        self.terms = Terms()
        self.starts = [block_starts(each) for each in self.functions]
        self.blocks = [blocks_of(each, starts) for each, starts in zip(self.functions, self.starts, strict=True)]
        self.stack = [stack_words(each, starts) for each, starts in zip(self.functions, self.starts, strict=True)]
        self.registers = [
            sorted({name for line in each.instructions for name in line.reads | line.writes}.union(*words.values()))
            for each, words in zip(self.functions, self.stack, strict=True)
        ]

    def holds(self) -> bool:
        """Return whether both functions are proved to compute the same.  Raises NotUnderstood."""
        before = self._entries()
        return before is not None and all(self._same_effects(index, held) for index, held in before.items())

    def squares(self) -> Iterator[tuple[Terms, MachineInstruction, Term]]:
        """Yield each instruction of the first function that multiplies a value by itself, with that value.

        Raises NotUnderstood.
        """
        before = self._entries()
        if before is None:
            raise NotUnderstood("the blocks of one function")
        for index, held in before.items():
            for line, value in self._run(index, held)[2]:
                yield self.terms, line, value

    def _entries(self) -> dict[int, dict[Place, Term]] | None:
        """Return the terms of all registers at the entry of each reachable block, None if the blocks do not correspond.

        Raises NotUnderstood.
        """
        left, right = self.blocks
        order = reachable(left)
        if order != reachable(right):
            return None
        if any(left[index].following != right[index].following for index in order):
            return None
        if return_sites(self.functions[0], self.starts[0]) != return_sites(self.functions[1], self.starts[1]):
            return None
        before: dict[int, dict[Place, Term]] = {}
        after: dict[int, dict[Place, Term]] = {}
        entering: dict[int, list[int]] = {index: [] for index in order}
        for index in order:
            for each in left[index].following:
                entering[each].append(index)
        places = [(side, name) for side in (0, 1) for name in self.registers[side]]
        # The stacks of both functions may begin at other addresses.
        first = {place: self.terms.make("first", place if is_on_stack(place[1]) else place[1]) for place in places}
        for _ in range(2 * len(order) + 8):
            changed = False
            for index in order:
                check_time()
                known = [after[each] for each in entering[index] if each in after]
                if index == 0:
                    known.append(first)
                if not known:  # only a block that is later in the code leads here
                    continue
                held = self._merged(index, known, places)
                if before.get(index) != held:
                    before[index] = held
                    after[index] = self._run(index, held)[0]
                    changed = True
            if not changed:
                return before if len(before) == len(order) else None
        return None

    def _merged(self, index: int, known: Sequence[Mapping[Place, Term]], places: Sequence[Place]) -> dict[Place, Term]:
        """Return the terms at the entry of a block: a term on which all predecessors agree, or else that of a class."""
        if len(known) == 1:
            return dict(known[0])
        classes: dict[tuple[Term, ...], Term] = {}
        held: dict[Place, Term] = {}
        for place in places:
            given = tuple([each[place] for each in known])
            if (term := classes.get(given)) is None:
                if all(each == given[0] for each in given):
                    term = given[0]
                else:
                    canonical = all(map(self.terms.has_canonical_nan, given))
                    term = self.terms.make("entry", index, place, canonical)
                classes[given] = term
            held[place] = term
        return held

    def _run(
        self, index: int, held: Mapping[Place, Term]
    ) -> tuple[dict[Place, Term], list[list[Term]], list[tuple[MachineInstruction, Term]]]:
        """Return the terms at the end of a block, the effects of both functions in it, and the first one's squares."""
        state = dict(held)
        effects = []
        squares: list[tuple[MachineInstruction, Term]] = []
        for side in (0, 1):
            function, words = self.functions[side], self.stack[side]
            step = Steps(self.terms, state, side, index, function, self.starts[side], words)
            for line in self.blocks[side][index].instructions:
                step.execute(line)
            effects.append([*step.memory, self.terms.make("end of memory"), *step.exchanges])
            squares = squares if side else step.squares
        return state, effects, squares

    def _same_effects(self, index: int, held: Mapping[Place, Term]) -> bool:
        left, right = self._run(index, held)[1]
        return left == right
