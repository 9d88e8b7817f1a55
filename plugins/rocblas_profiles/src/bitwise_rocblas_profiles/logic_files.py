"""Logic files of Tensile and TensileLite, read from a path."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitwise_core.input_files import read_text
from bitwise_rocblas_profiles.errors import RocblasError
from bitwise_rocblas_profiles.logic_text import parse
from bitwise_rocblas_profiles.tables import (
    BITS,
    GUARDS,
    PROBLEM,
    TYPE_CODES,
    TYPE_FIELDS,
    Generator,
    Hardware,
    LogicFile,
    Row,
    Solution,
    check_solution,
)

MAXIMUM_BYTES = 256 << 20
"""The size of the largest logic file that is read."""

SELECTIONS = ("Equality", "Euclidean", "GridBased", "FreeSize")
_TAG = re.compile(r"Cijk_A\w{3}_B\w{3}_(.+)\Z")
_SMALLEST = 10
"""Entries that every logic file has: version, name, architecture, devices, problem type, solutions, index order, rows,
and two fields that are null."""


def read_logic_file(path: Path, name: str | None = None) -> LogicFile:
    """Return a logic file; `name` is its path in the library's repository.  Raises RocblasError."""
    text = read_text(path, RocblasError, MAXIMUM_BYTES)
    content = text.encode()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return logic_file(parse(text, str(path)), name or path.name, blob)


def logic_file(content: Any, name: str, blob: str = "") -> LogicFile:
    """Return the record of a logic file's parsed content.  Raises RocblasError."""
    if not isinstance(content, list) or len(content) < _SMALLEST or not isinstance(content[5], list) or not content[5]:
        raise RocblasError(f"{name} is no logic file of Tensile: it is not a list of {_SMALLEST} or more entries")
    if not isinstance(content[4], dict) or not all(isinstance(each, dict) for each in content[5]):
        raise RocblasError(f"{name} is no logic file of Tensile: its problem type or a solution is no mapping")
    generator = _generator(content[5][0], name)
    selection = content[11] if len(content) > 11 and content[11] is not None else "Euclidean"
    if selection not in SELECTIONS:
        raise RocblasError(f"{name} selects by {selection!r}, which is unknown; known are {', '.join(SELECTIONS)}")
    solutions = tuple(_solution(each, f"{name}: solution {number}") for number, each in enumerate(content[5]))
    stem = name.rsplit("/", 1)[-1].removesuffix(".yaml")
    matched = _TAG.search(stem)
    return LogicFile(
        name, matched.group(1) if matched else stem, generator, _hardware(content[2], name),
        _problem(content[4], generator, name), selection, solutions, _rows(content[7], len(solutions), name), blob,
    )  # fmt: skip


def _generator(solution: Mapping[str, Any], name: str) -> Generator:
    if "GlobalLoadVectorWidthA" in solution:
        return "Tensile"
    if "GlobalReadVectorWidthA" in solution:
        return "TensileLite"
    raise RocblasError(
        f"{name}: its first solution has neither GlobalLoadVectorWidthA, which Tensile writes, nor "
        "GlobalReadVectorWidthA, which TensileLite writes"
    )


def _hardware(content: Any, name: str) -> Hardware:
    if isinstance(content, str):
        return Hardware(content)
    if isinstance(content, dict) and isinstance(content.get("Architecture"), str):
        count, apu = content.get("CUCount"), content.get("IsAPU")
        if (count is None or type(count) is int) and apu in (None, 0, 1):
            return Hardware(content["Architecture"], count, None if apu is None else bool(apu))
    raise RocblasError(f"{name}: its third entry is no architecture, but {content!r}")


def _problem(content: Mapping[str, Any], generator: Generator, name: str) -> dict[str, Any]:
    found = {key: _number(content.get(key)) for key in PROBLEM}
    codes = TYPE_CODES[generator]
    for key in TYPE_FIELDS:
        value = found[key]
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < len(codes):
            raise RocblasError(f"{name}: {key} = {value!r} is the number of no type")
        found[key] = codes[value]
    for key in ("DataType", "DestDataType", "TransposeA", "TransposeB", "TLUA", "TLUB"):
        if found[key] is None:
            raise RocblasError(f"{name}: its problem type has no {key}")
    return found


def _solution(content: Mapping[str, Any], where: str) -> Solution:
    group = content.get("WorkGroup")
    local = group[2] if isinstance(group, list) and len(group) == 3 else None
    bits = {name: local if name == "LocalSplitU" else _number(content.get(name)) for name in BITS}
    found = Solution(bits, {name: _number(content.get(name)) for name in GUARDS})
    try:
        check_solution(found)
    except ValueError as error:
        raise RocblasError(f"{where}: {error}, which has no meaning for a kernel") from None
    return found


def _number(value: Any) -> Any:
    """Return a value as the tables hold it: booleans as 0 and 1, mappings as sorted lists of pairs."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return [[key, _number(each)] for key, each in sorted(value.items(), key=lambda pair: str(pair[0]))]
    return [_number(each) for each in value] if isinstance(value, list) else value


def _rows(content: Any, count: int, name: str) -> tuple[Row, ...]:
    rows = []
    for number, row in enumerate(content if isinstance(content, list) else [None]):
        try:
            (m, n, batch, k, *_), (solution, speed) = row
            sizes = (m, n, batch, k, solution)
            if any(type(each) is not int or each < 0 for each in sizes) or solution >= count:
                raise ValueError
            rows.append(Row(*sizes, float(speed)))
        except (TypeError, ValueError):
            raise RocblasError(
                f"{name}: row {number} of its sizes is not [[M, N, batch, K], [solution, speed]]"
            ) from None
    return tuple(rows)
