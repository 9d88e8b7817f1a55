"""Findings in words, for people and for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitwise_cublas_profiles.audit import Finding
from bitwise_cublas_profiles.question import Configuration


def in_short(configuration: Configuration) -> str:
    """A configuration on one line; attributes that are 0 are left out."""
    return " ".join(f"{name}={value}" for name, value in configuration.record().items() if value or name == "algorithm")


def line(finding: Finding) -> str:
    """One finding on one line."""
    asked = finding.asked.words
    if finding.tail is None or finding.answer is None:
        return f"{asked}: no answer: {finding.error}"
    text = f"{asked}: {finding.tail.verdict} ({finding.tail.reason}); {in_short(finding.answer.configuration)}"
    if finding.counted is None:
        return f"{text}; not run: {finding.error}" if finding.error else text
    agreed = {True: "as judged", False: "NOT as judged", None: "not judged"}[finding.confirmed]
    return f"{text}; ones returned {finding.counted} of {finding.asked.k}, {agreed}"


def summary(findings: Sequence[Finding]) -> dict[str, int]:
    """How many shapes lose values, keep them, are not known, have no answer; and what running them on ones showed."""
    dropped = [None if each.tail is None else each.tail.dropped for each in findings]
    return {
        "shapes": len(findings),
        "lose values": sum(1 for each in dropped if each),
        "whole": sum(1 for each in dropped if each == 0),
        "unknown": sum(1 for each, found in zip(dropped, findings, strict=True) if each is None and found.tail),
        "no answer": sum(1 for each in findings if each.tail is None),
        "run on ones": sum(1 for each in findings if each.counted is not None),
        "could not be run": sum(1 for each in findings if each.tail is not None and each.error is not None),
        "not as judged": sum(1 for each in findings if each.confirmed is False),
    }


def sentences(findings: Sequence[Finding]) -> Iterable[str]:
    """The summary in words."""
    counted = summary(findings)
    yield (
        f"{counted['shapes']} shapes: {counted['lose values']} lose values, {counted['whole']} are whole, "
        f"{counted['unknown']} are not known, {counted['no answer']} have no answer"
    )
    if counted["run on ones"]:
        yield f"{counted['run on ones']} were run on ones; {counted['not as judged']} returned other than judged"
    if counted["could not be run"]:
        yield f"{counted['could not be run']} could not be run on ones"
