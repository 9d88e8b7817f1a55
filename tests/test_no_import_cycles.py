"""No distribution has an import cycle, including imports inside functions and for type checking."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from workspace import Distribution, distributions, imports, package_of

PACKAGES = [each for each in distributions() if each.package is not None and each.modules()]


def import_graph(modules: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Return the modules that each module imports; `modules` gives the source text and the package of each."""
    graph: dict[str, set[str]] = {}
    for name, (source, package) in modules.items():
        # `from a.b import c` may name the module a.b.c or something that the module a.b defines.
        targets = ((each.target, each.target.rpartition(".")[0]) for each in imports(source, package))
        graph[name] = {next((target for target in pair if target in modules), name) for pair in targets} - {name}
    return graph


def cycle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return modules of which each imports the next, the first one repeated at the end; empty where there are none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def modules_of(distribution: Distribution) -> dict[str, tuple[str, str]]:
    """Return the source text and the package of every module of a distribution, by its dotted name."""
    found = {}
    for path in distribution.modules():
        package = package_of(path, distribution)
        found[package if path.stem == "__init__" else f"{package}.{path.stem}"] = (path.read_text(), package)
    return found


@pytest.mark.parametrize("distribution", PACKAGES, ids=[each.name for each in PACKAGES])
def test_there_is_no_import_cycle(distribution: Distribution) -> None:
    found = cycle(import_graph(modules_of(distribution)))
    assert not found, "import cycle: " + " -> ".join(found) + "; move shared code below these modules, or merge them"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"p.a": "from p.b import x", "p.b": "import numpy"}, ""),
        ({"p.a": "from p import b", "p.b": "from p.a import x"}, "ab"),
        ({"p.a": "def f():\n    from p.b import x", "p.b": "import p.a"}, "ab"),
        ({"p.a": "if TYPE_CHECKING:\n    from p.b import X", "p.b": "from p.c import y", "p.c": "import p.a"}, "abc"),
        ({"p.a": "from p.b import x\nfrom p.c import y", "p.b": "from p.c import x", "p.c": ""}, ""),
        ({"p.a": "from . import b", "p.b": "from .a import x"}, "ab"),
    ],
)
def test_a_cycle_is_found(sources: dict[str, str], expected: str) -> None:
    found = cycle(import_graph({name: (text, "p") for name, text in sources.items()}))
    assert found[:1] == found[-1:]
    order = "".join(name.removeprefix("p.") for name in found[1:])
    assert order in {expected[place:] + expected[:place] for place in range(len(expected) or 1)}
