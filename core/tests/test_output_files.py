"""Files are written as a whole."""

import os
import stat
from pathlib import Path
from typing import IO

import pytest

from bitwise_core.output_files import write_file, write_text


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "first")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    write_text(path, "zweite Größe\n")
    assert path.read_bytes() == "zweite Größe\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_fault_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def broken(file: IO[bytes]) -> None:
        file.write(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_file(path, broken)
    assert path.read_text() == "old"
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_directly() -> None:
    with pytest.raises(OSError, match="No space left"):
        write_text("/dev/full", "text")
    write_text("/dev/null", "text")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "missing" / "a", "text")
