# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Clusters of blocks: their special registers, the shape that a text or a launch states, and verdicts on both."""

from __future__ import annotations

import pytest

from bitwise_core.execution.architecture import BitSupport, OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_nvidia_ptx.architecture import nvidia_arch
from cluster_kernels import GRID, SHAPE, text, verdict, words

AXES = "xyz"
BOTH = ".explicitcluster .reqnctapercluster {}"


def coordinates(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return x, y and z of every block, in the order of their numbers."""
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]


def expected(register: str, block: tuple[int, int, int]) -> int:
    """Return the value that the PTX ISA defines, from the coordinates of the block."""
    inside = [at % own for at, own in zip(block, SHAPE, strict=True)]
    if register == "%cluster_ctarank":
        return inside[0] + inside[1] * 2 + inside[2] * 6
    if register == "%cluster_nctarank":
        return 12
    name, axis = register.split(".")
    index = AXES.index(axis)
    return {
        "%clusterid": block[index] // SHAPE[index],
        "%nclusterid": GRID[index] // SHAPE[index],
        "%cluster_ctaid": inside[index],
        "%cluster_nctaid": SHAPE[index],
    }[name]


REGISTERS = [
    f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in AXES
]
REGISTERS += ["%cluster_ctarank", "%cluster_nctarank"]


@pytest.mark.parametrize("register", REGISTERS)
@pytest.mark.parametrize(
    ("directives", "cluster"),
    [(".reqnctapercluster 2,3,2", None), ("", SHAPE), (".explicitcluster", SHAPE), (".maxclusterrank 16", SHAPE)],
)
def test_a_register_of_clusters_is_what_the_launch_makes_it(
    register: str, directives: str, cluster: tuple[int, int, int] | None
) -> None:
    body = f"mov.u32 %r9, {register}; st.global.b32 [%d9], %r9;"
    found = words(body, GRID, directives=directives, cluster=cluster)
    assert found.tolist() == [[expected(register, block)] * 32 for block in coordinates(GRID)]


@pytest.mark.parametrize(
    ("directives", "cluster", "explicit"),
    [("", None, 0), ("", (1, 1, 1), 1), ("", (2, 1, 1), 1), (BOTH.format(2), None, 1)],
)
def test_whether_clusters_are_explicit(directives: str, cluster: tuple[int, int, int] | None, explicit: int) -> None:
    body = "mov.pred %p1, %is_explicit_cluster; selp.b32 %r9, 1, 0, %p1; st.global.b32 [%d9], %r9;"
    assert words(body, (4,), directives=directives, cluster=cluster).tolist() == [[explicit] * 32] * 4


def test_the_manual_leaves_open_whether_clusters_of_the_text_alone_are_explicit() -> None:
    body = "mov.pred %p1, %is_explicit_cluster; selp.b32 %r9, 1, 0, %p1; st.global.b32 [%d9], %r9;"
    with pytest.raises(Unsupported, match="a register or on memory that nothing wrote"):
        words(body, (4,), directives=".reqnctapercluster 2")


RANK = "ld.global.b32 %r8, [%d8]; mov.u32 %r9, {}; xor.b32 %r8, %r8, %r9; st.global.b32 [%d9], %r8;"


@pytest.mark.parametrize(
    ("directives", "grid", "cluster", "reason"),
    [
        (".reqnctapercluster 2", (3,), None, "the grid of k, 3 x 1 x 1 blocks, does not divide into clusters of 2 x 1"),
        ("", (4, 3, 1), (2, 2, 1), "does not divide into clusters of 2 x 2 x 1 blocks"),
        (".reqnctapercluster 2", (4,), (4, 1, 1), "requires clusters of 2 x 1 x 1 blocks, and its launch has clusters"),
        ("", (32,), (32, 1, 1), "a cluster has at most 16 blocks here"),
        (".maxclusterrank 4", (8,), (8, 1, 1), "a cluster has at most 4 blocks here"),
    ],
)
def test_a_launch_without_such_clusters_is_an_error(
    directives: str, grid: tuple[int, ...], cluster: tuple[int, int, int] | None, reason: str
) -> None:
    with pytest.raises(ManifestError, match=reason):
        words(RANK.format(0), grid, directives=directives, cluster=cluster)


@pytest.mark.parametrize("directives", [".explicitcluster", ".maxclusterrank 8"])
def test_a_text_that_leaves_the_shape_to_the_launch_needs_it_in_the_manifest(directives: str) -> None:
    with pytest.raises(Unsupported, match=r'add "cluster": \[x, y, z\] to its launch in the manifest'):
        words(RANK.format(0), (4,), directives=directives)


def test_a_grid_of_clusters_is_not_modelled() -> None:
    with pytest.raises(Unsupported, match="counts clusters instead of blocks"):
        words(RANK.format(0), (4,), directives=".blocksareclusters .reqnctapercluster 2")


def test_an_architecture_without_clusters() -> None:
    arch = nvidia_arch("another", ("sm_90a",), OpcodeTable(), BitSupport())
    with pytest.raises(ManifestError, match="another has no clusters"):
        words(RANK.format(0), (4,), cluster=(2, 1, 1), arch=arch)


CHANGED = ["0", "1", "%cluster_ctaid.y", "%cluster_nctarank", "%clusterid.x", "%ctaid.x"]
"""What a mutant reads instead of the rank."""


@pytest.mark.parametrize("register", CHANGED)
@pytest.mark.parametrize("every_launch", [False, True])
@pytest.mark.parametrize(
    ("directives", "cluster"), [(BOTH.format(2), None), (".reqnctapercluster 2", None), ("", (2, 1, 1))]
)
def test_the_rank_replaced_by_another_number_is_never_equal(
    directives: str, cluster: tuple[int, int, int] | None, every_launch: bool, register: str
) -> None:
    right, wrong = (text(RANK.format(each), directives) for each in ("%cluster_ctarank", register))
    clusters = (cluster, cluster)
    assert verdict(right, wrong, every_launch=every_launch, clusters=clusters) != "equal"
    if not every_launch:
        assert verdict(right, right, every_launch=False, clusters=clusters) == "equal"
        assert verdict(wrong, wrong, every_launch=False, clusters=clusters) == "equal"


def test_the_rank_is_computed_from_the_block_coordinates() -> None:
    rank = text(RANK.format("%cluster_ctarank"), ".reqnctapercluster 2")
    computed = text(
        "ld.global.b32 %r8, [%d8]; mov.u32 %r9, %ctaid.x; and.b32 %r9, %r9, 1; xor.b32 %r8, %r8, %r9; st.global.b32 [%d9], %r8;",
        ".reqnctapercluster 2",
    )
    assert verdict(rank, computed, every_launch=False) == "equal"


def placed(index: str, value: str, directives: str = ".reqnctapercluster 2") -> str:
    """Return a kernel in clusters of two blocks: the word at `index`, in %r9, becomes `value` of it, in %r8."""
    return f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global out, .param .u64 .ptr .global in, .param .align 64 .b8 map[128])
.reqntid 32 {directives}
{{
.reg .b32 %r<40>; .reg .b64 %d<40>;
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x;
{index} mul.wide.s32 %d3, %r9, 4;
add.s64 %d4, %d0, %d3; add.s64 %d5, %d1, %d3; ld.global.b32 %r8, [%d5]; {value} st.global.b32 [%d4], %r8;
ret;
}}
"""


PLACE = "mov.u32 %r10, %clusterid.x; mov.u32 %r11, %cluster_ctarank;"
HALVES = PLACE + "shl.b32 %r9, %r11, 5; add.u32 %r9, %r9, %r0; mad.lo.u32 %r9, %r10, 64, %r9;"
ALTERNATING = PLACE + "shl.b32 %r9, %r0, 1; add.u32 %r9, %r9, %r11; mad.lo.u32 %r9, %r10, 64, %r9;"
BLOCKS = "mov.u32 %r11, %cluster_ctarank; mov.u32 %r12, %ctaid.x; mad.lo.u32 %r9, %r12, 32, %r0;"
CONSTANT = "xor.b32 %r8, %r8, 5;"
BY_RANK = "xor.b32 %r8, %r8, %r11;"
BY_OTHER_RANK = "xor.b32 %r12, %r11, 1; xor.b32 %r8, %r8, %r12;"


@pytest.mark.parametrize("every_launch", [False, True])
def test_the_blocks_of_a_cluster_share_the_words_of_their_cluster(every_launch: bool) -> None:
    """A function of the words has the same bits however they are divided; one of the rank depends on it."""
    same = [placed(index, CONSTANT) for index in (HALVES, ALTERNATING, BLOCKS)]
    assert verdict(same[0], same[1], every_launch=every_launch) == "equal"
    assert verdict(same[0], same[2], every_launch=every_launch) == "equal"
    ranked = [placed(index, BY_RANK) for index in (HALVES, ALTERNATING)]
    assert verdict(ranked[0], ranked[1], every_launch=every_launch) != "equal"
    assert verdict(ranked[0], placed(HALVES, BY_OTHER_RANK), every_launch=every_launch) != "equal"
    assert verdict(ranked[0], same[0], every_launch=every_launch) != "equal"
    assert verdict(ranked[0], placed(HALVES, ""), every_launch=every_launch) != "equal"
    assert verdict(ranked[0], ranked[0], every_launch=every_launch) == "equal"


def test_for_every_launch_clusters_of_blocks_equal_blocks() -> None:
    alone = placed("mov.u32 %r12, %ctaid.x; mad.lo.u32 %r9, %r12, 32, %r0;", CONSTANT, "")
    assert verdict(placed(HALVES, CONSTANT), alone, every_launch=True) == "equal"
    assert verdict(placed(HALVES, BY_RANK), alone, every_launch=True) != "equal"


@pytest.mark.parametrize("every_launch", [False, True])
def test_a_block_that_reads_what_another_of_its_cluster_writes(every_launch: bool) -> None:
    """Each block adds to its own words those of the other block, in one buffer."""
    other = HALVES.replace("%r11, 5", "%r12, 5").replace("%r9", "%r13")
    index = f"{HALVES} xor.b32 %r12, %r11, 1; {other} mul.wide.s32 %d6, %r13, 4; add.s64 %d7, %d0, %d6;"
    racing = placed(index, "ld.global.b32 %r14, [%d7]; add.u32 %r8, %r8, %r14;")
    assert verdict(racing, racing, every_launch=every_launch) == "unknown"


def test_for_every_launch_half_of_the_words_are_not_all() -> None:
    """Without the rank in its index every block of a cluster stores the same words."""
    assert (
        verdict(placed(HALVES.replace("%r11, 5", "%r11, 0"), CONSTANT), placed(HALVES, CONSTANT), every_launch=True)
        != "equal"
    )


def test_for_every_launch_blocks_of_a_cluster_that_store_different_words_to_one_place() -> None:
    body = placed(PLACE + "mad.lo.u32 %r9, %r10, 64, %r0;", BY_RANK)
    assert verdict(body, body.replace("xor.b32 %r8, %r8, %r11;", ""), every_launch=True) != "equal"


@pytest.mark.parametrize("every_launch", [False, True])
def test_one_text_in_clusters_of_two_shapes_is_not_equal(every_launch: bool) -> None:
    source = text(RANK.format("%cluster_ctarank"))
    for other in (None, (1, 1, 1), (4, 1, 1)):
        clusters = ((2, 1, 1), other)
        assert verdict(source, source, every_launch=every_launch, clusters=clusters) != "equal"


def test_an_own_rank_of_no_cluster_is_zero() -> None:
    rank, zero = text(RANK.format("%cluster_ctarank")), text(RANK.format(0))
    assert verdict(rank, zero, every_launch=False) == "equal"
    assert verdict(rank, zero, every_launch=True) != "equal"
