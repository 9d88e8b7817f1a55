"""Products in stated orders: their plans, their simulated bytes, and what the checker says of their kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_amd_gfx942.opcodes.matrices import matrix_accumulators
from bitwise_amd_gfx942.products.ordered_plan import Order, order_of
from bitwise_amd_gfx942.products.plan import Plan, compile_kernel, plan_product
from bitwise_core.checker import analysis
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Instruction, Rotation, Share, Tail
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.numerics import FLOAT_FORMATS, storage

HARDWARE = Hardware({row.name: row for row in ROWS})
PAIRS = tuple(begin + place for begin in (0, 32) for place in (0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27,
                                                               4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                                                               31))  # fmt: skip
"""k of two fp16 instructions in 32, in the order of lanes that read eight k each, twice."""


def gemm(k: int, dtype: str = "fp16", native: int = 16, **fields: object) -> GEMMDesc:
    return GEMMDesc(
        k=k, left_dtype=dtype, right_dtype=dtype, path="matrix", instruction_k=native,
        instruction=Instruction(architecture="gfx942", family="mfma", k=native), **{"output_dtype": "fp32", **fields},
    )  # fmt: skip


STRIDED = Cut(layout="strided", count=3, tile=64, start="zero")
SPREAD = Cut(count=3, tile=64, remainder="spread")
WAVES = Cut(layout="strided", count=2, tile=32)
WIDE = Cut(layout="strided", count=3, tile=128)
ORDERS = {
    "slices": (gemm(300, k_cuts=(STRIDED,)), Order(16, 4, 64, slices=3, from_zero=True, owner=1, each=16)),
    "contiguous slices": (
        gemm(300, k_cuts=(SPREAD,), tail=Tail(length=44, shares=(Share(part=2),))),
        Order(16, 4, 64, slices=3, contiguous=True, owner=2, each=16),
    ),
    "waves": (
        gemm(300, k_cuts=(Cut(layout="strided", count=4, tile=16),), tail=Tail(length=44, shares=(Share(tile=16),))),
        Order(16, 4, 64, waves=4, each=16),
    ),
    "everything": (
        gemm(
            700, k_cuts=(WIDE, WAVES), k_loop_step=64,
            iteration_permutation=PAIRS, output_dtype="bf16",
            iteration_rotation=Rotation(axis="columns", tile=32, period=4, halved=True),
            tail=Tail(length=60, shares=(Share(part=2), Share(tile=16))),
        ),
        Order(16, 5, 128, slices=3, waves=2, spread=2, each=4, period=4, halvings=2, tile=32, by_columns=True, owner=2),
    ),
    "a tail alone": (
        gemm(50, k_cuts=(WIDE, WAVES), tail=Tail(length=50, shares=(Share(), Share(tile=16)))),
        Order(16, 0, 128, slices=3, waves=2, each=16),
    ),
    "one chain of fp32": (gemm(37, "fp32", 4), Order(4, 9, 4, each=4)),
    "rotated tf32": (
        gemm(136, "tf32", 8, k_loop_step=32, iteration_rotation=Rotation(axis="rows", tile=64, period=2, step=2)),
        Order(8, 4, 32, period=2, step=2, tile=64, each=8),
    ),
    "eight bits": (gemm(100, "e5m2fnuz", 32, k_cuts=(Cut(layout="strided", count=2, tile=32),)), None),
}  # fmt: skip


def random_patterns(dtype: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Return patterns of both signs over nine binades, with full significands."""
    form = FLOAT_FORMATS[dtype]
    generator = np.random.default_rng(seed)
    fraction = generator.integers(0, 1 << form.mantissa_bits, shape, dtype=np.uint64)
    exponent = generator.integers(form.bias - 4, form.bias + 5, shape, dtype=np.uint64)
    sign = generator.integers(0, 2, shape, dtype=np.uint64) << np.uint64(form.exponent_bits + form.mantissa_bits)
    return ((sign | exponent << np.uint64(form.mantissa_bits) | fraction) << np.uint64(form.padding)).astype(
        storage(form.bits)
    )


