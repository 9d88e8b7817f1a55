# ruff: noqa: E501 - a line of PTX is read as one
"""Exchanges, comparisons and exchanges, increments and decrements in global memory, and the forms that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from atomic_references import CHANGES, rows
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.interleavings import ORDERS, run_in_order
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate, simulate_batch
from bitwise_core.execution.values.symbolic_vector import UNSIGNED
from ptx_programs import ARCH, hashes, run, text

THREADS = 64
FORMS = {
    "exch.b32": ("exchange", 32), "relaxed.gpu.exch.b64": ("exchange", 64), "cas.b16": ("compare", 16),
    "acq_rel.gpu.cas.b32": ("compare", 32), "sys.cas.b64": ("compare", 64), "inc.u32": ("increment", 32),
    "cta.dec.u32": ("decrement", 32),
}  # fmt: skip
REGISTERS = {16: ("%h1", "%h2", "%h3", "%h4"), 32: ("%r1", "%r2", "%r3", "%r4"), 64: ("%d5", "%d6", "%d7", "%d8")}


def body(form: str) -> str:
    """Every thread reads the expected content and the operand, and changes its content; out gets what is returned."""
    name, bits = FORMS[form]
    size = bits // 8
    expected, value, old, _ = REGISTERS[bits]
    given = f"{expected}, {value}" if name == "compare" else value
    return f"""mul.lo.u32 %r10, %r0, {size}; cvt.u64.u32 %d10, %r10; add.s64 %d11, %d1, %d10; add.s64 %d12, %d0, %d10;
ld.global.b{bits} {expected}, [%d11+{size * THREADS}]; ld.global.b{bits} {value}, [%d11+{2 * size * THREADS}];
atom.global.{form} {old}, [%d11], {given};
st.global.b{bits} [%d12], {old};
"""


def launch(threads: int = THREADS, blocks: int = 1) -> Launch:
    buffers = tuple(Argument(kind="buffer", buffer=name) for name in ("out", "in"))
    return Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(threads, 1, 1), args=buffers)


@pytest.mark.parametrize("form", FORMS)
def test_contents_are_those_of_the_isa(form: str) -> None:
    name, bits = FORMS[form]
    drawn = rows(THREADS, bits)
    columns = np.array(drawn, dtype=UNSIGNED[bits]).T.copy()
    contents = {"in": columns.reshape(-1).view(np.uint8), "out": np.zeros(columns.nbytes // 3, dtype=np.uint8)}
    prepared = prepare_launch(ARCH.parse(text(body(form), threads=THREADS), "k.ptx"), ARCH, launch())
    results = [simulate(prepared, contents).after, simulate_batch(prepared, [contents, contents])[1].after]
    results += [run_in_order(prepared, contents, order).after for order in ORDERS]
    for after in results:
        assert after["out"].view(UNSIGNED[bits]).tolist() == [old for old, _, _ in drawn]
        content = after["in"].view(UNSIGNED[bits])[:THREADS].tolist()
        assert content == [CHANGES[name](*row) for row in drawn]


@pytest.mark.parametrize(("form", "count"), [("inc.u32", 64 % 8), ("dec.u32", (8 - 64 % 8) % 8)])
def test_threads_of_an_order_count_one_after_another(form: str, count: int) -> None:
    """64 threads count modulo 8: each number is returned 8 times."""
    code = f"""mul.lo.u32 %r10, %r0, 4; cvt.u64.u32 %d10, %r10; add.s64 %d12, %d0, %d10;
