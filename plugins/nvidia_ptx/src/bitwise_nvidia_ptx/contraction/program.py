"""The instructions of a module for the contraction audit: what each one reads and writes, by name as in the text."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache

from bitwise_core.assembly.module import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Kernel,
    Module,
    Operand,
    Register,
    Vector,
    parts,
    symbols_of,
)
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_nvidia_ptx.text.inner_blocks import spelling

FLOAT_TYPES = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
ROUNDINGS = frozenset({"rn", "rz", "rm", "rp", "rna", "rs"})
_BLOCK_ENDS = frozenset({"bra", "brx", "ret", "exit", "call"})
_READS_ITS_RESULT = frozenset({"wgmma", "tcgen05", "call"})


@dataclass(frozen=True, slots=True)
class Opcode:
    """The properties of a mnemonic with its modifiers.

    `parts` are the mnemonic (`base`) and its modifiers.  `kind` is the floating-point type of the result, else None.
    `contractible`: a floating-point add, sub or mul without a rounding modifier.  `hidden_product`: the instruction's
    expansion ends with a product that ptxas may fuse.  `spaces` are the modifiers without what follows `::`, state
    spaces among them.
    """

    parts: tuple[str, ...]
    base: str
    kind: str | None
    contractible: bool
    hidden_product: bool
    spaces: frozenset[str]

    @property
    def product(self) -> bool:
        """Whether it has a product that ptxas may fuse, explicit or hidden."""
        return self.hidden_product or (self.base == "mul" and self.contractible)


@lru_cache(maxsize=4096)
def opcode_of(text: str) -> Opcode:
    """Return the properties of a mnemonic with its modifiers."""
    found = tuple(text.split("."))
    base = found[0]
    kind = next((each for each in found[1:] if each in FLOAT_TYPES), None)
    contractible = base in ("add", "sub", "mul") and kind is not None and not ROUNDINGS.intersection(found)
    hidden = False
    if base == "div":
        hidden = "full" in found or "approx" in found
    elif base in ("rcp", "sqrt", "rsqrt", "ex2"):
        hidden = "approx" in found and "ftz" not in found and kind == "f32"
    return Opcode(found, base, kind, contractible, hidden, frozenset(part.split("::")[0] for part in found))


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction of a program.

    `block` is the index of its basic block and `function` that of its function.  `results` are the names that it
    writes, `sources` the names in each operand that it reads: () for a literal.  Names are spelled as in the text, so
    that registers of the same name in several scopes or functions count as one.  `vector`: an operand is a vector.
    `repeats`: two operands have the same names.
    """

    instruction: Instruction
    opcode: Opcode
    function: int
    block: int
    results: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...]
    vector: bool
    repeats: bool

    @property
    def base(self) -> str:
        """See `Opcode`."""
        return self.opcode.base

    @property
    def parts(self) -> tuple[str, ...]:
        """See `Opcode`."""
        return self.opcode.parts

    @property
    def kind(self) -> str | None:
        """See `Opcode`."""
        return self.opcode.kind

    @property
    def contractible(self) -> bool:
        """See `Opcode`."""
        return self.opcode.contractible

    @property
    def hidden_product(self) -> bool:
        """See `Opcode`."""
        return self.opcode.hidden_product

    @property
    def product(self) -> bool:
        """See `Opcode`."""
        return self.opcode.product

    @property
    def guard(self) -> Guard | None:
        """The guard predicate."""
        return self.instruction.guard

    @property
    def read(self) -> tuple[Operand, ...]:
        """The operands after the first; if there are results, they correspond to `sources`."""
        return self.instruction.operands[1:]


def has_products(module: Module) -> bool:
    """Return whether a module has a product that ptxas may fuse, explicit or hidden."""
    bodies = (*module.kernels, *module.functions.values())
    names = {instruction.opcode for body in bodies for instruction in body.instructions}
    return any(opcode_of(name).product for name in names)


