"""A manifest states one launch: nothing in it is read as another number, type, field or file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitwise_core.execution.launch import Argument, ManifestError, read_manifest, scalar_bits

KERNEL: dict[str, Any] = {"file": "a.ptx", "grid": [2, 1, 1], "block": [32, 1, 1], "args": []}
MAP = {"buffer": "X", "dtype": "fp16", "shape": [64, 64], "strides": [64, 1], "block": [16, 16]}


def fault(tmp_path: Path, text: str) -> str:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(ManifestError) as error:
        read_manifest(path)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value).removeprefix(f"{path}: ")


def manifest(**changes: Any) -> str:
    return json.dumps({"kernels": [{**KERNEL, **changes}]})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"grids": [1]}, "kernels.0.grids: there is no such field"),
        ({"clusters": [2, 1, 1]}, "kernels.0.clusters: there is no such field"),
        ({"grid": [2.0, 1, 1]}, "kernels.0.grid.0: 2.0 is no integer"),
        ({"grid": [True, 1, 1]}, "kernels.0.grid.0: True is no integer"),
        ({"grid": ["2", 1, 1]}, "kernels.0.grid.0: '2' is no integer"),
        ({"shared": 16.0}, "kernels.0.shared: 16.0 is no integer"),
        ({"args": [{"i32": 999.5}]}, "kernels.0.args.0: the value 999.5 does not fit i32: it is no integer"),
        ({"args": [{"i32": 999.0}]}, "kernels.0.args.0: the value 999.0 does not fit i32: it is no integer"),
        ({"args": [{"i64": True}]}, "kernels.0.args.0: the value True does not fit i64: it is no integer"),
        ({"args": [{"i1": 2}]}, "kernels.0.args.0: the value 2 does not fit i1: it is 0 or 1"),
        ({"args": [{"u8": 256}]}, "kernels.0.args.0: the value 256 does not fit u8"),
        ({"args": [{"fp32": 1e39}]}, "kernels.0.args.0: the value 1e+39 does not fit fp32"),
        ({"args": [{"buffer": "X", "offset": 1.0}]}, "kernels.0.args.0.offset: 1.0 is no integer"),
        ({"args": [{"buffer": "X", "size": 4}]}, "kernels.0.args.0.size: there is no such field"),
        (
            {"args": [{"tensor_map": {**MAP, "swizzle": "64"}}]},
            "kernels.0.args.0.tensor_map.swizzle: '64' is no integer",
        ),
        (
            {"args": [{"buffer": "\x1b[31mX"}]},
            r"kernels.0.args.0.buffer: the name '\x1b[31mX' has characters that cannot be printed",
        ),
    ],
)  # fmt: skip
def test_what_is_no_launch_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    assert fault(tmp_path, manifest(**changes)) == sentence


@pytest.mark.parametrize("where", [{"buffer": "X", "dtype": "fp61"}, {"tensor_map": {**MAP, "dtype": "fp61"}}])
def test_an_element_type_is_a_known_one(tmp_path: Path, where: dict[str, Any]) -> None:
    assert "there is no element type 'fp61'; there are fp64, fp32, fp16, " in fault(tmp_path, manifest(args=[where]))


@pytest.mark.parametrize("file", ["../a.ptx", "b/../../a.ptx", "/etc/passwd"])
def test_files_are_in_the_manifests_folder(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = (
        f"names {file}, which may lie outside its folder; copy the file into it, or set BITWISE_OUTSIDE_FILES=1 if you "
        "trust the manifest"
    )
    assert fault(tmp_path, manifest(file=file)) == sentence
    monkeypatch.setenv("BITWISE_OUTSIDE_FILES", "1")
    assert read_manifest(tmp_path / "manifest.json").kernels[0].file == file


def test_the_text_is_strict_json(tmp_path: Path) -> None:
    twice = manifest().replace('"file"', '"grid": [1, 1, 1], "file"')
    assert fault(tmp_path, twice) == "is not JSON (an object has the key 'grid' twice: remove one)"
    assert fault(tmp_path, "[" * 100_000) == "is not JSON (values are nested too deeply)"
    assert fault(tmp_path, '{"kernels": [') .startswith("is not JSON (Expecting value: ")  # fmt: skip


@pytest.mark.parametrize(("value", "bits"), [("inf", 0x7F800000), ("-inf", 0xFF800000), ("nan", 0x7FC00000)])
def test_scalars_that_json_lacks_are_text(tmp_path: Path, value: str, bits: int) -> None:
    (tmp_path / "manifest.json").write_text(manifest(args=[{"fp32": value}]))
    argument = read_manifest(tmp_path / "manifest.json").kernels[0].args[0]
    assert scalar_bits(argument) == (bits, 4)
    assert argument.short() == {"fp32": value}
    assert Argument.model_validate({"fp32": float(value)}).short() == {"fp32": value}


@pytest.mark.parametrize("scalar", [{"i32": "inf"}, {"i32": "5"}, {"fp32": "1.0"}, {"fp32": "infinity"}])
def test_text_is_no_number(tmp_path: Path, scalar: dict[str, str]) -> None:
    (text,) = scalar.values()
    assert fault(tmp_path, manifest(args=[scalar])) == f"kernels.0.args.0.value: {text!r} is no number"
