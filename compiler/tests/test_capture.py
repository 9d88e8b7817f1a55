"""Compiles without a GPU, compared with what Triton's own launcher compiles."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

from bitwise_triton import (  # noqa: E402
    Buffer,
    CaptureError,
    TensorMap,
    capture,
    compile_configuration,
    compile_configurations,
    write_folder,
)
from bitwise_triton.arguments import to_triton  # noqa: E402


@triton.jit
def scale(x, y, n, step, factor, flag, nothing, BLOCK: tl.constexpr, EXTRA: tl.constexpr = 0):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = libdevice.tanh(tl.load(x + at * step, mask=at < n).to(tl.float32)) * factor + EXTRA
    if flag:
        value += 1.0
    tl.store(y + at, value, mask=at < n)


@triton.jit(do_not_specialize=["n", "step"])
def scale_any(x, y, n, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at * step, mask=at < n), mask=at < n)


@triton.jit
def copy_tile(source, target, BLOCK: tl.constexpr):
    target.store([0, 0], source.load([0, tl.program_id(0) * BLOCK]))


@triton.jit
def big(x, y, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    cell = rows[:, None] * BLOCK + rows[None, :]
    value = tl.load(x + cell)
    tl.store(y + cell, tl.dot(value, tl.trans(value)))


ARGUMENTS: dict[str, Any] = {
    "x": Buffer("X", "fp16"),
    "y": Buffer("Y", "fp32", offset=4),
    "n": 1024,
    "step": 1,
    "factor": 0.1,
    "flag": True,
    "nothing": None,
}


def parameters(assembly: str) -> int:
    return assembly[assembly.index(".entry") : assembly.index(")", assembly.index(".entry"))].count(".param")


def test_manifest_lists_the_parameters_of_the_assembly() -> None:
    found = compile_configuration(scale, ARGUMENTS, {"BLOCK": 256}, grid=lambda args: (triton.cdiv(args["n"], 256),))
    assert found.manifest_entry == {
        "entry": "scale",
        "grid": [4, 1, 1],
        "block": [128, 1, 1],
        "args": [
            {"buffer": "X", "dtype": "fp16"},
            {"buffer": "Y", "dtype": "fp32", "offset": 4},
            {"i32": 1024},
            {"fp32": 0.100000001490116119384765625},
            {"i1": 1},
        ],
    }
    assert parameters(found.assembly) == 5 + 2
    assert (found.extension, found.entry, found.grid, found.block) == ("ptx", "scale", (4, 1, 1), (128, 1, 1))
    assert found.target == "sm_90"
    assert ".target sm_90a" in found.assembly
    assert "tanh" not in found.assembly.split(".entry")[1].split(".reqntid")[0]
    assert "call.uni" not in found.assembly


def test_the_default_of_fusion_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.9 warns in each process that leaves it to the setting of the environment."""
    from triton.backends.nvidia.compiler import CUDABackend

    parse, given = CUDABackend.parse_options, []

    def recorded(backend: Any, options: dict[str, Any]) -> Any:
        given.append(options.get("enable_fp_fusion"))
        return parse(backend, options)

    monkeypatch.setattr(CUDABackend, "parse_options", recorded)
    for asked in (None, False):
        given.clear()
        compile_configuration(
            scale, ARGUMENTS, {"BLOCK": 256}, grid=(4,), **({} if asked is None else {"enable_fp_fusion": asked})
        )
        assert given[0] is not None
        assert set(given) <= {True, asked}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"n": 1000},
        {"n": 1, "step": 16},
        {"n": 1 << 40},
        {"x": Buffer("X", "fp16", alignment=2)},
        {"x": Buffer("X", "fp16", offset=64), "flag": False},
    ],
)
def test_assembly_is_what_the_launcher_compiles(without_gpu: Any, change: dict[str, Any]) -> None:
    arguments = {**ARGUMENTS, **change}
    captured = compile_configuration(scale, arguments, {"BLOCK": 256}, grid=(4,), num_warps=2)
    scale.device_caches.clear()
    launched = scale.run(
        **{name: to_triton(name, value) for name, value in arguments.items()},
        BLOCK=256,
        grid=(4,),
        warmup=True,
        num_warps=2,
        num_stages=3,
        num_ctas=1,
    )
    assert launched.asm["ptx"] == captured.assembly
    # The launcher finds the captured kernel in the cache, so both take one compile.
    assert without_gpu.compiles == [False, True]


def test_unspecialised_integers_stay_parameters(without_gpu: Any) -> None:
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32"), "n": 1024, "step": 1}
    captured = compile_configuration(scale_any, arguments, {"BLOCK": 128}, grid=(8,))
    assert captured.manifest_entry["args"][2:] == [{"i32": 1024}, {"i32": 1}]
    launched = scale_any.run(
        *(to_triton(name, value) for name, value in arguments.items()), BLOCK=128, grid=(8,), warmup=True
    )
    assert launched.asm["ptx"] == captured.assembly


