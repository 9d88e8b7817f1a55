"""Matrix products of NVIDIA architectures without a GPU: kernels and descriptors against an oracle in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fused_sums
from bitwise_core.api import evaluate, run
from bitwise_core.descriptors import Instruction, single_pass


@pytest.mark.parametrize(("target", "unit"), [("sm_89", (16, 13, 13)), ("sm_120", (32, 25, 23))])
def test_an_fp8_product_of_triton_leaves_the_published_bytes(target: str, unit: tuple[int, int, int]) -> None:
    pytest.importorskip("triton")
    from fp8_product import ptx

    text = ptx(target)
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" in text
    rng = np.random.default_rng(5)
    left, right = (rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((16, 64), (64, 16)))
    for each in (left, right):
        each[(each & 0x7F) == 0x7F] = 0  # no NaN
    buffers = [{"buffer": "a", "dtype": "u8"}, {"buffer": "b", "dtype": "u8"}, {"buffer": "c", "dtype": "fp32"}]
    launch = {"grid": [1], "args": buffers}
    after = run(text, {"a": left, "b": right, "c": np.zeros((16, 16), np.float32)}, launch)
    assert (after["c"].view(np.uint32) == fused_sums.product(fused_sums.Unit("e4m3", *unit), left, right)).all()


SAMPLES = Path(__file__).parents[1] / "plugins"


@pytest.mark.parametrize(
    "folder",
    [
        *(f"nvidia_earlier/tests/samples/{name}" for name in ("sm_80", "sm_86", "sm_89")),
        "nvidia_sm120/tests/samples/sm_120",
    ],
)
def test_the_descriptor_of_a_product_has_the_bytes_of_its_kernels(folder: str) -> None:
    target = folder.rsplit("/", 1)[1]
    before, after = (np.load(SAMPLES / folder / "gemm" / f"{name}.npz") for name in ("wide", "wide.class_0"))
    left, right = (before[name].view(np.uint16).reshape(shape) for name, shape in (("a", (32, 96)), ("b", (96, 64))))
    unit = Instruction(architecture=target, family="mma.sync", k=16)
    found = evaluate(single_pass(96, "fp16", unit, output_dtype="fp16"), left, right)
    assert (found == after["c"].view(np.uint16).reshape(32, 64)).all()
    other = Instruction(architecture=target, family="mma.sync", k=8)
    changed = (evaluate(single_pass(96, "fp16", other, output_dtype="fp16"), left, right) != found).any()
    assert changed == (target == "sm_120")  # the earlier machines run a k of 16 as two steps of 8
