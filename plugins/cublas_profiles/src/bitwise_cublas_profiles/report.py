"""Audit findings as text and as JSON counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitwise_cublas_profiles.audit import Finding
from bitwise_cublas_profiles.query import Configuration


def one_line(configuration: Configuration) -> str:
    """A configuration on one line. Attributes that are 0 are omitted."""
    return " ".join(f"{name}={value}" for name, value in configuration.record().items() if value or name == "algorithm")


def finding_line(finding: Finding) -> str:
    """One finding on one line."""
    query = finding.query.description
    if finding.dropped_k is None or finding.result is None:
        return f"{query}: no result: {finding.error}"
    text = (
        f"{query}: {finding.dropped_k.verdict} ({finding.dropped_k.reason}); {one_line(finding.result.configuration)}"
    )
    if finding.counted is None:
        return f"{text}; not run: {finding.error}" if finding.error else text
    agreed = {True: "as predicted", False: "NOT as predicted", None: "no prediction"}[finding.confirmed]
    return f"{text}; ones returned {finding.counted} of {finding.query.k}, {agreed}"


def summary(findings: Sequence[Finding]) -> dict[str, int]:
    """Counts of shapes by prediction and by the outcome of the run on ones."""
    dropped = [None if each.dropped_k is None else each.dropped_k.count for each in findings]
    return {
        "shapes": len(findings),
        "drop values": sum(1 for each in dropped if each),
        "complete": sum(1 for each in dropped if each == 0),
        "unknown": sum(1 for each, found in zip(dropped, findings, strict=True) if each is None and found.dropped_k),
        "no result": sum(1 for each in findings if each.dropped_k is None),
        "run on ones": sum(1 for each in findings if each.counted is not None),
        "could not be run": sum(1 for each in findings if each.dropped_k is not None and each.error is not None),
        "not as predicted": sum(1 for each in findings if each.confirmed is False),
    }


def summary_lines(findings: Sequence[Finding]) -> Iterable[str]:
    """The summary as sentences."""
    counted = summary(findings)
    yield (
        f"{counted['shapes']} shapes: {counted['drop values']} drop values, {counted['complete']} are complete, "
        f"{counted['unknown']} are unknown, {counted['no result']} have no heuristic result"
    )
    if counted["run on ones"]:
        yield f"{counted['run on ones']} were run on ones; {counted['not as predicted']} differ from the prediction"
    if counted["could not be run"]:
        yield f"{counted['could not be run']} could not be run on ones"
