from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Instruction, strided_blocks
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_cublas_profiles.describe import biased_product_of, descriptor_of
from bitwise_cublas_profiles.dots import dot_of
from bitwise_cublas_profiles.profile import OPTIONAL, SECTIONS, RowNotCovered, profile, profiles, read
from bitwise_cublas_profiles.query import Configuration, gemm_query

H100 = profile("13.1.0", "9.0")
NVJET = Configuration(66, 10, 35, 1, 0, 0, 1, 0, 4)


def described(m: int, n: int, k: int, dtype: str = "fp16", **fields: int) -> str:
    return descriptor_of(gemm_query(m, n, k, dtype), replace(NVJET, **fields), H100).to_text()


def test_an_unknown_key_is_not_covered_and_is_named() -> None:
    with pytest.raises(RowNotCovered, match=r"cuBLASLt 11\.8 on compute capability 9\.0 is not measured"):
        profile("11.8.1", "9.0")


def test_every_row_of_every_profile_has_a_provenance() -> None:
    found = [("12.8", "10.0"), ("12.8", "9.0"), ("13.1", "10.0"), ("13.1", "10.3"), ("13.1", "9.0")]
    assert list(profiles()) == found
    for each in profiles().values():
        assert set(each.tables) == {*SECTIONS, *OPTIONAL}
        assert all(row["provenance"] in ("measured", "published") for rows in each.tables.values() for row in rows)


def test_a_row_without_provenance_is_refused() -> None:
    empty = ", ".join(f'"{name}": []' for name in SECTIONS if name != "units")
    with pytest.raises(ValueError, match="has no provenance"):
        read(f'{{"version": "1.0", "capability": "1.0", "architecture": "x", "units": [{{"unit": "y"}}], {empty}}}')


@pytest.mark.parametrize(
    ("text", "shape", "fields"),
    [
        ("instruction_k=16)", (64, 64, 1024), {}),
        ("instruction_k=16 k_cuts=[cut(span=1280)] k_dropped=8)", (64, 64, 11528), {"split_k": 9, "reduction": 2}),
        ("instruction_k=16 k_cuts=[cut(span=512)])", (64, 64, 1024), {"split_k": 2, "reduction": 2}),
        ("instruction_k=8 k_loop_step=32 short_iteration=first)", (65, 65, 99), {"algorithm": 24, "stages": 0}),
        (
            "k_loop_step=64 short_iteration=first k_cuts=[cut(span=72 merge_dtype=fp16)])",
            (85, 81, 324), {"algorithm": 24, "stages": 13, "split_k": 5, "reduction": 1},
        ),
        (
            "k_loop_step=64 short_iteration=first k_cuts=[cut(span=72 start=zero partial_dtype=fp16)])",
            (85, 81, 324), {"algorithm": 24, "stages": 13, "split_k": 5, "reduction": 4},
        ),
        (
            "path=fma k_cuts=[cut(count=4 start=zero) cut(span=128)])",
            (5, 5, 900), {"algorithm": 11, "custom": 1, "stages": 0},
        ),
        ("path=fma k_cuts=[cut(count=1 start=zero)])", (6, 9, 30), {"algorithm": 16, "custom": 0, "stages": 0}),
        ("path=fma)", (6, 9000, 14), {"algorithm": 56, "custom": 0, "stages": 31}),
        ("path=fma k_cuts=[cut(count=4 start=zero) cut(span=128)])", (1, 70, 300), {"algorithm": 13, "custom": 2}),
        *(
            (
                f"path=fma k_cuts=[cut(count=1 start=zero) cut(layout=strided {dealt})])",
                (1, n, 300), {"algorithm": 13, "custom": 10},
            )
            for n, dealt in (
                (8448, "count=32 tile=4 merge=halves"),
                (8449, "count=26 tile=4 groups=[group(count=2) group(count=2) group(count=2) group(count=2)]"),
                (14784, "count=12 tile=4 groups=[group(count=2) group(count=2) group(count=2)]"),
                (14785, "count=16 tile=4 merge=halves"),
                (31680, "count=24 tile=4 groups=[group(count=2) group(count=2) group(count=2) group(count=2)]"),
            )
        ),
        (
            "path=fma k_cuts=[cut(count=1 start=zero) "
            "cut(layout=strided count=31 tile=128 groups=[group(count=4) group(count=8)]) "
            "cut(layout=strided count=128 merge=halves)])",
            (1, 70, 300), {"algorithm": 14, "split_k": 31, "reduction": 2},
        ),
        (
            "path=fma k_cuts=[cut(count=3 start=zero) cut(layout=strided count=2 tile=50 merge=halves)])",
            (1, 70, 300), {"algorithm": 13, "custom": 56, "split_k": 3, "reduction": 2},
        ),
        (
            "path=fma k_cuts=[cut(count=1 start=zero) cut(layout=strided count=16) cut(span=16)])",
            (1, 70, 300), {"algorithm": 13, "custom": 12},
        ),
    ],
)  # fmt: skip
def test_descriptors_of_covered_queries(text: str, shape: tuple[int, int, int], fields: dict[str, int]) -> None:
    assert described(*shape, **fields).endswith(text)


