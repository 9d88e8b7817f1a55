"""Kernels of Gluon (Triton 3.9): pairs of blocks, clusters that take over others, and products in one pipeline."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.kernel_files import read_folder
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.assumptions import PIPELINE_IN_ORDER, WORK_STEALING
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry

HERE = Path(__file__).parent
ALL = frozenset({PIPELINE_IN_ORDER, WORK_STEALING})
BUFFERS = {"a": 1, "b": 2, "c": 3, "x": 4, "out": 5, "d": 6}
COMMIT = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"


def sources(group: str) -> dict[str, Source]:
    return {source.name: source for source in read_folder(HERE / group, (".ptx",)).sources}


PRODUCTS, TILES, STEPS, MULTICAST, PIPELINES = (
    sources(f"gluon_kernels/{group}") for group in ("products", "tiles", "steps", "multicast", "pipelines")
)
PAIR = sources("samples/sm_100/gluon_pairs")["gluon_pairs_1.ptx"]


def reading(source: Source, assume: frozenset[str] = ALL) -> AnalysisResult:
    return analyse(source, registry.default().arch("sm_100"), BUFFERS, Options(assume=assume))


@cache
def signature(group: str, name: str) -> bytes | None:
    """The signature of an unchanged kernel under all assumptions."""
    return reading(sources(group)[name]).signature


def executed(source: Source, **inputs: Any) -> dict[str, Any]:
    assert source.launch is not None
    before = {name: inputs[name].reshape(-1).view(np.uint8) for name in source.launch.buffers()}
    return dict(simulate(prepare(source, registry.default().arch("sm_100"), Options(assume=ALL)), before).after)


def test_a_multicast_says_nothing_of_other_blocks_without_the_assumption() -> None:
    found = reading(PRODUCTS["specialised.ptx"], frozenset())
    assert found.unknown is not None
    assert "at which phase of a memory barrier a thread arrives depends on the order" in found.unknown


def test_products_of_two_pairs_have_one_signature() -> None:
    """In `loop.ptx` all warps wait for each step, so that nothing is open about the other blocks."""
    found = reading(PRODUCTS["loop.ptx"], frozenset())
    assert found.signature is not None
    assert found.signature == reading(PRODUCTS["loop.ptx"]).signature
    assert found.signature == reading(PRODUCTS["specialised.ptx"]).signature


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_small_integers(name: str) -> None:
    generator = np.random.default_rng(8)
    a, b = (generator.integers(-3, 4, shape).astype(np.float16) for shape in ((512, 256), (256, 128)))
    found = executed(PRODUCTS[name], a=a, b=b, c=np.zeros((512, 128), np.float16))["c"].view(np.float16)
    assert np.array_equal(found.reshape(512, 128), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("name", "m", "n", "k"), [("columns.ptx", 256, 128, 192), ("rows.ptx", 256, 64, 128)])
def test_blocks_that_copy_tiles_to_each_other(name: str, m: int, n: int, k: int) -> None:
    """They copy over the address of another block's tensor memory, behind a relaxed barrier of the cluster."""
    assert reading(MULTICAST[name], frozenset()).signature is not None
    generator = np.random.default_rng(10)
    a, b = (generator.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    found = executed(MULTICAST[name], a=a, b=b, c=np.zeros((m, n), np.float16))["c"].view(np.float16)
    assert np.array_equal(found.reshape(m, n), a.astype(np.float32) @ b.astype(np.float32))


def test_a_tile_over_the_address_of_tensor_memory_needs_a_barrier_of_its_block() -> None:
    source = MULTICAST["columns.ptx"]
    load = "ld.shared.b32 \t%r105, [global_smem];"
    assert f"{load}\n\tbar.sync \t0;" in source.text
    barrier = "barrier.cluster.arrive.relaxed.aligned;"
    late = source.text.replace(f"{load}\n", "", 1).replace(barrier, f"{load}\n\t{barrier}", 1)
    assert "overwrites shared memory that another" in (reading(replace(source, text=late)).unknown or "")


WAIT = "\tmbarrier.try_wait.parity.shared::cta.b64 complete, [{}], {};\n\t@!complete bra.uni waitLoop;\n"
CHANGES = {
    "another block's rows": ("[%rd2, {%r39, %r40}]", "[%rd2, {%r39, %r39}]"),
    "another block's columns": ("[%rd1, {%r42, %r39}]", "[%rd1, {%r39, %r39}]"),
    "no wait for a tile": (WAIT.format("%r14", "%r15"), ""),
    "no wait for a product": (WAIT.format("%r36", "%r39"), ""),
    "no wait for the accumulator": (WAIT.format("%r70", "%r71"), ""),
    "one arrival for two": ("[%r66], 2;", "[%r66], 1;"),
    "two arrivals for one": ("[%r67], 1;", "[%r67], 2;"),
    "fewer bytes": ("[%r38], 24576;", "[%r38], 16384;"),
    "a commit to one block": ("mov.b16 \t%rs1, 3;", "mov.b16 \t%rs1, 1;"),
    "the accumulator of one block": ("mov.b16 \t%rs2, 3;", "mov.b16 \t%rs2, 1;"),
    "no commit": (f"@%p9 {COMMIT} [%r19], %rs1;", ""),
    "a barrier of one block": (
        "barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;",
        "bar.sync 1;",
    ),
    "no fence of the initialisations": ("@%p30 fence.mbarrier_init.release.cluster ;", ""),
    "no fence of the result": ("fence.proxy.async.shared::cta;", ""),
    "a product with the accumulator": ("%rd7, %r18, %p8;", "%rd7, %r18, %p10;"),
    "another operand": ("%rd8, %rd9, %r18", "%rd6, %rd9, %r18"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_pair_is_not_equal(name: str) -> None:
    old, new = CHANGES[name]
    assert old in PAIR.text
    found = reading(replace(PAIR, text=PAIR.text.replace(old, new, 1)))
    assert found.signature is None or found.signature != signature("samples/sm_100/gluon_pairs", "gluon_pairs_1.ptx")


def test_a_product_over_an_operand_of_the_last_one_is_in_order_by_assumption() -> None:
    """`aliased.ptx` computes the next scores where the weights of the last step are, `apart.ptx` beside them."""
    found = reading(STEPS["apart.ptx"], frozenset())
    assert found.signature is not None
    assert "known to be complete" in (reading(STEPS["aliased.ptx"], frozenset()).unknown or "")
    assert found.signature == reading(STEPS["aliased.ptx"]).signature == reading(STEPS["apart.ptx"]).signature
    swapped = STEPS["aliased.ptx"].text.replace("tcgen05.wait::st.sync.aligned;", "", 1)
    assert reading(replace(STEPS["aliased.ptx"], text=swapped)).signature is None


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_small_integers(name: str) -> None:
    generator = np.random.default_rng(9)
    a, b, d = (generator.integers(-1, 2, shape).astype(np.float16) for shape in ((128, 16), (16, 64), (64, 16)))
    found = executed(STEPS[name], a=a, b=b, d=d, out=np.zeros((128, 16), np.float32))["out"].view(np.float32)
    assert np.array_equal(found.reshape(128, 16), (a.astype(np.float32) @ b) ** 2 @ d)


def test_clusters_that_take_over_others_compute_their_tiles() -> None:
    found = {name: reading(source) for name, source in TILES.items()}
    assert all(each.signature is not None for each in found.values())
    assert len({each.signature for each in found.values()}) == 1
    x = np.arange(1000, dtype=np.float32)
    for source in TILES.values():
        out = executed(source, x=x, out=np.zeros(1000, np.float32))["out"].view(np.float32)
        assert np.array_equal(out, 2.5 * x + 1)


def test_blocks_that_take_over_tiles_compute_the_product_of_a_pair() -> None:
    found = {name: reading(source).signature for name, source in PIPELINES.items()}
    assert found["stealing.ptx"] is not None
    assert found["stealing.ptx"] == found["pair.ptx"]
    head, *parts = PIPELINES["stealing.ptx"].text.split("fence.proxy.async.shared::cta;")
    for left_out in range(1, len(parts) + 1):
        text = head + "".join(
            ("" if n == left_out else "fence.proxy.async.shared::cta;") + p for n, p in enumerate(parts, 1)
        )
        assert "fence" in (reading(replace(PIPELINES["stealing.ptx"], text=text)).unknown or "")


@pytest.mark.parametrize("name", TILES)
def test_taking_over_is_an_assumption(name: str) -> None:
    assert "--assume work-stealing" in (reading(TILES[name], frozenset()).unknown or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shl.b32 \t%r15, %r14, 7;", "mov.b32 \t%r15, 0;"),
        ("multicast::cluster::all.", ""),
        ("fence.proxy.async.shared::cluster;", ""),
        ("@%p6 clusterlaunchcontrol", "@%p19 clusterlaunchcontrol"),
        ("fma.rn.f32 \t%r25, %r21, 0f40200000, 0f3F800000;", "add.f32 \t%r25, %r21, %r28;"),
        ("[%r20], 16;", "[%r20], 32;"),
    ],
    ids=["one rank", "one block's response", "no fence", "a request of each block", "of an earlier tile", "more bytes"],
)
def test_changed_clusters_are_not_equal(old: str, new: str) -> None:
    source = TILES["clusters_of_2.ptx"]
    assert old in source.text
    found = reading(replace(source, text=source.text.replace(old, new, 1)))
    assert found.signature is None or found.signature != signature("gluon_kernels/tiles", "clusters_of_2.ptx")
