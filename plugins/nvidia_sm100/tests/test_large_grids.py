"""Matrix products on large grids: a few blocks decide, and the other blocks are proved to be translations of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Comparison, Outcome
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

SAMPLES = Path(__file__).parent / "samples/sm_100"


def source(group: str, number: int, tile: tuple[int, int], size: int, change: tuple[str, str] = ("", "")) -> Source:
    """Return a sample for matrices of `size` rows and columns, and a depth of 128."""
    file = f"{group}_{number}.ptx"
    strides = [128, size, size] if group == "gemm" else []
    arguments = [{"buffer": name, "dtype": "fp16"} for name in "abc"]
    arguments += [{"i32": number} for number in (size, size, 128, *strides)]
    launch = {"file": file, "grid": [size // tile[0], size // tile[1]], "args": arguments}
    text = (SAMPLES / group / file).read_text()
    assert change[0] in text
    return Source(file, text.replace(*change, 1) if change[0] else text, Launch.model_validate(launch))


def scaled(number: int, tile: tuple[int, int], size: int) -> Source:
    """Return a product with block scales for matrices of `size` rows and columns, and a depth of 128."""
    file = f"gemm_mxfp8_{number}.ptx"
    arguments = [{"buffer": name, "dtype": "fp32" if name == "c" else "u8"} for name in ("a", "sa", "b", "sb", "c")]
    arguments += [{"i32": number} for number in (size, size, 128)]
    launch = {"file": file, "grid": [size // tile[0], size // tile[1]], "args": arguments}
    return Source(file, (SAMPLES / "gemm_mxfp8" / file).read_text(), Launch.model_validate(launch))


def compared(left: Source, right: Source) -> Comparison:
    return compare(left, right, registry.default().arch("sm_100"), Options())


def test_products_with_other_tiles_are_equal() -> None:
    found = compared(source("gemm", 0, (64, 64), 4096), source("gemm", 1, (128, 64), 4096))
    assert found.verdict.outcome is Outcome.EQUAL
    assert any("large grids are decided on a few blocks" in note for note in found.verdict.notes)


@pytest.mark.parametrize(
    "change",
    [
        ("tcgen05.wait::st.sync.aligned;", ""),
        ("@%p9 tcgen05.commit.cta_group::1", "@!%p9 tcgen05.commit.cta_group::1"),
        ("%rd24, %rd25, %r60, %p2;", "%rd24, %rd25, %r60, %p8;"),
    ],
)
def test_a_changed_product_is_not_equal(change: tuple[str, str]) -> None:
    text = source("gemm", 0, (64, 64), 4096)
    assert compared(text, source("gemm", 0, (64, 64), 4096, change)).verdict.outcome is not Outcome.EQUAL


def test_products_with_block_scales_and_other_tiles_are_equal() -> None:
    found = compared(scaled(0, (128, 128), 4096), scaled(1, (128, 64), 4096))
    assert found.verdict.outcome is Outcome.EQUAL
    assert any("large grids are decided on a few blocks" in note for note in found.verdict.notes)
    assert compared(scaled(0, (128, 128), 4096), scaled(2, (128, 128), 4096)).verdict.outcome is not Outcome.EQUAL
