"""No identifier and no string of core or the suite names a vendor; docstrings may give examples."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from workspace import ROOT, distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

# Vendors, their tools and their instruction sets. Short words match at the start of a word only, not in "streamdata".
ANYWHERE = ["nvidia", "cuda", "cublas", "cudnn", "ptxas", "wgmma", "tcgen05", "ldmatrix", "nvgpu", "rocm", "rocblas"]
AT_START = [
    "amd", "ptx", "sass", r"sm_?(?=\d|$|_|\W)", "gfx", "hip", "mfma", "wmma", "hopper", "blackwell", "ampere", "cdna",
    "mbarrier", "cubin", "hsaco", "intel", "spirv", "xmx",
]  # fmt: skip
WORD = re.compile("|".join([*ANYWHERE, rf"(?<![a-z])(?:{'|'.join(AT_START)})"]))


def vendor_words(text: str) -> list[str]:
    """Return the vendor words of an identifier or a string; an inner capital starts a word."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return WORD.findall(split.lower())


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield every identifier and string of a module with its line, except docstrings."""
    tree = ast.parse(source)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str | bytes) and id(node) not in documentation:
                yield line, node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            continue
        for _, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str):
                    yield line, item


FOLDERS = [
    distribution("bitwise-core").folder / "src" / "bitwise_core",
    distribution("bitwise-conformance").folder / "src" / "bitwise_conformance" / "suite",
]
MODULES = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("module", MODULES)
def test_no_vendor_is_named(module: str) -> None:
    named = [f"{module}:{line}: {text!r}" for line, text in texts((ROOT / module).read_text()) if vendor_words(text)]
    assert vendor_words(module) == []
    assert named == []


@pytest.mark.parametrize(
    "text",
    ["sm_90", "sm90", "SM_COUNT", "sm", "readPtx", "PTXParser", "parse_ptx", "is_amd", "AMDKernel", "gfx942",
     "kernel.ptx", "wgmma.mma_async", "CudaGraph", "with_cuda12", "HIP", "on NVIDIA only"],
)  # fmt: skip
def test_vendor_words_are_found(text: str) -> None:
    assert len(vendor_words(text)) == 1


@pytest.mark.parametrize(
    "text", ["streamdata", "prism_9", "chip", "relationship", "smallest", "smoke", "warp", "wavefront", "campus"]
)
def test_other_words_are_not_found(text: str) -> None:
    assert vendor_words(text) == []


def test_identifiers_and_strings_are_checked_and_docstrings_are_not() -> None:
    source = (
        '"""module"""\nimport a.b as c\ndef f(d, *, e=b"g"):\n    """function"""\n    return f"h{i.j}" + k(l="m")\n'
    )
    assert sorted(text for _, text in texts(source)) == ["a.b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"]
