"""A given launch is executed only where its addresses do not show that each element is stored once."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from parametric_kernels import SM90, kernel

from bitwise_core.checker import analysis
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.parametric.given_launch import stores_distinct_elements
from bitwise_core.checker.parametric.signature import parametric_signature
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.concrete import prepare_launch, run_blocks
from bitwise_core.execution.launch import Argument, Launch

STORE = """	mul.wide.s32 %rd3, %r4, 4;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.b32 %r6, [%rd4];
	setp.lt.s32 %p1, %r4, %r1;
	{row}
	mad.lo.s32 %r20, %r21, %r2, %r4;
	mul.wide.s32 %rd6, %r20, 4;
	add.s64 %rd7, %rd2, %rd6;
	@%p1 st.global.b32 [%rd7], %r6;
"""
"""Each block stores n elements of a row; the rows are at a distance of m elements."""
ROW = "mov.b32 %r21, %r3;"


def launch(blocks: int, n: int, m: int, names: tuple[str, str] = ("a", "b")) -> Launch:
    buffers = (Argument(kind="buffer", buffer=name) for name in names)
    arguments = (*buffers, Argument(kind="i32", value=n), Argument(kind="i32", value=m))
    return Launch(file="kernel.ptx", grid=(blocks, 1, 1), args=arguments)


def is_distinct(text: str, given: Launch) -> bool:
    module = SM90.parse(text, "kernel.ptx")
    run = parametric_signature(module, module.kernel(None), SM90).run
    return stores_distinct_elements(run, prepare_launch(module, SM90, given), {"a": 1, "b": 2})


@pytest.mark.parametrize("row", [lambda block: block, lambda block: 3 * block + 1])
def test_elements_are_distinct_exactly_if_their_addresses_are(row: object) -> None:
    assert callable(row)
    text = kernel(STORE.format(row=ROW if row(1) == 1 else "mad.lo.s32 %r21, %r3, 3, 1;"))
    module = SM90.parse(text, "kernel.ptx")
    run = parametric_signature(module, module.kernel(None), SM90).run
    for blocks, n, m in product((1, 2, 5), (0, 1, 4, 128, 200), (1, 2, 3, 4, 7, 128)):
        prepared = prepare_launch(module, SM90, launch(blocks, n, m))
        places = [row(block) * m + thread for block in range(blocks) for thread in range(min(n, 128))]
        found = stores_distinct_elements(run, prepared, {"a": 1, "b": 2})
        assert found == (len(set(places)) == len(places)), (blocks, n, m)


def test_a_buffer_that_is_read_and_written_through_two_pointers_is_not_accepted() -> None:
    text = kernel(STORE.format(row=ROW))
    assert is_distinct(text, launch(2, 4, 4))
    assert not is_distinct(text, launch(2, 4, 4, ("a", "a")))


def test_threads_that_store_equal_elements_count_once() -> None:
    """Every thread stores the same number in the first element of the row."""
    same = (
        STORE.replace("%rd4, %rd1, %rd3", "%rd4, %rd1, 0")
        .replace("%r21, %r2, %r4", "%r21, %r2, 0")
        .replace("@%p1 st", "st")
    )
    text = kernel(same.format(row=ROW))
    assert is_distinct(text, launch(3, 4, 4))
    assert not is_distinct(text, launch(3, 4, 0))


def test_a_negative_stride_is_not_decided() -> None:
    assert not is_distinct(kernel(STORE.format(row=ROW)), launch(2, 4, -4))


@pytest.mark.parametrize(("m", "executed", "unknown"), [(4, False, False), (3, True, True)])
def test_a_launch_is_executed_only_where_it_is_not_decided(
    m: int, executed: bool, unknown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def counted(*arguments: Any, **options: Any) -> Any:
        runs.append(arguments)
        return run_blocks(*arguments, **options)

    monkeypatch.setattr(analysis, "run_blocks", counted)
    source = Source("kernel.ptx", kernel(STORE.format(row=ROW)), launch(3, 4, m))
    found = analyse(source, SM90, {"a": 1, "b": 2}, Options(every_launch=True, audit_contraction=False))
    assert (bool(runs), found.unknown is not None) == (executed, unknown)
