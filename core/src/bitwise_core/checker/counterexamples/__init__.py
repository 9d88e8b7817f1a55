"""The search for a counterexample: an input on which two kernels, both executed, return different bytes."""

from __future__ import annotations

from bitwise_core.checker.counterexamples.kernel_pair import NotFound
from bitwise_core.checker.counterexamples.search import find_counterexample, search_verdict

__all__ = ["NotFound", "find_counterexample", "search_verdict"]
