"""`bitwise run`: the bytes after a launch, and one sentence for each error in the input."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.cli import app

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PLAIN = row_sum()
X = np.arange(256, dtype=np.float32)
Y = np.full(4, 7, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {"a.ptx": PLAIN}, [launch("a.ptx")])


def run(folder: Path, arrays: Mapping[str, npt.NDArray[Any]] | bytes, *options: str) -> tuple[int, str, str]:
    """Return status, standard output and standard error of a run on arrays, or on an input file with given bytes."""
    path = folder / "in.npz"
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    else:
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    arguments = ["run", str(folder / "a.ptx"), "--inputs", str(path), "--out", str(folder / "out.npz"), *options]
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


def errors(folder: Path, arrays: Mapping[str, npt.NDArray[Any]] | bytes, *options: str) -> list[str]:
    """Return the error sentences of a run that fails and writes nothing."""
    status, out, sentences = run(folder, arrays, *options)
    assert (status, out, (folder / "out.npz").exists()) == (2, "", False)
    assert "Traceback" not in sentences
    path = str(folder / "in.npz")
    return [line.removeprefix("bitwise: ").replace(path, "FILE") for line in sentences.splitlines()]


def test_bytes_after_a_run(folder: Path) -> None:
    status, out, sentences = run(folder, {"X": X, "Y": Y}, "--json")
    assert (status, sentences) == (0, "")
    assert json.loads(out)["buffers"] == {
        "X": {"format": "fp32", "type": "float32", "elements": 256, "changed": 0},
        "Y": {"format": "fp32", "type": "float32", "elements": 4, "changed": 4},
    }
    with np.load(folder / "out.npz") as file:
        assert file["Y"].tolist() == [sum(range(64 * row, 64 * row + 64)) for row in range(4)]
        assert file["X"].tolist() == X.tolist()


def test_shapes_are_kept_and_bit_patterns_are_accepted(folder: Path) -> None:
    assert run(folder, {"X": X.view(np.uint32).reshape(4, 64), "Y": Y.reshape(2, 2)})[0] == 0
    with np.load(folder / "out.npz") as file:
        assert (file["X"].shape, file["Y"].shape) == ((4, 64), (2, 2))
        assert (file["X"].dtype, file["Y"].dtype) == (np.float32, np.float32)


def test_a_buffer_may_have_the_name_of_a_numpy_parameter(folder: Path) -> None:
    arguments = [{"buffer": "X", "dtype": "fp32"}, {"buffer": "file", "dtype": "fp32"}]
    write(folder, {}, [launch("a.ptx", args=arguments)])
    with zipfile.ZipFile(folder / "named.npz", "w") as archive:
        for name, array in {"X": X, "file": Y}.items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array)
    assert run(folder, (folder / "named.npz").read_bytes())[0] == 0
    with np.load(folder / "out.npz") as done:
        assert done["file"][0] == 2016


WRONG: dict[str, tuple[Mapping[str, npt.NDArray[Any]] | bytes, str]] = {
    "missing": ({"X": X}, "FILE: has no array for the buffer Y of the launch; the file's arrays: X"),
    "none": ({}, "FILE: has no array for the buffer X of the launch; the file's arrays: none"),
    "other type": (
        {"X": X.astype(np.float64), "Y": Y},
        "FILE: the array X holds float64, and the launch says fp32: store float32 (or uint32, its patterns)",
    ),
    "other byte order": (
        {"X": X.astype(">f4"), "Y": Y},
        "FILE: the array X holds float32 in the byte order of another machine: store float32 (or uint32, its patterns)"
        " in this one's",
    ),
    "empty": ({"X": X, "Y": Y[:0]}, "FILE: the array Y is empty"),
    "columns": (
        {"X": np.asfortranarray(X.reshape(4, 64)), "Y": Y},
        "FILE: the array X is stored column by column (Fortran order); store it row by row, as"
        " numpy.ascontiguousarray does",
    ),
    "objects": ({"X": np.array([None]), "Y": Y}, "FILE: is not an .npz file of plain arrays"),
    "no file of arrays": (b"not an archive", "FILE: is not an .npz file of plain arrays"),
    "empty file": (b"", "FILE: is not an .npz file of plain arrays"),
    "cut": (b"PK\x03\x04" + bytes(40), "FILE: is not an .npz file of plain arrays"),
}


@pytest.mark.parametrize(("arrays", "sentence"), WRONG.values(), ids=WRONG)
def test_errors_in_the_arrays(folder: Path, arrays: Mapping[str, npt.NDArray[Any]] | bytes, sentence: str) -> None:
    found = errors(folder, arrays)
    assert found[0].startswith(sentence)
    if not sentence.endswith("plain arrays"):
        assert found[0] == sentence
    assert len(found) == (2 if arrays == {} else 1)


def test_a_single_array_has_no_name(folder: Path) -> None:
    with (folder / "one.npy").open("wb") as file:
        np.save(file, X)
    found = errors(folder, (folder / "one.npy").read_bytes())
    assert found == ["FILE: holds one array without a name; write it with numpy.savez, one array for each buffer name"]


def test_a_damaged_array(folder: Path) -> None:
    with (folder / "good.npz").open("wb") as file:
        np.savez_compressed(file, X=X, Y=Y)
    content = bytearray((folder / "good.npz").read_bytes())
    content[120:160] = bytes(40)
    (sentence,) = errors(folder, bytes(content))
    assert sentence.startswith("FILE: is not an .npz file of plain arrays")


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"X": X[:255], "Y": Y}, "the buffer X holds 1020 bytes and is read at byte 1020 (4 bytes wide)"),
        ({"X": X, "Y": Y[:3]}, "the buffer Y holds 12 bytes and is written at byte 12 (4 bytes wide)"),
    ],
)
def test_an_array_that_is_too_small(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], fault: str) -> None:
    status, out, sentence = run(folder, arrays)
    assert (status, out, sentence.count("\n")) == (3, "", 1)
    assert f"a.ptx cannot be run: {fault}, out of its bounds at line " in sentence


def test_errors_in_the_launch(folder: Path) -> None:
    good: dict[str, npt.NDArray[Any]] = {"X": X, "Y": Y}
    write(folder, {}, [launch("a.ptx", args=[{"buffer": "X", "dtype": "fp32"}, {"buffer": "Z", "dtype": "fp32"}])])
    assert errors(folder, good) == ["FILE: has no array for the buffer Z of the launch; the file's arrays: X, Y"]
    (folder / "manifest.json").unlink()
    assert errors(folder, good) == ["a.ptx: has no launch; a kernel is run for one launch: give --manifest"]
    assert errors(folder, good, "--manifest", str(folder / "gone.json")) == [
        f"{folder / 'gone.json'}: there is no such file"
    ]


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("frobnicate.b32 %f5, %f5;", "the instruction frobnicate.b32 is not modelled at line {line}"),
        (
            "tanh.approx.f32 %f5, %f1;",
            "the operation tanh.approx.fp32@sm_90 has no function here that is exact for every pattern at line {line}",
        ),
    ],
)
def test_an_unsupported_instruction_is_reported_with_its_line(folder: Path, instruction: str, reason: str) -> None:
    text = PLAIN.replace("add.rn.f32 %f5, %f1, %f2;", instruction)
    line = next(number for number, each in enumerate(text.split("\n"), 1) if each == instruction)
    write(folder, {"a.ptx": text}, None)
    expected = f"bitwise: a.ptx cannot be run: {reason.format(line=line)}\n"
    assert run(folder, {"X": X, "Y": Y}) == (3, "", expected)
    assert not (folder / "out.npz").exists()


def test_an_output_file_that_cannot_be_written(folder: Path) -> None:
    run(folder, {"X": X, "Y": Y})
    arguments = ["run", str(folder / "a.ptx"), "--inputs", str(folder / "in.npz"), "--out", str(folder)]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"bitwise: {folder}: cannot be written (Is a directory)\n"


def test_a_floating_point_scalar_is_passed_to_the_kernel(folder: Path) -> None:
    scaled = PLAIN.replace(".param .u64 y)", ".param .u64 y, .param .f32 s)").replace(
        "add.rn.f32 %f5, %f1, %f2;", "ld.param.f32 %f3, [s];\nfma.rn.f32 %f5, %f1, %f3, %f2;"
    )
    arguments = [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp32"}, {"fp32": 0.5}]
    write(folder, {"a.ptx": scaled}, [launch("a.ptx", args=arguments)])
    assert run(folder, {"X": X, "Y": Y})[0] == 0
    with np.load(folder / "out.npz") as file:
        first = struct.pack("<f", sum(0.5 * value for value in range(32)) + sum(range(32, 64)))
        assert file["Y"][:1].tobytes() == first


@pytest.mark.parametrize(
    "arguments",
    [
        ["diff", "PIPE", "a.ptx"],
        ["run", "a.ptx", "--manifest", "PIPE", "--inputs", "in.npz", "--out", "out.npz"],
        ["run", "a.ptx", "--inputs", "PIPE", "--out", "out.npz"],
        ["partition", ".", "--expected", "PIPE"],
    ],
)
def test_a_pipe_without_a_writer_is_refused(
    folder: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    os.mkfifo("PIPE")
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "bitwise: PIPE: is a pipe or a device; write its content to a file and name that\n"
