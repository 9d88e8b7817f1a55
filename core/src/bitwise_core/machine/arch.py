"""What an architecture's plugin hands over: how to read its text and what each instruction does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.asm import Instruction, Kernel, Module
from bitwise_core.machine.lanes import Array
from bitwise_core.machine.launch import Launch
from bitwise_core.machine.mnemonics import Mnemonics
from bitwise_core.machine.state import Machine, Step
from bitwise_core.mma import MmaSpec
from bitwise_core.numeric import Operation, UnknownOperation, operation, verbs


@dataclass(frozen=True, slots=True)
class Context:
    """What an instruction's builder may look at: the module, the kernel it stands in, the architecture."""

    module: Module
    kernel: Kernel
    arch: Arch


Builder: TypeAlias = Callable[[Instruction, Context], Step]


class UnknownInstruction(Exception):
    """An instruction, or a modifier of it, that the architecture does not state."""

    def __init__(self, instruction: Instruction, why: str = "is not modelled") -> None:
        super().__init__(f"the instruction {instruction.opcode} {why}")
        self.instruction = instruction


def named(instruction: Instruction, name: str) -> Operation:
    """The operation that an instruction's own modifiers and types name.

    Raises UnknownInstruction where the vocabulary has the verb, but not with these modifiers and formats; and
    UnknownOperation for a verb that it does not have, which is a mistake of the plugin.
    """
    try:
        return operation(name)
    except UnknownOperation as error:
        if name.partition(".")[0] not in verbs():
            raise
        raise UnknownInstruction(instruction, f"is not modelled: {error}") from None


class OpcodeTable:
    """Builders by the first component of a mnemonic; tables add up, and no component is stated twice."""

    def __init__(self, *tables: OpcodeTable) -> None:
        self.builders: dict[str, Builder] = {}
        for table in tables:
            for name, builder in table.builders.items():
                self._add(name, builder)

    def _add(self, name: str, builder: Builder) -> None:
        if name in self.builders:
            raise ValueError(f"the opcode {name} is stated twice")
        self.builders[name] = builder

    def opcode(self, *names: str) -> Callable[[Builder], Builder]:
        """Registers a builder for these mnemonics."""

        def register(builder: Builder) -> Builder:
            for name in names:
                self._add(name, builder)
            return builder

        return register

    def build(self, instruction: Instruction, context: Context) -> Step:
        """The step of one instruction.  Raises UnknownInstruction."""
        builder = self.builders.get(instruction.opcode.split(".", 1)[0])
        if builder is None:
            raise UnknownInstruction(instruction)
        return builder(instruction, context)


@dataclass(frozen=True, slots=True)
class EveryLaunch:
    """What a reading for every launch needs beside the meaning of each instruction.

    `layout` gives shared arrays their addresses, the part of `Arch.prepare` that no launch decides.  `block` and `grid`
    name the special registers that hold a block's place and the grid's extents by axis (x, y, z), `fixed` tells the
    registers that a launch fixes, and `of_grid` those among them that the grid decides in some other way: a kernel that
    reads one of these is not read.
    `undetermined` says why an instruction's result may depend on the order in which threads run (None: it does not).
    """

    layout: Callable[[Machine, Module, Kernel], None]
    block: tuple[str, str, str]
    grid: tuple[str, str, str]
    fixed: Callable[[str], bool]
    of_grid: frozenset[str]
    undetermined: Callable[[Instruction, Kernel], str | None]


@dataclass(frozen=True, slots=True)
class BitPatterns:
    """What a run on bit patterns needs beside IEEE arithmetic.

    `functions` gives, by an operation's full name, the operations whose bits the hardware decides: arrays of patterns
    to an array of patterns, right for every one.  `matrix_units` are the rows of fused matrix steps, by whose names
    instructions call them.  Raises UnknownOperation for a name that is not in the vocabulary, and ValueError for one
    that has an evaluation there.
    """

    functions: Mapping[str, Callable[..., Array]] = field(default_factory=dict)
    matrix_units: tuple[MmaSpec, ...] = ()

    def __post_init__(self) -> None:
        for name in self.functions:
            if operation(name).evaluable:
                raise ValueError(f"{name} has an evaluation in the vocabulary: an architecture gives it no other")


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture.

    `targets` are the spellings of the target in the text that mean it, `warp` the threads that run in lockstep.
    `mnemonics` says what can be told of an instruction before it is run.  `parse` (text, name of the file) raises
    AssemblyError; `write` gives a text of a module, read back by `parse` as that module but for the numbers of lines.
    `granule` is the least unit in bytes in which a kernel looks at data; `special` fills the special registers;
    `prepare` gives arrays their addresses and parameters their values.  `settle` turns a text into one that states
    every rounding that the machine performs (with a note of how that was established), or raises.
    `every_launch` and `bits` are claims: that kernels are read for every launch, and run on bit patterns to the bytes
    that the hardware returns; None claims nothing.
    """

    name: str
    extension: str
    targets: tuple[str, ...]
    warp: int
    opcodes: OpcodeTable
    mnemonics: Mnemonics
    parse: Callable[[str, str], Module]
    granule: Callable[[Kernel], int]
    special: Callable[[Machine, Launch], None]
    prepare: Callable[[Machine, Module, Kernel, Launch], None]
    settle: Callable[[str, Module, str | None], tuple[str, str]] | None = None
    every_launch: EveryLaunch | None = None
    bits: BitPatterns | None = None
    write: Callable[[Module], str] | None = None
