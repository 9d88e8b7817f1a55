from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_units import HARDWARE, MMA, UNITS, array, normal, tree_value

from bitwise_core.descriptors import (
    Cut,
    DescriptorError,
    Digit,
    Fold,
    GEMMDesc,
    Instruction,
    ReductionDesc,
    Rotation,
    Share,
    Tail,
    index_bits,
    single_pass,
)
from bitwise_core.descriptors.evaluation import evaluate, evaluate_gemm, gemm_tree, reduction_tree
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.descriptors.k_axis import FILL, innermost_parts, instructions, parts_of
from bitwise_core.plugins import installed, registry
from bitwise_core.probing.reconstruction.equivalence import same_computation
from covering import examples


@st.composite
def cuts(draw: st.DrawFn, accumulator: str) -> Cut:
    kept = draw(st.sampled_from([accumulator, "fp32"])) if accumulator != "fp64" else "fp64"
    merged = kept if accumulator == "fp64" else draw(st.sampled_from(["fp32", "fp16", "bf16"]))
    if {kept, merged} == {"fp16", "bf16"}:
        merged = kept
    types: dict[str, Any] = {"partial_dtype": kept, "merge_dtype": merged}
    if draw(st.booleans()):
        types["merge"] = draw(st.sampled_from(["chain", "chain-down"]))
        types["start"] = draw(st.sampled_from(["first", "zero"]))
        count = draw(st.integers(1, 5))
    else:
        types["merge"], types["partial_dtype"] = draw(st.sampled_from(["neighbours", "halves"])), merged
        count = draw(st.sampled_from([1, 2, 4, 8]))
    tile = draw(st.integers(1, 4))
    if draw(st.booleans()):
        return Cut(layout="strided", count=count, tile=tile, **types)
    if types["merge"].startswith("chain") and draw(st.booleans()):
        return Cut(
            span=draw(st.integers(1, 9)), remainder=draw(st.sampled_from(["short-last", "short-first"])), **types
        )
    remainder = draw(st.sampled_from(["short-last", "short-first", "long-last", "long-first", "spread"]))
    return Cut(count=count, tile=tile, remainder=remainder, **types)


@st.composite
def products(draw: st.DrawFn) -> GEMMDesc:
    k = draw(st.integers(1, 24))
    fields: dict[str, Any] = {"k": k, "path": draw(st.sampled_from(["matrix", "matrix", "fma", "mul_add"]))}
    if fields["path"] == "matrix":
        row = draw(st.sampled_from(list(UNITS.values())))
        types = row.left, row.right, row.result
        if row.left == "fp16" and draw(st.booleans()):
            types, fields["multiplied_as"] = ("e4m3", draw(st.sampled_from(["e5m2", "fp16"])), row.result), "fp16"
        fields["instruction"] = Instruction(architecture="toy_1", family="mma", k=row.k)
        fields["instruction_k"] = draw(st.integers(1, row.k))
        fields["use_fast_accum"] = draw(st.booleans())
    else:
        types = draw(
            st.sampled_from([("fp16", "bf16", "fp32"), ("fp32", "fp32", "fp32"), ("tf32", "e4m3", "fp32")])
        )  # fmt: skip
    fields["left_dtype"], fields["right_dtype"], fields["accumulator_dtype"] = types
    fields["output_dtype"] = draw(st.sampled_from([types[2], "fp16", "e4m3", "bf16"]))
    fields["output_dtype"] = draw(st.sampled_from([fields["output_dtype"], "e4m3fnuz"]))
    fields["output_satfinite"] = draw(st.booleans())
    if fields["output_satfinite"] and fields["output_dtype"] in ("e4m3", "e4m3fnuz"):
        fields["output_nan_for_infinity"] = draw(st.booleans())
    step = draw(st.none() | st.integers(1, 9))
    if step is not None:
        fields["k_loop_step"], fields["short_iteration"] = step, "first"
        if draw(st.booleans()):
            fields["iteration_permutation"] = tuple(draw(st.permutations(range(step))))
            fields["short_iteration"] = draw(st.sampled_from(["first", "last"]))
        if draw(st.booleans()):
            fields["iteration_rotation"] = Rotation(
                axis=draw(st.sampled_from(["rows", "columns"])), tile=draw(st.integers(1, 2)), step=2,
                **draw(st.sampled_from([{"period": 3}, {"period": 4, "halved": True}])),
            )  # fmt: skip
    fields["k_cuts"] = tuple(draw(st.lists(cuts(types[2]), max_size=2)))
    fields["k_dropped"] = draw(st.integers(0, k - 1)) if draw(st.booleans()) else 0
    if fields["path"] != "matrix" and not fields["k_cuts"]:
        fields["accumulator_start"] = draw(st.sampled_from(["zero", "negative-zero"]))
    if all(cut.count and not cut.span for cut in fields["k_cuts"]) and fields.get("short_iteration") != "first":
        shares = tuple(
            draw(st.builds(Share, part=st.integers(0, cut.count - 1)) | st.builds(Share, tile=st.integers(1, 4)))
            for cut in fields["k_cuts"]
        )
        if (shares or fields.keys() & {"iteration_permutation", "iteration_rotation"}) and draw(st.booleans()):
            fields["tail"] = Tail(length=draw(st.integers(1, k - fields["k_dropped"])), shares=shares)
    last = fields["k_cuts"][0].merge_dtype if fields["k_cuts"] else types[2]
    if last != "fp64":
        scaling = draw(st.sampled_from(["none", "alpha", "operands"]))
        fields["alpha"] = -0.75 if scaling == "alpha" else 1.0
        fields["operand_scales"] = scaling == "operands"
    return GEMMDesc(**fields)