atom.global.{form} %r1, [%d1], 7; st.global.u32 [%d12], %r1;"""
    prepared = prepare_launch(ARCH.parse(text(code, threads=THREADS), "k.ptx"), ARCH, launch())
    contents = {"in": np.zeros(4, dtype=np.uint8), "out": np.zeros(4 * THREADS, dtype=np.uint8)}
    seen = set()
    for order in ORDERS:
        after = run_in_order(prepared, contents, order).after
        returned = after["out"].view(np.uint32)
        assert np.bincount(returned).tolist() == [8] * 8
        assert after["in"].view(np.uint32).tolist() == [count]
        seen.add(returned.tobytes())
    assert len(seen) > 1
    with pytest.raises(Unsupported, match="depends on the order of threads"):
        simulate(prepared, contents)


@pytest.mark.parametrize(
    "instruction",
    [
        "atom.shared.cas.b32 %r1, [%r2], 0, 1;",
        "atom.global.cas.b128 %r1, [%d1], 0, 1;",
        "atom.global.cas.f32 %f1, [%d1], %f2, %f3;",
        "atom.global.cas.b32 %r1, [%d1], 0;",
        "atom.global.exch.b16 %h1, [%d1], %h2;",
        "atom.global.exch.b32 %r1, [%d1], 0, 1;",
        "atom.global.inc.s32 %r1, [%d1], 7;",
        "atom.global.dec.u64 %d5, [%d1], 7;",
        "red.global.exch.b32 [%d1], 0;",
        "red.global.cas.b32 [%d1], 0, 1;",
    ],
)
def test_other_forms_are_unknown(instruction: str) -> None:
    with pytest.raises(Unsupported):
        run(instruction)


def test_an_increment_without_a_result() -> None:
    prepared = prepare_launch(ARCH.parse(text("red.global.inc.u32 [%d1], 100;"), "k.ptx"), ARCH, launch(32))
    contents = {"in": np.zeros(4, dtype=np.uint8), "out": np.zeros(4, dtype=np.uint8)}
    assert run_in_order(prepared, contents, ORDERS[0]).after["in"].view(np.uint32).tolist() == [32]


def test_threads_that_wait_in_vain_are_named() -> None:
    code = "L: ld.acquire.gpu.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.global.u32 [%d0], 1;"
    prepared = prepare_launch(ARCH.parse(text(code), "k.ptx"), ARCH, launch(32))
    contents = {"in": np.zeros(4, dtype=np.uint8), "out": np.zeros(4, dtype=np.uint8)}
    with pytest.raises(Unsupported, match="threads wait for memory that no thread writes before them"):
        run_in_order(prepared, contents, ORDERS[0])


SHARED = {
    f"{verb}.{kind}": (verb, kind)
    for verb, kinds in {
        "add": ("u32", "s32", "u64"), "min": ("u32", "s32", "s64"), "max": ("u32", "s32", "u64"),
        "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
    }.items()
    for kind in kinds
}  # fmt: skip
ROOM = ".shared .align 16 .b8 room[32];"


def reduced(verb: str, kind: str, start: int, values: list[int]) -> int:
    """Return what operations leave, in Python's integers."""
    bits = int(kind[1:])

    def of(number: int) -> int:
        return number - (1 << bits) if kind[0] == "s" and number >> (bits - 1) else number

    content = of(start)
    for value in map(of, values):
        content = {
            "add": content + value, "min": min(content, value), "max": max(content, value),
            "and": content & value, "or": content | value, "xor": content ^ value,
        }[verb]  # fmt: skip
    return content % (1 << bits)


def shared_body(form: str, opcode: str = "red") -> str:
    """Every thread changes one of four cells, which hold the first of its elements before; out gets the cells."""
    bits = int(SHARED[form][1][1:])
    value, content = {32: ("%r1", "%r2"), 64: ("%d5", "%d6")}[bits]
    size, returned = bits // 8, "%r3, " if opcode == "atom" else ""
    return f"""and.b32 %r10, %r0, 3; mul.wide.u32 %d10, %r10, {size}; mul.wide.u32 %d11, %r0, {size}; add.s64 %d11, %d1, %d11;
mov.u64 %d12, room; add.s64 %d12, %d12, %d10; ld.global.b{bits} {value}, [%d11];
setp.lt.u32 %p1, %r0, 4; @%p1 st.shared.b{bits} [%d12], {value}; bar.sync 0;
{opcode}.shared.{form} {returned}[%d12], {value}; bar.sync 0;
ld.shared.b{bits} {content}, [%d12]; add.s64 %d13, %d0, %d10; @%p1 st.global.b{bits} [%d13], {content};
"""


