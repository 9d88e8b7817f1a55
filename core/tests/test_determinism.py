# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Determinism by name: outcomes, places and exit statuses of small kernels, from the command and from Python."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_type

import pytest
from toy_texts import launch as row_launch
from toy_texts import row_sum, write
from typer.testing import CliRunner

import bitwise_core
from bitwise_core import BitwiseError, Determinism, DeterminismReport, Outcome
from bitwise_core.checker.determinism import KernelDeterminism
from bitwise_core.checker.results import Place
from bitwise_core.cli import app

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

HEAD = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
.reqntid 64
{
.reg .pred %p<5>; .reg .b64 %d<12>; .reg .b32 %r<12>; .reg .f32 %f<5>; .shared .align 16 .b8 room[1024];
.loc 1 5 0
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1; mul.wide.u32 %d3, %r3, 4;
add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3; mul.wide.u32 %d6, %r1, 4; add.s64 %d7, %d2, %d6;
mov.u64 %d8, room; add.s64 %d9, %d8, %d6; xor.b32 %r4, %r1, 32; mul.wide.u32 %d10, %r4, 4; add.s64 %d11, %d8, %d10;
ld.global.f32 %f1, [%d4]; ld.global.u32 %r5, [%d4];
"""
TAIL = """
ret;
}
.file 1 "kernel.py"
"""


def text(body: str, threads: int = 64) -> str:
    """Return a kernel k(a, b): %d4 and %d5 are the thread's words, %d7 that of its number in the block, in b."""
    return HEAD.replace(".reqntid 64", f".reqntid {threads}") + ".loc 1 7 0\n" + body + TAIL


def entry(blocks: int = 2, dtype: str = "fp32", threads: int = 64) -> dict[str, Any]:
    arguments = [{"buffer": "a", "dtype": dtype}, {"buffer": "b", "dtype": dtype}]
    return {"entry": "k", "grid": [blocks], "block": [threads], "args": arguments}


LINE = HEAD.count("\n") + 2
EXCHANGE = "st.shared.f32 [%d9], %f1;\nbar.sync 0;\nld.shared.f32 %f2, [%d11];\nadd.f32 %f2, %f2, %f1;\nst.global.f32 [%d5], %f2;"

SUM_UNDER_LOCK = (
    "mov.b32 %r8, 0; mul.wide.u32 %d6, 0, 4; add.s64 %d7, %d2, %d6; setp.ne.u32 %p2, %r1, 0; @%p2 bra E;\n"
    "L: atom.global.acquire.gpu.cas.b32 %r6, [%d7+4096], 0, 1;\nsetp.eq.u32 %p1, %r6, 1; @%p1 bra L;\n"
    "ld.global.f32 %f2, [%d7]; add.f32 %f2, %f2, %f1; st.global.f32 [%d7], %f2;\nmembar.gl; atom.global.exch.b32 %r6, [%d7+4096], 0;\nE:"
)

