# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Clusters of blocks: their special registers, the shape that a text or a launch states, and verdicts on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.analysis import Options, Source
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch, ManifestError
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm90.plugin import SM90

AXES = "xyz"
BOTH = ".explicitcluster .reqnctapercluster {}"


def text(body: str, directives: str = "", threads: int = 32) -> str:
    """Return a kernel k(out, in): %d9 is this thread's word of the output, %r0 its index in the block, %r1 in the grid."""
    return f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global out, .param .u64 .ptr .global in) .reqntid {threads} {directives}
{{
.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .shared .align 16 .b8 room[4096];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y;
mov.u32 %r4, %ctaid.z; mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y; mad.lo.u32 %r4, %r4, %r6, %r3;
mad.lo.u32 %r4, %r4, %r5, %r2; mad.lo.u32 %r1, %r4, {threads}, %r0; mul.wide.u32 %d2, %r1, 4; add.s64 %d9, %d0, %d2;
add.s64 %d8, %d1, %d2;
{body}
ret;
}}
"""


def launch(grid: Sequence[int], cluster: Sequence[int] | None = None, threads: int = 32, name: str = "k.ptx") -> Launch:
    settings: dict[str, Any] = {} if cluster is None else {"cluster": tuple(cluster)}
    buffers = tuple(Argument(kind="buffer", buffer=each, dtype="u32") for each in ("out", "in"))
    return Launch(file=name, entry="k", grid=tuple(grid), block=(threads, 1, 1), args=buffers, **settings)


def words(
    body: str,
    grid: Sequence[int],
    *,
    directives: str = "",
    cluster: Sequence[int] | None = None,
    threads: int = 32,
    arch: Arch = SM90,
    given: Any = None,
) -> Any:
    """Return the output of the kernel as words, shape (blocks, threads); `given` is the input."""
    module = arch.parse(text(body, directives, threads), "k.ptx")
    prepared = prepare_launch(module, arch, launch(grid, cluster, threads))
    count = int(np.prod(tuple(grid))) * threads
    data = np.arange(count, dtype=np.uint32) if given is None else given
    before = {"out": np.zeros(4 * count, dtype=np.uint8), "in": data.view(np.uint8)}
    return simulate(prepared, before).after["out"].view(np.uint32).reshape(-1, threads)


def coordinates(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return x, y and z of every block, in the order of their numbers."""
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]


GRID, SHAPE = (4, 6, 2), (2, 3, 2)


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


def verdict(
    first: str, second: str, *, every_launch: bool, clusters: Sequence[Sequence[int] | None] = (None, None)
) -> Outcome:
    sources = [
        Source(name, body, launch((4,), cluster, name=name))
        for name, body, cluster in zip(("a.ptx", "b.ptx"), (first, second), clusters, strict=True)
    ]
    options = Options(every_launch=every_launch, audit_contraction=False)
    return compare(sources[0], sources[1], SM90, options).verdict.outcome


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
    assert verdict(right, wrong, every_launch=every_launch, clusters=clusters) is not Outcome.EQUAL
    assert verdict(right, right, every_launch=every_launch, clusters=clusters) is Outcome.EQUAL
    assert verdict(wrong, wrong, every_launch=every_launch, clusters=clusters) is Outcome.EQUAL


def test_the_rank_is_computed_from_the_block_coordinates() -> None:
    rank = text(RANK.format("%cluster_ctarank"), ".reqnctapercluster 2")
    computed = text(
        "ld.global.b32 %r8, [%d8]; mov.u32 %r9, %ctaid.x; and.b32 %r9, %r9, 1; xor.b32 %r8, %r8, %r9; st.global.b32 [%d9], %r8;",
        ".reqnctapercluster 2",
    )
    assert verdict(rank, computed, every_launch=False) is Outcome.EQUAL


@pytest.mark.parametrize("every_launch", [False, True])
def test_one_text_in_clusters_of_two_shapes_is_not_equal(every_launch: bool) -> None:
    source = text(RANK.format("%cluster_ctarank"))
    for other in (None, (1, 1, 1), (4, 1, 1)):
        clusters = ((2, 1, 1), other)
        assert verdict(source, source, every_launch=every_launch, clusters=clusters) is not Outcome.EQUAL


def test_an_own_rank_of_no_cluster_is_zero() -> None:
    rank, zero = text(RANK.format("%cluster_ctarank")), text(RANK.format(0))
    assert verdict(rank, zero, every_launch=False) is Outcome.EQUAL
    assert verdict(rank, zero, every_launch=True) is not Outcome.EQUAL
