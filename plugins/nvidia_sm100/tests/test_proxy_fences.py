"""Copies by threads (`cp.async`) that asynchronous instructions read need a proxy fence on sm_100 and sm_103."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_core.checker.analysis import AnalysisResult, analyse
from bitwise_core.checker.determinism import Determinism, determinism
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options, Source, buffers_of
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import PROXIES_APART, PROXIES_TOGETHER
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.races.undetermined import UNFENCED_COPY
from bitwise_nvidia_sm100.architecture import SM100, SM103

SAMPLES = Path(__file__).parent / "samples"
FENCE = "fence.proxy.async.shared::cta;"
ARCHES = pytest.mark.parametrize("arch", [SM100, SM103], ids=lambda each: each.name)
DEFAULT, TOGETHER = Options(), Options(assume=frozenset({PROXIES_TOGETHER}))

HEAD = """
.version 8.6
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out)
.reqntid 64
{
  .reg .pred %p<6>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.b32 %r1, smem; add.u32 %r2, %r1, 512; setp.eq.u32 %p0, %r0, 0;
  setp.lt.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r0, 32;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mad.wide.u32 %rd3, %r9, 256, %rd1; mad.wide.u32 %rd4, %r9, 256, %rd2;
  mad.lo.u32 %r3, %r0, 4, %r1; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd6, %rd4, %rd5; add.s64 %rd7, %rd3, %rd5;
  @%p0 mbarrier.init.shared::cta.b64 [%r2], 64; bar.sync 0;
"""
COPY = "cp.async.ca.shared.global [%r3], [%rd7], 4; "
COMPLETE = "cp.async.wait_all; "
BARRIER = "bar.sync 0; "
TRACKED = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r2]; "
PHASE = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra WAIT; "
STORE = (
    "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r1], 256; @%p0 cp.async.bulk.commit_group; "
    "@%p0 cp.async.bulk.wait_group.read 0; "
)
STORE_OF_ANOTHER_WARP = STORE.replace("%p0", "%p3")
LOAD = "ld.shared.b32 %r4, [%r3]; st.global.b32 [%rd6], %r4; "

DETERMINED = {
    "threads load": COPY + COMPLETE + BARRIER + LOAD,
    "threads load what a phase counts": COPY + TRACKED + PHASE + LOAD,
    "all threads fence": COPY + COMPLETE + FENCE + BARRIER + STORE,
    "all fence, another warp reads": COPY + COMPLETE + FENCE + BARRIER + STORE_OF_ANOTHER_WARP,
    "the reader fences": COPY + COMPLETE + BARRIER + "@%p0 " + FENCE + STORE,
    "the reader fences behind a phase": COPY + TRACKED + PHASE + "@%p0 " + FENCE + STORE,
    "one warp fences, another reads": COPY + COMPLETE + BARRIER + "@%p2 " + FENCE + BARRIER + STORE_OF_ANOTHER_WARP,
    "all fence under a condition and otherwise": (
        COPY + COMPLETE + f"@%p2 {FENCE} @!%p2 {FENCE} " + BARRIER + STORE_OF_ANOTHER_WARP
    ),
}
UNDETERMINED = {
    "none": COPY + COMPLETE + BARRIER + STORE,
    "none behind a phase": COPY + TRACKED + PHASE + STORE,
    "before the wait": COPY + FENCE + COMPLETE + BARRIER + STORE,
    "before the phase": COPY + TRACKED + FENCE + PHASE + STORE,
    "of some writers, before the barrier": COPY + COMPLETE + "@%p2 " + FENCE + BARRIER + STORE,
    "behind the barrier, by another warp": COPY + COMPLETE + BARRIER + "@%p2 " + FENCE + STORE_OF_ANOTHER_WARP,
    "before a later copy": COPY + COMPLETE + FENCE + BARRIER + COPY + COMPLETE + BARRIER + STORE,
    "on one path": COPY + COMPLETE + "@%p2 bra SKIP; " + FENCE + " SKIP: " + BARRIER + STORE,
    "of global memory": COPY + COMPLETE + "fence.proxy.async.global; " + BARRIER + STORE,
    "of the memory model": COPY + COMPLETE + "fence.acq_rel.cta; " + BARRIER + STORE,
}


def source(body: str, arch: Arch = SM100, name: str = "k.ptx") -> Source:
    """Return a kernel of 64 threads that copies 64 words of a block from `in` to `out`."""
    arguments = [{"buffer": each, "dtype": "u32"} for each in ("in", "out")]
    launch = Launch.model_validate({"file": name, "grid": [2], "args": arguments})
    return Source(name, HEAD.replace("sm_100", arch.name) + body + "ret;\n}\n", launch)


def read(body: str, options: Options = DEFAULT, arch: Arch = SM100) -> AnalysisResult:
    return analyse(source(body, arch), arch, {"in": 1, "out": 2}, options)


@ARCHES
@pytest.mark.parametrize("body", DETERMINED.values(), ids=DETERMINED)
def test_what_threads_read_and_what_a_fence_publishes_is_determined(body: str, arch: Arch) -> None:
    plain = read("ld.global.b32 %r4, [%rd7]; st.global.b32 [%rd6], %r4; ", DEFAULT, arch)
    found = read(body, DEFAULT, arch)
    assert found.unknown is None
    assert found.signature == plain.signature
    assert found.notes == read(body, TOGETHER, arch).notes


@ARCHES
@pytest.mark.parametrize("body", UNDETERMINED.values(), ids=UNDETERMINED)
def test_a_read_without_a_fence_on_the_way_is_not_determined(body: str, arch: Arch) -> None:
    found = read(body, DEFAULT, arch)
    assert str(found.unknown).startswith(UNFENCED_COPY)
    assert [each.kind for each in found.places] == ["missing proxy fence"]
    lines = source(body, arch).text.splitlines()
    place = found.places[0]
    assert "bulk_group" in lines[(place.line or 0) - 1]
    assert "cp.async.ca" in lines[(place.other_line or 0) - 1]
    together = read(body, TOGETHER, arch)
    assert together.signature == read(DETERMINED["threads load"], DEFAULT, arch).signature


def test_a_kernel_without_the_fence_is_not_equal_to_itself() -> None:
    pair = [source(UNDETERMINED["none"], SM100, name) for name in ("a.ptx", "b.ptx")]
    assert [len(each) for each in partition(pair, "sm_100", TOGETHER, workers=1).classes] == [2]
    found = partition(pair, "sm_100", DEFAULT, workers=1)
    assert [len(each) for each in found.classes] == [1, 1]
    assert set(found.unknown) == {"a.ptx", "b.ptx"}


def test_determinism_names_the_missing_fence() -> None:
    found = determinism([source(UNDETERMINED["none"])], "sm_100", DEFAULT, workers=1)["k.ptx"]
    assert found.outcome is Determinism.UNKNOWN
    assert [each.kind for each in found.places] == ["missing proxy fence"]
    shown = "\n".join(found.lines())
    assert "missing proxy fence: " in shown
    assert "of the assembly" in shown
    assert "decided by a run" not in found.reason  # no order of threads shows it


def test_copies_that_threads_load_need_no_fence_in_any_launch() -> None:
    assert read(DETERMINED["threads load"], Options(every_launch=True)).unknown is None


@pytest.mark.parametrize("place", ["sm_100/gemm/gemm_0.ptx", "sm_100/gemm_mxfp8/gemm_mxfp8_1.ptx"])
def test_products_of_triton_need_the_fence(tmp_path: Path, place: str) -> None:
    """The samples have the fence that Triton emits from 3.7.1 on; without it they are the text of Triton 3.6."""
    path = SAMPLES / place
    fenced = read_kernel(str(path))
    assert FENCE in fenced.text
    (tmp_path / path.name).write_text(fenced.text.replace(FENCE, ""))
    (tmp_path / "manifest.json").write_text((path.parent / "manifest.json").read_text())
    unfenced = read_kernel(str(tmp_path / path.name))
    buffers = buffers_of([fenced])
    apart, default, together = (
        analyse(unfenced, SM100, buffers, Options(assume=frozenset(assume), audit_contraction=False))
        for assume in ((PROXIES_APART,), (), (PROXIES_TOGETHER,))
    )
    assert apart.unknown == default.unknown
    assert str(default.unknown).startswith(UNFENCED_COPY)
    expected = analyse(fenced, SM100, buffers, Options(audit_contraction=False)).signature
    assert together.signature == expected is not None