CASES: dict[str, tuple[str, int, Determinism, list[tuple[str, int]]]] = {
    "an exchange with a barrier": (EXCHANGE, 2, Determinism.DETERMINISTIC, []),
    "an exchange without a barrier": (
        EXCHANGE.replace("bar.sync 0;", ""), 2, Determinism.NONDETERMINISTIC, [("race on shared memory", LINE + 2)],
    ),
    "a racing value that is dropped": (
        EXCHANGE.replace("bar.sync 0;", "").replace("add.f32 %f2, %f2, %f1;", "mov.f32 %f2, %f1;"), 2, Determinism.DETERMINISTIC, [],
    ),
    "a racing value in masked bits": (
        "st.shared.u32 [%d9], %r5;\nld.shared.u32 %r6, [%d11];\nand.b32 %r6, %r6, 0;\nst.global.u32 [%d5], %r6;", 2, Determinism.DETERMINISTIC, [],
    ),
    "two racing values that only look equal": (
        "st.shared.u32 [%d9], %r5;\nld.shared.u32 %r6, [%d11];\nld.shared.u32 %r7, [%d11];\nxor.b32 %r6, %r6, %r7;\nst.global.u32 [%d5], %r6;",
        2, Determinism.UNKNOWN, [("race on shared memory", LINE + 1), ("race on shared memory", LINE + 2)],
    ),
    "one racing value with itself": (
        "st.shared.u32 [%d9], %r5;\nld.shared.u32 %r6, [%d11];\nxor.b32 %r6, %r6, %r6;\nst.global.u32 [%d5], %r6;", 2, Determinism.UNKNOWN,
        [("race on shared memory", LINE + 1)],
    ),
    "a later write that races with a read": (
        EXCHANGE + "\nst.shared.f32 [%d9], %f2;\nld.shared.f32 %f3, [%d9];\nst.global.f32 [%d5], %f3;", 1, Determinism.NONDETERMINISTIC,
        [("race on shared memory", LINE + 5)],
    ),
    "replicas that write equal values": (
        "st.shared.u32 [%d8], 7;\nbar.sync 0;\nld.shared.u32 %r6, [%d8];\nst.global.u32 [%d5], %r6;", 2, Determinism.DETERMINISTIC, [],
    ),
    "threads that write different values": (
        "st.shared.u32 [%d8], %r1;\nbar.sync 0;\nld.shared.u32 %r6, [%d8];\nst.global.u32 [%d5], %r6;", 1, Determinism.NONDETERMINISTIC,
        [("race on shared memory", LINE)],
    ),
    "lanes of one warp that write different values": (
        "st.shared.f32 [%d8], %f1;\nbar.sync 0;\nld.shared.f32 %f2, [%d8];\nst.global.f32 [%d5], %f2;", 1, Determinism.NONDETERMINISTIC,
        [("race on shared memory", LINE)],
    ),
    "replicas whose values differ for a NaN": (
        "st.shared.f32 [%d9], %f1;\nbar.sync 0;\nld.shared.f32 %f2, [%d11];\n"
        "setp.gt.f32 %p1, %f1, %f2; selp.f32 %f3, %f1, %f2, %p1; and.b32 %r6, %r1, 31; mul.wide.u32 %d6, %r6, 4; add.s64 %d7, %d8, %d6;\n"
        "st.shared.f32 [%d7+512], %f3;\nbar.sync 0;\nld.shared.f32 %f2, [%d7+512];\nst.global.f32 [%d5], %f2;",
        1, Determinism.NONDETERMINISTIC, [("race on shared memory", LINE + 4)],
    ),
    "a float sum with one contributor": ("red.global.add.f32 [%d5], %f1;", 2, Determinism.DETERMINISTIC, []),
    "a float sum of two blocks": (
        "red.global.add.f32 [%d7], %f1;", 2, Determinism.NONDETERMINISTIC, [("float atomics with several contributors", LINE)],
    ),
    "nine float sums whose old values are not used": (
        "\n".join(f"atom.global.add.f32 %f3, [%d7+{512 * place}], %f1;" for place in range(9)), 2, Determinism.NONDETERMINISTIC,
        [("float atomics with several contributors", LINE)],
    ),
    "a float sum of equal contributions": ("red.global.add.f32 [%d7], 0f3F800000;", 2, Determinism.DETERMINISTIC, []),
    "an integer sum": ("red.global.add.u32 [%d7], %r5;", 2, Determinism.DETERMINISTIC, []),
    "an integer sum whose old value is not used": ("atom.global.add.u32 %r6, [%d7], %r5;", 2, Determinism.DETERMINISTIC, []),
    "an old value that is stored": (
        "atom.global.add.u32 %r6, [%d1+4096], 1;\nst.global.u32 [%d5], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "two old values of one instruction that are combined": (
        "mov.u32 %r8, 0; mov.u32 %r9, 0;\nL: atom.global.add.u32 %r6, [%d1+4096], 1;\nxor.b32 %r9, %r9, %r6; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2; @%p1 bra L;\n"
        "st.global.u32 [%d5], %r9;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE + 1)],
    ),
    "a loop that waits for an old value": (
        "L: atom.global.or.b32 %r6, [%d1+4096], 1;\nsetp.ne.u32 %p1, %r6, 0; @%p1 bra L;\nst.global.u32 [%d5], %r1;", 2, Determinism.UNKNOWN, [("order of arrival", LINE)],
    ),
    "a lock": ("L: atom.global.cas.b32 %r6, [%d1+4096], 0, 1;\nsetp.ne.u32 %p1, %r6, 0; @%p1 bra L;\nst.global.u32 [%d5], %r1;", 2, Determinism.UNKNOWN, [("order of arrival", LINE)]),
    "a sum under a lock": (SUM_UNDER_LOCK, 4, Determinism.NONDETERMINISTIC, [("order of arrival", LINE + 1)]),
    "a sum under the lock of each block": (SUM_UNDER_LOCK.replace("mul.wide.u32 %d6, 0, 4", "mul.wide.u32 %d6, %r2, 4"), 4, Determinism.UNKNOWN, [("order of arrival", LINE + 1)]),
    "an exchange of an own element": ("atom.global.exch.b32 %r6, [%d5], %r5;\nst.global.u32 [%d4], %r6;", 2, Determinism.DETERMINISTIC, []),
    "updates of an own element": (
        "atom.global.exch.b32 %r6, [%d5], 3; atom.global.inc.u32 %r7, [%d5], 9; atom.global.cas.b32 %r8, [%d5], 4, %r5; atom.global.dec.u32 %r9, [%d5], 9;\n"
        "xor.b32 %r6, %r6, %r7; xor.b32 %r6, %r6, %r8; xor.b32 %r6, %r6, %r9; st.global.u32 [%d4], %r6;", 2, Determinism.DETERMINISTIC, [],
    ),
    "an exchange in memory after a barrier": (
        "atom.global.exch.b32 %r6, [%d5], %r5;\nbar.sync 0;\nmad.lo.u32 %r7, %r2, 64, %r4; mul.wide.u32 %d6, %r7, 4; add.s64 %d7, %d2, %d6;\n"
        "atom.global.exch.b32 %r6, [%d7], %r6;\nst.global.u32 [%d4], %r6;", 2, Determinism.DETERMINISTIC, [],
    ),
    "an exchange in memory without a barrier": (
        "atom.global.exch.b32 %r6, [%d5], %r5;\nmad.lo.u32 %r7, %r2, 64, %r4; mul.wide.u32 %d6, %r7, 4; add.s64 %d7, %d2, %d6;\n"
        "atom.global.exch.b32 %r6, [%d7], 7;\nst.global.u32 [%d4], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "exchanges by two blocks": (
        "atom.global.exch.b32 %r6, [%d7], 7;\nst.global.u32 [%d4], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "exchanges by all threads": (
        "atom.global.exch.b32 %r6, [%d2+4096], 7;\nst.global.u32 [%d4], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "exchanges that leave one number": ("atom.global.exch.b32 %r6, [%d7], 7;", 2, Determinism.DETERMINISTIC, []),
    "exchanges that leave different numbers": ("atom.global.exch.b32 %r6, [%d7], %r5;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)]),
    "an exchange and a store of one number": ("atom.global.exch.b32 %r6, [%d7], 7;\nst.global.u32 [%d7], 7;", 2, Determinism.DETERMINISTIC, []),
    "an exchange and a store of another number": (
        "atom.global.exch.b32 %r6, [%d7], 7;\nst.global.u32 [%d7], 8;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "a ticket of a comparison and exchange": (
        "atom.global.cas.b32 %r6, [%d2+4096], 0, 1;\nst.global.u32 [%d4], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "an exchanged element that is read": (
        "atom.global.exch.b32 %r6, [%d7], %r1;\nld.global.u32 %r6, [%d7];\nst.global.u32 [%d4], %r6;", 2, Determinism.DETERMINISTIC, [],
    ),
    "an element that a block reads and another exchanges": (
        "ld.global.u32 %r6, [%d7];\natom.global.exch.b32 %r7, [%d5], %r1;\nst.global.u32 [%d4], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)],
    ),
    "a counter that wraps": ("atom.global.inc.u32 %r6, [%d2+4096], 127;\nst.global.u32 [%d4], %r6;", 2, Determinism.NONDETERMINISTIC, [("order of arrival", LINE)]),
    "a flag of another block": (
        "xor.b32 %r6, %r2, 1; mul.wide.u32 %d6, %r6, 4; add.s64 %d7, %d2, %d6;\nL: ld.acquire.gpu.global.u32 %r7, [%d7+4096];\nsetp.eq.u32 %p1, %r7, 0; @%p1 bra L;\n"
        "st.global.u32 [%d5], %r7;\nmul.wide.u32 %d6, %r2, 4; add.s64 %d7, %d2, %d6; st.release.gpu.global.u32 [%d7+4096], 1;",
        2, Determinism.UNKNOWN, [("read after another block's write", LINE + 1)],
    ),
    "a counter that is reset": (
        "red.global.add.u32 [%d7], 1;\nst.global.u32 [%d7], 0;", 2, Determinism.UNKNOWN, [("order of arrival", LINE)],
    ),
    "rows in place": ("add.f32 %f2, %f1, %f1;\nst.global.f32 [%d4], %f2;", 2, Determinism.DETERMINISTIC, []),
    "a twin that reads what a thread stores, and drops it": (
        "and.b32 %r6, %r1, 31; mul.wide.u32 %d6, %r6, 4; add.s64 %d7, %d2, %d6;\nld.global.f32 %f2, [%d7];\nadd.f32 %f2, %f2, %f1;\n"
        "setp.lt.u32 %p1, %r1, 32;\n@%p1 st.global.f32 [%d7], %f2;", 1, Determinism.DETERMINISTIC, [],
    ),
    "a twin that stores as well": (
        "and.b32 %r6, %r1, 31; mul.wide.u32 %d6, %r6, 4; add.s64 %d7, %d2, %d6;\nld.global.f32 %f2, [%d7];\nadd.f32 %f2, %f2, %f2;\n"
        "st.global.f32 [%d7], %f2;", 1, Determinism.NONDETERMINISTIC, [("race on global memory", LINE + 1)],
    ),
    "a block that reads what another writes": (
        "st.global.f32 [%d5], %f1;\nxor.b32 %r6, %r3, 64; mul.wide.u32 %d6, %r6, 4; add.s64 %d7, %d2, %d6;\nld.global.f32 %f2, [%d7];\nst.global.f32 [%d5+1024], %f2;",
        2, Determinism.NONDETERMINISTIC, [("read after another block's write", LINE + 2)],
    ),
    "two threads that store different loads": (
        "st.global.f32 [%d2], %f1;", 1, Determinism.NONDETERMINISTIC, [("race on global memory", LINE)],
    ),
    "an undefined register": ("@%p1 bra S; S: add.f32 %f2, %f3, %f1;\nst.global.f32 [%d5], %f2;".replace("@%p1 bra S; S: ", ""), 1, Determinism.UNKNOWN, [("undefined register or memory", LINE + 1)]),
}  # fmt: skip


THREADS = {"a loop that waits for an old value": 6, "a lock": 6, "lanes of one warp that write different values": 32}
"""The threads of a block, 64 elsewhere.  Few poll one element: a run in turns takes the square of their number."""


ASSUME = {"lanes of one warp that write different values": ("any-lane",)}
"""The assumptions of a case."""


@pytest.mark.parametrize("name", CASES)
def test_kernels_by_name(name: str) -> None:
    body, blocks, outcome, places = CASES[name]
    threads = THREADS.get(name, 64)
    kernel, launch = text(body, threads), entry(blocks, threads=threads)
    assume = ASSUME.get(name, ())
    report = bitwise_core.determinism([kernel], launch, workers=1, cache=False, audit_contraction=False, assume=assume)
    found = report.kernels[0]
    assert (found.outcome, sorted((each.kind, each.line) for each in found.places)) == (outcome, sorted(places)), found
    if outcome is not Determinism.DETERMINISTIC:
        assert all(each.source == "kernel.py:7" for each in found.places)
        same = bitwise_core.compare(
            kernel, kernel, launch, search_seconds=0, audit_contraction=False, assume=assume
        )  # fmt: skip
        assert same.outcome is Outcome.UNKNOWN
    if assume:
        default = bitwise_core.determinism([kernel], launch, workers=1, cache=False, audit_contraction=False)
        assert default.kernels[0].outcome is Determinism.DETERMINISTIC


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts: dict[str, str | bytes] = {
        "good.ptx": text(EXCHANGE),
        "race.ptx": text(EXCHANGE.replace("bar.sync 0;", "")),
        "unknown.ptx": text(CASES["one racing value with itself"][0]),
    }
    return write(tmp_path, texts, [{"file": name, **entry()} for name in texts])


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["determinism", *arguments, "--workers", "1"], env={"COLUMNS": "200"})
    # On a busy machine, readings take long enough for a line on their progress.
    assert re.sub(r"(?m)^analysing kernels: \d+ of \d+\n", "", done.stderr) == ""
    return done.exit_code, done.stdout


def test_the_command_prints_json(folder: Path) -> None:
    status, printed = invoke(str(folder), "--json")
    found = json.loads(printed)
    assert status == 1
    assert [(each["name"], each["outcome"]) for each in found["kernels"]] == [
        ("good.ptx", "deterministic"), ("race.ptx", "nondeterministic"), ("unknown.ptx", "unknown"),
    ]  # fmt: skip
    place = found["kernels"][1]["places"][0]
    assert (place["kind"], place["line"], place["source"]) == ("race on shared memory", LINE + 2, "kernel.py:7")
    assert (found["scope"], found["target"]) == ("launch", "sm_90")


@pytest.mark.parametrize(
    "reason",
    ["{effect} at line 9: {cause} at line 4; {run}", "{effect} at line 9: {cause} at line 4, with line 5; {run}"],
)
def test_a_cause_is_printed_once(reason: str) -> None:
    effect, cause, run = (
        "a stored value depends on the order",
        "a thread reads (a race)",
        "two orders leave different bytes",
    )
    place = Place("race", cause, 4, "kernel.py:7")
    found = KernelDeterminism(
        "k", Determinism.NONDETERMINISTIC, reason.format(effect=effect, cause=cause, run=run), (place,)
    )
    assert found.lines() == (f"{effect} at line 9; {run}", str(place))
    alone = KernelDeterminism("k", Determinism.UNKNOWN, f"{cause} at line 4", (place,))
    assert alone.lines() == (str(place),)
    assert replace(alone, places=()).lines() == (alone.reason,)


def test_the_results_are_recalled(folder: Path) -> None:
    first = json.loads(invoke(str(folder), "--json")[1])["kernels"]
    assert json.loads(invoke(str(folder), "--json")[1])["kernels"] == first
    assert json.loads(invoke(str(folder), "--json", "--no-cache")[1])["kernels"] == first


@pytest.mark.parametrize(
    ("names", "status"), [(["good.ptx"], 0), (["good.ptx", "unknown.ptx"], 3), (["unknown.ptx", "race.ptx"], 1)]
)
def test_exit_statuses(folder: Path, names: list[str], status: int) -> None:
    found, printed = invoke(*(str(folder / name) for name in names))
    assert found == status
    assert all(name in printed for name in names)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["determinism", str(tmp_path / "none.ptx")])
    assert done.exit_code == 2
    assert "none.ptx" in done.stderr