@pytest.mark.parametrize("path", ["fma", "mul_add"])
def test_a_sum_from_minus_zero_keeps_the_sign_of_zero_products(path: Any) -> None:
    a = np.array([[0.0], [-0.0], [3.0], [np.inf], [-1e-30]], dtype=np.float32)
    b = np.array([[1.0, -1.0, -0.0, 1e-30]], dtype=np.float32)
    kept, plain = (
        GEMMDesc(k=1, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path=path, accumulator_start=start)
        for start in ("negative-zero", "zero")
    )
    found = evaluate(kept, a.view(np.uint32), b.view(np.uint32)).view(np.float32)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(found, a * b, equal_nan=True)
        assert np.array_equal(np.signbit(found) & ~np.isnan(found), np.signbit(a * b) & ~np.isnan(a * b))
    from_zero = evaluate(plain, a.view(np.uint32), b.view(np.uint32)).view(np.float32)
    assert np.signbit(found).sum() > np.signbit(from_zero).sum()
    assert GEMMDesc.from_text(kept.to_text()) == kept
    assert not same_computation(kept, plain, {})


def test_a_sum_from_minus_zero_has_no_cuts_and_no_matrix_unit() -> None:
    fields: dict[str, Any] = {"k": 8, "left_dtype": "fp32", "right_dtype": "fp32", "output_dtype": "fp32"}
    unit = Instruction(architecture="toy_1", family="mma", k=8)
    for more in ({"path": "fma", "k_cuts": (Cut(count=2),)},
                 {"path": "matrix", "instruction": unit, "instruction_k": 8}):  # fmt: skip
        with pytest.raises(DescriptorError, match="applies to a scalar path without cuts"):
            GEMMDesc(**fields, **more, accumulator_start="negative-zero")


def test_infinities_and_overflows_of_an_output_without_infinities() -> None:
    a = np.array([[1e4], [-1e4], [np.inf], [np.nan], [1.0], [-0.0]], dtype=np.float32)
    b = np.array([[1.0]], dtype=np.float32)
    plain = GEMMDesc(
        k=1, left_dtype="fp32", right_dtype="fp32", output_dtype="e4m3fnuz", path="fma", output_satfinite=True
    )
    kept = GEMMDesc(**{**dict(plain), "output_nan_for_infinity": True})
    assert evaluate(plain, a, b)[:, 0].tolist() == [0x7F, 0xFF, 0x7F, 0x80, 0x40, 0x00]
    assert evaluate(kept, a, b)[:, 0].tolist() == [0x7F, 0xFF, 0x80, 0x80, 0x40, 0x00]
    with pytest.raises(DescriptorError, match="needs output_satfinite and an output_dtype without infinities"):
        GEMMDesc(**{**dict(kept), "output_dtype": "e5m2"})


@given(desc=products(), tile=st.integers(0, 5))
@settings(max_examples=examples(400), deadline=None)
def test_every_k_is_summed_once(desc: GEMMDesc, tile: int) -> None:
    loops = [instructions(desc, part, tile).reshape(-1) for part in innermost_parts(parts_of(desc))]
    taken = np.concatenate(loops)
    assert np.array_equal(np.sort(taken[taken != FILL]), np.arange(desc.k - desc.k_dropped))


