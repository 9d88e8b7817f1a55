"""What an architecture's plugin hands over: how to read its text and what each instruction does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bitwise_core.asm import Instruction, Kernel, Module
from bitwise_core.machine.launch import Launch
from bitwise_core.machine.mnemonics import Mnemonics
from bitwise_core.machine.state import Machine, Step


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
class Arch:
    """One architecture.

    `targets` are the spellings of the target in the text that mean it; `mnemonics` says what can be told of an
    instruction before it is run.  `settle` turns a text into one that
    states every rounding that the machine performs (with a note of how that was established), or raises.
    `layout` gives shared arrays their addresses, the part of `prepare` that no launch decides.
    `symbols` lays out shared and constant arrays; `special` names the special registers' arrays.
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
    layout: Callable[[Machine, Module, Kernel], None] | None = None
    capabilities: Mapping[str, object] = field(default_factory=dict)
