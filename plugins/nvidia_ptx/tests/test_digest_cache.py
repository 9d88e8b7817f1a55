"""The cache of digests: an entry that is not whole, not of its key or not of this user is computed again."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bitwise_nvidia_ptx.assembler.digest_cache import cached_digest

KEY, OTHER = ("text", "12.8.93", "--gpu-name=sm_90a"), ("text", "12.8.93", "--gpu-name=sm_100a")
DIGEST, WRONG = hashlib.sha256(b"machine code").hexdigest(), hashlib.sha256(b"other code").hexdigest()


class Finder:
    """A computation that counts its calls."""

    def __init__(self, digest: str = DIGEST) -> None:
        self.digest, self.calls = digest, 0

    def __call__(self) -> str:
        self.calls += 1
        return self.digest


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def entry(cache: Path) -> Path:
    """The only entry, of KEY."""
    cached_digest("ptxas", KEY, Finder())
    (found,) = entries(cache)
    return found


def read_again() -> int:
    """Return how often the digest of KEY is computed when it is asked for; it is the right one."""
    finder = Finder()
    assert cached_digest("ptxas", KEY, finder) == DIGEST
    return finder.calls


def test_a_whole_entry_is_used(entry: Path) -> None:
    assert read_again() == 0
    finder = Finder(WRONG)
    assert cached_digest("ptxas", OTHER, finder) == WRONG
    assert finder.calls == 1


def test_every_truncation_and_extension_is_ignored(entry: Path) -> None:
    whole = entry.read_bytes()
    for length in range(len(whole)):
        entry.write_bytes(whole[:length])
        assert read_again() == 1
        assert entry.read_bytes() == whole
    entry.write_bytes(whole + b"\n")
    assert read_again() == 1


def test_every_changed_byte_is_ignored(entry: Path) -> None:
    whole = entry.read_bytes()
    for place in range(len(whole)):
        entry.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_again() == 1
    assert entry.read_bytes() == whole
    assert read_again() == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 64, b"\0" * 300, b"0" * 64, DIGEST.encode(), WRONG.encode() + b"\n", b"\xff" * 64, b"x" * 100_000],
    ids=["empty", "64 zero bytes", "zero bytes", "digits", "a digest", "another digest", "no text", "long"],
)
def test_foreign_content_is_ignored(entry: Path, content: bytes) -> None:
    entry.write_bytes(content)
    assert read_again() == 1
    assert read_again() == 0


def test_an_entry_of_another_key_is_ignored(cache: Path, entry: Path) -> None:
    cached_digest("ptxas", OTHER, Finder(WRONG))
    (other,) = (path for path in entries(cache) if path != entry)
    first, second = entry.read_bytes(), other.read_bytes()
    entry.write_bytes(second)
    other.write_bytes(first)
    assert read_again() == 1
    finder = Finder(WRONG)
    assert cached_digest("ptxas", OTHER, finder) == WRONG
    assert finder.calls == 1


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write_is_ignored(entry: Path, mode: int) -> None:
    entry.chmod(mode)
    assert read_again() == 1
    assert read_again() == 0
    assert entry.stat().st_mode & 0o777 == 0o600


def test_an_entry_of_another_user_is_ignored(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert read_again() == 1
    assert read_again() == 1


def test_a_link_and_a_pipe_and_a_folder_are_ignored(entry: Path, tmp_path: Path) -> None:
    moved = entry.rename(tmp_path / "moved")
    entry.symlink_to(moved)
    assert read_again() == 1
    entry.unlink()
    os.mkfifo(entry)
    assert read_again() == 1
    entry.unlink()
    entry.mkdir()
    assert read_again() == 1
    assert not [path for path in entry.parent.iterdir() if path != entry]


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "b"), ("a\0b",)), (("a", "b"), ("ab",)), (("a", ""), ("a",)), (('a", "b',), ("a", "b"))],
)
def test_keys_of_different_parts_are_different(cache: Path, one: tuple[str, ...], other: tuple[str, ...]) -> None:
    cached_digest("ptxas", one, Finder(DIGEST))
    assert cached_digest("ptxas", other, Finder(WRONG)) == WRONG


def without_permission(folder: Path) -> None:
    folder.chmod(0)


def a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("")


def full(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to("/dev/full")


@pytest.mark.parametrize("spoil", [without_permission, a_file, full])
def test_without_a_folder_every_digest_is_computed(cache: Path, spoil: Callable[[Path], None]) -> None:
    cache.mkdir(parents=True)
    spoil(cache)
    try:
        assert read_again() == 1
        assert read_again() == (0 if os.geteuid() == 0 and spoil is without_permission else 1)
    finally:
        if not cache.is_symlink():
            cache.chmod(0o700)


WRITER = """
import hashlib, sys
from bitwise_nvidia_ptx.assembler.digest_cache import cached_digest
for number in range(100):
    digest = hashlib.sha256(str(number % 10).encode()).hexdigest()
    if cached_digest("ptxas", [str(number % 10)], lambda: digest) != digest:
        sys.exit(1)
"""


def test_concurrent_writers_leave_whole_entries(cache: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER], env=dict(os.environ)) for _ in range(3)]
    finder = Finder()
    threads = [threading.Thread(target=lambda: cached_digest("ptxas", KEY, finder)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.wait() for each in processes] == [0, 0, 0]
    assert len(entries(cache)) == 11
    assert all(path.name == path.read_text().split("\n")[1] for path in entries(cache))
    before = finder.calls
    assert cached_digest("ptxas", KEY, finder) == DIGEST
    assert finder.calls == before