@given(data=st.data())
@settings(max_examples=examples(250), deadline=None)
def test_a_product_and_its_tree_have_the_same_bits(data: st.DataObject) -> None:
    desc = data.draw(products())
    m, n = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    a, b = array(data.draw, desc.left_dtype, m, desc.k), array(data.draw, desc.right_dtype, desc.k, n)
    scales = {"scale_a": 0.3, "scale_b": -1.7} if desc.operand_scales else {}
    found = evaluate(desc, a, b, hardware=HARDWARE, **scales)
    assert found.shape == (m, n)
    buffers = {"A": a, "B": b} | {
        name: np.array([value], dtype=np.float32).view(np.uint32) for name, value in scales.items()
    }
    row, column = data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, n - 1))
    assert tree_value(gemm_tree(desc, row, column, n), buffers) == found[row, column]


@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_reduction_and_its_tree_have_the_same_bits(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(2, 4), min_size=0, max_size=3))
    reach = int(np.prod(counts, dtype=int))
    length = data.draw(st.integers(1, reach))
    strides = np.cumprod([1, *counts])[:-1].tolist()
    digits = data.draw(st.permutations([Digit(stride=s, count=c) for s, c in zip(strides, counts, strict=True)]))
    folds = []
    while digits:
        mine = [digits.pop() for _ in range(data.draw(st.integers(1, len(digits))))]
        folds.append(
            Fold(
                **dict(mine[0]), order=data.draw(st.sampled_from(["chain", "chain-down"])),
                start=data.draw(st.sampled_from(["first", "zero"])), within=tuple(mine[1:]),
            )
        )  # fmt: skip
    padding = data.draw(st.sampled_from(["absent", "zero", "negative-zero"])) if length < reach else "absent"
    desc = ReductionDesc(
        length=length, dtype=data.draw(st.sampled_from(["fp16", "fp32"])),
        output_dtype=data.draw(st.sampled_from(["fp32", "bf16"])),
        folds=tuple(folds), padding=padding,
    )  # fmt: skip
    x = array(data.draw, desc.dtype, 2, length)
    found = evaluate(desc, x)
    assert found.shape == (2,)
    for row in (0, 1):
        assert tree_value(reduction_tree(desc), {"X": x[row]}) == found[row]


def test_the_blocking_does_not_affect_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(9)
    a, b = normal(generator, 11, 60), normal(generator, 60, 13)
    for axis in ("rows", "columns"):
        desc = GEMMDesc(
            k=60, left_dtype="fp16", right_dtype="fp16", output_dtype="fp32", path="matrix", instruction=MMA,
            instruction_k=4, k_loop_step=8, iteration_rotation=Rotation(axis=axis, tile=3, period=4),
            k_cuts=(Cut(count=2),),
        )  # fmt: skip
        whole = evaluate(desc, a, b, hardware=HARDWARE)
        monkeypatch.setattr("bitwise_core.descriptors.evaluation.gemm.ELEMENTS", 10)
        assert np.array_equal(evaluate(desc, a, b, hardware=HARDWARE), whole)
        monkeypatch.undo()
        for row in range(11):
            for column in (0, 5, 12):
                buffers = {"A": a, "B": b}
                assert tree_value(gemm_tree(desc, row, column, 13), buffers) == whole[row, column]


def test_the_installed_rows_and_functions_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = {"two_to@toy_1": np.exp2}
    records = [SimpleNamespace(bits=SimpleNamespace(functions=functions)), SimpleNamespace(bits=None)]
    arches = SimpleNamespace(loadable=records)
    found = replace(registry.load([]), matrix_units=UNITS, arches=arches)  # type: ignore[arg-type]
    assert found.hardware == Hardware(UNITS, functions)
    monkeypatch.setattr(registry, "default", lambda: found)
    generator = np.random.default_rng(6)
    a, b = normal(generator, 3, 20), normal(generator, 20, 5)
    desc = single_pass(20, "fp16", MMA)
    assert np.array_equal(installed.evaluate(desc, a, b), evaluate(desc, a, b, hardware=HARDWARE))
    with pytest.raises(DescriptorError, match="no plugin has matrix units of toy_1"):
        evaluate(desc, a, b)