@pytest.mark.parametrize("form", SHARED)
def test_shared_contents_are_those_of_the_isa(form: str) -> None:
    verb, kind = SHARED[form]
    unsigned = UNSIGNED[int(kind[1:])]
    drawn = np.random.default_rng(len(form)).integers(0, 2**64, THREADS, dtype=np.uint64).astype(unsigned)
    contents = {"in": drawn.view(np.uint8), "out": np.zeros(4 * drawn.itemsize, dtype=np.uint8)}
    code = text(shared_body(form), threads=THREADS, shared=ROOM)
    prepared = prepare_launch(ARCH.parse(code, "k.ptx"), ARCH, launch())
    results = [simulate(prepared, contents).after, simulate_batch(prepared, [contents, contents])[1].after]
    results += [run_in_order(prepared, contents, order).after for order in ORDERS]
    expected = [reduced(verb, kind, int(drawn[cell]), drawn[cell::4].tolist()) for cell in range(4)]
    for after in results:
        assert after["out"].view(unsigned).tolist() == expected


def test_shared_contents_have_one_form_in_every_order() -> None:
    found = hashes(shared_body("add.u32"), threads=THREADS, shared=ROOM)
    other = (
        shared_body("add.u32")
        .replace("[%d11]", "[%d14]")
        .replace(
            "mov.u64 %d12", "xor.b32 %r11, %r0, 60; mul.wide.u32 %d14, %r11, 4; add.s64 %d14, %d1, %d14; mov.u64 %d12"
        )
    )
    start = "ld.global.b32 %r1, [%d14];\nsetp.lt.u32 %p1, %r0, 4; @%p1 st.shared.b32 [%d12], %r1;"
    assert start in other
    own = "ld.global.b32 %r1, [%d14]; ld.global.b32 %r7, [%d11];\nsetp.lt.u32 %p1, %r0, 4; @%p1 st.shared.b32 [%d12], %r7;"
    assert hashes(other.replace(start, own), threads=THREADS, shared=ROOM) == found
    assert hashes(shared_body("max.u32"), threads=THREADS, shared=ROOM) != found


def test_what_a_shared_operation_returns_is_undetermined() -> None:
    body = shared_body("add.u32", "atom")
    assert hashes(body, threads=THREADS, shared=ROOM) == hashes(shared_body("add.u32"), threads=THREADS, shared=ROOM)
    with pytest.raises(Unsupported, match="order of threads"):
        hashes(body + "st.global.u32 [%d0+64], %r3;", threads=THREADS, shared=ROOM)


@pytest.mark.parametrize("form", ["add.f32", "exch.b32", "cas.b32", "inc.u32", "add.noftz.f16x2"])
def test_other_operations_on_shared_memory_are_not_modelled(form: str) -> None:
    with pytest.raises(Unsupported, match="not modelled"):
        run(f"mov.u64 %d12, room; atom.shared.{form} %r1, [%d12], %r0;", shared=ROOM)


def test_shared_operations_at_addresses_of_data_are_unknown() -> None:
    body = shared_body("add.u32").replace(
        "red.shared", "and.b32 %r5, %r1, 4; cvt.u64.u32 %d9, %r5; add.s64 %d12, %d12, %d9; red.shared"
    )
    with pytest.raises(Unsupported, match="computed address"):
        run(body, threads=THREADS, shared=ROOM)


WORDS = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -7.0], dtype=np.float32).view(np.uint32)
OWN = "mul.lo.u32 %r10, %r0, 4; cvt.u64.u32 %d10, %r10; add.s64 %d11, %d1, %d10; add.s64 %d12, %d0, %d10;"
OWN += "ld.global.b32 %r1, [%d11]; st.global.b32 [%d12+64], %r1;"
CLEAR, SET = "setp.gt.s32 %p1, %r1, -1;", "setp.lt.s32 %p2, %r1, 0;"
HALVES = (CLEAR + "@%p1 red.global.max.s32 [%d0], %r1;", SET + "@%p2 red.global.min.u32 [%d0], %r1;")


