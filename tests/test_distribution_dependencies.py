"""Dependencies between distributions follow the allowed arrows, and every import is declared."""

from __future__ import annotations

import os
import re
import sys

import pytest

from workspace import (
    FALLBACK_VERSION,
    KERNELS,
    ROOT,
    Distribution,
    Import,
    distribution,
    distributions,
    imports,
    package_of,
)

# The allowed dependencies of each distribution.
ALLOWED = {
    "bitwise-core": set[str](),
    "bitwise-torch": {"bitwise-core"},
    "bitwise-nvidia-ptx": {"bitwise-core"},
    "bitwise-nvidia-earlier": {"bitwise-core", "bitwise-nvidia-ptx"},
    "bitwise-nvidia-sm90": {"bitwise-core", "bitwise-nvidia-ptx"},
    "bitwise-nvidia-sm100": {"bitwise-core", "bitwise-nvidia-ptx"},
    "bitwise-nvidia-sm120": {"bitwise-core", "bitwise-nvidia-ptx"},
    "bitwise-nvidia": {
        "bitwise-cublas-profiles",
        "bitwise-nvidia-earlier",
        "bitwise-nvidia-sm90",
        "bitwise-nvidia-sm100",
        "bitwise-nvidia-sm120",
    },
    "bitwise-amd-gfx942": {"bitwise-core"},
    "bitwise-amd": {"bitwise-amd-gfx942", "bitwise-rocblas-profiles"},
    "bitwise-cublas-profiles": {"bitwise-core"},
    "bitwise-rocblas-profiles": {"bitwise-core"},
    "bitwise-triton": {"bitwise-core"},
    "bitwise-pytest": {"bitwise-core", "bitwise-triton"},
    "bitwise-conformance": {"bitwise-core"},
    "bitwise-toy": {"bitwise-core", "bitwise-conformance"},
    "bitwise-bench": {
        "bitwise-core",
        "bitwise-torch",
        "bitwise-nvidia",
        "bitwise-nvidia-ptx",
        "bitwise-nvidia-sm90",
        "bitwise-amd",
        "bitwise-amd-gfx942",
        "bitwise-cublas-profiles",
        "bitwise-pytest",
        "bitwise-rocblas-profiles",
        "bitwise-triton",
        "bitwise-conformance",
    },
}

BROUGHT = {"bitwise-core": {"bitwise-amd", "bitwise-nvidia", "bitwise-torch", "bitwise-triton"}}
"""Distributions that extras install and that no module imports."""

MODULES = {"yaml": "pyyaml", "cuda": "cuda-bindings", "markdown_it": "markdown-it-py"}
"""Modules whose distributions have other names."""

# No distribution requires torch: the user chooses a build for the machine. Triton, hip-python (`hip`) and cuda-bindings
# are extras.
# z3 is the second solver of `nox -s proofs`, which installs it.
OPTIONAL = {"torch", "triton", "hip", "cuda-bindings", "z3"}

ALL = pytest.mark.parametrize("name", ALLOWED)


def declared(found: Distribution) -> set[str]:
    """Return the names of the required distributions."""
    return {_name(requirement) for requirement in found.pyproject["project"].get("dependencies", [])}


def extras(found: Distribution) -> set[str]:
    """Return the names of the distributions that its extras require."""
    groups = found.pyproject["project"].get("optional-dependencies", {}).values()
    return {_name(requirement) for group in groups for requirement in group}


def _name(requirement: str) -> str:
    matched = re.match(r"[A-Za-z0-9._-]*[A-Za-z0-9]", requirement)
    assert matched is not None
    return matched.group().lower()


def fault(record: Import, found: Distribution, *, kernels: bool = False) -> str | None:
    """Return what is wrong with an import of a module of this distribution, if anything is.

    A module of `kernels` is written in the language of an optional compiler.
    """
    top = record.target.split(".")[0]
    if top in sys.stdlib_module_names or top == found.package:
        return None
    owner = next((other.name for other in distributions() if other.package == top), MODULES.get(top, top))
    if owner.startswith("bitwise-") and owner not in ALLOWED[found.name]:
        return f"line {record.line}: {found.name} may not import {owner}"
    if kernels and owner == "triton":
        return None
    if owner not in declared(found) and record.at_load:
        return f"line {record.line}: {found.name} imports {owner} when it loads, without declaring it"
    if owner not in declared(found) | extras(found) | OPTIONAL and not record.for_types:
        return f"line {record.line}: {found.name} imports {owner}, without declaring it"
    return None


@ALL
def test_declared_dependencies_are_allowed(name: str) -> None:
    found = distribution(name)
    ours = {dependency for dependency in declared(found) if dependency.startswith("bitwise-")}
    assert ours <= ALLOWED[name]
    more = {dependency for dependency in extras(found) - {name} if dependency.startswith("bitwise-")}
    assert more <= ALLOWED[name] | BROUGHT.get(name, set())
    assert OPTIONAL & declared(found) == set()
    assert "torch" not in extras(found)


