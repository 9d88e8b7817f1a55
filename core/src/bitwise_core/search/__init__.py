"""A search for a counterexample: an input on which two kernels return different bytes, on which both are run."""

from __future__ import annotations

from bitwise_core.search.distinguish import find_counterexample, search_verdict
from bitwise_core.search.pair import NotFound

__all__ = ["NotFound", "find_counterexample", "search_verdict"]
