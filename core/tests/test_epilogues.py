"""Epilogues: text and JSON, types, refused fields, and values by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import DescriptorError, Epilogue, Step, read
from bitwise_core.descriptors.evaluation import epilogue_tree, evaluate_epilogue
from bitwise_core.ir import Load, Node, Operation

SCALED = Epilogue.of(
    "bias", Step(name="scale", value=0.5), Step(name="clamp", low=-2.0, high=3.0),
    Step(name="convert", dtype="e4m3", saturate=True),
)  # fmt: skip


def halves(*values: float) -> Any:
    return np.array([values], dtype=np.float16)


def evaluated(epilogue: Epilogue, *values: float, operands: tuple[Any, ...] = (), **options: Any) -> list[float]:
    found = evaluate_epilogue(epilogue, "fp16", halves(*values), operands, **options)
    assert found.dtype == np.uint16
    return [float(each) for each in found.view(np.float16).ravel()]


def test_the_forms_of_an_epilogue_are_read_back() -> None:
    text = SCALED.to_text()
    assert text == (
        "epilogue(steps=[step(name=bias) step(name=scale value=0.5) step(name=clamp low=-2.0 high=3.0) "
        "step(name=convert dtype=e4m3 saturate=true)])"
    )
    assert Epilogue.from_text(text) == read(text) == Epilogue.from_json(SCALED.to_json()) == SCALED
    assert hash(Epilogue.from_text(text)) == hash(SCALED)


def test_the_types_follow_from_that_of_the_product() -> None:
    found = Epilogue.of("bias", Step(name="convert", dtype="fp32"), "add", Step(name="convert", dtype="e5m2"))
    assert found.types("bf16") == ("bf16", "fp32", "fp32", "e5m2")
    assert (found.operands, found.operand_types("bf16")) == (("bias", "add"), ("bf16", "fp32"))
    assert found.output_dtype("bf16") == "e5m2"


def test_numbers_are_rounded_to_fp32() -> None:
    assert Step(name="scale", value=0.1) == Step(name="scale", value=float(np.float32(0.1)))


INVALID: list[tuple[str, dict[str, Any]]] = [
    ("scale needs value", {"name": "scale"}),
    ("relu has no value", {"name": "relu", "value": 1.0}),
    ("clamp needs high", {"name": "clamp", "low": 0.0}),
    (r"clamp from 2\.0 to 1\.0: low is at most high", {"name": "clamp", "low": 2.0, "high": 1.0}),
    ("convert needs dtype", {"name": "convert"}),
    ("there is no floating-point type 'int8'", {"name": "convert", "dtype": "int8"}),
    ("saturate applies to a conversion to e4m3 or e5m2", {"name": "convert", "dtype": "fp16", "saturate": True}),
    ("is not a finite number of fp32", {"name": "scale", "value": 1e39}),
    (r"-0\.0 equals 0\.0", {"name": "scale", "value": -0.0}),
    ("there is no such field", {"name": "relu", "slope": 1}),
    ("clamp keeps a NaN", {"name": "clamp", "low": 0.0, "high": 1.0, "nan": "zero"}),
]


@pytest.mark.parametrize(("sentence", "fields"), INVALID)
def test_invalid_steps_are_refused(sentence: str, fields: dict[str, Any]) -> None:
    with pytest.raises(DescriptorError, match=sentence):
        Step(**fields)


def test_invalid_epilogues_are_refused() -> None:
    with pytest.raises(DescriptorError, match="an epilogue has at least one step"):
        Epilogue(steps=())
    with pytest.raises(DescriptorError, match=r"the epilogue has 1 operands \(bias\), and 0 are given"):
        evaluated(SCALED, 1.0)
    with pytest.raises(DescriptorError, match=r"the operand of bias must have the shape \(2\) here, not \(3,\)"):
        evaluated(SCALED, 1.0, 2.0, operands=(np.zeros(3, dtype=np.float16),))
    with pytest.raises(DescriptorError, match="silu has no formula; those with one are: none"):
        evaluated(Epilogue.of("silu"), 1.0)


def test_each_step_rounds() -> None:
    # 2049 is no number of fp16: the sum rounds to 2048, so that the next one does too.
    one = np.ones(1, dtype=np.float16)
    assert evaluated(Epilogue.of("bias", "add"), 2048.0, operands=(one, one.reshape(1, 1))) == [2048.0]
    assert evaluated(Epilogue.of(Step(name="scale", value=0.1)), 3.0) == [float(np.float16(np.float32(0.1) * 3))]
    product = halves(3.0, -5.0)
    assert evaluated(Epilogue.of("multiply"), 0.5, 2.0, operands=(product,)) == [1.5, -10.0]


def test_special_values() -> None:
    infinity, nan = float("inf"), float("nan")
    found = evaluated(Epilogue.of("relu"), -0.0, -1.0, 2.0, -infinity, nan)
    assert found[:4] == [0.0, 0.0, 2.0, 0.0]
    assert not np.signbit(found[0])
    assert np.isnan(found[4])
    found = evaluated(Epilogue.of(Step(name="relu", nan="zero")), -0.0, -1.0, 2.0, infinity, nan)
    assert found == [0.0, 0.0, 2.0, infinity, 0.0]
    assert not np.signbit(found).any()
    found = evaluated(Epilogue.of(Step(name="clamp", low=-1.0, high=2.0)), -infinity, 0.5, 9.0, nan)
    assert found[:3] == [-1.0, 0.5, 2.0]
    assert np.isnan(found[3])


def test_overflows_of_8_bits() -> None:
    given = halves(448.0, 464.0, 465.0, -465.0, float("inf"), float("nan"), 57344.0, 61440.0, -65504.0)
    wanted = {
        ("e4m3", False): [0x7E, 0x7E, 0x7F, 0xFF, 0x7F, 0x7F, 0x7F, 0x7F, 0xFF],
        ("e4m3", True): [0x7E, 0x7E, 0x7E, 0xFE, 0x7E, 0x7F, 0x7E, 0x7E, 0xFE],
        ("e5m2", False): [0x5F, 0x5F, 0x5F, 0xDF, 0x7C, 0x7F, 0x7B, 0x7C, 0xFC],
        ("e5m2", True): [0x5F, 0x5F, 0x5F, 0xDF, 0x7B, 0x7F, 0x7B, 0x7B, 0xFB],
    }
    for (dtype, saturate), patterns in wanted.items():
        epilogue = Epilogue.of(Step(name="convert", dtype=dtype, saturate=saturate))
        assert evaluate_epilogue(epilogue, "fp16", given).tolist() == [patterns], (dtype, saturate)


def test_formulas_may_depend_on_the_type() -> None:
    def doubled(x: Node) -> Node:
        return Operation("add.rn.fp32", (x, x))

    def squared(x: Node) -> Node:
        return Operation("mul.rn.fp32", (x, x))

    both = {"silu": doubled, "silu.fp16": squared}
    assert evaluated(Epilogue.of("silu"), 3.0, formulas=both) == [9.0]
    assert evaluated(Epilogue.of("silu"), 3.0, formulas={"silu": doubled}) == [6.0]
    gate = halves(5.0)
    assert evaluated(Epilogue.of("swiglu"), 3.0, operands=(gate,), formulas=both) == [75.0]
    tree = epilogue_tree(Epilogue.of("silu"), "bf16", Load("product", 0, 16), both)
    assert tree.bits == 16
