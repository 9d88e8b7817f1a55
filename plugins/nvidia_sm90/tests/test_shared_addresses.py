# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Numbers of shared addresses: in a cluster of several blocks they hold the rank of the block from bit 24 on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_core.execution.clusters import Clusters
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90
from cluster_kernels import GRID, SHAPE, launch, text, verdict, words

FOUR = ".reqnctapercluster 4"
ROOM = "mov.u32 %r10, room;"
STORE = "st.global.b32 [%d9], %r21;"
BARRIER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
GENERIC = "cvt.u64.u32 %d10, %r10; cvta.shared.u64 %d11, %d10; cvta.to.shared.u64 %d12, %d11; cvt.u32.u64 %r21, %d12;"
RANK_OF = "mov.u32 %r12, %cluster_ctarank;"
NEXT = f"{RANK_OF} add.u32 %r13, %r12, 1; and.b32 %r13, %r13, 3;"
WORD = f"{ROOM} mad.lo.u32 %r11, %r0, 4, %r10;"
UNMASKED = f"{ROOM} mov.b32 %r21, %r10; {STORE}"
MASKED = f"{ROOM} and.b32 %r21, %r10, 0xffffff; {STORE}"


def ranks(grid: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Return the rank of each block of a grid in its cluster."""
    whole: Any = [(*each, *(1,) * (3 - len(each))) for each in (grid, shape)]
    clusters = Clusters(*whole)
    found = np.empty(int(np.prod(grid)), dtype=np.int64)
    found[clusters.whole(None).reshape(-1, clusters.size)] = np.arange(clusters.size)
    return found


@pytest.mark.parametrize("between", ["", BARRIER], ids=["independent blocks", "blocks that wait for each other"])
@pytest.mark.parametrize(("grid", "shape"), [((4,), (4,)), ((8,), (2,)), ((300,), (4,)), (GRID, SHAPE)])
@pytest.mark.parametrize("form", [f"{ROOM} mov.b32 %r21, %r10;", f"{ROOM} {GENERIC}"], ids=["array", "cvta"])
def test_a_stored_address_holds_the_rank(
    form: str, grid: tuple[int, ...], shape: tuple[int, ...], between: str
) -> None:
    found = words(f"{between} {form} {STORE}", grid, cluster=(*shape, *(1,) * (3 - len(shape))))
    alone = words(f"{form} {STORE}", grid)
    assert (alone == alone[0, 0]).all()
    assert alone[0, 0] < 1 << 24
    assert np.array_equal(found, alone + (ranks(grid, shape) << 24)[:, None])


def test_mapa_returns_the_address_of_a_block() -> None:
    """That of the own block is the address of the array."""
    address = words(UNMASKED, (8,), directives=FOUR)
    own = words(f"{ROOM} {RANK_OF} mapa.shared::cluster.u32 %r21, %r10, %r12; {STORE}", (8,), directives=FOUR)
    following = words(f"{ROOM} {NEXT} mapa.shared::cluster.u32 %r21, %r10, %r13; {STORE}", (8,), directives=FOUR)
    wide = f"{ROOM} cvt.u64.u32 %d10, %r10; {NEXT} mapa.u64 %d11, %d10, %r13; cvt.u32.u64 %r21, %d11; {STORE}"
    assert np.array_equal(own, address)
    assert np.array_equal(following, np.roll(address.reshape(2, 4, 32), -1, axis=1).reshape(8, 32))
    assert np.array_equal(words(wide, (8,), directives=FOUR), following)


def test_an_address_of_a_cluster_of_one_block_has_the_rank_0() -> None:
    mapped = f"{ROOM} mov.u32 %r12, 0; mapa.shared::cluster.u32 %r21, %r10, %r12; {STORE}"
    assert np.array_equal(words(mapped, (4,), directives=".reqnctapercluster 1"), words(UNMASKED, (4,)))


def test_the_rank_may_be_set_in_the_bits_of_an_address() -> None:
    """An address made of the offset and the rank of the next block is that of `mapa`."""
    made = "and.b32 %r14, %r11, 0xffffff; shl.b32 %r15, %r13, 24; or.b32 %r14, %r14, %r15;"
    mapped = "mapa.shared::cluster.u32 %r14, %r11, %r13;"
    exchange = f"""
    {ROOM} mad.lo.u32 %r11, %r0, 4, %r10; ld.global.b32 %r20, [%d8]; {NEXT} st.shared.b32 [%r11], %r20; {BARRIER}
    {{}} ld.shared::cluster.b32 %r21, [%r14]; getctarank.shared::cluster.u32 %r22, %r14; mad.lo.u32 %r21, %r22, 1000, %r21; {BARRIER} {STORE}
    """
    expected = words(exchange.format(mapped), (8,), directives=FOUR)
    assert np.array_equal(words(exchange.format(made), (8,), directives=FOUR), expected)
    assert (expected[:, 0] // 1000).tolist() == [1, 2, 3, 0] * 2


@pytest.mark.parametrize("between", ["", BARRIER])
def test_a_mask_of_the_rank_counts_in_clusters(between: str) -> None:
    sources = [text(f"{body} {between}", FOUR) for body in (UNMASKED, MASKED)]
    assert verdict(*sources, every_launch=False) == "unproved"
    assert verdict(*sources, every_launch=True) == "unknown"
    assert verdict(sources[0], sources[0], every_launch=False) == "equal"
    assert not np.array_equal(*(words(f"{body} {between}", (4,), directives=FOUR) for body in (UNMASKED, MASKED)))


@pytest.mark.parametrize("every_launch", [False, True])
def test_a_mask_of_the_rank_changes_nothing_without_clusters(every_launch: bool) -> None:
    """Nothing says that the assembler places the array of two texts at one address."""
    for directives in ("", ".reqnctapercluster 1"):
        sources = [text(body, directives) for body in (UNMASKED, MASKED)]
        assert verdict(*sources, every_launch=every_launch) == "unproved"
        assert verdict(sources[0], sources[0], every_launch=every_launch) == "equal"
        assert np.array_equal(*(words(body, (4,), directives=directives) for body in (UNMASKED, MASKED)))


def test_launches_in_other_clusters_have_other_addresses() -> None:
    def outcome(left: tuple[int, int, int] | None, right: tuple[int, int, int] | None, every_launch: bool) -> str:
        return verdict(text(UNMASKED), text(UNMASKED), every_launch=every_launch, clusters=(left, right))

    assert outcome((4, 1, 1), (2, 1, 1), False) == "unproved"
    assert outcome((4, 1, 1), None, False) == "unproved"
    assert outcome((4, 1, 1), (4, 1, 1), False) == "equal"
    for every_launch in (False, True):
        assert outcome((1, 1, 1), None, every_launch) == "equal"
    for right in ((4, 1, 1), (2, 1, 1), None):
        assert outcome((4, 1, 1), right, True) == "unknown"


def test_for_every_launch_a_result_must_not_depend_on_the_rank_in_an_address() -> None:
    """It depends on it only in the last of these kernels."""
    exchange = (
        f"{WORD} st.shared.b32 [%r11], %r0; bar.sync 0; xor.b32 %r12, %r11, 4; ld.shared.b32 %r21, [%r12]; {STORE}"
    )
    assert verdict(text(exchange, FOUR), text(exchange, FOUR), every_launch=True) == "equal"
    assert verdict(text(MASKED, FOUR), text(MASKED, FOUR), every_launch=True) == "equal"
    high = f"{ROOM} shr.u32 %r21, %r10, 24; setp.eq.u32 %p1, %r21, 3; selp.b32 %r21, 1, 2, %p1; {STORE}"
    assert verdict(text(high, FOUR), text(high, FOUR), every_launch=True) == "unknown"
    assert verdict(text(high), text(high), every_launch=True) == "equal"


def test_every_launch_needs_the_shape_of_clusters() -> None:
    stated = text(UNMASKED, ".explicitcluster")
    assert verdict(stated, stated, every_launch=True) == "unknown"
    without = stated.replace(".shared .align 16 .b8 room[4096];", "").replace("room", "0")
    assert verdict(without, without, every_launch=True) == "equal"


ACCESSES = {
    "ld and st": "ld.global.b32 %r20, [%d8]; st.shared.b32 [%r11], %r20; bar.sync 0; xor.b32 %r12, %r11, 4; ld.shared::cta.b32 %r21, [%r12];",
    "vectors": "ld.global.b32 %r20, [%d8]; mad.lo.u32 %r11, %r0, 16, %r10; st.shared.v4.b32 [%r11], {%r20, %r0, %r20, %r0}; ld.shared.v2.b32 {%r21, %r22}, [%r11+8];",
    "symbols": "ld.global.b32 %r20, [%d8]; setp.eq.u32 %p1, %r0, 3; @%p1 st.shared.b32 [room+8], %r20; bar.sync 0; ld.shared.b32 %r21, [room+8];",
    "cp.async": "cp.async.ca.shared.global [%r11], [%d8], 4; cp.async.wait_all; bar.sync 0; xor.b32 %r12, %r11, 8; ld.shared.b32 %r21, [%r12];",
    "ldmatrix": "ld.global.b32 %r20, [%d8]; st.shared.b32 [%r11], %r20; bar.sync 0; and.b32 %r13, %r0, 7; mad.lo.u32 %r12, %r13, 16, %r10; ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r21}, [%r12]; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r22}, [%r12]; mad.lo.u32 %r21, %r22, 3, %r21;",
    "stmatrix": "ld.global.b32 %r20, [%d8]; and.b32 %r13, %r0, 7; mad.lo.u32 %r12, %r13, 16, %r10; stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r12], {%r20}; bar.sync 0; ld.shared.b32 %r21, [%r11]; bar.sync 0; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r12], {%r20}; bar.sync 0; ld.shared.b32 %r22, [%r11]; mad.lo.u32 %r21, %r22, 3, %r21;",
}  # fmt: skip


@pytest.mark.parametrize("name", ACCESSES)
@pytest.mark.parametrize("between", ["", BARRIER])
def test_accesses_to_the_own_block_do_not_depend_on_clusters(name: str, between: str) -> None:
    """All blocks make them together, so that they are as fast as without clusters."""
    body = f"{WORD} {ACCESSES[name]} {STORE}"
    data = np.random.default_rng(1).integers(0, 1 << 32, 8 * 32, dtype=np.uint32)
    found = words(f"{between} {body}", (8,), directives=FOUR, given=data)
    assert np.array_equal(found, words(body, (8,), given=data))
    assert len(np.unique(found)) >= 8


@pytest.mark.parametrize("name", [each for each in ACCESSES if each != "symbols"])
@pytest.mark.parametrize(
    "change", ["and.b32 %r10, %r10, 0xffffff;", "xor.b32 %r10, %r10, 0x1000000;", "add.u32 %r10, %r10, 0x4000000;"]
)
def test_an_access_to_the_own_block_with_another_rank_is_unsupported(name: str, change: str) -> None:
    body = f"{WORD.replace(ROOM, ROOM + change)} {ACCESSES[name]} {STORE}"
    module = SM90.parse(text(body, FOUR), "k.ptx")
    before = {each: np.zeros(8 * 32 * 4, dtype=np.uint8) for each in ("out", "in")}
    with pytest.raises(Unsupported, match="has the address of another block of the cluster"):
        simulate(prepare_launch(module, SM90, launch((8,))), before)


@pytest.mark.parametrize(
    "form",
    [
        "mbarrier.init.shared::cta.b64 [%r10], 1;",
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r10], [map, {%r0}], [room];",
    ],
)
def test_barriers_and_tensor_copies_are_those_of_the_own_block(form: str) -> None:
    one = "setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mbarrier.init.shared::cta.b64 [room], 1;"
    body = f"{ROOM} xor.b32 %r10, %r10, 0x1000000; {one} {form} END: st.global.b32 [%d9], %r0;"
    module = SM90.parse(text(body, FOUR), "k.ptx")
    before = {each: np.zeros(8 * 32 * 4, dtype=np.uint8) for each in ("out", "in")}
    with pytest.raises(Unsupported, match="has the address of another block of the cluster"):
        simulate(prepare_launch(module, SM90, launch((8,))), before)


@pytest.mark.parametrize(
    "form",
    [
        "ld.shared::cluster.b32 %r21, [%r10];",
        "mapa.shared::cluster.u32 %r21, %r10, %r0;",
        "getctarank.shared::cluster.u32 %r21, %r10;",
    ],
)
def test_a_rank_outside_the_cluster_is_unsupported(form: str) -> None:
    body = f"{ROOM} add.u32 %r10, %r10, 0x4000000; and.b32 %r0, %r0, 3; {form} {STORE}"
    with pytest.raises(Unsupported, match="a shared-memory address lies outside the cluster"):
        words(body, (8,), directives=FOUR)


def test_the_assembler_places_the_rank_above_24_bits(tmp_path: Path) -> None:
    """An address is the rank, shifted by 24 bits, plus an offset; `mapa` replaces its highest byte."""
    pytest.importorskip("triton")
    from triton import knobs

    body = f"{ROOM} {NEXT} mapa.shared::cluster.u32 %r14, %r10, %r13; st.global.b32 [%d9], %r14; st.global.b32 [%d8], %r10;"
    (tmp_path / "k.ptx").write_text(text(body, FOUR))
    ptxas = Path(knobs.nvidia.ptxas.path)
    disassembler = ptxas.with_name("cuobjdump")
    if not disassembler.exists():
        pytest.skip("there is no cuobjdump next to ptxas")
    subprocess.run([ptxas, "-arch=sm_90a", "k.ptx", "-o", "k.cubin"], cwd=tmp_path, check=True)
    code = subprocess.run([disassembler, "-sass", "k.cubin"], cwd=tmp_path, check=True, capture_output=True, text=True)
    rank = re.search(r"S2U?R (U?R\d+), SR_CgaCtaId", code.stdout)
    assert rank is not None, code.stdout
    address = re.search(rf"U?LEA (U?R\d+), {rank[1]}(\.reuse)?, U?R\d+, 0x18 ;", code.stdout)
    assert address is not None, code.stdout
    assert re.search(rf"PRMT R\d+, U?R\d+, 0x654, {address[1]}\b", code.stdout), code.stdout
