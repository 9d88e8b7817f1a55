"""Modules in C are compiled once, are kept, and are left out where they cannot be compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bitwise_core.caching import c_modules

MODULE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "answer", .m_size = -1};
PyMODINIT_FUNC PyInit_answer(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyModule_AddIntConstant(module, "answer", 42);
    return module;
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(c_modules.OFF_VARIABLE, raising=False)
    path = tmp_path / "answer.c"
    path.write_text(MODULE, encoding="utf-8")
    return path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that compile."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("there is no C compiler")
    found: list[list[str]] = []
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        found.append(command)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", run)
    return found


def test_a_module_is_compiled_once(source: Path, commands: list[list[str]]) -> None:
    for _ in range(2):
        module = c_modules.c_module(source)
        assert module is not None
        assert module.answer == 42
    assert len(commands) == 1
    source.write_text(MODULE.replace("42", "43"), encoding="utf-8")
    changed = c_modules.c_module(source)
    assert changed is not None
    assert changed.answer == 43
    assert len(commands) == 2


def test_a_kept_module_that_was_changed_is_compiled_again(source: Path, commands: list[list[str]]) -> None:
    c_modules.c_module(source)
    (entry,) = [each for each in (source.parent / "cache").rglob("*") if each.is_file()]
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert c_modules.c_module(source) is not None
    assert len(commands) == 2


def test_what_cannot_be_compiled_is_left_out(source: Path, commands: list[list[str]]) -> None:
    source.write_text("text", encoding="utf-8")
    assert c_modules.c_module(source) is None
    assert c_modules.c_module(source.with_name("missing.c")) is None
    assert len(commands) == 1


def test_a_module_without_its_function_is_left_out(source: Path, commands: list[list[str]]) -> None:
    source.write_text(MODULE.replace("PyInit_answer", "PyInit_other"), encoding="utf-8")
    assert c_modules.c_module(source) is None


def test_no_compiler_and_the_variable_leave_modules_out(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        assert c_modules.c_module(source) is None
    monkeypatch.setenv(c_modules.OFF_VARIABLE, "1")
    assert c_modules.c_module(source) is None
