"""The launcher of gfx942 with the real hip-python on a driver built for tests, and its messages without ROCm."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bitwise_amd_gfx942 import launcher
from bitwise_amd_gfx942.products.plan import Plan, plan_product
from bitwise_core.descriptors import DescriptorError, GEMMDesc, index_bits, read

DRIVER = Path(__file__).parent / "driver"
HEAD = "gemm(k={k} left_dtype={kind} right_dtype={kind}"
UNIT = "path=matrix instruction=instruction(architecture=gfx942 family=mfma k={unit}) instruction_k={unit})"
RUNS = (
    (64, 16, HEAD.format(k=200, kind="fp16") + " output_dtype=fp16 " + UNIT.format(unit=16)),
    (80, 70, HEAD.format(k=72, kind="bf16") + " output_dtype=fp32 " + UNIT.format(unit=8)),
    (3, 5, HEAD.format(k=40, kind="fp32") + " output_dtype=fp32 path=fma k_dropped=3)"),
    (32, 40, HEAD.format(k=64, kind="fp64") + " accumulator_dtype=fp64 output_dtype=fp64 " + UNIT.format(unit=4)),
)
needs_hip = pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="hip-python is not installed")


@needs_hip
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler for the driver")
def test_products_run_through_hip_python_and_the_driver(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    lines = "".join(f"{m} {n} {text}\n" for m, n, text in RUNS)
    done = subprocess.run(
        [sys.executable, str(DRIVER / "session.py"), str(tmp_path)], input=lines, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    observed = json.loads(done.stdout.splitlines()[-1])
    assert observed["equal"] == [True] * len(RUNS)
    kernels = [
        (name, shape[:6], size, used, scratch, elf) for name, shape, size, used, scratch, elf in observed["launches"]
    ]
    assert kernels == [
        ("matrix_product", [1, 1, 1, 256, 1, 1], 56, 200, [0, 0], True),
        ("matrix_product", [2, 2, 1, 256, 1, 1], 56, 72, [0, 0], True),
        ("scalar_product", [1, 1, 1, 256, 1, 1], 56, 37, [0, 0], True),
        ("matrix_product", [1, 2, 1, 256, 1, 1], 56, 64, [0, 0], True),
    ]
    assert observed["missing"] == [
        None,
        "the GPU is a gfx90a, not a gfx942",
        "there is no AMD GPU that ROCm can use (hipGetDeviceCount failed with hipErrorNoDevice)",
    ]
    assert observed["errors"] == [
        "hipMalloc failed with hipErrorOutOfMemory",
        "hipModuleGetFunction failed with hipErrorNotFound",
    ]
    assert observed["live"] == 0


@needs_hip
def test_message_without_rocm(tmp_path: Path) -> None:
    if "ROCM_PATH" in os.environ or Path("/opt/rocm").exists():
        pytest.skip("ROCm is installed here")
    code = "from bitwise_amd_gfx942.device import missing_device; print(missing_device('gfx942'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ROCm's library libamdhip64 cannot be loaded (failed to dlopen ")
    assert done.stdout.endswith("): install ROCm, or set ROCM_PATH\n")


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        (set(), "triton is not installed"),
        ({"triton"}, "hip-python is not installed (pip install hip-python)"),
    ],
)
def test_message_names_the_missing_package(monkeypatch: pytest.MonkeyPatch, installed: set[str], message: str) -> None:
    monkeypatch.setattr("bitwise_amd_gfx942.requirements.find_spec", lambda name: name in installed or None)
    monkeypatch.setattr("bitwise_amd_gfx942.device.find_spec", lambda name: name in installed or None)
    assert launcher.Products().missing() == message


def test_only_products_are_accepted() -> None:
    with pytest.raises(DescriptorError, match="products_gfx942 runs a GEMMDesc on a and b"):
        launcher.Products().launch(index_bits(4), np.zeros((1, 4), np.uint32))


def test_plans_of_descriptors() -> None:
    found = [plan_product(desc) for _, _, text in RUNS if isinstance(desc := read(text), GEMMDesc)]
    assert found == [
        Plan("matrix_product", (64, 64, 32), 4, {"matrix_instr_nonkdim": 16}),
        Plan("matrix_product", (64, 64, 32), 4, {"matrix_instr_nonkdim": 32}),
        Plan("scalar_product", (32, 32, 1), 4, {}),
        Plan("matrix_product", (32, 32, 16), 4, {"matrix_instr_nonkdim": 16}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUNS[0][2].replace("instruction_k=16)", "instruction_k=16 alpha=2.0)"), "have accumulators from \\+0"),
        (
            RUNS[0][2].replace("instruction_k=16)", "instruction_k=16 k_cuts=[cut(span=64)])"),
            "the order of this sum is not that of slices",
        ),
        (RUNS[0][2].replace("gfx942", "sm_90"), "is not an instruction of gfx942"),
        (
            RUNS[0][2].replace("k=16", "k=4"),
            "with instruction_k = 4 is not supported; supported are fp16 k 8, fp16 k 16",
        ),
        (RUNS[2][2].replace("path=fma", "path=mul_add"), "the path mul_add is not supported on gfx942"),
        (RUNS[3][2].replace("k=64", "k=60"), "fp64 needs a multiple of 16 values of k, not 60"),
    ],
)
def test_unsupported_descriptors_are_rejected(text: str, message: str) -> None:
    desc = read(text)
    assert isinstance(desc, GEMMDesc)
    with pytest.raises(DescriptorError, match=message):
        plan_product(desc)
