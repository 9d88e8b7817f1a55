"""Write a module as PTX text, which `parser.parse` parses to the same module except for line numbers.

Registers are declared untyped, since a module does not record their types.  Inner blocks span the names that they
declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bitwise_core.assembly.module import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Modified,
    Module,
    Negated,
    Operand,
    Paired,
    Parameter,
    Register,
    SharedArray,
    SourceLine,
    Symbol,
    Vector,
    parts,
    symbols_of,
)
from bitwise_nvidia_ptx.text.inner_blocks import Block, declared, inner_blocks, labels_before, spelling, split


def write(module: Module) -> str:
    """Return the PTX text of a module.  Raises ValueError if it calls a function that it does not define."""
    functions = (*module.functions.values(), *module.kernels)
    context = _Context(_files(functions), frozenset(each.name for each in functions))
    lines = [f".version {module.version}", f".target {module.target}", ".address_size 64"]
    lines += [f'.file {number} "{name}"' for name, number in context.files.items()]
    lines += [f"{'' if each.size else '.extern '}.shared{_array(each)};" for each in module.shared]
    lines += [f".const{_array(each)};" for each in module.constants]
    lines += [f".global{_array(each)};" for each in module.globals]
    lines += [f"{_signature(each)};" for each in module.functions.values()]
    for each in functions:
        lines += _function(each, context)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Context:
    """The numbers of source files and the names of functions in the module."""

    files: dict[str, int]
    functions: frozenset[str]


def _files(functions: Iterable[Kernel]) -> dict[str, int]:
    instructions = chain.from_iterable(each.instructions for each in functions)
    named = [each.source.file for each in instructions if each.source is not None]
    return {name: number for number, name in enumerate(dict.fromkeys(named), 1)}


def _array(array: SharedArray) -> str:
    values = "" if array.data is None else f" = {{{', '.join(map(str, array.data))}}}"
    return f" .align {array.align} .b8 {split(array.name)[0]}[{array.size or ''}]{values}"


def _parameter(parameter: Parameter) -> str:
    if parameter.pointer:
        return f".param .b{8 * parameter.size} .ptr .align {parameter.align} {parameter.name}"
    if parameter.align == 1 and parameter.size in (1, 2, 4, 8):
        return f".param .b{8 * parameter.size} {parameter.name}"
    return f".param .align {parameter.align} .b8 {parameter.name}[{parameter.size}]"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(texts)


def _signature(kernel: Kernel) -> str:
    linkage = f".{kernel.attributes['linkage']} " if "linkage" in kernel.attributes else ""
    kind = "entry" if kernel.entry else "func"
    returns = f"({_joined(map(_parameter, kernel.returns))}) " if kernel.returns else ""
    properties = "".join(f" .{name} {value}".rstrip() for name, value in kernel.attributes.items() if name != "linkage")
    return f"{linkage}.{kind} {returns}{kernel.name}({_joined(map(_parameter, kernel.parameters))}){properties}"


def _function(kernel: Kernel, context: _Context) -> Iterator[str]:
    names, labels = _declarations(kernel), labels_before(kernel)
    blocks = _Blocks(inner_blocks(kernel), names)
    source: SourceLine | None = None
    yield from (_signature(kernel), "{", *names.get(0, ()))
    for index in range(len(kernel.instructions) + 1):
        for name, place in labels.get(index, ()):
            yield from blocks.begin(place)
            yield f"{split(name)[0]}:"
            yield from blocks.end(place)
        if index == len(kernel.instructions):
            break
        position = 2 * index + 1
        yield from blocks.begin(position)
        instruction = kernel.instructions[index]
        if instruction.source is not None and instruction.source != source:
            source = instruction.source
            yield f".loc {context.files[source.file]} {source.line} {source.column}"
        yield from _instruction(instruction, context, position)
        yield from blocks.end(position)
    yield "}"


class _Blocks:
    """The inner blocks of a kernel that are still to be written, and those that are open."""

    def __init__(self, waiting: list[Block], names: Mapping[int, Sequence[str]]) -> None:
        self.waiting, self.names = waiting, names
        self.open: list[Block] = []
        self.number = 0

    def begin(self, position: float) -> Iterator[str]:
        """Yield the beginnings of the blocks that begin at a position."""
        while self.waiting and self.waiting[0].first <= position:
            block = self.waiting.pop(0)
            # Blocks without names are numbered as well.
            yield from ["{", "}"] * (block.number - self.number - 1)
            self.number = block.number
            if block.number:
                yield from ("{", *self.names.get(block.number, ()))
                self.open.append(block)

    def end(self, position: float) -> Iterator[str]:
        """Yield the ends of the open blocks that end at a position."""
        while self.open and self.open[-1].last <= position:
            self.open.pop()
            yield "}"


def _declarations(kernel: Kernel) -> dict[int, list[str]]:
    """Return the declarations of each block, by its number: registers, then arrays."""
    counts: dict[str, int] = {}
    for each in _registers(kernel):
        family, number = declared(each, kernel)
        if number:
            counts[family] = max(counts.get(family, 0), int(number) + 1)
    found: dict[int, list[str]] = {}
    for name, width in kernel.registers.items():
        own, block = split(name)
        count = f"<{counts[name]}>" if name in counts else ""
        found.setdefault(block, []).append(f".reg .{'pred' if width == 1 else f'b{width}'} {own}{count};")
    passed = _call_arrays(kernel)
    spaces = [("shared", each) for each in kernel.shared]
    spaces += [("param" if each.name in passed else "local", each) for each in kernel.local]
    for space, array in spaces:
        own, block = split(array.name)
        scalar = space == "param" and array.size == array.align and array.size in (1, 2, 4, 8)
        text = f" .b{8 * array.size} {own}" if scalar else _array(array)
        found.setdefault(block, []).append(f".{space}{text};")
    return found


def _registers(kernel: Kernel) -> Iterator[str]:
    for instruction in kernel.instructions:
        if instruction.guard is not None:
            yield instruction.guard.register
        for operand in instruction.operands:
            yield from (each.name for each in parts(operand) if isinstance(each, Register))


def _call_arrays(kernel: Kernel) -> set[str]:
    """Return the names of the arrays that hold arguments and results of calls."""
    found: set[str] = set()
    for instruction in kernel.instructions:
        words = instruction.opcode.split(".")
        if words[0] == "call" or "param" in words:
            found |= set().union(*map(symbols_of, instruction.operands))
    return found


def instruction_text(instruction: Instruction) -> str:
    """Return the text of an instruction that is neither a call nor an indexed branch, without its semicolon."""
    return _text(instruction, [_operand(each) for each in instruction.operands])


def _text(instruction: Instruction, operands: list[str]) -> str:
    guard = ""
    if instruction.guard is not None:
        guard = f"@{'!' * instruction.guard.negated}{spelling(instruction.guard.register)} "
    return f"{guard}{instruction.opcode} {_joined(operands)}".rstrip()


def _instruction(instruction: Instruction, context: _Context, position: int) -> Iterator[str]:
    operands = [_operand(each) for each in instruction.operands]
    base = instruction.opcode.split(".")[0]
    if base == "brx":
        table = f"$targets_{position}"
        yield f"{table}: .branchtargets {operands[1][1:-1]};"
        operands[1] = table
    if base == "call":
        operands = _call(instruction.operands, operands, context)
    yield f"{_text(instruction, operands)};"


def _call(operands: tuple[Operand, ...], texts: list[str], context: _Context) -> list[str]:
    target = operands[1]
    if isinstance(target, Symbol) and target.name not in context.functions:
        raise ValueError(f"the module does not define {target.name}, which it calls: it cannot be written")
    returns, name, arguments, *prototype = texts
    given = [f"({returns[1:-1]})"] if returns != "{}" else []
    return [*given, name, f"({arguments[1:-1]})", *prototype]


def _operand(operand: Operand) -> str:
    match operand:
        case Register(name):
            return spelling(name)
        case Symbol(name):
            return split(name)[0]
        case Immediate(value, "f32"):
            return f"0f{value:08X}"
        case Immediate(value, "f64"):
            return f"0d{value:016X}"
        case Immediate(value):
            return str(value)
        case Vector(items):
            return f"{{{_joined(_operand(each) for each in items)}}}"
        case Negated(register):
            return f"!{_operand(register)}"
        case Paired(first, second):
            return f"{_operand(first)}|{_operand(second)}"
        case Address(base, offset, extra):
            text = "" if base is None else _operand(base)
            text = f"{text}+{offset}" if text and offset else text or str(offset)
            return f"[{_joined([text, *(_operand(each) for each in extra)])}]"
        case Modified(changes=changes):
            raise ValueError(f"PTX has no operand with the changes {', '.join(changes)}: it cannot be written")
