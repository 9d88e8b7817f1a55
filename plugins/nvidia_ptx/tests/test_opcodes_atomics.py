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
from ptx_programs import ARCH, run, text

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
