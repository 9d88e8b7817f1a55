"""PTX kernels for sm_90 whose sums and products state no rounding, so that the assembler may fuse them.

The checker asks what the assembler did. Two kernels that it calls Equal then leave the same bytes on a GPU, with the
code of the same assembler.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD

_FRAME = Frame(LANGUAGES["ptx"], HEAD, END, states_roundings=False)
_NAMES = ("%r20", "%r21", "%r22", "%r23")
_LITERALS = {
    "f32": ("0f40000000", "0f3F000000", "0f3F800000", "0fBF800000", "0f40400000"),
    "f16x2": ("0x40004000", "0x38003800", "0x3C003C00", "0xBC00BC00", "0x42004200"),
    "bf16x2": ("0x40004000", "0x3F003F00", "0x3F803F80", "0xBF80BF80", "0x40404040"),
}
"""Factors of each type: 2, 1/2, 1, -1 and 3."""


def _operations(dice: random.Random, kind: str, values: Sequence[str], to: str, place: int) -> Slot:
    """Return a slot that computes a register from others, in one of several ways."""
    one, other, third = (dice.choice(values) for _ in range(3))
    literal = dice.choice(_LITERALS[kind])
    loaded = f"mov.b32 %r31, {literal};"
    rounding = dice.choice(("", "", ".rn"))
    between = dice.choice(
        (
            *[""] * 8,
            "neg.{0} %r30, %r30;",
            "shfl.sync.bfly.b32 %r30, %r30, 1, 31, -1;",
            "selp.b32 %r30, %r30, %r31, %p3;",
            "@%p3 mov.b32 %r30, %r31;",
            "st.shared.b32 [%d9], %r30; ld.shared.b32 %r30, [%d9];",
            "max.{0} %r30, %r30, %r31;",
            "mul{1}.{0} %r30, %r30, %r31;",
        )
    ).format(kind, rounding)
    product = f"{loaded} mul.{kind} %r30, {one}, {other};"
    stated = product.replace("mul.", "mul.rn.")
    made = [
        f"{product} {between} add.{kind} {to}, %r30, {third};",
        f"{product} {between} add.{kind} {to}, {third}, %r30;",
        f"{product} {between} add.rn.{kind} {to}, %r30, {third};",
        f"{product} {between} sub.{kind} {to}, %r30, {third};",
        f"{stated} {between} add.{kind} {to}, %r30, {third};",
        f"{stated} {between} add.rn.{kind} {to}, %r30, {third};",
        f"{loaded} fma.rn.{kind} {to}, {one}, {other}, {third};",
        f"{loaded} fma.rn.{kind} {to}, {other}, {one}, {third};",
        f"{product} {between} mov.b32 {to}, %r30;",
        f"{product} mul.{kind} %r32, {other}, {third}; add.{kind} {to}, %r30, %r32;",
        f"{stated} mul.{kind} %r32, {other}, {third}; add.{kind} {to}, %r30, %r32;",
        f"{product} mul.rn.{kind} %r32, {other}, {third}; add.{kind} {to}, %r30, %r32;",
        f"{product} add.{kind} {to}, %r30, {third}; add.{kind} %r24, %r24, %r30;",
    ]
    scaled = f"{loaded} mul{{}}.{kind} %r30, {one}, {other}; mul{{}}.{kind} {to}, %r30, %r31;"
    made += [scaled.format(*each) for each in (("", ""), (".rn", ""), ("", ".rn"), (".rn", ".rn"))]
    if kind == "f32":
        made += [f"div.full.f32 %r30, {one}, {other}; add{each}.f32 {to}, %r30, {third};" for each in ("", ".rn")]
        made += [f"ex2.approx{each}.f32 %r30, {one}; add.f32 {to}, %r30, {third};" for each in ("", ".ftz")]
        sums = f"add.f32 {to}, {to}, %r30;", f"add.rn.f32 {to}, {to}, %r30;"
        made += [
            f"mov.u32 %r33, 0; L{place}: mul.f32 %r30, {one}, {other}; {each} add.u32 %r33, %r33, 1;"
            f"setp.lt.u32 %p4, %r33, 3; @%p4 bra L{place};"
            for each in sums
        ]
    # The audit finds fusions by the lines of the machine code.
    return tuple(each.replace("; ", ";\n") for each in dice.sample(made, 7))


def _shape(dice: random.Random) -> Shape:
    """Sums and products in one basic block, in loops and behind moves, each with or without a stated rounding."""
    kind = dice.choice(("f32", "f32", "f16x2", "bf16x2"))
    begin = (
        "mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13; mov.b32 %r24, %r13;"
        "setp.lt.u32 %p3, %r0, 8;"
    )
    values = ("%r10", "%r11", "%r12", "%r13", *_NAMES)
    steps = (_operations(dice, kind, values, dice.choice(_NAMES), place) for place in range(dice.randint(1, 3)))
    slots: list[Slot] = [(begin,), *steps]
    slots.append(pick(dice, f"add.{kind} %r23, %r23, %r24;", f"add.rn.{kind} %r23, %r23, %r24;", "mov.b32 %r81, 0;"))
    return Shape(slots, 32, {"f32": "f32", "f16x2": "h2", "bf16x2": "b2"}[kind], (1, 0))


FAMILIES: Mapping[str, Family] = MappingProxyType({"sums that may be fused": Family(_FRAME, _shape)})
"""The family by name."""
