"""A ctypes binding of cuBLASLt, loaded by path: query its heuristic and run the result.

A row-major C = A B is passed as the column-major C' = B' A': the library's A is our B, and its m is our n.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitwise_cublas_profiles.query import (
    COMPUTE,
    EPILOGUES,
    FP8,
    TYPES,
    Answer,
    Configuration,
    CublasError,
    GemmQuery,
    HeuristicResult,
)

_STATUS = {
    1: "it is not initialised (no GPU, or no driver for this library)",
    3: "memory could not be allocated",
    7: "an argument is not valid",
    8: "this GPU's architecture does not support the query",
    11: "access to GPU memory failed",
    13: "the computation failed on the GPU",
    14: "an internal operation failed",
    15: "the query is not supported",
    16: "its license forbids it",
}

_NOT_SUPPORTED = 15

# cublasLtMatmulDescAttributes_t
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS = 3, 4, 7, 8
_SCALE_A, _SCALE_B, _FAST_ACCUMULATION, _BIAS_TYPE = 17, 18, 25, 26
_SCALE_MODE_A, _SCALE_MODE_B = 31, 32
# cublasLtMatmulMatrixScale_t, by the rows or columns that share the scale of 128 values of k
_BLOCK_SCALES = {1: 4, 128: 5}
# cublasLtMatrixLayoutAttribute_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
# cublasLtMatmulPreferenceAttributes_t
_WORKSPACE, _REDUCTIONS, _ALIGNMENT = 1, 3, 5
_OPERATION = {False: 0, True: 1}
_FP16_ONE = 0x3C00

# cublasLtMatmulAlgoConfigAttributes_t, in the order of the fields of Configuration.
_ATTRIBUTES: tuple[tuple[str, int, type[Any]], ...] = (
    ("algorithm", 0, c_int32),
    ("tile", 1, c_uint32),
    ("stages", 6, c_uint32),
    ("split_k", 2, c_int32),
    ("reduction", 3, c_uint32),
    ("swizzle", 4, c_uint32),
    ("custom", 5, c_uint32),
    ("inner_shape", 7, c_uint16),
    ("cluster_shape", 8, c_uint16),
)


# cublasLtMatmulAlgoCapAttributes_t
_CAPABILITIES: dict[str, tuple[int, type[Any], int]] = {
    "split_k": (0, c_int32, 1),
    "reductions": (1, c_uint32, 1),
    "tiles": (6, c_uint32, 1024),
    "customs": (7, c_int32, 1),
    "stages": (13, c_uint32, 128),
}


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", c_uint64 * 8),)


class _Result(ctypes.Structure):
    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@dataclass(frozen=True, slots=True)
class Pointers:
    """Device addresses of the operands, the output and a workspace of at least the size that the heuristic result
    needs.

    `bias` has n elements. `scale_a` and `scale_b` are fp32 scale factors of fp8 operands. 0 means absent.
    """

    a: int
    b: int
    c: int
    workspace: int = 0
    bias: int = 0
    scale_a: int = 0
    scale_b: int = 0


def find_library(path: str | Path | None = None) -> Path:
    """The library at a path, or the one in the wheel that the installed PyTorch requires.

    Raises CublasError.
    """
    if path is not None:
        found = Path(path)
        if found.is_dir():
            found = next(iter(sorted(found.glob("libcublasLt.so*"))), found / "libcublasLt.so")
        if not found.is_file():
            raise CublasError(f"{found}: there is no such library; give the path of a libcublasLt.so")
        return found
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            candidates = [each for each in sorted(Path(folder).glob("**/libcublasLt.so.*")) if each.is_file()]
            if candidates:
                return candidates[-1]
    raise CublasError(
        "no cuBLASLt is installed in this Python environment; give the path of a libcublasLt.so with --library"
    )


class Library:
    """A loaded cuBLASLt and its handle, on the GPU that is current in this thread. Not thread-safe."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = find_library(path)
        try:
            self._functions = ctypes.CDLL(str(self.path))
            self._functions.cublasLtGetVersion.restype = c_size_t
            self._functions.cublasLtCreate.restype = c_int
        except (OSError, AttributeError) as error:
            raise CublasError(f"{self.path}: cannot be loaded as cuBLASLt ({error})") from None
        self.version_number = int(self._functions.cublasLtGetVersion())
        self._handle = c_void_p()
        self._call("cublasLtCreate", byref(self._handle))

    @property
    def version(self) -> str:
        """Version as major.minor.patch, for example 13.1.0."""
        major, rest = divmod(self.version_number, 10000)
        return f"{major}.{rest // 100}.{rest % 100}"

    def close(self) -> None:
        """Destroy the handle. The shared library stays loaded."""
        if self._handle.value:
            self._call("cublasLtDestroy", self._handle)
            self._handle = c_void_p()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def heuristic(self, query: GemmQuery, count: int = 1) -> tuple[HeuristicResult, ...]:
        """At most `count` heuristic results, best first. Raises CublasError if there is none."""
        nowhere = Pointers(0, 0, 0)
        with self._descriptors(query, nowhere) as (description, layouts), self._preference(query) as preference:
            results = (_Result * count)()
            returned = c_int(0)
            a, b, c = layouts
            self._call(
                "cublasLtMatmulAlgoGetHeuristic", self._handle, description, a, b, c, c, preference, c_int(count),
                results, byref(returned), about=query,
            )  # fmt: skip
            found = tuple(self._heuristic_result(each, query) for each in results[: returned.value] if each.state == 0)
        if not found:
            raise CublasError(f"cuBLASLt {self.version} offers no algorithm for {query.description}{_hint(query)}")
        return found

    def answers(self, query: GemmQuery, rows: Iterable[int]) -> Iterator[Answer | None]:
        """The first answer to a query without a batch for each number of rows of A and C, None if there is none.

        As `heuristic` on the query with that m. The operation, the preference and the layout of B do not depend on the
        rows and are made once. Raises CublasError.
        """
        known: dict[bytes, Answer] = {}
        result, returned = _Result(), c_int(0)
        with self._descriptors(query, Pointers(0, 0, 0)) as (description, layouts), self._preference(query) as wish:
            for m in rows:
                shape = (query.k, m) if query.transpose_a else (m, query.k)
                mine: list[c_void_p] = []
                try:
                    mine.append(self._layout(query.a, shape, query.ld_a or shape[1], 1, None))
                    mine.append(self._layout(query.c, (m, query.n), query.ld_c or query.n, 1, None))
                    status = self._functions.cublasLtMatmulAlgoGetHeuristic(
                        self._handle, description, layouts[0], *mine, mine[1], wish, c_int(1), byref(result),
                        byref(returned),
                    )  # fmt: skip
                finally:
                    for layout in mine:
                        self._call("cublasLtMatrixLayoutDestroy", layout)
                if status != _NOT_SUPPORTED:
                    self._check("cublasLtMatmulAlgoGetHeuristic", status, query)
                if status or not returned.value or result.state:
                    yield None
                    continue
                key = bytes(result.algorithm) + int(result.workspace).to_bytes(8, "little")
                if key not in known:
                    found = self._heuristic_result(result, query)
                    known[key] = Answer(found.configuration, found.workspace)
                yield known[key]

    def algorithms(self, query: GemmQuery, most: int = 256) -> tuple[int, ...]:
        """The ALGO_IDs available for a query's types, independent of the heuristic. Raises CublasError."""
        found, returned = (c_int * most)(), c_int(0)
        self._call(
            "cublasLtMatmulAlgoGetIds", self._handle, *self._types(query), c_int(most), found, byref(returned),
            about=query,
        )  # fmt: skip
        return tuple(found[: returned.value])

    def capabilities(self, query: GemmQuery, algorithm: int) -> dict[str, tuple[int, ...]]:
        """The capabilities of an algorithm: tiles, stages, the largest custom option, split-K support and reduction
        schemes.

        Raises CublasError.
        """
        record, result = self._initialised(query, algorithm), {}
        for name, (code, form, count) in _CAPABILITIES.items():
            values, written = (form * count)(), c_size_t(0)
            self._call(
                "cublasLtMatmulAlgoCapGetAttribute", byref(record), c_int(code), values,
                c_size_t(ctypes.sizeof(values)), byref(written), about=query,
            )  # fmt: skip
            result[name] = tuple(int(each) for each in values[: written.value // ctypes.sizeof(form)])
        return result

    def check_configuration(self, query: GemmQuery, configuration: Configuration) -> HeuristicResult:
        """A result with a configuration chosen by the caller, for measurements. Raises CublasError if the library
        rejects it.
        """
        record = self._initialised(query, configuration.algorithm)
        for name, code, form in _ATTRIBUTES:
            value = form(getattr(configuration, name))
            # AlgoInit has set the algorithm, and every other attribute to 0.
            if code and value.value:
                self._call(
                    "cublasLtMatmulAlgoConfigSetAttribute", byref(record), c_int(code), byref(value),
                    c_size_t(ctypes.sizeof(value)), about=query,
                )  # fmt: skip
        result = _Result()
        with self._descriptors(query, Pointers(0, 0, 0)) as (description, (a, b, c)):
            self._call(
                "cublasLtMatmulAlgoCheck", self._handle, description, a, b, c, c, byref(record), byref(result),
                about=query,
            )  # fmt: skip
        # AlgoCheck fills in the state and the workspace but not the algorithm.
        result.algorithm = record
        return self._heuristic_result(result, query)

    def _types(self, query: GemmQuery) -> tuple[c_int, ...]:
        kinds = (TYPES[query.b].code, TYPES[query.a].code, TYPES[query.c].code, TYPES[query.c].code)
        return (c_int(COMPUTE[query.compute]), c_int(TYPES[query.scale_type].code), *map(c_int, kinds))

    def _initialised(self, query: GemmQuery, algorithm: int) -> _Algorithm:
        record = _Algorithm()
        self._call(
            "cublasLtMatmulAlgoInit", self._handle, *self._types(query), c_int(algorithm), byref(record), about=query
        )
        return record

    def run(self, query: GemmQuery, result: HeuristicResult | None, pointers: Pointers, stream: int = 0) -> None:
        """Enqueue the GEMM on a stream with a heuristic result; None lets the library choose.

        The pointers must satisfy the query's shapes, strides and alignment. Raises CublasError.
        """
        if result is not None and result.workspace and not pointers.workspace:
            raise CublasError(f"{query.description} needs a workspace of {result.workspace} bytes; pass one")
        algorithm = None
        if result is not None:
            algorithm = _Algorithm.from_buffer_copy(result.opaque)
        one, zero = (c_uint16(_FP16_ONE), c_uint16(0)) if query.scale_type == "fp16" else (c_float(1), c_float(0))
        with self._descriptors(query, pointers) as (description, (a, b, c)):
            self._call(
                "cublasLtMatmul", self._handle, description, byref(one), c_void_p(pointers.b), a, c_void_p(pointers.a),
                b, byref(zero), c_void_p(pointers.c), c, c_void_p(pointers.c), c,
                byref(algorithm) if algorithm is not None else None, c_void_p(pointers.workspace),
                c_size_t((result.workspace if result else query.workspace) if pointers.workspace else 0),
                c_void_p(stream), about=query,
            )  # fmt: skip

    @contextmanager
    def _descriptors(self, query: GemmQuery, pointers: Pointers) -> Iterator[tuple[c_void_p, Sequence[c_void_p]]]:
        """The library's own descriptors of a query: the operation, and the layouts of its A, B and C."""
        description = c_void_p()
        layouts: list[c_void_p] = []
        self._call(
            "cublasLtMatmulDescCreate", byref(description), c_int(COMPUTE[query.compute]),
            c_int(TYPES[query.scale_type].code),
        )  # fmt: skip
        try:
            attributes: list[tuple[int, Any]] = [
                (_TRANSPOSE_A, c_int32(_OPERATION[query.transpose_b])),
                (_TRANSPOSE_B, c_int32(_OPERATION[query.transpose_a])),
                (_EPILOGUE, c_uint32(EPILOGUES[query.epilogue])),
            ]
            if "bias" in query.epilogue:
                attributes.append((_BIAS_TYPE, c_int32(TYPES[query.c].code)))
                # The heuristic requires a non-null pointer and never dereferences it.
                attributes.append((_BIAS, c_void_p(pointers.bias or 256)))
            if query.a in FP8:
                attributes.append((_FAST_ACCUMULATION, ctypes.c_int8(query.fast_accumulation)))
                # As for a bias, the heuristic requires an address of scales of blocks.
                nowhere = 256 if query.blocks else 0
                attributes += [
                    (code, c_void_p(address or nowhere))
                    for code, address in ((_SCALE_A, pointers.scale_b), (_SCALE_B, pointers.scale_a))
                    if address or nowhere
                ]
            if query.blocks is not None:
                rows, columns = query.blocks
                attributes.append((_SCALE_MODE_A, c_int32(_BLOCK_SCALES[columns])))
                attributes.append((_SCALE_MODE_B, c_int32(_BLOCK_SCALES[rows])))
            for code, value in attributes:
                self._set("cublasLtMatmulDescSetAttribute", description, code, value)
            for form, shape, leading, stride in (
                (query.b, query.stored_b, query.ld_b, query.stride_b),
                (query.a, query.stored_a, query.ld_a, query.stride_a),
                (query.c, (query.m, query.n), query.ld_c, query.stride_c),
            ):
                layouts.append(self._layout(form, shape, leading or shape[1], query.batch, stride))
            yield description, layouts
        finally:
            for layout in layouts:
                self._call("cublasLtMatrixLayoutDestroy", layout)
            self._call("cublasLtMatmulDescDestroy", description)

    def _layout(self, form: str, shape: tuple[int, int], leading: int, batch: int, stride: int | None) -> c_void_p:
        """The layout of a row-major matrix of that shape, which is the transpose in the library's convention."""
        layout = c_void_p()
        rows, columns = shape
        self._call(
            "cublasLtMatrixLayoutCreate", byref(layout), c_int(TYPES[form].code), c_uint64(columns), c_uint64(rows),
            c_int64(leading),
        )  # fmt: skip
        if batch > 1:
            self._set("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_COUNT, c_int32(batch))
            offset = leading * rows if stride is None else stride
            self._set("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_STRIDE, c_int64(offset))
        return layout

    @contextmanager
    def _preference(self, query: GemmQuery) -> Iterator[c_void_p]:
        preference = c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", byref(preference))
        try:
            self._set("cublasLtMatmulPreferenceSetAttribute", preference, _WORKSPACE, c_uint64(query.workspace))
            if query.reductions is not None:
                self._set("cublasLtMatmulPreferenceSetAttribute", preference, _REDUCTIONS, c_uint32(query.reductions))
            a, b, c = query.alignment
            for place, alignment in enumerate((b, a, c, c)):
                self._set("cublasLtMatmulPreferenceSetAttribute", preference, _ALIGNMENT + place, c_uint32(alignment))
            yield preference
        finally:
            self._call("cublasLtMatmulPreferenceDestroy", preference)

    def _heuristic_result(self, result: _Result, query: GemmQuery) -> HeuristicResult:
        values: dict[str, int] = {}
        written = c_size_t(0)
        for name, code, form in _ATTRIBUTES:
            value = form(0)
            self._call(
                "cublasLtMatmulAlgoConfigGetAttribute", byref(result.algorithm), c_int(code), byref(value),
                c_size_t(ctypes.sizeof(value)), byref(written), about=query,
            )  # fmt: skip
            values[name] = int(value.value)
        return HeuristicResult(
            Configuration(**values), int(result.workspace), float(result.waves), bytes(result.algorithm)
        )

    def _set(self, function: str, record: c_void_p, code: int, value: Any) -> None:
        self._call(function, record, c_int(code), byref(value), c_size_t(ctypes.sizeof(value)))

    def _call(self, name: str, *arguments: Any, about: GemmQuery | None = None) -> None:
        self._check(name, getattr(self._functions, name)(*arguments), about)

    def _check(self, name: str, status: int, about: GemmQuery | None) -> None:
        """Raise CublasError for the status of a failed call."""
        if status:
            why = _STATUS.get(status, f"status {status}")
            subject = f" for {about.description}{_hint(about)}" if about else ""
            raise CublasError(f"{name} of cuBLASLt {self.version} ({self.path.name}) failed{subject}: {why}")


def _hint(query: GemmQuery) -> str:
    """A suggestion for a query that the library cannot serve."""
    if query.a in FP8 and (query.transpose_a or not query.transpose_b):
        return "; before sm_100 fp8 is multiplied only with A as [m, k] and B as [n, k]"
    if query.a in FP8 and (query.k % 16 or query.n % 16):
        return "; fp8 needs k and n to be multiples of 16"
    return ""
