"""Products of pairs of blocks (.cta_group::2): results against exact sums, and what must not be Equal."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Manifest
from bitwise_core.execution.races.cluster_races import BlockOfCluster, ClusterDetector
from bitwise_core.plugins import registry
from tcgen05_kernels import Text, executed, instruction_descriptor, reading, smem_descriptor

K = 16
TILE = 32 * 128
"""The bytes of 128 rows of a tile."""
BOTH = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
COMMIT = "@%p9 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%rd20], %h1;"
CLUSTER = ".reqntid 128\n.explicitcluster\n.reqnctapercluster 2\n"


def kernel(m: int = 256, n: int = 64, blocks: int = 2) -> str:
    """Return a kernel in which each pair of blocks multiplies its tiles of A and B, each of its block's own rows."""
    columns = n if m == 256 else n // 2
    text = Text(max(32, columns))
    text.add(
        "mov.u32 %r50, %cluster_ctarank;",
        "mov.u32 %r52, %ctaid.x;",
        f"mad.wide.u32 %rd1, %r52, {2 * TILE}, %rd1;",
        f"mad.wide.u32 %rd2, %r52, {512 * columns}, %rd2;",
    ).copy_in(2 * TILE)
    text.barrier().add(
        BOTH,
        "setp.eq.u32 %p8, %r50, 0;",
        "and.pred %p9, %p2, %p8;",
        "mov.b16 %h1, 3;",
        f"mov.b64 %rd30, {smem_descriptor(0, 128, 256, 0)};",
        f"mov.b64 %rd31, {smem_descriptor(TILE, 128, 256, 0)};",
        f"mov.b32 %r30, {instruction_descriptor(m, n, 1, 0, 0)};",
        "@%p9 tcgen05.mma.cta_group::2.kind::f16 [%r3], %rd30, %rd31, %r30, %p4;",
        COMMIT,
    )
    text.wait().load("32x32b", columns, 100, columns).write_out(100, columns).add(BOTH)
    whole = text.whole().replace("cta_group::1", "cta_group::2").replace(".reqntid 128\n", CLUSTER)
    return whole.replace(".reg .pred %p<12>;", ".reg .pred %p<12>;\n  .reg .b16 %h<4>;")


