"""The parser and the writer of toy1's assembly.

target toy1
kernel sum(x: buffer, n: i32) threads 8 {
  mov r0, lane            # a comment
AGAIN:
  @p0 jump AGAIN
  end
}
"""

from __future__ import annotations

import re

from bitwise_core.assembly import module as asm
from bitwise_core.assembly.module import AssemblyError, Operand, Register, Symbol

REGISTERS = {"r": 32, "a": 64, "p": 1}
SPECIAL = {"lane", "block"}
_SIZES = {"buffer": 8, "i32": 4}
_KERNEL = re.compile(r"kernel (\w+)\((.*)\) threads (\d+) \{")
_LINE = re.compile(r"(?:@(!?)(p\d+) )?([a-z]+(?:\.[a-z]+)?)(?: (.+))?")
_ADDRESS = re.compile(r"\[(a\d+)(?: \+ (\d+))?\]")


def parse(text: str, file: str) -> asm.Module:
    """Return the module of a text.  Raises AssemblyError."""
    lines = [(number, line.split("#")[0].strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines or not re.fullmatch(r"target \w+", lines[0][1]):
        raise AssemblyError(file, 1, "a text begins with its target, such as `target toy1`")
    kernels: list[asm.Kernel] = []
    place = 1
    while place < len(lines):
        end = next((index for index in range(place, len(lines)) if lines[index][1] == "}"), None)
        if end is None:
            raise AssemblyError(file, lines[-1][0], "the text ends inside a kernel: end it with a line `}`")
        kernels.append(_kernel(lines[place:end], file))
        place = end + 1
    return asm.Module(file, lines[0][1].removeprefix("target "), "1", tuple(kernels), {})


def _kernel(lines: list[tuple[int, str]], file: str) -> asm.Kernel:
    number = lines[0][0] if lines else 1
    found = _KERNEL.fullmatch(lines[0][1]) if lines else None
    if found is None:
        raise AssemblyError(
            file, number, "a kernel begins with a line such as `kernel sum(x: buffer, n: i32) threads 8 {`"
        )
    parameters = tuple(_parameter(each, file, number) for each in filter(None, found[2].split(", ")))
    threads = int(found[3])
    if not threads or threads % 4 or threads > 64:
        raise AssemblyError(file, number, f"a block has 4 to 64 threads in waves of 4, not {threads}")
    labels: dict[str, int] = {}
    instructions: list[asm.Instruction] = []
    for number, line in lines[1:]:
        if re.fullmatch(r"[A-Z]+:", line) and line[:-1] not in labels:
            labels[line[:-1]] = len(instructions)
        else:
            instructions.append(_instruction(line, file, number))
    known = {each.name for each in parameters} | labels.keys()
    for each in instructions:
        for operand in each.operands:
            if isinstance(operand, Symbol) and operand.name not in known:
                raise AssemblyError(file, each.line, f"{operand.name} is not a parameter, a label or a register")
    if not instructions or instructions[-1].opcode != "end" or instructions[-1].guard is not None:
        raise AssemblyError(file, number, "the last instruction of a kernel must be an unguarded `end`")
    block = (threads, 1, 1)
    return asm.Kernel(found[1], parameters, tuple(instructions), labels, REGISTERS, lines[0][0], threads=block)


def _parameter(text: str, file: str, number: int) -> asm.Parameter:
    found = re.fullmatch(r"(\w+): (\w+)", text)
    if found is None or found[2] not in _SIZES:
        raise AssemblyError(file, number, f"a parameter has the form `x: buffer`; the kinds are {', '.join(_SIZES)}")
    return asm.Parameter(found[1], _SIZES[found[2]], found[2] == "buffer")


def _instruction(line: str, file: str, number: int) -> asm.Instruction:
    found = _LINE.fullmatch(line)
    if found is None:
        raise AssemblyError(file, number, f"{line!r} is not an instruction")
    operands = tuple(_operand(each, file, number) for each in (found[4].split(", ") if found[4] else ()))
    return asm.Instruction(found[3], operands, asm.Guard(found[2], found[1] == "!") if found[2] else None, number)


def _operand(text: str, file: str, number: int) -> Operand:
    if re.fullmatch(r"[rap]\d+", text) or text in SPECIAL:
        return Register(text)
    if re.fullmatch(r"-?\d{1,10}|0x[0-9a-f]{1,8}", text):
        return asm.Immediate(int(text, 0))
    if found := _ADDRESS.fullmatch(text):
        return asm.Address(Register(found[1]), int(found[2] or 0))
    if re.fullmatch(r"\w+", text) and not text[0].isdigit():
        return Symbol(text)
    raise AssemblyError(file, number, f"{text!r} is not an operand")


def write(module: asm.Module) -> str:
    """Return a text that `parse` reads as an equal module, except for line numbers."""
    lines = [f"target {module.target}"]
    for kernel in module.kernels:
        assert kernel.threads is not None
        parameters = ", ".join(f"{each.name}: {'buffer' if each.pointer else 'i32'}" for each in kernel.parameters)
        lines.append(f"kernel {kernel.name}({parameters}) threads {kernel.threads[0]} {{")
        for index, each in enumerate(kernel.instructions):
            lines += [f"{name}:" for name, place in kernel.labels.items() if place == index]
            guard = f"@{'!' if each.guard.negated else ''}{each.guard.register} " if each.guard else ""
            lines.append(f"  {guard}{each.opcode} {', '.join(map(_operand_text, each.operands))}".rstrip())
        lines.append("}")
    return "\n".join(lines) + "\n"


def _operand_text(operand: Operand) -> str:
    match operand:
        case Register(name) | Symbol(name):
            return name
        case asm.Immediate(value):
            return str(value)
        case asm.Address(Register(name), offset):
            return f"[{name} + {offset}]"
    raise ValueError(f"toy1 has no operand {operand}")
