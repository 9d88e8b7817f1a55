"""Expected classes: what differs is an error, and SARIF and JUnit say the same as the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from bitwise_core.checker.partition import Partition
from bitwise_core.cli import app
from bitwise_core.errors import InputError
from bitwise_core.report.expected_classes import ExpectedClasses
from bitwise_core.report.findings import RULES, Finding, findings, junit, sarif

TOYS = Path(__file__).parents[2] / "examples/toy_arch/tests/samples/toy1/row_sum"


def partition(*classes: tuple[str, ...], unknown: dict[str, str] | None = None, scope: str = "launch") -> Partition:
    return Partition(classes, unknown or {}, scope, 0.0, ())


EXPECTED = ExpectedClasses((("a", "b"), ("c",)), "launch")


@pytest.mark.parametrize(
    ("found", "differences"),
    [
        (partition(("a", "b"), ("c",)), []),
        (partition(("c",), ("b", "a")), []),
        (partition(("a", "b"), ("c",), scope="every launch"), []),
        (partition(("a",), ("b",), ("c",)), [("b", "class-split", "error")]),
        (partition(("a", "c"), ("b",)), [("b", "class-split", "error"), ("c", "class-merged", "note")]),
        (partition(("a", "b", "c")), [("c", "class-merged", "note")]),
        (partition(("a",), ("c",)), [("b", "missing-kernel", "error")]),
        (partition(("a", "b"), ("c",), ("d",)), [("d", "unexpected-kernel", "error")]),
        (partition(("a",), ("b",), ("c",), unknown={"b": "no"}), [("b", "class-split", "error")]),
    ],
)
def test_what_differs(found: Partition, differences: list[tuple[str, str, str]]) -> None:
    got = list(EXPECTED.differences(found))
    assert [(each.kernel, each.rule, each.level) for each in got] == differences
    assert {each.rule for each in got} <= set(RULES)


def test_a_narrower_scope_is_an_error() -> None:
    wide = ExpectedClasses((("a",),), "every launch")
    assert [each.rule for each in wide.differences(partition(("a",)))] == ["scope"]


@pytest.mark.parametrize(
    "content",
    [
        [], {}, {"schema": 1, "scope": "launch"}, {"schema": 2, "scope": "launch", "classes": []},
        {"schema": True, "scope": "launch", "classes": []}, {"schema": 1, "scope": "some", "classes": []},
        {"schema": 1, "scope": "launch", "classes": [[]]}, {"schema": 1, "scope": "launch", "classes": [["a", "a"]]},
        {"schema": 1, "scope": "launch", "classes": [[1]]}, {"schema": 1, "scope": "launch", "classes": [["\x1b"]]},
        {"schema": 1, "scope": "launch", "classes": [], "self": 1},
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "classes.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="is no file of expected classes"):
        ExpectedClasses.read(path)
    EXPECTED.write(path)
    assert ExpectedClasses.read(path) == EXPECTED


def test_findings_as_sarif_and_junit() -> None:
    found = findings(partition(("a", "b"), ("c#2",), ("d",), unknown={"d": "an \x1b instruction\nis unknown"}))
    assert [(each.kernel, each.rule, each.level) for each in found] == [
        ("d", "unknown", "warning"), ("c#2", "other-class", "note"),
    ]  # fmt: skip
    log = json.loads(sarif(found, "my kernels/"))
    assert log["version"] == "2.1.0"
    results = log["runs"][0]["results"]
    assert [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results] == [
        "my%20kernels/d", "my%20kernels/c",
    ]  # fmt: skip
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[each["ruleIndex"]]["id"] == each["ruleId"] for each in results)
    assert results[0]["message"]["text"] == "d: an \\x1b instruction is unknown."
    errors = (Finding("a", "class-split", "error", "a differs"), Finding("e", "missing-kernel", "error", "e < there"))
    root = ElementTree.fromstring(junit((*found, *errors), ["a", "b", "c#2", "d"], "folder"))
    assert root.attrib == {"tests": "5", "failures": "2", "errors": "0", "skipped": "1"}
    cases = {case.get("name"): [each.tag for each in case] for case in root.iter("testcase")}
    assert cases == {"a": ["failure"], "b": [], "c#2": [], "d": ["skipped"], "e": ["failure"]}


def test_the_command_compares_with_the_file(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_toy", reason="needs the example plugin")
    expected, log, report = (str(tmp_path / name) for name in ("classes.json", "found.sarif", "tests.xml"))
    base = ["partition", str(TOYS), "--expected", expected]
    missing = CliRunner().invoke(app, base)
    assert missing.exit_code == 2
    assert missing.stderr.endswith("cannot be read (No such file or directory); --update-expected writes it\n")
    assert CliRunner().invoke(app, [*base, "--update-expected"]).exit_code == 0
    same = CliRunner().invoke(app, [*base, "--sarif", log, "--junit", report])
    assert (same.exit_code, same.stdout.endswith("the classes are the expected ones\n")) == (0, True)
    assert json.loads(Path(log).read_text())["runs"][0]["results"] == []
    assert ElementTree.parse(report).getroot().attrib["failures"] == "0"
    ExpectedClasses((("butterfly.toy", "halves_first.toy"), ("renamed.toy",)), "launch").write(Path(expected))
    other = CliRunner().invoke(app, [*base, "--sarif", log, "--junit", report, "--json"])
    assert other.exit_code == 1
    assert [each["rule"] for each in json.loads(other.stdout)["unexpected"]] == ["class-split", "class-merged"]
    assert len(json.loads(Path(log).read_text())["runs"][0]["results"]) == 2
    assert ElementTree.parse(report).getroot().attrib["failures"] == "1"
    alone = CliRunner().invoke(app, ["partition", str(TOYS), "--update-expected"])
    assert (alone.exit_code, alone.stderr) == (
        2, "bitwise: --update-expected: name the file of the expected classes with --expected\n",
    )  # fmt: skip
