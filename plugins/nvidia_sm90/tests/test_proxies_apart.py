"""Copies by threads (`cp.async`) that matrix instructions read with and without a proxy fence."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_core.checker.analysis import AnalysisResult, analyse
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.checker.sources import Options, buffers_of
from bitwise_core.execution.assumptions import PROXIES_APART, PROXIES_TOGETHER
from bitwise_core.execution.races.undetermined import UNFENCED_COPY, UNFENCED_WRITE
from bitwise_nvidia_sm90.architecture import COPIES_VISIBLE, SM90

GEMM = Path(__file__).parent / "samples" / "sm_90" / "gemm"
NAME = "gemm_0.ptx"

COMMIT = "cp.async.commit_group;\n"
WAIT = "cp.async.wait_group 4;\n"
READ = "wgmma.fence.sync.aligned;\n"
FENCE = "fence.proxy.async.shared::cta;\n"


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


SCOPES = pytest.mark.parametrize("every", [False, True], ids=["a launch", "every launch"])


def options(every: bool, *assume: str) -> Options:
    """Return the options of a reading in a scope."""
    return Options(assume=frozenset(assume), every_launch=every, audit_contraction=False)


@SCOPES
def test_a_product_without_a_fence_is_not_determined(tmp_path: Path, every: bool) -> None:
    found = reading(tmp_path, options(every, PROXIES_APART))
    text = (tmp_path / NAME).read_text()
    copied, read = [number for number, line in enumerate(text.splitlines(), 1) if "cp.async.cg" in line], found.places
    assert found.signature is None
    assert str(found.unknown).startswith(UNFENCED_COPY)
    assert [(each.kind, each.reason) for each in read] == [("missing proxy fence", UNFENCED_COPY)]
    assert "wgmma" in text.splitlines()[(read[0].line or 0) - 1]
    assert read[0].other_line in copied


@SCOPES
def test_a_reading_that_rests_on_visible_copies_says_so(tmp_path: Path, every: bool) -> None:
    found, fenced = reading(tmp_path, options(every)), reading(tmp_path, options(every), (WAIT, WAIT + FENCE))
    assert found.signature == fenced.signature is not None
    assert COPIES_VISIBLE in found.notes
    assert COPIES_VISIBLE not in fenced.notes


@SCOPES
def test_an_assumption_needs_no_note_of_the_architecture(tmp_path: Path, every: bool) -> None:
    found = reading(tmp_path, options(every, PROXIES_TOGETHER))
    assert found.signature == reading(tmp_path, options(every)).signature is not None
    assert COPIES_VISIBLE not in found.notes


@SCOPES
@pytest.mark.parametrize(
    ("old", "new"),
    [(WAIT, WAIT + FENCE), (READ, FENCE + READ), (WAIT, f"{WAIT}fence.proxy.async;\n")],
    ids=["before the barrier", "behind the barrier", "of all memory"],
)
def test_a_fence_behind_the_wait_publishes_the_copies(tmp_path: Path, every: bool, old: str, new: str) -> None:
    """The threads that copied execute it."""
    found = reading(tmp_path, options(every, PROXIES_APART), (old, new))
    assert found.signature == reading(tmp_path, options(every)).signature is not None


ONLY = "{{ .reg .pred %chosen; .reg .b32 %own; mov.u32 %own, %tid.x; setp.{test} %chosen, %own, {number};\n@%chosen "
ONE_WARP = ONLY.format(test="lt.u32", number=32) + FENCE + "}\n"
ONE_THREAD = ONLY.format(test="eq.u32", number=0) + FENCE + "}\n"
START = "mov.u32 %r4, %tid.x;\n"
OTHERS = {
    "before the wait": (WAIT, FENCE + WAIT),
    "before the group is closed": (COMMIT, FENCE + COMMIT),
    "of global memory": (WAIT, f"{WAIT}fence.proxy.async.global;\n"),
    "of the memory model": (WAIT, f"{WAIT}fence.acq_rel.cta;\n"),
    "of one warp before the barrier": (WAIT, WAIT + ONE_WARP),
    "of one thread before the barrier": (WAIT, WAIT + ONE_THREAD),
    "only before the loop": (START, FENCE + START),
}


@SCOPES
@pytest.mark.parametrize("case", OTHERS)
def test_other_fences_do_not(tmp_path: Path, every: bool, case: str) -> None:
    found = reading(tmp_path, options(every, PROXIES_APART), OTHERS[case])
    assert found.signature is None
    assert str(found.unknown).startswith(UNFENCED_COPY)


@SCOPES
@pytest.mark.parametrize("assume", [(), (PROXIES_TOGETHER,), (PROXIES_APART,)], ids=["default", "together", "apart"])
def test_stores_need_the_fence_whatever_is_assumed_of_copies(
    tmp_path: Path, every: bool, assume: tuple[str, ...]
) -> None:
    stored = "st.shared.b32 [ %r19 + 0 ], %r20;\n"
    fenced = reading(tmp_path, options(every, *assume), (WAIT, f"{WAIT}{FENCE}"))
    assert fenced.signature is not None
    found = reading(tmp_path, options(every, *assume), (WAIT, f"{WAIT}{FENCE}{stored}"))
    assert str(found.unknown).startswith(UNFENCED_WRITE), found.unknown
