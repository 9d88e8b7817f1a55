"""Files of users: regular ones, a limited size, and errors as sentences of the caller's class."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitwise_core.errors import InputError
from bitwise_core.input_files import read_text


class MissingRecordError(InputError):
    """An error of a caller."""


def test_a_file_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "shapes"
    path.write_bytes("64 µ 64\r\n".encode())
    assert read_text(path, InputError, most=10) == "64 µ 64\r\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff", "cannot be read (it is not text)"),
        (b" " * ((1 << 20) + 1), "has more than 1 MiB; at most that is read"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_caller(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MissingRecordError) as raised:
        read_text(path, MissingRecordError, most=1 << 20)
    assert str(raised.value) == f"{path}: {sentence}"


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sentence = "is a pipe or a device; write its content to a file and name that"
    for path, expected in ((pipe, sentence), ("/dev/zero", sentence), (tmp_path, "is a folder; name a file")):
        with pytest.raises(MissingRecordError) as raised:
            read_text(path, MissingRecordError)
        assert str(raised.value) == f"{path}: {expected}"
