"""Kernels of rows, compiled here and simulated: their bytes are those of the stated order, for any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_nvidia_sm90.approximations import power_of_two_with_subnormals
from bitwise_nvidia_sm90.gemm.launch import KernelCall
from bitwise_torch.batch_invariance import row_evaluation
from bitwise_torch.batch_invariance.row_evaluation import Floats, lanes_of
from bitwise_torch.batch_invariance.row_functions import column_geometry, geometry
from gemm_products import Matrix, run, source

pytest.importorskip("triton")

LENGTHS = [1, 5, 128, 200, 1024, 9000]
"""Several rows of a program, one, and rows of several rounds of lanes."""


def exponential(x: Floats) -> Floats:
    scaled = np.ascontiguousarray(x * np.float32(1.4426950408889634)).view(np.uint32)
    return power_of_two_with_subnormals(scaled).view(np.float32)


def numbers(shape: tuple[int, int], seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def simulated(name: str, rows: int, length: int, outputs: dict[str, Any], constants: dict[str, Any],
              numbers: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Bits]:  # fmt: skip
    """Simulate a kernel; `inputs` are matrices of fp32, or None; `outputs` are shapes and types by name."""
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    sizes, warps = geometry(length)
    state = {each: np.ascontiguousarray(values).view(np.uint8).ravel() for each, values in inputs.items()}
    given: dict[str, Any] = {each: Matrix(each, values.shape, (), "fp32") for each, values in inputs.items()}
    for each, (shape, dtype) in outputs.items():
        state[each] = np.full(int(np.prod(shape)) * FLOAT_FORMATS[dtype].bits // 8, 0xA5, dtype=np.uint8)
        given[each] = Matrix(each, shape, (), dtype)
    given |= {"rows": rows, "length": length, **(numbers or {})}
    options: dict[str, Any] = {"num_warps": warps, "enable_fp_fusion": False}
    call = KernelCall(getattr(kernels, name), (-(-rows // sizes["ROWS"]),), given, {**constants, **sizes}, options)
    run(source(call), state)
    return {
        each: state[each].view(storage(FLOAT_FORMATS[dtype].bits)).reshape(shape)
        for each, (shape, dtype) in outputs.items()
    }


def counts(length: int) -> list[int]:
    """Numbers of rows below, at and above those of a program."""
    height = geometry(length)[0]["ROWS"]
    return sorted({1, max(1, height - 1), height, height + 1}) if height <= 8 else [1, 3]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mean", [False, True])
def test_sums_have_the_bytes_of_the_order_for_every_number_of_rows(length: int, mean: bool) -> None:
    x = numbers((9, length), length)
    wanted = (row_evaluation.means if mean else row_evaluation.sums)(x)
    assert wanted.tobytes() != (x.mean(axis=1) if mean else x.sum(axis=1)).tobytes() or length < 8
    for rows in counts(length):
        found = simulated(
            "sum_of_rows", rows, length, {"out": ((rows,), "fp32")}, {"DIVIDE": mean},
            {"divisor": float(length), "part": length}, x=x[-rows:],
        )  # fmt: skip
        assert found["out"].tobytes() == wanted[-rows:].tobytes()


@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_has_the_bytes_of_the_order_for_every_number_of_rows(length: int) -> None:
    x = numbers((9, length), length) * np.float32(4)
    x[:, length // 2] = -np.inf if length > 1 else 1.0
    wanted = row_evaluation.softmax(x, False, exponential)
    for rows in counts(length):
        out = {"out": ((rows, length), "fp32")}
        assert simulated("softmax_of_rows", rows, length, out, {"LOG": False}, x=x[-rows:])["out"].tobytes() == (
            wanted[-rows:].tobytes()
        )
    # The logarithm of the sum is that of the greatest number of the row.
    found = simulated("softmax_of_rows", 1, length, {"out": ((1, length), "fp32")}, {"LOG": True}, x=x[:1])["out"]
    values = found.view(np.float32)
    logarithm = -values[:, [int(np.argmax(x[0]))]]
    assert values.tobytes() == row_evaluation.softmax(x[:1], True, exponential, lambda _: logarithm).tobytes()
    assert abs(float(logarithm[0, 0]) - float(np.log(np.exp(x[0] - x[0].max()).sum(dtype=np.float64)))) < 1e-5


@pytest.mark.parametrize("length", [5, 200, 9000])
@pytest.mark.parametrize("log", [False, True])
def test_gradients_of_softmax_have_the_bytes_of_the_order(length: int, log: bool) -> None:
    g, x = numbers((3, length), 1), numbers((3, length), 2)
    y = row_evaluation.softmax(x, log)
    wanted = row_evaluation.softmax_gradient(g, y, log, exponential)
    for rows in (1, 3):
        found = simulated(
            "softmax_gradient_of_rows", rows, length, {"out": ((rows, length), "fp32")}, {"LOG": log},
            gradient=g[-rows:], y=y[-rows:],
        )  # fmt: skip
        assert found["out"].tobytes() == wanted[-rows:].tobytes()


@pytest.mark.parametrize("length", [5, 128, 9000])
@pytest.mark.parametrize(("centered", "affine"), [(True, True), (False, True), (True, False)])
def test_normalisations_have_the_bytes_of_the_order(length: int, centered: bool, affine: bool) -> None:
    x, g, weight, bias = (numbers((3, length), seed) for seed in range(4))
    by, added = (weight[0] if affine else None), (bias[0] if affine and centered else None)
    wanted, mean, scale = row_evaluation.normalised(x, by, added, 1e-5, centered)
    given = {name: each for name, each in (("weight", by), ("bias", added)) if each is not None}
    missing = {name: None for name in ("weight", "bias") if name not in given}
    gradient = row_evaluation.normalisation_gradient(g, x, by, mean, scale, centered)
    for rows in (1, 3):
        numbers_given = {"divisor": float(length), "epsilon": 1e-5}
        outputs = {"out": ((rows, length), "fp32"), "scale": ((rows,), "fp32"), "mean": ((rows,), "fp32")}
        found = simulated(
            "normalised_rows", rows, length, outputs, {"CENTERED": centered, **missing}, numbers_given, x=x[-rows:],
            **given,
        )  # fmt: skip
        assert found["out"].tobytes() == wanted[-rows:].tobytes()
        assert found["scale"].tobytes() == scale[-rows:].tobytes()
        assert not centered or found["mean"].tobytes() == mean[-rows:].tobytes()
        constants: dict[str, Any] = {"CENTERED": centered}
        weights = {"weight": given["weight"]} if affine else {}
        found = simulated(
            "normalisation_gradient_of_rows", rows, length, {"out": ((rows, length), "fp32")},
            constants if affine else {**constants, "weight": None}, {"divisor": float(length)}, gradient=g[-rows:],
            x=x[-rows:], mean=mean[-rows:], scale=scale[-rows:], **weights,
        )  # fmt: skip
        assert found["out"].tobytes() == gradient[-rows:].tobytes()


def simulated_columns(x: Floats, lanes: int, divisor: float | None = None, inner: int | None = None) -> Floats:
    """Simulate the kernel of columns on x[o, n, c], and return its sums of each part of the lanes.

    With `inner`, the memory has its rows in another order: those that are so many rows apart lie side by side.
    """
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    count, rows, columns = x.shape
    steps: dict[str, Any] = dict.fromkeys(("inner", "outer_step", "inner_step"))
    if inner is not None:
        steps = {"inner": inner, "outer_step": columns, "inner_step": rows // inner * columns}
        x = np.ascontiguousarray(x.reshape(-1, inner, columns).transpose(1, 0, 2))
    sizes = column_geometry(lanes)
    parts = lanes // (sizes["GROUPS"] * 8)
    given = {
        "x": Matrix("x", (count * rows, columns), (), "fp32"),
        "out": Matrix("out", (count * parts, columns), (), "fp32"),
        "rows": rows, "columns": columns, "divisor": divisor or 1.0, **(steps if inner else {}),
    }  # fmt: skip
    state = {"x": x.view(np.uint8).ravel(), "out": np.full(4 * count * parts * columns, 0xA5, np.uint8)}
    grid = -(-columns // sizes["COLUMNS"]), parts, count
    options = {"num_warps": 4, "enable_fp_fusion": False}
    constants = {"DIVIDE": divisor is not None, **sizes, **({} if inner else steps)}
    run(source(KernelCall(kernels.sum_of_columns, grid, given, constants, options)), state)
    return np.asarray(state["out"].view(np.float32)).reshape(count, parts, columns)


@pytest.mark.parametrize("shape", [(1, 3, 70), (2, 200, 16), (1, 1000, 64), (3, 128, 1)])
def test_sums_of_columns_have_the_bytes_of_the_order_of_rows(shape: tuple[int, int, int]) -> None:
    count, length, columns = shape
    x = numbers((count * length, columns), 3).reshape(shape)
    rows = np.ascontiguousarray(x.transpose(0, 2, 1)).reshape(-1, length)
    lanes = max(lanes_of(length), 128)
    found = x if lanes == 128 else simulated_columns(x, lanes)
    assert simulated_columns(found, 128)[:, 0].tobytes() == row_evaluation.sums(rows).tobytes()
    if lanes == 128:
        assert simulated_columns(x, 128, float(length))[:, 0].tobytes() == row_evaluation.means(rows).tobytes()


@pytest.mark.parametrize(("outer", "inner", "columns"), [(1, 3, 70), (5, 40, 16)])
def test_sums_of_columns_have_one_order_wherever_rows_lie(outer: int, inner: int, columns: int) -> None:
    x = numbers((outer * inner, columns), 5)[None]
    lanes = max(lanes_of(outer * inner), 128)
    assert simulated_columns(x, lanes, inner=inner).tobytes() == simulated_columns(x, lanes).tobytes()


@pytest.mark.parametrize(("length", "columns"), [(3, 70), (200, 16), (1000, 64)])
@pytest.mark.parametrize("centered", [True, False])
def test_sums_of_column_products_have_the_bytes_of_the_order_of_rows(length: int, columns: int, centered: bool) -> None:
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    g, x = (numbers((length, columns), seed) for seed in (7, 8))
    mean, scale = (numbers((length, 1), seed) for seed in (9, 10))
    lanes = max(lanes_of(length), 128)
    sizes = column_geometry(lanes)
    parts = lanes // (sizes["GROUPS"] * 8)
    given: dict[str, Any] = {
        "gradient": Matrix("gradient", (length, columns), (), "fp32"), "x": Matrix("x", (length, columns), (), "fp32"),
        "mean": Matrix("mean", (length,), (), "fp32"), "scale": Matrix("scale", (length,), (), "fp32"),
        "out": Matrix("out", (parts, columns), (), "fp32"), "rows": length, "columns": columns,
    }  # fmt: skip
    values = {"gradient": g, "x": x, "mean": mean, "scale": scale}
    state = {name: np.ascontiguousarray(each).view(np.uint8).ravel() for name, each in values.items()}
    state["out"] = np.full(4 * parts * columns, 0xA5, np.uint8)
    constants: dict[str, Any] = dict(sizes)
    if not centered:
        del given["mean"], state["mean"]
        constants["mean"] = None
    options = {"num_warps": 4, "enable_fp_fusion": False}
    grid = -(-columns // sizes["COLUMNS"]), parts, 1
    run(source(KernelCall(kernels.sum_of_column_products, grid, given, constants, options)), state)
    found = np.asarray(state["out"].view(np.float32)).reshape(1, parts, columns)
    products = g * (((x - mean) if centered else x) * scale)
    total = found if parts == 1 else simulated_columns(found, 128)
    assert total[0, 0].tobytes() == row_evaluation.sums(np.ascontiguousarray(products.T)).tobytes()


def test_columns_of_more_rounds_have_the_bytes_of_the_order_of_rows() -> None:
    """A row of more numbers than lanes: the evaluation with 128 lanes stands for one with the most."""
    x = numbers((300, 64), 4)
    lanes = [sum(x[at::128][1:], np.float32(0) + x[at]) for at in range(128)]
    assert simulated_columns(x[None], 128)[0, 0].tobytes() == row_evaluation.sums(np.stack(lanes, 1)).tobytes()


@pytest.mark.parametrize(("shape", "dtype"), [((3, 21, 1), "fp32"), ((2, 8, 17), "fp32"), ((40, 3, 1), "bf16")])
def test_prefix_sums_have_the_bytes_of_the_ascending_order(shape: tuple[int, int, int], dtype: str) -> None:
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    count, length, columns = shape
    x = numbers((count * length, columns), 6).reshape(shape)
    size, kind = FLOAT_FORMATS[dtype].bits // 8, Matrix("out", (count * length, columns), (), dtype)
    state = {"x": x.view(np.uint8).ravel(), "out": np.full(x.size * size, 0xA5, np.uint8)}
    given = {
        "x": Matrix("x", (count * length, columns), (), "fp32"), "out": kind, "series": count * columns,
        "length": length, "columns": columns,
    }  # fmt: skip
    constants, options = {"SERIES": 32}, {"num_warps": 1, "enable_fp_fusion": False}
    grid = (-(-count * columns // 32),)
    run(source(KernelCall(kernels.prefix_sums, grid, given, constants, options)), state)
    wanted = row_evaluation.prefix_sums(x)
    assert wanted.tobytes() == np.cumsum(x, axis=1, dtype=np.float32).tobytes()
    if dtype == "bf16":
        bits = wanted.view(np.uint32)
        wanted = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    assert state["out"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("shape", "width"), [((2, 3, 5, 72), 96), ((1, 4, 40, 80), 96), ((3, 1, 7, 200), 256)])
@pytest.mark.parametrize("turned", [False, True])
def test_widened_heads_are_copies_with_zeros(shape: tuple[int, int, int, int], width: int, turned: bool) -> None:
    """Of dense heads, and of those whose places lie before their heads."""
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    sequences, heads, places, depth = shape
    x = numbers((sequences * heads * places, depth), 8).reshape(shape)
    stored = np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if turned else x
    strides = (depth, heads * depth) if turned else (places * depth, depth)
    count, lanes = sequences * heads * places, lanes_of(width)
    state = {"x": stored.view(np.uint8).ravel(), "out": np.full(count * width * 4, 0xA5, np.uint8)}
    given = {
        "x": Matrix("x", (count, depth), (), "fp32"), "out": Matrix("out", (count, width), (), "fp32"), "rows": count,
        "heads": heads, "places": places, "sequence_stride": heads * places * depth, "head_stride": strides[0],
        "place_stride": strides[1], "depth": depth, "width": width,
    }  # fmt: skip
    constants, options = {"ROWS": 8192 // lanes, "LANES": lanes}, {"num_warps": 4, "enable_fp_fusion": False}
    grid = (-(-count * lanes // 8192),)
    run(source(KernelCall(kernels.widened_rows, grid, given, constants, options)), state)
    wanted = np.pad(x.reshape(count, depth), ((0, 0), (0, width - depth)))
    assert state["out"].tobytes() == wanted.tobytes()


def test_parts_of_a_long_row_are_summed_as_rows() -> None:
    from bitwise_torch.batch_invariance.kernels import rows as kernels

    x, part = numbers((3, 300), 9), 128
    sizes, warps = geometry(part)
    given = {
        "x": Matrix("x", x.shape, (), "fp32"), "out": Matrix("out", (3, 3), (), "fp32"), "rows": 3, "length": 300,
        "part": part, "divisor": 1.0,
    }  # fmt: skip
    state = {"x": x.view(np.uint8).ravel(), "out": np.full(36, 0xA5, np.uint8)}
    options = {"num_warps": warps, "enable_fp_fusion": False}
    grid = -(-3 // sizes["ROWS"]), 3
    run(source(KernelCall(kernels.sum_of_rows, grid, given, {"DIVIDE": False, **sizes}, options)), state)
    wanted = [row_evaluation.sums(x[:, at : at + part]) for at in range(0, 300, part)]
    assert state["out"].tobytes() == np.concatenate(wanted, axis=1).tobytes()


def test_zeros_behind_a_row_change_no_sum() -> None:
    x = numbers((4, 3000), 7)
    for length in (1, 130, 3000):
        wanted = row_evaluation.sums(x[:, :length]).tobytes()
        assert wanted == row_evaluation.sums(np.pad(x[:, :length], ((0, 0), (0, 9000)))).tobytes()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8191, 8192, 8193, 1 << 20])
def test_lanes_are_a_power_of_two_that_holds_a_short_row(length: int) -> None:
    lanes = lanes_of(length)
    assert lanes & (lanes - 1) == 0
    assert 2 <= lanes <= row_evaluation.MOST_LANES
    assert lanes >= min(length, row_evaluation.MOST_LANES)
