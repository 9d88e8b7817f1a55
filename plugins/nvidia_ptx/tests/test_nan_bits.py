"""Values that are equal in a buffer of a type have equal bytes there, NaNs of that type counted as one value.

A chain applies a few operations of several formats to one 16-bit pattern.  Its canonical form is compared with that of
every other chain, for every type of the output buffer; chains of equal form are executed on all 65,536 patterns, with
the canonical NaNs that the hardware makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, Launch
from bitwise_core.execution.simulation import simulate
from ptx_programs import ARCH, HEAD

Patterns = npt.NDArray[np.uint32]
COUNT = 1 << 16
TYPES = (None, "i16", "fp16", "bf16", "fp32")
NANS = {"fp16": (16, 0x7C00), "bf16": (16, 0x7F80), "fp32": (32, 0x7F800000)}
"""The width and the infinity of each floating-point type."""

HALF = {
    "nothing": "mov.b16 O, I;",
    "fp16 round trip": "cvt.f32.f16 f1, I; cvt.rn.f16.f32 O, f1;",
    "bf16 round trip": "cvt.f32.bf16 f1, I; cvt.rn.bf16.f32 O, f1;",
    "fp16 to fp32, negated, to fp16": "cvt.f32.f16 f1, I; neg.f32 f1, f1; cvt.rn.f16.f32 O, f1;",
    "neg.f16": "neg.f16 O, I;",
    "neg.bf16": "neg.bf16 O, I;",
    "sign flipped": "xor.b16 O, I, 0x8000;",
    "abs.f16": "abs.f16 O, I;",
    "abs.bf16": "abs.bf16 O, I;",
    "sign cleared": "and.b16 O, I, 0x7fff;",
    "complement": "not.b16 O, I;",
    "max.f16 with itself": "max.f16 O, I, I;",
    "min.bf16 with itself": "min.bf16 O, I, I;",
    "max.f16 with its copy": "mov.b16 h1, I; max.f16 O, I, h1;",
    "max.NaN.bf16 with -infinity": "mov.b16 h1, 0xff80; max.NaN.bf16 O, I, h1;",
    "max.f16 with 1": "mov.b16 h1, 0x3c00; max.f16 O, I, h1;",
    "fp16 times 1": "mov.b16 h1, 0x3c00; mul.rn.f16 O, I, h1;",
    "bf16 times -1": "mov.b16 h1, 0xbf80; mul.rn.bf16 O, I, h1;",
    "fp16 plus 0": "mov.b16 h1, 0; add.rn.f16 O, I, h1;",
    "bf16 plus 0": "mov.b16 h1, 0; add.rn.bf16 O, I, h1;",
    "fp16 plus -0": "mov.b16 h1, 0x8000; add.rn.f16 O, I, h1;",
    "bf16 plus -0": "mov.b16 h1, 0x8000; add.rn.bf16 O, I, h1;",
    "fp16 doubled": "add.rn.f16 O, I, I;",
    "bf16 doubled": "add.rn.bf16 O, I, I;",
    "high half of neg.f32": "mov.b32 f1, {h0, I}; neg.f32 f1, f1; mov.b32 {h1, O}, f1;",
    "low half of max.f32": "mov.b32 f1, {h0, I}; max.f32 f1, f1, 0fFF800000; mov.b32 {O, h1}, f1;",
    "high half of max.f32": "mov.b32 f1, {h0, I}; max.f32 f1, f1, 0fFF800000; mov.b32 {h1, O}, f1;",
    "high half of |fp32|": "mov.b32 f1, {h0, I}; abs.f32 f1, f1; mov.b32 {h1, O}, f1;",
    "low half of fp32 times 1": "mov.b32 f1, {I, h2}; mul.rn.f32 f1, f1, 0f3F800000; mov.b32 {O, h1}, f1;",
    "low half of fp32": "mov.b32 f1, {I, h2}; mov.b32 {O, h1}, f1;",
    "neg.f16x2": "mov.b32 r1, {I, h2}; neg.f16x2 r1, r1; mov.b32 {O, h1}, r1;",
    "neg.bf16x2": "mov.b32 r1, {h2, I}; neg.bf16x2 r1, r1; mov.b32 {h1, O}, r1;",
    "max.bf16x2": "mov.b32 r1, {h2, I}; max.bf16x2 r1, r1, r1; mov.b32 {h1, O}, r1;",
    "sign of a pair flipped": "mov.b32 r1, {h2, I}; xor.b32 r1, r1, 0x80000000; mov.b32 {h1, O}, r1;",
    "bytes swapped twice": "mov.b32 r1, {I, h2};" + 2 * " prmt.b32 r1, r1, 0, 0x3201;" + " mov.b32 {O, h1}, r1;",
    "shifted up and down": "cvt.u32.u16 r1, I; shl.b32 r1, r1, 8; shr.u32 r1, r1, 8; cvt.u16.u32 O, r1;",
    "through an integer": "cvt.u32.u16 r1, I; add.u32 r1, r1, 3; sub.u32 r1, r1, 3; cvt.u16.u32 O, r1;",
    "chosen by its sign": "setp.lt.s16 p1, I, 0; mov.b16 h1, 0x8000; xor.b16 h1, I, h1; selp.b16 O, h1, I, p1;",
    "chosen by fp16's order": "mov.b16 h1, 0; setp.lt.f16 p1, I, h1; neg.f16 h1, I; selp.b16 O, h1, I, p1;",
    "through shared memory": "st.shared.b16 [R], I; ld.shared.b16 O, [R];",
    "the first byte through shared memory":
        "st.shared.b16 [R], I; ld.shared.u8 h1, [R]; and.b16 h3, I, 0xff00; or.b16 O, h1, h3;",
}  # fmt: skip
"""Operations from the pattern I to the pattern O; h0 holds 0 and h2 another loaded pattern."""

STORES = {
    "16 bits": "st.global.b16 [%d9], I;",
    "two halves": "mov.b32 r1, {I, h2}; st.global.b32 [%d9], r1;",
    "a widened bf16": "mov.b32 r1, {h0, I}; st.global.b32 [%d9], r1;",
    "an fp32": "mov.b32 f1, {h0, I}; add.rn.f32 f1, f1, 0f80000000; st.global.f32 [%d9], f1;",
    "an fp32 from fp16": "cvt.f32.f16 f1, I; st.global.f32 [%d9], f1;",
}
Chain = tuple[str, ...]
"""The names of some operations and of a store."""


def kernel(chains: Sequence[Chain]) -> str:
    """Return a kernel that stores the result of chain c on pattern i in the slot of 4 bytes i + c * COUNT."""
    lines = []
    for number, (*names, store) in enumerate(chains):
        lines.append(f"{{ .reg .b16 v<{len(names) + 1}>, h<9>; .reg .b32 r<3>; .reg .f32 f<3>; .reg .pred p<3>;")
        lines.append("mov.b16 h0, 0; mov.b16 h2, %h2; mov.b16 v0, %h1;")
        codes = [*(HALF[name] for name in names), STORES[store]]
        for place, code in enumerate(codes):
            words = code.replace("[R]", "[%r2]").replace("0x3", "0x~3").split(" ")
            given = {"I": f"v{place}", "O": f"v{place + 1}"}
            lines.append(" ".join(_renamed(word, given) for word in words).replace("0x~3", "0x3"))
        lines.append(f"}} add.s64 %d9, %d9, {4 * COUNT};" if number + 1 < len(chains) else "}")
    body = "\n".join(lines)
    return f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u64 in, .param .u64 other)
{{ .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<20>; .shared .align 16 .b8 room[8192];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [other];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 1024, %r0;
mov.u32 %r3, room; mad.lo.u32 %r2, %r0, 8, %r3;
mul.wide.u32 %d3, %r1, 2; add.s64 %d4, %d1, %d3; ld.global.b16 %h1, [%d4];
add.s64 %d4, %d2, %d3; ld.global.b16 %h2, [%d4];
mul.wide.u32 %d9, %r1, 4; add.s64 %d9, %d0, %d9;
{body}
ret;
}}
"""