@ALL
def test_imports_are_declared(name: str) -> None:
    found = distribution(name)
    sentences = [
        f"{path}, {sentence}"
        for path in found.modules()
        for record in imports(path.read_text(), package_of(path, found))
        if (sentence := fault(record, found, kernels=bool(KERNELS & set(path.parts)))) is not None
    ]
    assert sentences == []


def test_every_distribution_has_a_rule() -> None:
    assert {found.name for found in distributions()} == set(ALLOWED)


def test_kernels_may_import_their_compiler() -> None:
    found = distribution("bitwise-bench")
    records = imports("import triton\nimport torch", "bitwise_bench.corpus.kernels")
    assert [fault(record, found, kernels=True) for record in records] == [
        None,
        "line 2: bitwise-bench imports torch when it loads, without declaring it",
    ]


@pytest.mark.parametrize(
    ("name", "source", "sentence"),
    [
        ("bitwise-core", "import ast, numpy", None),
        ("bitwise-core", "from bitwise_nvidia_ptx import parser", "bitwise-core may not import bitwise-nvidia-ptx"),
        ("bitwise-core", "import scipy", "bitwise-core imports scipy when it loads, without declaring it"),
        ("bitwise-core", "def f():\n    import scipy", "bitwise-core imports scipy, without declaring it"),
        ("bitwise-core", "import torch", "bitwise-core imports torch when it loads, without declaring it"),
        ("bitwise-core", "def f():\n    import torch", None),
        ("bitwise-core", "if TYPE_CHECKING:\n    import torch", None),
        (
            "bitwise-nvidia-sm90",
            "def f():\n    import bitwise_nvidia_sm100",
            "bitwise-nvidia-sm90 may not import bitwise-nvidia-sm100",
        ),
        (
            "bitwise-nvidia-sm100",
            "if TYPE_CHECKING:\n    from bitwise_nvidia_sm90 import plugin",
            "bitwise-nvidia-sm100 may not import bitwise-nvidia-sm90",
        ),
        ("bitwise-triton", "import triton", "bitwise-triton imports triton when it loads, without declaring it"),
        ("bitwise-triton", "def f():\n    import triton", None),
        (
            "bitwise-nvidia-sm90",
            "from cuda.bindings import driver",
            "bitwise-nvidia-sm90 imports cuda-bindings when it loads, without declaring it",
        ),
        ("bitwise-nvidia-sm90", "def f():\n    from cuda.bindings import driver", None),
        ("bitwise-conformance", "import bitwise_triton", "bitwise-conformance may not import bitwise-triton"),
        (
            "bitwise-toy",
            "import bitwise_conformance",
            "bitwise-toy imports bitwise-conformance when it loads, without declaring it",
        ),
        ("bitwise-toy", "def f():\n    import bitwise_conformance", None),
        ("bitwise-bench", "import bitwise_triton", None),
    ],
)
def test_a_forbidden_import_is_found(name: str, source: str, sentence: str | None) -> None:
    found = distribution(name)
    sentences = [fault(record, found) for record in imports(source, found.package or "")]
    bare = [text.split(": ", 1)[1] for text in sentences if text is not None]
    assert bare == ([] if sentence is None else [sentence])


@ALL
def test_the_metadata_is_the_same_everywhere(name: str) -> None:
    found = distribution(name)
    project = found.pyproject["project"]
    if name == "bitwise-toy":  # a template, which is copied out of the repository
        assert project["version"] == FALLBACK_VERSION
    else:
        assert project["dynamic"] == ["version"]
        assert found.pyproject["build-system"]["requires"] == ["hatch-vcs>=0.5", "hatchling>=1.26"]
        assert found.pyproject["tool"]["hatch"]["version"] == {
            "source": "vcs",
            "fallback-version": FALLBACK_VERSION,
            "raw-options": {
                "root": os.path.relpath(ROOT, found.folder),
                "version_scheme": "post-release",
                "local_scheme": "no-local-version",
            },
        }
    assert project["requires-python"] == ">=3.11"
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert (found.folder / "LICENSE").read_bytes() == distribution_root_license()
    # The distributions are released together; any two releases of one minor version are compatible.
    ours = [text for text in project["dependencies"] if text.startswith("bitwise-")]
    assert [text for text in ours if not text.endswith("~=0.1.0")] == []


def distribution_root_license() -> bytes:
    """Return the license of the repository; each folder has a copy, since a wheel includes only its own files."""
    return (distribution("bitwise-core").folder.parent / "LICENSE").read_bytes()


@ALL
def test_packages_are_marked_as_typed(name: str) -> None:
    found = distribution(name)
    typed = {path.parent.name for path in found.folder.glob("src/*/py.typed")}
    written = {path.parent.name for path in found.folder.glob("src/*/__init__.py")}
    assert written <= typed
