"""Readings in several threads at once: what each makes is what it makes alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from bitwise_core.checker.analysis import Options, Session, prepare
from bitwise_core.checker.comparison import find_element, session_of, trace_element
from bitwise_core.checker.expression_trees import build_tree
from bitwise_core.ir.text import render
from bitwise_nvidia_sm90.plugin import SM90
from bitwise_toy.plugin import TOY1
from test_across_architectures import PTX, ROUNDED, TOY, pair

TIMES = 25
OPTIONS = Options(audit_contraction=False)


def across() -> list[bytes | None]:
    """The signatures of two kernels that are compared across architectures: one stores what may be a NaN's bits."""
    sources = pair(TOY, PTX, "i32")
    session = Session({"x": 1, "y": 2, "z": 3}, Options(audit_contraction=False, cross_architecture=True))
    return [session.analyse(source, arch).signature for source, arch in zip(sources, (TOY1, SM90), strict=True)]


def within() -> object:
    """The signature of one of them among kernels of its own architecture."""
    return Session({"x": 1, "y": 2, "z": 3}, OPTIONS).analyse(pair(TOY, PTX, "i32")[1], SM90).signature


def recorded() -> object:
    """The tree of an element, whose provenance is recorded."""
    source = pair(TOY, ROUNDED)[1]
    session, prepared = session_of((source,), OPTIONS), prepare(source, SM90, OPTIONS)
    element = find_element(source, prepared, session, session.buffers["z"], 3)
    assert not isinstance(element, str)
    found, scalar, line = trace_element(prepared, session, element.address, element.size, element.threads[0] or 0)
    return len(found.recorded), line, render(build_tree(found, scalar).root)


def summarised() -> object:
    """The block classes of a grid."""
    source = pair(TOY, PTX)[1]
    session = session_of((source,), OPTIONS)
    found = session.summary(source, SM90)
    return [each.blocks.tolist() for each in found.classes], sorted(found.owners)


def test_what_threads_read_at_once_is_what_they_read_alone() -> None:
    readers: list[Callable[[], object]] = [across, recorded, within, summarised]
    alone = [reader() for reader in readers]
    barrier = Barrier(len(readers))

    def repeated(reader: Callable[[], object]) -> list[object]:
        found = []
        for _ in range(TIMES):
            barrier.wait()
            found.append(reader())
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(readers)) as pool:
            together = list(pool.map(repeated, readers))
    finally:
        sys.setswitchinterval(interval)
    assert together == [[each] * TIMES for each in alone]
    first, second = across()
    assert first != second
