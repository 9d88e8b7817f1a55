"""`--assume proxies-apart`: matrix instructions see what threads have copied (`cp.async`) only after a proxy fence."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_core.checker.analysis import AnalysisResult, analyse
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.checker.sources import Options, buffers_of
from bitwise_core.execution.assumptions import PROXIES_APART
from bitwise_nvidia_sm90.architecture import SM90

GEMM = Path(__file__).parent / "samples" / "sm_90" / "gemm"
NAME = "gemm_0.ptx"

WAIT = "cp.async.wait_group 4;\n"
READ = "wgmma.fence.sync.aligned;\n"
FENCE = "fence.proxy.async.shared::cta;\n"
UNFENCED = "an asynchronous instruction reads shared memory that threads wrote with no proxy fence after it"


def reading(folder: Path, options: Options, *changes: tuple[str, str]) -> AnalysisResult:
    """Return the reading of a product whose operands threads copy, with parts of its text replaced."""
    text = (GEMM / NAME).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / NAME).write_text(text)
    (folder / "manifest.json").write_text((GEMM / "manifest.json").read_text())
    source = read_kernel(str(folder / NAME))
    return analyse(source, SM90, buffers_of([source]), options)


APART = Options(assume=frozenset({PROXIES_APART}), audit_contraction=False)


def test_a_product_without_a_fence_is_unknown(tmp_path: Path) -> None:
    assert reading(tmp_path, Options(audit_contraction=False)).unknown is None
    assert str(reading(tmp_path, APART).unknown).startswith(UNFENCED)


def test_a_fence_behind_the_wait_publishes_the_copies(tmp_path: Path) -> None:
    """The threads that copied execute them, before the barrier or behind it."""
    default = reading(tmp_path, Options(audit_contraction=False)).signature
    assert default == reading(tmp_path, APART, (WAIT, WAIT + FENCE)).signature is not None
    assert default == reading(tmp_path, APART, (READ, FENCE + READ)).signature


@pytest.mark.parametrize("instead", [FENCE + WAIT, f"{WAIT}fence.proxy.async.global;\n"], ids=["early", "global"])
def test_other_fences_do_not(tmp_path: Path, instead: str) -> None:
    assert str(reading(tmp_path, APART, (WAIT, instead)).unknown).startswith(UNFENCED)


def test_copies_are_not_followed_for_every_launch(tmp_path: Path) -> None:
    every = Options(assume=frozenset({PROXIES_APART}), every_launch=True, audit_contraction=False)
    assert "for given launches only" in str(reading(tmp_path, every).unknown)
