"""What an architecture's plugin hands over: how to read its text and what each instruction does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.assembly.module import Instruction, Kernel, Module, once_a_kernel
from bitwise_core.execution.instruction_info import (
    Describe,
    Effects,
    InstructionInfo,
    Operands,
    info_from_roles,
    undeclared_info,
    with_guard,
)
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import Operation, UnknownOperation, operation, verbs
from bitwise_core.numerics.mma import MmaSpec


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


@dataclass(frozen=True, slots=True)
class Opcode:
    """One declared opcode: what its instructions read, write and do, and how their steps are built."""

    describe: Describe
    build: Builder


class OpcodeTable:
    """Opcodes by the first component of a mnemonic; tables add up, and no component is stated twice."""

    def __init__(self, *tables: OpcodeTable) -> None:
        self.opcodes: dict[str, Opcode] = {}
        for table in tables:
            for name, opcode in table.opcodes.items():
                self._add(name, opcode)

    def _add(self, name: str, opcode: Opcode) -> None:
        if name in self.opcodes:
            raise ValueError(f"the opcode {name} is stated twice")
        self.opcodes[name] = opcode

    def opcode(
        self, *names: str, operands: Operands | Describe | None = None, effects: Effects | None = None
    ) -> Callable[[Builder], Builder]:
        """Declares these mnemonics and registers the builder of their steps.

        `operands` says which operands are written and read, `effects` what else the instructions do; both may depend on
        the instruction.  Where that is not enough, `operands` is a function that gives the whole `InstructionInfo`,
        and `effects` is left out.  Raises TypeError for a declaration that lacks one of them.
        """
        stated = " and ".join(names)
        if operands is None:
            raise TypeError(
                f"{stated}: the declaration does not say which operands are written and read; "
                "give it operands=, for example operands=DESTINATION_FIRST"
            )
        if isinstance(operands, Operands):
            if effects is None:
                raise TypeError(
                    f"{stated}: the declaration does not say what the instruction does beside writing registers; "
                    "give it effects=, for example effects=Effect.NONE"
                )
            describe = info_from_roles(operands, effects)
        elif effects is not None:
            raise TypeError(f"{stated}: the function given as operands= states the effects; leave effects= out")
        else:
            describe = operands

        def register(builder: Builder) -> Builder:
            for name in names:
                self._add(name, Opcode(describe, builder))
            return builder

        return register

    def name_of(self, instruction: Instruction) -> str:
        """The name under which an instruction is looked up."""
        return instruction.opcode.split(".", 1)[0]

    def info(self, instruction: Instruction) -> InstructionInfo:
        """What an instruction reads, writes and does; of an undeclared one, all that it may."""
        opcode = self.opcodes.get(self.name_of(instruction))
        return with_guard(undeclared_info(instruction) if opcode is None else opcode.describe(instruction), instruction)

    def build(self, instruction: Instruction, context: Context) -> Step:
        """The step of one instruction.  Raises UnknownInstruction."""
        opcode = self.opcodes.get(self.name_of(instruction))
        if opcode is None:
            raise UnknownInstruction(instruction)
        return opcode.build(instruction, context)


@once_a_kernel
def infos_of(kernel: Kernel, opcodes: OpcodeTable) -> tuple[InstructionInfo, ...]:
    """What each instruction of a kernel reads, writes and does."""
    return tuple(opcodes.info(each) for each in kernel.instructions)


@dataclass(frozen=True, slots=True)
class ParametricSupport:
    """What a reading for every launch needs beside the meaning of each instruction.

    `layout` gives shared arrays their addresses, the part of `Arch.prepare` that no launch decides.  `block` and `grid`
    name the special registers that hold a block's place and the grid's extents by axis (x, y, z), `fixed` tells the
    registers that a launch fixes, and `of_grid` those among them that the grid decides in some other way: a kernel that
    reads one of these is not read.
    """

    layout: Callable[[Machine, Module, Kernel], None]
    block: tuple[str, str, str]
    grid: tuple[str, str, str]
    fixed: Callable[[str], bool]
    grid_dependent: frozenset[str]


@dataclass(frozen=True, slots=True)
class BitSupport:
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
class ContractionAudit:
    """A module in which every rounding is stated, and how that was established, for the notes of a verdict."""

    module: Module
    method: str


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture.

    `targets` are the spellings of the target in the text that mean it, `warp` the threads that run in lockstep.
    `parse` (text, name of the file) raises AssemblyError; `write` gives a text of a module, read back by `parse` as
    that module but for the numbers of lines.
    `granule` is the least unit in bytes in which a kernel looks at data; `special` fills the special registers;
    `prepare` gives arrays their addresses and parameters their values.  `audit_contraction` (module, text it
    was parsed from, entry) gives the module that states every rounding that the machine performs, or raises
    Unsupported; None where the text states them.
    `storage` names the place of a register, or of a key of the machine's register file; registers that are kept
    together share one.
    `every_launch` and `bits` are claims: that kernels are read for every launch, and run on bit patterns to the bytes
    that the hardware returns; None claims nothing.
    """

    name: str
    extension: str
    targets: tuple[str, ...]
    warp: int
    opcodes: OpcodeTable
    parse: Callable[[str, str], Module]
    granule: Callable[[Kernel], int]
    special: Callable[[Machine, Launch], None]
    prepare: Callable[[Machine, Module, Kernel, Launch], None]
    audit_contraction: Callable[[Module, str, str | None], ContractionAudit] | None = None
    every_launch: ParametricSupport | None = None
    bits: BitSupport | None = None
    write: Callable[[Module], str] | None = None
    storage: Callable[[str], str] = str

    def __repr__(self) -> str:
        return f"Arch({self.name!r})"
