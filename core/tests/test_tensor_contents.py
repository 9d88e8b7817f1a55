"""The contents of tensors in manifests: what is read, and the sentence for what is refused."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution import tensor_contents
from bitwise_core.execution.launch import Argument, Launch, ManifestError, read_manifest
from bitwise_core.execution.tensor_contents import TensorContents, number_form

_FORMS = {
    "i1": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32,
    "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64,
}  # fmt: skip


def written(folder: Path, *arguments: dict[str, Any]) -> Path:
    path = folder / "manifest.json"
    kernels = [{"file": "a.ptx", "grid": [1], "args": [{"i32": 4}, *arguments]}]
    path.write_text(json.dumps({"kernels": kernels}))
    return path


def read(folder: Path, *arguments: dict[str, Any]) -> Launch:
    return read_manifest(written(folder, *arguments)).kernels[0]


def refusal(folder: Path, *arguments: dict[str, Any]) -> str:
    """The sentence of the refusal, after the manifest and the place, which it must name."""
    path = written(folder, *arguments)
    with pytest.raises(ManifestError) as error:
        read_manifest(path)
    head = f"{path}: kernels.0"
    assert str(error.value).startswith(head)
    return str(error.value).removeprefix(head)


@pytest.mark.parametrize("dtype", _FORMS)
def test_a_file_and_a_list_of_the_same_numbers_are_the_same_contents(tmp_path: Path, dtype: str) -> None:
    array: npt.NDArray[Any] = np.array([[0, 1, 1], [1, 0, 1]]).astype(_FORMS[dtype])
    np.save(tmp_path / "t.npy", array)
    file = read(tmp_path, {"buffer": "T", "dtype": dtype, "values": "t.npy"}).given()["T"]
    numbers = read(tmp_path, {"buffer": "T", "dtype": dtype, "values": array.reshape(-1).tolist()}).given()["T"]
    assert file == numbers == Argument(kind="buffer", buffer="T", dtype=dtype, values=array).values
    assert (file.data, len(file), file.file) == (array.tobytes(), 6, "t.npy")
    assert hash(file) == hash(numbers)
    assert file.digest == numbers.digest
    assert np.array_equal(file.numbers, array.reshape(-1))
    assert not file.numbers.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "numbers", "data"),
    [
        ("i8", [-128, 127], "807f"),
        ("u8", [0, 255], "00ff"),
        ("i64", [-(1 << 63), (1 << 63) - 1], "0000000000000080ffffffffffffff7f"),
        ("u64", [(1 << 64) - 1], "ff" * 8),
        ("i32", [5.0, True], "0500000001000000"),
        ("i1", [True, 0], "0100"),
        ("fp16", [65504, -0.0], "ff7b0080"),
        ("bf16", [1.0, 3.3895313892515355e38, float("-inf")], "803f7f7f80ff"),
        ("fp32", [0.1, float("inf")], "cdcccc3d0000807f"),
        ("fp64", [1], "000000000000f03f"),
    ],
)
def test_numbers_have_the_bytes_of_their_type(tmp_path: Path, dtype: str, numbers: list[Any], data: str) -> None:
    written = [number_form(each) for each in numbers]
    contents = read(tmp_path, {"buffer": "T", "dtype": dtype, "values": written}).given()["T"]
    assert contents.data.hex() == data
    again = read(tmp_path, {"buffer": "T", "dtype": dtype, "values": contents.manifest_form()})
    assert again.given()["T"] == contents


def test_patterns_of_a_float_may_be_in_an_unsigned_file(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([0x3F80, 0x7FC1], np.uint16))
    contents = read(tmp_path, {"buffer": "T", "dtype": "bf16", "values": "t.npy"}).given()["T"]
    assert contents.data.hex() == "803fc17f"


_TYPES = "i1, i8, u8, i16, u16, i32, u32, i64, u64, fp16, bf16, fp32, fp64"
_OUTSIDE = "which lies outside the manifest's folder; copy the file into it"
_NO_NPY = "which is no .npy file; write them with numpy.save"
_MISSING = "which does not exist in the manifest's folder"
_FLAT = "which is no number; give one flat list of numbers"
_PLAIN_FORM = "not plain numbers; convert them before numpy.save"
_INT32 = "store int32 (or uint32, its patterns)"


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ({"dtype": "i32", "values": [1, 2.5]}, "hold 2.5 at index 1, which does not fit i32"),
        ({"dtype": "i32", "values": ["nan"]}, "hold 'nan' at index 0, " + _FLAT),
        ({"dtype": "i64", "values": ["inf"]}, "hold 'inf' at index 0, " + _FLAT),
        ({"dtype": "i32", "values": [1 << 31]}, "hold 2147483648 at index 0, which does not fit i32"),
        ({"dtype": "u32", "values": [-1]}, "hold -1 at index 0, which does not fit u32"),
        ({"dtype": "i1", "values": [2]}, "hold 2 at index 0, which does not fit i1"),
        ({"dtype": "fp16", "values": [65520]}, "hold 65520 at index 0, which does not fit fp16"),
        ({"dtype": "bf16", "values": [3.4e38]}, "hold 3.4e+38 at index 0, which does not fit bf16"),
        ({"dtype": "fp32", "values": [1e39]}, "hold 1e+39 at index 0, which does not fit fp32"),
        ({"dtype": "i32", "values": ["1"]}, "hold '1' at index 0, " + _FLAT),
        ({"dtype": "i32", "values": [[1]]}, "hold [1] at index 0, " + _FLAT),
        ({"dtype": "i32", "values": [None]}, "hold None at index 0, " + _FLAT),
        ({"dtype": "i32", "values": []}, "are an empty list; omit them"),
        ({"dtype": "i32", "values": 5}, "are of the type int; give the name of a .npy file or a list of numbers"),
        ({"dtype": "i32", "values": {}}, "are of the type dict; give the name of a .npy file or a list of numbers"),
        ({"values": [1]}, "have no dtype; state one of " + _TYPES),
        ({"dtype": "fp8e5", "values": [1]}, "have the dtype fp8e5; state one of " + _TYPES),
        ({"dtype": "i32", "values": "t.bin"}, "are named as 't.bin', " + _NO_NPY),
        ({"dtype": "i32", "values": "t\0.npy"}, "are named as 't\\x00.npy', " + _NO_NPY),
        ({"dtype": "i32", "values": "none.npy"}, "are named as none.npy, " + _MISSING),
        ({"dtype": "i32", "values": "../out.npy"}, "are named as ../out.npy, " + _OUTSIDE),
        ({"dtype": "i32", "values": "/out.npy"}, "are named as /out.npy, " + _OUTSIDE),
    ],
)  # fmt: skip
def test_what_is_no_contents_is_refused(tmp_path: Path, argument: dict[str, Any], sentence: str) -> None:
    found = refusal(tmp_path, {"buffer": "T", **argument})
    assert found == f".args.1: the values of the buffer T {sentence}"


def npy(array: npt.NDArray[Any]) -> bytes:
    import io

    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


_HOLDS = "are in t.npy, which holds {} bytes of elements where its header says {}"
_COLUMNS = "are in t.npy, which is stored column by column (Fortran order); save numpy.ascontiguousarray of it"
_ARRAY = "in t.npy do not fit: the array holds "
_PLAIN = np.arange(6, dtype=np.int32)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (npy(_PLAIN.astype(np.int64)), _ARRAY + "int64, and the launch says i32: " + _INT32),
        (npy(_PLAIN.astype(">i4")), f"{_ARRAY}int32 in the byte order of another machine: {_INT32} in this one's"),
        (npy(_PLAIN[:0]), "in t.npy do not fit: the array is empty"),
        (npy(np.asfortranarray(_PLAIN.reshape(2, 3))), _COLUMNS),
        (npy(_PLAIN)[:-1], _HOLDS.format(23, 24)),
        (npy(_PLAIN) + b"\0", _HOLDS.format(25, 24)),
        (npy(_PLAIN).replace(b"(6,), }     ", b"(66666666,)}"), _HOLDS.format(24, 266666664)),
        (npy(_PLAIN).replace(b"(6,), }", b"(-6,),}"), _HOLDS.format(24, -24)),
        (pickle.dumps([1, 2]), None),
        (b"", None),
        (b"\x93NUMPY", None),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, None),
        (npy(_PLAIN).replace(b"'<i4'", b"'|O' "), "are in t.npy, which holds object, " + _PLAIN_FORM),
        (npy(np.zeros(2, dtype=[("a", np.int32)])), "are in t.npy, which holds [('a', '<i4')], " + _PLAIN_FORM),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, data: bytes, sentence: str | None) -> None:
    (tmp_path / "t.npy").write_bytes(data)
    found = refusal(tmp_path, {"buffer": "T", "dtype": "i32", "values": "t.npy"})
    head = ".args.1: the values of the buffer T "
    if sentence is None:
        assert found.startswith(f"{head}are in t.npy, which is no .npy file of plain numbers (")
        assert found.endswith("); use numpy.save")
    else:
        assert found == head + sentence


def test_a_pickled_object_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([_Harmful()], dtype=object), allow_pickle=True)
    assert "holds object" in refusal(tmp_path, {"buffer": "T", "dtype": "i32", "values": "t.npy"})


class _Harmful:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


def test_a_boolean_file_with_another_byte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.npy").write_bytes(npy(np.array([True, False]))[:-1] + b"\2")
    found = refusal(tmp_path, {"buffer": "T", "dtype": "i1", "values": "t.npy"})
    assert found.endswith("in t.npy do not fit: the array holds 2, and an i1 is 0 or 1")


def test_a_link_out_of_the_folder_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    (folder / "dir.npy").mkdir(parents=True)
    np.save(tmp_path / "t.npy", _PLAIN)
    (folder / "link.npy").symlink_to(tmp_path / "t.npy")
    (folder / "loop.npy").symlink_to(folder / "loop.npy")
    os.mkfifo(folder / "pipe.npy")
    argument = {"buffer": "T", "dtype": "i32"}
    assert refusal(folder, {**argument, "values": "link.npy"}).endswith(
        "outside the manifest's folder; copy the file into it"
    )
    assert refusal(folder, {**argument, "values": "dir.npy"}).endswith("is not a file in the manifest's folder")
    assert refusal(folder, {**argument, "values": "pipe.npy"}).endswith("is not a file in the manifest's folder")
    assert "loop.npy" in refusal(folder, {**argument, "values": "loop.npy"})


def test_a_huge_tensor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_contents, "MAXIMUM_BYTES", 16)
    np.save(tmp_path / "t.npy", _PLAIN)
    argument = {"buffer": "T", "dtype": "i32"}
    assert refusal(tmp_path, {**argument, "values": "t.npy"}).endswith("have 0 MiB; the limit is 0 MiB")
    assert refusal(tmp_path, {**argument, "values": [0] * 5}).endswith("have more than 0 MiB")
    (tmp_path / "t.npy").write_bytes(npy(np.zeros(5000, np.int32)))
    assert refusal(tmp_path, {**argument, "values": "t.npy"}).endswith("has 0 MiB; the limit is 0 MiB")


def test_contents_are_given_once_for_all_arguments_of_a_buffer(tmp_path: Path) -> None:
    one = {"buffer": "T", "dtype": "i32", "values": [1, 2]}
    given = read(tmp_path, one, {"buffer": "T", "dtype": "i32", "offset": 4}).given()
    assert list(given) == ["T"]
    same = {"buffer": "T", "dtype": "u32", "offset": 4, "values": [1, 2]}
    assert read(tmp_path, one, same).given() == given
    for other in ([1, 3], [1, 2, 0]):
        found = refusal(tmp_path, one, {**same, "values": other})
        assert found == (
            ": two arguments give the buffer T different values: give them once, or give buffers of different contents "
            "different names"
        )


def test_a_tensor_map_may_give_the_contents_of_its_buffer(tmp_path: Path) -> None:
    tensor = {"buffer": "T", "dtype": "i32", "shape": [2, 4], "strides": [4, 1], "block": [1, 4]}
    launch = read(tmp_path, {"tensor_map": {**tensor, "values": [1, 2]}})
    assert launch.given()["T"].data == np.array([1, 2], np.int32).tobytes()
    written_again = read(tmp_path, launch.args[1].short())
    assert written_again == launch
    found = refusal(
        tmp_path, {"tensor_map": {**tensor, "values": [1, 2]}}, {"buffer": "T", "dtype": "i32", "values": [1]}
    )
    assert "different values" in found
    assert refusal(tmp_path, {"tensor_map": {**tensor, "values": [1.5]}}).endswith("which does not fit i32")


def test_only_a_buffer_has_contents(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"buffer": None, "values": [1]}).endswith(
        "the null pointer has no contents: remove `values`, or name a buffer"
    )
    assert "an argument is a buffer" in refusal(tmp_path, {"i32": 1, "values": [1]})


def test_a_launch_with_contents_is_a_value(tmp_path: Path) -> None:
    def launch(*numbers: int) -> Launch:
        return Launch(
            file="a", grid=(1, 1, 1), args=(Argument(kind="buffer", buffer="T", dtype="i32", values=numbers),)
        )

    assert launch(1, 2) == launch(1, 2)
    assert hash(launch(1, 2)) == hash(launch(1, 2))
    assert launch(1, 2) != launch(1, 3)
    assert repr(launch(1, 2)) != repr(launch(1, 3))
    assert launch(1, 2).model_dump_json() != launch(1, 3).model_dump_json()
    assert pickle.loads(pickle.dumps(launch(1, 2))) == launch(1, 2)
    array = np.array([1, 2], np.int32)
    made = Launch(file="a", grid=(1, 1, 1), args=(Argument(kind="buffer", buffer="T", dtype="i32", values=array),))
    array[0] = 9
    assert made == launch(1, 2)
    assert Argument.model_validate(made.args[0].short()) == made.args[0]


def test_a_file_is_named_by_a_manifest_only() -> None:
    with pytest.raises(ValueError, match="no manifest says in which folder; give an array"):
        Argument(kind="buffer", buffer="T", dtype="i32", values="t.npy")


def test_contents_show_their_digest_and_not_their_bytes() -> None:
    contents = TensorContents(bytes(1 << 16), "i32")
    assert repr(contents) == f"TensorContents(16384 i32, digest {contents.digest})"
