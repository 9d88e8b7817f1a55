"""How ptxas translates stores: as recorded, and in listings with known branches."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

from bitwise_bench.assembler.store_translation import open_branches, text_stores, translation
from bitwise_nvidia_ptx.machine_code.sass_listing import listed_functions

RECORD = json.loads(Path(__file__).parents[2].joinpath("records/store-translation-sm90.json").read_text())
TEXT = """.version 8.4
st.shared.v2.b32 [%r1], {%r2, %r3};
@%p1 st.global.L1::evict_first.b16 [%rd1], %h1;
bra.uni L;
@%p2 ld.shared.b32 %r4, [%r5];
st.shared.b32 [%r1], %r4;
"""
LISTING = """
\t.section\t.text.k,"ax",@progbits
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


def listing(inside: str, behind: str) -> str:
    """Return a listing with instructions inside of the branch and behind it."""
    addresses = itertools.count(0, 16)
    return re.sub(r"/\*\w{4}\*/", lambda _: f"/*{next(addresses):04x}*/", LISTING.format(inside=inside, behind=behind))


def test_stores_of_a_text() -> None:
    assert text_stores(TEXT) == {2: ("shared", 8), 3: ("global", 2), 6: ("shared", 4)}


def test_a_convergence_barrier_joins_lanes() -> None:
    for inside, behind, parted in (("", STORE, 0), (STORE, "", 1)):
        found = translation(TEXT, listing(inside, behind))
        assert found["shared, 8 bytes: one"] == found["shared, 4 bytes: one"] == found["global, 2 bytes: one"] == 1
        assert found["shared: parted by a branch of ptxas"] == parted
    (function,) = listed_functions(listing("", STORE)).values()
    assert not any(open_branches(function, {5: "bra"})), "a branch of the text"


def test_other_widths_and_copies_are_counted() -> None:
    for stored, how in (
        ("STS.128 [R1], R4", "wider"),
        ("STS.U8 [R1], R4", "narrower"),
    ):
        found = translation(TEXT, listing("", STORE.replace("STS [R1], R4", stored)))
        assert found[f"shared, 4 bytes: {how}"] == 1
    assert translation(TEXT, listing(STORE, STORE))["shared, 4 bytes: copies"] == 1
    assert translation(TEXT, listing("", ""))["shared, 4 bytes: none"] == 1


def test_no_recorded_store_has_another_width() -> None:
    counts = RECORD["stores"]
    ways = {
        how: sum(each for key, each in counts.items() if key.endswith(f": {how}")) for how in ("one", "copies", "none")
    }
    assert RECORD["kernels with stores"] > 1000
    assert ways["one"] > 19_000
    assert ways["copies"] == 2
    assert not [key for key in counts if key.endswith(("wider", "narrower", "several widths"))]
