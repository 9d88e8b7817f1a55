"""One PTX kernel of many programs, each of which stores to elements of its own, and its launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bitwise_bench.adversary.expressions import (
    CONSTANT,
    LEAF,
    WIDTHS,
    Expression,
    constant_bits,
    leaves_of,
    nodes,
    operations,
)
from bitwise_bench.adversary.programs import MIXED_BYTES, STORES, Program
from bitwise_bench.adversary.ptx_vocabulary import SPECS
from bitwise_core.execution.launch import Argument, Launch

THREADS = 32
"""The number of threads in a block: one warp."""

LEAVES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"f32": ("fp32", 4), "f16": ("fp16", 4), "bf16": ("bf16", 4), "f64": ("fp64", 4), "i32": ("u32", 4),
     "i64": ("u64", 4), "i16": ("u16", 4), "h2": ("fp16", 4), "b2": ("bf16", 4)}
)  # fmt: skip
"""The element type of the buffer of each kind of loaded value, and the number of loaded values in each thread."""

_PREFIXES = {1: "%p", 16: "%h", 32: "%r", 64: "%d"}
_SCRATCH = {"~h0": "%h0", "~h1": "%h1", "~z": "%h2", "~r0": "%r0", "~p0": "%p0", "~own": "%r1", "~other": "%r2"}
_FIRST = {1: 1, 16: 3, 32: 5, 64: 2}
"""The first register of each width that programs may use."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program stores: the buffer, and the number of its slot there; a slot has `size` bytes for each thread.

    `crosses`: the program reads values of other threads.
    """

    buffer: str
    slot: int
    size: int
    crosses: bool


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel: its text, the place of each program, the buffers that it loads, and those that it stores."""

    text: str
    places: tuple[Place, ...]
    loads: tuple[str, ...]
    stores: Mapping[str, int]

    def launch(self, blocks: int) -> Launch:
        """Return the launch with this number of blocks."""
        arguments = [Argument(kind="buffer", buffer=f"in_{kind}", dtype=LEAVES[kind][0]) for kind in self.loads]
        types = {store.buffer: store.dtype for store in STORES.values()}
        arguments += [Argument(kind="buffer", buffer=name, dtype=types[name]) for name in self.stores]
        return Launch(file="kernel.ptx", entry="kernel", grid=(blocks, 1, 1), block=(THREADS, 1, 1),
                      args=tuple(arguments))  # fmt: skip

    def slot_bytes(self, buffer: str) -> int:
        """Return the bytes of one slot of a block."""
        return THREADS * next(place.size for place in self.places if place.buffer == buffer)

    def bytes_of(self, buffer: str, blocks: int) -> int:
        """Return the size of a buffer in bytes."""
        if buffer.startswith("in_"):
            kind = buffer.removeprefix("in_")
            return blocks * THREADS * LEAVES[kind][1] * WIDTHS[kind] // 8
        return blocks * self.stores[buffer] * self.slot_bytes(buffer)


def leaf_place(name: str) -> tuple[str, int]:
    """Return the kind and the number of a loaded value, from its name such as `f32.1`."""
    kind, number = name.split(".")
    return kind, int(number)


class _Registers:
    """Registers of one kernel: each program reuses those after the loaded values."""

    def __init__(self) -> None:
        self.next = dict(_FIRST)
        self.most = dict(_FIRST)

    def take(self, width: int) -> str:
        number = self.next[width]
        self.next[width] += 1
        self.most[width] = max(self.most[width], self.next[width])
        return f"{_PREFIXES[width]}{number}"


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


def lines_of(program: Program, known: Mapping[Expression, str], registers: _Registers) -> tuple[list[str], str]:
    """Return the instructions of a program before its store, and the register that holds its result."""
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

    for node in nodes(program.root):
        if node.opcode in (LEAF, CONSTANT):
            continue
        spec = SPECS[node.opcode]
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
    return lines, in_register(program.root)