def test_partition_names_the_same_cause(folder: Path) -> None:
    report = assert_type(bitwise_core.determinism(folder, workers=1), DeterminismReport)
    classes = bitwise_core.partition(folder, workers=1)
    assert report["race.ptx"].reason.startswith(classes.unknown["race.ptx"])
    assert "the kernel's own result is not determined" in classes.unknown["race.ptx"]


def test_two_kernels_without_determined_results_are_two_classes(tmp_path: Path) -> None:
    race = text(EXCHANGE.replace("bar.sync 0;", ""))
    names = ["a.ptx", "b.ptx"]
    folder = write(tmp_path, dict.fromkeys(names, race), [{"file": name, **entry()} for name in names])
    found = bitwise_core.partition(folder, workers=1)
    assert found.classes == (("a.ptx",), ("b.ptx",))
    assert set(found.unknown) == set(names)


def test_every_launch(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {"a.ptx": row_sum(), "b.ptx": text(EXCHANGE.replace("bar.sync 0;", ""))},
        [row_launch("a.ptx"), {"file": "b.ptx", **entry()}],
    )
    found = bitwise_core.determinism(folder, workers=1, every_launch=True)
    assert found.scope == "every launch"
    assert found["a.ptx"].outcome is Determinism.DETERMINISTIC
    assert found["b.ptx"].outcome is not Determinism.DETERMINISTIC


def test_errors_are_sentences() -> None:
    with pytest.raises(BitwiseError, match="the sequence is empty"):
        bitwise_core.determinism([])
