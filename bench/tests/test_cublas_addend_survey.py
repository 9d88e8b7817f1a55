"""The survey of orders: the descriptions of each order, distinguished by evaluation, and the counts by kernel."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_bench.cublas.addend_survey import by_kernel, descriptions, with_fp16_sums
from bitwise_core.descriptors import GEMMDesc, Instruction
from bitwise_core.descriptors.problem import Finish, GEMMProblem

torch = pytest.importorskip("torch")

MATRIX = GEMMDesc(
    k=16, left_dtype="bf16", right_dtype="bf16", output_dtype="bf16", path="matrix", instruction_k=16,
    instruction=Instruction(architecture="sm_90", family="wgmma", k=16),
)  # fmt: skip
CHAIN = GEMMDesc(k=16, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma")


def results(desc: GEMMDesc, finish: Finish) -> dict[str, torch.Tensor]:
    from bitwise_torch.product_calls import product_of_form
    from bitwise_torch.product_forms import Form

    generator = torch.Generator().manual_seed(3)
    dtype = torch.bfloat16 if desc.left_dtype == "bf16" else torch.float32
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((48, 16), (16, 40)))
    addend = (-(finish.alpha / finish.beta) * (a.float() @ b.float())).to(dtype)
    problem = GEMMProblem(
        m=48, n=40, k=16, a=desc.left_dtype, b=desc.left_dtype, out=desc.output_dtype, finish=finish
    )  # fmt: skip
    form = Form(a, b, (addend,), problem)
    found = descriptions(desc, finish, desc.output_dtype, desc.left_dtype)
    return {order: product_of_form(each, form) for order, each in found}


@pytest.mark.parametrize(
    ("desc", "finish", "orders"),
    [
        (MATRIX, Finish(alpha=-1.3, beta=0.3, addend="matrix"), ("product_fused", "addend_fused", "both_rounded")),
        (MATRIX, Finish(alpha=-1.3, beta=1.0, addend="matrix"), ("product_fused", "addend_fused", "rounded")),
        (
            CHAIN, Finish(alpha=-1.3, beta=0.3, addend="matrix"),
            ("product_fused", "addend_fused", "both_rounded", "operand_a", "operand_b"),
        ),
    ],
)  # fmt: skip
def test_orders_are_told_apart(desc: GEMMDesc, finish: Finish, orders: tuple[str, ...]) -> None:
    found = results(desc, finish)
    assert tuple(found) == orders
    for place, one in enumerate(orders):
        assert all(not torch.equal(found[one], found[other]) for other in orders[place + 1 :])


def test_a_sum_and_an_addend_alone_have_one_result_unless_rounded_first() -> None:
    found = results(MATRIX, Finish(beta=1.0, addend="vector"))
    assert torch.equal(found["product_fused"], found["addend_fused"])
    assert not torch.equal(found["product_fused"], found["rounded"])


def test_relu_follows_the_addend() -> None:
    plain = results(MATRIX, Finish(beta=1.0, addend="vector"))
    for order, each in results(MATRIX, Finish(beta=1.0, addend="vector", activation="relu")).items():
        assert torch.equal(each, torch.relu(plain[order]))


def test_rows_are_counted_by_kernel() -> None:
    configuration = [13, 0, 0, 1, 0, 0, 48, 0, 0]
    row = ["elements", "vector", "fp32", 8, 9, 7, 1, "NN", 1.0, 1.0, configuration, ["product_fused"]]
    assert by_kernel([row, [*row[:-1], []], [*row[:8], 2.0, *row[9:]]]) == {
        "vector fp32 plain: algorithm 13, no slices, reduction 0, custom 48": {
            "calls": 2, "product_fused": 1, "none": 1,
        },
        "vector fp32 scaled: algorithm 13, no slices, reduction 0, custom 48": {"calls": 1, "product_fused": 1},
    }  # fmt: skip


def test_orders_of_sums_of_fp16_are_those_of_operations_of_fp16() -> None:
    sums = with_fp16_sums(MATRIX.model_copy(update={"left_dtype": "fp16", "right_dtype": "fp16"}))
    finish = Finish(alpha=0.1, beta=0.3, addend="matrix")
    found = dict(descriptions(sums, finish, "fp16", "fp16"))
    assert list(found) == ["product_fused in fp16", "addend_fused in fp16", "both_rounded in fp16"]
    for each in found.values():
        (step,) = (step for step in each.steps.steps if step.name == "axpby")
        assert (step.arithmetic, step.value, step.operand_value) == (
            "fp16",
            float(np.float16(0.1)),
            float(np.float16(0.3)),
        )


def test_chains_of_fp16_have_orders_of_fp16() -> None:
    chain = GEMMDesc(k=16, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma")
    found = [
        name
        for name, _ in descriptions(
            with_fp16_sums(chain), Finish(alpha=0.5, beta=0.25, addend="matrix"), "fp16", "fp16"
        )
    ]
    assert found == ["product_fused in fp16", "addend_fused in fp16", "both_rounded in fp16"]
