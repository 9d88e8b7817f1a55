"""The root documents list what exists: hooks, distributions, sessions, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import bitwise_amd_gfx942.rules
import bitwise_core.ir.rules.stated
from bitwise_bench.documentation.page_links import OUTSIDE, linked_paths, rewritten
from bitwise_core.ir.rules.rule import Execution
from bitwise_core.plugins import hookspecs
from workspace import ROOT, distributions


def test_every_hook_is_documented() -> None:
    documented = re.findall(r"^\| `(bitwise_\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert documented == [name for name in vars(hookspecs) if name.startswith("bitwise_")]


def test_every_distribution_is_documented() -> None:
    page = (ROOT / "docs" / "guides" / "install.md").read_text()
    documented = re.findall(r"^\| `(bitwise-[\w-]+)` \| `([\w/]+)/`", page, re.MULTILINE)
    assert sorted(documented) == sorted((found.name, str(found.folder.relative_to(ROOT))) for found in distributions())


def test_the_lines_of_a_sibling_are_counted() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().split("<!-- sibling-lines -->")[1].split("<!-- end -->")[0]
    rows = re.findall(r"^\|[^|]*\| `([\w/.]+)`( \(tables\))? \| (\d+) \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n") - 3
    assert {name: int(lines) for name, _, lines in rows} == {
        name: len((ROOT / name).read_text().splitlines()) for name, _, _ in rows
    }
    assert sum(int(lines) for _, is_table, lines in rows if not is_table) < 400


@pytest.mark.parametrize("example", ["opcode", "rule"])
def test_an_example_is_in_the_code(example: str) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    shown = re.search(rf"<!-- {example}-diff -->\n```diff\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    _, *files = re.split(r"^--- (.*)\n", shown[1], flags=re.MULTILINE)
    for name, lines in zip(files[::2], files[1::2], strict=True):
        added = "".join(line.removeprefix("+") for line in lines.splitlines(keepends=True))
        assert added in (ROOT / name).read_text(), name


def test_every_session_is_documented() -> None:
    sessions = set(re.findall(r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE))
    commands = re.findall(
        r"^\| `\.venv/bin/nox(?: -s)? ?([^`]*)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    named = {name.replace("-", "_") for command in commands for name in command.split()}
    # `tests` is the default session, and `build` is part of `install`.
    assert sessions - named == {"tests", "build"}
    assert named - sessions == set()


def test_every_rule_without_a_proof_is_documented() -> None:
    section = (ROOT / "SOUNDNESS.md").read_text().split("## The canonical rules")[1].split("## Assumptions")[0]
    stated = (*bitwise_core.ir.rules.stated.STATED_RULES, *bitwise_amd_gfx942.rules.STATED_RULES)
    measured = {rule.name for rule in stated if rule.evidence == "measured"}
    assert measured == {rule.name for rule in stated if f"`{rule.name}`" in section}
    assert f"{['No', 'One', 'Two', 'Three', 'Four', 'Five'][len(measured)]} rules are not proved" in section


def test_every_way_to_apply_a_rule_is_documented() -> None:
    section = (ROOT / "SOUNDNESS.md").read_text().split("## The canonical rules")[1].split("## Assumptions")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == get_args(Execution)


PAGES = {path.name: [path] for path in sorted(ROOT.glob("*.md"))}
PAGES["changelog.d"] = sorted((ROOT / "changelog.d").glob("*.md"))
"""The texts that one test reads, by its name: the fragments of the change log are many, and short."""
SITE_PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / path for path in OUTSIDE if "/" in path)]
SOURCE_FOLDERS = [found.folder / "src" for found in distributions()]


PATH_NAMED = re.compile(r"`((?!\.)[\w.*-]+(?:/[\w.*-]+)*(?:/[\w*-]+\.\w+|/[\w-]+/))`|\]\(([^():#]+)(?:#[\w-]+)?\)")


@pytest.mark.parametrize("name", PAGES)
def test_every_path_that_is_named_exists(name: str) -> None:
    """Paths have a folder; they are relative to the root, or to the `src` folder of a distribution."""
    roots = [ROOT, *SOURCE_FOLDERS]
    missing = []
    for page in PAGES[name]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        named = map("".join, PATH_NAMED.findall(text))
        missing += [(page.name, path) for path in named if not any(any(root.glob(path)) for root in roots)]
    assert missing == []


@pytest.mark.parametrize("page", SITE_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    """`nox -s docs` also checks the anchors."""
    path = page.relative_to(ROOT).as_posix()
    assert sorted(found for found in linked_paths(page.read_text(), path) if not (ROOT / found).exists()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](b.md) and ![c](../d/e.svg#x)", {"docs/b.md", "d/e.svg"}),
        ("[a](#here) [b](https://example.org/x.md) `[c](d.md)`", {"docs/d.md"}),
        ("```sh\n[a](b.md)\n```\n", set[str]()),
    ],
)
def test_the_links_of_a_page_are_found(text: str, found: set[str]) -> None:
    assert linked_paths(text, "docs/page.md") == found


def test_links_are_rewritten_for_the_site() -> None:
    page = "[a](../SOUNDNESS.md#x) [b](determinism.md) [c](../examples) [d](../records/mutants.json) [e](nothing.md)\n"
    found = "[a](concepts/soundness.md#x) [b](determinism.md) c [d](records/mutants.json) [e](nothing.md)\n"
    assert rewritten(page, "faq.md") == found
    assert rewritten(f"```text\n{page}```\n", "faq.md") == f"```text\n{page}```\n"


def module_of(name: str) -> tuple[Path, str] | None:
    """The file of the module in a dotted name, and the first component after the module, "" without one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        for folder in SOURCE_FOLDERS:
            path = folder.joinpath(*parts[:count])
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return file, "".join(parts[count : count + 1])
    return None


@pytest.mark.parametrize("pages", [*PAGES.values(), SITE_PAGES], ids=[*PAGES, "pages of the site"])
def test_every_module_that_is_named_exists(pages: list[Path]) -> None:
    missing = []
    for page in pages:
        for name in re.findall(r"\bbitwise_[a-z]\w*(?:\.\w+)+", page.read_text()):
            if re.match(r"bitwise_(?:mine|toy)\b", name) or name.endswith((".py", ".json")):
                continue
            found = module_of(name)
            if found is None or (found[1] and not re.search(rf"\b{found[1]}\b", found[0].read_text())):
                missing.append((page.name, name))
    assert missing == []