def test_fp8_promotes_its_accumulator_every_step_on_sm_90_only() -> None:
    query, found = gemm_query(16, 32, 512, "e4m3"), replace(NVJET, stages=36)
    assert "k_cuts=[cut(span=128)]" in descriptor_of(query, found, H100).to_text()
    assert "k_cuts" not in descriptor_of(query, found, profile("13.1", "10.0")).to_text()


@pytest.mark.parametrize(
    ("why", "shape", "fields"),
    [
        ("algorithm 57 has no row", (5, 5, 64), {"algorithm": 57}),
        ("2 slices of algorithm 56 have no row", (5, 5, 64), {"algorithm": 56, "custom": 0, "split_k": 2}),
        ("STAGES_ID 37 of algorithm 66 has no row", (5, 5, 64), {"stages": 37}),
        ("REDUCTION_SCHEME 3 has no row", (5, 5, 640), {"algorithm": 24, "stages": 0, "split_k": 3, "reduction": 3}),
        ("CUSTOM_OPTION 199 has no row", (1, 70, 300), {"algorithm": 13, "custom": 199}),
        ("changes its order above 31680 outputs", (1, 31681, 300), {"algorithm": 13, "custom": 10}),
        (
            "slices of CUSTOM_OPTION 10 are not measured for many outputs",
            (1, 5000, 300),
            {"algorithm": 13, "custom": 10, "split_k": 2, "reduction": 2},
        ),
        ("slices of algorithm 41 are not measured", (5, 5, 640), {"algorithm": 41, "split_k": 2, "reduction": 2}),
        ("measured on vectors only", (2, 70, 300), {"algorithm": 13, "custom": 12}),
        ("REDUCTION_SCHEME 4 of this", (1, 70, 300), {"algorithm": 14, "split_k": 31, "reduction": 4}),
    ],
)
def test_queries_that_are_not_covered(why: str, shape: tuple[int, int, int], fields: dict[str, int]) -> None:
    with pytest.raises(RowNotCovered, match=why):
        described(*shape, **fields)


