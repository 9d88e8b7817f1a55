"""cuBLASLt by ctypes, chosen by path: ask its heuristic, run what it answered.

Row-major C = A B goes in as the column-major C' = B' A': the library's A is our B, its m our n.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitwise_cublas_profiles.question import (
    COMPUTE,
    EPILOGUES,
    FP8,
    TYPES,
    Answer,
    Configuration,
    CublasError,
    Question,
)

_STATUS = {
    1: "it is not initialised (no GPU, or no driver for this library)",
    3: "memory could not be allocated",
    7: "an argument is not valid",
    8: "this GPU's architecture lacks what is asked",
    11: "access to GPU memory failed",
    13: "the computation failed on the GPU",
    14: "an internal operation failed",
    15: "it does not support what is asked",
    16: "its license forbids it",
}

# cublasLtMatmulDescAttributes_t
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS = 3, 4, 7, 8
_SCALE_A, _SCALE_B, _FAST_ACCUMULATION, _BIAS_TYPE = 17, 18, 25, 26
# cublasLtMatrixLayoutAttribute_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
# cublasLtMatmulPreferenceAttributes_t
_WORKSPACE, _ALIGNMENT = 1, 5
_OPERATION = {False: 0, True: 1}

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
    """Addresses in GPU memory: the operands, the output, and the workspace of at least what the answer needs.

    `bias` has n elements; `scale_a` and `scale_b` are fp32 numbers that fp8 operands are multiplied by.  0 is none.
    """

    a: int
    b: int
    c: int
    workspace: int = 0
    bias: int = 0
    scale_a: int = 0
    scale_b: int = 0


def find_library(path: str | Path | None = None) -> Path:
    """The library at a path; without one, the one in the wheel that the installed PyTorch requires.

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
    raise CublasError("no cuBLASLt is installed beside this Python; give the path of a libcublasLt.so with --library")


