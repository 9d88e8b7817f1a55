"""Kernels of warpgroups: simulated bytes against descriptors, classes with Triton kernels, races of mutants."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options, Source
from bitwise_core.descriptors import Epilogue, GEMMDesc, Step
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins.installed import evaluate
from bitwise_nvidia_sm90.gemm.kernels.finish import Finish
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_text import warpgroup_kernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    COORDINATE_BYTES,
    OUTPUT_BYTES,
    TileError,
    WarpgroupTiles,
    fills_lines,
)
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from covering import covering_params
from gemm_products import (
    MMA,
    WGMMA,
    Matrix,
    captured,
    cost_of_product,
    matrix,
    random_patterns,
    run,
    source,
    values_of_product,
)

FP8 = "family=wgmma k=32"


def consumers(block_m: int, block_n: int, stages: int, number: int, **fields: Any) -> Schedule:
    """Return a schedule with consumers."""
    given = {"block_k": 64, "programs": 132, **fields}
    return Schedule(block_m, block_n, stages=stages, warps=4 * (number + 1), tma=True, consumers=number, **given)


def calls(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule, layouts: str = "tn", out: tuple[int, int] | None = None
) -> list[KernelCall]:
    """Return the calls of a schedule.  `layouts`: "t" or "n" for A and B, as BLAS names them; `out`: strides of C."""
    k = desc.k
    left = Matrix("A", (m, k), (k, 1) if layouts[0] == "t" else (1, m), desc.left_dtype)
    right = Matrix("B", (k, n), (1, k) if layouts[1] == "n" else (n, 1), desc.right_dtype)

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    return kernel_calls(
        plan(desc), chosen, left, right, Matrix("C", (m, n), out or (n, 1), desc.output_dtype), workspace
    )


def product(
    desc: GEMMDesc, m: int, n: int, chosen: Schedule, layouts: str = "tn", out: tuple[int, int] | None = None
) -> tuple[Bits, Bits]:
    """Return the simulated bit patterns of a product of random operands, and those of the descriptor."""
    random = np.random.default_rng(desc.k)
    a, b = random_patterns((m, desc.k), desc.left_dtype, random), random_patterns((desc.k, n), desc.right_dtype, random)
    size = FLOAT_FORMATS[desc.output_dtype].bits // 8
    strides = out or (n, 1)
    state = {
        "A": np.ascontiguousarray(a if layouts[0] == "t" else a.T).view(np.uint8).ravel(),
        "B": np.ascontiguousarray(b.T if layouts[1] == "n" else b).view(np.uint8).ravel(),
        "C": np.full(((m - 1) * strides[0] + (n - 1) * strides[1] + 1) * size, 0xA5, dtype=np.uint8),
    }
    product_call, *rest = calls(desc, m, n, chosen, layouts, out)
    target = product_call.arguments["C"]
    if isinstance(target, Matrix) and target.name == "W":
        state["W"] = np.full(int(np.prod(target.shape)) * 4, 0x5A, dtype=np.uint8)
    assert isinstance(product_call.kernel, TextKernel)
    run(source(product_call), state)
    for each in rest:
        run(source(each), state)
    words = state["C"].view(storage(8 * size))
    places = np.arange(m)[:, None] * strides[0] + np.arange(n)[None] * strides[1]
    return words[places], evaluate(desc, a, b)


SLICED = "k_cuts=[cut(span=128)] k_dropped=8"
PRODUCTS = {
    "one tile": (matrix(200, WGMMA), 64, 64, consumers(64, 64, 3, 1), "tn", None),
    "ragged": (matrix(200, WGMMA), 136, 72, consumers(64, 48, 3, 1, programs=2), "tn", None),
    "two consumers": (matrix(328, WGMMA, dtype="bf16"), 200, 136, consumers(128, 64, 3, 2, programs=2), "tn", None),
    "three consumers": (matrix(200, WGMMA, out="fp32"), 200, 72, consumers(192, 32, 3, 3), "nn", None),
    "two parts of rows": (matrix(136, WGMMA), 264, 40, consumers(256, 32, 3, 2), "nt", None),
    "ping-pong": (matrix(200, WGMMA), 200, 136, consumers(64, 32, 3, 2, ping_pong=True, programs=3), "tn", None),
    "ping-pong in slices": (
        matrix(520, WGMMA, SLICED), 136, 72, consumers(64, 48, 3, 2, ping_pong=True, programs=2), "tn", None
    ),
    "slices": (matrix(520, WGMMA, SLICED), 72, 40, consumers(64, 32, 4, 1, programs=3), "tt", None),
    "cluster along m": (matrix(264, WGMMA), 200, 72, consumers(64, 48, 3, 1, cluster_m=2, programs=4), "tn", None),
    "cluster along n": (matrix(264, MMA), 136, 136, consumers(128, 32, 3, 2, cluster_n=2, programs=2), "nt", None),
    "cluster of four": (matrix(136, WGMMA), 72, 136, consumers(64, 32, 3, 1, cluster_n=4), "nn", None),
    "cluster of two by two": (
        matrix(200, WGMMA), 200, 136, consumers(64, 32, 3, 1, cluster_m=2, cluster_n=2, programs=4), "tt", None
    ),
    "cluster of four by two": (matrix(136, WGMMA), 72, 136, consumers(64, 32, 3, 1, cluster_m=4, cluster_n=2), "nn",
                               None),
    "columns by eight": (matrix(200, WGMMA), 136, 104, consumers(64, 56, 3, 1, programs=2), "tn", None),
    "parts of 8 columns": (matrix(200, WGMMA), 72, 72, consumers(64, 24, 3, 1, programs=2), "nn", None),
    "8 columns": (matrix(136, WGMMA), 8, 136, consumers(64, 8, 3, 1, transposed=True), "tn", None),
    "stages that blocks copy in turn": (
        matrix(328, WGMMA), 40, 264, consumers(64, 24, 3, 1, transposed=True, cluster_m=4, cluster_n=2, programs=8),
        "tn", None,
    ),
    "stages in turn, ping-pong": (
        matrix(264, WGMMA), 136, 40, consumers(64, 40, 3, 2, ping_pong=True, cluster_m=2, programs=2), "tn", None
    ),
    "cluster of a split operand": (
        matrix(200, WGMMA), 200, 72, consumers(64, 48, 3, 1, cluster_m=2, programs=2), "tt", None
    ),
    "ping-pong in a cluster": (
        matrix(264, WGMMA, dtype="bf16"), 264, 72, consumers(64, 32, 4, 2, ping_pong=True, cluster_m=2, programs=2),
        "tt", None,
    ),
    "two resident blocks": (
        matrix(264, WGMMA, dtype="bf16"), 136, 136, consumers(64, 64, 3, 1, resident=2, cluster_m=2, programs=4), "tn",
        None,
    ),
    "a launch alone": (matrix(200, WGMMA), 72, 40, consumers(64, 32, 3, 1, resident=2, overlap=False), "tn", None),
    "columns through a map": (matrix(200, WGMMA), 72, 136, consumers(64, 48, 3, 1, transposed=True), "tn", None),
    "columns in several parts": (
        matrix(200, WGMMA, dtype="bf16"), 104, 264, consumers(128, 104, 3, 1, transposed=True, programs=2), "tn", None
    ),
    "columns of two consumers": (
        matrix(136, WGMMA), 88, 264, consumers(256, 88, 2, 2, transposed=True, programs=1), "tn", None
    ),
    "columns, ping-pong": (
        matrix(200, WGMMA), 136, 200, consumers(64, 72, 3, 2, ping_pong=True, transposed=True, programs=2), "tn", None
    ),
    "columns with one buffer": (
        matrix(328, WGMMA), 200, 200, consumers(192, 192, 4, 3, transposed=True), "tn", None
    ),
    "columns of C through a map": (matrix(72, WGMMA), 72, 40, consumers(64, 40, 3, 1), "tn", (1, 72)),
    "columns at strides that no map has": (
        matrix(72, WGMMA), 37, 66, consumers(64, 32, 3, 1, transposed=True), "tn", (67, 1)
    ),
    "transposed": (matrix(200, WGMMA), 72, 136, consumers(64, 48, 3, 1, transposed=True), "tn", (1, 72)),
    "columns of C": (matrix(72, WGMMA), 72, 40, consumers(64, 32, 3, 1), "tn", (1, 72)),
    "rows of C that no map has": (matrix(72, WGMMA, out="fp32"), 66, 37, consumers(64, 32, 3, 1), "tn", None),
    "one buffer for the output": (matrix(328, WGMMA), 200, 200, consumers(192, 192, 4, 3), "tn", None),
    "168 columns of 256 rows": (matrix(264, WGMMA, dtype="bf16"), 264, 168, consumers(256, 168, 3, 2), "tn", None),
    "128 k in a stage": (matrix(200, WGMMA), 136, 72, consumers(64, 48, 3, 1, block_k=128, programs=2), "tn", None),
    "128 k in a stage of columns": (
        matrix(328, WGMMA, dtype="bf16"), 200, 136, consumers(128, 64, 2, 2, block_k=128, programs=2), "nt", None
    ),
    "256 k in a stage": (
        matrix(584, WGMMA), 24, 136, consumers(64, 8, 3, 1, block_k=256, transposed=True, programs=2), "tn", None
    ),
    "128 k in a stage of a cluster": (
        matrix(520, WGMMA, "k_cuts=[cut(span=256)]"), 136, 136,
        consumers(64, 32, 3, 1, block_k=128, cluster_m=2, cluster_n=2, programs=4), "tt", None,
    ),
    "128 k in a stage that blocks copy in turn": (
        matrix(456, WGMMA), 40, 264,
        consumers(64, 24, 3, 1, block_k=128, transposed=True, cluster_m=4, cluster_n=2, programs=8), "tn", None,
    ),
    "128 k in a stage, ping-pong": (
        matrix(328, WGMMA), 200, 136, consumers(64, 32, 3, 2, block_k=128, ping_pong=True, programs=3), "tn", None
    ),
    "fp8": (matrix(400, FP8, "k_cuts=[cut(span=128)]", "e4m3", "bf16"), 136, 72,
            consumers(128, 64, 3, 2, block_k=128), "tn", None),
    "fp8 ping-pong in a cluster": (
        matrix(400, FP8, "k_cuts=[cut(span=256) cut(span=128)]", "e5m2", "fp32"), 200, 48,
        consumers(64, 32, 3, 2, block_k=128, ping_pong=True, cluster_m=2, programs=2), "tn", None,
    ),
}  # fmt: skip


def values_of(name: str) -> dict[str, Hashable]:
    """Return what decides the paths of the kernel of a product."""
    layouts, out = PRODUCTS[name][4:]
    return values_of_product(*PRODUCTS[name][:4]) | {"layouts": layouts, "strides": out}


@pytest.mark.parametrize(
    "name", covering_params(list(PRODUCTS), values_of, cost=lambda name: cost_of_product(*PRODUCTS[name][:4]))
)
def test_bytes_are_those_of_the_descriptor(name: str) -> None:
    if "cut(span" in PRODUCTS[name][0].to_text() or "slices" in name:
        pytest.importorskip("triton")
    found, wanted = product(*PRODUCTS[name])
    assert (found == wanted).all()


def test_sums_of_minus_zeros_are_plus_zeros() -> None:
    """As in the Triton kernels: the first instruction adds to +0."""
    desc = matrix(64, WGMMA)
    (call,) = calls(desc, 64, 64, consumers(64, 64, 2, 1))
    state = {"A": np.full(64 * 64, 0x8000, dtype=np.uint16), "B": np.full(64 * 64, 0x3C00, dtype=np.uint16)}
    words: dict[str, Any] = {name: each.view(np.uint8) for name, each in state.items()}
    words["C"] = np.full(64 * 64 * 2, 0xA5, dtype=np.uint8)
    run(source(call), words)
    assert not words["C"].any()


def test_kernels_of_one_descriptor_are_one_equivalence_class() -> None:
    pytest.importorskip("triton")
    desc, m, n = matrix(200, WGMMA), 128, 64
    schedules = (
        consumers(64, 64, 3, 1), consumers(128, 32, 3, 2), consumers(64, 32, 3, 2, ping_pong=True, programs=1),
        consumers(64, 48, 4, 1, cluster_m=2, programs=2), consumers(64, 64, 2, 1, block_k=128),
        consumers(64, 32, 3, 1, block_k=256, cluster_n=2, programs=2), consumers(64, 72, 3, 1, transposed=True),
        consumers(128, 40, 3, 2, block_k=128, transposed=True, programs=1),
    )  # fmt: skip
    sources = [replace(source(*calls(desc, m, n, each, "tt")), name=str(each)) for each in schedules]
    sources.append(captured(desc, m, n, Schedule(64, 64, 64, 8, 4, 3, 132, True)))
    sources.append(captured(desc, m, n, Schedule(64, 32, 64, 8, 4, 3)))
    found = partition(sources, "sm_90", Options(audit_contraction=False), workers=1)
    assert not found.unknown
    assert [len(each) for each in found.classes] == [10]


def edited(chosen: Schedule, edits: list[tuple[str, str]], layouts: str = "tn") -> Source:
    """Return a kernel with a changed text."""
    (call,) = calls(matrix(456, WGMMA), 264, 64, chosen, layouts)
    text = call.kernel.text
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return source(call, text)


ONE = consumers(64, 64, 3, 1, programs=2)
TURNS = consumers(64, 64, 3, 2, ping_pong=True, programs=1)
CLUSTER = consumers(64, 64, 3, 1, cluster_m=2, programs=2)
SHARED = consumers(128, 64, 3, 2, programs=1)
ONE_BUFFER = consumers(192, 192, 4, 3, programs=1)
RELEASE = "@%p_leads mbarrier.arrive.shared::cta.b64 _, [%r_used];"
OF_CLUSTER = "@%p_releases mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r_used];"
FENCES = ("fence.release.sync_restrict::shared::cta.cluster;", "fence.acquire.sync_restrict::shared::cluster.cluster;")
WAIT = "wgmma.wait_group.sync.aligned {};\n"
RACES: dict[str, tuple[Schedule, list[tuple[str, str]]]] = {
    "a stage is released before it is read": (ONE, [(WAIT.format(1), "")]),
    "one of two consumers releases a stage too early": (
        SHARED, [(WAIT.format(1), f"@%p_is_1 bra NOT_YET;\n{WAIT.format(1)}NOT_YET:\n")]
    ),
    "the last stage is released before it is read": (ONE, [(WAIT.format(0), "")]),
    "no proxy fence before the store": (ONE, [("fence.proxy.async.shared::cta;\n", "")]),
    "no barrier before the store": (
        ONE, [("fence.proxy.async.shared::cta;\n@%p_is_0 bar.sync 1, 128;", "fence.proxy.async.shared::cta;")]
    ),
    "the buffer of the output is written while it is stored": (
        ONE, [("@%p_issues cp.async.bulk.wait_group.read 0;\n@%p_is_0", "@%p_is_0")]
    ),
    "no barrier after the wait for the buffer of the output": (
        ONE, [("@%p_issues cp.async.bulk.wait_group.read 0;\n@%p_is_0 bar.sync 1, 128;\n",
               "@%p_issues cp.async.bulk.wait_group.read 0;\n")]
    ),
    "the only buffer of the output is written while it is stored": (
        ONE_BUFFER, [("@%p_issues cp.async.bulk.wait_group.read 0;\n@%p_is_0", "@%p_is_0")]
    ),
    "one of two consumers does not wait for its stores": (
        TURNS, [("@%p_issues cp.async.bulk.wait_group.read 0;\n@%p_is_0", "setp.eq.and.u32 %p_wraps, %r_thread, 0, "
                 "%p_issues;\n@%p_wraps cp.async.bulk.wait_group.read 0;\n@%p_is_0")]
    ),
    "the producer does not wait": (ONE, [("@!%p_ready bra WAIT_EMPTY;", ""), ("WAIT_EMPTY: mbarrier.try_wait.parity"
                                          ".shared::cta.b64 %p_ready, [%r_at], %r_empty_parity;", "")]),
    "fewer arrivals than warps": (ONE, [("[%r_empty+0], 4", "[%r_empty+0], 3")]),
    "more arrivals than warps": (ONE, [("[%r_empty+0], 4", "[%r_empty+0], 5")]),
    "stages are full too early": (ONE, [("_, [%r_at], 16384", "_, [%r_at], 8192")]),
    "a relaxed arrival": (CLUSTER, [(f"{FENCES[0]}\n{OF_CLUSTER}", OF_CLUSTER)]),
    "an arrival of the own block's scope": (
        CLUSTER, [(f"{FENCES[0]}\n{OF_CLUSTER}", OF_CLUSTER.replace("relaxed.cluster.", ""))]
    ),
    "a relaxed wait": (CLUSTER, [(FENCES[1], "")]),
    "a branch over the fence": (
        CLUSTER, [(f"LAST_STAGE:\nwgmma.wait_group.sync.aligned 0;\n{FENCES[0]}\n",
                   f"LAST_STAGE:\nwgmma.wait_group.sync.aligned 0;\nbra ARRIVE;\n{FENCES[0]}\nARRIVE: ")]
    ),
    "an access to the other block": (
        CLUSTER, [("CONSUMER_END:", "CONSUMER_END: ld.shared::cluster.b32 %r_at, [%r_empty];")]
    ),
    "an arrival at the own block alone": (CLUSTER, [("%r_lane, 2;", "%r_lane, 1;")]),
    "blocks end before their cluster": (CLUSTER, [("@%p_done bra PRODUCER_END;", "@%p_done bra END;")]),
    "blocks end before the last arrivals": (
        CLUSTER, [("PRODUCER_END: mov.u32 %r_remaining, 3;", "PRODUCER_END: mov.u32 %r_remaining, 2;")]
    ),
    "barriers are used before the cluster has started": (
        CLUSTER, [("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\n", "bar.sync 0;\n")]
    ),
    "barriers are not published to the cluster": (
        CLUSTER, [("fence.mbarrier_init.release.cluster;", ""),
                  (FENCES[0] + "\nbarrier.cluster.arrive.relaxed.aligned;", "barrier.cluster.arrive.relaxed.aligned;")]
    ),
}  # fmt: skip
"""Schedules, and changes to their kernels that take away an order which the result needs."""


@pytest.mark.parametrize("name", RACES)
def test_a_missing_order_has_no_result(name: str) -> None:
    chosen, edits = RACES[name]
    if any(old == "[%r_empty+0], 4" for old, _ in edits):
        edits = [(f"[%r_empty+{8 * stage}], 4", new.replace("+0", f"+{8 * stage}")) for stage in range(3)
                 for _, new in edits]  # fmt: skip
    made = edited(chosen, edits)
    found = partition([made], "sm_90", Options(audit_contraction=False))
    assert len(found.unknown) == 1


def together(sources: dict[str, Source]) -> set[frozenset[str]]:
    """Return the classes of kernels by name, without those that are unknown."""
    named = [replace(each, name=name) for name, each in sources.items()]
    found = partition(named, "sm_90", Options(audit_contraction=False), workers=1)
    return {frozenset(name for name in names if name not in found.unknown) for names in found.classes}


def test_a_kernel_without_turns_is_not_equal() -> None:
    """Without turns, a consumer takes the phase of a stage before for the one that it waits for."""
    edits = [("@!%p_ready bra WAIT_TURN;", ""), (re.search(r"WAIT_TURN: .*", edited(TURNS, []).text)[0], "")]  # type: ignore[index]
    assert frozenset(("plain",)) in together({"plain": edited(TURNS, []), "without": edited(TURNS, edits)})


def without_mask(name: str) -> tuple[str, str]:
    """Return the change by which the descriptor of an operand is made of all bits of an address."""
    return f"bfe.u32 %r_{name}_place, %r_{name}_place, 4, 14;", f"shr.u32 %r_{name}_place, %r_{name}_place, 4;"


@pytest.mark.parametrize("layouts", ["tn", "nt"])
def test_the_rank_in_a_descriptor_counts_in_clusters(layouts: str) -> None:
    """An address holds the rank of the block in bits that are another field of the descriptor."""
    alone = [(".reqntid", ".reqnctapercluster 2, 1, 1\n.reqntid")]
    masks = {name: [without_mask(name)] for name in "ab"}
    blocks = {"one": edited(ONE, [], layouts), "of a cluster": edited(ONE, alone, layouts)}
    blocks |= {f"one without {name}": edited(ONE, each, layouts) for name, each in masks.items()}
    blocks |= {f"of a cluster without {name}": edited(ONE, alone + each, layouts) for name, each in masks.items()}
    found = together(blocks)
    assert frozenset(("one", "of a cluster", "one without a", "one without b")) in found
    clusters = {each: edited(CLUSTER, [], layouts) for each in ("plain", "again")}
    clusters |= {f"without {name}": edited(CLUSTER, each, layouts) for name, each in masks.items()}
    assert frozenset(("plain", "again")) in together(clusters)


@pytest.mark.parametrize("chosen", [ONE, TURNS, CLUSTER, SHARED], ids=str)
def test_other_orders_of_k_are_not_equal(chosen: Schedule) -> None:
    plain = edited(chosen, [])
    offsets = "add.s64 %d_{}_{}, %d_{}_stage, {};"
    swapped = [
        (offsets.format(*first), offsets.format(name, *first[1:3], value) + " ")
        for name, suffix in (("a", "_0"), ("b", ""))
        for first, value in (((name, f"0{suffix}", name, 0), 2), ((name, f"1{suffix}", name, 2), 0))
    ]
    sources = {
        "plain": plain,
        "swapped": edited(chosen, swapped),
        "from the sums before": edited(chosen, [("mov.pred %p_starts, 0;", "mov.pred %p_starts, -1;")]),
        "later k": edited(chosen, [("mul.lo.u32 %r_k, %r_slice, %r_slice_k;", "add.u32 %r_k, %r_slice, 64;")]),
    }
    assert frozenset(("plain",)) in together(sources)


TEXTS = (
    WarpgroupTiles(128, 256, 4, 2, False, (2, 1), 8, ("bf16", "bf16"), "bf16"),
    WarpgroupTiles(256, 128, 4, 2, False, (1, 2), 8, ("fp16", "fp16"), "fp16", False, False),
    WarpgroupTiles(128, 128, 6, 2, True, (1, 1), 8, ("bf16", "bf16"), "fp32", True, False),
    WarpgroupTiles(192, 192, 3, 3, False, (1, 2), 8, ("bf16", "bf16"), "bf16"),
    WarpgroupTiles(64, 256, 4, 1, False, (1, 1), 8, ("bf16", "bf16"), "bf16", store="elements"),
    WarpgroupTiles(128, 192, 4, 2, False, (1, 1), 8, ("fp16", "fp16"), "fp32", store="pairs"),
    WarpgroupTiles(128, 128, 5, 2, False, (2, 1), 8, ("e4m3", "e5m2"), "bf16", starts_accumulators=True),
    WarpgroupTiles(64, 128, 6, 2, True, (1, 1), 8, ("e4m3", "e4m3"), "fp32", starts_accumulators=True),
    WarpgroupTiles(64, 128, 4, 1, False, (1, 1), 8, ("bf16", "bf16"), "bf16", resident=2),
    WarpgroupTiles(256, 120, 4, 2, False, (4, 2), 8, ("bf16", "bf16"), "bf16"),
    WarpgroupTiles(128, 64, 3, 1, False, (1, 2), 8, ("bf16", "bf16"), "fp32", False, store="elements", resident=2),
    WarpgroupTiles(192, 192, 4, 3, False, (1, 2), 8, ("bf16", "bf16"), "bf16"),
    WarpgroupTiles(192, 200, 3, 3, False, (2, 1), 8, ("fp16", "fp16"), "fp16", store="elements"),
    WarpgroupTiles(256, 168, 3, 2, False, (1, 2), 8, ("bf16", "bf16"), "bf16", False, True),
    WarpgroupTiles(256, 152, 4, 2, False, (2, 1), 8, ("bf16", "bf16"), "fp32", store="pairs"),
    WarpgroupTiles(128, 168, 4, 2, True, (1, 1), 8, ("fp16", "fp16"), "fp16"),
)


@pytest.mark.parametrize("tiles", TEXTS, ids=lambda each: warpgroup_kernel(each).name)
def test_the_assembler_keeps_the_pipeline(tiles: WarpgroupTiles, tmp_path: Path) -> None:
    """No register is spilled, no matrix instruction serialised, no change of the number of registers ignored."""
    pytest.importorskip("triton")
    from triton import knobs

    (tmp_path / "kernel.ptx").write_text(warpgroup_kernel(tiles).text)
    command = [knobs.nvidia.ptxas.path, "-arch=sm_90a", "-v", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    messages = done.stdout + done.stderr
    assert not done.returncode, messages
    assert "0 bytes spill stores, 0 bytes spill loads" in messages
    assert not re.search(r"warning|\(C\d+\)", messages), messages


@pytest.mark.parametrize("tiles", TEXTS, ids=lambda each: warpgroup_kernel(each).name)
def test_a_dependent_launch_waits_before_it_accesses_memory(tiles: WarpgroupTiles) -> None:
    text = warpgroup_kernel(tiles).text
    (wait,) = (place.start() for place in re.finditer(r"griddepcontrol\.wait", text))
    (start,) = (place.start() for place in re.finditer(r"griddepcontrol\.launch_dependents", text))
    first = min(place.start() for place in re.finditer(r"\b(ld|st|cp|red|atom)\.(?!param)\S", text))
    assert wait < start < first


def test_a_kernel_alone_lets_no_other_start_before_it_ends() -> None:
    text = warpgroup_kernel(replace(TEXTS[0], overlap=False)).text
    assert "griddepcontrol.wait" in text
    assert "griddepcontrol.launch_dependents" not in text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"consumers": 4}, "4 consumers"), ({"block_m": 96}, "multiple of 64 rows"), ({"block_n": 264}, "block_n 264"),
        ({"cluster": (4, 4)}, "cluster"), ({"cluster": (3, 1)}, "cluster"), ({"stages": 9}, "bytes of shared memory"),
        ({"stages": 1}, "stages"), ({"block_m": 256, "block_n": 256, "stages": 2}, "256 accumulators"),
        ({"ping_pong": True, "consumers": 1}, "ping_pong"), ({"operands": ("fp16", "e4m3")}, "one width"),
        ({"operands": ("e4m3", "e4m3"), "b_k_major": False}, "contiguous"), ({"store": "rows"}, "store"),
        ({"resident": 2}, "resident: 1, or 2 with 1 consumer"), ({"resident": 3, "consumers": 1}, "resident"),
        ({"resident": 2, "consumers": 1, "block_m": 64, "block_n": 144, "stages": 2}, "72 accumulators"),
        ({"resident": 2, "consumers": 1, "block_m": 64, "block_n": 64, "stages": 7}, "bytes of shared memory"),
        ({"block_n": 24, "b_k_major": False}, "a multiple of 16"), ({"group": 0}, "group"),
        ({"output": "fp64"}, "output"), ({"store": "columns", "output": "fp32"}, "only columns of 16 bits"),
        ({"depth": 3}, "depth 3"), ({"depth": 2, "stages": 2, "starts_accumulators": True}, "depth 2"),
    ],
)  # fmt: skip
def test_tiles_without_a_kernel_raise(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(TileError, match=re.escape(why)):
        warpgroup_kernel(replace(TEXTS[0], **changed))


@pytest.mark.parametrize(
    ("desc", "chosen", "why"),
    [
        (matrix(64, WGMMA), replace(ONE, tma=False), "consumers need either tma"),
        (matrix(64, WGMMA), replace(ONE, warps=4), "4 more"),
        (matrix(64, WGMMA), replace(ONE, block_k=96), "block_k is 64"),
        (matrix(64, WGMMA), replace(ONE, stages=20), "bytes of shared memory"),
        (matrix(64, WGMMA), Schedule(64, 64, tma=True, cluster_m=2), "need consumers"),
        (matrix(64, WGMMA), Schedule(64, 64, tma=True, resident=2), "need consumers"),
        (matrix(64, WGMMA), Schedule(64, 64, overlap=False), "need tma"),
        (matrix(107, MMA, "k_loop_step=32 short_iteration=first"), ONE, "short iteration runs last"),
        (matrix(520, WGMMA, "k_cuts=[cut(span=96)]"), ONE, "whole iterations"),
        (matrix(68, WGMMA), ONE, "tensor maps need"),
        (matrix(400, FP8, "k_cuts=[cut(span=128)]", "e4m3", "bf16"), ONE, "and 128 for fp8"),
    ],
    ids=str,
)  # fmt: skip
def test_schedules_that_do_not_fit_raise(desc: GEMMDesc, chosen: Schedule, why: str) -> None:
    with pytest.raises(UnsupportedGEMM, match=why):
        calls(desc, 64, 64, chosen)


def test_a_race_is_reported_when_it_is_simulated() -> None:
    made = edited(*RACES["one of two consumers releases a stage too early"])
    state: dict[str, Any] = {name: np.zeros(264 * 456 * 2, dtype=np.uint8) for name in "ABC"}
    with pytest.raises(Unsupported, match="overwrites shared memory"):
        run(made, state)


@pytest.mark.parametrize(("columns", "is_allowed"), [(0, True), (4, False), (8, True)])
def test_a_copy_that_starts_inside_of_16_bytes_of_a_line_is_no_instruction(columns: int, is_allowed: bool) -> None:
    made = edited(ONE, [("add.u32 %r_part_column, %r_column, 0;", f"add.u32 %r_part_column, %r_column, {columns};")])
    state: dict[str, Any] = {name: np.zeros(264 * 456 * 2, dtype=np.uint8) for name in "ABC"}
    if is_allowed:
        run(made, state)
    else:
        with pytest.raises(Unsupported, match="no multiple of 16 bytes of a line is an illegal instruction"):
            run(made, state)


@pytest.mark.parametrize("output", ["e4m3", "bf16", "fp32"])
def test_parts_of_a_tile_are_stored_from_whole_units_of_a_tensor_map(output: str) -> None:
    size, stored = OUTPUT_BYTES[output], 0
    finish = Finish(Epilogue.of(Step(name="convert", dtype=output)), "bf16") if output == "e4m3" else None
    for block_n in range(16, 257, 8):
        tiles = WarpgroupTiles(64, block_n, 2, 1, False, (1, 1), 8, ("bf16", "bf16"), output, finish=finish)
        if not fills_lines(block_n, size):
            with pytest.raises(TileError):
                tiles.check()
            continue
        stored += 1
        tiles.check()
        for tile in range(3):
            for _, column in tiles.store_places:
                assert (tile * block_n + column) * size % COORDINATE_BYTES == 0
        covered = {column + each for _, column in tiles.store_places for each in range(tiles.store_columns)}
        assert covered == set(range(block_n))
    assert stored == {"e4m3": 12, "bf16": 31, "fp32": 31}[output]