def source_of(desc: GEMMDesc, plan: Plan, m: int, n: int, name: str = "k") -> Source:
    arguments: list[dict[str, object]] = [{"buffer": each} for each in "abc"]
    arguments += [{"i32": each} for each in plan.numbers(m, n, desc)]
    grid = [-(-m // plan.block[0]), -(-n // plan.block[1])]
    file = f"{name}.amdgcn"
    launch = Launch.model_validate({"file": file, "grid": grid, "block": [64 * plan.warps], "args": arguments})
    return Source(file, compile_kernel(plan, desc).asm["amdgcn"], launch)


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize("most", [0, 1, 5])
def test_when_steps_are_computed_does_not_matter(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    desc, _ = ORDERS["everything"]
    source = source_of(desc, plan_product(desc), 40, 48)
    buffers = {"a": 1, "b": 2, "c": 3}
    expected = analysis.analyse(source, GFX942, buffers, Options())
    if most:
        monkeypatch.setattr(matrix_accumulators, "MAXIMUM_DEFERRED", most)
    else:
        monkeypatch.setattr(matrix_accumulators, "may_be_deferred", lambda *_: False)
    assert expected.signature is not None
    assert analysis.analyse(source, GFX942, buffers, Options()).signature == expected.signature


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_a_descriptor(name: str) -> None:
    desc, order = ORDERS[name]
    found = order_of(desc)
    assert found is not None
    assert order is None or found == order
    assert plan_product(desc).order == found


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize("name", ORDERS)
def test_the_kernel_stores_the_bytes_of_its_descriptor(name: str) -> None:
    desc, _ = ORDERS[name]
    m, n = {"rotated tf32": (70, 3), "everything": (5, 100)}.get(name, (20, 24))
    a, b = random_patterns(desc.left_dtype, (m, desc.k), 1), random_patterns(desc.right_dtype, (desc.k, n), 2)
    prepared = prepare(source_of(desc, plan_product(desc), m, n), GFX942, Options())
    contents = {name: each.reshape(-1).view(np.uint8) for name, each in (("a", a), ("b", b))}
    size = m * n * FLOAT_FORMATS[desc.output_dtype].bits // 8
    found = simulate(prepared, {**contents, "c": np.zeros(size, np.uint8)}).after["c"].tobytes()
    assert found == evaluate(desc, a, b, hardware=HARDWARE).tobytes()


@pytest.mark.usefixtures("without_machine_code")
def test_the_checker_tells_orders_apart() -> None:
    desc, _ = ORDERS["slices"]
    plan = plan_product(desc)
    one = source_of(desc, plan, 20, 24, "one")
    small = replace(plan, block=(32, 32, plan.block[2]))
    verdicts = [
        compare(one, other, GFX942, Options()).verdict.outcome
        for other in (
            source_of(desc, small, 20, 24, "small"),
            source_of(gemm(300), plan_product(gemm(300)), 20, 24, "chain"),
        )
    ]
    assert verdicts == [Outcome.EQUAL, Outcome.UNPROVED]


@pytest.mark.parametrize(
    ("desc", "sentence"),
    [
        (gemm(300, k_cuts=(STRIDED, STRIDED, WAVES)), "the order of this sum is not that of slices of whole"),
        (gemm(300, k_cuts=(Cut(count=3, tile=64),)), "the order of this sum is not that of slices"),
        (gemm(300, k_cuts=(Cut(layout="strided", count=4, tile=64, merge="halves"),)), "the order of this sum is not"),
        (gemm(300, k_cuts=(STRIDED,), k_loop_step=64, short_iteration="first"), "the order of this sum is not that"),
        (gemm(300, k_loop_step=64, iteration_permutation=tuple(reversed(range(64)))), "the order of this sum is not"),
        (gemm(300, k_loop_step=64, iteration_permutation=PAIRS), "the order of this sum is not that of slices"),
        (
            gemm(300, k_loop_step=64, iteration_rotation=Rotation(axis="rows", tile=24, period=2)),
            "a rotation by tiles of 24 cuts through an instruction of 16 rows and columns: choose another tile",
        ),
        (gemm(300, k_cuts=(STRIDED,), output_dtype="e4m3fnuz"), "accumulate all k in fp32 and store fp32, fp16, bf16"),
        (gemm(300, "fp16", 4, k_cuts=(STRIDED,)), "fp16_fp16_fp32_gfx942 is not supported in a stated order"),
        (
            gemm(64, "e4m3fnuz", 32).model_copy(update={"right_dtype": "e5m2fnuz"}),
            "the compiler exchanges the types of e4m3fnuz and e5m2fnuz: use operands of one type",
        ),
        (
            GEMMDesc(
                k=9, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma", k_cuts=(Cut(count=2),)
            ),
            "the path fma has one accumulator and ascending k on gfx942: leave k_cuts and k_loop_step out",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_other_orders_are_refused(desc: GEMMDesc, sentence: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        plan_product(desc)
    assert sentence in str(caught.value)
