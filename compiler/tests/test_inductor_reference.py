"""The reference of a kernel: decided without a measurement, alike in every process."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_triton.inductor.reference import Reduction, Tile, predicted, reference_of

BF16 = {"in_ptr0": "*bf16", "out_ptr0": "*bf16", "xnumel": "i32"}


def launcher(warps: int, registers: int | None = None, spills: int | None = None, **blocks: int) -> Any:
    config = SimpleNamespace(kwargs=blocks, num_warps=warps)
    return SimpleNamespace(config=config, n_regs=registers, n_spills=spills)


def kernel(hint: str | None, sizes: Any, signature: dict[str, str] = BF16) -> Any:
    meta = {} if hint is None else {"reduction_hint": SimpleNamespace(name=hint)}
    return SimpleNamespace(inductor_meta=meta, size_hints=sizes, triton_meta={"signature": signature})


CONTIGUOUS, TILED = launcher(2, XBLOCK=2, R0_BLOCK=128), launcher(16, XBLOCK=64, R0_BLOCK=64)
NARROW, LONG = launcher(8, XBLOCK=64, R0_BLOCK=4), launcher(8, XBLOCK=1, R0_BLOCK=2048)


@pytest.mark.parametrize(
    ("hint", "sizes", "expected"),
    [
        # Columns of a matrix: a warp must read neighbours of one row.
        ("OUTER", {"x": 98304, "r0_": 128}, TILED),
        # Long rows: one row a block fills the GPU, and reads whole lines.
        ("INNER", {"x": 4096, "r0_": 32768}, LONG),
    ],
)
def test_the_direction_of_the_memory_decides(hint: str, sizes: dict[str, int], expected: Any) -> None:
    for order in permutations([CONTIGUOUS, TILED, NARROW, LONG]):
        assert reference_of(kernel(hint, sizes), order) is expected


def test_configurations_that_spill_come_last() -> None:
    good, spilled = launcher(2, 32, 0, XBLOCK=2, R0_BLOCK=128), launcher(16, 255, 40, XBLOCK=64, R0_BLOCK=64)
    outer = kernel("OUTER", {"x": 98304, "r0_": 128})
    assert reference_of(outer, [spilled, good]) is good
    assert reference_of(outer, [spilled]) is spilled


def test_the_first_of_equal_ones_is_taken() -> None:
    one, same = launcher(4, XBLOCK=8), launcher(4, XBLOCK=8)
    for order in ([one, same], [same, one]):
        assert reference_of(kernel("INNER", {"x": 65536, "r0_": 512}), order) is order[0]


@pytest.mark.parametrize("of", [kernel(None, {"x": 4096}), kernel("INNER", None), kernel("INNER", [4096, 128])])
def test_other_kernels_keep_their_first_configuration(of: Any) -> None:
    assert reference_of(of, [NARROW, TILED]) is NARROW


def test_registers_limit_the_blocks_of_a_processor() -> None:
    reduction = Reduction(outer=65536, reduced=512, element_bytes=2, contiguous=1.0)
    few, many = (predicted(reduction, Tile(8, 512, 4, registers)) for registers in (32, 255))
    assert few < many
    assert predicted(reduction, Tile(8, 512, 4, 0)) == few


@pytest.mark.parametrize("warps", [1, 4, 32])
@pytest.mark.parametrize("columns", [1, 64])
@pytest.mark.parametrize("kind", ["*fp8e4nv", "*i1", "*fp64"])
def test_every_configuration_has_a_time(kind: str, columns: int, warps: int) -> None:
    of = kernel("DEFAULT", {"x": 1, "r0_": 1}, {"x": kind, "n": "i32"})
    one = launcher(warps, 255, XBLOCK=columns)
    assert reference_of(of, [one]) is one