def test_slices_of_two_transposed_operands_have_the_small_granularity() -> None:
    split = replace(NVJET, algorithm=24, stages=13, split_k=8, reduction=2)
    spans = {}
    for transposes in ("NN", "NT", "TN", "TT"):
        query = gemm_query(5, 64, 640, transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T")
        spans[transposes] = descriptor_of(query, split, H100).k_cuts[0].span
    assert spans == {"NN": 128, "NT": 128, "TN": 80, "TT": 128}
    column = gemm_query(64, 1, 640, transpose_a=True)
    assert descriptor_of(column, split, H100).k_cuts[0].span == 128


@pytest.mark.parametrize(
    ("why", "fields", "configuration"),
    [
        ("batches are not measured for this shape by algorithm 24 with slices on fp16", {"batch": 2},
         {"algorithm": 24, "split_k": 2, "reduction": 2}),
        ("batches are not measured for this shape by algorithm 66 on e4m3", {"batch": 2, "dtype": "e4m3"}, {}),
        ("biases are not measured for this shape by algorithm 24 with slices", {"epilogue": "bias"},
         {"algorithm": 24, "split_k": 2, "reduction": 2}),
        ("biases are not measured for this shape by algorithm 66 on fp16", {"epilogue": "bias", "n": 1}, {}),
        ("stored NT, with output fp32, are not measured", {"transpose_b": True, "out": "fp32"}, {}),
        ("padded rows are not measured", {"ld_b": 72, "n": 1}, {}),
        ("padded rows are not measured", {"ld_a": 72, "m": 1, "transpose_a": True}, {}),
        ("padded rows are not measured", {"ld_c": 72}, {}),
        ("padded rows are not measured", {"ld_a": 80, "dtype": "e4m3"}, {"stages": 36}),
        ("unaligned operands are not measured", {"alignment": (256, 8, 256), "batch": 2}, {}),
        ("CUSTOM_OPTION 1 is not measured on operands stored NT", {"transpose_b": True}, {"algorithm": 11}),
    ],
)  # fmt: skip
def test_queries_that_are_only_extrapolated(why: str, fields: dict[str, Any], configuration: dict[str, int]) -> None:
    options = {name: value for name, value in fields.items() if name not in ("m", "n")}
    query = gemm_query(fields.get("m", 64), fields.get("n", 64), 64, **options)
    with pytest.raises(RowNotCovered, match=why):
        descriptor_of(query, replace(NVJET, **configuration), H100)
    if not configuration and query.a == "fp16":
        assert descriptor_of(query, NVJET, H100, extrapolate=True).k == 64


def test_gaps_and_addresses_have_no_effect_on_the_descriptor_of_a_configuration() -> None:
    plain = descriptor_of(gemm_query(64, 64, 64), NVJET, H100)
    for fields in ({"ld_a": 72}, {"ld_b": 72}, {"alignment": (256, 8, 256)}, {"alignment": (2, 2, 256), "ld_a": 65}):
        assert descriptor_of(gemm_query(64, 64, 64, **fields), NVJET, H100) == plain
    assert descriptor_of(gemm_query(1, 64, 64, ld_b=72), NVJET, H100) == plain


def test_products_accumulated_in_fp16_have_the_order_of_others_with_sums_of_fp16() -> None:
    configuration = replace(NVJET, algorithm=21, stages=18, split_k=4, reduction=2, custom=0)
    query = gemm_query(40, 48, 1024)
    plain, found = (
        descriptor_of(each, configuration, H100) for each in (query, replace(query, compute="fp16"))
    )  # fmt: skip
    assert (plain.accumulator_dtype, found.accumulator_dtype) == ("fp32", "fp16")
    assert [(each.span, each.partial_dtype, each.merge_dtype) for each in found.k_cuts] == [
        (each.span, "fp16", "fp16") for each in plain.k_cuts
    ]
    names = set(type(plain).model_fields) - {"accumulator_dtype", "k_cuts"}
    assert {name: getattr(found, name) for name in names} == {name: getattr(plain, name) for name in names}
    for fields in ({"algorithm": 66, "stages": 35, "split_k": 1}, {"reduction": 1}):
        with pytest.raises(RowNotCovered, match="fp16 accumulation are not measured for this shape by algorithm"):
            descriptor_of(replace(query, compute="fp16"), replace(configuration, **fields), H100)


def test_measured_features_have_the_descriptor_of_the_plain_product() -> None:
    sliced = replace(NVJET, split_k=4, reduction=2)
    plain = {False: descriptor_of(gemm_query(64, 64, 640), NVJET, H100),
             True: descriptor_of(gemm_query(64, 64, 640), sliced, H100)}  # fmt: skip
    assert plain[False] != plain[True]
    forms_: tuple[dict[str, Any], ...] = ({"epilogue": "bias"}, {"ld_a": 648, "ld_b": 72})
    for fields in forms_:
        for split, configuration in ((False, NVJET), (True, sliced)):
            assert descriptor_of(gemm_query(64, 64, 640, **fields), configuration, H100) == plain[split]
    assert descriptor_of(gemm_query(64, 64, 640, batch=7), NVJET, H100) == plain[False]
    with pytest.raises(RowNotCovered, match="the epilogue relu is not measured"):
        descriptor_of(gemm_query(64, 64, 640, epilogue="relu"), NVJET, H100)


def test_slices_that_the_library_chooses_are_declined() -> None:
    chosen = replace(NVJET, algorithm=10, stages=0, tile=10, split_k=0, reduction=1, custom=0)
    assert descriptor_of(gemm_query(2, 1423, 390, "fp32"), chosen, H100).k_cuts == (Cut(count=1, start="zero"),)
    with pytest.raises(RowNotCovered, match="the library chooses the slices of more than 512 values of k"):
        descriptor_of(gemm_query(2, 1423, 645, "fp32"), chosen, H100)


def test_the_elements_of_a_vector_may_have_gaps() -> None:
    dense, sparse = gemm_query(96, 1, 5000, "fp32"), gemm_query(96, 1, 5000, "fp32", ld_b=3)
    lanes = replace(NVJET, algorithm=13, stages=0, custom=75)
    assert descriptor_of(sparse, lanes, H100) == descriptor_of(dense, lanes, H100)
    blocks = replace(NVJET, algorithm=14, stages=0, split_k=16, reduction=2)
    assert descriptor_of(sparse, blocks, H100) == descriptor_of(replace(dense, transpose_a=True), blocks, H100)
    assert descriptor_of(sparse, blocks, H100) != descriptor_of(dense, blocks, H100)
    with pytest.raises(RowNotCovered, match="padded rows are not measured"):
        descriptor_of(gemm_query(96, 1, 5000, ld_b=3), NVJET, H100)


def test_a_bias_is_added_before_or_after_the_sum_is_rounded() -> None:
    query = gemm_query(64, 64, 640, epilogue="bias")
    split = replace(NVJET, algorithm=24, stages=13, split_k=3, reduction=2)
    plain = descriptor_of(gemm_query(64, 64, 640), split, H100)
    for reduction in (2, 4):
        each = replace(split, reduction=reduction)
        found = biased_product_of(query, each, H100)
        assert (found.product, found.rounded_first) == (descriptor_of(gemm_query(64, 64, 640), each, H100), True)
    assert biased_product_of(query, split, H100).product == plain
    once = biased_product_of(query, NVJET, H100)
    assert (once.product, once.rounded_first) == (descriptor_of(gemm_query(64, 64, 640), NVJET, H100), False)
    onto = biased_product_of(query, replace(split, reduction=1), H100)
    assert (onto.product.k_cuts[0].merge_dtype, onto.rounded_first, onto.onto_bias) == ("fp16", False, True)
    with pytest.raises(
        RowNotCovered, match="biases are not measured for this shape by algorithm 24 with slices on fp16"
    ):
        biased_product_of(replace(query, n=1), split, H100)


@pytest.mark.parametrize(
    ("dtype", "fields", "words", "why"),
    [
        ("fp32", {}, "64x64x64 fp32 NN to fp32", "STAGES_ID 35 is not measured on fp32"),
        ("tf32", {}, "64x64x64 tf32 NN to fp32", "STAGES_ID 35 is not measured on tf32"),
        ("fp16", {"epilogue": "gelu_bias"}, "64x64x64 fp16 NN to fp16", "the epilogue gelu_bias is not measured"),
        ("e4m3", {"fast_accumulation": True}, "64x64x64 e4m3 NT to bf16", "fast accumulation is not measured"),
    ],
)
def test_unsupported_queries_are_not_covered_with_the_key(
    dtype: str, fields: dict[str, Any], words: str, why: str
) -> None:
    with pytest.raises(RowNotCovered) as raised:
        descriptor_of(gemm_query(64, 64, 64, dtype, **fields), NVJET, H100, extrapolate=True)
    assert str(raised.value) == (
        f"{words} by cuBLASLt 13.1 on compute capability 9.0 is not described: {why} (algorithm 66, tile 10, "
        "stages 35, split_k 1, reduction 0, swizzle 0, custom 1, inner_shape 0, cluster_shape 4)"
    )


def test_rows_may_apply_to_some_layouts() -> None:
    chosen = replace(NVJET, algorithm=11, custom=0, stages=0)
    query = gemm_query(8, 9, 630, transpose_b=True)
    assert descriptor_of(query, chosen, H100).k_cuts[1:] == (Cut(layout="strided", count=16), Cut(span=16))
    assert descriptor_of(gemm_query(8, 9, 630), chosen, H100).k_cuts == (Cut(count=2, start="zero"), Cut(span=256))


@pytest.mark.parametrize(
    ("m", "n", "transposes", "wide"),
    [(1, 5, "NN", 1), (1, 5, "TT", 2), (5, 1, "NN", 2), (5, 1, "TN", 1), (1, 1, "TN", 2), (1, 1, "NN", 2)],
)
def test_dot_products_take_two_values_of_k_along_a_dense_axis(m: int, n: int, transposes: str, wide: int) -> None:
    query = gemm_query(m, n, 900, transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T")
    chosen = replace(NVJET, algorithm=14, custom=0, stages=0, split_k=496, reduction=2)
    assert descriptor_of(query, chosen, H100).k_cuts[1].tile == 128 * wide


FMA = replace(NVJET, algorithm=20, stages=28, custom=0)
TF32 = Instruction(architecture="sm_90", family="mma.sync", k=8)


def test_products_of_fp32_are_chains_of_fused_multiply_adds_over_slices() -> None:
    query, zero = gemm_query(64, 64, 640, "fp32"), Cut(count=1, start="zero")
    desc = descriptor_of(query, FMA, H100)
    assert (desc.path, desc.left_dtype, desc.multiplied_as, desc.k_cuts) == ("fma", "fp32", None, ())
    split = replace(FMA, split_k=6, reduction=2)
    for transposes, k, span in (("NN", 640, 128), ("NN", 644, 108), ("TN", 640, 108)):
        each = replace(query, k=k, transpose_a=transposes[0] == "T")
        assert descriptor_of(each, split, H100).k_cuts == (zero, Cut(span=span))
    in_place = replace(split, stages=26, reduction=1)
    assert descriptor_of(query, in_place, H100).k_cuts == (Cut(span=128),)
    dealt = replace(split, algorithm=55, stages=31)
    assert descriptor_of(query, dealt, H100).k_cuts == (zero, Cut(layout="strided", count=6, tile=8))
    paired = Cut(layout="strided", count=6, tile=8, merge="paired")
    assert descriptor_of(query, replace(dealt, custom=1), H100).k_cuts == (zero, paired)
    assert descriptor_of(query, replace(dealt, split_k=1), H100).k_cuts == (zero,)
    for wrong, why in (
        (replace(dealt, custom=3), "STAGES_ID 31, CUSTOM_OPTION 3 of algorithm 55 with REDUCTION_SCHEME 2 has no row"),
        (replace(split, reduction=4), "STAGES_ID 28, CUSTOM_OPTION 0 of algorithm 20 with REDUCTION_SCHEME 4 has no"),
        (replace(FMA, stages=27), "STAGES_ID 27, CUSTOM_OPTION 0 of algorithm 20 without slices has no row"),
    ):
        with pytest.raises(RowNotCovered, match=why):
            descriptor_of(query, wrong, H100)


def test_a_batch_of_outer_products_of_fp32_has_no_order() -> None:
    outer = gemm_query(64, 24, 1, "fp32", batch=8)
    assert descriptor_of(outer, FMA, H100).k_cuts == (Cut(count=1, start="zero"),)
    with pytest.raises(RowNotCovered, match="batches are not measured for this shape by algorithm 20 on fp32"):
        descriptor_of(replace(outer, m=1, n=1, k=2), FMA, H100)
    with pytest.raises(RowNotCovered, match="strided batches are not measured for this shape by algorithm 20 on fp32"):
        descriptor_of(replace(outer, ld_c=32), FMA, H100)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "tf32"])
