"""Stores to one element by blocks that data selects: one content is left if any block stores it.

Forms are held against execution of the blocks in several orders on bit patterns, and against a single block that
computes the condition of all.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.concrete import checked_outputs, prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.interleavings import ORDERS, run_in_order
from bitwise_core.execution.launch import Argument, Launch
from ptx_programs import ARCH, hashes, run, text

BLOCKS = 3
START = "mov.u32 %r1, %ctaid.x; setp.ne.b32 %p2, %r0, 0; mov.b32 %r9, 7; mov.b32 %r8, 5;"


def flag(index: str = "%r1", value: str = "%r9", test: str = "eq", other: str = "", after: str = "") -> str:
    """Return a kernel whose blocks store `value` to out[0] unless in[`index`] passes `test` with 0, else `other`."""
    word = f"mul.wide.u32 %d2, {index}, 4; add.s64 %d2, %d1, %d2; ld.global.b32 %r2, [%d2];"
    second = f"bra END; ELSE: @%p2 bra END; st.global.b32 [%d0], {other};" if other else "bra END; ELSE:"
    return (
        f"{START}{word} setp.{test}.b32 %p1, %r2, 0; @%p1 bra ELSE; @%p2 bra END; st.global.b32 [%d0], {value};"
        f"{second} END: {after}"
    )


def alone(operation: str = "or", test: str = "ne", value: str = "%r9") -> str:
    """Return a kernel of one block that stores `value` if the test holds for any (or) or all (and) of the words."""
    body = START + "ld.global.b32 %r2, [%d1]; ld.global.b32 %r3, [%d1+4]; ld.global.b32 %r4, [%d1+8];"
    body += f"setp.{test}.b32 %p1, %r2, 0; setp.{test}.b32 %p3, %r3, 0; setp.{test}.b32 %p4, %r4, 0;"
    body += f"{operation}.pred %p1, %p1, %p3; {operation}.pred %p1, %p1, %p4; ld.global.b32 %r5, [%d0];"
    return body + f"selp.b32 %r6, {value}, %r5, %p1; @%p2 bra END; st.global.b32 [%d0], %r6; END:"


def executed(body: str, blocks: int) -> set[tuple[int, ...]]:
    """Return the content of out[0] for each content of in, one row for each order of the blocks."""
    arguments = tuple(Argument(kind="buffer", buffer=name) for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(32, 1, 1), args=arguments)
    prepared = prepare_launch(ARCH.parse(text(body), "k.ptx"), ARCH, launch)
    found = set()
    for order in ORDERS:
        row = []
        for words in itertools.product((0, 1), repeat=BLOCKS):
            contents = {"out": np.full(4, 9, np.uint8), "in": np.array(words, np.uint32).view(np.uint8)}
            row.append(int(run_in_order(prepared, contents, order).after["out"].view(np.uint32)[0]))
        found.add(tuple(row))
    return found


@pytest.mark.parametrize(
    ("blocks", "one"),
    [
        (flag(), alone()),
        (flag(test="ne"), alone(test="eq")),
        (flag(value="%r9", after="mov.b32 %r9, 1;"), alone()),
    ],
)
def test_a_content_is_left_if_any_block_stores_it(blocks: str, one: str) -> None:
    assert hashes(blocks, blocks=BLOCKS) == hashes(one)
    assert executed(blocks, BLOCKS) == executed(one, 1)
    assert len(executed(blocks, BLOCKS)) == 1


@pytest.mark.parametrize(
    "other",
    [
        *(f"mov.b32 %r7, {block}; {flag('%r7')}" for block in range(BLOCKS)),
        flag(value="%r8"),
        alone("and"),
        alone(test="eq"),
    ],
)
def test_other_conditions_and_contents_differ(other: str) -> None:
    blocks = 1 if "ld.global.b32 %r5" in other else BLOCKS
    assert hashes(flag(), blocks=BLOCKS) != hashes(other, blocks=blocks)
    assert executed(flag(), BLOCKS) != executed(other, blocks)


@pytest.mark.parametrize(
    "body",
    [
        flag(value="%r1"),
        flag(value="%r2"),
        flag(other="%r8"),
        flag(after="@%p2 bra LAST; ld.global.b32 %r5, [%d0]; st.global.b32 [%d0+4], %r5; LAST:"),
        START
        + "setp.ne.b32 %p3, %r1, 0; or.pred %p3, %p3, %p2; @%p3 bra NEXT; st.global.b32 [%d0], %r8; NEXT:"
        + flag(),
    ],
    ids=["own number", "own word", "two contents", "read by others", "stored before"],
)
def test_contents_that_an_order_decides_are_not_determined(body: str) -> None:
    with pytest.raises(Unsupported, match=r"race|order in which threads run"):
        hashes(body, blocks=BLOCKS)


def nested(first: str, second: str) -> str:
    """Return a kernel whose blocks store to out[0] within two branches, by the words `first` and `second`."""
    return (
        START + "mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2; ld.global.b32 %r2, [%d2]; ld.global.b32 %r3, [%d2+4];"
        "ld.global.b32 %r4, [%d1]; ld.global.b32 %r5, [%d1+4]; ld.global.b32 %r6, [%d1+8]; setp.ne.b32 %p3, %r4, 0;"
        "setp.ne.b32 %p4, %r5, 0; setp.ne.b32 %p5, %r6, 0; or.pred %p6, %p3, %p4; or.pred %p7, %p4, %p5;"
        f"setp.ne.b32 %p8, %r2, 0; setp.ne.b32 %p9, %r3, 0; @!{first} bra END; @!{second} bra INNER; @%p2 bra INNER;"
        "st.global.b32 [%d0], %r9; INNER: bar.sync 0; END:"
    )


def test_nested_conditions_of_a_block_hold_together() -> None:
    """A block stores where both of its conditions hold, not where one block has the first and another the second."""
    of_any = executed(nested("%p6", "%p7"), 2)
    assert len(of_any) == 1
    assert executed(nested("%p8", "%p9"), 2) != of_any
    with pytest.raises(Unsupported, match="race"):
        hashes(nested("%p8", "%p9"), blocks=2)
    assert hashes(nested("%p6", "%p7"), blocks=2) == hashes(nested("%p6", "%p7"), blocks=1)
    # The condition of all blocks may be the inner one.
    assert hashes(nested("%p8", "%p7"), blocks=2) == hashes(nested("%p6", "%p7"), blocks=2)
    assert executed(nested("%p8", "%p7"), 2) == of_any


def each(value: str = "%r9", before: str = "", after: str = "", test: str = "ne", cell: str = "[%d0]") -> str:
    """Return a kernel each of whose threads stores `value`, by a predicate, if its word of three passes `test`."""
    word = "rem.u32 %r7, %r0, 3; mul.wide.u32 %d2, %r7, 4; add.s64 %d2, %d1, %d2; ld.global.b32 %r2, [%d2];"
    return f"{START}{word} {before} setp.{test}.b32 %p1, %r2, 0; @%p1 st.global.b32 {cell}, {value}; {after}"


def test_threads_that_store_one_content_under_conditions_leave_it_if_any_does() -> None:
    twice = each(after="setp.ne.b32 %p3, %r2, 0; @%p3 st.global.b32 [%d0], %r9;")
    for body, blocks in ((each(), 1), (each(), 2), (twice, 1)):
        assert hashes(body, blocks=blocks) == hashes(alone())
        assert executed(body, blocks) == executed(alone(), 1)
    assert hashes(each(test="eq")) == hashes(alone(test="eq"))
    assert len({str(hashes(one)) for one in (each(), each(test="eq"), each(value="%r8"), alone("and"))}) == 4


def test_more_stores_than_one_batch_of_blocks_has_leave_one_content() -> None:
    assert hashes(each(), blocks=300) == hashes(alone())


@pytest.mark.parametrize(
    "body",
    [
        each(value="%r0"),
        each(value="%r2"),
        each(after="@%p1 st.global.b32 [%d0], %r8;"),
        each(after="st.global.b32 [%d0], %r8;"),
        each(after="bar.sync 0; st.global.b32 [%d0], %r8;"),
        each(after="bar.sync 0; @%p2 bra END; st.global.b32 [%d0], %r8; END:"),
        each(after="bar.sync 0; ld.global.b32 %r5, [%d0]; st.global.b32 [%d0+4], %r5;"),
        each(after="red.global.add.u32 [%d0], 1;"),
        each(before="@%p2 bra GO; st.global.b32 [%d0], %r8; GO:"),
        each(before="ld.global.b32 %r5, [%d0];", after="bar.sync 0; st.global.b32 [%d0+4], %r5;"),
        each(after="mov.b16 %h1, 1; setp.eq.b32 %p3, %r2, 3; @%p3 st.global.b16 [%d0+2], %h1;"),
        each(after="bar.sync 0; @%p2 bra END; setp.eq.b32 %p3, %r2, 5; @%p3 st.global.b32 [%d0], %r8; END:"),
    ],
    ids=["own number", "own word", "two contents", "stored by all", "stored after a barrier", "stored by one thread",
         "read after a barrier", "added to", "stored before", "read before", "a part under another condition",
         "another content under a condition after a barrier"],
)  # fmt: skip
def test_an_element_that_is_accessed_otherwise_is_not_joined(body: str) -> None:
    with pytest.raises(Unsupported, match=r"race|order in which threads run|order of threads|several widths"):
        checked_outputs(*run(body))


EVERY_LAUNCH = """
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global k_param_0, .param .u64 .ptr .global k_param_1)
.reqntid 32
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<6>;
  ld.param.b64 %rd1, [k_param_0];
  ld.param.b64 %rd2, [k_param_1];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd3, %r1, 4, %rd1;
  ld.global.b32 %r2, [%rd3];
  setp.ne.b32 %p1, %r2, 0;
  mov.b32 %r3, 7;
  @%p1 st.global.b32 [%rd2], %r3;
  ret;
}
"""


def test_for_every_launch_each_store_is_its_own() -> None:
    arguments = tuple(Argument(kind="buffer", buffer=name) for name in ("in", "out"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
    source, buffers = Source("k.ptx", EVERY_LAUNCH, launch), {"in": 1, "out": 2}
    assert analyse(source, ARCH, buffers, Options(audit_contraction=False)).signature is not None
    found = analyse(source, ARCH, buffers, Options(every_launch=True, audit_contraction=False))
    assert found.unknown is not None
    assert "written twice" in found.unknown


BEGIN = START + (
    "mul.wide.u32 %d4, %r1, 4; add.s64 %d5, %d4, %d0; add.s64 %d4, %d1, %d4; ld.global.b32 %r2, [%d4];"
    "ld.global.b32 %r3, [%d1+8]; ld.global.b32 %r5, [%d4+4]; mov.b32 %r4, 3; not.pred %p3, %p2;"
    "and.b32 %r7, %r0, 1; mul.wide.u32 %d6, %r7, 4; add.s64 %d6, %d1, %d6; ld.global.b32 %r6, [%d6];"
)
"""%r2, %r5: words of the block, %r3: one of all blocks; %d0: cells of all blocks, %d5: those of the block."""
FIRST = "@!%p2"
"""The guard of a block's first thread, which alone changes memory."""


