"""Tensors of pointers: a kernel that loads the addresses of buffers from a given tensor, as foreach kernels do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.analysis import Options, analyse
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.interleavings import ORDERS, run_in_order
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.execution.tensor_contents import tensor_contents
from ptx_programs import ARCH

HEAD = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 first, .param .u64 second)
.reqntid 4
{
  .reg .b32 %r<9>;
  .reg .b64 %d<9>;
  ld.param.u64 %d1, [first];
  ld.param.u64 %d2, [second];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d3, %r2, 4;
"""
TAIL = """
  add.s64 %d5, %d5, %d3;
  ld.global.f32 %r3, [%d5];
  add.f32 %r3, %r3, %r3;
  st.global.f32 [%d5], %r3;
  ret;
}
"""
TABLE = f"{HEAD}  mul.wide.u32 %d4, %r1, 8; add.s64 %d4, %d1, %d4; ld.global.u64 %d5, [%d4];{TAIL}"
"""Doubles four numbers at the pointer of each block."""
ARGUMENTS = f"{HEAD}  setp.eq.u32 %p, %r1, 0; selp.b64 %d5, %d1, %d2, %p;{TAIL}".replace(
    "%r<9>;", "%r<9>; .reg .pred %p;"
)
"""Doubles four numbers at the argument of each block."""
P, Q = {"buffer": "p", "dtype": "fp32", "elements": 8}, {"buffer": "q", "offset": 8, "dtype": "fp32"}


def source(text: str, arguments: list[dict[str, Any]]) -> Source:
    entry = {"file": "k.ptx", "entry": "k", "grid": [2], "block": [4], "args": arguments}
    return Source("k.ptx", text, Launch.model_validate(entry))


def by_table(*values: object) -> Source:
    return source(TABLE, [{"buffer": "t", "dtype": "i64", "values": list(values)}, {"i64": 0}])


def outcome(left: Source, right: Source) -> Outcome:
    return compare(left, right, ARCH, Options()).verdict.outcome


def test_a_pointer_of_a_table_is_the_buffer_that_it_names() -> None:
    direct = source(ARGUMENTS, [P, {"buffer": "q", "offset": 8, "dtype": "fp32"}])
    assert outcome(by_table(P, Q), direct) is Outcome.EQUAL
    assert outcome(by_table(P, {**Q, "offset": 12}), direct) is not Outcome.EQUAL
    assert outcome(by_table(Q, P), direct) is Outcome.EQUAL
    # Different tables are different launches.
    assert outcome(by_table(P, Q), by_table(Q, P)) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    "number", ["add.s64 %d6, %d5, 0", "shr.u64 %d6, %d5, 40", "sub.s64 %d6, %d5, %d2", "cvt.u64.u32 %d6, %r4"]
)
def test_a_pointer_of_a_table_is_no_number(number: str) -> None:
    """%d2 is the other argument, which is no pointer; %r4 the lower word."""
    end = "add.s64 %d5, %d5, %d3; add.s64 %d5, %d5, %d3; st.global.b64 [%d5], %d6; ret; }"
    text = TABLE.replace(TAIL, f"cvt.u32.u64 %r4, %d5; {number}; {end}")
    arguments: list[dict[str, Any]] = [{"buffer": "t", "dtype": "i64", "values": [P, Q]}, {"i64": 0}]
    found = analyse(source(text, arguments), ARCH, {"t": 1, "p": 2, "q": 3}, Options()).unknown
    assert found is not None
    assert "the address of a buffer, which the launch does not give, is read as a number" in found
    arguments[0]["values"] = [{"buffer": "p", "dtype": "fp32", "offset": each} for each in (0, 32)]
    distance = source(text.replace(number, "add.s64 %d6, %d5, %d3; sub.s64 %d6, %d6, %d5"), arguments)
    assert analyse(distance, ARCH, {"t": 1, "p": 2, "q": 3}, Options()).unknown is None