def test_a_batch_of_outer_products_may_keep_the_sign_of_a_zero(dtype: str) -> None:
    outer, kernel = gemm_query(64, 24, 1, dtype, batch=8), replace(FMA, algorithm=12, stages=0)
    desc = descriptor_of(outer, kernel, H100)
    assert (desc.path, desc.accumulator_start, desc.multiplied_as) == ("fma", "negative-zero", None)
    for query, chosen in ((replace(outer, k=2), kernel), (outer, replace(kernel, custom=1))):
        with pytest.raises(RowNotCovered, match="this algorithm was measured with k = 1 and CUSTOM_OPTION 0 only"):
            descriptor_of(query, chosen, H100)


def test_an_iteration_that_is_filled_with_zeros_leaves_no_minus_zero() -> None:
    zero, split = Cut(count=1, start="zero"), replace(FMA, split_k=3, reduction=1)
    assert descriptor_of(gemm_query(64, 64, 7, "fp32"), FMA, H100).k_cuts == (zero,)
    assert descriptor_of(gemm_query(64, 64, 9, "fp32"), FMA, H100).k_cuts == ()
    short, whole = (gemm_query(64, 64, k, "fp32", transpose_a=True) for k in (21, 24))
    assert descriptor_of(short, split, H100).k_cuts == (zero, Cut(span=8))
    assert descriptor_of(whole, split, H100).k_cuts == (Cut(span=8),)
    for query, cuts in ((short, (Cut(span=8), zero)), (whole, (Cut(span=8),))):
        biased = biased_product_of(replace(query, epilogue="bias"), split, H100)
        assert (biased.onto_bias, biased.product.k_cuts) == (True, cuts)


