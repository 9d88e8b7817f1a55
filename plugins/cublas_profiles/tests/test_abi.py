"""The real library's descriptors without a GPU: every attribute is set and read back.

Set BITWISE_CUBLASLT to the path of a libcublasLt.so to run these where none is installed beside this Python.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import replace

import pytest

from bitwise_cublas_profiles.library import Library, Pointers, find_library
from bitwise_cublas_profiles.query import DTYPES, EPILOGUES, CublasError, GemmQuery, gemm_query


@pytest.fixture(scope="session")
def library() -> Library:
    """The library without its handle, which needs a GPU."""
    try:
        path = find_library(os.environ.get("BITWISE_CUBLASLT"))
    except CublasError as error:
        pytest.skip(str(error))
    made = object.__new__(Library)
    made.path, made._functions = path, ctypes.CDLL(str(path))
    made._functions.cublasLtGetVersion.restype = c_size_t
    made.version_number, made._handle = made._functions.cublasLtGetVersion(), c_void_p()
    return made


def read_back(library: Library, function: str, record: c_void_p, code: int, form: type[ctypes.c_int32]) -> int:
    value, written = form(), c_size_t()
    library._call(function, record, ctypes.c_int(code), byref(value), c_size_t(ctypes.sizeof(value)), byref(written))
    assert written.value == ctypes.sizeof(value)
    return int(value.value)


def described(library: Library, query: GemmQuery) -> tuple[list[int], list[list[int]]]:
    """Transposes and epilogue, and rows, columns, leading dimension, batches and their stride of each layout."""
    with library._descriptors(query, Pointers(256, 512, 768, 1024, 1280, 1536, 1792)) as (record, layouts):
        operation = [read_back(library, "cublasLtMatmulDescGetAttribute", record, code, c_int32) for code in (3, 4, 7)]
        found = []
        for layout in layouts:
            forms = ((2, ctypes.c_uint64), (3, ctypes.c_uint64), (4, c_int64), (5, c_int32), (6, c_int64))
            found.append(
                [
                    read_back(library, "cublasLtMatrixLayoutGetAttribute", layout, code, form)  # type: ignore[arg-type]
                    for code, form in forms
                ]
            )
    return operation, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues_of_every_type(library: Library, dtype: str, epilogue: str) -> None:
    query = gemm_query(16, 32, 64, dtype, epilogue=epilogue)
    operation, layouts = described(library, query)
    assert operation == [int(query.transpose_b), 0, EPILOGUES[epilogue]]
    assert [each[:3] for each in layouts] == [
        [64, 32, 64] if query.transpose_b else [32, 64, 32], [64, 16, 64], [32, 16, 32],
    ]  # fmt: skip


def test_batches_strides_and_gaps(library: Library) -> None:
    query = gemm_query(5, 7, 11, batch=3, transpose_a=True, ld_a=8, ld_b=16, ld_c=24, stride_b=0)
    assert described(library, query) == (
        [0, 1, 1], [[7, 11, 16, 3, 0], [5, 11, 8, 3, 88], [7, 5, 24, 3, 120]],
    )  # fmt: skip


def test_preferences(library: Library) -> None:
    with library._preference(replace(gemm_query(5, 7, 11), workspace=4096, alignment=(16, 32, 64))) as wish:
        name = "cublasLtMatmulPreferenceGetAttribute"
        assert read_back(library, name, wish, 1, ctypes.c_uint64) == 4096  # type: ignore[arg-type]
        found = [read_back(library, name, wish, code, ctypes.c_uint32) for code in (5, 6, 7, 8)]  # type: ignore[arg-type]
    assert found == [32, 16, 64, 64]
