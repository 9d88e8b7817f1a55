"""Descriptors that are evaluated as black boxes and reconstructed from their outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import (
    Cut,
    Fold,
    GEMMDesc,
    Group,
    Instruction,
    ReductionDesc,
    contiguous_slice_gemv,
    index_bits,
    lane_tree_gemv,
    per_mma,
    single_pass,
    split_k,
    split_k_per_mma,
    three_level_chain,
    workspace_gemv,
)
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.hardware import Hardware, Units
from bitwise_core.numerics.mma import FlooredSum, FusedSum, MmaSpec
from bitwise_core.probing.operand_arrays import TYPES, PatternArrays
from bitwise_core.probing.reconstruction import Reconstruction, reconstruct_product, reconstruct_sum, same_computation

NAMES = {ours: theirs for theirs, ours in TYPES.items()}


def unit(family: str, kind: str, k: int, rule: Any) -> MmaSpec:
    return MmaSpec("toy_1", family, kind, kind, "fp32", "fp32", k, rule, "published only", "https://example.org/rows")


HALF = FusedSum(16, 25, 23, "rz")
ROWS = (
    unit("wide", "fp16", 16, HALF), unit("mma", "fp16", 16, HALF), unit("mma", "fp16", 8, FusedSum(8, 25, 23, "rz")),
    unit("wide", "bf16", 16, HALF), unit("floor", "fp16", 8, FlooredSum(8, 24, 31, 24)),
    unit("wide", "e4m3", 32, FusedSum(32, 13, 13, "rz")),
    unit("pairs", "e4m3", 32, FusedSum(16, 25, 23, "rz", "alternate pairs", accumulator_last=True, widened="fp16")),
)  # fmt: skip
UNITS: Units = {row.name: row for row in ROWS}
HARDWARE = Hardware(UNITS)


def instruction(family: str, k: int) -> Instruction:
    return Instruction(architecture="toy_1", family=family, k=k)


WIDE, MMA, MMA8, FLOOR, EIGHT, PAIRS = (
    instruction(family, k)
    for family, k in (("wide", 16), ("mma", 16), ("mma", 8), ("floor", 8), ("wide", 32), ("pairs", 32))
)


def reconstructed(desc: GEMMDesc, **options: Any) -> Reconstruction:
    m, n = (24, 24) if desc.left_dtype in ("e4m3", "e5m2") else (128, 1)
    return reconstruct_product(
        lambda a, b: evaluate(desc, a, b, hardware=HARDWARE), m, n, desc.k, NAMES[desc.left_dtype],
        arrays=PatternArrays(NAMES[desc.output_dtype]), units=UNITS, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "desc",
    [
        single_pass(150, "fp16", WIDE),
        single_pass(97, "fp16", WIDE, use_fast_accum=False),
        single_pass(96, "fp16", FLOOR, output_dtype="fp32"),
        split_k(300, "fp16", MMA, slices=3, tile=64),
        split_k(300, "fp16", MMA, slices=3, tile=32, k_dropped=12, partial_dtype="fp16"),
        per_mma(150, "fp16", MMA, k_loop_step=64),
        per_mma(150, "fp16", MMA8, k_loop_step=32),
        per_mma(49, "fp16", MMA, k_loop_step=32),
        split_k_per_mma(250, "fp16", MMA, slices=3, tile=8, k_loop_step=64, partial_dtype="fp16", merge_dtype="fp16"),
        split_k_per_mma(250, "bf16", WIDE, slices=3, tile=8, k_loop_step=64, partial_dtype="bf16"),
        split_k(300, "bf16", WIDE, slices=5, tile=16, remainder="long-last", merge_dtype="bf16"),
        split_k(310, "fp16", WIDE, slices=4, tile=16, remainder="spread"),
        three_level_chain(200, "fp16", chunks=2, span=32),
        three_level_chain(200, "bf16", chunks=3, output_dtype="fp32"),
        lane_tree_gemv(200, "fp16", lanes=16, tile=2),
        lane_tree_gemv(201, "fp16", lanes=4, tile=1, chunk_tiles=16, count_down=False),
        contiguous_slice_gemv(200, "fp16", lanes=4, chunk=16),
        workspace_gemv(200, "fp16", slices=3, lanes=8),
        GEMMDesc(k=150, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="mul_add",
                 k_cuts=(Cut(span=40, merge="chain-down"),)),
        GEMMDesc(k=250, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(
            Cut(layout="strided", count=11, tile=8, groups=(Group(count=4), Group(count=2))),
            Cut(layout="strided", count=8, merge="halves"))),
        *(
            GEMMDesc(k=60, left_dtype="bf16", right_dtype="bf16", output_dtype=output, path=path, k_cuts=(
                Cut(count=1, start="zero"), Cut(layout="strided", count=32, tile=2, merge="halves")))
            for output in ("bf16", "fp32") for path in ("fma", "mul_add")
        ),
        GEMMDesc(k=100, left_dtype="bf16", right_dtype="bf16", output_dtype="bf16", path="fma", k_cuts=(
            Cut(count=2, start="zero"),)),
        single_pass(300, "e4m3", EIGHT, block=128, output_dtype="bf16"),
        single_pass(200, "e4m3", PAIRS, output_dtype="fp32"),
        split_k(300, "e4m3", EIGHT, slices=2, tile=128, block=64, output_dtype="bf16"),
    ],
)  # fmt: skip
def test_descriptors_are_reconstructed(desc: GEMMDesc) -> None:
    found = reconstructed(desc)
    assert found.unresolved == ()
    assert isinstance(found.desc, GEMMDesc)
    assert same_computation(found.desc, desc, UNITS)


def test_equivalent_instructions_are_listed() -> None:
    found = reconstructed(single_pass(50, "fp16", MMA))
    assert isinstance(found.desc, GEMMDesc)
    assert found.desc.instruction == WIDE
    assert found.equivalent_instructions == ("mma_k16_fp32_fp16_fp16_fp32_toy_1",)
    assert same_computation(found.desc, single_pass(50, "fp16", MMA), UNITS)
    assert not same_computation(found.desc, single_pass(50, "fp16", MMA8), UNITS)


def test_candidates_that_the_draws_do_not_distinguish_survive() -> None:
    desc = split_k(40, "fp16", WIDE, slices=2, tile=16, merge_dtype="fp16", output_dtype="fp16")
    found = reconstructed(desc, draws=0)
    assert found.desc is None
    assert found.unresolved[0].endswith("descriptors of this order return its bytes on every draw")
    assert any(isinstance(each, GEMMDesc) and same_computation(each, desc, UNITS) for each in found.survivors)


def test_an_order_without_a_descriptor_is_unresolved() -> None:
    def function(a: Any, b: Any) -> Any:
        parts = [
            evaluate(
                single_pass(part.shape[1], "fp16", WIDE, output_dtype="fp32"), part, other, hardware=HARDWARE
            ).view(np.float32)
            for part, other in ((a[:, :20], b[:20]), (a[:, 20:30], b[20:30]), (a[:, 30:], b[30:]))
        ]
        return (parts[0] + parts[2] + parts[1]).view(np.uint32)  # fmt: skip

    found = reconstruct_product(function, 64, 1, 61, "float16", arrays=PatternArrays("float32"), units=UNITS)
    assert (found.desc, found.unresolved) == (
        None,
        ("no descriptor has this order: it is not a nest of cuts of the k axis",),
    )

    def doubled(a: Any, b: Any) -> Any:
        desc = single_pass(a.shape[1], "fp16", WIDE, output_dtype="fp32")
        exact = evaluate(desc, a, b, hardware=HARDWARE).view(np.float32)
        return np.where(abs(exact) < 2.0**-5, exact, exact * np.float32(1 + 2**-20)).view(np.uint32)

    found = reconstruct_product(doubled, 64, 1, 61, "float16", arrays=PatternArrays("float32"), units=UNITS)
    assert (found.desc, found.survivors) == (None, ())
    assert found.unresolved == ("none of the 1 descriptors of this order returns its bytes",)


def test_dropped_values_in_the_middle_of_k_are_unresolved() -> None:
    def function(a: Any, b: Any) -> Any:
        kept = np.r_[0:20, 24:60]
        desc = single_pass(56, "fp16", WIDE)
        return evaluate(desc, np.ascontiguousarray(a[:, kept]), np.ascontiguousarray(b[kept]), hardware=HARDWARE)

    found = reconstruct_product(function, 64, 1, 60, "float16", arrays=PatternArrays("float16"), units=UNITS)
    assert found.unresolved == ("4 positions reach no output and are not the last ones of k",)


def test_products_with_separate_rounding_are_sums_of_two_accumulators() -> None:
    def made(path: str, *cuts: Cut) -> GEMMDesc:
        return GEMMDesc(k=8, left_dtype="bf16", right_dtype="bf16", output_dtype="fp32", path=path, k_cuts=cuts)

    pairs, zero = Cut(layout="strided", count=4, tile=2, merge="halves"), Cut(count=1, start="zero")
    apart = made("fma", zero, pairs, Cut(layout="strided", count=2))
    twice = made("mul_add", pairs)
    fused = made("fma", zero, pairs)
    assert same_computation(apart, twice, UNITS)
    assert not same_computation(apart, made("fma", pairs, Cut(layout="strided", count=2)), UNITS)
    assert not same_computation(apart, fused, UNITS)
    # Operands of both signs whose products are fp32's smallest subnormal, halves of it, or zeros: 0x1A00 is 2^-75.
    random = np.random.default_rng(1)
    a = random.choice(np.array([0, 0x8000, 0x1A00, 0x9A00, 0x1A80, 0x9A80, 0x0001, 0x8001], np.uint16), (400, 8))
    b = random.choice(np.array([0x1A00, 0x1A80, 0x0001, 0x8000, 0], np.uint16), (8, 20))
    first, second, third = (evaluate(each, a, b) for each in (apart, twice, fused))
    assert (first == second).all()
    assert (first != third).any()


def test_computations_are_distinguished_by_their_roundings() -> None:
    base = split_k(300, "fp16", WIDE, slices=3, tile=64)
    assert same_computation(base, split_k(300, "fp16", MMA, slices=3, tile=32, remainder="spread").model_copy(
        update={"k_cuts": (Cut(span=128),)}), UNITS)  # fmt: skip
    for other in (
        split_k(300, "fp16", WIDE, slices=3, tile=64, partial_dtype="fp16"),
        split_k(300, "fp16", WIDE, slices=3, tile=64, output_dtype="fp32"),
        split_k(300, "fp16", WIDE, slices=3, tile=64, k_dropped=1),
        split_k(300, "fp16", MMA8, slices=3, tile=64), single_pass(300, "fp16", WIDE),
    ):  # fmt: skip
        assert not same_computation(base, other, UNITS)
    chain = GEMMDesc(k=9, left_dtype="bf16", right_dtype="bf16", output_dtype="fp32", path="fma", k_cuts=(Cut(span=4),))
    # An fma may underflow to -0, which a chain from +0 returns as +0; no product of fp16 operands underflows.
    started = chain.model_copy(update={"k_cuts": (Cut(span=4, start="zero"),)})
    assert not same_computation(chain, started, UNITS)
    # The place of an added +0 among additions does not matter; before a rounding to fewer digits it does.
    inner = Cut(layout="strided", count=2, merge="halves")
    for cuts, others, equal in (
        ((Cut(span=4, start="zero"), inner), (Cut(span=4), inner, Cut(count=1, start="zero")), True),
        ((Cut(span=4, start="zero"), inner), (Cut(count=1, start="zero"), Cut(span=4), inner), True),
        ((Cut(span=4), inner), (Cut(count=1, start="zero"), Cut(span=4), inner), False),
        (
            (Cut(span=4, partial_dtype="bf16"), Cut(count=1, start="zero")),
            (Cut(span=4, partial_dtype="bf16", start="zero"),), False,
        ),
    ):  # fmt: skip
        found = [chain.model_copy(update={"k": 8, "k_cuts": each}) for each in (cuts, others)]
        assert same_computation(found[0], found[1], UNITS) is equal
        outputs = [
            [evaluate(each, np.full((1, 8), 0x8001, dtype=np.uint16), np.full((8, 1), tiny, dtype=np.uint16)).item()
             for tiny in (0x0001, 0x3C00)] for each in found
        ]  # fmt: skip
        assert (outputs[0] == outputs[1]) is equal
    half = {"left_dtype": "fp16", "right_dtype": "fp16"}
    assert same_computation(chain.model_copy(update=half), started.model_copy(update=half), UNITS)
    assert same_computation(chain.model_copy(update=half), chain.model_copy(update={**half, "path": "mul_add"}), UNITS)


SUMS: dict[str, ReductionDesc] = {
    "a chain": ReductionDesc(length=70, dtype="fp32", folds=(Fold(stride=1, count=70),)),
    "from zero": ReductionDesc(length=70, dtype="fp32", folds=(Fold(stride=1, count=70, start="zero"),)),
    "last first": ReductionDesc(length=70, dtype="fp32", folds=(Fold(stride=1, count=70, order="chain-down"),)),
    "neighbours": index_bits(64),
    "halves": index_bits(64, (5, 4, 3, 2, 1, 0), dtype="fp16", output_dtype="fp16"),
    "a ragged end": index_bits(50, (0, 3, 1, 5, 2, 4), dtype="bf16"),
    "chunks first": index_bits(200, chunk=32),
    "chunks last": index_bits(200, (2, 1, 0, 4, 3), chunk=32, chunks_first=False),
    "threads of four": ReductionDesc(length=256, dtype="fp32", folds=(
        Fold(stride=128, count=2, start="zero"), Fold(stride=1, count=4),
        *(Fold(stride=4 << bit) for bit in (4, 3, 2, 1, 0)))),
    "digits within": ReductionDesc(length=96, dtype="fp32", folds=(
        Fold(stride=32, count=3, within=({"stride": 1, "count": 4},)), Fold(stride=4, count=8, order="chain-down"))),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_reconstructed(name: str) -> None:
    desc = SUMS[name]
    found = reconstruct_sum(
        lambda x: evaluate(desc, x), 64, desc.length, NAMES[desc.dtype], arrays=PatternArrays(NAMES[desc.output_dtype])
    )
    assert found.unresolved == ()
    assert isinstance(found.desc, ReductionDesc)
    assert bits_of(found.desc) == bits_of(desc)


def bits_of(desc: ReductionDesc) -> bytes:
    """Return its sums of other numbers than the draws of the reconstruction, including zeros of both signs."""
    random = np.random.default_rng(5)
    values = random.standard_normal((200, desc.length)) * 2.0 ** random.integers(-9, 9, (200, desc.length))
    values[-1] = -0.0
    kind = {"fp32": np.float32, "fp16": np.float16}.get(desc.dtype)
    if kind is None:
        values, kind = values.astype(np.float32).view(np.uint32) >> 16, np.uint16
    return evaluate(desc, values.astype(kind)).tobytes()


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: x[:, :30].sum(axis=1), "no descriptor omits values: the sum is over some of the positions only"),
        (lambda x: (x[:, 0::3].cumsum(axis=1)[:, -1] + x[:, 1::3].cumsum(axis=1)[:, -1])
         + x[:, 2::3].cumsum(axis=1)[:, -1] * np.float32(1 + 2**-20),
         "a single small value does not return the same count in every output"),
        (lambda x: x[:, :7].cumsum(axis=1)[:, -1] + x[:, 7:].cumsum(axis=1)[:, -1],
         "no descriptor has this order: it is not a sequence of folds over index digits"),
    ],
)  # fmt: skip
def test_sums_without_a_descriptor_are_unresolved(function: Callable[[Any], Any], sentence: str) -> None:
    found = reconstruct_sum(function, 16, 40)
    assert (found.desc, found.unresolved) == (None, (sentence,))