def test_a_dot_product_of_fp32_has_a_block_for_each_tile() -> None:
    def problem(k: int, dtype: str = "fp32") -> GEMMProblem:
        return GEMMProblem(m=1, n=1, k=k, a=dtype, b=dtype, out=dtype, dot=True)

    for k in (1, 255, 256, 257, 1024, 8193):
        desc = dot_of(problem(k), H100)
        tiles = strided_blocks(-(-k // 256), 2)
        assert (desc.path, desc.k_cuts) == ("fma", (Cut(count=1, start="zero"), *tiles))
    a = np.arange(-300, 301, dtype=np.float32)[None]
    found = evaluate(dot_of(problem(601), H100), a.view(np.uint32), a.T.copy().view(np.uint32))
    assert found.view(np.float32)[0, 0] == (a.astype(np.float64) ** 2).sum()
    for wrong, known, why in (
        (problem(524_289), H100, "at most 524288 values are measured"), (problem(8, "fp16"), H100, "is not measured"),
        (problem(8), profile("12.8", "9.0"), "is not measured"),
    ):  # fmt: skip
        with pytest.raises(RowNotCovered, match=f"a dot product of {wrong.k} .* is not described: .*{why}"):
            dot_of(wrong, known)
    with pytest.raises(DescriptorError, match="a product of two vectors has m = n = 1"):
        GEMMProblem(m=1, n=2, k=3, a="fp32", b="fp32", out="fp32", dot=True)


def test_slices_of_tf32_take_tiles_round_robin() -> None:
    query = gemm_query(64, 64, 1304, "tf32")
    split = replace(NVJET, algorithm=63, tile=11, stages=15, split_k=6, reduction=2, cluster_shape=0)
    for custom, merge in ((1, "paired"), (2, "chain")):
        found = descriptor_of(query, replace(split, custom=custom), H100)
        assert found.k_cuts == (Cut(layout="strided", count=6, tile=64, merge=merge),)
    for stages, tile in ((4, 16), (9, 32), (10, 32)):
        found = descriptor_of(query, replace(split, stages=stages, custom=0), H100)
        assert found.k_cuts == (Cut(layout="strided", count=6, tile=tile),)
    with pytest.raises(RowNotCovered, match="REDUCTION_SCHEME 1 of this algorithm is not measured"):
        descriptor_of(query, replace(split, reduction=1), H100)


def test_lanes_of_custom_option_10_are_others_on_fp32() -> None:
    chosen = replace(NVJET, algorithm=13, stages=0, custom=10)
    for outputs, lanes in ((128, 32), (129, 24), (8449, 20), (12673, 16), (21120, 12), (21121, 20), (134999, 4)):
        (outer, dealt) = descriptor_of(gemm_query(1, outputs, 330, "fp32"), chosen, H100, extrapolate=True).k_cuts
        assert (outer.start, dealt.count, dealt.tile) == ("zero", lanes, 4)
    with pytest.raises(RowNotCovered, match="changes its order above 134999 outputs"):
        descriptor_of(gemm_query(1, 135000, 330, "fp32"), chosen, H100, extrapolate=True)


def test_operands_of_tf32_are_rounded_to_it() -> None:
    query = gemm_query(64, 64, 652, "tf32")
    chosen = replace(NVJET, algorithm=21, stages=6, custom=0, split_k=5, reduction=2)
    desc = descriptor_of(query, chosen, H100)
    assert (desc.left_dtype, desc.multiplied_as, desc.instruction, desc.instruction_k) == ("fp32", "tf32", TF32, 8)
    assert (desc.k_loop_step, desc.short_iteration, desc.k_cuts) == (16, "first", (Cut(span=132),))
    deep = descriptor_of(query, replace(chosen, stages=12, split_k=1), H100)
    assert (deep.k_loop_step, deep.k_cuts) == (32, ())
    dealt = descriptor_of(query, replace(chosen, algorithm=63, stages=10), H100)
    assert dealt.k_cuts == (Cut(layout="strided", count=5, tile=32),)
    # Algorithms of scalar kernels multiply fp32 operands as they are.
    scalar = descriptor_of(query, FMA, H100)
    assert scalar == descriptor_of(replace(query, compute="fp32"), FMA, H100)


def test_tiles_shared_by_blocks_are_recognised_by_the_workspace() -> None:
    query, shared = gemm_query(64, 64, 640, "tf32"), replace(NVJET, algorithm=43, stages=34, split_k=-1, reduction=2)
    assert descriptor_of(query, shared, H100, workspace=131).k_cuts == ()
    for workspace in (None, 1 << 20):
        with pytest.raises(RowNotCovered, match="tiles that several blocks share along k are not measured"):
            descriptor_of(query, shared, H100, workspace=workspace)


def test_fp32_operands_need_measured_rows_of_scalar_kernels() -> None:
    unmeasured = replace(NVJET, algorithm=13, stages=0, custom=24)
    query = gemm_query(1, 640, 300, "fp32")
    with pytest.raises(RowNotCovered, match="CUSTOM_OPTION 24 is not measured on fp32"):
        descriptor_of(query, unmeasured, H100)
    wide = descriptor_of(query, unmeasured, H100, extrapolate=True)
    assert wide.k_cuts == descriptor_of(gemm_query(1, 640, 300), unmeasured, H100).k_cuts


def test_chains_of_fp16_sums_have_blocks_and_lanes_of_their_own() -> None:
    def of(k: int, custom: int, **fields: bool) -> GEMMDesc:
        query = replace(gemm_query(3, 20000, k), compute="fp16", **fields)
        return descriptor_of(query, replace(NVJET, algorithm=11, stages=0, custom=custom), H100, workspace=0)

    short = of(200, 0)
    assert (short.path, short.accumulator_dtype) == ("fma", "fp16")
    assert [(each.span, each.start, each.merge_dtype) for each in short.k_cuts] == [
        (None, "zero", "fp16"), (128, "first", "fp16"),
    ]  # fmt: skip
    with pytest.raises(RowNotCovered, match="CUSTOM_OPTION 0 was measured up to k = 256 only"):
        of(305, 0)
    for k, fields, dealt, span in ((921, {}, (8, 128), 128), (2618, {}, (8, 128), 128), (2030, ACROSS, (32, 1), 16)):
        desc = of(k, 1, **fields)
        first, lanes, chunks = desc.k_cuts
        assert (first.start, lanes.layout, lanes.count, lanes.tile, lanes.merge) == ("zero", "strided", *dealt, "chain")
        assert (chunks.span, {each.partial_dtype for each in desc.k_cuts}) == (span, {"fp16"})
    with pytest.raises(RowNotCovered, match=r"is not measured|has no row"):
        of(200, 0, transpose_b=True)
    with pytest.raises(RowNotCovered, match=r"is not measured|has no row"):
        of(200, 1, transpose_a=True)


ACROSS = {"transpose_b": True}


def test_blocks_that_share_all_tiles_of_fp16_sums_are_slices() -> None:
    def of(m: int, n: int, k: int, workspace: int, **fields: int) -> GEMMDesc:
        query = replace(gemm_query(m, n, k), compute="fp16", batch=fields.pop("batch", 1))
        shared = replace(NVJET, algorithm=39, stages=35, split_k=-1, reduction=2, custom=0)
        return descriptor_of(query, replace(shared, **fields), H100, workspace=workspace)

    fp16 = {"partial_dtype": "fp16", "merge_dtype": "fp16"}
    assert of(3840, 64, 10944, 1573407, tile=17, cluster_shape=12).k_cuts == (
        Cut(span=3648, merge="chain-down", **fp16),
    )
    # The last parts have one iteration more, and the last iteration may be short.
    for sizes, tile, cluster, workspace, lengths in (
        ((256, 1344, 10688), 18, 8, 1442127, [5312, 5376]),
        ((1168, 208, 6416), 17, 4, 1966719, [2112, 2176, 2128]),
        ((200, 984, 10184), 18, 8, 1573407, [3392, 3392, 3400]),
        ((128, 2112, 7168), 17, 20, 1720899, [2368, 2368, 2432]),
        ((192, 1152, 8016), 18, 32, 1769955, [1984, 1984, 2048, 2000]),
        ((256, 1920, 13568), 20, 3, 4194847, [3392] * 4),
        ((384, 1664, 9480), 20, 0, 3670399, [4736, 4744]),
        ((192, 2816, 9472), 21, 32, 3244587, [3136, 3136, 3200]),
    ):
        (cut,) = of(*sizes, workspace, tile=tile, cluster_shape=cluster).k_cuts
        assert (cut.lengths(sizes[-1]), cut.partial_dtype, cut.merge_dtype) == (lengths, "fp16", "fp16")
        assert cut.merge == ("neighbours" if len(lengths) == 4 else "chain-down")
    assert of(1024, 2304, 512, 639, tile=20).k_cuts == ()
    # Five blocks, tiles of which some are shared, another cluster, tiles without a number, and batches.
    for given in (
        {"m": 768, "n": 512, "k": 12800, "workspace": 3932895, "tile": 20, "cluster_shape": 7},
        {"m": 1536, "n": 1536, "k": 11456, "workspace": 3932895, "tile": 20, "cluster_shape": 0},
        {"m": 256, "n": 1344, "k": 10688, "workspace": 1442127, "tile": 18, "cluster_shape": 12},
        {"m": 256, "n": 1344, "k": 10688, "workspace": 1442127, "tile": 16, "cluster_shape": 8},
        {"m": 256, "n": 1344, "k": 10688, "workspace": 1442127, "tile": 18, "cluster_shape": 8, "batch": 2},
    ):
        with pytest.raises(RowNotCovered, match="tiles that several blocks share along k are not measured"):
            of(**given)


def test_slices_of_one_column_with_sums_of_fp16_are_described_where_the_layout_does_not_matter() -> None:
    sliced = replace(NVJET, algorithm=23, stages=13, tile=11, split_k=12, reduction=2, custom=0)

    def of(k: int, **fields: Any) -> GEMMDesc:
        return descriptor_of(gemm_query(1024, 1, k, transpose_a=True, **fields), sliced, H100, workspace=0)

    assert of(4032).k_cuts[0].span == 384
    with pytest.raises(RowNotCovered, match="slices of one column are not measured with sums of fp16 where 64 divides"):
        of(4032, compute="fp16")
    assert of(4040, compute="fp16").k_cuts[0].span == of(4040).k_cuts[0].span == 344
