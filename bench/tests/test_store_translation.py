"""How ptxas translates stores: as recorded, and in listings with known branches."""

from __future__ import annotations

import json
from pathlib import Path

from bitwise_bench.store_translation import open_branches, parse, text_stores, translation

RECORD = json.loads(Path(__file__).parents[2].joinpath("records/store-translation-sm90.json").read_text())
TEXT = """.version 8.4
st.shared.v2.b32 [%r1], {%r2, %r3};
@%p1 st.global.L1::evict_first.b16 [%rd1], %h1;
bra.uni L;
@%p2 ld.shared.b32 %r4, [%r5];
st.shared.b32 [%r1], %r4;
"""
LISTING = """
//## File ".nv_debug_ptx_txt", line 2
        /*0000*/                   STS.64 [R1], R2 ;
//## File ".nv_debug_ptx_txt", line 3
        /*0010*/              @!P1 STG.E.U16 desc[UR4][R2.64], R4 ;
//## File ".nv_debug_ptx_txt", line 5
        /*0020*/                   BSSY B0, `(.L_x_1) ;
        /*0030*/              @!P2 BRA `(.L_x_0) ;
        /*0040*/                   LDS R4, [R5] ;
//## File ".nv_debug_ptx_txt", line 6
{inside}
.L_x_0:
        /*0050*/                   BSYNC B0 ;
.L_x_1:
{behind}
        /*0070*/                   EXIT ;
"""
STORE = "        /*0060*/                   STS [R1], R4 ;"


def test_stores_of_a_text() -> None:
    assert text_stores(TEXT) == {2: ("shared", 8), 3: ("global", 2), 6: ("shared", 4)}


def test_a_convergence_barrier_joins_lanes() -> None:
    for inside, behind, parted in (("", STORE, 0), (STORE, "", 1)):
        found = translation(TEXT, LISTING.format(inside=inside, behind=behind))
        assert found["shared, 8 bytes: one"] == found["shared, 4 bytes: one"] == found["global, 2 bytes: one"] == 1
        assert found["shared: parted by a branch of ptxas"] == parted
    steps, labels = parse(LISTING.format(inside="", behind=STORE))
    roots = {5: "bra"}
    assert not any(open_branches(steps, labels, roots)), "a branch of the text"


def test_other_widths_and_copies_are_counted() -> None:
    for stored, how in (
        ("STS.128 [R1], R4", "wider"),
        ("STS.U8 [R1], R4", "narrower"),
    ):
        found = translation(TEXT, LISTING.format(inside="", behind=STORE.replace("STS [R1], R4", stored)))
        assert found[f"shared, 4 bytes: {how}"] == 1
    assert translation(TEXT, LISTING.format(inside=STORE, behind=STORE))["shared, 4 bytes: copies"] == 1
    assert translation(TEXT, LISTING.format(inside="", behind=""))["shared, 4 bytes: none"] == 1


def test_no_recorded_store_has_another_width() -> None:
    counts = RECORD["stores"]
    ways = {
        how: sum(each for key, each in counts.items() if key.endswith(f": {how}")) for how in ("one", "copies", "none")
    }
    assert RECORD["kernels with stores"] > 1000
    assert ways["one"] > 19_000
    assert ways["copies"] == 2
    assert not [key for key in counts if key.endswith(("wider", "narrower", "several widths"))]
