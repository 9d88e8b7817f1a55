"""The distributions of this repository and the imports of their modules, for the structure tests."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

# The version of the distributions where there is no tag.
FALLBACK_VERSION = "0.1.0"

# Folders of kernels written in their own language: only its compiler loads the modules in them.
KERNELS = {"kernels", "samples"}


@dataclass(frozen=True)
class Distribution:
    """One folder that builds to one wheel; `package` is its import name, None for one without code."""

    name: str
    folder: Path
    package: str | None
    pyproject: dict[str, Any]

    def modules(self) -> list[Path]:
        """Return the files of its package; empty without a package."""
        return sorted((self.folder / "src").rglob("*.py"))


@dataclass(frozen=True)
class Import:
    """One imported module by dotted name: its line, and whether it is inside a function or for types only."""

    target: str
    line: int
    in_function: bool
    for_types: bool

    @property
    def at_load(self) -> bool:
        return not (self.in_function or self.for_types)


@cache
def distributions() -> tuple[Distribution, ...]:
    """Return every distribution of the repository, found by its pyproject.toml."""
    found = []
    places = ("*", "plugins/*", "examples/*")
    for file in sorted(each for place in places for each in ROOT.glob(f"{place}/pyproject.toml")):
        pyproject = tomllib.loads(file.read_text())
        packages = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"].get("packages", [None])
        package = packages[0].removeprefix("src/") if packages[0] else None
        found.append(Distribution(pyproject["project"]["name"], file.parent, package, pyproject))
    return tuple(found)


@cache
def imports(source: str, package: str) -> list[Import]:
    """Return all imports of a module's source text; `package` is the package that its relative imports start from."""
    return list(_imports(ast.parse(source), package, in_function=False, for_types=False))


def _imports(node: ast.AST, package: str, *, in_function: bool, for_types: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, in_function, for_types)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
        # `from a import b` may name the module a.b: the full name says which module of a it is.
        for alias in node.names:
            yield Import(f"{base}.{alias.name}", node.lineno, in_function, for_types)
    elif isinstance(node, ast.If) and _is_type_checking(node.test):
        for statement in node.body:
            yield from _imports(statement, package, in_function=in_function, for_types=True)
        for statement in node.orelse:
            yield from _imports(statement, package, in_function=in_function, for_types=for_types)
    else:
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # no expression contains an import
                yield from _imports(child, package, in_function=in_function or function, for_types=for_types)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def package_of(file: Path, distribution: Distribution) -> str:
    """Return the dotted name of the package that holds a module's file."""
    return ".".join(file.relative_to(distribution.folder / "src").parent.parts)


def distribution(name: str) -> Distribution:
    """Return the distribution of that name."""
    return next(found for found in distributions() if found.name == name)