def test_float_operands_of_any_stride() -> None:
    generator = np.random.default_rng(4)
    a, b = normal(generator, 3, 20), normal(generator, 20, 5)
    desc = single_pass(20, "fp16", MMA)
    expected = evaluate(desc, a, b, hardware=HARDWARE)
    strided = np.repeat(a, 2, axis=1)[:, ::2].view(np.uint16)
    assert np.array_equal(evaluate(desc, strided, np.asfortranarray(b), hardware=HARDWARE), expected)
    assert np.array_equal(
        evaluate(desc, a.view(np.float16), b[::-1][::-1].view(np.float16), hardware=HARDWARE), expected
    )


@pytest.mark.parametrize(
    ("changes", "a", "b", "options", "message"),
    [
        ({}, (2, 5), (4, 2), {}, "a must have the shape (any, 4) here, not (2, 5)"),
        ({}, (2, 4), (4,), {}, "b must have the shape (4, any) here, not (4,)"),
        ({}, (0, 4), (4, 2), {}, "a must have the shape (any, 4) here, not (0, 4)"),
        (
            {}, (2, 4), (4, 2), {"scale_a": 1.0},
            "this descriptor has no scales of operands: leave scale_a and scale_b out",
        ),
        ({"operand_scales": True}, (2, 4), (4, 2), {}, "this descriptor scales its operands: give scale_a and scale_b"),
        (
            {"operand_scales": True}, (2, 4), (4, 2), {"scale_a": float("nan"), "scale_b": 1.0},
            "scale_a is nan: a scale is a finite number of fp32",
        ),
        (
            {"instruction": Instruction(architecture="toy_2", family="mma", k=4)}, (2, 4), (4, 2), {},
            "no plugin has matrix units of toy_2: there are toy_1",
        ),
        (
            {"instruction": Instruction(architecture="toy_1", family="mma", k=16)}, (2, 4), (4, 2), {},
            "mma of toy_1 takes fp16 times fp16 accumulated in fp32 with k = 4, not 16",
        ),
        (
            {"instruction": Instruction(architecture="toy_1", family="wide", k=4)}, (2, 4), (4, 2), {},
            "toy_1 takes fp16 times fp16 accumulated in fp32 by mma, not by 'wide'",
        ),
        (
            {"right_dtype": "bf16"}, (2, 4), (4, 2), {},
            "toy_1 has no unit of fp16 times bf16 accumulated in fp32; it has bf16 times bf16 in fp32, "
            "e4m3 times e5m2 in fp32, fp16 times fp16 in fp16, fp16 times fp16 in fp32, fp64 times fp64 in fp64",
        ),
    ],
)  # fmt: skip
def test_invalid_operands_are_refused_with_the_reason(
    changes: dict[str, Any], a: tuple[int, ...], b: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    desc = GEMMDesc(**{**dict(single_pass(4, "fp16", MMA)), **changes})
    with pytest.raises(DescriptorError) as caught:
        evaluate(desc, np.zeros(a, np.uint16), np.zeros(b, np.uint16), hardware=HARDWARE, **options)
    assert str(caught.value) == message


def test_operands_of_another_type_are_refused() -> None:
    desc = single_pass(4, "fp16", MMA)
    with pytest.raises(DescriptorError, match="a holds fp16: give its patterns as an array of uint16 or float16"):
        evaluate(desc, np.zeros((1, 4), np.float32), np.zeros((4, 1), np.uint16), hardware=HARDWARE)
    with pytest.raises(DescriptorError, match="a GEMMDesc takes a and b, not 1 operands"):
        evaluate(desc, np.zeros((1, 4), np.uint16))
    with pytest.raises(DescriptorError, match="a is not an array"):
        evaluate_gemm(desc, [[1, 2], [3]], np.zeros((4, 1), np.uint16), hardware=HARDWARE)
    with pytest.raises(DescriptorError, match=r"x must have the shape \(any, 4\) here, not \(2, 5\)"):
        evaluate(index_bits(4), np.zeros((2, 5), np.float32))
    with pytest.raises(DescriptorError, match="and is a single value"):
        evaluate(index_bits(4), np.float32(3.0))
    with pytest.raises(
        DescriptorError, match="a Cut cannot be evaluated: give one of GEMMDesc, ReductionDesc, AttentionDesc"
    ):
        evaluate(Cut(span=3))
