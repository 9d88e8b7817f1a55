"""A fingerprint of the code that defines the vocabulary's operations, without comments and docstrings."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from pathlib import Path

import bitwise_core.numerics

MODULES = (
    "conversion", "floating", "formats", "integers", "modular", "native_floats", "operations", "record", "softfloat",
    "verb_functions", "word_arithmetic",
)  # fmt: skip


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def fingerprint(definitions: Mapping[str, str] | None = None) -> str:
    """Return the fingerprint: proofs hold for the operations that this code, and `definitions`, define."""
    folder = Path(bitwise_core.numerics.__file__).parent
    digest = hashlib.sha256()
    for name in MODULES:
        tree = _without_docstrings(ast.parse((folder / f"{name}.py").read_text()))
        digest.update(f"{name}\n{ast.unparse(tree)}\n".encode())
    for name, meaning in sorted((definitions or {}).items()):
        digest.update(f"{name}\n{meaning}\n".encode())
    return digest.hexdigest()[:32]
