"""Descriptors against the oracle: the bytes of random kernels on random calls, and which k they sum."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from tensile_order import accumulate, order_of

from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.evaluation.matrix_units import unit_of
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.descriptors.k_axis import FILL, innermost_parts, instructions, parts_of
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation, storage
from bitwise_rocblas_profiles.coverage import call_for
from bitwise_rocblas_profiles.describe import Stagger, describe, types_of
from bitwise_rocblas_profiles.errors import Declined
from bitwise_rocblas_profiles.libraries import transposed
from bitwise_rocblas_profiles.problem import Call
from bitwise_rocblas_profiles.tables import LogicFile, Solution, bundled

UNITS = {row.name: row for row in ROWS}
HARDWARE = Hardware(UNITS)


@cache
def kernels() -> tuple[tuple[LogicFile, Solution], ...]:
    """Return one described kernel for each distinct set of parameters of each generator and type."""
    known, found = set(), []
    for table in bundled():
        for file in table.files:
            types = types_of(file.problem)
            for number, solution in enumerate(file.solutions):
                key = table.generator, types.multiplied, types.d, tuple(map(str, solution.bits.values()))
                if key in known:
                    continue
                known.add(key)
                try:
                    describe(solution, file, call_for(file, number), "N")
                except Declined:
                    continue
                found.append((file, solution))
    return tuple(found)


def drawn(source: np.random.Generator, dtype: str, shape: tuple[int, int]) -> Bits:
    """Return patterns of numbers whose sums round: both signs, some binades, zeros of both signs and tiny numbers."""
    form = FLOAT_FORMATS[dtype]
    width = form.exponent_bits + form.mantissa_bits
    exponent = source.integers(max(1, form.bias - 4), form.bias + 4, shape, dtype=np.uint64)
    value = exponent << np.uint64(form.mantissa_bits) | source.integers(
        0, 1 << form.mantissa_bits, shape, dtype=np.uint64
    )
    value = np.where(source.random(shape) < 0.05, source.integers(0, 3, shape, dtype=np.uint64), value)
    value |= source.integers(0, 2, shape, dtype=np.uint64) << np.uint64(width)
    if form.nan == "negative_zero":
        value = np.where(value == 1 << width, 0, value)
    return (value << np.uint64(form.padding)).astype(storage(form.bits))


def converted(values: np.ndarray[Any, np.dtype[np.float32]], desc: GEMMDesc) -> Bits:
    bits: Bits = values.view(np.uint32)
    if desc.output_dtype == "fp32":
        return bits
    if not desc.output_satfinite:
        return operation(f"convert.rn.{desc.output_dtype}.fp32").evaluate(bits)
    largest = {"e4m3fnuz": 240.0, "e5m2fnuz": 57344.0}[desc.output_dtype]
    clamped = np.where(np.isfinite(values), np.clip(values, -largest, largest), values).astype(np.float32)
    return operation(f"convert.rn.{desc.output_dtype}.fp32").evaluate(clamped.view(np.uint32))


def widened(patterns: Bits, source: str, target: str) -> Bits:
    return patterns if source == target else operation(f"convert.rn.{target}.{source}").evaluate(patterns)


def a_call(source: random.Random, file: LogicFile, solution: Solution) -> Call:
    """Return a call with few outputs in some tiles, and few iterations in each slice."""
    bits, types = solution.bits, types_of(file.problem)
    depth, slices = bits["DepthU"], bits["GlobalSplitU"] or 1
    count = source.choice((0, 1, slices, slices + 1, source.randint(1, 9 * slices), source.randint(1, 3 * slices)))
    tail = source.choice((0, 1, depth - 1, source.randrange(depth)))
    k = depth * max(1, count) if bits["NoTailLoop"] else depth * count + tail
    m, n = source.choice((1, 2 * bits["MacroTile0"] + 1)), source.choice((1, 3 * bits["MacroTile1"] + 1))
    return Call(max(1, m), max(1, n), max(1, k), types.a, types.b, types.d, types.compute, multiplied=types.multiplied)


@pytest.mark.parametrize("seed", range(160))
def test_bytes_are_those_of_the_oracle(seed: int) -> None:
    source = random.Random(seed)
    while True:
        file, solution = source.choice(kernels())
        call = a_call(source, file, solution)
        # Long sums take long, and a short one runs the same code.
        if call.k <= 6000:
            break
    inverted = source.random() < 0.5
    chosen: Stagger = "N" if inverted else "M"
    lite = file.generator == "TensileLite"
    # In later generated kernels of this mapping all tiles start alike, which is declined.
    if lite and chosen == "M" and solution.bits["StaggerUMapping"] == 2 and solution.bits["StaggerU"]:
        chosen, inverted = "N", True
    desc = describe(solution, file, call, chosen)
    unit = unit_of(desc, UNITS)
    assert unit is not None
    generator = np.random.default_rng(seed)
    bits = solution.bits
    from_zero = bits["GlobalSplitUAlgorithm"] != "MultipleBufferSingleKernel"
    # Two rows and two columns of a tile show its order, and a tile is few rows high for the descriptor's evaluation.
    rows = [row for begin in range(0, call.m, bits["MacroTile0"]) for row in range(begin, min(begin + 2, call.m))]
    columns = [at for begin in range(0, call.n, bits["MacroTile1"]) for at in range(begin, min(begin + 2, call.n))]
    a = drawn(generator, desc.left_dtype, (len(rows), call.k))
    b = drawn(generator, desc.right_dtype, (call.k, len(columns)))
    small = desc
    if desc.iteration_rotation is not None:
        small = desc.model_copy(update={"iteration_rotation": desc.iteration_rotation.model_copy(update={"tile": 2})})
    found = evaluate(small, a, b, hardware=HARDWARE)
    left = widened(a, desc.left_dtype, desc.factor_dtypes[0])
    right = widened(b, desc.right_dtype, desc.factor_dtypes[1])
    for down in range(0, len(rows), 2):
        for across in range(0, len(columns), 2):
            tile = rows[down] // bits["MacroTile0"], columns[across] // bits["MacroTile1"]
            orders = order_of(bits, lite, call.k, tile, inverted)
            area = slice(down, down + 2), slice(across, across + 2)
            total = accumulate(unit, orders, left[area[0]], right[:, area[1]], from_zero)
            assert np.array_equal(found[area], converted(total, desc))


def test_every_k_is_summed_once() -> None:
    source = random.Random(5)
    for file, solution in source.sample(kernels(), 500):
        call = a_call(source, file, solution)
        if call.k > 20000:
            continue
        desc = describe(solution, file, call, "N")
        for tile in (0, 1, 5):
            taken = np.concatenate(
                [instructions(desc, part, tile).reshape(-1) for part in innermost_parts(parts_of(desc))]
            )
            assert np.array_equal(np.sort(taken[taken != FILL]), np.arange(desc.k))


def test_every_described_kernel_has_a_matrix_unit() -> None:
    names = set()
    for file, solution in kernels():
        desc = describe(solution, file, call_for(file, file.solutions.index(solution)), "N")
        assert unit_of(desc, UNITS) is not None
        names.add(desc.instruction_name)
    # Every row of these types is used by some kernel.
    assert names == {row.name for row in ROWS if row.result == "fp32"}


def test_the_transposed_product_has_the_transposed_bytes() -> None:
    generator = np.random.default_rng(3)
    file, solution = next(
        (file, solution)
        for file, solution in kernels()
        if file.generator == "Tensile"
        and solution.bits["StaggerU"]
        and types_of(file.problem).multiplied == ("F8", "B8")
        and types_of(file.problem).d == "S"
    )
    bits = solution.bits
    call = Call(2 * bits["MacroTile0"], bits["MacroTile1"], 64 * bits["DepthU"], "F8", "B8", "S")
    desc = describe(solution, file, call)
    assert desc.iteration_rotation is not None
    a, b = drawn(generator, desc.left_dtype, (call.m, call.k)), drawn(generator, desc.right_dtype, (call.k, 3))
    whole = evaluate(desc, a, b, hardware=HARDWARE)
    assert np.array_equal(evaluate(transposed(desc), b.T, a.T, hardware=HARDWARE), whole.T)
    unrotated = desc.model_copy(update={"iteration_rotation": None, "k_loop_step": None})
    assert not np.array_equal(evaluate(unrotated, a, b, hardware=HARDWARE), whole)


def test_the_oracle_tells_orders_apart() -> None:
    """Changing one rule of the oracle changes bytes of some kernel, so that equal bytes are evidence."""
    changes: dict[str, dict[str, Any]] = {
        "slices": {"GlobalSplitUCoalesced": 1}, "waves": {"LocalSplitU": 1}, "stagger": {"StaggerU": 0},
        "vectors": {"UnrollMajorLDSA": 0, "UnrollMajorLDSB": 0},
    }  # fmt: skip
    generator = np.random.default_rng(8)
    for name, change in changes.items():
        seen = 0
        for file, solution in kernels():
            bits = dict(solution.bits)
            depth, slices = bits["DepthU"], bits["GlobalSplitU"]
            k = depth * 9 * slices + depth // 2
            lite = file.generator == "TensileLite"
            if (
                any(bits[key] in (None, value) for key, value in change.items())
                or k > 4000
                or lite != (name == "slices")
            ):
                continue
            if name == "slices" and slices == 1:
                continue
            types = types_of(file.problem)
            if types.multiplied[0] in ("F8", "B8"):
                continue
            unit = UNITS[f"mfma_k{bits['MatrixInstruction'][2]}_fp32_{_fp(types.multiplied[0])}_fp32_gfx942"]
            a, b = (drawn(generator, _one(types.multiplied[0]), shape) for shape in ((4, k), (k, 4)))
            orders = [order_of(each, lite, k, (1, 1), True) for each in (bits, {**bits, **change})]
            if orders[0] == orders[1]:
                continue
            one, other = (accumulate(unit, each, a, b, True) for each in orders)
            assert not np.array_equal(one, other), name
            seen += 1
            if seen == 3:
                break
        assert seen == 3, name


def _one(kind: str) -> str:
    return {"S": "fp32", "H": "fp16", "B": "bf16", "X": "tf32"}[kind]


def _fp(kind: str) -> str:
    return f"{_one(kind)}_{_one(kind)}"


def test_a_period_that_only_some_slices_halve() -> None:
    """Slices of 8 and of 7 iterations: the longer ones rotate over 8 iterations, the shorter ones over 4."""
    generator = np.random.default_rng(11)
    seen = 0
    for file, solution in kernels():
        bits = solution.bits
        slices, depth = bits["GlobalSplitU"], bits["DepthU"]
        if file.generator != "TensileLite" or slices < 2 or (bits["StaggerU"] or 0) < 8 or bits["_staggerStrideShift"]:
            continue
        types = types_of(file.problem)
        k = depth * (7 * slices + 1)
        if k > 5000:
            continue
        rows = 8 * bits["MacroTile0"]
        call = Call(rows, 9 * bits["MacroTile1"], k, types.a, types.b, types.d, multiplied=types.multiplied)
        desc = describe(solution, file, call, "N")
        rotation = desc.iteration_rotation
        assert rotation is not None
        assert (rotation.period, rotation.step, rotation.halved) == (8, 1, True)
        unit = unit_of(desc, UNITS)
        assert unit is not None
        # One row and one column for each of eight tiles along the rotation's axis.
        small = desc.model_copy(update={"iteration_rotation": rotation.model_copy(update={"tile": 1})})
        shape = (8, 1) if rotation.axis == "rows" else (1, 8)
        a = drawn(generator, desc.left_dtype, (shape[0], k))
        b = drawn(generator, desc.right_dtype, (k, shape[1]))
        found = evaluate(small, a, b, hardware=HARDWARE).reshape(-1)
        left, right = (
            widened(a, desc.left_dtype, desc.factor_dtypes[0]),
            widened(b, desc.right_dtype, desc.factor_dtypes[1]),
        )
        from_zero = bits["GlobalSplitUAlgorithm"] != "MultipleBufferSingleKernel"
        for tile in range(8):
            row, column = (tile, 0) if rotation.axis == "rows" else (0, tile)
            orders = order_of(bits, True, k, (row, column), True)
            total = accumulate(unit, orders, left[row : row + 1], right[:, column : column + 1], from_zero)
            assert found[tile] == converted(total, desc)[0, 0]
        seen += 1
        if seen == 4:
            return
    pytest.fail("there are fewer than four such kernels")


def test_an_infinite_sum_is_stored_as_nan_in_eight_bits() -> None:
    file, solution = next((f, s) for f, s in kernels() if f.tag.startswith("F8H_HF8S"))
    desc = describe(solution, file, Call(2, 3, 5, "F8", "H", "F8", multiplied=("H", "H")), "N")
    a = np.full((2, 5), 0x40, dtype=np.uint8)
    b = np.array([[0x7C00, 0x7BFF, 0x3C00]] * 5, dtype=np.uint16)
    assert evaluate(desc, a, b, hardware=HARDWARE)[0].tolist() == [0x80, 0x7F, 0x52]
