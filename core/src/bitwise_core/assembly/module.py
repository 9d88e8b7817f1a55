"""Parsed assembly of any vendor: what a parser hands to the engine.

A parser turns text into one `Module`; nothing here knows an instruction set.
All records are frozen; instructions keep the line of the text they came from so
that every later message can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeAlias, TypeVar, TypeVarTuple

from bitwise_core.errors import BitwiseError


class AssemblyError(BitwiseError, ValueError):
    """The text is not readable assembly: the file, the line and what to do are in the message."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}")
        self.file, self.line, self.reason = file, line, reason


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line of the kernel's own source behind an instruction, from the debug directives."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Register:
    """A register or special register, by its name in the text (for example `%r1`, `%tid.x`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal: `value` is its bit pattern as written (negative integers stay negative).

    `kind` is "int", "f32" (the value is 32 float bits) or "f64" (64 float bits).
    """

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that is not a register: a label, a parameter, a shared array, a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    """A braced list of operands, `{%r1, %r2}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A bracketed operand `[base + offset]`, or `[base, {coordinates}]` of a tensor copy.

    `base` is None for an absolute address; `extra` holds whatever follows a comma inside the bracket.
    """

    base: Register | Symbol | None
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p1` where a predicate operand is negated."""

    operand: Register


@dataclass(frozen=True, slots=True)
class Paired:
    """`%p1|%p2`: two destinations of one instruction."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Modified:
    """An operand that is changed before the instruction uses it, such as `-|v1|`: `changes` in the order applied."""

    operand: Operand
    changes: tuple[str, ...]


Operand: TypeAlias = Register | Immediate | Symbol | Vector | Address | Negated | Paired | Modified


def parts(operand: Operand) -> Iterator[Register | Immediate | Symbol]:
    """The registers, literals and symbols that an operand is made of, in written order."""
    match operand:
        case Vector(items):
            inner: tuple[Operand, ...] = items
        case Address(base, _, extra):
            inner = extra if base is None else (base, *extra)
        case Negated(register):
            inner = (register,)
        case Paired(first, second):
            inner = (first, second)
        case Modified(changed, _):
            inner = (changed,)
        case _:
            yield operand
            return
    for each in inner:
        yield from parts(each)


def registers_of(*operands: Operand) -> set[str]:
    """The names of the registers in operands."""
    found = set()
    for operand in operands:
        if type(operand) is Register:  # most operands; it is asked of every instruction of a kernel
            found.add(operand.name)
        elif type(operand) is Vector:
            found |= registers_of(*operand.items)
        elif type(operand) is Address and not operand.extra:
            if type(operand.base) is Register:
                found.add(operand.base.name)
        elif type(operand) is not Immediate and type(operand) is not Symbol:
            found |= {each.name for each in parts(operand) if isinstance(each, Register)}
    return found


def symbols_of(operand: Operand) -> set[str]:
    """The names of the symbols in an operand."""
    return {each.name for each in parts(operand) if isinstance(each, Symbol)}


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate in front of an instruction: it acts where `register` is true (false if negated)."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: mnemonic with all its modifiers, operands in written order, and its line.

    `span` is the half-open range of character offsets that it takes up in the text, where the parser records it; two
    instructions that differ in it only are equal.
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    source: SourceLine | None = None
    span: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: name, size in bytes, whether the text declares it a pointer.

    `align` is that of the pointee for a pointer, that of the parameter for an array.
    """

    name: str
    size: int
    pointer: bool = False
    align: int = 1


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An array outside registers: `size` 0 means sized by the launch; `data` its initial bytes, if any."""

    name: str
    size: int
    align: int = 1
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry point or device function.

    `labels` maps a label to the index of the instruction it stands before.
    `registers` maps a declared register's name, or its prefix when declared as `%r<n>`, to its width in
    bits (1 for a predicate).  `returns` lists the return parameters of a device function.
    `threads` is the required block shape where the text states one.
    `local` holds the arrays private to a thread: its local memory, and the parameter slots of its calls.
    `span` is the half-open range of character offsets of the body in the text, where the parser records it; it does
    not count in comparisons.
    """

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    registers: Mapping[str, int]
    line: int
    entry: bool = True
    returns: tuple[Parameter, ...] = ()
    threads: tuple[int, int, int] | None = None
    shared: tuple[SharedArray, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    local: tuple[SharedArray, ...] = ()
    span: tuple[int, int] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {len(self.parameters)} parameters, {len(self.instructions)} instructions)"


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its target architecture as written, its kernels and functions, its module-level arrays.

    `globals` are arrays in global memory: a kernel may write them, so `data` is what they hold at first.
    """

    file: str
    target: str
    version: str
    kernels: tuple[Kernel, ...]
    functions: Mapping[str, Kernel]
    shared: tuple[SharedArray, ...] = ()
    constants: tuple[SharedArray, ...] = ()
    globals: tuple[SharedArray, ...] = ()

    def __repr__(self) -> str:
        return f"Module({self.file!r}, {self.target}, entries: {', '.join(each.name for each in self.kernels)[:200]})"

    def kernel(self, name: str | None = None) -> Kernel:
        """The entry of that name, or the only one.  Raises KeyError with the names there are."""
        names = ", ".join(k.name for k in self.kernels) or "none"
        if name is None:
            if len(self.kernels) != 1:
                raise KeyError(f"{self.file} has {len(self.kernels)} entries ({names}); name one")
            return self.kernels[0]
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"{self.file} has no entry {name!r}; its entries: {names}")


Answer = TypeVar("Answer")
Further = TypeVarTuple("Further")


def once_a_kernel(ask: Callable[[Kernel, *Further], Answer]) -> Callable[[Kernel, *Further], Answer]:
    """Remembers the answers on the kernels that were asked about last, by their tuple of instructions itself.

    Further arguments are hashable.
    """
    known: dict[tuple[object, ...], tuple[tuple[Instruction, ...], Answer]] = {}

    @wraps(ask)
    def answer(kernel: Kernel, *further: *Further) -> Answer:
        key = (id(kernel.instructions), *further)
        found = known.get(key)
        if found is None or found[0] is not kernel.instructions:
            if len(known) > 64:
                known.clear()
            found = known[key] = kernel.instructions, ask(kernel, *further)
        return found[1]

    return answer
