"""Bulk copies of neighbouring bytes, without a tensor map (cp.async.bulk)."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90

WORDS, BLOCKS = 64, 3

HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 .ptr .global .align 16 in, .param .u64 .ptr .global .align 16 out)
.reqntid 64
{
  .reg .pred %p<6>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.b32 %r1, smem; add.u32 %r2, %r1, 512; setp.eq.u32 %p0, %r0, 0;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mad.wide.u32 %rd3, %r9, 256, %rd1; mad.wide.u32 %rd4, %r9, 256, %rd2;
  mad.lo.u32 %r3, %r0, 4, %r1; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd6, %rd4, %rd5; add.s64 %rd7, %rd3, %rd5;
"""
INIT = "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1; bar.sync 0; mov.b32 %r6, 256;\n"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;\n"
COPY = "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd3], %r6, [%r2];\n"
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra WAIT;\n"
LOADED = INIT + EXPECT + COPY + WAIT + "ld.shared.b32 %r4, [%r3];\n"
ADDED = "add.u32 %r4, %r4, 5;\n"
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;\n"
STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r1], 256;\n"
DONE = "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group.read 0;\n"
STORED = "st.shared.b32 [%r3], %r4;\n" + FENCE + STORE + DONE
PLAIN_LOAD, PLAIN_STORE = "ld.global.b32 %r4, [%rd7];\n", "st.global.b32 [%rd6], %r4;\n"


def source(*body: str) -> Source:
    arguments = [{"buffer": name, "dtype": "u32"} for name in ("in", "out")]
    launch = Launch.model_validate({"file": "k.ptx", "grid": [BLOCKS], "args": arguments})
    return Source("k.ptx", HEAD + "".join(body) + "ret;\n}\n", launch)


def read(*body: str) -> AnalysisResult:
    return analyse(source(*body), SM90, {"in": 1, "out": 2}, Options())


@pytest.mark.parametrize(
    "body",
    [
        (LOADED, ADDED, PLAIN_STORE),
        (PLAIN_LOAD, ADDED, STORED),
        (LOADED, ADDED, STORED),
        (LOADED.replace("shared::cluster.global", "shared::cta.global"), ADDED, PLAIN_STORE),
        ("cp.async.bulk.prefetch.L2.global [%rd3], 256;\n", PLAIN_LOAD, ADDED, PLAIN_STORE),
        (
            LOADED.replace("bytes [", "bytes.L2::cache_hint [").replace("[%r2];\nWAIT", "[%r2], %rd5;\nWAIT"),
            ADDED,
            STORED.replace("group [", "group.L2::cache_hint [").replace("256;", "256, %rd5;"),
        ),
    ],
)
def test_a_kernel_with_bulk_copies_is_that_with_loads_and_stores(body: tuple[str, ...]) -> None:
    found, plain = read(*body), read(PLAIN_LOAD, ADDED, PLAIN_STORE)
    assert found.unknown is None
    assert found.signature == plain.signature
    assert found.signature != read(PLAIN_LOAD, ADDED.replace("5", "6"), PLAIN_STORE).signature


def test_a_simulated_copy_moves_the_bytes() -> None:
    numbers = np.random.default_rng(3).integers(0, 1 << 32, WORDS * BLOCKS, dtype=np.uint32)
    kernel = prepare(source(LOADED, ADDED, STORED), SM90, Options())
    memory = {"in": numbers.view(np.uint8), "out": np.zeros(numbers.nbytes, dtype=np.uint8)}
    found = simulate(kernel, memory).after["out"]
    assert np.array_equal(np.asarray(found).view(np.uint32), numbers + np.uint32(5))


def test_blocks_copy_sizes_of_their_own() -> None:
    """Block b copies 64 (b + 1) bytes, and then the others."""
    sizes = """add.u32 %r7, %r9, 1; mul.lo.u32 %r6, %r7, 64; cvt.u64.u32 %rd8, %r6; add.s64 %rd9, %rd3, %rd8;
      add.u32 %r7, %r1, %r6; sub.u32 %r8, 256, %r6;
    """
    others = COPY.replace("%r1]", "%r7]").replace("%rd3", "%rd9").replace("%r6", "%r8")
    body = INIT.replace("mov.b32 %r6, 256;", sizes) + EXPECT + COPY + others + WAIT + "ld.shared.b32 %r4, [%r3];\n"
    assert read(body, PLAIN_STORE).unknown is None
    assert read(body, PLAIN_STORE).signature == read(PLAIN_LOAD, PLAIN_STORE).signature
    moved = read(body.replace("sub.u32 %r8, 256, %r6;", "mov.b32 %r8, 128;"), PLAIN_STORE)
    assert moved.unknown is not None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[%rd3], %r6", "[%rd3+4], %r6", "no multiple of 16 is not defined"),
        ("mov.b32 %r6, 256", "mov.b32 %r6, 248", "no multiple of 16 is not defined"),
        ("mov.b32 %r6, 256", "mov.b32 %r6, 0", "no multiple of 16 is not defined"),
        ("bytes [%r1]", "bytes [%r1+8]", "shared address that is no multiple of 16"),
        ("mov.b32 %r6, 256", "mov.b32 %r6, 240", ""),
        ("mov.b32 %r6, 256", "ld.global.b32 %r6, [%rd1]", "size of a bulk copy depends on data"),
        (WAIT, "", ""),
        ("[%r1], 256;", "[%r1], 256, 7;", "not modelled"),
        ("bulk_group [", "bulk_group.cp_mask [", "cp_mask"),
        ("fence.proxy.async.shared::cta; bar.sync 0;", "bar.sync 0;", "no proxy fence"),
        ("fence.proxy.async.shared::cta; bar.sync 0;", "fence.proxy.async.shared::cta;", "race"),
        (".shared::cluster.global.mbarrier", ".shared::cluster.shared::cta.mbarrier", "outside shared memory"),
    ],
)
def test_what_is_not_defined_or_not_waited_for_is_unknown(old: str, new: str, reason: str) -> None:
    text = LOADED + ADDED + STORED
    assert old in text
    found = read(text.replace(old, new, 1))
    assert found.unknown is not None
    assert reason in found.unknown


def test_shared_memory_is_written_again_only_after_the_store_has_read_it() -> None:
    again = "bar.sync 0; st.shared.b32 [%r3], %r0;\n"
    assert read(LOADED, ADDED, STORED, again).unknown is None
    found = read(LOADED, ADDED, STORED.replace("@%p0 cp.async.bulk.wait_group.read 0;", ""), again)
    assert found.unknown is not None
