"""Solutions and selection rows of the libraries' logic files, and the compressed tables of this distribution."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

from bitwise_rocblas_profiles.errors import RocblasError

FORMAT = "bitwise-tensile-tables/1"

Generator: TypeAlias = Literal["Tensile", "TensileLite"]
"""What generates the kernels: Tensile those of rocBLAS, TensileLite those of hipBLASLt.  Their rules differ."""

TYPE_CODES: Mapping[str, tuple[str, ...]] = {
    "Tensile": ("S", "D", "C", "Z", "H", "4xi8", "I", "B", "I8", "X", "F8", "B8", "F8B8", "B8F8"),
    "TensileLite": ("S", "D", "C", "Z", "H", "4xi8", "I", "B", "I8", "I64", "X", "F8", "B8", "F8B8", "B8F8"),
}
"""The element types by their numbers in logic files; X is fp32 multiplied as tf32."""

BITS = (
    "MatrixInstruction", "EnableMatrixInstruction", "MIInputPerThread", "MFMA_BF16_1K", "DepthU", "GlobalSplitU",
    "GlobalSplitUAlgorithm", "GlobalSplitUSummationAssignmentRoundRobin", "GlobalSplitUCoalesced", "LocalSplitU",
    "StreamK", "StaggerU", "StaggerUStride", "StaggerUMapping", "_staggerStrideShift", "MacroTile0", "MacroTile1",
    "LocalReadVectorWidth", "UnrollMajorLDSA", "UnrollMajorLDSB", "TransposeLDS", "DirectToVgprA", "DirectToVgprB",
    "SourceSwap", "InnerUnroll", "PrefetchGlobalRead", "InterleaveAlpha", "NoTailLoop", "CustomKernelName",
)  # fmt: skip
"""The parameters of a solution that decide bits.  LocalSplitU is the third number of WorkGroup."""

GUARDS = (
    "AssertFree0ElementMultiple", "AssertFree1ElementMultiple", "AssertSummationElementMultiple", "AssertSizeEqual",
    "AssertSizeGreaterThan", "AssertSizeLessThan", "AssertSizeMultiple", "AssertStrideAEqual", "AssertStrideBEqual",
    "AssertStrideCEqual", "AssertStrideDEqual", "AssertAlphaValue", "AssertBetaValue", "AssertCEqualsD",
    "AssertAIGreaterThanEqual", "AssertAILessThanEqual", "GlobalLoadVectorWidthA", "GlobalLoadVectorWidthB",
    "GlobalReadVectorWidthA", "GlobalReadVectorWidthB", "MinKForGSU", "BufferLoad", "BufferStore",
    "_WorkspaceSizePerElemC", "_GlobalAccumulation", "KernelLanguage", "PersistentKernel", "WorkGroupMappingXCC",
    "WorkGroupMappingXCCGroup", "SynchronizerSizeCheck",
)  # fmt: skip
"""The parameters of a solution that decide whether it may run a problem."""

PROBLEM = (
    "Batched", "DataType", "DataTypeA", "DataTypeB", "DestDataType", "ComputeDataType", "F32XdlMathOp", "Fp16AltImpl",
    "Fp32toFp8SWClip", "HighPrecisionAccumulate", "OperationType", "StochasticRounding", "StridedBatched", "TLUA",
    "TLUB", "TransposeA", "TransposeB", "UseBias", "BiasSrc", "BiasDataTypeList", "Activation",
    "ActivationComputeDataType", "ActivationType", "UseE", "Gradient", "GroupedGemm", "Sparse", "UseScaleAB",
    "UseScaleCD", "UseScaleAlphaVec", "OutputAmaxD",
)  # fmt: skip
"""The fields of a problem type.  Types are letters of TYPE_CODES."""

TYPE_FIELDS = ("DataType", "DataTypeA", "DataTypeB", "DestDataType", "ComputeDataType", "F32XdlMathOp")


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The parameters of a kernel: `bits` has the keys BITS, `guard` the keys GUARDS, None for what the file lacks."""

    bits: Mapping[str, Any]
    guard: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hardware:
    """The devices that a file is for: None where it does not say."""

    arch: str
    cu_count: int | None = None
    is_apu: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A tuned size, the number of its solution in the file, and that solution's speed."""

    m: int
    n: int
    batch: int
    k: int
    solution: int
    speed: float