def left(body: str) -> list[set[bytes]]:
    """Return the contents of out that the orders of the threads leave, on all words and on those with a sign."""
    prepared = prepare_launch(ARCH.parse(text(OWN + body, threads=THREADS), "k.ptx"), ARCH, launch())
    found = []
    for words, filled in ((WORDS, 0x80), (WORDS[WORDS >> 31 == 1], 0xFF)):
        contents = {"out": np.full(4 * THREADS + 64, filled, np.uint8), "in": np.resize(words, THREADS).view(np.uint8)}
        found.append({run_in_order(prepared, contents, order).after["out"].tobytes() for order in ORDERS})
    return found


def test_the_halves_of_a_maximum_of_floats_commute_beside_stores() -> None:
    one, other = "".join(HALVES), "".join(reversed(HALVES))
    assert hashes(OWN + one, threads=THREADS) == hashes(OWN + other, threads=THREADS)
    assert left(one) == left(other)
    greatest = [int(np.frombuffer(each[:4], np.uint32)[0]) for found in left(one) for each in found]
    assert greatest == [0x7FC00000, 0x80000000]


@pytest.mark.parametrize(
    "body",
    [
        HALVES[0],
        HALVES[1],
        "".join(HALVES).replace("max.s32", "min.s32").replace("min.u32", "max.u32"),
        "".join(HALVES).replace("[%d0]", "[%d0+4]"),
        "and.b32 %r1, %r1, 0xBFFFFFFF;" + "".join(HALVES),
    ],
)
def test_other_halves_differ(body: str) -> None:
    assert hashes(OWN + body, threads=THREADS) != hashes(OWN + "".join(HALVES), threads=THREADS)
    assert left(body) != left("".join(HALVES))


def test_halves_under_other_conditions_are_not_combined() -> None:
    body = "".join(HALVES).replace("-1;", "-2;")
    with pytest.raises(Unsupported, match="different atomic operations"):
        hashes(OWN + body, threads=THREADS)


@pytest.mark.parametrize(
    "name", ["add.u32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.s32", "min.u32", "max.u32"]
)
def test_an_operation_under_a_condition_is_one_with_its_identity(name: str) -> None:
    """The same as an operation with the identity where the condition is false, also in every order that is run."""
    identity = {"and.b32": -1, "min.s32": 0x7FFFFFFF, "max.s32": -0x80000000, "min.u32": -1}.get(name, 0)
    above = "setp.gt.s32 %p1, %r1, 5;"
    guarded = above + f"@%p1 red.global.{name} [%d0], %r1;"
    selected = above + f"selp.b32 %r2, %r1, {identity}, %p1; red.global.{name} [%d0], %r2;"
    assert hashes(OWN + guarded, threads=THREADS) == hashes(OWN + selected, threads=THREADS)
    assert hashes(OWN + guarded.replace("@", "@!"), threads=THREADS) != hashes(OWN + selected, threads=THREADS)
    assert left(guarded) == left(selected)
    assert [len(each) for each in left(guarded)] == [1, 1]


OF_BLOCK = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d5, %r1, 4; add.s64 %d5, %d0, %d5; mov.b32 %r2, 3;"


@pytest.mark.parametrize("scope", ["cta", "cluster"])
@pytest.mark.parametrize("operation", ["red.relaxed.{}.global.add.u32", "red.relaxed.{}.global.max.s32"])
def test_an_operation_in_the_scope_of_a_block_does_not_commute_with_those_of_others(scope: str, operation: str) -> None:
    limited, plain = operation.format(scope), operation.format("gpu")
    for first in (limited, plain):
        # What a block alone updates, and what all update in the scope of the device, has one result.
        own = f"{OF_BLOCK} {first} [%d5], %r2;"
        assert hashes(own, blocks=2) == hashes(own.replace(limited, plain), blocks=2)
    assert hashes(f"{OF_BLOCK} {limited} [%d0], %r2;") == hashes(f"{OF_BLOCK} {plain} [%d0], %r2;")
    for both in (f"{limited} [%d0], %r2;", f"{limited} [%d0], %r2; {plain} [%d0], %r2;"):
        with pytest.raises(Unsupported, match="scope of its block"):
            hashes(f"{OF_BLOCK} {both}", blocks=2)
