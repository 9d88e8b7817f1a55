"""Inside core a module imports only what stands before it: the list is the reading order of the package."""

from __future__ import annotations

import pytest

from workspace import distribution, imports, package_of

ORDER = [
    "errors",
    "numeric",
    "assumptions",
    "mma",
    "hardware",
    "descriptors",
    "probe",
    "tree",
    "evaluation",
    "reconstruction",
    "asm",
    "machine",
    "buffers",
    "engine",
    "checker",
    "verdicts",
    "difference",
    "search",
    "problems",
    "profiles",
    "launchers",
    "patches",
    "hookspecs",
    "registry",
    "installed",
    "workers",
    "equivalence",
    "folder",
    "report",
    "api",
    "cli",
]

CORE = distribution("bitwise-core")
PACKAGE = CORE.folder / "src" / "bitwise_core"


def faults(part: str, source: str, package: str) -> list[str]:
    """Return a sentence for every import of the module text that its part of core may not have."""
    found = []
    for record in imports(source, package):
        names = record.target.split(".")
        if names[0] != "bitwise_core":
            continue
        imported = names[1] if len(names) > 1 else ""
        if imported == part or (part == "hookspecs" and record.for_types):
            continue  # the hooks name the types of what plugins hand over, and import none of them
        if imported not in ORDER:
            found.append(f"line {record.line}: import {record.target} by the module that defines it")
        elif part == "hookspecs" or ORDER.index(imported) > ORDER.index(part):
            found.append(f"line {record.line}: {part} may not import {imported}")
    return found


@pytest.mark.parametrize("part", ORDER)
def test_imports_point_backwards(part: str) -> None:
    files = [path for path in CORE.modules() if path.relative_to(PACKAGE).parts[0] in (part, f"{part}.py")]
    found = {str(path): faults(part, path.read_text(), package_of(path, CORE)) for path in files}
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


def test_every_module_has_its_place() -> None:
    parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in CORE.modules()}
    assert parts - {"__init__", *ORDER} == set()


def test_the_package_itself_imports_nothing() -> None:
    found = imports((PACKAGE / "__init__.py").read_text(), "bitwise_core")
    loaded = {record.target.split(".")[0] for record in found if record.at_load and not record.for_types}
    assert loaded <= {"__future__", "typing"}


@pytest.mark.parametrize(
    ("part", "source", "sentences"),
    [
        ("engine", "from bitwise_core.machine.arch import Arch", []),
        ("engine", "from bitwise_core import machine", []),
        ("engine", "from bitwise_core.engine.loops import run", []),
        ("engine", "import numpy", []),
        ("engine", "from bitwise_core import checker", ["line 1: engine may not import checker"]),
        ("engine", "def f():\n    import bitwise_core.cli", ["line 2: engine may not import cli"]),
        ("tree", "if TYPE_CHECKING:\n    from bitwise_core.asm import Kernel", ["line 2: tree may not import asm"]),
        ("asm", "from .tree import nodes", []),
        ("asm", "from .engine import nodes", ["line 1: asm may not import engine"]),
        (
            "cli",
            "from bitwise_core import helper",
            ["line 1: import bitwise_core.helper by the module that defines it"],
        ),
        ("cli", "import bitwise_core", ["line 1: import bitwise_core by the module that defines it"]),
        ("hookspecs", "if TYPE_CHECKING:\n    from bitwise_core.machine.arch import Arch", []),
        ("hookspecs", "from bitwise_core.machine.arch import Arch", ["line 1: hookspecs may not import machine"]),
    ],
)
def test_the_rule_sees_what_it_forbids(part: str, source: str, sentences: list[str]) -> None:
    assert faults(part, source, "bitwise_core") == sentences
