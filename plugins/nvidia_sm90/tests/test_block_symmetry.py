"""Verdicts by block symmetry compared with verdicts from all blocks, on kernels that each exercise one pitfall."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest

from bitwise_core.checker.block_symmetry.grid import Limits, NotSymmetric
from bitwise_core.checker.block_symmetry.symmetry import (
    GridComparison,
    GridSummary,
    check_representatives,
    compare,
    summarise,
)
from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import POINTER_SHIFT, Launch
from bitwise_core.execution.races.undetermined import Nondeterministic
from bitwise_nvidia_sm90.architecture import SM90

BUFFERS = {"x": 1, "y": 2}

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 x, .param .u64 y, .param .u32 n)
.reqntid {threads}
{{
.reg .pred %p<9>;
.reg .b32 %r<20>;
.reg .b64 %rd<20>;
.reg .b32 %f<20>;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %tid.x;
mov.u32 %r4, %ntid.x;
mad.lo.s32 %r5, %r2, %r4, %r3;
setp.lt.s32 %p1, %r5, %r1;
mul.wide.s32 %rd3, %r5, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
{body}
ret;
}}
"""
"""%r2 block, %r3 thread, %r5 element, %p1 inside, %rd4 its address in x, %rd5 its address in y."""

DOUBLE = """@%p1 ld.global.f32 %f1, [%rd4];
add.f32 %f2, %f1, %f1;
@%p1 st.global.f32 [%rd5], %f2;"""


@dataclass(frozen=True)
class Case:
    """A kernel's body and its launch over `n` elements."""

    body: str
    n: int = 300
    threads: int = 32
    given: tuple[int, ...] = ()
    """The contents of x, where the launch gives them."""


