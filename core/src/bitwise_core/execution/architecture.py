"""The interface of an architecture plugin: its parser, its opcode table, and what it claims to support."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.assembly.module import Instruction, Kernel, Module, once_a_kernel, same_text
from bitwise_core.errors import BitwiseError
from bitwise_core.execution.instruction_info import (
    Describe,
    Effects,
    InstructionInfo,
    Operands,
    info_from_roles,
    undeclared_info,
    with_guard,
)
from bitwise_core.execution.known_sequences import KnownSequence
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import Operation, UnknownOperation, operation, verbs
from bitwise_core.numerics.mma import BlockScaledSpec, MatrixUnit, MmaSpec


@dataclass(frozen=True, slots=True)
class Context:
    """What the builder of an instruction's step may use: the module, the instruction's kernel, and the architecture."""

    module: Module
    kernel: Kernel
    arch: Arch


Builder: TypeAlias = Callable[[Instruction, Context], Step]


class UnknownInstruction(Exception):
    """An instruction, or one of its modifiers, that the architecture does not model."""

    def __init__(self, instruction: Instruction, why: str = "is not modelled") -> None:
        super().__init__(f"the instruction {instruction.opcode} {why}")
        self.instruction = instruction


def named(instruction: Instruction, name: str) -> Operation:
    """Return the operation that an instruction's own modifiers and types name.

    Raises UnknownInstruction if the vocabulary has the verb, but not with these modifiers and formats.  Raises
    UnknownOperation if the vocabulary lacks the verb, which is a defect of the plugin.
    """
    try:
        return operation(name)
    except UnknownOperation as error:
        if name.partition(".")[0] not in verbs():
            raise
        raise UnknownInstruction(instruction, f"is not modelled: {error}") from None


@dataclass(frozen=True, slots=True)
class Opcode:
    """One declared opcode: what its instructions read, write and do, and the builder of their steps.

    `least` is the number of operands, results included, that an instruction has at least.
    """

    describe: Describe
    build: Builder
    least: int = 0


_MAXIMUM_INFOS = 1 << 14


class OpcodeTable:
    """Opcodes by the first component of a mnemonic.

    A table may be built from several others.  No component is declared twice.
    """

    def __init__(self, *tables: OpcodeTable) -> None:
        self.opcodes: dict[str, Opcode] = {}
        self._infos: dict[Hashable, tuple[object, InstructionInfo]] = {}
        """The infos of the most recent instructions by text, each with the operands that its key is the identity of."""
        for table in tables:
            for name, opcode in table.opcodes.items():
                self._add(name, opcode)

    def _add(self, name: str, opcode: Opcode) -> None:
        if name in self.opcodes:
            raise ValueError(f"the opcode {name} is declared twice")
        self.opcodes[name] = opcode
        self._infos.clear()

    def opcode(
        self,
        *names: str,
        operands: Operands | Describe | None = None,
        effects: Effects | None = None,
        least: int = 0,
    ) -> Callable[[Builder], Builder]:
        """Declare these mnemonics and register the builder of their steps.

        `operands` gives the roles of the operands (written, updated or read), `effects` what else the instructions do.
        Both may depend on the instruction.  If that is not enough, `operands` is a function that returns the whole
        `InstructionInfo`, and `effects` is omitted.  `least` is the number of operands, results included, that an
        instruction has at least; one with fewer is not modelled (`is_complete`).  Raises TypeError for an incomplete
        declaration, and ValueError for a mnemonic that is already declared.
        """
        mnemonics = " and ".join(names)
        if operands is None:
            raise TypeError(
                f"{mnemonics}: the declaration does not say which operands are written and read; "
                "give it operands=, for example operands=DESTINATION_FIRST"
            )
        if isinstance(operands, Operands):
            if effects is None:
                raise TypeError(
                    f"{mnemonics}: the declaration does not say what the instruction does besides writing registers; "
                    "give it effects=, for example effects=Effect.NONE"
                )
            describe = info_from_roles(operands, effects)
        elif effects is not None:
            raise TypeError(f"{mnemonics}: the function given as operands= returns the effects; leave effects= out")
        else:
            describe = operands

        def register(builder: Builder) -> Builder:
            for name in names:
                self._add(name, Opcode(describe, builder, least))
            return builder

        return register

    def name_of(self, instruction: Instruction) -> str:
        """Return the name under which an instruction is looked up."""
        return instruction.opcode.split(".", 1)[0]

    def info(self, instruction: Instruction) -> InstructionInfo:
        """Return what an instruction reads, writes and does; for an undeclared one, everything that it might."""
        opcode = self.opcodes.get(self.name_of(instruction))
        return with_guard(undeclared_info(instruction) if opcode is None else opcode.describe(instruction), instruction)

    def recalled_info(self, instruction: Instruction) -> InstructionInfo:
        """Return `info`, one record for instructions that share their text (`same_text`), also of several kernels."""
        key, operands = same_text(instruction), instruction.operands
        found = self._infos.get(key)
        if found is None or found[0] is not operands:
            if len(self._infos) >= _MAXIMUM_INFOS:
                self._infos.clear()
            found = self._infos[key] = operands, self.info(instruction)
        return found[1]

    def known_refusals(self, kernel: Kernel) -> Mapping[int, str] | None:
        """Return why instructions are not modelled, by position, where that follows from other instructions.

        Whether any other one is modelled then follows from its own text, up to the names of its registers, so that it
        is built when it is first needed.  None: every instruction is built at the start.
        """
        return None

    def build(self, instruction: Instruction, context: Context) -> Step:
        """Return the step of one instruction.  Raises UnknownInstruction."""
        opcode = self.opcodes.get(self.name_of(instruction))
        if opcode is None:
            raise UnknownInstruction(instruction)
        count = len(instruction.operands)
        if count < opcode.least:
            raise UnknownInstruction(instruction, f"has {count} operands instead of {opcode.least} or more")
        try:
            return opcode.build(instruction, context)
        except (IndexError, ValueError) as error:
            if isinstance(error, BitwiseError):
                raise
            # Its operands are not those of the opcode: no assembler accepts the text.
            raise UnknownInstruction(instruction, "does not take these operands") from None

    def with_guard(self, step: Step, instruction: Instruction, context: Context) -> Step:
        """Return the step of an instruction with its guard, which is executed in the lanes without the guard, too."""
        return step


@once_a_kernel
def infos_of(kernel: Kernel, opcodes: OpcodeTable) -> tuple[InstructionInfo, ...]:
    """Return what each instruction of a kernel reads, writes and does."""
    return tuple(map(opcodes.recalled_info, kernel.instructions))


@once_a_kernel
def is_complete(kernel: Kernel, opcodes: OpcodeTable) -> bool:
    """Return whether no instruction has fewer operands than its opcode has at least.

    No assembler accepts another text.  A search over a text asks this before it reads operands by their places.
    """
    least = {name: opcode.least for name, opcode in opcodes.opcodes.items()}
    return all(len(each.operands) >= least.get(opcodes.name_of(each), 0) for each in kernel.instructions)


@dataclass(frozen=True, slots=True)
class ClusterRegisters:
    """The names of the special registers that depend on the clusters of a launch, by axis (x, y, z).

    `cluster` holds the coordinates of a block's cluster and `clusters` the extents of the grid, both in clusters.
    `others` are the registers that the shape of a cluster and a block's place in it determine.
    """

    cluster: tuple[str, str, str]
    clusters: tuple[str, str, str]
    others: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """All names."""
        return self.others.union(self.cluster, self.clusters)


@dataclass(frozen=True, slots=True)
class ParametricSupport:
    """What the launch-parametric analysis needs in addition to the semantics of instructions.

    `layout` assigns addresses to shared arrays; it is the part of `Arch.prepare` that does not depend on the launch.
    `block` and `grid` name the special registers that hold the block's coordinates and the extents of the grid, by axis
    (x, y, z).  `fixed` decides whether a register is constant in a launch.  `cluster_registers` are those that
    depend on the clusters of the launch, None without clusters.
    """

    layout: Callable[[Machine, Module, Kernel], None]
    block: tuple[str, str, str]
    grid: tuple[str, str, str]
    fixed: Callable[[str], bool]
    cluster_registers: ClusterRegisters | None = None


@dataclass(frozen=True, slots=True)
class BitSupport:
    """What execution on bit patterns needs in addition to IEEE arithmetic.

    `functions` maps full operation names to functions for the operations whose bits the hardware defines.  A function
    takes and returns arrays of patterns and is exact for every pattern.  `matrix_units` and `block_scaled_units` are
    the rows of fused matrix steps; instructions refer to them by name.  Raises UnknownOperation for a name that is not
    in the vocabulary, and ValueError for one that the vocabulary evaluates itself.
    """

    functions: Mapping[str, Callable[..., Array]] = field(default_factory=dict)
    matrix_units: tuple[MmaSpec, ...] = ()
    block_scaled_units: tuple[BlockScaledSpec, ...] = ()

    def __post_init__(self) -> None:
        for name in self.functions:
            if operation(name).evaluable:
                raise ValueError(f"{name} is evaluated by the vocabulary; an architecture must not override it")

    @property
    def units(self) -> Mapping[str, MatrixUnit]:
        """The rows by name."""
        rows: tuple[MatrixUnit, ...] = (*self.matrix_units, *self.block_scaled_units)
        return {each.name: each for each in rows}


@dataclass(frozen=True, slots=True)
class ContractionAudit:
    """A module in which every fusion is explicit, and how that was established, for the notes of a verdict."""

    module: Module
    method: str


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture.

    `targets` are the spellings of the architecture's target in the text; `warp` is the number of threads that run in
    lockstep.

    `parse` (text, name of the file) raises AssemblyError.  `write` returns a text of a module; `parse` of it returns
    the same module except for line numbers.

    `granule` returns the size in bytes of the smallest unit in which a kernel accesses memory.  `special` fills the
    special registers.  `prepare` assigns addresses to arrays and values to parameters.

    `audit_contraction` (module, text that it was parsed from, entry) returns the module in which every fusion of the
    machine is explicit, so that all other operations round, or raises Unsupported.  It is None if the text already
    states every rounding.  `audit_tools` returns texts that identify every tool and setting outside of the text on
    which this audit may depend.

    `storage` names the storage of a register, or of a key of the machine's register file; registers that are stored
    together have the same one.

    `under_one_key` brings the registers of a storage with several under its key, in the register file of the machine,
    as far as they hold numbers; None if every storage is one register.

    `sequences` (kernel, infos of its instructions, first instruction, end) finds the sequences that it knows in a run
    of instructions without branches.

    `execution_mask` is the storage of the register whose lanes instructions are restricted to, None without one.

    `largest_cluster` is the largest number of blocks of a cluster, 1 without clusters.

    `lowest_lane` is the note of verdicts that use `assumptions.LOWEST_LANE`, with the measurement that it rests on;
    None where it was not measured, so that only a request makes it hold.

    `warp_order` is the note of verdicts that use the order of a warp's accesses to global memory, with the measurement
    that it rests on; None where it was not measured, so that only a request makes it hold.  `keeps_order` (module, text
    that it was parsed from, entry, pairs of lines) returns whether the machine code keeps the order of the accesses of
    each pair.

    `copies_visible` is the note of verdicts that use `assumptions.PROXIES_TOGETHER`, with the measurement that it rests
    on; None where it was not measured, so that only a request makes it hold.

    `every_launch` and `bits` are claims: that the launch-parametric analysis works for this architecture, and that
    execution on bit patterns returns the bytes of the hardware.  None makes no claim.
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
    execution_mask: str | None = None
    under_one_key: Callable[[Machine, str], None] | None = None
    sequences: Callable[[Kernel, Sequence[InstructionInfo], int, int], Iterable[KnownSequence]] | None = None
    largest_cluster: int = 1
    lowest_lane: str | None = None
    warp_order: str | None = None
    copies_visible: str | None = None
    keeps_order: Callable[[Module, str, str, Collection[tuple[int, int]]], bool] | None = None
    audit_tools: Callable[[], tuple[str, ...]] | None = None

    def __repr__(self) -> str:
        return f"Arch({self.name!r})"
