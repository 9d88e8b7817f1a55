"""The first divergence of two trees is described in a sentence that names the kernels and what each computes."""

from __future__ import annotations

import pytest

from bitwise_core.checker.divergence import divergence_sentence


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (
            "fma.rn.fp32",
            "add.rn.fp32",
            "a rounds a product and a sum once (a fused multiply-add), b rounds the sum by itself (add.rn.fp32)",
        ),
        (
            "mul.rn.fp32",
            "fma.rn.fp32",
            "b rounds a product and a sum once (a fused multiply-add), a rounds the product by itself (mul.rn.fp32)",
        ),
        (
            "add.rn.fp32",
            "add.rn.ftz.fp32@toy_1",
            "b flushes subnormal numbers to zero in this sum, a keeps them",
        ),
        (
            "convert.rmi.ftz.fp32.fp32",
            "convert.rmi.fp32.fp32",
            "a flushes subnormal numbers to zero in this conversion, b keeps them",
        ),
        (
            "matrix fused k16 fp32 fp16 fp16 fp32 toy_1",
            "matrix chained k8 fp32 fp16 fp16 fp32 toy_2",
            "they multiply on matrix units that round differently: a by steps of fused k16 fp32 fp16 fp16 fp32 toy_1, "
            "b by steps of chained k8 fp32 fp16 fp16 fp32 toy_2",
        ),
        (
            "fma.rn.fp32",
            "matrix chained k1 fp32 fp32 fp32 fp32 toy_2",
            "b adds products up in a matrix unit (chained k1 fp32 fp32 fp32 fp32 toy_2), a takes one fused "
            "multiply-add after another (fma.rn.fp32)",
        ),
        (
            "div.full.fp32@toy_1",
            "div.rn.fp32",
            "a takes toy_1's own approximation of the quotient (div.full.fp32), b rounds the quotient by itself "
            "(div.rn.fp32)",
        ),
        (
            "ex2.approx.fp32@toy_1",
            "ldexp.rn.fp32@toy_2",
            "a takes toy_1's own approximation of the power of two (ex2.approx.fp32), b takes an operation that is "
            "toy_2's own (ldexp.rn.fp32)",
        ),
        (
            "add.rn.fp32",
            "add.rn.fp32",
            "a and b both take add.rn.fp32, of other operands or in another order",
        ),
        (
            "matrix fused k16 fp32 fp16 fp16 fp32 toy_1",
            "matrix fused k16 fp32 fp16 fp16 fp32 toy_1",
            "a and b both take fused k16 fp32 fp16 fp16 fp32 toy_1, of other operands or in "
            "another order",
        ),
        (
            "load",
            "add.rn.fp32",
            "a has a value from memory there, b rounds the sum by itself (add.rn.fp32)",
        ),
        (
            "gather 32",
            "select",
            "a takes gather 32, b chooses between two values (select)",
        ),
    ],
)  # fmt: skip
def test_what_parts_two_trees(left: str, right: str, expected: str) -> None:
    assert divergence_sentence(left, right, "a", "b") == expected


def test_the_sides_may_change_places() -> None:
    assert divergence_sentence("add.rn.fp32", "add.rn.ftz.fp32@toy_1", "a", "b") == divergence_sentence(
        "add.rn.ftz.fp32@toy_1", "add.rn.fp32", "b", "a"
    )