def statement(draw: random.Random, labels: Iterator[int], depth: int = 0) -> str:
    """Return a store, load, atomic operation, barrier or sum, or a branch by a word, with one or two of these."""
    value, other = (draw.choice(("%r8", "%r9", "%r1", "%r2", "%r3", "%r4")) for _ in range(2))
    cell = draw.choice(("[%d0]", "[%d0+4]", "[%d0]", "[%d0+4]", "[%d0]", "[%d0+4]", "[%d5+16]", "[%d5+20]"))
    test = f"setp.{draw.choice(('eq', 'ne'))}.b32"
    condition = draw.choice(("%r2", "%r5", "%r3"))
    number = next(labels)
    predicate = f"%p{10 + number % 25}"
    kind = draw.choice(
        ("store",) * 9 + ("load",) * 2 + ("atomic", "barrier", "sum", "guarded") + ("branch", "each") * 4
    )
    if kind == "branch" and depth < 2:
        inner = " ".join(statement(draw, labels, depth + 1) for _ in range(draw.randint(1, 2)))
        if draw.random() < 0.3:
            inner += f" bra J{number}; E{number}: {statement(draw, labels, depth + 1)}"
            return f"{test} {predicate}, {condition}, 0; @{predicate} bra E{number}; {inner} J{number}:"
        return f"{test} {predicate}, {condition}, 0; @{predicate} bra J{number}; {inner} J{number}:"
    return {
        "load": f"ld.global.b32 %r4, {cell};",
        "atomic": f"{FIRST} red.global.{draw.choice(('add.u32', 'max.u32', 'or.b32'))} {cell}, {value};",
        "barrier": "bar.sync 0;",
        "sum": f"add.u32 %r4, {value}, {other};",
        "guarded": f"{test} {predicate}, {condition}, 0; and.pred {predicate}, {predicate}, %p3;"
        f" @{predicate} st.global.b32 {cell}, {value};",
        "each": f"{test} {predicate}, %r6, 0; @{predicate} st.global.b32 {cell}, {value};",
    }.get(kind, f"{FIRST} st.global.b32 {cell}, {value};")