def prepared(case: Case) -> PreparedLaunch:
    module = SM90.parse(HEAD.format(threads=case.threads, body=case.body), "kernel.ptx")
    given = {"dtype": "i32", "values": case.given} if case.given else {}
    launch = Launch.model_validate({
        "file": "kernel.ptx",
        "grid": [-(-case.n // case.threads)],
        "args": [{"buffer": "x", **given}, {"buffer": "y"}, {"i32": case.n}],
    })  # fmt: skip
    return prepare_launch(module, SM90, launch)


def summary(case: Case, limits: Limits | None = None) -> GridSummary:
    return summarise(prepared(case), BUFFERS, limits)


def compared(first: Case, second: Case) -> GridComparison:
    return compare(summary(first), summary(second), TermDomain)


@cache
def kept_summary(case: Case) -> GridSummary:
    """Return a summary that several comparisons use; it keeps the blocks that they execute."""
    return summary(case)


@cache
def all_blocks(case: Case) -> dict[int, list[bytes]]:
    memory, scratch = run_blocks(prepared(case), TermDomain(), BUFFERS)
    return {
        buffer: [np.ascontiguousarray(part).tobytes() for part in (output.address, output.size, output.words)]
        for buffer, output in checked_outputs(memory, scratch).items()
    }


def offset_in_buffer(address: int) -> int:
    return address & ((1 << POINTER_SHIFT) - 1)


def only_in(block: str, then: str) -> str:
    """Return DOUBLE with the operations `then` in the block of index `block` only."""
    return DOUBLE.replace("@%p1 st", f"setp.eq.s32 %p2, %r2, {block};\n{then}\n@%p1 st")


SQUARE_IN = "@%p2 mul.f32 %f2, %f1, %f1;"
EXCHANGE_CHOSEN = "shfl.sync.bfly.b32 %f3, %f2, 1, 31, -1;\nselp.f32 %f2, %f3, %f2, %p2;"
SQUARE_CHOSEN = "mul.f32 %f3, %f1, %f1;\nselp.f32 %f2, %f3, %f2, %p2;"

NEXT = DOUBLE.replace("[%rd4]", "[%rd4+4]")
"""Reads the next element."""

SQUARED_PLACE = """mul.lo.s32 %r6, %r2, %r2;
mad.lo.s32 %r7, %r6, %r4, %r3;
mul.wide.s32 %rd6, %r7, 4;
add.s64 %rd7, %rd1, %rd6;
@%p1 ld.global.f32 %f1, [%rd7];
add.f32 %f2, %f1, %f1;
@%p1 st.global.f32 [%rd5], %f2;"""
"""Block b reads the elements of block b * b: its own only in blocks 0 and 1."""

LOOP = """mov.u32 %r6, 0;
mov.b32 %f2, 0f00000000;
ld.global.f32 %f1, [%rd4];
again:
add.f32 %f2, %f2, %f1;
add.s32 %r6, %r6, 1;
setp.le.s32 %p2, %r6, %r2;
@%p2 bra again;
@%p1 st.global.f32 [%rd5], %f2;"""
"""Block b adds its elements b + 1 times."""

IN_PLACE = """@%p1 ld.global.f32 %f1, [%rd5];
add.f32 %f2, %f1, %f1;
@%p1 st.global.f32 [%rd5], %f2;"""

NEIGHBOUR = IN_PLACE.replace("[%rd5];\nadd", "[%rd5+4];\nadd")
"""Reads the element that the next thread writes: for the last thread of a block, that is a thread of another block."""

APART = "add.s32 %r6, %r3, 1;\nsetp.gt.s32 %p3, %r6, 0;\nselp.b32 %r7, 0, %r6, %p3;\n"
SELECTED_APART = f"setp.lt.u32 %p2, %r3, 32;\n@%p2 bra low;\n{APART}bra join;\nlow:\n{APART}join:\n" + DOUBLE.replace(
    "@%p1 ld", "mul.wide.s32 %rd6, %r7, 4;\nadd.s64 %rd4, %rd4, %rd6;\n@%p1 ld"
)
"""The warps of a block select an offset of zero at different instructions."""

CASES = {
    "itself": Case(DOUBLE),
    "wider blocks": Case(DOUBLE, threads=64),
    "narrow blocks": Case(DOUBLE, threads=8),
    "different operation": Case(DOUBLE.replace("add", "mul")),
    "last block squares": Case(only_in("9", SQUARE_IN)),
    "block 5 squares": Case(only_in("5", SQUARE_IN)),
    "block 0 squares": Case(only_in("0", SQUARE_IN)),
    "block 5 selects the square": Case(only_in("5", SQUARE_CHOSEN)),
    "wider block 3 selects the square": Case(only_in("3", SQUARE_CHOSEN), threads=64),
    "block 5 selects an exchange": Case(only_in("5", EXCHANGE_CHOSEN)),
    "wider block 3 selects an exchange": Case(only_in("3", EXCHANGE_CHOSEN), threads=64),
    "a block outside the grid squares": Case(only_in("10", SQUARE_IN)),
    "neighbour": Case(NEXT),
    "squared address": Case(SQUARED_PLACE),
    "loop": Case(LOOP),
    "loop in wider blocks": Case(LOOP, threads=64),
    "in place": Case(IN_PLACE),
    "in place in wider blocks": Case(IN_PLACE, threads=64),
    "an offset that warps select apart": Case(SELECTED_APART, threads=64),
    "fewer elements": Case(DOUBLE, n=299),
    "different mask at the edge": Case(DOUBLE.replace("@%p1 ld", "setp.le.s32 %p1, %r5, 298;\n@%p1 ld")),
    "zero beyond the edge": Case("mov.b32 %f1, 0;\n" + DOUBLE),
}  # fmt: skip


@pytest.mark.parametrize("second", CASES)
@pytest.mark.parametrize("first", CASES)
def test_the_verdict_is_that_of_all_blocks(first: str, second: str) -> None:
    right = summary(CASES[second]) if first == second else kept_summary(CASES[second])
    found = compare(kept_summary(CASES[first]), right, TermDomain)
    assert found.equal == (all_blocks(CASES[first]) == all_blocks(CASES[second]))
    if first == second:
        assert found.equal


def test_the_cases_are_in_many_classes() -> None:
    outputs = [all_blocks(case) for case in CASES.values()]
    assert len({repr(each) for each in outputs}) == 14


@pytest.mark.parametrize(("name", "elements"), [
    ("last block squares", range(288, 300)), ("block 5 squares", range(160, 192)), ("block 0 squares", range(32)),
])  # fmt: skip
def test_the_first_difference_is_in_the_block_that_differs(name: str, elements: range) -> None:
    found = compared(CASES["itself"], CASES[name])
    assert found.buffer == 2
    assert found.address is not None
    assert offset_in_buffer(found.address) // 4 in elements


def test_equal_first_blocks_do_not_decide_for_blocks_with_another_translation() -> None:
    found = compared(CASES["itself"], CASES["squared address"])
    assert not found.equal
    assert found.address is not None
    assert offset_in_buffer(found.address) // 4 // 32 >= 2


def test_an_element_that_one_kernel_does_not_write() -> None:
    found = compared(CASES["itself"], CASES["fewer elements"])
    assert (found.equal, found.buffer, found.address) == (False, 2, (2 << 40) + 4 * 299)
    assert found.reason == "only one of the kernels stores this element"


def test_a_grid_of_a_million_blocks_is_decided_by_three_blocks() -> None:
    n = 32 << 20
    first, second = Case(DOUBLE, n), Case(DOUBLE, n, 64)
    found = compared(first, second)
    assert found.equal
    assert (len(found.first), len(found.second)) == (2, 1)


def test_a_large_grid_that_differs_in_its_last_block() -> None:
    n = 32 << 20
    found = compared(Case(DOUBLE, n), Case(only_in(str((1 << 20) - 1), SQUARE_IN), n))
    assert not found.equal
    assert found.address == (2 << 40) + 4 * (n - 32)


def test_the_regions_of_a_masked_grid_and_of_a_loop_by_block_index() -> None:
    assert [part.blocks.tolist() for part in summary(CASES["itself"]).classes] == [list(range(9)), [9]]
    assert sorted(part.blocks.size for part in summary(CASES["loop"]).classes) == [1] * 10


def test_executed_blocks_are_not_executed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = summary(CASES["itself"]), summary(CASES["wider blocks"])
    assert compare(first, second, TermDomain).equal
    monkeypatch.setattr("bitwise_core.checker.block_symmetry.symmetry.run_blocks", None)
    assert compare(first, second, TermDomain).equal


def test_blocks_of_several_classes_are_executed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A persistent kernel has a class of blocks for each number of tiles."""
    found, runs = summary(CASES["loop"]), []

    def noted(*arguments: object) -> object:
        runs.append(arguments[3])
        return run_blocks(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("bitwise_core.checker.block_symmetry.symmetry.run_blocks", noted)
    check_representatives(found, TermDomain)
    assert runs == [list(range(10))]
    (executed,) = found.executed.values()
    whole = all_blocks(CASES["loop"])
    for buffer, (_, _, words) in whole.items():
        parts = [
            np.frombuffer(executed[block][buffer].words.tobytes(), np.uint64).reshape(2, -1) for block in range(10)
        ]
        assert np.ascontiguousarray(np.concatenate(parts, axis=1)).tobytes() == words


STORE_THREAD = """mul.wide.s32 %rd6, %r3, 4;
add.s64 %rd7, %rd2, %rd6;
"""

BRANCH_ON_PRODUCT = """@%p1 ld.global.f32 %f1, [%rd4];
cvt.rn.f32.s32 %f2, %r2;
mul.f32 %f3, %f1, %f2;
setp.gt.f32 %p2, %f3, 0f3F800000;
add.f32 %f4, %f1, %f1;
@%p2 bra over;
mul.f32 %f4, %f1, %f1;
over:
@%p1 st.global.f32 [%rd5], %f4;"""
"""Stores one of two numbers that do not depend on the block index; the choice does."""

BRANCH_OVER_EXCHANGE = BRANCH_ON_PRODUCT.replace("mul.f32 %f4, %f1, %f1;", "shfl.sync.bfly.b32 %f4, %f4, 1, 31, -1;")

GATHER = """@%p1 ld.global.u32 %r6, [{index}];
mul.wide.u32 %rd8, %r6, 4;
add.s64 %rd9, {table}, %rd8;
@%p1 ld.global.f32 %f1, [%rd9];
@%p1 st.global.f32 [%rd5], %f1;"""


@pytest.mark.parametrize(("body", "error", "reason"), [
    (STORE_THREAD + "ld.global.f32 %f1, [%rd4];\nst.global.f32 [%rd7], %f1;", NotSymmetric, "store to one element"),
    (STORE_THREAD + "ld.global.f32 %f1, [%rd4];\nred.global.add.f32 [%rd7], %f1;", Nondeterministic, "threads add"),
    (STORE_THREAD + "ld.global.u32 %r6, [%rd4];\nred.global.add.u32 [%rd7], %r6;", NotSymmetric, "store to one"),
    (NEIGHBOUR, Unsupported, "another block of the launch writes"),
    ("cvt.rn.f32.s32 %f1, %r2;\n@%p1 st.global.f32 [%rd5], %f1;", NotSymmetric, "depends on the block's number"),
    (BRANCH_ON_PRODUCT, NotSymmetric, "depends on the block's number"),
    (BRANCH_OVER_EXCHANGE, NotSymmetric, "the set of lanes that take part in a shuffle depends on data"),
    ("@%p1 st.global.u32 [%rd5], %r2;", NotSymmetric, "depends on the block's number"),
    (GATHER.format(index="%rd4", table="%rd2"), NotSymmetric, "in a buffer that the launch writes"),
    ("st.global.f32 [%rd3], %f1;", NotSymmetric, "outside every buffer"),
])  # fmt: skip
def test_kernels_whose_blocks_are_not_translations(body: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        summary(Case("mov.b32 %f1, 0;\n" + body))


FIRST_OF_BLOCK = """mov.b32 %f1, 0;
@%p1 ld.global.f32 %f1, [%rd4];
mul.lo.s32 %r6, %r2, %r4;
mul.wide.s32 %rd6, %r6, 4;
add.s64 %rd7, %rd1, %rd6;
ld.global.f32 %f3, [%rd7];
setp.gt.f32 %p2, %f3, 0f3F800000;
"""
EXCHANGE = "bar.sync 0;\nshfl.sync.bfly.b32 %f4, %f1, 1, 31, -1;\n"
STORE = "@%p1 st.global.f32 [%rd5], %f4;"
BLOCKS_CHOOSE = FIRST_OF_BLOCK + "mov.b32 %f4, %f1;\n@%p2 bra over;\n" + EXCHANGE + "over:\n" + STORE
COUNTDOWN = """mov.b32 %f1, 0;
@%p1 ld.global.f32 %f1, [%rd4];
{begin}
again: add.f32 %f1, %f1, 0fBF800000;
mul.f32 %f4, %f4, %f1;
setp.gt.f32 %p2, %f1, {limit};
@%p2 bra again;
"""


def countdown(begin: str = "mov.b32 %f4, %f1;", limit: str = "0f3F800000") -> Case:
    """Return a kernel with a loop that data ends."""
    return Case(COUNTDOWN.format(begin=begin, limit=limit) + STORE)


def test_blocks_that_choose_a_side_by_data() -> None:
    case = Case(BLOCKS_CHOOSE)
    assert compared(case, Case(FIRST_OF_BLOCK + EXCHANGE + "selp.b32 %f4, %f1, %f4, %p2;\n" + STORE)).equal
    assert not compared(case, Case(FIRST_OF_BLOCK + EXCHANGE + "selp.b32 %f4, %f4, %f1, %p2;\n" + STORE)).equal
    by_number = BLOCKS_CHOOSE.replace("setp.gt", "cvt.rn.f32.s32 %f5, %r2;\nmul.f32 %f3, %f3, %f5;\nsetp.gt")
    with pytest.raises(NotSymmetric, match="depends on data"):
        summary(Case(by_number))


def test_loops_that_data_ends() -> None:
    assert compared(countdown(), Case(countdown().body, threads=64)).equal
    assert not compared(countdown(), countdown(limit="0f40000000")).equal
    with pytest.raises(NotSymmetric, match="depends on the block's number"):
        summary(countdown(begin="mov.b32 %f4, %f1;\ncvt.rn.f32.s32 %f5, %r2;\nmul.f32 %f4, %f4, %f5;"))


def test_a_gather_from_a_read_only_table() -> None:
    case = Case(GATHER.format(index="%rd4", table="%rd1"))
    assert compared(case, Case(case.body, threads=64)).equal


NUMBER_OF_BLOCK = """ld.global.b32 %r6, [%rd5];
xor.b32 %r7, %r6, %r6;
mul.wide.s32 %rd6, %r7, 4;
mul.wide.s32 %rd7, {block}, 4;
add.s64 %rd7, %rd1, %rd7;
add.s64 %rd7, %rd7, %rd6;
ld.global.b32 %r8, [%rd7];
st.global.b32 [%rd5], %r8;"""
"""Stores the number that the launch gives for a block, at an address to which data that is always zero is added."""


def test_given_numbers_at_addresses_that_move_with_the_block() -> None:
    own, first = (Case(NUMBER_OF_BLOCK.format(block=block), n=320, given=tuple(range(5, 15))) for block in ("%r2", "0"))
    assert all_blocks(own) != all_blocks(first)
    assert compared(first, Case("st.global.b32 [%rd5], 5;", n=320, given=first.given)).equal
    with pytest.raises(NotSymmetric, match="depends on the block's number"):
        summary(own)


OWN = "mov.b64 %rd8, %rd4;"
FIRST = "mul.wide.s32 %rd7, %r3, 4;\nadd.s64 %rd8, %rd1, %rd7;"
SQUARED = (
    "mul.lo.s32 %r8, %r2, %r2;\nmad.lo.s32 %r8, %r8, %r4, %r3;\nmul.wide.s32 %rd7, %r8, 4;\nadd.s64 %rd8, %rd1, %rd7;"
)
MASKED, ZERO = "and.b32 %r7, %r6, 7;", "xor.b32 %r7, %r6, %r6;"
COMPUTED = """@%p1 ld.global.f32 %f1, [%rd4];
mov.b32 %r6, %f1;
{index}
mul.wide.s32 %rd6, %r7, 4;
{place}
add.s64 %rd8, %rd8, %rd6;
@%p1 ld.global.f32 %f3, [%rd8+{offset}];
add.f32 %f2, %f1, %f3;
@%p1 st.global.f32 [%rd5], %f2;"""
"""Adds the element at `place` plus `index`, which is computed from data."""

BEFORE = COMPUTED.replace("add.s64 %rd8, %rd8, %rd6;", "add.s64 %rd8, %rd6, %rd8;")
COMPUTED_ADDRESSES = {
    "of the own block": COMPUTED.format(index=MASKED, place=OWN, offset=0),
    "of the own block, data first": BEFORE.format(index=MASKED, place=OWN, offset=0),
    "behind those": COMPUTED.format(index=MASKED, place=OWN, offset=4),
    "of the first block": COMPUTED.format(index=MASKED, place=FIRST, offset=0),
    "of another block": COMPUTED.format(index=MASKED, place=SQUARED, offset=0),
    "with data that is zero": COMPUTED.format(index=ZERO, place=OWN, offset=0),
    "with data that is zero, of the first block": COMPUTED.format(index=ZERO, place=FIRST, offset=0),
    "none": DOUBLE,
}


def test_computed_addresses_move_with_their_blocks() -> None:
    cases = {name: Case(body, n=96) for name, body in COMPUTED_ADDRESSES.items()}
    whole = {name: all_blocks(case) for name, case in cases.items()}
    summaries = {name: summary(case) for name, case in cases.items()}
    for first, second in combinations_with_replacement(cases, 2):
        found = compare(summaries[first], summaries[second], TermDomain)
        assert found.equal == (whole[first] == whole[second]), (first, second)
    assert whole["with data that is zero"] == whole["none"]
    one, several = "of the own block", "of the first block"
    assert [len(summaries[each].classes) for each in (one, several)] == [1, 3]


def test_a_computed_address_that_moves_by_more_than_a_sum() -> None:
    # What is loaded depends on the number of the block by more than its address.
    shifted = "add.s32 %r7, %r6, %r2;\nand.b32 %r7, %r7, 7;"
    with pytest.raises(NotSymmetric, match="depends on the block's number"):
        summary(Case(COMPUTED.format(index=shifted, place=OWN, offset=0)))
    stored = "cvt.u32.u64 %r9, %rd8;\n@%p1 st.global.u32 [%rd5], %r9;"
    with pytest.raises(NotSymmetric, match="depends on the block's number"):
        summary(Case(COMPUTED.format(index=MASKED, place=OWN, offset=0) + stored))


def test_an_atomic_add_to_an_element_of_one_thread_is_deterministic() -> None:
    body = "@%p1 ld.global.f32 %f1, [%rd4];\n@%p1 red.global.add.f32 [%rd5], %f1;"
    assert compared(Case(body), Case(body, threads=64)).equal


def test_the_limit_of_executed_blocks() -> None:
    limits = Limits(blocks=5)
    with pytest.raises(NotSymmetric, match="more than 5 blocks"):
        check_representatives(summary(CASES["loop"], limits), TermDomain)


def test_kernels_with_different_buffers_are_not_compared() -> None:
    other = summarise(prepared(CASES["itself"]), {"x": 2, "y": 1})
    with pytest.raises(ValueError, match="one numbering of buffers"):
        compare(summary(CASES["itself"]), other, TermDomain)


CHOICES = {
    "a guarded instruction": "@%p2 neg.f32 %f2, %f2;",
    "a select": "selp.f32 %f2, %f4, %f2, %p2;",
    "a branch": "@!%p2 bra over;\nadd.f32 %f2, %f2, %f2;\nover:",
    "a branch on the block and on data": "and.pred %p4, %p2, %p3; @!%p4 bra over; add.f32 %f2, %f2, %f2; over:",
    "a loop": "selp.b32 %r6, 3, 1, %p2; again: add.f32 %f2, %f2, %f2;"
    "sub.u32 %r6, %r6, 1; setp.ne.u32 %p4, %r6, 0; @%p4 bra again;",
    "conjunction with data": "and.pred %p4, %p2, %p3; selp.f32 %f2, %f4, %f2, %p4;",
    "disjunction with data": "or.pred %p4, %p2, %p3; selp.f32 %f2, %f4, %f2, %p4;",
    "exclusive or with data": "xor.pred %p4, %p2, %p3; selp.f32 %f2, %f4, %f2, %p4;",
    "a comparison of data": "setp.gt.and.f32 %p4, %f2, 0f3F800000, %p2; selp.f32 %f2, %f4, %f2, %p4;",
    "a vote": "vote.sync.any.pred %p4, %p2, -1; selp.f32 %f2, %f4, %f2, %p4;",
    "a sign": "selp.b32 %r6, 0x80000000, 0, %p2; xor.b32 %f2, %f2, %r6;",
    "a bit select": "selp.b32 %r6, -1, 0, %p2; lop3.b32 %f2, %r6, %f4, %f2, 0xCA;",
    "a byte permutation": "selp.b32 %r6, 0x0123, 0x3210, %p2; prmt.b32 %f2, %f2, %f2, %r6;",
    "a shift": "selp.b32 %r6, 1, 0, %p2; shl.b32 %f2, %f2, %r6;",
    "a factor": "selp.f32 %f5, 0f40000000, 0f3F800000, %p2; mul.f32 %f2, %f2, %f5;",
    "a bound": "selp.f32 %f5, 0f7F000000, 0fFF000000, %p2; max.f32 %f2, %f2, %f5;",
    "a shuffle": "shfl.sync.bfly.b32 %f5, %f2, 1, 31, -1; selp.f32 %f2, %f5, %f2, %p2;",
    "a shuffle distance": "selp.b32 %r6, 1, 0, %p2; shfl.sync.bfly.b32 %f2, %f2, %r6, 31, -1;",
    "a conditionally written register": "mov.b32 %f5, %f4; @%p2 mov.b32 %f5, %f2; mov.b32 %f2, %f5;",
    "an address": "selp.b64 %rd8, 4, 0, %p2; add.s64 %rd9, %rd4, %rd8; ld.global.f32 %f2, [%rd9];",
}


def selecting(name: str, block: int, threads: int) -> Case:
    """Return a kernel that selects the stored value by the block index.

    %p2 holds only in `block`; %p3, %f2 and %f4 are data.
    """
    before = f"""@%p1 ld.global.f32 %f1, [%rd4];
setp.eq.s32 %p2, %r2, {block};
setp.gt.f32 %p3, %f1, 0f3F800000;
add.f32 %f2, %f1, %f1;
mul.f32 %f4, %f1, %f1;
"""
    return Case("mov.b32 %f1, 0;\n" + before + CHOICES[name] + "\n@%p1 st.global.f32 [%rd5], %f2;", threads=threads)


@pytest.mark.parametrize("name", CHOICES)
def test_a_selection_by_block_index_is_not_applied_to_other_blocks(name: str) -> None:
    """Blocks have 32 or 64 elements, so that one block covers the elements of two others, or different elements."""
    cases = [selecting(name, block, threads) for block, threads in ((3, 32), (3, 64), (1, 64), (9, 32))]
    assert len({repr(all_blocks(case)) for case in cases}) == len(cases)
    summaries = []
    for case in cases:
        with suppress(NotSymmetric):
            summaries.append(summary(case))
    assert [
        [compare(first, second, TermDomain).equal for second in summaries[:index]]
        for index, first in enumerate(summaries)
    ] == [[False] * index for index in range(len(summaries))]
