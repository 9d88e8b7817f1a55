from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bitwise_cublas_profiles.commands import app
from bitwise_cublas_profiles.library import Library, find_library
from bitwise_cublas_profiles.query import CublasError, GemmQuery, gemm_query


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, "k is 0; it must be at least 1"),
        ({"m": 1 << 31}, "2147483648 x 3 x 4: a dimension of 2**31 or more is not measured"),
        ({"a": "fp64"}, "'fp64' is not an element type of a; choose one of fp32, fp16, bf16, e4m3, e5m2"),
        ({"compute": "tf32"}, "tf32 needs fp32 operands, not fp16 and fp16"),
        ({"compute": "fp16", "c": "fp32"}, "fp16 accumulation needs matrices of fp16, not fp16, fp16 and fp32"),
        ({"epilogue": "tanh"}, "'tanh' is not an epilogue; choose one of none, relu, bias, relu_bias, gelu, gelu_bias"),
        ({"workspace": -1}, "the workspace limit is -1 bytes; it must be 0 or more"),
        ({"ld_b": 2}, "the leading dimension of b is 2; its 4 rows of 3 elements would overlap"),
        ({"ld_b": 3, "transpose_b": True}, "the leading dimension of b is 3; its 3 rows of 4 elements would overlap"),
    ],
)
def test_invalid_requests(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(CublasError) as raised:
        GemmQuery(**{"m": 2, "n": 3, "k": 4, **options})  # type: ignore[arg-type]
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("fp16", "2x3x4 fp16 NN to fp16"), ("bf16", "2x3x4 bf16 NN to bf16"), ("e4m3", "2x3x4 e4m3 NT to bf16"),
        ("e5m2", "2x3x4 e5m2 x e4m3 NT to bf16"), ("tf32", "2x3x4 tf32 NN to fp32"), ("fp32", "2x3x4 fp32 NN to fp32"),
    ],
)  # fmt: skip
def test_the_usual_query_of_a_type(dtype: str, words: str) -> None:
    assert gemm_query(2, 3, 4, dtype).description == words


def test_a_missing_library() -> None:
    with pytest.raises(CublasError, match=r"^/nowhere/lib\.so: there is no such library; give the path of a libcublas"):
        find_library("/nowhere/lib.so")


def test_a_library_other_than_cublaslt(tmp_path: Path) -> None:
    text = tmp_path / "libcublasLt.so.13"
    text.write_text("no library")
    with pytest.raises(CublasError, match="cannot be loaded as cuBLASLt"):
        Library(tmp_path)
    with pytest.raises(CublasError, match="cannot be loaded as cuBLASLt"):
        Library(loaded_libm())


def loaded_libm() -> str:
    """The path of the loaded libm."""
    ctypes.CDLL(ctypes.util.find_library("m"))
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(line.split()[-1] for line in lines if "/libm" in line)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["audit", "1", "8"], "give one shape, M N K, or a file of them with --shapes"),
        (["audit", "1", "8", "16", "--shapes", "x"], "give one shape, M N K, or a file of them with --shapes"),
        (["audit", "1", "8", "16", "--dtype", "int8"],
         "'int8' is not an operand type; choose one of fp16, bf16, e4m3, e5m2, tf32, fp32"),
        (["ask", "1", "8", "16", "--library", "/nowhere"],
         "/nowhere: there is no such library; give the path of a libcublasLt.so"),
        (["ask", "1", "8", "16", "--leading", "16,8"],
         "--leading: '16,8' is not of the form A,B,C; each is a number or -"),
        (["ask", "1", "8", "16", "--leading", "15,-,-"],
         "the leading dimension of a is 15; its 1 rows of 16 elements would overlap"),
        (["ask", "1", "8", "16", "--transposes", "XX"], "--transposes: 'XX' is not one of NN, NT, TN and TT"),
    ],
)  # fmt: skip
def test_mistakes_on_the_command_line(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {sentence}\n")
