"""Logic files as Tensile writes them, from records: the inverse of the reader, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitwise_rocblas_profiles.tables import TYPE_CODES, TYPE_FIELDS, LogicFile, Solution

_TRUTHS = (
    "EnableMatrixInstruction", "UnrollMajorLDSA", "UnrollMajorLDSB", "DirectToVgprA", "DirectToVgprB", "BufferLoad",
    "BufferStore", "TransposeA", "TransposeB", "TLUA", "TLUB", "HighPrecisionAccumulate", "StochasticRounding",
)  # fmt: skip
_MAPPINGS = tuple(f"Assert{name}" for name in (
    "SizeEqual", "SizeGreaterThan", "SizeLessThan", "SizeMultiple", "StrideAEqual", "StrideBEqual", "StrideCEqual",
    "StrideDEqual",
))  # fmt: skip


def scalar(name: str, value: Any) -> str:
    if name in _TRUTHS and value in (0, 1):
        return "true" if value else "false"
    if name in _MAPPINGS:
        return "{" + ", ".join(f"{key}: {each}" for key, each in value) + "}"
    if isinstance(value, str):
        return value if value else "''"
    if value == float("inf"):
        return ".inf"
    return str(value).replace("None", "null")


def lines(values: Mapping[str, Any], indent: str) -> list[str]:
    return [f"{indent}{name}: {scalar(name, value)}" for name, value in sorted(values.items()) if value is not None]


def solution_lines(solution: Solution) -> list[str]:
    values = {**solution.bits, **solution.guard}
    values["WorkGroup"] = [16, 16, values.pop("LocalSplitU")]
    found = lines(values, "    ")
    return [f"  - {found[0].lstrip()}", *found[1:]]


def text_of(file: LogicFile) -> str:
    """Return a logic file with these contents, and some of the parameters that the tables do not hold."""
    codes = TYPE_CODES[file.generator]
    problem = {
        name: codes.index(value) if name in TYPE_FIELDS and value is not None else value
        for name, value in file.problem.items()
    }
    described = lines(problem, "  ")
    hardware = file.hardware.arch
    if file.hardware.cu_count is not None or file.hardware.is_apu is not None:
        pairs = [f"Architecture: {hardware}"]
        pairs += [f"CUCount: {file.hardware.cu_count}"] if file.hardware.cu_count is not None else []
        pairs += [f"IsAPU: {int(file.hardware.is_apu)}"] if file.hardware.is_apu is not None else []
        hardware = "{" + ", ".join(pairs) + "}"
    solutions = [line for each in file.solutions for line in solution_lines(each)]
    head = ["- {MinimumRequiredVersion: 4.33.0}", "- aquavanjaram", f"- {hardware}", "- [Device 0049, Device 0050]"]
    rows = [
        f"  - - [{row.m}, {row.n}, {row.batch}, {row.k}]\n    - [{row.solution}, {scalar('', row.speed)}]"
        for row in file.rows
    ]
    internal = "    InternalSupportParams: {KernArgsVersion: 2, SupportUserGSU: true,\n      UseUniversalArgs: true}"
    end = ["- null", "- null", "- DeviceEfficiency"]
    end += [f"- {file.selection}"] if file.selection != "Euclidean" else []
    return "\n".join([
        *head, f"- {described[0].lstrip()}", *described[1:], f"- {solutions[0].lstrip()}".replace("- - ", "- - ", 1),
        internal, *solutions[1:], "- [2, 3, 0, 1]", f"- {rows[0].lstrip()}", *rows[1:], *end, "",
    ])  # fmt: skip