PARTS = {
    "the upper word": "ld.global.u32 %r3, [%d4+4];",
    "the lower word": "ld.global.u32 %r3, [%d4];",
    "two words": "ld.global.v2.u32 {%r3, %r4}, [%d4];",
    "two bytes": "ld.global.u16 %r3, [%d4+4];",
    "a word of any memory": "ld.u32 %r3, [%d4+4];",
    "a word that nothing stores": "ld.global.nc.u32 %r3, [%d4+4];",
    "a copy": "mov.u32 %r6, room; cp.async.ca.shared.global [%r6], [%d4], 8; cp.async.wait_all;"
    " ld.shared.u32 %r3, [%r6+4];",
    "a copied address": "mov.u32 %r6, room; cp.async.ca.shared.global [%r6], [%d4], 8; cp.async.wait_all;"
    " ld.shared.b64 %d6, [%r6]; shr.u64 %d6, %d6, 32; cvt.u32.u64 %r3, %d6;",
    "an exchange": "atom.global.exch.b64 %d6, [%d4], 0; shr.u64 %d6, %d6, 32; cvt.u32.u64 %r3, %d6;",
    "an update of a word": "add.s64 %d6, %d4, 4; atom.global.exch.b32 %r3, [%d6], 0;",
    "a sum": "red.global.add.u64 [%d4], 8; mov.u32 %r3, 7;",
    "a store in some threads": "ld.global.u32 %r3, [%d2]; setp.eq.u32 %p, %r3, 0; @%p st.global.b64 [%d4], 0;",
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_the_bytes_of_a_pointer_are_no_numbers(name: str) -> None:
    """The analysis has an address of its own choice for a buffer; a kernel with that number is another one."""
    head = HEAD.replace("%r<9>;", "%r<9>; .reg .pred %p; .shared .align 16 .b8 room[16];")
    body = f"mul.wide.u32 %d7, %r1, 8; add.s64 %d4, %d1, %d7; {PARTS[name]} add.s64 %d5, %d2, %d7;"
    text = f"{head} {body} st.global.b32 [%d5], %r3; ret; }}".replace(".reqntid 4", ".reqntid 1")
    entry = {"file": "k.ptx", "entry": "k", "grid": [2], "block": [1]}
    arguments = [{"buffer": "t", "dtype": "i64", "values": [P, Q]}, {"buffer": "out", "dtype": "i32"}]
    launch = Launch.model_validate({**entry, "args": arguments})
    found = analyse(Source("k.ptx", text, launch), ARCH, {"t": 1, "out": 2, "p": 3, "q": 4}, Options()).unknown
    assert found is not None
    assert "is read in parts or as a number, and the launch does not give the address of a buffer" in found


@pytest.mark.parametrize("other", ["5", "%d6"])
def test_one_of_several_pointers_that_data_chooses_is_no_number(other: str) -> None:
    load = "ld.global.u64 %d5, [%d1]; ld.global.u64 %d6, [%d1+8]; ld.global.u32 %r3, [%d2+64]; setp.eq.u32 %p, %r3, 7;"
    choice = f"selp.b64 %d5, %d5, {other}, %p; {{}} st.global.b32 [%d2], %r3; ret; }}}}"
    head = HEAD.replace("%r<9>;", "%r<9>; .reg .pred %p;").replace(".reqntid 4", ".reqntid 1")
    arguments = [{"buffer": "t", "dtype": "i64", "values": [P, Q]}, {"buffer": "out", "dtype": "i32"}]
    launch = Launch.model_validate({"file": "k.ptx", "entry": "k", "grid": [1], "block": [1], "args": arguments})

    def unknown(use: str) -> str | None:
        text = f"{head} {load} {choice.format(use)}"
        return analyse(Source("k.ptx", text, launch), ARCH, {"t": 1, "out": 2, "p": 3, "q": 4}, Options()).unknown

    found = unknown("shr.u64 %d5, %d5, 40; cvt.u32.u64 %r3, %d5;")
    assert found is not None
    assert "the address of a buffer, which the launch does not give, is read as a number" in found
    assert unknown("mov.u32 %r3, 7;") is None


def test_the_size_of_a_buffer_that_only_pointers_name_bounds_it() -> None:
    assert analyse(by_table(P, Q), ARCH, {"t": 1, "p": 2, "q": 3}, Options()).unknown is None
    small = analyse(by_table({**P, "elements": 3}, Q), ARCH, {"t": 1, "p": 2, "q": 3}, Options())
    assert small.unknown is not None
    assert "beyond" in small.unknown


def test_a_launch_with_pointers_is_executed() -> None:
    prepared = prepare_launch(ARCH.parse(TABLE, "k.ptx"), ARCH, by_table(P, Q).launch)
    before = {name: np.arange(8, dtype=np.float32).view(np.uint8) for name in "pq"}
    for after in (simulate(prepared, before).after, *(run_in_order(prepared, before, each).after for each in ORDERS)):
        assert after["p"].view(np.float32).tolist() == [0, 2, 4, 6, 4, 5, 6, 7]
        assert after["q"].view(np.float32).tolist() == [0, 1, 4, 6, 8, 10, 6, 7]
        assert not after["t"].any(), "addresses of the analysis are no bytes of a launch"


@pytest.mark.parametrize("number", [1 << 40, (1 << 40) - 8, 5 << 40, 1 << 39, (1 << 39) - 1, 90 << 40, -1, -1 << 63])
def test_a_number_that_could_be_an_address_of_the_analysis_is_none(number: int) -> None:
    refused = 1 << 39 <= number < 60 << 40
    found = analyse(by_table(number, P), ARCH, {"t": 1, "p": 2}, Options()).unknown
    assert (found is not None and "cannot be told from an address" in found) is refused
    scalar = source(ARGUMENTS, [{"i64": number}, P])
    found = analyse(scalar, ARCH, {"p": 1}, Options()).unknown
    assert (found is not None and "cannot be told from an address" in found) is refused


def test_other_tables_are_other_contents() -> None:
    bytes_ = {"buffer": "p", "dtype": "fp8e4nv"}
    tables = [by_table(P, Q), by_table(Q, P), by_table(P, {**Q, "offset": 4}), by_table(P, 0), by_table(0, bytes_)]
    digests = []
    for each in tables:
        assert each.launch is not None
        contents = each.launch.given()["t"]
        digests.append(contents.digest)
        assert Launch.model_validate_json(each.launch.model_dump_json()) == each.launch
    assert len(set(digests)) == len(tables)


@pytest.mark.parametrize(
    ("dtype", "value", "reason"),
    [
        ("i32", P, "hold a pointer at index 0, and are of the type i32; pointers are i64 or u64"),
        ("i64", {"offset": 4}, "which has `buffer`, and if needed"),
        ("i64", {"buffer": "a\x1b"}, "which has `buffer`, and if needed"),
        ("i64", {"buffer": "p", "size": 4}, "which has `buffer`, and if needed"),
        ("i64", {"buffer": "p", "offset": "4"}, "whose `offset` is '4'"),
        ("i64", {"buffer": "p", "offset": -1 << 40}, "no integer from -549755813888 to 549755813887"),
        ("i64", {"buffer": "p", "elements": 4}, "with `elements` and no `dtype`"),
        ("i64", {"buffer": "p", "elements": -1, "dtype": "i8"}, "whose `elements` is -1"),
        ("i64", {"buffer": "p", "dtype": "fp31"}, "of the type 'fp31'"),
        ("i64", {"buffer": "p", "dtype": ["fp32"]}, "of the type ['fp32']"),
        ("i64", {"buffer": "p", "elements": 4, "dtype": "fp8e4nv"}, "with `elements` and no `dtype`"),
        ("i64", [3], "which is no number"),
    ],
)
def test_wrong_pointers_are_refused(dtype: str, value: object, reason: str) -> None:
    arguments = [{"buffer": "t", "dtype": dtype, "values": [value]}]
    with pytest.raises(ValueError, match="the values of the buffer t") as raised:
        Launch.model_validate({"file": "k.ptx", "grid": [1], "args": arguments})
    assert reason in str(raised.value)


NUMBERS = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 t, .param .u64 out)
{{ .reg .b64 %d<9>; .reg .b32 %r<9>;
ld.param.u64 %d1, [t]; ld.param.u64 %d2, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 8; add.s64 %d4, %d1, %d3;
add.s64 %d5, %d2, %d3; ld.global.b64 %d6, [%d4]; shr.u64 %d7, %d6, {shift}; and.b64 %d7, %d7, 255; st.global.b64 [%d5], %d7; ret; }}
"""  # noqa: E501


def test_a_number_that_could_be_an_address_is_computed_with() -> None:
    def of(shift: int, number: int) -> Source:
        arguments = (
            Argument(kind="buffer", buffer="t", dtype="i64", values=tensor_contents([3, number], "i64", None)),
            Argument(kind="buffer", buffer="out", dtype="i64"),
        )
        launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(2, 1, 1), args=arguments)
        return Source("k.ptx", NUMBERS.format(shift=shift), launch)

    number = (5 << 40) + 3
    assert outcome(of(8, number), of(8, number)) is Outcome.EQUAL
    assert outcome(of(8, number), of(9, number)) is not Outcome.EQUAL
    assert outcome(of(8, number), of(8, number + 1)) is not Outcome.EQUAL