def _renamed(word: str, given: dict[str, str]) -> str:
    stripped = word.strip("{},;[]")
    return word.replace(stripped, given[stripped]) if stripped in given else word


def prepared(chains: Sequence[Chain], dtype: str | None, blocks: int, threads: int) -> PreparedLaunch:
    arguments = [("out", dtype), ("in", "i16"), ("other", "i16")]
    launch = Launch(
        file="k.ptx",
        entry="k",
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        args=tuple(Argument(kind="buffer", buffer=name, dtype=kind) for name, kind in arguments),
    )
    return prepare_launch(ARCH.parse(kernel(chains), "k.ptx"), ARCH, launch)


def forms(chains: Sequence[Chain], dtype: str | None) -> list[tuple[tuple[int, int, int, int], ...]]:
    """Return the canonical form of each chain's slot: offsets, widths and hashes of the elements stored there."""
    memory = run_blocks(prepared(chains, dtype, 1, 1), TermDomain(), {"out": 1, "in": 2, "other": 3})
    found = checked_outputs(*memory)[1]
    slots: list[list[tuple[int, int, int, int]]] = [[] for _ in chains]
    offsets = found.address.astype(np.int64) - (1 << POINTER_SHIFT)
    for offset, size, low, high in zip(offsets.tolist(), found.size, *found.words, strict=True):
        slots[offset // (4 * COUNT)].append((offset % 4, int(size), int(low), int(high)))
    return [tuple(sorted(each)) for each in slots]


OTHER = np.random.default_rng(5).permutation(COUNT).astype(np.uint16)


@cache
def bits(chain: Chain) -> Patterns:
    """Return the slots of a chain on all patterns; bytes that are not stored are 0."""
    contents = {"in": np.arange(COUNT, dtype=np.uint16).view(np.uint8), "other": OTHER.view(np.uint8)}
    contents["out"] = np.zeros(4 * COUNT, dtype=np.uint8)
    return simulate(prepared([chain], None, 64, 1024), contents).after["out"].view(np.uint32)


def one_nan(slots: Patterns, dtype: str | None) -> Patterns:
    """Return slots with one pattern for all NaNs of a type."""
    if dtype not in NANS:
        return slots
    width, infinity = NANS[dtype]
    elements = slots.view(f"uint{width}").astype(np.uint64)
    largest = np.uint64((1 << (width - 1)) - 1)
    found = np.where((elements & largest) > infinity, largest, elements)
    return found.astype(f"uint{width}").view(np.uint32)


def clashes(chains: Sequence[Chain]) -> tuple[list[tuple[str | None, Chain, Chain]], int]:
    """Return the chains of equal form and unequal bytes, with the type of the buffer, and the number of comparisons."""
    found, compared = [], 0
    for dtype in TYPES:
        groups: dict[object, list[Chain]] = {}
        for chain, form in zip(chains, forms(chains, dtype), strict=True):
            groups.setdefault(form, []).append(chain)
        for first, *others in groups.values():
            whole = dtype != "fp32" or not first[-1].startswith("16")
            expected = one_nan(bits(first), dtype if whole else None) if others else bits(first)
            for other in others:
                compared += 1
                if (one_nan(bits(other), dtype if whole else None) != expected).any():
                    found.append((dtype, first, other))
    return found, compared


def drawn(count: int, seed: int) -> list[Chain]:
    """Return chains of one to three operations and a store."""
    generator = np.random.default_rng(seed)
    names, stores = list(HALF), list(STORES)
    chains = {
        (*(names[place] for place in generator.integers(0, len(names), generator.integers(1, 4))), stores[store])
        for store in generator.integers(0, len(stores), count)
    }
    return sorted(chains)


def test_one_operation_and_every_store() -> None:
    found, compared = clashes([*product(HALF, STORES)])
    assert found == []
    assert compared > 100


SIGNS = (
    "nothing", "fp16 round trip", "bf16 round trip", "neg.f16", "neg.bf16", "sign flipped", "abs.f16", "sign cleared",
    "bf16 plus -0",
)  # fmt: skip


def test_two_operations() -> None:
    found, compared = clashes([*product(SIGNS, SIGNS, ["16 bits"])])
    assert found == []
    assert compared > 50


@pytest.mark.parametrize("seed", range(2))
def test_chains(seed: int) -> None:
    found, compared = clashes(drawn(150, seed))
    assert found == []
    assert compared > 20


EQUAL_IN = {
    ("nothing", "fp16 round trip"): {"fp16"},
    ("nothing", "bf16 round trip"): {"bf16"},
    ("neg.f16", "neg.bf16"): set(),
    ("neg.f16", "sign flipped"): {"fp16"},
    ("neg.bf16", "sign flipped"): {"bf16"},
    ("abs.f16", "abs.bf16"): set(),
    ("abs.bf16", "sign cleared"): {"bf16"},
    ("nothing", "max.f16 with itself"): {"fp16"},
    ("nothing", "max.f16 with its copy"): set(),
    ("fp16 round trip", "max.f16 with itself"): {"fp16"},
    ("nothing", "bytes swapped twice"): {None, "i16", "fp16", "bf16", "fp32"},
    ("nothing", "low half of fp32 times 1"): set(),
    ("nothing", "low half of fp32"): {None, "i16", "fp16", "bf16", "fp32"},
}  # fmt: skip


@pytest.mark.parametrize(("names", "types"), EQUAL_IN.items(), ids=[" and ".join(each) for each in EQUAL_IN])
def test_buffers_in_which_two_operations_are_equal(names: tuple[str, str], types: set[str | None]) -> None:
    chains = [(name, "16 bits") for name in names]
    equal = set()
    for dtype in TYPES:
        first, second = forms(chains, dtype)
        if first == second:
            equal.add(dtype)
    assert equal == types
