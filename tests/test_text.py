"""The text of the repository: no unfinished work, no paths of one machine, no issue numbers."""

from __future__ import annotations

import re
import subprocess

import pytest

from workspace import ROOT

FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.<*\]$}-])/(?:work|home|root|Users|mnt|workspace)/\w"),
    "a temporary path of one machine": re.compile(r"(?<![\w.])/tmp/\w"),
    "a path outside the repository": re.compile(r"\.\./shared\b|(?:\.\./){4}"),
    "the number of an issue": re.compile(r"\b[Ii]ssues? #?\d|(?<![\w&])#\d{1,4}\b(?!\w)"),
    "something unfinished": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
}
PARTS = (
    "/work/", "/home/", "/root/", "/Users/", "/mnt/", "/workspace/", "/tmp/", "../shared", "../../", "ssue", "#",
    "TO" + "DO", "FIX" + "ME", "X" + "XX",
)  # fmt: skip
"""A text without any of these parts, which are found faster than the patterns, mentions nothing that is forbidden."""


def tracked() -> list[str]:
    """Return the files of the repository; outside a checkout, all files except generated ones."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return [name for name in names if not re.search(r"(?:^|/)(?:\.|__pycache__/|build/|dist/)", name)]


FILES = tracked()
BUNDLED = "core/src/bitwise_core/report/bundled/"
"""Libraries of others, as they are published."""


def test_the_files_are_found() -> None:
    assert {"README.md", "noxfile.py", "tests/test_text.py", "core/src/bitwise_core/plugins/registry.py"} <= set(FILES)


def faults(text: str) -> list[str]:
    """Return a sentence for each forbidden mention in a text, with its line."""
    if not any(part in text for part in PARTS) or not any(pattern.search(text) for pattern in FORBIDDEN.values()):
        return []
    return [
        f"line {number}: {what}: {line.strip()[:80]}"
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]


def test_no_file_mentions_what_is_forbidden() -> None:
    found = {}
    for name in FILES:
        if name == "tests/test_text.py" or name.endswith("LICENSE") or name.startswith(BUNDLED):
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
        if sentences := faults(text):
            found[name] = sentences
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "see /home/me/x",
        "in /work/me/x",
        '.file 1 "/tmp/v/k.py"',
        "../shared/x",
        "issue 12",
        "fixes #7",
        "TO" + "DO later",
    ],
)
def test_a_forbidden_mention_is_found(line: str) -> None:
    assert len(faults(line)) == 1


@pytest.mark.parametrize("line", ["a/home/b", "https://example.org/work/x", "#include", "&#39;", "mov.u32 %r1, 0x1;"])
def test_other_text_is_allowed(line: str) -> None:
    assert faults(line) == []


def captured_in_possessive_groups(text: str) -> list[str]:
    """Return the groups of patterns in a Python file that are repeated possessively and capture a part.

    Python 3.11.0 to 3.11.4 matches them wrongly (gh-101955).
    """
    found = []
    for end in re.finditer(r"\)[?*+]\+", text):
        depth, place = 1, end.start()
        while depth and place:
            place -= 1
            if text[place] in "()" and text[place - 1] != "\\" and text[place + 1] != "]":
                depth += 1 if text[place] == ")" else -1
        if re.search(r"(?<!\\)\((?![?\]])", text[place + 1 : end.start()]) or text[place + 1] != "?":
            found.append(text[place : end.end()])
    return found


def test_no_pattern_is_one_that_some_versions_of_python_match_wrongly() -> None:
    assert captured_in_possessive_groups(r'"(a)?+ (?:b(c))*+ (?:d(?:e))?+ \(?+ (?:f)++"') == ["(a)?+", "(?:b(c))*+"]
    sources = {name: (ROOT / name).read_text() for name in FILES if "/src/" in name and name.endswith(".py")}
    assert {name: found for name, text in sources.items() if (found := captured_in_possessive_groups(text))} == {}