def image(rows: npt.NDArray[np.float16]) -> npt.NDArray[np.uint8]:
    """Return rows of 16 elements in units of 8 rows by 16 bytes, padded to 128 rows."""
    units = np.zeros((16, 2, 8, 8), dtype=np.float16)
    units[: len(rows) // 8] = rows.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3)
    return units.reshape(-1).view(np.uint8)


def problem(m: int, n: int, pairs: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the input, and A and B of each pair with small integers."""
    random = np.random.default_rng(m + n + pairs)
    a, b = random.integers(-8, 9, (pairs, m, K)), random.integers(-8, 9, (pairs, n, K))
    parts = []
    for pair in range(pairs):
        for rank in range(2):
            for matrix, extent in ((a, m), (b, n)):
                half = matrix[pair, rank * extent // 2 : (rank + 1) * extent // 2]
                parts.append(image(half.astype(np.float16)))
    return np.concatenate(parts), a, b


def value(a: Any, b: Any, m: int, n: int, rank: int, lane: int, column: int) -> int:
    """Return the element of D at a place of tensor memory, as the figures of the data path layouts A and B show it."""
    if m == 256:
        return int(a[128 * rank + lane] @ b[column])
    return int(a[64 * rank + lane] @ b[column]) if lane < 64 else int(a[64 * rank + lane - 64] @ b[n // 2 + column])


@pytest.mark.parametrize(("m", "n", "pairs"), [(256, 32, 1), (256, 64, 2), (256, 128, 1), (128, 64, 2), (128, 256, 1)])
def test_each_block_holds_its_rows_and_takes_all_columns(m: int, n: int, pairs: int) -> None:
    content, a, b = problem(m, n, pairs)
    columns = n if m == 256 else n // 2
    text = kernel(m, n)
    assert reading(text, blocks=2 * pairs).unknown is None
    found = executed(text, content, 512 * columns * 2 * pairs, blocks=2 * pairs).view(np.float32)
    table = found.reshape(pairs, 2, 128, columns)
    for pair in range(pairs):
        for rank in range(2):
            for lane in (0, 1, 31, 63, 64, 100, 127):
                expected = [value(a[pair], b[pair], m, n, rank, lane, column) for column in range(columns)]
                assert table[pair, rank, lane].tolist() == expected


SIGNATURE = reading(kernel(), blocks=2).signature


def mutant(old: str, new: str) -> Any:
    text = kernel()
    assert old in text
    return reading(text.replace(old, new, 1), blocks=2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mad.wide.u32 %rd1, %r52,", "xor.b32 %r53, %r52, 1; mad.wide.u32 %rd1, %r53,"),  # tiles of the other block
        ("mov.b64 %rd31,", "mov.b64 %rd30,"),  # A is B
        (f"mov.b64 %rd31, {smem_descriptor(TILE, 128, 256, 0)}", f"mov.b64 %rd31, {smem_descriptor(0, 128, 256, 0)}"),
        ("%rd31, %r30, %p4;", "%rd31, %r30, %p3;"),
        (f"mov.b32 %r30, {instruction_descriptor(256, 64, 1, 0, 0)}", "mov.b32 %r30, 1;"),
    ],
)
def test_another_operand_is_not_equal(old: str, new: str) -> None:
    assert SIGNATURE is not None
    assert mutant(old, new).signature != SIGNATURE


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (BOTH, "", "may not have started"),
        (BOTH, BOTH.replace("arrive.", "arrive.relaxed."), "race"),  # the tiles of the other block may not be there yet
        ("mov.b16 %h1, 3;", "mov.b16 %h1, 1;", "hangs"),
        ("mov.b16 %h1, 3;", "mov.b16 %h1, 7;", "outside the cluster"),
        ("setp.eq.u32 %p8, %r50, 0;", "setp.eq.u32 %p8, %r50, 1;", "odd rank"),
        (COMMIT, COMMIT.replace("[%rd20]", "[%rd20+64]"), "before it is initialised"),
        ("tcgen05.mma.cta_group::2", "tcgen05.mma.cta_group::1", "cta_group"),
        ("fence.proxy.async.shared::cta;", "", "no proxy fence"),
        ("@!done bra again0;", "", "repeated by a branch"),
        (".reqnctapercluster 2", ".reqnctapercluster 1", "of 1 blocks"),
    ],
)
def test_what_is_not_ordered_is_unknown(old: str, new: str, reason: str) -> None:
    found = mutant(old, new)
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown


def test_a_block_does_not_end_before_the_other_one_reads_its_tiles() -> None:
    text = kernel()
    start, end = text.rsplit(BOTH, 1)
    assert reading(text, blocks=2).unknown is None
    found = reading(start + end, blocks=2)
    assert found.unknown is not None
    assert "may end before" in found.unknown


def test_the_accumulator_of_the_other_block_is_read_after_the_commit() -> None:
    text = kernel()
    place = text.index("  \n{")  # before the wait for the memory barrier
    early = "\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r90}, [%r7]; tcgen05.wait::ld.sync.aligned;"
    found = reading(text[:place] + early + text[place:], blocks=2)
    assert found.unknown is not None
    assert "known to be complete" in found.unknown


MULTIPLY = "@%p9 tcgen05.mma.cta_group::2.kind::f16 [%r3], %rd30, %rd31, %r30, %p4;"
STORE = (
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%r1};\n  tcgen05.wait::st.sync.aligned;\n"
    "  tcgen05.fence::before_thread_sync;\n"
)
ODD_STORES = f"@%p8 bra EVEN;\n  {STORE}EVEN:\n  "


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (f"{MULTIPLY}\n  {COMMIT}", f"{COMMIT}\n  {MULTIPLY}", "known to be complete"),
        # a product of another shape into the same columns
        (
            MULTIPLY,
            f"{MULTIPLY}\n  mov.b32 %r31, {instruction_descriptor(256, 32, 1, 0, 0)};\n  "
            + MULTIPLY.replace("%r30", "%r31"),
            "known to be complete",
        ),
        (f"{MULTIPLY}\n", f"{ODD_STORES}{MULTIPLY}\n", "known to be complete"),  # only its own block knows of its store
        ("mbarrier.init.shared::cta.b64 [%r20], 1;", "mbarrier.init.shared::cta.b64 [%r20], 2;", "hangs"),
        (COMMIT, f"{COMMIT}\n  {COMMIT}", "hangs"),  # the second arrival ends a further phase
    ],
)
def test_work_that_is_not_complete_is_unknown(old: str, new: str, reason: str) -> None:
    found = mutant(old, new)
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown


def test_products_into_the_columns_of_one_accumulator_are_ordered() -> None:
    assert mutant(MULTIPLY, f"{MULTIPLY}\n  {MULTIPLY}").signature == SIGNATURE  # both start from zero
    found = mutant(MULTIPLY, f"{MULTIPLY}\n  {MULTIPLY.replace('%p4', '%p3')}").signature
    assert found is not None
    assert found != SIGNATURE


def test_a_store_of_the_odd_block_is_ordered_by_a_barrier_of_the_cluster() -> None:
    found = mutant(f"{MULTIPLY}\n", f"{ODD_STORES}{BOTH}\n  {MULTIPLY}\n")
    assert found.signature == SIGNATURE, found.unknown


def test_blocks_of_a_pair_allocate_together() -> None:
    old = "  @%p1 tcgen05.alloc"
    assert old in kernel()
    guard = "  mov.u32 %r51, %cluster_ctarank;\n  setp.eq.u32 %p10, %r51, 0;\n  and.pred %p10, %p10, %p1;\n"
    text = kernel().replace(old, guard + "  @%p10 tcgen05.alloc")
    found = reading(text, blocks=2)
    assert found.unknown is not None
    assert "without the other" in found.unknown


SCALED = Path(__file__).parent / "samples/sm_100/gemm_mxfp8_pairs"
"""A product with block scales of a pair of blocks, compiled by Triton 3.9, beside that of two blocks alone."""


def scaled(old: str, new: str) -> str | None:
    """Return the reason why the product of the pair is Unknown if its text is changed everywhere."""
    launch = Manifest.model_validate_json((SCALED / "manifest.json").read_text(encoding="utf-8")).kernels[1]
    text = (SCALED / launch.file).read_text(encoding="utf-8")
    assert old in text
    buffers = {name: number for number, name in enumerate(launch.buffers(), 1)}
    source = Source(launch.file, text.replace(old, new), launch)
    return analyse(source, registry.default().arch("sm_100"), buffers, Options()).unknown


def test_both_blocks_of_a_pair_have_the_scales_of_all_columns() -> None:
    assert scaled("{%r58, %r58, %r59, %r58, %r58}", "{%r58, %r58, %r59, %r58, %r58}") is None
    unknown = scaled("{%r58, %r58, %r59, %r58, %r58}", "{%r58, %r58, %r59, %r60, %r58}")
    assert unknown is not None
    assert "do not hold the same scales of B" in unknown


def test_scales_of_a_pair_are_copied_in_both_blocks() -> None:
    unknown = scaled("tcgen05.cp.cta_group::2.warpx4.32x128b [ %r50 + 0 ], %rd7;", "mov.u32 %r50, %r50;")
    assert unknown is not None


@pytest.mark.parametrize("waited", [True, False])
def test_a_commit_says_to_the_other_block_which_phases_had_ended(waited: bool) -> None:
    """Both blocks arrive at a barrier of the first one, whose commit arrives at one of the second: then both again."""
    cluster = ClusterDetector(64, 32, 32, 2)
    first, second = (BlockOfCluster(cluster, rank) for rank in range(2))
    ready, released, warp = 0, 8, np.array([0])
    first.begin(ready, np.arange(2))
    second.begin(released, np.arange(8, 10))
    for rank in range(2):
        first.enter_phase_from_cluster(ready, rank, warp, set())
    first.expect_later(ready)  # bytes of a copy
    first.complete(ready)
    if waited:
        first.acquire(ready, warp, 0)
    second.agent_arrives_from_cluster((0,), 0, 0, released)
    second.complete(released)
    second.acquire(released, warp, 0)
    with nullcontext() if waited else pytest.raises(Unsupported, match="at which phase"):
        first.enter_phase_from_cluster(ready, 1, warp, set())
