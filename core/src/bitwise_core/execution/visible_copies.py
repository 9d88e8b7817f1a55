"""Where asynchronous reads of shared memory see what threads have copied to it, also without a proxy fence."""

from __future__ import annotations

from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import PROXIES_APART, PROXIES_TOGETHER
from bitwise_core.execution.races.proxy_fences import VisibleCopies


def visible_copies(arch: Arch, assume: frozenset[str], used: set[str]) -> VisibleCopies | None:
    """Return that copies are visible, under these assumptions; None where they need a fence.

    `used` collects the note of the architecture where a result rests on it.
    """
    if PROXIES_TOGETHER in assume:
        return VisibleCopies("", used)
    if PROXIES_APART in assume or arch.copies_visible is None:
        return None
    return VisibleCopies(arch.copies_visible, used)
