"""Grids too large to be run whole: what was proved of them stays at hand while a process compares them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import cache, partial

from bitwise_core.engine.block_symmetry import Summary, check, summarise
from bitwise_core.engine.concrete import Ready
from bitwise_core.machine.terms import TermDomain

KEPT = 6
"""So many summaries a process keeps."""

NOTE = "large grids are decided on few blocks, which the others are proved to be translations of"

_kept: OrderedDict[Hashable, Summary] = OrderedDict()


@cache
def terms_under(assume: frozenset[str]) -> Callable[[], TermDomain]:
    """What makes a domain of terms under those assumptions; the same callable each time, for it names the domain."""
    return partial(TermDomain, assume)


def summary_of(
    key: Hashable, ready: Callable[[], Ready], buffers: Mapping[str, int], assume: frozenset[str]
) -> Summary:
    """The summary of a kernel's grid, checked, from the last ones or made anew.

    Raises NotSymmetric where the proof fails, Unreadable or Undetermined where the kernel has no result of its own.
    """
    full = (key, tuple(sorted(buffers.items())), assume)
    if full in _kept:
        _kept.move_to_end(full)
        return _kept[full]
    found = summarise(ready(), buffers)
    check(found, terms_under(assume))
    _kept[full] = found
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return found
