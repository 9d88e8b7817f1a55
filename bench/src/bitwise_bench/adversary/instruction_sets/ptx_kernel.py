"""One PTX kernel of many programs, each of which stores to elements of its own, and its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bitwise_bench.adversary.expressions import (
    CONSTANT,
    LEAF,
    WIDTHS,
    Expression,
    constant_bits,
    leaves_of,
    nodes,
)
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import LEAVES, PTX
from bitwise_bench.adversary.kernels import KernelText, leaf_place, places_of
from bitwise_bench.adversary.programs import STORES, Program

THREADS = 32
"""The number of threads in a block: one warp."""

_PREFIXES = {1: "%p", 16: "%h", 32: "%r", 64: "%d"}
_SCRATCH = {"~h0": "%h0", "~h1": "%h1", "~z": "%h2", "~r0": "%r0", "~p0": "%p0", "~own": "%r1", "~other": "%r2"}
_FIRST = {1: 1, 16: 3, 32: 5, 64: 2}
"""The first register of each width that programs may use."""


class Registers:
    """Registers of one kernel: each program reuses those after the loaded values."""

    def __init__(self) -> None:
        self.next = dict(_FIRST)
        self.most = dict(_FIRST)

    def take(self, width: int) -> str:
        """Return the next register of a width."""
        number = self.next[width]
        self.next[width] += 1
        self.most[width] = max(self.most[width], self.next[width])
        return f"{_PREFIXES[width]}{number}"

    def kernel(self, parameters: Sequence[str], body: Sequence[str]) -> str:
        """Return the kernel with these parameters, whose body uses registers taken here.

        %r3 is the number of the thread in the launch, %r4 that of the block.
        """
        declared = " ".join(
            f".reg .{'pred' if width == 1 else f'b{width}'} {_PREFIXES[width]}<{count + 1}>;"
            for width, count in self.most.items()
        )
        lines = [
            ".version 8.7", ".target sm_90a", ".address_size 64",
            f".visible .entry kernel({', '.join(parameters)}) .reqntid {THREADS}",
            "{", declared, ".shared .align 16 .b8 room[512];",
            "mov.u32 %r0, %tid.x; mov.u32 %r4, %ctaid.x;",
            f"mad.lo.s32 %r3, %r4, {THREADS}, %r0;",
            "mov.u32 %r1, room; mov.u32 %r2, room; shl.b32 %r0, %r0, 3; add.u32 %r1, %r1, %r0;",
            "xor.b32 %r0, %r0, 8; add.u32 %r2, %r2, %r0;",
            "mov.b16 %h2, 0;",
            *body, "ret;", "}", "",
        ]  # fmt: skip
        return "\n".join(lines)


def _filled(text: str, destination: str, operands: Sequence[str]) -> str:
    for short, name in _SCRATCH.items():
        text = text.replace(short, name)
    for number, operand in enumerate(operands):
        text = text.replace(f"${number}", operand)
    # @ also marks a guard: there a percent sign or an exclamation mark follows.
    parts = []
    for index, character in enumerate(text):
        following = text[index + 1 : index + 2]
        parts.append(destination if character == "@" and following not in ("%", "!") else character)
    return "".join(parts)


def _spelled(node: Expression) -> str:
    bits = constant_bits(node)
    if node.kind == "f32":
        return f"0f{bits:08X}"
    if node.kind == "f64":
        return f"0d{bits:016X}"
    return f"0x{bits:x}"


def lines_of(root: Expression, known: Mapping[Expression, str], registers: Registers) -> tuple[list[str], str]:
    """Return the instructions of an expression, and the register that holds its result."""
    names = dict(known)
    lines: list[str] = []

    def in_register(node: Expression) -> str:
        if node not in names:
            register = names[node] = registers.take(node.width)
            if node.width == 1:
                lines.append(f"setp.ne.u32 {register}, {constant_bits(node)}, 0;")
            else:
                lines.append(f"mov.b{node.width} {register}, 0x{constant_bits(node):x};")
        return names[node]

    for node in nodes(root):
        if node.opcode in (LEAF, CONSTANT):
            continue
        spec = PTX.specs[node.opcode]
        operands: list[str] = []
        inline = spec.plain and sum(isinstance(each, Expression) and each.opcode != CONSTANT for each in node.operands)
        for each, kind in zip(node.operands, spec.operands, strict=True):
            if isinstance(each, str):
                operands.append(each)
            elif each.opcode == CONSTANT and inline and each.kind == kind:
                operands.append(_spelled(each))
            else:
                operands.append(in_register(each))
        names[node] = registers.take(node.width)
        lines.append(_filled(spec.text, names[node], operands))
    return lines, in_register(root)


def kernel_text(programs: Sequence[Program]) -> KernelText:
    """Return one kernel of all programs; a thread loads its values once."""
    registers = Registers()
    known: dict[Expression, str] = {}
    body: list[str] = []
    leaves = leaves_of(program.root for program in programs)
    loads = tuple(
        dict.fromkeys(kind for kind in LEAVES if any(leaf_place(str(n.operands[0]))[0] == kind for n in leaves))
    )
    for kind in loads:
        size = WIDTHS[kind] // 8 * LEAVES[kind][1]
        body.append(f"ld.param.u64 %d0, [in_{kind}]; mul.wide.s32 %d1, %r3, {size}; add.s64 %d0, %d0, %d1;")
        for node in leaves:
            of, number = leaf_place(str(node.operands[0]))
            if of == kind:
                known[node] = registers.take(node.width)
                offset = WIDTHS[kind] // 8 * number
                body.append(f"ld.global.b{node.width} {known[node]}, [%d0+{offset}];")
    places, counts = places_of(programs, PTX)
    sizes = {place.buffer: place.size for place in places}
    addresses = {}
    for name in counts:
        register = addresses[name] = registers.take(64)
        body.append(
            f"ld.param.u64 {register}, [{name}]; mov.u32 %r0, %tid.x; "
            f"mad.lo.s32 %r0, %r4, {counts[name] * THREADS}, %r0; "
            f"mul.wide.s32 %d1, %r0, {sizes[name]}; add.s64 {register}, {register}, %d1;"
        )
        if name.startswith("mixed"):
            body.append(f"st.global.b16 [{register}], %h2; st.global.b16 [{register}+2], %h2;")
    first = dict(registers.next)
    for program, place in zip(programs, places, strict=True):
        registers.next = dict(first)
        lines, result = lines_of(program.root, known, registers)
        body += lines
        address, offset = addresses[place.buffer], place.slot * THREADS * place.size
        text = STORES[program.store].text.replace("&+2", f"{address}+{offset + 2}").replace("&", f"{address}+{offset}")
        body.append(_filled(text.replace("$", "$0"), "", [result]))
    names = [*(f"in_{kind}" for kind in loads), *counts]
    text = registers.kernel([f".param .u64 .ptr .global .align 8 {name}" for name in names], body)
    return KernelText(text, places, loads, counts, LEAVES, THREADS, "kernel.ptx")
