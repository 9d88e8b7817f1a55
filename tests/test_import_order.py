"""A package of core imports only packages above it in the table of ARCHITECTURE.md."""

from __future__ import annotations

import re

import pytest

from workspace import ROOT, distribution, imports, package_of

CORE = distribution("bitwise-core")
PACKAGE = CORE.folder / "src" / "bitwise_core"


def table(page: str) -> list[str]:
    """Return the packages of core in the order of the table on the page."""
    rows = page.split("<!-- packages of core -->")[1].split("<!-- end -->")[0]
    return re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)


ORDER = table((ROOT / "ARCHITECTURE.md").read_text())


def violations(part: str, source: str, package: str) -> list[str]:
    """Return a sentence for every import that a module of this part of core may not have."""
    found = []
    for record in imports(source, package):
        names = record.target.split(".")
        if names[0] != "bitwise_core":
            continue
        imported = names[1] if len(names) > 1 else ""
        if imported == part:
            continue
        if imported not in ORDER:
            found.append(f"line {record.line}: import {record.target} from the module that defines it")
        elif ORDER.index(imported) > ORDER.index(part):
            found.append(f"line {record.line}: {part} may not import {imported}")
    return found


@pytest.mark.parametrize("part", ORDER)
def test_packages_import_packages_above_them(part: str) -> None:
    files = [path for path in CORE.modules() if path.relative_to(PACKAGE).parts[0] in (part, f"{part}.py")]
    assert files
    found = {str(path): violations(part, path.read_text(), package_of(path, CORE)) for path in files}
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


def test_the_table_lists_every_package() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in CORE.modules()}
    assert parts - {"__init__"} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def test_the_package_itself_imports_the_public_interface_alone() -> None:
    own = imports((PACKAGE / "__init__.py").read_text(), "bitwise_core")
    targets = {record.target for record in own if record.target.startswith("bitwise_core")}
    assert {".".join(target.split(".")[:2]) for target in targets} <= {"bitwise_core.api", "bitwise_core.lazy_names"}


@pytest.mark.parametrize(
    ("part", "source", "sentences"),
    [
        ("checker", "from bitwise_core.execution.architecture import Arch", []),
        ("checker", "from bitwise_core import execution", []),
        ("checker", "from bitwise_core.checker.parametric.polynomial import Polynomial", []),
        ("checker", "import numpy", []),
        ("execution", "from bitwise_core import checker", ["line 1: execution may not import checker"]),
        ("execution", "def f():\n    import bitwise_core.cli", ["line 2: execution may not import cli"]),
        (
            "ir",
            "if TYPE_CHECKING:\n    from bitwise_core.assembly.module import Kernel",
            ["line 2: ir may not import assembly"],
        ),
        (
            "assembly",
            "from .module import Kernel",
            ["line 1: import bitwise_core.module.Kernel from the module that defines it"],
        ),
        ("execution", "from .ir import nodes", []),
        (
            "cli",
            "from bitwise_core import helper",
            ["line 1: import bitwise_core.helper from the module that defines it"],
        ),
        ("cli", "import bitwise_core", ["line 1: import bitwise_core from the module that defines it"]),
    ],
)
def test_the_rule_detects_violations(part: str, source: str, sentences: list[str]) -> None:
    assert violations(part, source, "bitwise_core") == sentences