def kernel_text(programs: Sequence[Program]) -> KernelText:
    """Return one kernel of all programs; a thread loads its values once."""
    registers = _Registers()
    known: dict[Expression, str] = {}
    body: list[str] = []
    leaves = leaves_of(program.root for program in programs)
    loads = tuple(
        dict.fromkeys(kind for kind in LEAVES if any(leaf_place(str(n.operands[0]))[0] == kind for n in leaves))
    )
    buffers = sorted({STORES[program.store].buffer for program in programs})
    for kind in loads:
        size = WIDTHS[kind] // 8 * LEAVES[kind][1]
        body.append(f"ld.param.u64 %d0, [in_{kind}]; mul.wide.s32 %d1, %r3, {size}; add.s64 %d0, %d0, %d1;")
        for node in leaves:
            of, number = leaf_place(str(node.operands[0]))
            if of == kind:
                known[node] = registers.take(node.width)
                offset = WIDTHS[kind] // 8 * number
                body.append(f"ld.global.b{node.width} {known[node]}, [%d0+{offset}];")
    pads = {name: 1 if name.startswith("mixed") else 0 for name in buffers}
    counts = dict(pads)
    sizes: dict[str, int] = {}
    places = []
    for program in programs:
        store = STORES[program.store]
        sizes[store.buffer] = MIXED_BYTES if store.buffer.startswith("mixed") else store.bits // 8
        crosses = any(SPECS[n.opcode].family in ("shared", "shuffle") for n in operations(program.root))
        places.append(Place(store.buffer, counts[store.buffer], sizes[store.buffer], crosses))
        counts[store.buffer] += 1
    addresses = {}
    for name in buffers:
        register = addresses[name] = registers.take(64)
        body.append(
            f"ld.param.u64 {register}, [{name}]; mov.u32 %r0, %tid.x; "
            f"mad.lo.s32 %r0, %r4, {counts[name] * THREADS}, %r0; "
            f"mul.wide.s32 %d1, %r0, {sizes[name]}; add.s64 {register}, {register}, %d1;"
        )
        if pads[name]:
            body.append(f"st.global.b16 [{register}], %h2; st.global.b16 [{register}+2], %h2;")
    first = dict(registers.next)
    for program, place in zip(programs, places, strict=True):
        registers.next = dict(first)
        lines, result = lines_of(program, known, registers)
        body += lines
        address, offset = addresses[place.buffer], place.slot * THREADS * place.size
        text = STORES[program.store].text.replace("&+2", f"{address}+{offset + 2}").replace("&", f"{address}+{offset}")
        body.append(_filled(text.replace("$", "$0"), "", [result]))
    parameters = ", ".join(
        f".param .u64 .ptr .global .align 8 {name}" for name in [*(f"in_{kind}" for kind in loads), *buffers]
    )
    declared = " ".join(
        f".reg .{'pred' if width == 1 else f'b{width}'} {_PREFIXES[width]}<{count + 1}>;"
        for width, count in registers.most.items()
    )
    text = "\n".join(
        [
            ".version 8.7", ".target sm_90a", ".address_size 64",
            f".visible .entry kernel({parameters}) .reqntid {THREADS}",
            "{", declared, ".shared .align 16 .b8 room[512];",
            "mov.u32 %r0, %tid.x; mov.u32 %r4, %ctaid.x;",
            f"mad.lo.s32 %r3, %r4, {THREADS}, %r0;",
            "mov.u32 %r1, room; mov.u32 %r2, room; shl.b32 %r0, %r0, 3; add.u32 %r1, %r1, %r0;",
            "xor.b32 %r0, %r0, 8; add.u32 %r2, %r2, %r0;",
            "mov.b16 %h2, 0;",
            *body, "ret;", "}", "",
        ]
    )  # fmt: skip
    return KernelText(text, tuple(places), loads, MappingProxyType(counts))