def test_random_programs_with_one_form_leave_the_same_in_every_order() -> None:
    draw, forms, compared, read = random.Random(6), dict[object, tuple[str, list[set[bytes]]]](), 0, 0
    for _ in range(90):
        labels = itertools.count()
        body = BEGIN + " ".join(statement(draw, labels) for _ in range(draw.randint(1, 4)))
        try:
            outputs = checked_outputs(*run(body, blocks=2))
        except Unsupported:
            continue
        after = every_order(body)
        assert all(len(each) == 1 for each in after), body
        form = tuple((name, each.address.tobytes(), each.words.tobytes()) for name, each in sorted(outputs.items()))
        first, left = forms.setdefault(form, (body, after))
        assert left == after, (first, body)
        compared, read = compared + (first is not body), read + 1
    assert read > 15
    assert compared > 3


def every_order(body: str) -> list[set[bytes]]:
    """Return the contents of out that the orders of two blocks leave, for each content of in."""
    arguments = tuple(Argument(kind="buffer", buffer=name) for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(32, 1, 1), args=arguments)
    prepared = prepare_launch(ARCH.parse(text(body), "k.ptx"), ARCH, launch)
    found = []
    for words in itertools.product((0, 1), repeat=3):
        contents = {"out": np.full(32, 9, np.uint8), "in": np.array(words, np.uint32).view(np.uint8)}
        found.append({run_in_order(prepared, contents, order).after["out"].tobytes() for order in ORDERS})
    return found
