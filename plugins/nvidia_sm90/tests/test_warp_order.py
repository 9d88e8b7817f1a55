# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Lanes of one warp that access each other's elements of global memory: the order of the text, where machine code keeps it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.counterexamples import search_verdict
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, Verdict
from bitwise_core.execution.assumptions import ANY_LANE
from bitwise_core.execution.assumptions import WARP_ORDER as WARP_ORDER_ASSUMED
from bitwise_core.execution.determined_runs import simulate_determined
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, Launch
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.store_forwarding import Access
from bitwise_core.execution.warp_order import conflicts
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.machine_code.access_order import keeps_order
from bitwise_nvidia_sm90.architecture import SM90, WARP_ORDER

HEAD = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
.reqntid {threads}
{{
.reg .pred %p<9>; .reg .b64 %d<20>; .reg .b32 %r<20>; .reg .f32 %f<9>;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, {threads}, %r1;
mul.wide.u32 %d3, %r3, 4; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3; xor.b32 %r4, %r3, 1; mul.wide.u32 %d6, %r4, 4; add.s64 %d6, %d1, %d6;
setp.lt.u32 %p1, %r1, 16; ld.global.f32 %f5, [%d5]; setp.gt.f32 %p2, %f5, 0f00000000;
"""
"""%d4: the thread's element of a, %d6: its neighbour's; %d5: its element of b."""

EXCHANGE = """ld.global.f32 %f1, [%d6];
st.global.f32 [%d4], 0f40000000;
ld.global.f32 %f2, [%d6];
add.rn.f32 %f3, %f1, %f2; st.global.f32 [%d5], %f3;
"""
ORDERED = EXCHANGE.replace("st.global.f32 [%d4]", "bar.warp.sync -1; st.global.f32 [%d4]").replace(
    "ld.global.f32 %f2", "bar.warp.sync -1; ld.global.f32 %f2"
)
LOOP = """mov.u32 %r5, 0;
L: ld.global.f32 %f1, [%d6];
add.rn.f32 %f2, %f1, 0f3F800000;
{barrier}
st.global.f32 [%d4], %f2;
{barrier}
add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, {count}; @%p3 bra L;
"""


def source(body: str, threads: int = 32) -> Source:
    text = HEAD.format(threads=threads) + body + "ret; }\n"
    arguments = (Argument(kind="buffer", buffer="a", dtype="fp32"), Argument(kind="buffer", buffer="b", dtype="fp32"))
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(threads, 1, 1), args=arguments)
    return Source("k.ptx", text, launch)


def verdict(left: str, right: str, options: Options = Options(), threads: int = 32) -> Verdict:  # noqa: B008
    return compare(source(left, threads), source(right, threads), SM90, options).verdict


CHOICE = """ld.global.f32 %f6, [%d2+4096]; setp.gt.f32 %p5, %f6, 0f00000000; mov.u32 %r8, %r1; @%p5 bra A;
shfl.sync.bfly.b32 %r8, %r1, 1, 31, -1;
bra J;
A: {parts} mov.u32 %r8, 5; S:
J: cvt.rn.f32.u32 %f7, %r8;
"""
"""One number for all lanes chooses between an exchange of a warp and instructions that may part its lanes."""
CHOSEN = EXCHANGE.replace("%f3; st", "%f3; add.rn.f32 %f3, %f3, %f7; st")

PAIRS = {
    "an exchange": (EXCHANGE, ORDERED),
    "a loop": (LOOP.format(count=2, barrier=""), LOOP.format(count=2, barrier="bar.warp.sync -1;")),
    "a loop that is unrolled": (LOOP.format(count=5, barrier=""), LOOP.format(count=5, barrier="bar.warp.sync -1;")),
    "cache operators": (
        EXCHANGE.replace("ld.global", "ld.global.L1::evict_last").replace(
            "st.global.f32 [%d4]", "st.global.cs.f32 [%d4]"
        ),
        ORDERED,
    ),
    "behind a branch that all lanes take alike": (
        CHOICE.format(parts="") + CHOSEN,
        CHOICE.format(parts="") + ORDERED.replace("%f3; st", "%f3; add.rn.f32 %f3, %f3, %f7; st"),
    ),
    "behind a branch on one number": (
        "setp.eq.u32 %p4, %r2, 7; @%p4 bra S; mov.f32 %f4, 0f3F800000; S:\n" + EXCHANGE,
        ORDERED,
    ),
}


@pytest.mark.parametrize(("left", "right"), PAIRS.values(), ids=PAIRS)
def test_accesses_of_one_warp_are_in_the_order_of_the_text(left: str, right: str) -> None:
    found = verdict(left, right)
    assert found.outcome is Outcome.EQUAL, found.reason
    assert WARP_ORDER in found.notes
    assert WARP_ORDER not in verdict(right, right).notes


def test_a_difference_remains() -> None:
    other = EXCHANGE.replace("ld.global.f32 %f2, [%d6];\n", "").replace("%f1, %f2;", "%f1, %f1;")
    assert verdict(EXCHANGE, other).outcome is not Outcome.EQUAL
    late = "st.global.f32 [%d4], 0f40000000;\nld.global.f32 %f1, [%d6];\nadd.rn.f32 %f3, %f1, %f1; st.global.f32 [%d5], %f3;\n"
    assert verdict(EXCHANGE, late).outcome is not Outcome.EQUAL
    pair = source(EXCHANGE), source(late)
    found = search_verdict(*pair, SM90, Options(), compare(*pair, SM90, Options()), 5)
    assert found.outcome is Outcome.DIFFERENT
    assert found.divergence is not None


OTHERS = {
    "two warps": (EXCHANGE, 64),
    "lanes that may have parted": ("@%p1 bra S; mov.f32 %f4, 0f3F800000; S:\n" + EXCHANGE, 32),
    "lanes that data may have parted": ("@%p2 bra S; mov.f32 %f4, 0f3F800000; S:\n" + EXCHANGE, 32),
    "lanes that one side may have parted": (CHOICE.format(parts="@%p1 bra S;") + CHOSEN, 32),
    "a store under a condition on data": (EXCHANGE.replace("st.global.f32 [%d4]", "@%p2 st.global.f32 [%d4]"), 32),
    "a load that is not coherent": (EXCHANGE.replace("ld.global.f32 %f1", "ld.global.nc.f32 %f1"), 32),
    "a volatile load": (EXCHANGE.replace("ld.global.f32 %f1", "ld.volatile.global.f32 %f1"), 32),
    "a cache hint of the second level": (EXCHANGE.replace("ld.global.f32 %f1", "ld.global.L2::128B.f32 %f1"), 32),
    "an atomic operation": (
        EXCHANGE.replace("st.global.f32 [%d4], 0f40000000;", "atom.global.exch.b32 %r6, [%d4], 1073741824;"),
        32,
    ),
    "behind a root that may part lanes": (
        "abs.f32 %f4, %f5; sqrt.rn.f32 %f4, %f4; st.global.f32 [%d5], %f4;\n"
        + EXCHANGE.replace("%f3; st", "%f3; add.rn.f32 %f3, %f3, %f4; st"),
        32,
    ),
}


@pytest.mark.parametrize(("body", "threads"), OTHERS.values(), ids=OTHERS)
def test_nothing_else_is_ordered(body: str, threads: int) -> None:
    assert verdict(body, body, threads=threads).outcome is Outcome.UNKNOWN


def test_documents_alone_order_nothing() -> None:
    assert verdict(EXCHANGE, ORDERED, Options(assume=frozenset([ANY_LANE]))).outcome is Outcome.UNKNOWN
    assert verdict(ORDERED, ORDERED, Options(assume=frozenset([ANY_LANE]))).outcome is Outcome.EQUAL


def test_an_architecture_without_the_measurement_orders_nothing() -> None:
    body = source(EXCHANGE)
    assert compare(body, body, replace(SM90, warp_order=None), Options()).verdict.outcome is Outcome.UNKNOWN


ASSUMED = Options(assume=frozenset([WARP_ORDER_ASSUMED]))


def test_the_order_may_be_assumed() -> None:
    unmeasured = replace(SM90, warp_order=None)
    alone = compare(source(EXCHANGE), source(EXCHANGE), unmeasured, Options()).results[0]
    assert alone.nondeterministic
    assert (alone.unknown or "").endswith("(--assume warp-order settles this race)")
    found = compare(source(EXCHANGE), source(ORDERED), unmeasured, ASSUMED).verdict
    assert found.outcome is Outcome.EQUAL, found.reason
    assert any(each.endswith("assumed by --assume warp-order") for each in found.notes)
    assert WARP_ORDER not in found.notes
    other = EXCHANGE.replace("0f40000000", "0f40400000")
    assert compare(source(EXCHANGE), source(other), unmeasured, ASSUMED).verdict.outcome is not Outcome.EQUAL


@pytest.mark.parametrize(("body", "threads"), OTHERS.values(), ids=OTHERS)
def test_nothing_else_is_assumed(body: str, threads: int) -> None:
    pair = source(body, threads), source(body, threads)
    found = compare(*pair, replace(SM90, warp_order=None), ASSUMED)
    assert found.verdict.outcome is Outcome.UNKNOWN
    assert "warp-order" not in (found.results[0].unknown or "")


def test_assumptions_of_lanes_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="any-lane and warp-order exclude each other"):
        Options(assume=frozenset([ANY_LANE, WARP_ORDER_ASSUMED]))


def test_a_run_has_the_same_order() -> None:
    given = np.arange(1, 65, dtype=np.float32)
    ready = prepare(source(EXCHANGE), SM90, Options())
    found = simulate_determined(ready, {"a": given.view(np.uint8), "b": np.zeros(256, dtype=np.uint8)})
    expected = given.reshape(-1, 2)[:, ::-1].ravel() + np.float32(2)
    assert found.after["b"].view(np.float32).tolist() == expected.tolist()


def lines_of(body: str) -> list[int]:
    """Return the lines of the accesses of a text to a, in order."""
    rows = source(body).text.splitlines()
    return [
        number
        for number, row in enumerate(rows, 1)
        if re.search(r"(ld|st)\.global\S* .*\[%d[46]\]", row) or ("[%d4]" in row and "st." in row)
    ]


def kept(body: str, listing: str | None, pairs: set[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(Ptxas, "access_listing", lambda self, text: listing)
    given = source(body)
    return keeps_order(SM90.opcodes, SM90.parse(given.text, "k.ptx"), given.text, "k", pairs)


def listing_of(*rows: tuple[int, str] | str) -> str:
    """Return a listing of instructions with the lines of the text, and of labels."""
    found = ['\t.section\t.text.k,"ax",@progbits']
    number = -1
    for row in rows:
        number += not isinstance(row, str)
        if isinstance(row, str):
            found.append(f"{row}:")
        else:
            found += [
                f'\t//## File ".nv_debug_ptx_txt", line {row[0]}',
                f"        /*{16 * number:04x}*/                   {row[1]} ;",
            ]
    return "\n".join([*found, '\t.section\t.text.other,"ax"', "        /*0000*/  STG.E [R2], R4 ;"])


LOAD, STORE = "LDG.E R0, desc[UR4][R2.64]", "STG.E desc[UR4][R2.64], R4"


def test_machine_code_keeps_the_order_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    first, store, second = lines_of(EXCHANGE)
    every = {(first, store), (store, second)}
    end = (second, "EXIT")
    assert kept(EXCHANGE, listing_of((first, LOAD), (store, STORE), (second, LOAD), end), every, monkeypatch)
    assert kept(
        EXCHANGE, listing_of((first, "@P0 " + LOAD), (store, "@!P0 " + STORE), (second, LOAD), end), every, monkeypatch
    )
    assert kept(
        EXCHANGE, listing_of((first, LOAD), (first, LOAD), (store, STORE), (second, LOAD), end), every, monkeypatch
    )
    assert not kept(EXCHANGE, None, every, monkeypatch)
    assert not kept(EXCHANGE, "", every, monkeypatch)
    wrong = {
        "exchanged": [(store, STORE), (first, LOAD), (second, LOAD), end],
        "a load after the store": [(first, LOAD), (store, STORE), (first, LOAD), (second, LOAD), end],
        "a load that is missing": [(store, STORE), (second, LOAD), end],
        "a load of constants": [(first, LOAD.replace("LDG.E", "LDG.E.CONSTANT")), (store, STORE), (second, LOAD), end],
        "a generic store": [(first, LOAD), (store, "ST.E desc[UR4][R2.64], R4"), (second, LOAD), end],
        "an atomic operation": [
            (first, LOAD),
            (store, STORE),
            (store, "RED.E.ADD desc[UR4][R2.64], R4"),
            (second, LOAD),
            end,
        ],
        "a way back": ["L", (first, LOAD), (store, STORE), (second, LOAD), (second, "@P0 BRA `(L)"), end],
        "an indirect branch": [(first, LOAD), (store, STORE), (second, LOAD), (second, "BRX R2 -0x10"), end],
        "a call": [(first, LOAD), (store, STORE), (second, LOAD), (second, "CALL.REL.NOINC `(L)"), "L", end],
        "an unknown label": [(first, LOAD), (store, STORE), (second, LOAD), (second, "@P0 BRA `(M)"), end],
    }
    for name, rows in wrong.items():
        assert not kept(EXCHANGE, listing_of(*rows), every, monkeypatch), name
    # A pair whose accesses do not conflict may be exchanged.
    assert kept(
        EXCHANGE, listing_of((store, STORE), (first, LOAD), (second, LOAD), end), {(store, second)}, monkeypatch
    )


def test_machine_code_of_a_loop_alternates_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    body = LOOP.format(count=4, barrier="")
    load, store = lines_of(body)
    pair = {(load, store)}
    back, end = (store, "@P0 BRA `(L)"), (store, "EXIT")
    assert kept(body, listing_of("L", (load, LOAD), (store, STORE), back, end), pair, monkeypatch)
    assert kept(
        body, listing_of("L", (load, LOAD), (store, STORE), (load, LOAD), (store, STORE), back, end), pair, monkeypatch
    )
    assert kept(
        body, listing_of((load, LOAD), "L", (store, STORE), (load, LOAD), back, (store, STORE), end), pair, monkeypatch
    )
    wrong = {
        "pipelined": [(load, LOAD), "L", (load, LOAD), (store, STORE), back, (store, STORE), end],
        "two loads first": ["L", (load, LOAD), (load, LOAD), (store, STORE), (store, STORE), back, end],
        "a load that is left out": ["L", (load, LOAD), (store, STORE), (store, STORE), back, end],
        "the store first": ["L", (store, STORE), (load, LOAD), back, end],
        "a way around": ["L", (load, LOAD), (load, "@P1 BRA `(M)"), (store, STORE), "M", back, end],
    }
    for name, rows in wrong.items():
        assert not kept(body, listing_of(*rows), pair, monkeypatch), name
    assert kept(body, listing_of("L", (load, LOAD), (store, STORE), back, end), {(store, store)}, monkeypatch)
    twice = listing_of("L", (load, LOAD), (store, STORE), (load, LOAD), (store, STORE), back, end)
    assert not kept(body, twice, {(store, store)}, monkeypatch)


def test_what_the_text_does_not_order_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "@%p1 bra S;\nld.global.f32 %f1, [%d6];\nbra E;\nS:\nst.global.f32 [%d4], %f5;\nE:\n"
    load, store = lines_of(body)
    listing = listing_of((load, LOAD), (store, STORE), (store, "EXIT"))
    assert not kept(body, listing, {(load, store)}, monkeypatch)


def test_the_lines_that_conflict_are_those_whose_lanes_meet() -> None:
    dice = np.random.default_rng(3)
    for _ in range(60):
        memory = GlobalMemory(TermDomain())
        made: list[tuple[int, bool, set[tuple[int, int]]]] = []
        for line in range(1, 7):
            stores, bits = bool(dice.integers(2)), int(dice.choice([8, 16, 32]))
            count = int(dice.integers(1, 5))
            place = dice.integers(0, 12, count) * (bits // 8)
            thread = dice.integers(0, 3, count)
            address = (place + (1 << POINTER_SHIFT)).astype(np.uint64)
            access = Access(address, thread, line, None, bits, line)
            (memory.stores if stores else memory.loads).setdefault(1, []).append(access)
            cells = {
                (int(at) + each, int(who)) for at, who in zip(place, thread, strict=True) for each in range(bits // 8)
            }
            made.append((line, stores, cells))
        if 1 not in memory.stores:
            continue
        expected = {
            (min(one, other), max(one, other))
            for one, stored, cells in made
            for other, other_stored, others in made
            if (stored or other_stored)
            and any(at == place and who != whose for at, who in cells for place, whose in others)
        }
        assert set(conflicts(memory, 1)) == expected