def test_tensor_descriptors_become_tensor_maps_or_pointers() -> None:
    arguments = {
        "source": TensorMap(Buffer("A", "fp16"), (64, 512), (512, 1), (64, 128)),
        "target": TensorMap(Buffer("B", "fp16"), (64, 128), (128, 1), (64, 128)),
    }
    mapped = compile_configuration(copy_tile, arguments, {"BLOCK": 128}, grid=(1,), target="sm_90")
    first, *rest = mapped.manifest_entry["args"]
    assert first["tensor_map"]["shape"] == [64, 512]
    # One instruction copies a box of 128 bytes, the span of the swizzle; the descriptor's row has 256 bytes.
    assert (first["tensor_map"]["block"], first["tensor_map"]["swizzle"]) == ([64, 64], 128)
    assert [next(iter(entry)) for entry in rest] == [
        "i32",
        "i32",
        "i64",
        "i64",
        "tensor_map",
        "i32",
        "i32",
        "i64",
        "i64",
    ]
    plain = compile_configuration(copy_tile, arguments, {"BLOCK": 128}, grid=(1,), target="sm_80")
    assert plain.manifest_entry["args"][0] == {"buffer": "A", "dtype": "fp16"}
    assert parameters(plain.assembly) == len(plain.manifest_entry["args"]) + 2


@pytest.mark.parametrize(
    ("target", "extension", "block"),
    [("sm_80", "ptx", 64), ("sm_100", "ptx", 64), ("sm_103", "ptx", 64), ("gfx942", "amdgcn", 128)],
)
def test_every_target_compiles_without_a_gpu(target: str, extension: str, block: int) -> None:
    found = compile_configuration(scale, ARGUMENTS, {"BLOCK": 128}, grid=(8,), target=target, num_warps=2)
    assert (found.extension, found.block, found.target) == (extension, (block, 1, 1), target)
    assert found.manifest_entry["args"][2] == {"i32": 1024}


def test_blocks_of_a_cluster_are_counted() -> None:
    found = compile_configuration(scale, ARGUMENTS, {"BLOCK": 256}, grid=(4,), num_ctas=2)
    assert found.grid == (8, 1, 1)
    assert ".reqnctapercluster 2" in found.assembly
    assert found.manifest_entry["cluster"] == [2, 1, 1]
    alone = compile_configuration(scale, ARGUMENTS, {"BLOCK": 256}, grid=(4,))
    assert "cluster" not in alone.manifest_entry


def test_capture_compiles_equal_configurations_once(triton_cache: Any, tmp_path: Path) -> None:
    configurations = [
        triton.Config({"BLOCK": 128}, num_warps=2),
        triton.Config({"BLOCK": 256}, num_warps=4),
        triton.Config({"BLOCK": 128}, num_warps=2),
    ]
    steps: list[tuple[int, int]] = []
    outcomes = compile_configurations(
        scale,
        configurations,
        ARGUMENTS,
        lambda args: (triton.cdiv(args["n"], args["BLOCK"]),),
        workers=1,
        progress=lambda done, total: steps.append((done, total)),
    )
    found = [one for one in outcomes if not isinstance(one, CaptureError)]
    assert triton_cache.compiles == [False, False]
    assert steps == [(1, 2), (2, 2)]
    assert [one.grid[0] for one in found] == [8, 4, 8]
    assert [one.block[0] for one in found] == [64, 128, 64]
    grid = lambda args: (triton.cdiv(args["n"], args["BLOCK"]),)  # noqa: E731
    again = capture(scale, configurations, ARGUMENTS, grid=grid, workers=2)
    assert [one.assembly for one in again] == [one.assembly for one in found]

    manifest = write_folder(found[:2], tmp_path / "folder", names=["small", "large"])
    document = json.loads(manifest.read_text())
    assert [kernel["file"] for kernel in document["kernels"]] == ["small.ptx", "large.ptx"]
    assert document["kernels"][1]["grid"] == [4, 1, 1]
    assert (document["triton"], document["target"]) == (triton.__version__, "sm_90")
    assert document["options"]["small.ptx"] == {"num_warps": 2, "num_ctas": 1, "num_stages": 3}
    assert (manifest.parent / "large.ptx").read_text() == found[1].assembly
    with pytest.raises(CaptureError, match="as many different file names"):
        write_folder(found[:2], tmp_path, names=["one", "one"])


def test_errors_name_the_configuration_and_the_remedy() -> None:
    tile = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32")}
    cases: list[tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
        (scale, ARGUMENTS, {"BLOCK": 100}, {}, r"\(BLOCK=100, .*of kernel 'scale' does not compile [^$]*power of 2"),
        (scale, ARGUMENTS, {}, {}, "lacks a value for parameter 'BLOCK'"),
        (scale, ARGUMENTS, {"BLOCK": 128, "BLOK": 1}, {}, "gives BLOK, which the kernel does not take"),
        (scale, ARGUMENTS, {"BLOCK": 128, "n": 3}, {}, "has n both as an argument and as a constant"),
        (scale, ARGUMENTS, {"BLOCK": 128}, {"grid": (0,)}, r"has the grid \(0,\)"),
        (scale, ARGUMENTS, {"BLOCK": 128}, {"target": "sm_91"}, "Unknown target 'sm_91'; the known ones are sm_80"),
        (scale, ARGUMENTS, {"BLOCK": 128}, {"num_waps": 2}, "num_waps"),
        (scale, {**ARGUMENTS, "x": Buffer("X", "fp17")}, {"BLOCK": 128}, {}, "no scalar type 'fp17'"),
        (big, tile, {"BLOCK": 256}, {"num_warps": 8}, "bytes of shared memory and sm_90 has 232448 per block"),
        (len, tile, {}, {}, "is not a @triton.jit function"),
    ]
    for function, arguments, constants, more, message in cases:
        with pytest.raises(CaptureError, match=message):
            compile_configuration(function, arguments, constants, **{"grid": (1,), **more})
