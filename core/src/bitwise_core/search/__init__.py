"""A search for an input on which two kernels return different bytes: both are run on it, so that it is a proof."""

from __future__ import annotations

from bitwise_core.search.distinguish import distinguish
from bitwise_core.search.pair import Distinction, NotFound

__all__ = ["Distinction", "NotFound", "distinguish"]
