"""Sentences on the first divergence, which name both kernels and what each computes."""

from __future__ import annotations

import pytest

from bitwise_core.checker.trees.divergence import divergence_sentence


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (
            "fma.rn.fp32",
            "add.rn.fp32",
            "a rounds product and sum once (fused multiply-add), b rounds the sum separately (add.rn.fp32)",
        ),
        (
            "mul.rn.fp32",
            "fma.rn.fp32",
            "b rounds product and sum once (fused multiply-add), a rounds the product separately (mul.rn.fp32)",
        ),
        (
            "add.rn.fp32",
            "add.rn.ftz.fp32@toy_1",
            "b flushes subnormal numbers to zero in this sum, a does not",
        ),
        (
            "convert.rmi.ftz.fp32.fp32",
            "convert.rmi.fp32.fp32",
            "a flushes subnormal numbers to zero in this conversion, b does not",
        ),
        (
            "matrix fused k16 fp32 fp16 fp16 fp32 toy_1",
            "matrix chained k8 fp32 fp16 fp16 fp32 toy_2",
            "the kernels use different matrix instructions: a uses fused k16 fp32 fp16 fp16 fp32 toy_1, "
            "b uses chained k8 fp32 fp16 fp16 fp32 toy_2",
        ),
        (
            "fma.rn.fp32",
            "matrix chained k1 fp32 fp32 fp32 fp32 toy_2",
            "b sums products in a matrix unit (chained k1 fp32 fp32 fp32 fp32 toy_2), a computes a chain of fused "
            "multiply-adds (fma.rn.fp32)",
        ),
        (
            "div.full.fp32@toy_1",
            "div.rn.fp32",
            "a computes toy_1's approximation of the quotient (div.full.fp32), b rounds the quotient separately "
            "(div.rn.fp32)",
        ),
        (
            "ex2.approx.fp32@toy_1",
            "ldexp.rn.fp32@toy_2",
            "a computes toy_1's approximation of the power of two (ex2.approx.fp32), b computes an operation specific "
            "to toy_2 (ldexp.rn.fp32)",
        ),
        (
            "add.rn.fp32",
            "add.rn.fp32",
            "a and b both compute add.rn.fp32, on different operands or in a different order",
        ),
        (
            "matrix fused k16 fp32 fp16 fp16 fp32 toy_1",
            "matrix fused k16 fp32 fp16 fp16 fp32 toy_1",
            "a and b both compute fused k16 fp32 fp16 fp16 fp32 toy_1, on different operands or in "
            "a different order",
        ),
        (
            "load",
            "add.rn.fp32",
            "a uses a value from memory, b rounds the sum separately (add.rn.fp32)",
        ),
        (
            "gather 32",
            "select",
            "a computes gather 32, b selects one of two values (select)",
        ),
    ],
)  # fmt: skip
def test_the_sentence_explains_the_divergent_nodes(left: str, right: str, expected: str) -> None:
    assert divergence_sentence(left, right, "a", "b") == expected


def test_the_sentence_is_symmetric_in_the_sides() -> None:
    assert divergence_sentence("add.rn.fp32", "add.rn.ftz.fp32@toy_1", "a", "b") == divergence_sentence(
        "add.rn.ftz.fp32@toy_1", "add.rn.fp32", "b", "a"
    )
