"""The probes without a GPU: their kernels executed on bit patterns, and the detection of a wrong row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_bench.matrix_units import probes
from bitwise_bench.matrix_units.directed_cases import directed_cases
from bitwise_bench.matrix_units.fragments import assembly, pack_accumulator, unpack_accumulator
from bitwise_bench.matrix_units.operands import KINDS, Operands, draw
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import FusedSum, MmaSpec, multiply_accumulate
from bitwise_nvidia_sm90.architecture import SM90

UNITS = {row.name: row for row in probes.rows()}
TYPES = {"f4": "fp32", "f8": "fp64", "i1": "int8", "i2": "int16", "i4": "int32"}


def on_patterns(row: MmaSpec, given: Operands) -> tuple[Bits, list[str]]:
    """A device that executes the compiled kernel on bit patterns."""
    from bitwise_bench.matrix_units.device import instructions, tile_launch
    from bitwise_triton.arguments import Buffer
    from bitwise_triton.configurations import compile_configuration

    launch = tile_launch(row, given)
    buffers = {
        name: Buffer(name, TYPES[array.dtype.str[1:]], size_bytes=array.nbytes, alignment=256)
        for name, array in launch.arrays.items()
    }
    captured = compile_configuration(
        launch.function, buffers, launch.constants, grid=(launch.tiles,), num_warps=launch.warps
    )
    source = Source("probe", captured.assembly, Launch.model_validate({"file": "probe.ptx", **captured.manifest_entry}))
    prepared = prepare(source, SM90, Options(audit_contraction=False))
    contents = {name: array.reshape(-1).view(np.uint8) for name, array in launch.arrays.items()}
    after = simulate(prepared, contents).after
    target = launch.arrays["target"]
    words = after["target"].view(target.dtype).reshape(target.shape)
    return launch.unpack(words), instructions(row, captured.assembly)


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("mma.sync_k16_fp32_fp16_fp16_fp32_sm_90", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.sync_k8_fp16_fp16_fp16_fp16_sm_90", "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"),
        ("mma.sync_k4_fp32_tf32_tf32_fp32_sm_90", "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"),
        ("mma.sync_k32_fp16_e4m3_e5m2_fp16_sm_90", "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16"),
        ("mma.sync_k8_fp64_fp64_fp64_fp64_sm_90", "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"),
        (
            "mma.sync_k16_s32_s8_s8_s32_satfinite_sm_90",
            "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32",
        ),
        ("wgmma_k16_fp16_fp16_fp16_fp16_sm_90", "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16"),
        ("wgmma_k8_fp32_tf32_tf32_fp32_sm_90", "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32"),
        ("wgmma_k32_fp32_e5m2_e4m3_fp32_sm_90", "wgmma.mma_async.sync.aligned.m64n16k32.f32.e5m2.e4m3"),
    ],
)
def test_the_kernels_pass_every_operand_to_its_position(name: str, instruction: str) -> None:
    row = UNITS[name]
    m, n = probes.SHAPES[row.family]
    kind = probes.batches(row)[0][0]
    for depth in probes.depths(row):
        given = draw(row, kind, 2, m, n, depth)
        returned, used = on_patterns(row, given)
        assert used == [instruction]
        assert np.array_equal(returned, multiply_accumulate(row, given.a, given.b, given.c))


def exact(row: MmaSpec, given: Operands) -> tuple[Bits, list[str]]:
    return multiply_accumulate(row, given.a, given.b, given.c), ["mma"]


def altered(row: MmaSpec, **changes: Any) -> MmaSpec:
    assert isinstance(row.arithmetic, FusedSum)
    return replace(row, arithmetic=replace(row.arithmetic, **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mma.sync_k16_fp32_bf16_bf16_fp32_sm_90", {"products": 8}),
        ("mma.sync_k16_fp32_bf16_bf16_fp32_sm_90", {"fraction_bits": 26}),
        ("mma.sync_k16_fp32_bf16_bf16_fp32_sm_90", {"zero_products": True}),
        ("mma.sync_k16_fp32_bf16_bf16_fp32_sm_90", {"zero_exponent": -126}),
        ("mma.sync_k16_fp32_bf16_bf16_fp32_sm_90", {"least_exponent": None}),
        ("mma.sync_k8_fp32_tf32_tf32_fp32_sm_90", {"products": 4}),
        ("mma.sync_k32_fp32_e4m3_e4m3_fp32_sm_90", {"order": "ascending"}),
        ("mma.sync_k32_fp32_e4m3_e4m3_fp32_sm_90", {"accumulator_last": False}),
        ("mma.sync_k32_fp32_e4m3_e5m2_fp32_sm_90", {"widened": None}),
        ("mma.sync_k32_fp16_e5m2_e5m2_fp16_sm_90", {"rounding": "rz"}),
    ],
)
def test_a_device_with_other_arithmetic_is_detected(name: str, changes: dict[str, Any]) -> None:
    row = UNITS[name]
    _, same = probes.probe_row(row, exact)
    assert probes._status({name: same}) == 0
    assert (sum(same["differing"].values()), same["compared"] >= 100_000) == (0, True)
    _, other = probes.probe_row(row, lambda row, given: exact(altered(row, **changes), given))
    differing = [answer for answer in other["directed_cases"].values() if not isinstance(answer, str)]
    assert sum(other["differing"].values()) + len(differing) > 1
    assert probes._status({name: other}) == 1


def test_results_are_compared_again_and_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = UNITS["mma.sync_k8_fp32_fp16_fp16_fp32_sm_90"]
    monkeypatch.setattr(probes, "rows", lambda architecture: [row])
    results, said = probes.probe_row(row, exact)
    file, samples = tmp_path / "results.npz", tmp_path / "samples.npz"
    np.savez(file, **results)  # type: ignore[arg-type]
    assert probes.main(["--again", str(file), "--samples", str(samples), "--count", "80"]) == 0
    with np.load(samples) as kept:
        a, b, c, d = (kept[f"{row.name}/{each}"] for each in "abcd")
    count = len(d)
    assert count > 80
    assert (a.shape, b.shape, c.shape) == ((count, 8), (count, 8), (count,))
    found = multiply_accumulate(row, a[:, None], b[:, :, None], c[:, None, None])
    assert np.array_equal(found[:, 0, 0], d)
    assert said["operands"] == probes.probe_row(row, exact)[1]["operands"]
    key = probes.key(row, "near", 8)
    np.savez(file, **{**results, key: results[key] ^ np.uint32(1)})  # type: ignore[arg-type]
    assert probes.main(["--again", str(file)]) == 1


@pytest.mark.parametrize("row", probes.rows(), ids=lambda row: row.name)
def test_unpacking_inverts_packing_of_accumulators(row: MmaSpec) -> None:
    c = draw(row, probes.batches(row)[0][0], 3, 16, 8, row.k).c
    assert np.array_equal(unpack_accumulator(row, pack_accumulator(row, c)), c)
    assert assembly(row)[0].count("$") == assembly(row)[1].count(",") + 1


def test_every_floating_point_row_has_every_kind_of_operands() -> None:
    row = UNITS["mma.sync_k16_fp32_fp16_fp16_fp32_sm_90"]
    assert {kind for kind, _, _ in probes.batches(row)} == set(KINDS)
    labels = [case.label for case in directed_cases(row)]
    assert len(labels) == len(set(labels))
