"""The calls that reach the library, on a fake that is compiled here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bitwise_cublas_profiles.commands import app
from bitwise_cublas_profiles.library import Library, Pointers
from bitwise_cublas_profiles.query import Answer, Configuration, CublasError, GemmQuery, gemm_query

COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the stand-in is compiled with cc")


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "libcublasLt.so.13"
    source = Path(__file__).parent / "stand_in.c"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture
def library(stand_in: Path) -> Iterator[Library]:
    with Library(stand_in) as loaded:
        yield loaded
    assert ctypes.c_int.in_dll(ctypes.CDLL(str(stand_in)), "alive").value == 0


def seen(library: Library) -> list[int]:
    return list((ctypes.c_int64 * 32).in_dll(ctypes.CDLL(str(library.path)), "seen"))


def test_the_version_has_three_parts(library: Library) -> None:
    assert (library.version, library.version_number) == ("13.1.0", 130100)


def test_a_row_major_product_is_passed_as_its_transpose(library: Library) -> None:
    library.heuristic(GemmQuery(5, 7, 11, "fp16", "bf16", "fp32", workspace=99, alignment=(16, 32, 64)))
    # The library's A is our B, [k, n] row-major: n rows and k columns of leading dimension n.
    assert seen(library)[:18] == [14, 7, 11, 7, 1, 0, 2, 11, 5, 11, 1, 0, 0, 7, 5, 7, 1, 0]
    assert seen(library)[18:25] == [68, 0, 0, 0, 1, 0, 0]
    assert seen(library)[26:31] == [99, 32, 16, 64, 64]


def test_stored_transposes_strides_and_batches(library: Library) -> None:
    library.heuristic(
        GemmQuery(5, 7, 11, transpose_a=True, transpose_b=True, batch=3, ld_a=8, ld_b=16, ld_c=24, stride_a=0)
    )
    assert seen(library)[:18] == [2, 11, 7, 16, 3, 112, 2, 5, 11, 8, 3, 0, 2, 7, 5, 24, 3, 120]
    assert seen(library)[20:22] == [1, 1]


def test_tf32_epilogues_and_fp8(library: Library) -> None:
    library.heuristic(gemm_query(5, 7, 11, "tf32", epilogue="gelu_bias"))
    assert seen(library)[18:25] == [77, 0, 0, 0, 36, 0, 0]
    assert seen(library)[25] != 0
    library.heuristic(gemm_query(5, 7, 11, "e5m2", fast_accumulation=True, epilogue="bias"))
    assert [seen(library)[place] for place in (0, 6, 12)] == [28, 29, 14]
    assert seen(library)[20:25] == [1, 0, 4, 1, 14]


def test_every_attribute_is_read_back(library: Library) -> None:
    first, second = library.heuristic(gemm_query(5, 7, 11), 2)
    assert first.configuration == Configuration(
        algorithm=100, tile=101, stages=106, split_k=102, reduction=103, swizzle=104, custom=105, inner_shape=107,
        cluster_shape=108,
    )  # fmt: skip
    assert (first.workspace, first.waves) == (4096, 0.5)
    assert (second.configuration.algorithm, second.workspace) == (1100, 4097)
    assert second.opaque == b"".join((1000 + each).to_bytes(8, "little") for each in range(8))


def test_the_heuristic_result_is_what_runs(library: Library) -> None:
    query = gemm_query(5, 7, 11)
    _, second = library.heuristic(query, 2)
    library.run(query, second, Pointers(a=1 << 40, b=2 << 40, c=3 << 40, workspace=4 << 40), stream=5)
    addresses = (ctypes.c_void_p * 6).in_dll(ctypes.CDLL(str(library.path)), "pointers")
    assert list(addresses) == [2 << 40, 1 << 40, 3 << 40, 3 << 40, 4 << 40, 5]
    assert seen(library)[26:28] == [4097, 1007]
    library.run(query, None, Pointers(1, 2, 3, 4))
    assert seen(library)[26:28] == [query.workspace, -1]


def test_a_result_that_needs_a_workspace_gets_one(library: Library) -> None:
    query = gemm_query(5, 7, 11)
    with pytest.raises(CublasError) as raised:
        library.run(query, library.heuristic(query)[0], Pointers(1, 2, 3))
    assert str(raised.value) == "5x7x11 fp16 NN to fp16 needs a workspace of 4096 bytes; pass one"


def test_a_configuration_of_the_caller(library: Library) -> None:
    query = gemm_query(5, 7, 11, "e5m2")
    # Compute and scale types, then the library's A, B, C and D: our B, A and twice C.
    assert library.algorithms(query) == (68, 0, 28, 29, 14, 14)
    assert library.capabilities(query, 13) == {
        "split_k": (0,), "reductions": (1,), "tiles": (1, 2, 13), "customs": (7,), "stages": (1, 2, 13),
    }  # fmt: skip
    given = Configuration(
        algorithm=13, tile=2, stages=0, split_k=4, reduction=3, swizzle=0, custom=10, inner_shape=0, cluster_shape=5
    )
    result = library.check_configuration(query, given)
    assert result.workspace == 640
    numbers = [int.from_bytes(result.opaque[place : place + 8], "little") for place in range(0, 64, 8)]
    assert numbers == [13, 2, 4, 3, 0, 10, 5, 0]
    with pytest.raises(CublasError, match=r"AlgoCheck of cuBLASLt 13\.1\.0 .* the query is not supported"):
        library.check_configuration(query, replace(given, custom=77))


def test_a_query_from_the_command_line(library: Library) -> None:
    options = ["--batch", "3", "--transposes", "TT", "--leading", "8,16,24", "--batch-strides", "0,-,-"]
    more = ["--alignment", "16,32,-", "--epilogue", "gelu_bias", "--workspace", "99", "--library", str(library.path)]
    done = CliRunner().invoke(app, ["ask", "5", "7", "11", *options, *more])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        "3 x 5x7x11 fp16 TT to fp16: algorithm=100 tile=101 stages=106 split_k=102 reduction=103 swizzle=104 "
        "custom=105 inner_shape=107 cluster_shape=108; workspace 4096 bytes\n"
    )
    assert seen(library)[:18] == [2, 11, 7, 16, 3, 112, 2, 5, 11, 8, 3, 0, 2, 7, 5, 24, 3, 120]
    assert seen(library)[20:23] == [1, 1, 36]
    assert seen(library)[26:31] == [99, 32, 16, 256, 256]


@pytest.mark.parametrize(
    ("n", "sentence"),
    [
        (1, "cublasLtMatmulAlgoGetHeuristic of cuBLASLt 13.1.0 (libcublasLt.so.13) failed for 5x1x11 fp16 NN to fp16: "
            "the query is not supported"),
        (2, "cuBLASLt 13.1.0 offers no algorithm for 5x2x11 fp16 NN to fp16"),
    ],
)  # fmt: skip
def test_rejections_are_sentences_and_release_everything(library: Library, n: int, sentence: str) -> None:
    with pytest.raises(CublasError) as raised:
        library.heuristic(gemm_query(5, n, 11))
    assert str(raised.value) == sentence


@pytest.mark.parametrize("transposed", [False, True])
def test_answers_over_rows_are_those_of_each_query(library: Library, transposed: bool) -> None:
    query = GemmQuery(1, 7, 11, "bf16", "bf16", "fp32", transpose_a=transposed, epilogue="bias", workspace=99)
    for m, answer in zip((5, 1, 9), library.answers(query, (5, 1, 9)), strict=True):
        asked = seen(library)[:31]
        (result,) = library.heuristic(replace(query, m=m))
        assert answer == Answer(result.configuration, result.workspace)
        assert asked == seen(library)[:31]


def test_rows_without_an_answer_and_failed_calls(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2):  # not supported, and no result
        assert list(library.answers(GemmQuery(1, n, 11), (1, 2))) == [None, None]
    monkeypatch.setattr(library, "_handle", ctypes.c_void_p())
    with pytest.raises(CublasError, match=r"cublasLtMatmulAlgoGetHeuristic of cuBLASLt .* an argument is not valid"):
        next(library.answers(GemmQuery(5, 7, 11), (5,)))
    monkeypatch.undo()
