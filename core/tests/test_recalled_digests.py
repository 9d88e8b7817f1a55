"""Digests that are recalled while files keep their state, and made again where a file changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitwise_core.caching import recalled_digests
from bitwise_core.caching.entry_files import OFF_VARIABLE
from bitwise_core.caching.recalled_digests import file_state, recalled


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as old, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(OFF_VARIABLE)
    monkeypatch.setattr(recalled_digests, "_MARGIN", -60.0)
    path = tmp_path / "tool"
    path.write_bytes(b"abc")
    return path


def made(file: Path, name: str = "content") -> tuple[bytes, bool]:
    """Return the digest of a file, and whether its content was read."""
    calls = []

    def make() -> bytes:
        calls.append(file)
        return file.read_bytes()

    return recalled(name, [file_state(str(file))], make), bool(calls)


def test_a_file_is_read_once(file: Path) -> None:
    assert [made(file), made(file)] == [(b"abc", True), (b"abc", False)]
    assert made(file, "another function") == (b"abc", True)


def test_a_write_that_keeps_size_and_times_is_seen(file: Path) -> None:
    made(file)
    before = file.stat()
    file.write_bytes(b"abd")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert made(file) == (b"abd", True)


def test_another_file_of_the_same_name_is_seen(file: Path) -> None:
    made(file)
    other = file.with_name("other")
    other.write_bytes(b"xyz")
    other.replace(file)
    assert made(file) == (b"xyz", True)


def test_a_file_that_may_change_within_a_tick_is_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalled_digests, "_MARGIN", 2.0)
    assert [made(file), made(file)] == [(b"abc", True)] * 2


def test_nothing_is_kept_where_the_cache_is_off(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OFF_VARIABLE, "1")
    assert [made(file), made(file)] == [(b"abc", True)] * 2


def test_a_folder_that_cannot_be_written_is_no_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    assert [made(file), made(file)] == [(b"abc", True)] * 2
