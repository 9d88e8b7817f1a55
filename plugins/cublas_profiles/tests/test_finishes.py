"""Products with a finish: the descriptors of configurations, and the sentences where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bitwise_core.descriptors import Cut, Step
from bitwise_core.descriptors.problem import Finish, GEMMProblem
from bitwise_cublas_profiles.describe import biased_product_of, descriptor_of
from bitwise_cublas_profiles.finishes import (
    block_scaled_product_of,
    finished_product_of,
    group_of,
    plain_problem,
    row_scaled_product_of,
    scaled_product_of,
    scaled_query,
)
from bitwise_cublas_profiles.profile import RowNotCovered, profile
from bitwise_cublas_profiles.query import WORKSPACE, Configuration, CublasError, gemm_query, query_of_problem

H100 = profile("13.1.0", "9.0")
NVJET = Configuration(66, 10, 35, 1, 0, 0, 1, 0, 4)
SPLIT = {"split_k": 2, "reduction": 2}
SLICES = {"split_k": 4, "reduction": 2}


def finished(dtype: str = "bf16", m: int = 64, n: int = 64, k: int = 1024, *, finish: Finish, **fields: int) -> Any:
    return finished_product_of(gemm_query(m, n, k, dtype), replace(NVJET, **fields), H100, finish, 0)


def steps(finish: Finish, dtype: str = "bf16", **fields: int) -> str:
    return str(finished(dtype, finish=finish, **fields).steps).removeprefix("epilogue(steps=[").removesuffix("])")


def matrix(alpha: float = 1.0, beta: float = 1.0) -> Finish:
    return Finish(alpha=alpha, beta=beta, addend="matrix")


def axpby(alpha: float, beta: float, fused: str, dtype: str) -> str:
    return (
        f"step(name=axpby value={alpha} operand_value={beta} fused={fused} operand_dtype={dtype}) "
        f"step(name=convert dtype={dtype})"
    )


def test_the_order_of_an_addend_follows_the_kernel() -> None:
    # The tensor-core kernels of sm_90 round the product first where the addend is only added.
    assert steps(matrix(0.5)) == "step(name=scale value=0.5) step(name=convert dtype=bf16) step(name=add)"
    assert steps(matrix()) == "step(name=convert dtype=bf16) step(name=add)"
    assert steps(matrix(0.5, 2.0)) == axpby(0.5, 2.0, "x", "bf16")
    assert steps(matrix(0.5), **SPLIT) == axpby(0.5, 1.0, "operand", "bf16")
    for dtype, tile, stages, fused in (("bf16", 11, 7, "x"), ("fp16", 11, 13, "operand")):
        found = steps(matrix(0.5, 2.0), dtype, algorithm=24, tile=tile, stages=stages)
        assert found == axpby(0.5, 2.0, fused, dtype)
    simple: dict[str, int] = {"algorithm": 23, "tile": 11}
    assert steps(matrix(0.5, 2.0), "fp16", **simple, stages=13) == axpby(0.5, 2.0, "x", "fp16")
    assert steps(matrix(0.5, 2.0), "fp16", **simple, stages=20, **SPLIT) == axpby(0.5, 2.0, "operand", "fp16")
    assert steps(matrix(0.5, 2.0), "fp32", algorithm=55, stages=31, custom=0) == axpby(0.5, 2.0, "x", "fp32")
    assert steps(matrix(0.5, 2.0), "fp32", algorithm=20, stages=28, custom=0) == axpby(0.5, 2.0, "operand", "fp32")


def test_an_order_holds_for_every_tile() -> None:
    for tile, stages in ((31, 13), (5, 7)):
        found = steps(matrix(0.5, 2.0), "fp16", algorithm=23, tile=tile, stages=stages)
        assert found == axpby(0.5, 2.0, "x", "fp16")


def test_a_kernel_may_scale_an_operand_before_the_product() -> None:
    found = finished("fp16", 5, 5, 900, finish=matrix(0.5, 2.0), algorithm=11, custom=1, stages=0)
    assert (found.scaled, found.scale, found.widened_from) == ("a", 0.5, "fp16")
    assert (found.product.left_dtype, found.product.right_dtype) == ("fp32", "fp32")
    assert axpby(1.0, 2.0, "operand", "fp16") in str(found.steps)
    assert finished("fp16", 5, 5, 900, finish=matrix(1.0, 2.0), algorithm=11, custom=1, stages=0).scaled == "none"
    vector: dict[str, Any] = {"finish": Finish(alpha=0.5), "algorithm": 13, "custom": 7, "stages": 0}
    assert finished("fp16", 1, 500, 20, **vector).scaled == "a"
    assert finished("fp16", 500, 1, 20, **vector).scaled == "b"


@pytest.mark.parametrize(("blocks", "order"), [
    ((1, 128), "product_first"), ((128, 1), "product_first"), ((1, 1), "left_first"),
])  # fmt: skip
def test_scales_of_blocks_multiply_sums_of_128_values(blocks: tuple[Any, Any], order: str) -> None:
    finish = Finish(scales="blocks", blocks=blocks)
    given = GEMMProblem(m=128, n=256, k=7168, a="e4m3", b="e4m3", out="bf16", transpose_b=True, finish=finish)
    query = scaled_query(given, finish, WORKSPACE)
    assert query.blocks == blocks

    def found(torch: str = "2.11.0", problem: GEMMProblem = given, **fields: int) -> Any:
        configuration = replace(NVJET, stages=36, **fields)
        own = scaled_query(problem, finish, WORKSPACE)
        return block_scaled_product_of(problem, own, configuration, H100, torch)

    one = found()
    assert (one.block_scaling, str(one.steps)) == (order, "epilogue(steps=[step(name=convert dtype=bf16)])")
    assert [each.span for each in one.product.k_cuts] == [128]
    groups = 128 in blocks  # slices are whole groups of four blocks, where an operand has blocks of 128 x 128
    assert [each.span for each in found(**SPLIT).product.k_cuts] == [3584, 128]
    assert [each.span for each in found(split_k=3, reduction=2).product.k_cuts] == [2560 if groups else 2432, 128]
    # The last slices are empty.
    assert [each.span for each in found(split_k=19, reduction=2).product.k_cuts] == [512 if groups else 384, 128]
    shorter = given.model_copy(update={"k": 7200})
    for torch, problem, fields in (
        ("2.11.0", given, {"algorithm": 24}), ("2.11.0", given, {"split_k": 2, "reduction": 4}),
        ("2.11.0", given, {"split_k": -1}), ("2.11.0", shorter, {}), ("2.12.0", given, {}),
    ):  # fmt: skip
        with pytest.raises(RowNotCovered, match="is not described"):
            found(torch, problem, **fields)


def test_no_addend_is_a_scale_and_a_conversion() -> None:
    assert steps(Finish(alpha=0.5)) == "step(name=scale value=0.5) step(name=convert dtype=bf16)"
    assert steps(Finish(alpha=0.5), "fp32", algorithm=55, stages=31, custom=0) == (
        "step(name=scale value=0.5) step(name=convert dtype=fp32)"
    )


def test_alpha_alone_needs_a_measured_kernel() -> None:
    with pytest.raises(RowNotCovered, match=r"described: alpha 0\.5 is not measured with this configuration"):
        steps(Finish(alpha=0.5), "fp32", algorithm=10, stages=0, custom=0)
    with pytest.raises(RowNotCovered, match="is not measured with this configuration"):
        finished("fp16", 1, 500, 20, finish=Finish(alpha=0.5), algorithm=13, custom=3, stages=0)


def test_activations_follow_the_bias() -> None:
    bias = Finish(beta=1, addend="vector", activation="relu")
    assert steps(bias) == (
        "step(name=axpby value=1.0 operand_value=1.0 fused=x operand_dtype=bf16) step(name=relu) "
        "step(name=convert dtype=bf16)"
    )
    first = steps(bias, algorithm=24, stages=13, split_k=2, reduction=4)
    assert first == "step(name=convert dtype=bf16) step(name=add) step(name=relu)"
    with pytest.raises(
        RowNotCovered, match=r"with gelu is not described: .*the nearest described call is torch\.addmm"
    ):
        steps(Finish(beta=1, addend="vector", activation="gelu"))


def test_what_is_not_measured_is_named_with_the_nearest_call() -> None:
    with pytest.raises(RowNotCovered, match=r"2\.0 times a matrix added is not measured .*the product alone"):
        steps(matrix(0.5, 2.0), "fp32", algorithm=10, stages=0, custom=0)
    with pytest.raises(RowNotCovered, match="is not measured"):
        steps(matrix(), algorithm=24, stages=13, split_k=2, reduction=0)


def test_slices_in_place_are_added_to_the_addend() -> None:
    split: dict[str, int] = {"algorithm": 24, "stages": 13, "split_k": 3, "reduction": 1}
    for addend in ("matrix", "vector"):
        found = finished("fp16", finish=Finish(alpha=0.5, beta=1, addend=addend), **split)
        assert found.onto_addend
        assert [each.k for _, each, _ in found.slices] == [384, 384, 256]
        assert str(found.steps) == str(finished("bf16", finish=Finish(alpha=0.5, beta=1, addend=addend), **split).steps
                                       ).replace("bf16", "fp16").replace("fused=x", "fused=operand")  # fmt: skip
    plain = finished("fp16", finish=Finish(alpha=0.5, beta=1, addend="matrix"), **{**split, "reduction": 2})
    assert not plain.onto_addend
    alone = finished("fp16", finish=Finish(alpha=0.5), **split)
    assert (alone.onto_addend, alone.starts_from_addend) == (True, False)
    added = Step(name="axpby", value=0.5, operand_value=1.0, fused="operand", operand_dtype="fp16")
    assert [each.steps[0] for *_, each in alone.slices] == [Step(name="scale", value=0.5), added, added]


def test_what_relu_returns_for_a_nan_follows_the_kernel() -> None:
    bias = Finish(beta=1, addend="vector", activation="relu")
    for fields, nan in (
        ({}, "kept"),
        ({"algorithm": 24, "stages": 13}, "zero"),
        ({"algorithm": 24, "stages": 13, "split_k": 2, "reduction": 1}, "zero"),
        ({"algorithm": 24, "stages": 13, "split_k": 2, "reduction": 4}, "kept"),
    ):
        (step,) = (each for each in finished(finish=bias, **fields).steps.steps if each.name == "relu")
        assert step == Step(name="relu", nan=nan)
    unmeasured = replace(H100, tables={**H100.tables, "rectifiers": ()})
    with pytest.raises(RowNotCovered, match="what the library's relu returns for a NaN is not measured"):
        finished_product_of(gemm_query(64, 64, 1024, "bf16"), NVJET, unmeasured, bias, 0)


def test_what_follows_sums_of_fp16_is_of_fp16() -> None:
    query = replace(gemm_query(64, 64, 1024), compute="fp16")
    plain = replace(NVJET, algorithm=21, stages=18, custom=0)

    def of(finish: Finish, **fields: Any) -> Any:
        given = {each: fields.pop(each) for each in ("m", "batch") if each in fields}
        return finished_product_of(replace(query, **given), replace(plain, **fields), H100, finish, 0)

    for batch in (1, 3):
        found = of(matrix(), batch=batch)
        assert (found.product.accumulator_dtype, found.product.output_dtype) == ("fp16", "fp32")
        assert [each.name for each in found.steps.steps] == ["add", "convert"]
    sliced = of(Finish(beta=1.0, addend="vector"), **SLICES)
    assert [each.name for each in sliced.steps.steps] == ["add", "convert"]
    assert [(each.partial_dtype, each.merge_dtype) for each in sliced.product.k_cuts] == [("fp16", "fp16")]
    for fields, nan in (({}, "zero"), (SLICES, "kept"), ({"algorithm": 39, "stages": 35}, "kept")):
        steps = of(Finish(beta=1.0, addend="vector", activation="relu"), **fields).steps.steps
        assert steps[1] == Step(name="relu", nan=nan)
        assert [each.name for each in steps] == ["add", "relu", "convert"]
    # Factors are numbers of fp16, and each operation rounds once.
    halves: dict[str, Any] = {"operand_dtype": "fp16", "arithmetic": "fp16", "name": "axpby", "value": 0.0999755859375}
    for fields, fused in (
        ({}, "x"),
        (SLICES, "operand"),
        ({"algorithm": 39, "stages": 35}, "operand"),
        ({"m": 1}, "x"),
    ):
        step = of(matrix(0.1, 0.3), **fields).steps.steps[0]
        assert step == Step(operand_value=0.300048828125, fused=fused, **halves)
    vector = Finish(alpha=0.1, beta=1.0, addend="vector")
    for fields, fused in (({}, "x"), (SLICES, "operand"), ({"algorithm": 39, "stages": 35}, "x")):
        assert of(vector, **fields).steps.steps[0] == Step(operand_value=1.0, fused=fused, **halves)
    alone = of(Finish(alpha=0.1)).steps.steps
    assert alone == (Step(name="scale", value=0.0999755859375), Step(name="convert", dtype="fp16"))
    biased = biased_product_of(replace(query, epilogue="bias"), plain, H100)
    assert (biased.product.accumulator_dtype, biased.rounded_first, biased.onto_bias) == ("fp16", False, False)
    for factor in (1e6, 1e-9):
        with pytest.raises(RowNotCovered, match="on sums of fp16 are not described: fp16, in which the library"):
            of(matrix(factor))
    # Slices that are added in place start from the addend.
    in_place = {"split_k": 4, "reduction": 1}
    onto = of(matrix(0.1, 0.3), **in_place)
    assert (onto.onto_addend, onto.starts_from_addend, len(onto.slices)) == (True, True, 4)
    assert [each.steps[0].operand_value for *_, each in onto.slices] == [0.300048828125, 1.0, 1.0, 1.0]
    assert {(each.steps[0].value, each.steps[0].arithmetic) for *_, each in onto.slices} == {(0.0999755859375, "fp16")}
    added = of(Finish(beta=1.0, addend="vector"), **in_place)
    assert (added.onto_addend, [each.name for each in added.steps.steps]) == (True, ["axpby", "convert"])
    biased = biased_product_of(replace(query, epilogue="bias"), replace(plain, **in_place), H100)
    assert (biased.onto_bias, biased.finished().onto_addend) == (True, True)
    with pytest.raises(RowNotCovered, match="fp16 accumulation are not measured for this shape by algorithm 21"):
        of(Finish(alpha=0.5), **in_place)
    with pytest.raises(RowNotCovered, match="added in place are measured onto an addend"):
        of(Finish(alpha=0.5), **in_place, algorithm=24, tile=11, stages=19)


def test_a_vector_is_added_after_the_slices_of_algorithm_10() -> None:
    split: dict[str, Any] = {"k": 434, "algorithm": 10, "stages": 0, "tile": 10, "split_k": 3, "reduction": 1,
                             "custom": 0}  # fmt: skip
    vector = finished("fp32", finish=Finish(alpha=0.1, beta=1, addend="vector", activation="relu"), **split)
    assert [(low, each.k) for low, each, _ in vector.slices] == [(0, 144), (144, 144), (288, 144), (432, 2)]
    last = [each.name for each in vector.slices[-1][2].steps]
    assert (vector.starts_from_addend, last) == (False, ["axpby", "add", "relu", "convert"])
    added = finished("fp32", finish=Finish(beta=1, addend="vector"), **split)
    assert (added.onto_addend, added.product.k_cuts) == (False, (Cut(count=1, start="zero"), Cut(span=144)))
    assert finished("fp32", finish=matrix(0.1), **split).starts_from_addend


def test_algorithm_10_rounds_both_terms_of_a_sum_with_two_factors() -> None:
    split: dict[str, Any] = {"k": 434, "algorithm": 10, "stages": 0, "tile": 10, "reduction": 1, "custom": 0}
    for alpha, beta, fused in ((0.25, 0.5, "none"), (0.25, 1.0, "operand"), (1.0, 0.5, "x")):
        found = finished("fp32", finish=matrix(alpha, beta), split_k=3, **split)
        first = found.steps.steps[0]
        assert (found.onto_addend, first.value, first.operand_value, first.fused) == (True, alpha, beta, fused)
        # Each slice is multiplied by alpha; the first one is added to beta C, the others to what was made before.
        assert [each.steps[0].operand_value for *_, each in found.slices] == [beta, 1.0, 1.0, 1.0]
    scaled = finished("fp32", finish=Finish(alpha=0.1), split_k=3, **split)
    assert (scaled.onto_addend, scaled.starts_from_addend) == (True, False)


def problem(m: int = 64, n: int = 64, k: int = 256, a: str = "e4m3", out: str = "bf16", **fields: Any) -> GEMMProblem:
    return GEMMProblem(m=m, n=n, k=k, a=a, b="e4m3", out=out, transpose_b=True, **fields)


def scaled(fast: bool, bias: bool = False, **fields: int) -> Any:
    finish = Finish(scales="tensor", fast_accumulation=fast, **({"beta": 1, "addend": "vector"} if bias else {}))
    given = problem(finish=finish)
    query = scaled_query(given, finish, 1 << 20)
    return scaled_product_of(given, query, replace(NVJET, stages=36, **fields), H100, 1 << 20)


def test_scaled_operands_have_one_or_many_accumulators() -> None:
    slow, fast = scaled(False), scaled(True)
    assert [str(each.product).rpartition("instruction_k=32")[2] for each in (slow, fast)] == [
        " k_cuts=[cut(span=128)])", ")",
    ]  # fmt: skip
    assert str(scaled(True, **SPLIT).product).endswith("k_cuts=[cut(span=128)])")
    assert str(slow.steps) == str(fast.steps) == "epilogue(steps=[step(name=multiply) step(name=convert dtype=bf16)])"
    assert "step(name=multiply) step(name=add operand_dtype=bf16) step(name=convert" in str(scaled(False, True).steps)


def test_scales_of_rows_and_columns_need_a_measured_version_of_pytorch() -> None:
    given = problem(finish=Finish(scales="row"))
    found = row_scaled_product_of(given, H100, "2.11.0+cu130")
    assert str(found.steps) == (
        "epilogue(steps=[step(name=multiply) step(name=multiply) step(name=convert dtype=bf16)])"
    )
    assert str(found.product).endswith("k_cuts=[cut(span=128)])")
    with pytest.raises(RowNotCovered, match=r"PyTorch decides which kernel .* with PyTorch 2\.11, not 2\.9"):
        row_scaled_product_of(given, H100, "2.9.1")


@pytest.mark.parametrize(
    ("sentence", "given"),
    [
        ("operand types are not multiplied", problem(a="bf16")),
        ("outputs of e4m3 are not measured", problem(out="e4m3")),
        ("this layout is not measured", problem(ld_a=512)),
        ("measured alone and with a bias", problem(finish=Finish(scales="tensor", addend="matrix", beta=1))),
        ("the nearest described call has an output of bf16 or fp16",
         problem(out="fp32", finish=Finish(scales="tensor", addend="vector", beta=1))),
    ],
)  # fmt: skip
def test_scaled_products_that_are_not_measured_are_named(sentence: str, given: GEMMProblem) -> None:
    with pytest.raises(CublasError, match=sentence):
        scaled_query(given, given.finish or Finish(scales="tensor"), 1 << 20)


def test_groups_are_one_pass_over_k() -> None:
    plain = GEMMProblem(m=3, n=8, k=48, a="bf16", b="bf16", out="bf16", finish=Finish())
    found = group_of(plain, H100, "2.11.0")
    assert str(found.product).endswith(
        "instruction=instruction(architecture=sm_90 family=wgmma k=16) instruction_k=16)"
    )
    with pytest.raises(RowNotCovered, match=r"not 2\.12"):
        group_of(plain, H100, "2.12.0")
    halves = GEMMProblem(m=3, n=8, k=48, a="fp16", b="fp16", out="fp16", finish=Finish())
    with pytest.raises(RowNotCovered, match=r"groups of bf16.* are measured; others are products of their own"):
        group_of(halves, H100, "2.11.0")


def test_a_finish_has_no_query_of_its_own() -> None:
    given = GEMMProblem(m=4, n=64, k=32, a="fp16", b="fp16", out="fp16", finish=matrix())
    with pytest.raises(CublasError, match="with a matrix added is not described without a GPU"):
        query_of_problem(given)
    query = query_of_problem(plain_problem(given, matrix(), H100, "2.9.0"))
    assert (query.epilogue, query.workspace) == ("none", WORKSPACE)


def test_kernels_whose_order_is_not_known_are_declined_with_other_factors() -> None:
    for algorithm, stages, fused in ((16, 0, "operand"), (42, 35, "x"), (41, 35, "x")):
        fields = {"algorithm": algorithm, "stages": stages, "custom": 0}
        assert steps(matrix(0.5), "fp16", **fields) == axpby(0.5, 1.0, fused, "fp16")
    with pytest.raises(RowNotCovered, match="a vector added is not measured with this configuration on fp16"):
        steps(Finish(alpha=0.5, beta=1, addend="vector"), "fp16", algorithm=42, stages=35, custom=0)
    vector: dict[str, Any] = {"m": 1, "n": 500, "k": 4000, "algorithm": 13, "custom": 75, "stages": 0}
    assert "fused=operand" in str(finished("fp16", finish=Finish(alpha=0.5, beta=1, addend="vector"), **vector).steps)
    with pytest.raises(RowNotCovered, match="a vector added is not measured"):
        finished("fp16", finish=Finish(alpha=0.5, beta=1, addend="vector"), **{**vector, "custom": 3})


def test_one_row_with_a_matrix_that_is_only_added_has_the_query_of_a_bias() -> None:
    def epilogue(m: int, finish: Finish, **fields: Any) -> str:
        given = GEMMProblem(m=m, n=64, k=32, a="fp16", b="fp16", out="fp16", finish=finish, **fields)
        return plain_problem(given, finish, H100, "2.11.0").epilogue

    assert epilogue(1, matrix(0.5)) == epilogue(7, Finish(beta=1, addend="vector")) == "bias"
    assert epilogue(7, Finish(beta=1, addend="row")) == "bias"
    assert epilogue(1, matrix(0.5, 2.0)) == epilogue(2, matrix()) == epilogue(1, matrix(), batch=3) == "none"
    with pytest.raises(CublasError, match=r"with PyTorch 2\.11, not 2\.10"):
        plain_problem(GEMMProblem(m=1, n=64, k=8, a="fp16", b="fp16", out="fp16"), matrix(), H100, "2.10.0")
    one = GEMMProblem(m=1, n=64, k=1, a="fp16", b="fp16", out="fp16", finish=matrix())
    with pytest.raises(CublasError, match="one value of k is measured with another beta only"):
        plain_problem(one, matrix(), H100, "2.11.0")
    with pytest.raises(CublasError, match="one value of k is measured with another beta only"):
        plain_problem(one, Finish(alpha=2, beta=1, addend="vector"), H100, "2.11.0")


def test_batches_of_one_element_are_described_where_their_sums_are() -> None:
    lanes = replace(NVJET, algorithm=13, stages=0, tile=0, custom=75, cluster_shape=0)
    added = matrix(0.5, 0.3)
    for dtype in ("bf16", "fp16", "fp32"):
        for custom in (10, 75):
            query = gemm_query(1, 1, 1000, dtype, batch=3, transpose_a=True, transpose_b=True)
            found = finished_product_of(query, replace(lanes, custom=custom), H100, added, 0)
            assert found.steps.steps[0] == Step(
                name="axpby", value=0.5, operand_value=0.3, fused="x", operand_dtype=dtype
            )  # fmt: skip
            alone = descriptor_of(query, replace(lanes, custom=custom), H100)
            assert alone == descriptor_of(replace(query, batch=1), replace(lanes, custom=custom), H100)
    scaled = replace(lanes, custom=11)
    assert finished_product_of(query, scaled, H100, matrix(1.0, 0.3), 0).scaled == "none"
    with pytest.raises(RowNotCovered, match="which operand alpha multiplies is not measured for batches of one"):
        finished_product_of(query, scaled, H100, added, 0)
    with pytest.raises(RowNotCovered, match="batches are not measured for this shape by algorithm 20 on fp32"):
        finished_product_of(query, replace(lanes, algorithm=20, custom=0), H100, added, 0)