@dataclass(frozen=True, slots=True)
class LogicFile:
    """One logic file: the kernels of one problem type, and the sizes that they were tuned for.

    `tag` is the end of its name, which abbreviates the problem type.  `blob` is the SHA-1 that git gives its content.
    """

    path: str
    tag: str
    generator: Generator
    hardware: Hardware
    problem: Mapping[str, Any]
    selection: str
    solutions: tuple[Solution, ...]
    rows: tuple[Row, ...]
    blob: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The logic files of one library version.

    `source` names repository, version, commit, directory, licence and copyright.  `missing` lists the tags of files of
    that version that are not in the table.
    """

    generator: Generator
    source: Mapping[str, str]
    files: tuple[LogicFile, ...]
    missing: tuple[Mapping[str, Any], ...] = field(default=())


_TEXTS = frozenset({"GlobalSplitUAlgorithm", "CustomKernelName", "_GlobalAccumulation", "KernelLanguage"})
_PAIRS = frozenset(name for name in GUARDS if name.startswith(("AssertSize", "AssertStride")))
_NUMBERS = frozenset({"AssertAlphaValue", "AssertBetaValue", "AssertAIGreaterThanEqual", "AssertAILessThanEqual"})
_REQUIRED = frozenset({"DepthU", "MacroTile0", "MacroTile1"})
_POSITIVE = _REQUIRED | {
    "MIInputPerThread", "LocalSplitU", "LocalReadVectorWidth", "WorkGroupMappingXCC", "AssertFree0ElementMultiple",
    "AssertFree1ElementMultiple", "AssertSummationElementMultiple",
}  # fmt: skip
_COUNTED = frozenset({"StaggerU", "_staggerStrideShift", "MinKForGSU", "_WorkspaceSizePerElemC"})
_LARGEST = 1 << 31


def check_solution(solution: Solution) -> None:
    """Raise ValueError for a parameter of a wrong type or without a meaning."""
    for name, value in (*solution.bits.items(), *solution.guard.items()):
        if not (name not in _REQUIRED if value is None else _is_valid(name, value)):
            raise ValueError(f"{name} is {value!r}")


def _is_valid(name: str, value: Any) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _PAIRS:
        least, most = int(name.endswith("Multiple")), 3 if name.startswith("AssertSize") else 9
        return isinstance(value, list) and all(
            isinstance(pair, list) and len(pair) == 2 and _is_count(pair[0], 0, most) and _is_count(pair[1], least)
            for pair in value
        )
    if name in ("MatrixInstruction", "SynchronizerSizeCheck"):
        lengths = (0, 4) if name == "MatrixInstruction" else (3,)
        return (
            isinstance(value, list)
            and len(value) in lengths
            and all(_is_count(each, int(len(value) == 4)) for each in value)
        )
    if name in _NUMBERS:
        return isinstance(value, (int, float))
    if name == "_staggerStrideShift":
        return _is_count(value, 0, 30)
    return _is_count(value, 1 if name in _POSITIVE else 0 if name in _COUNTED else -_LARGEST)


def _is_count(value: Any, least: int, most: int = _LARGEST) -> bool:
    return type(value) is int and least <= value <= most


def to_bytes(table: Table) -> bytes:
    """Return a table as compressed JSON; equal tables have equal bytes."""
    bits, guards, pairs = _Numbering(), _Numbering(), _Numbering()
    listed = []
    for each in table.files:
        solutions = [
            pairs.number(
                [bits.number([one.bits[name] for name in BITS]), guards.number([one.guard[n] for n in GUARDS])]
            )
            for one in each.solutions
        ]
        listed.append({
            "path": each.path, "tag": each.tag, "blob": each.blob, "selection": each.selection,
            "hardware": [each.hardware.arch, each.hardware.cu_count, each.hardware.is_apu],
            "problem": {name: value for name, value in each.problem.items() if value is not None},
            "solutions": solutions,
            "rows": [list(column) for column in zip(
                *((r.m, r.n, r.batch, r.k, r.solution, r.speed) for r in each.rows), strict=True
            )],
        })  # fmt: skip
    content = {
        "format": FORMAT, "generator": table.generator, "source": dict(table.source), "bits_fields": BITS,
        "guard_fields": GUARDS, "bits": bits.values, "guards": guards.values, "pairs": pairs.values,
        "missing": [dict(each) for each in table.missing], "files": listed,
    }  # fmt: skip
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


class _Numbering:
    """Distinct values in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        found = self._numbers.setdefault(json.dumps(value), len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found


def from_bytes(content: bytes, name: str) -> Table:
    """Return the table that `to_bytes` wrote; `name` is the file in messages.  Raises RocblasError."""
    try:
        found = json.loads(lzma.decompress(content))
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, not {FORMAT!r}")
        if (tuple(found["bits_fields"]), tuple(found["guard_fields"])) != (BITS, GUARDS):
            raise ValueError("its columns are others")
        bits = [dict(zip(BITS, each, strict=True)) for each in found["bits"]]
        guards = [dict(zip(GUARDS, each, strict=True)) for each in found["guards"]]
        solutions = [Solution(bits[one], guards[other]) for one, other in found["pairs"]]
        for each in solutions:
            check_solution(each)
        generator: Generator = found["generator"]
        if generator not in TYPE_CODES:
            raise ValueError(f"there is no generator {generator!r}")
        return Table(
            generator, found["source"], tuple(_file(each, generator, solutions) for each in found["files"]),
            tuple(found["missing"]),
        )  # fmt: skip
    except (lzma.LZMAError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise RocblasError(
            f"{name} is no table of solutions ({type(error).__name__}: {error}): make it again"
        ) from None


def _file(content: Mapping[str, Any], generator: Generator, solutions: list[Solution]) -> LogicFile:
    own = tuple(solutions[number] for number in content["solutions"])
    rows = tuple(Row(*values) for values in zip(*content["rows"], strict=True))
    if any(not 0 <= row.solution < len(own) for row in rows):
        raise ValueError(f"a row of {content['path']} names a solution that is not there")
    problem = {name: content["problem"].get(name) for name in PROBLEM}
    return LogicFile(
        content["path"], content["tag"], generator, Hardware(*content["hardware"]), problem, content["selection"], own,
        rows, content["blob"],
    )  # fmt: skip


@cache
def bundled() -> tuple[Table, ...]:
    """Return the tables of this distribution."""
    folder = files("bitwise_rocblas_profiles").joinpath("data")
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".json.xz")), key=lambda each: each.name)
    return tuple(from_bytes(each.read_bytes(), each.name) for each in found)