class Library:
    """One loaded cuBLASLt and its handle, on the GPU that is current in this thread.  Not for use in two threads."""

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
        """Major, minor and patch, as in 13.1.0."""
        major, rest = divmod(self.version_number, 10000)
        return f"{major}.{rest // 100}.{rest % 100}"

    def close(self) -> None:
        """Gives the handle back; the library stays loaded."""
        if self._handle.value:
            self._call("cublasLtDestroy", self._handle)
            self._handle = c_void_p()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, asked: Question, count: int = 1) -> tuple[Answer, ...]:
        """The heuristic's answers, best first, `count` at most.  Raises CublasError where there is none."""
        with self._described(asked, Pointers(0, 0, 0)) as (description, layouts), self._preference(asked) as wish:
            results = (_Result * count)()
            returned = c_int(0)
            a, b, c = layouts
            self._call(
                "cublasLtMatmulAlgoGetHeuristic", self._handle, description, a, b, c, c, wish, c_int(count), results,
                byref(returned), about=asked,
            )  # fmt: skip
            found = tuple(self._answer(each, asked) for each in results[: returned.value] if each.state == 0)
        if not found:
            raise CublasError(f"cuBLASLt {self.version} offers no algorithm for {asked.words}{_hint(asked)}")
        return found

    def algorithms(self, asked: Question, most: int = 256) -> tuple[int, ...]:
        """The ALGO_IDs that there are for a question's types, whatever the heuristic says.  Raises CublasError."""
        found, returned = (c_int * most)(), c_int(0)
        self._call(
            "cublasLtMatmulAlgoGetIds", self._handle, *self._types(asked), c_int(most), found, byref(returned),
            about=asked,
        )  # fmt: skip
        return tuple(found[: returned.value])

    def capabilities(self, asked: Question, algorithm: int) -> dict[str, tuple[int, ...]]:
        """What an algorithm may be configured with: tiles, stages, the largest custom option, split k, reductions.

        Raises CublasError.
        """
        record, result = self._initial(asked, algorithm), {}
        for name, (code, form, count) in _CAPABILITIES.items():
            values, written = (form * count)(), c_size_t(0)
            self._call(
                "cublasLtMatmulAlgoCapGetAttribute", byref(record), c_int(code), values,
                c_size_t(ctypes.sizeof(values)), byref(written), about=asked,
            )  # fmt: skip
            result[name] = tuple(int(each) for each in values[: written.value // ctypes.sizeof(form)])
        return result

    def configured(self, asked: Question, configuration: Configuration) -> Answer:
        """An answer with a configuration of one's own, for measurements.  Raises CublasError where it is refused."""
        record = self._initial(asked, configuration.algorithm)
        for name, code, form in _ATTRIBUTES:
            value = form(getattr(configuration, name))
            # The algorithm is what the record was made for, and attributes of 0 are what it has.
            if code and value.value:
                self._call(
                    "cublasLtMatmulAlgoConfigSetAttribute", byref(record), c_int(code), byref(value),
                    c_size_t(ctypes.sizeof(value)), about=asked,
                )  # fmt: skip
        result = _Result()
        with self._described(asked, Pointers(0, 0, 0)) as (description, (a, b, c)):
            self._call(
                "cublasLtMatmulAlgoCheck", self._handle, description, a, b, c, c, byref(record), byref(result),
                about=asked,
            )  # fmt: skip
        # The check fills in the state and the workspace, and leaves the record of the algorithm to the caller.
        result.algorithm = record
        return self._answer(result, asked)

    def _types(self, asked: Question) -> tuple[c_int, ...]:
        kinds = (TYPES[asked.b].code, TYPES[asked.a].code, TYPES[asked.c].code, TYPES[asked.c].code)
        return (c_int(COMPUTE[asked.compute]), c_int(TYPES["fp32"].code), *map(c_int, kinds))

    def _initial(self, asked: Question, algorithm: int) -> _Algorithm:
        record = _Algorithm()
        self._call(
            "cublasLtMatmulAlgoInit", self._handle, *self._types(asked), c_int(algorithm), byref(record), about=asked
        )
        return record

    def run(self, asked: Question, answer: Answer | None, pointers: Pointers, stream: int = 0) -> None:
        """Queues the product on a stream, exactly as answered; with None as the library itself chooses.

        The pointers must keep what the question states of shapes, strides and alignment.  Raises CublasError.
        """
        if answer is not None and answer.workspace and not pointers.workspace:
            raise CublasError(f"{asked.words} was answered with a workspace of {answer.workspace} bytes; give one")
        algorithm = None
        if answer is not None:
            algorithm = _Algorithm.from_buffer_copy(answer.opaque)
        one, zero = c_float(1), c_float(0)
        with self._described(asked, pointers) as (description, (a, b, c)):
            self._call(
                "cublasLtMatmul", self._handle, description, byref(one), c_void_p(pointers.b), a, c_void_p(pointers.a),
                b, byref(zero), c_void_p(pointers.c), c, c_void_p(pointers.c), c,
                byref(algorithm) if algorithm is not None else None, c_void_p(pointers.workspace),
                c_size_t((answer.workspace if answer else asked.workspace) if pointers.workspace else 0),
                c_void_p(stream), about=asked,
            )  # fmt: skip

    @contextmanager
    def _described(self, asked: Question, pointers: Pointers) -> Iterator[tuple[c_void_p, Sequence[c_void_p]]]:
        """The library's own records of a question: the operation, and the layouts of its A, B and C."""
        description = c_void_p()
        layouts: list[c_void_p] = []
        self._call(
            "cublasLtMatmulDescCreate", byref(description), c_int(COMPUTE[asked.compute]), c_int(TYPES["fp32"].code)
        )
        try:
            described: list[tuple[int, Any]] = [
                (_TRANSPOSE_A, c_int32(_OPERATION[asked.transpose_b])),
                (_TRANSPOSE_B, c_int32(_OPERATION[asked.transpose_a])),
                (_EPILOGUE, c_uint32(EPILOGUES[asked.epilogue])),
            ]
            if "bias" in asked.epilogue:
                described.append((_BIAS_TYPE, c_int32(TYPES[asked.c].code)))
                # The heuristic wants to see a pointer, and never reads through it.
                described.append((_BIAS, c_void_p(pointers.bias or 256)))
            if asked.a in FP8:
                described.append((_FAST_ACCUMULATION, ctypes.c_int8(asked.fast_accumulation)))
                described += [
                    (code, c_void_p(address))
                    for code, address in ((_SCALE_A, pointers.scale_b), (_SCALE_B, pointers.scale_a))
                    if address
                ]
            for code, value in described:
                self._set("cublasLtMatmulDescSetAttribute", description, code, value)
            for form, shape, leading, stride in (
                (asked.b, asked.stored_b, asked.ld_b, asked.stride_b),
                (asked.a, asked.stored_a, asked.ld_a, asked.stride_a),
                (asked.c, (asked.m, asked.n), asked.ld_c, asked.stride_c),
            ):
                layouts.append(self._layout(form, shape, leading or shape[1], asked.batch, stride))
            yield description, layouts
        finally:
            for layout in layouts:
                self._call("cublasLtMatrixLayoutDestroy", layout)
            self._call("cublasLtMatmulDescDestroy", description)

    def _layout(self, form: str, shape: tuple[int, int], leading: int, batch: int, stride: int | None) -> c_void_p:
        """The layout of a row-major matrix of that shape, which the library sees as its transpose."""
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
    def _preference(self, asked: Question) -> Iterator[c_void_p]:
        wish = c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", byref(wish))
        try:
            self._set("cublasLtMatmulPreferenceSetAttribute", wish, _WORKSPACE, c_uint64(asked.workspace))
            a, b, c = asked.alignment
            for place, alignment in enumerate((b, a, c, c)):
                self._set("cublasLtMatmulPreferenceSetAttribute", wish, _ALIGNMENT + place, c_uint32(alignment))
            yield wish
        finally:
            self._call("cublasLtMatmulPreferenceDestroy", wish)

    def _answer(self, result: _Result, asked: Question) -> Answer:
        values: dict[str, int] = {}
        written = c_size_t(0)
        for name, code, form in _ATTRIBUTES:
            value = form(0)
            self._call(
                "cublasLtMatmulAlgoConfigGetAttribute", byref(result.algorithm), c_int(code), byref(value),
                c_size_t(ctypes.sizeof(value)), byref(written), about=asked,
            )  # fmt: skip
            values[name] = int(value.value)
        return Answer(Configuration(**values), int(result.workspace), float(result.waves), bytes(result.algorithm))

    def _set(self, function: str, record: c_void_p, code: int, value: Any) -> None:
        self._call(function, record, c_int(code), byref(value), c_size_t(ctypes.sizeof(value)))

    def _call(self, name: str, *arguments: Any, about: Question | None = None) -> None:
        status = getattr(self._functions, name)(*arguments)
        if status:
            why = _STATUS.get(status, f"status {status}")
            subject = f" for {about.words}{_hint(about)}" if about else ""
            raise CublasError(f"{name} of cuBLASLt {self.version} ({self.path.name}) failed{subject}: {why}")


def _hint(asked: Question) -> str:
    """What to try where a library has nothing to offer."""
    if asked.a in FP8 and (asked.transpose_a or not asked.transpose_b):
        return "; before sm_100 fp8 is multiplied only with A as [m, k] and B as [n, k]"
    if asked.a in FP8 and (asked.k % 16 or asked.n % 16):
        return "; fp8 needs k and n to be multiples of 16"
    return ""
