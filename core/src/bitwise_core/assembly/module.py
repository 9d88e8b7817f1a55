"""Parsed assembly of any vendor, as a parser returns it.

A parser converts text to one `Module`; nothing here is specific to an instruction set.  All records are frozen.
Instructions keep their line number in the text, so that messages can name it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from itertools import islice
from typing import TypeAlias, TypeVar, TypeVarTuple

from bitwise_core.errors import BitwiseError
from bitwise_core.visible_text import visible


class AssemblyError(BitwiseError, ValueError):
    """A text cannot be parsed: the message names the file and the line, and says what is wrong."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}")
        self.file, self.line, self.reason = file, line, reason


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line of the kernel's source that an instruction was compiled from, from the debug information.

    Where functions are inlined, `callers` are the lines that call them, the innermost first; they do not affect
    equality.  Characters of the file's name that cannot be printed are their numbers.
    """

    file: str
    line: int
    column: int = 0
    callers: tuple[SourceLine, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", visible(self.file))

    @property
    def chain(self) -> tuple[str, ...]:
        """The call chain as `FILE:LINE`: the line of the kernel's own file first, then the calls that it inlines.

        The kernel's own file is the file of the outermost caller.  Its innermost line stands for its callers.
        """
        frames = (self, *self.callers)
        own = next(number for number, each in enumerate(frames) if each.file == frames[-1].file)
        return tuple(f"{each.file}:{each.line}" for each in reversed(frames[: own + 1]))

    def __str__(self) -> str:
        return " > ".join(self.chain)


MAXIMUM_CALLERS = 32
"""Callers beyond this number are not read."""

_CALLER = re.compile(r"@\[ *([^\s@\[\]][^@\[\]]{0,1023}):([0-9]{1,9}):[0-9]{1,9}")


def callers_in_comment(comment: str) -> tuple[SourceLine, ...]:
    """Return the callers that LLVM names behind a line directive, the innermost first.

    Its comment has the form `FILE:LINE:COLUMN @[ FILE:LINE:COLUMN @[ ... ] ]`.
    """
    if "@[" not in comment:
        return ()
    found = islice(_CALLER.finditer(comment), MAXIMUM_CALLERS)
    return tuple(SourceLine(re.split(r"[/\\]", each[1])[-1], int(each[2])) for each in found)


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
    """A list of operands in braces, `{%r1, %r2}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A bracketed operand `[base + offset]`, or `[base, {coordinates}]` of a tensor copy.

    `base` is None for an absolute address; `extra` holds the operands after a comma inside the brackets.
    """

    base: Register | Symbol | None
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Negated:
    """A negated predicate operand, `!%p1`."""

    operand: Register


@dataclass(frozen=True, slots=True)
class Paired:
    """Two destinations of one instruction, `%p1|%p2`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Modified:
    """An operand with modifiers, such as `-|v1|`: `changes` lists them in the order in which they apply."""

    operand: Operand
    changes: tuple[str, ...]


Operand: TypeAlias = Register | Immediate | Symbol | Vector | Address | Negated | Paired | Modified


def parts(operand: Operand) -> Iterator[Register | Immediate | Symbol]:
    """Yield the registers, literals and symbols of an operand, in the order of the text."""
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
    """Return the names of the registers in operands."""
    found = set()
    for operand in operands:
        if type(operand) is Register:  # the most frequent case, on the path of every instruction
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
    """Return the names of the symbols in an operand."""
    return {each.name for each in parts(operand) if isinstance(each, Symbol)}


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate of an instruction, which executes where `register` is true (false if negated)."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: the mnemonic with all modifiers, the operands in the order of the text, and the line number.

    `span` is the half-open range of its character offsets in the text, where the parser records it; it does not affect
    equality.
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    source: SourceLine | None = None
    span: tuple[int, int] | None = field(default=None, compare=False)


def same_text(instruction: Instruction) -> Hashable:
    """Return a key that instructions share only if they have the same opcode, operands and guard.

    It is the same for instructions whose operands are one object, as parsers return them for lines that repeat, and it
    is valid as long as the instruction exists.
    """
    return instruction.opcode, id(instruction.operands), instruction.guard


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: name, size in bytes, and whether the text declares it a pointer.

    `align` is the alignment of the pointee for a pointer, of the parameter for an array, in bytes.
    """

    name: str
    size: int
    pointer: bool = False
    align: int = 1


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An array in memory: `size` in bytes, 0 if the launch sets it; `data` are its initial bytes, if any."""

    name: str
    size: int
    align: int = 1
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClusterDirectives:
    """What the text of a kernel states on the clusters of blocks of its launches.

    `shape` is the required shape of a cluster in blocks (x, y, z), and `largest` the largest number of its blocks; None
    where the text leaves it open.  `explicit`: every launch states the shape of its clusters.
    `grid_of_clusters`: a launch gives the grid in clusters instead of blocks.
    """

    shape: tuple[int, int, int] | None = None
    largest: int | None = None
    explicit: bool = False
    grid_of_clusters: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry point or device function.

    `labels` maps a label to the index of the instruction after it.
    `registers` maps the name of a declared register, or its prefix for a declaration `%r<n>`, to its width in bits (1
    for a predicate).  `returns` lists the return parameters of a device function.
    `threads` is the required block shape where the text states one.
    `local` holds the arrays private to a thread: its local memory, and the parameter slots of its calls.
    `clusters` is None where the text states nothing on clusters of blocks.
    `pragmas` are hints to the assembler with their places; they do not affect equality.
    `span` is the half-open range of character offsets of the body in the text, where the parser records it; it does
    not affect equality.
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
    clusters: ClusterDirectives | None = None
    pragmas: tuple[str, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {len(self.parameters)} parameters, {len(self.instructions)} instructions)"


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its target architecture as in the text, its kernels and functions, its module-level arrays.

    `globals` are arrays in global memory.  A kernel may write them, so their `data` is the initial content only.
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
        """Return the entry of that name, or the only entry.  Raises KeyError, which lists the entries."""
        names = ", ".join(k.name for k in self.kernels) or "none"
        if name is None:
            if len(self.kernels) != 1:
                raise KeyError(f"{self.file} has {len(self.kernels)} entries ({names}); name one")
            return self.kernels[0]
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"{self.file} has no entry {name!r}; its entries: {names}")


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def once_a_kernel(function: Callable[[Kernel, *Arguments], Result]) -> Callable[[Kernel, *Arguments], Result]:
    """Cache the results of a function of a kernel, keyed by the identity of its tuple of instructions.

    The cache holds at most 65 results.  The other arguments must be hashable.
    """
    cache: dict[tuple[object, ...], tuple[tuple[Instruction, ...], Result]] = {}

    @wraps(function)
    def cached(kernel: Kernel, *arguments: *Arguments) -> Result:
        key = (id(kernel.instructions), *arguments)
        found = cache.get(key)
        if found is None or found[0] is not kernel.instructions:
            if len(cache) > 64:
                cache.clear()
            found = cache[key] = kernel.instructions, function(kernel, *arguments)
        return found[1]

    return cached


def program_digest(module: Module, kernel: Kernel) -> str:
    """Return a digest of all that an assembler reads of a kernel and of the functions of its module.

    Lines and comments do not count.  An assembler translates kernels of one digest in the same way.
    """
    functions = [_kernel_digest(module.functions[name]) for name in sorted(module.functions)]
    parts = [module.target, module.version, _kernel_digest(kernel), *functions]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@once_a_kernel
def _kernel_digest(kernel: Kernel) -> str:
    lines = [f"{each.guard} {each.opcode} {each.operands}" for each in kernel.instructions]
    mappings = (sorted(each.items()) for each in (kernel.labels, kernel.registers, kernel.attributes))
    arrays = (kernel.parameters, kernel.returns, kernel.shared, kernel.local)
    rest = (kernel.threads, kernel.clusters, kernel.pragmas, *mappings, *arrays)
    return hashlib.sha256("\n".join([*lines, *map(repr, rest)]).encode()).hexdigest()
