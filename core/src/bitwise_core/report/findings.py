"""Findings about the kernels of a partition, and their forms for other programs: SARIF 2.1.0 and JUnit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal
from urllib.parse import quote

from bitwise_core.checker.partition import Partition
from bitwise_core.visible_text import visible

Level = Literal["error", "warning", "note"]

RULES = {
    "unknown": "A kernel cannot be analysed, so that nothing is proved of it.",
    "other-class": "A kernel is not proved to return the bits of the first kernel.",
    "class-split": "Kernels of one expected class are not proved to return the same bits.",
    "class-merged": "Kernels of two expected classes are proved to return the same bits.",
    "missing-kernel": "A kernel of an expected class is missing.",
    "unexpected-kernel": "A kernel is in no expected class.",
    "scope": "Proofs hold for fewer launches than expected.",
}
"""What each kind of finding means."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about a kernel ("": about all): its rule, its level, and a sentence without a full stop."""

    kernel: str
    rule: str
    level: Level
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", visible(" ".join(self.message.splitlines())))


def findings(found: Partition) -> tuple[Finding, ...]:
    """Return what a partition says of its kernels: which are Unknown, and which are in another class than the first."""
    known = [names for names in found.classes if names[0] not in found.unknown]
    result = [Finding(name, "unknown", "warning", f"{name}: {reason}") for name, reason in found.unknown.items()]
    for number, names in enumerate(known[1:], 2):
        for name in names:
            words = f"{name} is in class {number}: it is not proved to return the bits of {known[0][0]}"
            result.append(Finding(name, "other-class", "note", words))
    return tuple(result)


def sarif(found: Iterable[Finding], folder: str) -> str:
    """Return findings as a SARIF log; `folder` is the folder of the kernels, as its artifacts are named."""
    listed = tuple(found)
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()]
    tool = {"name": "bitwise", "version": version("bitwise-core"), "rules": rules}
    results = [
        {
            "ruleId": each.rule,
            "ruleIndex": list(RULES).index(each.rule),
            "level": each.level,
            "message": {"text": f"{each.message}."},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(folder, each.kernel)}}}],
        }
        for each in listed
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": tool}, "results": results}],
    }
    return json.dumps(log, indent=1) + "\n"


def _uri(folder: str, kernel: str) -> str:
    file = kernel.partition("#")[0]
    return quote(f"{folder.rstrip('/')}/{file}" if file else folder)


def junit(found: Iterable[Finding], kernels: Sequence[str], suite: str) -> str:
    """Return findings as a JUnit report with a test case for each kernel: errors fail it, warnings skip it."""
    from xml.etree import ElementTree

    listed = tuple(found)
    names = [*kernels, *dict.fromkeys(each.kernel for each in listed if each.kernel not in kernels)]
    cases = []
    for name in names:
        case = ElementTree.Element("testcase", classname=suite, name=name or suite)
        own = [each for each in listed if each.kernel == name]
        for level, tag in (("error", "failure"), ("warning", "skipped")):
            messages = [each for each in own if each.level == level]
            if messages:
                text = "\n".join(each.message for each in messages)
                ElementTree.SubElement(case, tag, message=messages[0].message, type=messages[0].rule).text = text
                break
        cases.append(case)
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    root = ElementTree.Element("testsuites", counts)
    ElementTree.SubElement(root, "testsuite", {"name": suite, **counts}).extend(cases)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
