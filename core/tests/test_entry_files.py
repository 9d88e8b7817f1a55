"""Entries on disk: what may be used, the bounded size, and what a key and the digest of the code depend on."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict

import bitwise_core.numerics.formats
from bitwise_core.caching import code_digest as code
from bitwise_core.caching import entry_files
from bitwise_core.caching.entry_files import EntryFolder, cache_directory, size_limit
from bitwise_core.caching.key_digest import NotAKey, key_digest


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


@pytest.fixture
def entries(tmp_path: Path) -> EntryFolder:
    return EntryFolder(tmp_path / "entries")


def files(entries: EntryFolder) -> list[Path]:
    return sorted(path for path in entries.path.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "content", [b"", b"text", b"a\nb\n\nc\n", bytes(range(256)), b"x" * entry_files.MAXIMUM_CONTENT]
)
def test_a_content_is_read_as_it_was_written(entries: EntryFolder, content: bytes) -> None:
    assert entries.read(key(1)) is None
    entries.write(key(1), content)
    assert entries.read(key(1)) == content
    assert entries.read(key(2)) is None


def test_a_content_above_the_limit_is_not_kept(entries: EntryFolder) -> None:
    entries.write(key(1), b"x" * (entry_files.MAXIMUM_CONTENT + 1))
    assert entries.read(key(1)) is None


def test_no_part_and_no_changed_byte_of_an_entry_is_used(entries: EntryFolder) -> None:
    entries.write(key(1), b"content\nof two lines")
    (file,) = files(entries)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place])
        assert entries.read(key(1)) is None
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert entries.read(key(1)) is None
    file.write_bytes(whole + b"\n")
    assert entries.read(key(1)) is None
    file.write_bytes(whole)
    assert entries.read(key(1)) == b"content\nof two lines"


def test_an_entry_of_another_key_is_not_used(entries: EntryFolder) -> None:
    entries.write(key(1), b"content")
    (file,) = files(entries)
    other = entries.path / key(2)[:2] / key(2)
    other.parent.mkdir(exist_ok=True)
    file.rename(other)
    assert entries.read(key(2)) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write_is_not_used(entries: EntryFolder, mode: int) -> None:
    entries.write(key(1), b"content")
    files(entries)[0].chmod(mode)
    assert entries.read(key(1)) is None


def test_an_entry_of_another_user_is_not_used(entries: EntryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    entries.write(key(1), b"content")
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert entries.read(key(1)) is None


def test_the_entries_used_last_are_kept(entries: EntryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_files, "_SUBFOLDERS", 1)
    monkeypatch.setattr(entry_files, "size_limit", lambda: 10 * 4096)
    keys = ["00" + key(number)[2:] for number in range(30)]
    for number, each in enumerate(keys):
        entries.write(each, b"content")
        os.utime(entries.path / "00" / each, ns=(number, number))
        if number > 0:
            # The second entry is used again and again.
            assert entries.read(keys[1]) == b"content"
            os.utime(entries.path / "00" / keys[1], ns=(number, number))
        assert entries.usage().size <= 10 * 4096
    kept = {path.name for path in files(entries)}
    assert {keys[1], *keys[-5:]} <= kept
    assert keys[0] not in kept


def test_reading_an_entry_counts_as_its_use(entries: EntryFolder) -> None:
    entries.write(key(1), b"content")
    (file,) = files(entries)
    os.utime(file, (0, 0))
    entries.read(key(1))
    assert file.stat().st_mtime > 0


def test_usage_and_clear(entries: EntryFolder) -> None:
    assert entries.usage() == entry_files.Usage(0, 0)
    entries.clear()
    for number in range(3):
        entries.write(key(number), b"content")
    assert entries.usage() == entry_files.Usage(3, 3 * 4096)
    entries.clear()
    assert not entries.path.exists()


def test_files_of_others_are_neither_counted_nor_removed(entries: EntryFolder) -> None:
    entries.write(key(1), b"content")
    (file,) = files(entries)
    (file.parent / "unfinished-abc").write_text("the rest of an interrupted writer")
    others = [file.parent / "notes", entries.path / "notes", entries.path / "more" / key(1)]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("kept")
    assert entries.usage().entries == 2
    entries.clear()
    assert files(entries) == sorted(others)


def test_concurrent_writers_leave_whole_entries(entries: EntryFolder) -> None:
    def write(own: int) -> None:
        for number in range(50):
            entries.write(key(number % 5), str(number % 5).encode() * 1000)
            found = entries.read(key(own % 5))
            assert found in (None, str(own % 5).encode() * 1000)

    threads = [threading.Thread(target=write, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files(entries)) == 5
    assert all(entries.read(key(number)) == str(number).encode() * 1000 for number in range(5))


def test_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "bitwise"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for relative in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert cache_directory() == tmp_path / "home" / ".cache" / "bitwise"


@pytest.mark.parametrize(("given", "mib"), [("", 256), ("many", 256), ("3", 3), ("0", 0), ("-1", 0)])
def test_the_size_limit(monkeypatch: pytest.MonkeyPatch, given: str, mib: int) -> None:
    monkeypatch.setenv(entry_files.SIZE_VARIABLE, given)
    assert size_limit() == mib << 20


class Colour(Enum):
    RED = "red"


class Shade(Enum):
    RED = "red"


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    value: object = None


class OtherModel(BaseModel):
    value: object = None


@dataclass(frozen=True)
class Record:
    value: object


DIFFERENT = [
    None, True, False, 0, 1, -1, 10**30, 0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), "", "1", "None",
    b"", b"1", (), (None,), ((),), (1, 2), ((1,), 2), (1, (2,)), ("ab",), ("a", "b"), (("a", "b"),), {}, {"a": 1},
    {"a": 2}, {"b": 1}, {"a": 1, "b": 2}, {1: "a"}, frozenset(), frozenset({1}), frozenset({1, 2}), Colour.RED,
    Shade.RED, "red", Record(1), Record(2), Record((1,)), Model(value=1), Model(value=2), Model(value=1, more=1),
    OtherModel(value=1), np.zeros(2, np.int32), np.zeros(2, np.uint32), np.zeros((1, 2), np.int32),
    np.ones(2, np.int32), np.zeros(2, np.float32), -np.zeros(2, np.float32),
]  # fmt: skip


def test_different_values_have_different_digests() -> None:
    digests = [key_digest(value) for value in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)
    assert len({key_digest(*pair) for pair in (("a", "b"), ("ab",), (("a", "b"),), ("a", ""), ("a",))}) == 5


def test_equal_values_have_one_digest() -> None:
    assert key_digest({"a": 1, "b": 2}) == key_digest({"b": 2, "a": 1})
    assert key_digest(frozenset("abc")) == key_digest({"c", "b", "a"})
    assert key_digest([1, 2]) == key_digest((1, 2))
    assert key_digest(Model(value=(1, "a"))) == key_digest(Model(value=(1, "a")))
    assert key_digest(np.arange(6).reshape(2, 3).T) == key_digest(np.arange(6).reshape(2, 3).T.copy())


@pytest.mark.parametrize("value", [Path("file"), PurePosixPath("file"), object(), len, np.array([None]), {"a": Path()}])
def test_what_does_not_decide_a_result_has_no_digest(value: object) -> None:
    with pytest.raises(NotAKey):
        key_digest(value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that uses core, whose files are older than this process."""
    folder = tmp_path / "package_of_this_test"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("from bitwise_core.errors import BitwiseError\n")
    (folder / "inner" / "data.json").write_text("{}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(code, "_STARTED", float("inf"))
    monkeypatch.delitem(__import__("sys").modules, "package_of_this_test", raising=False)
    return folder


def digest_with(folder: Path) -> str | None:
    return code.code_digest([__import__(folder.name)])


def test_every_file_of_a_package_counts(package: Path) -> None:
    before = digest_with(package)
    assert before is not None
    assert digest_with(package) == before
    assert before != code.code_digest([bitwise_core.numerics.formats])
    (package / "inner" / "data.json").write_text("[]")
    changed = digest_with(package)
    (package / "inner" / "data.json").write_text("{}")
    assert digest_with(package) == before
    (package / "inner" / "data.json").rename(package / "inner" / "other.json")
    moved = digest_with(package)
    (package / "new.py").write_text("")
    added = digest_with(package)
    assert len({before, changed, moved, added}) == 4


def test_a_file_that_changed_since_the_start_makes_the_code_unknown(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max(path.stat().st_ctime for path in package.rglob("*"))
    monkeypatch.setattr(code, "_STARTED", newest + 10)
    monkeypatch.setattr(code, "_USES", package.name)
    assert digest_with(package) is not None
    monkeypatch.setattr(code, "_STARTED", newest)
    assert digest_with(package) is None
    os.utime(package / "__init__.py", (0, 0))
    assert digest_with(package) is None


@pytest.mark.parametrize("part", ["sys.version", "platform.machine", "numpy.__version__", "sys.byteorder"])
def test_the_platform_counts(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code._platform()
    value = (lambda: "another") if part == "platform.machine" else "another"
    monkeypatch.setattr(part, value)
    assert code._platform() != before