class Program:
    """All instructions of a module in text order.

    `functions` are the kernels and functions in that order; `opcodes` declares which instructions have a result.
    `like` is a program with many of these instructions.  Raises ValueError for a module without text positions.
    """

    def __init__(self, module: Module, opcodes: OpcodeTable, like: Program | None = None) -> None:
        self.module, self.opcodes = module, opcodes
        self.functions = tuple(sorted((*module.kernels, *module.functions.values()), key=_start_offset))
        statements: list[Statement] = []
        names: dict[int, tuple[str, ...]] = {}
        known = {} if like is None else like.by_instruction
        block = 0
        for number, function in enumerate(self.functions):
            block += 1
            entered = _branch_targets(function)
            for index, instruction in enumerate(function.instructions):
                if index in entered:
                    block += 1
                same = known.get(id(instruction))
                if same is not None and (same.function, same.block) == (number, block):
                    statements.append(same)
                    if same.base in _BLOCK_ENDS:
                        block += 1
                    continue
                opcode = opcode_of(instruction.opcode)
                read = []
                for operand in instruction.operands:
                    if (found := names.get(id(operand))) is None:
                        found = names[id(operand)] = _names(operand)
                    read.append(found)
                results: tuple[str, ...] = ()
                if read and _has_result(instruction, opcodes):
                    results = read.pop(0)
                vector = any(type(each) is Vector for each in instruction.operands)
                named = [each for each in read if each]
                repeats = len(named) > 1 and len(set(named)) < len(named)
                statements.append(Statement(instruction, opcode, number, block, results, tuple(read), vector, repeats))
                if opcode.base in _BLOCK_ENDS:
                    block += 1
        self.statements = tuple(statements)

    @cached_property
    def by_instruction(self) -> dict[int, Statement]:
        """The statement of each instruction, by the id of the instruction."""
        return {id(each.instruction): each for each in self.statements}

    @cached_property
    def definitions(self) -> dict[str, list[int]]:
        """For each register, the indices of the statements that write it."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, statement in enumerate(self.statements):
            for name in statement.results:
                found[name].append(index)
        return found

    @cached_property
    def uses(self) -> dict[str, list[tuple[int, int]]]:
        """For each register, (statement, position among its sources) of every read; position -1 for a result."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, statement in enumerate(self.statements):
            for position, names in enumerate(statement.sources):
                for name in names:
                    found[name].append((index, position))
            if statement.base in _READS_ITS_RESULT:
                for name in statement.results:
                    found[name].append((index, -1))
        return found

    def line(self, index: int) -> int:
        """Return the line of a statement."""
        return self.statements[index].instruction.line


def span_of(instruction: Instruction) -> tuple[int, int]:
    """Return the start and end of an instruction in the text.  Raises ValueError if the parser did not record them."""
    if instruction.span is None:
        raise ValueError(f"the instruction of line {instruction.line} has no position in the text")
    return instruction.span


def _start_offset(function: Kernel) -> int:
    if function.span is None:
        raise ValueError(f"the parser recorded no position of {function.name}; give the module that it returned")
    return function.span[0]


def _names(operand: Operand) -> tuple[str, ...]:
    found = [each for each in parts(operand) if not isinstance(each, Immediate)]
    return tuple([spelling(each.name) if isinstance(each, Register) else each.name for each in found])


def _has_result(instruction: Instruction, opcodes: OpcodeTable) -> bool:
    """Return whether the first operand is written."""
    return not isinstance(instruction.operands[0], Address) and _writes_first(instruction.opcode, opcodes)


@lru_cache(maxsize=4096)
def _writes_first(opcode: str, opcodes: OpcodeTable) -> bool:
    """Return whether instructions of an opcode write their first operand, a register or a parameter of a call."""
    return "first" in opcodes.info(Instruction(opcode, (Register("first"),), None, 0)).writes


def _branch_targets(function: Kernel) -> set[int]:
    """Return the indices of the instructions that are branch targets."""
    found: set[int] = set()
    for instruction in function.instructions:
        if opcode_of(instruction.opcode).base in ("bra", "brx"):
            names = set[str]().union(*map(symbols_of, instruction.operands))
            found |= {function.labels[name] for name in names if name in function.labels}
    return found
