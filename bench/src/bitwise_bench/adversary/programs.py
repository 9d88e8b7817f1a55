"""A program: an expression, the way in which its result is stored, and where the program comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bitwise_bench.adversary.expressions import CONSTANT, LEAF, Expression, nodes


@dataclass(frozen=True, slots=True)
class Program:
    """A straight-line program: its result, the key of its store, and the source that made it."""

    root: Expression
    store: str
    source: str = ""

    def __repr__(self) -> str:
        return f"{self.store} <- {self.root}"


@dataclass(frozen=True, slots=True)
class Store:
    """A way to store a value of `bits` bits: the buffer, its element type, and the instructions.

    In the text, & is the address, $ is the value.  `parts` are the widths in bits of the elements that it stores.
    """

    buffer: str
    dtype: str
    bits: int
    text: str


def _stores() -> dict[str, Store]:
    found: dict[str, Store] = {}
    for dtype, bits in (("fp32", 32), ("u32", 32), ("fp16", 16), ("bf16", 16), ("u16", 16), ("fp64", 64), ("u64", 64)):
        found[dtype] = Store(f"out_{dtype}", dtype, bits, f"st.global.b{bits} [&], $;")
    # Every mixed buffer also receives one 16-bit element, so that all its elements are compared in 16 bits.
    for dtype in ("fp16", "bf16", "u16"):
        buffer = f"mixed_{dtype}"
        found[f"{dtype}x2"] = Store(buffer, dtype, 32, "st.global.b32 [&], $;")
        found[f"{dtype} halves"] = Store(
            buffer, dtype, 32, "mov.b32 {~h0, ~h1}, $; st.global.b16 [&], ~h0; st.global.b16 [&+2], ~h1;"
        )
        found[f"{dtype} vector"] = Store(buffer, dtype, 32, "mov.b32 {~h0, ~h1}, $; st.global.v2.b16 [&], {~h0, ~h1};")
        found[f"{dtype} swapped"] = Store(
            buffer, dtype, 32, "mov.b32 {~h0, ~h1}, $; mov.b32 ~r0, {~h0, ~h1}; st.global.b32 [&], ~r0;"
        )
    return found


STORES: Mapping[str, Store] = MappingProxyType(_stores())
"""The stores by their key."""

MIXED_BYTES = 4
"""The bytes that each thread of a program has in a mixed buffer."""


def written(program: Program) -> str:
    """Return the program as text up to the names of its registers: the operations in order, and the store."""
    numbers: dict[Expression, str] = {}
    lines: list[str] = []
    for node in nodes(program.root):
        if node.opcode in (LEAF, CONSTANT):
            numbers[node] = str(node.operands[0])
            continue
        numbers[node] = f"v{len(lines)}"
        given = ", ".join(numbers[each] if isinstance(each, Expression) else each for each in node.operands)
        lines.append(f"{node.opcode} {given}")
    return "; ".join([*lines, f"{program.store} {numbers[program.root]}"])


def distinct(programs: Sequence[Program]) -> list[Program]:
    """Return the programs whose texts differ, the first of each text."""
    found: dict[str, Program] = {}
    for each in programs:
        found.setdefault(written(each), each)
    return list(found.values())
