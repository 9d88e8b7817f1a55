# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels whose lanes load and store matrices, and multiply them with accumulators of zeros and of 16 bits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Shape, Slot, pick
from bitwise_bench.adversary.kernel_families.block_kernels import FRAME

_BEGIN = (
    "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0; mov.b32 %r80, 0; mov.b32 %r14, %r10; mov.b32 %r15, %r11; mov.b32 %r16, %r12; mov.b32 %r17, %r13;"
    "and.b32 %r60, %r0, 15; and.b32 %r61, %r0, 32; add.u32 %r62, %r60, %r61; mul.wide.u32 %d20, %r62, 16; add.s64 %d20, %d20, %d8;"
    "st.shared.v4.b32 [%d9], {%r10, %r11, %r12, %r13}; st.shared.v4.b32 [%d9+2048], {%r13, %r12, %r11, %r10}; bar.sync 0;"
)
"""%d20: a row of the first two matrices of the warp."""
_WORDS = ("%r14", "%r15", "%r16", "%r17")


def _loaded(dice: random.Random) -> Slot:
    """Return a slot that loads matrices, or the same words one by one."""
    at = dice.choice((0, 2048))
    place = dice.choice(("%d9", "%d20"))
    order = dice.sample(_WORDS, 4)
    four, two = ", ".join(order), ", ".join(order[:2])
    low = "shr.u32 %r63, %r0, 2; and.b32 %r63, %r63, 7; add.u32 %r63, %r63, %r61; and.b32 %r64, %r0, 3; mul.wide.u32 %d22, %r63, 16; mul.wide.u32 %d23, %r64, 4; add.s64 %d22, %d22, %d23; add.s64 %d22, %d22, %d8;"
    return tuple(
        dice.sample(
            (
                f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{four}}}, [{place}+{at}];",
                f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{four}}}, [{place}+{at}];",
                f"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{{two}}}, [{place}+{at}];",
                f"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{{two}}}, [{place}+{at}];",
                f"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{{order[0]}}}, [{place}+{at}]; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{{order[1]}}}, [{place}+{at + 128}];",
                f"{low} ld.shared.b32 {order[0]}, [%d22+{at}]; ld.shared.b32 {order[1]}, [%d22+{at + 128}];",
                f"{low} ld.shared.b32 {order[0]}, [%d22+{at}]; ld.shared.b32 {order[1]}, [%d22+{at + 256}];",
            ),
            4,
        )
    )


def _stored(dice: random.Random) -> Slot:
    """Return a slot that stores matrices, or the same words one by one."""
    order = dice.sample((*_WORDS, "%r20", "%r21"), 4)
    low = "shr.u32 %r63, %r0, 2; and.b32 %r63, %r63, 7; add.u32 %r63, %r63, %r61; and.b32 %r64, %r0, 3; mul.wide.u32 %d22, %r63, 16; mul.wide.u32 %d23, %r64, 4; add.s64 %d22, %d22, %d23; add.s64 %d22, %d22, %d8;"
    four, two = ", ".join(order), ", ".join(order[:2])
    texts = (
        f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%d9], {{{four}}};",
        f"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%d9], {{{four}}};",
        f"stmatrix.sync.aligned.m8n8.x2.shared.b16 [%d20], {{{two}}};",
        f"stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%d20], {{{two}}};",
        f"{low} st.shared.b32 [%d22], {order[0]}; st.shared.b32 [%d22+128], {order[1]};",
        f"{low}" + "".join(f"st.shared.b32 [%d22+{128 * each}], {name};" for each, name in enumerate(order)),
        f"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%d20], {{{order[0]}}};",
    )
    return tuple(f"bar.sync 0; {each} bar.sync 0;" for each in dice.sample(texts, 4))


_WIDE, _NARROW = "{%r20, %r21, %r22, %r23}", "{%r20, %r21}"
_UNITS = (
    ("m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4), ("m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2), ("m16n8k8.row.col.f16.f16.f16.f16", 2, 1, 2),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4), ("m16n8k8.row.col.f32.f16.f16.f32", 2, 1, 4), ("m16n8k8.row.col.f32.bf16.bf16.f32", 2, 1, 4),
    ("m16n8k32.row.col.s32.s8.s8.s32", 4, 2, 4), ("m16n8k32.row.col.s32.u8.s8.s32", 4, 2, 4), ("m16n8k16.row.col.s32.u8.u8.s32.satfinite", 2, 1, 4),
    ("m16n8k32.row.col.f32.e5m2.e4m3.f32", 4, 2, 4), ("m16n8k4.row.col.f32.tf32.tf32.f32", 2, 1, 4),
)  # fmt: skip
"""The matrix instructions, and the numbers of registers of A, B and the accumulator."""


def _step(dice: random.Random, unit: tuple[str, int, int, int]) -> Slot:
    """Return a slot of one step, whose operands or accumulators may be zeros."""
    name, of_a, of_b, of_c = unit
    if name.endswith(".satfinite"):
        name = "m16n8k16.row.col.satfinite.s32.u8.u8.s32"
    own = ["%r20", "%r21", "%r22", "%r23"][:of_c]
    a, b = [dice.choice(_WORDS) for _ in range(of_a)], [dice.choice(_WORDS) for _ in range(of_b)]
    zeros = ["%r80"] * 4

    def text(one: list[str], other: list[str], added: list[str]) -> str:
        return f"mma.sync.aligned.{name} {{{', '.join(own)}}}, {{{', '.join(one)}}}, {{{', '.join(other)}}}, {{{', '.join(added)}}};"

    texts = (
        text(a, b, own), text(a, b, zeros[:of_c]), text(zeros[:of_a], b, own), text(a, zeros[:of_b], own), text(zeros[:of_a], zeros[:of_b], zeros[:of_c]),
        text(a[::-1], b, own), text(a, b[::-1], own), text(a, b, own[::-1]), "".join(f"mov.b32 {each}, 0;" for each in own) + text(a, b, own),
    )  # fmt: skip
    return tuple(dice.sample(texts, 5))


def _fragments(dice: random.Random) -> Shape:
    """Matrices that lanes load, store, transpose and multiply."""
    unit = dice.choice(_UNITS)
    zero = dice.choice(("0", "0x80000000", "%r10"))
    slots: list[Slot] = [(_BEGIN,), ("mov.b32 %r81, 0;", f"mov.b32 %r20, {zero}; mov.b32 %r21, {zero};")]
    for _ in range(dice.randint(1, 3)):
        kind = dice.random()
        if kind < 0.5:
            slots += [_loaded(dice), _step(dice, unit)]
        elif kind < 0.8:
            slots += [_stored(dice), _loaded(dice)]
        else:
            slots += [
                _step(dice, unit),
                pick(dice, "add.rn.f32 %r20, %r20, 0f80000000;", "add.rn.f32 %r20, %r20, 0f00000000;", "mov.b32 %r81, 0;", "mov.b32 %r14, %r20;", "neg.f16x2 %r14, %r14;"),
            ]  # fmt: skip
    slots += [
        ("mov.b32 %r81, 0;", "mov.b32 %r22, %r14; mov.b32 %r23, %r15;", "mov.b32 %r22, %r16; mov.b32 %r23, %r17;")
    ]
    kind_of = {"f16": "h2", "bf16": "b2"}.get(unit[0].split(".")[4], "f32")
    return Shape(slots, dice.choice((32, 64)), kind_of, (2, 1))


FAMILIES: Mapping[str, Family] = MappingProxyType({"matrices of lanes": Family(FRAME, _fragments)})
"""The family by name."""
