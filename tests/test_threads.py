"""Analyses in several threads at once return the same results as alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from bitwise_core.checker.analysis import Session, prepare
from bitwise_core.checker.comparison import find_element, session_of, trace_element
from bitwise_core.checker.sources import Options
from bitwise_core.checker.trees.expression_trees import build_tree
from bitwise_core.ir.text import render
from bitwise_nvidia_sm90.architecture import SM90
from bitwise_toy.architecture import TOY1
from test_across_architectures import PTX, ROUNDED, TOY, pair

TIMES = 25
OPTIONS = Options(audit_contraction=False)


def across() -> list[bytes | None]:
    """Return the signatures of two kernels under cross-architecture comparison; one may store the bits of a NaN."""
    sources = pair(TOY, PTX, "i32")
    session = Session({"x": 1, "y": 2, "z": 3}, Options(audit_contraction=False, cross_architecture=True))
    return [session.analyse(source, arch).signature for source, arch in zip(sources, (TOY1, SM90), strict=True)]


def within() -> object:
    """Return the signature of one of them for comparison within its architecture."""
    return Session({"x": 1, "y": 2, "z": 3}, OPTIONS).analyse(pair(TOY, PTX, "i32")[1], SM90).signature


def traced() -> object:
    """Return the tree of an element from a trace with provenance."""
    source = pair(TOY, ROUNDED)[1]
    session, prepared = session_of((source,), OPTIONS), prepare(source, SM90, OPTIONS)
    element = find_element(source, prepared, session, session.buffers["z"], 3)
    assert not isinstance(element, str)
    found, scalar, line = trace_element(prepared, session, element.address, element.size, element.threads[0] or 0)
    return len(found.recorded), line, render(build_tree(found, scalar).root)


def summarised() -> object:
    """Return the parts of a grid by block symmetry."""
    source = pair(TOY, PTX)[1]
    session = session_of((source,), OPTIONS)
    found = session.summary(source, SM90)
    return [each.blocks.tolist() for each in found.classes], sorted(found.owners)


def test_concurrent_analyses_equal_single_ones() -> None:
    analyses: list[Callable[[], object]] = [across, traced, within, summarised]
    alone = [analysis() for analysis in analyses]
    barrier = Barrier(len(analyses))

    def repeated(analysis: Callable[[], object]) -> list[object]:
        found = []
        for _ in range(TIMES):
            barrier.wait()
            found.append(analysis())
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(analyses)) as pool:
            together = list(pool.map(repeated, analyses))
    finally:
        sys.setswitchinterval(interval)
    assert together == [[each] * TIMES for each in alone]
    first, second = across()
    assert first != second
