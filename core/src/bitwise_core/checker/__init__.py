"""The checker: analyses of kernels, verdicts, equivalence classes, divergences and counterexamples."""

from __future__ import annotations

from bitwise_core.checker.analysis import AnalysisResult, Options, Session, Source
from bitwise_core.checker.comparison import Comparison, compare
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.verdicts import Counterexample, Divergence, Outcome, Verdict

__all__ = [
    "AnalysisResult",
    "Comparison",
    "Counterexample",
    "Divergence",
    "Options",
    "Outcome",
    "Partition",
    "Session",
    "Source",
    "Verdict",
    "compare",
]
