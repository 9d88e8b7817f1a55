"""Kernels of Gluon, compiled without a GPU."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from bitwise_triton import Buffer, CaptureError, TensorMap, compile_configuration

ROWS, COLUMNS = 64, 64


@gluon.jit
def copied(source, target, WARPS: gl.constexpr):
    tile = gl.allocate_shared_memory(source.dtype, source.block_type.shape, source.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, source.block_type.nbytes)
    tma.async_copy_global_to_shared(source, [0, 0], bar, tile)
    mbarrier.wait(bar, phase=0)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(target + rows[:, None] * 64 + columns[None, :], tile.load(layout))


@gluon.jit
def doubled(source, target, num_warps: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])
    places = gl.arange(0, 256, layout=layout)
    gl.store(target + places, 2 * gl.load(source + places))


@pytest.mark.parametrize("warps", [2, 4, 8])
def test_a_parameter_named_like_an_option_sets_it(warps: int) -> None:
    arguments = {"source": Buffer("A", "fp32"), "target": Buffer("B", "fp32")}
    found = compile_configuration(doubled, arguments, {"num_warps": warps}, grid=(1,), target="sm_90")
    assert found.block == (32 * warps, 1, 1)


def tensor_map(swizzle: int | None) -> TensorMap:
    layout = None if swizzle is None else gl.NVMMASharedLayout(swizzle, 16, rank=2)
    return TensorMap(Buffer("A", "fp16"), (ROWS, COLUMNS), (COLUMNS, 1), (ROWS, COLUMNS), layout=layout)


@pytest.mark.parametrize("swizzle", [64, 128])
@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_a_kernel_of_gluon_is_compiled_with_the_layout_of_its_tensor_map(swizzle: int, target: str) -> None:
    arguments = {"source": tensor_map(swizzle), "target": Buffer("B", "fp16")}
    found = compile_configuration(copied, arguments, {"WARPS": 4}, grid=(1,), target=target)
    stated = found.manifest_entry["args"][0]["tensor_map"]
    assert "cp.async.bulk.tensor.2d" in found.assembly
    assert (stated["swizzle"], stated["block"]) == (swizzle, [ROWS, swizzle // 2])


def test_a_tensor_map_without_a_layout_is_refused() -> None:
    arguments = {"source": tensor_map(None), "target": Buffer("B", "fp16")}
    with pytest.raises(CaptureError, match="does not compile"):
        compile_configuration(copied, arguments, {"WARPS": 4}, grid=(1,), target="sm_90")
