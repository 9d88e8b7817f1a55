"""Explain a configuration without a GPU: its descriptor, and the measurements that support it."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.input_files import open_file, read_text
from bitwise_core.json_text import parse_json
from bitwise_core.plugins.profiles import Explanation, NotCovered
from bitwise_core.visible_text import visible
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import Profile, Row
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, query_of_problem
from bitwise_cublas_profiles.workspaces import MEBIBYTE

ATTRIBUTES = {
    "ALGO_ID": "algorithm", "TILE_ID": "tile", "STAGES_ID": "stages", "SPLITK_NUM": "split_k",
    "REDUCTION_SCHEME": "reduction", "CTA_SWIZZLING": "swizzle", "CUSTOM_OPTION": "custom",
    "INNER_SHAPE_ID": "inner_shape", "CLUSTER_SHAPE_ID": "cluster_shape",
}  # fmt: skip
"""The library's names of the attributes of an algorithm configuration, and ours."""

DECIDING = ("algorithm", "stages", "split_k", "reduction", "custom")
"""The attributes that determine output bits. Tiles, clusters and swizzles only move work."""


class _RecordingProfile(Profile):
    """A profile that records the rows that a description uses."""

    def record_use(self, section: str, row: Row) -> None:
        """Keep the last row used of each table."""
        self.about["used"][section] = row


def explain(
    known: Profile, problem: GEMMProblem, configuration: Mapping[str, Any] | None, records: Path | None
) -> Explanation:
    """See `bitwise_core.plugins.profiles.ExplainableProfile`. Raises NotCovered."""
    try:
        query = query_of_problem(problem)
    except CublasError as error:
        raise NotCovered(str(error)) from None
    notes: list[str] = []
    if configuration is None:
        found = next(_recorded(known, query, records), None)
        if found is None:
            raise NotCovered(_missing_configuration(known, query, records))
        chosen, where = found
        listed = ", ".join(f"{name}={getattr(chosen, name)}" for name in (*DECIDING, "tile", "cluster_shape"))
        notes.append(f"The configuration is the one recorded in {where}: {listed}.")
    else:
        chosen = configuration_of(configuration)
    recording = _RecordingProfile(known.key, known.architecture, known.tables, {"used": {}})
    try:
        desc = descriptor_of(query, chosen, recording)
    except CublasError as error:
        raise NotCovered(str(error)) from None
    for section, row in recording.about["used"].items():
        notes.append(f"{_row(section, row)}: {_provenance(row)}.")
    return Explanation(desc, tuple(notes))


def _row(section: str, row: Row) -> str:
    keys = ("family", "operands", "transposes", "output", "algorithm", "stages", "reduction", "custom", "granularity")
    shown = [f"{name} {row[name]}" for name in keys if name in row and not isinstance(row[name], list)]
    return f"Table {section}, {', '.join(shown)}"


def _provenance(row: Row) -> str:
    if row["provenance"] != "measured":
        doubt = f"; doubtful: {row['doubtful']}" if "doubtful" in row else ""
        return f"published, not measured here{doubt}"
    counted = [f"{row[name]:,} {name}" for name in ("shapes", "draws") if name in row]
    if "sampled" in row:
        return f"measured on {row['sampled']:,} shapes, the sampled elements equal"
    return f"measured on {' and '.join(counted)}, all bytes equal" if counted else "measured"


def configuration_of(given: Mapping[str, Any]) -> Configuration:
    """An algorithm configuration from its attributes, by our names or the library's. Raises NotCovered."""
    names = [each.name for each in fields(Configuration)]
    known = ", ".join(f"{ours} ({theirs})" for theirs, ours in ATTRIBUTES.items())
    values: dict[str, int] = {}
    for name, value in given.items():
        ours = ATTRIBUTES.get(name, ATTRIBUTES.get(name.removeprefix("CUBLASLT_ALGO_CONFIG_"), name))
        if ours not in names:
            raise NotCovered(f"an algorithm configuration has no attribute {name!r}; it has {known}")
        if type(value) is not int or value < 0:
            raise NotCovered(f"the attribute {name} is a whole number of 0 or more, not {value!r}")
        values[ours] = value
    missing = [name for name in DECIDING if name not in values]
    if missing:
        raise NotCovered(f"the configuration lacks {', '.join(missing)}, which decide bits: give them all")
    return Configuration(**{name: values.get(name, 0) for name in names})


def _missing_configuration(known: Profile, query: GemmQuery, records: Path | None) -> str:
    m, n, k = query.m, query.n, query.k
    layout = "" if query.transposes == "NN" else f" --transposes {query.transposes}"
    return (
        f"the algorithm that {known.description} runs for {query.description} does not follow from the shape: the "
        "heuristic runs on the GPU and depends on the shape, the types, the layout and alignment of the operands, the "
        f"workspace ({query.workspace // MEBIBYTE} MiB by PyTorch's default) and the GPU model. "
        f"{'No record' if records is None else f'No record in {records}'} has this query. On that GPU run "
        f"bitwise cublas ask {m} {n} {k} --dtype {query.a} --out-dtype {query.c}{layout} and pass its output: "
        f"{' '.join(f'--config {name}=...' for name in DECIDING)}"
    )


def _recorded(known: Profile, query: GemmQuery, records: Path | None) -> Iterator[tuple[Configuration, str]]:
    """The configurations recorded for a query, from the files of sweeps and samples whose rows name their columns."""
    if records is None or not records.is_dir():
        return
    names = [each.name for each in fields(Configuration)]
    wanted = {"m": query.m, "n": query.n, "k": query.k, "a": query.a, "transposes": query.transposes, "c": query.c}
    right = "e4m3" if query.a == "e5m2" else query.a
    if query.b != right or query.batch > 1 or query.epilogue != "none":
        return
    for path in sorted(records.glob("cublas-s*")):
        for head, rows in _tables(path, f"{query.m},{query.n},{query.k},"):
            version = ".".join(str(head.get("library", "")).split(".")[:2])
            if (version, head.get("capability")) != known.key:
                continue
            for values in rows:
                row = dict(zip(head["columns"], values, strict=False))
                numbers = {name: row.get(name) or 0 for name in names}
                if all(row.get(name) == value for name, value in wanted.items()) and _is_configuration(row, numbers):
                    yield Configuration(**numbers), f"{path.name}, of an {visible(str(head.get('gpu', 'unknown GPU')))}"


def _is_configuration(row: Mapping[str, Any], numbers: Mapping[str, Any]) -> bool:
    """Return whether a row of a record has an answer, whose attributes are whole numbers of 0 or more."""
    whole = all(type(value) is int and value >= 0 for value in numbers.values())
    return whole and row.get("algorithm") is not None


def _is_table(head: Any, rows: Any) -> bool:
    """Return whether a header names columns, and every row is a list of values."""
    named = isinstance(head, dict) and isinstance(head.get("columns"), list)
    return (
        named
        and all(isinstance(each, str) for each in head["columns"])
        and isinstance(rows, list)
        and all(isinstance(each, list) for each in rows)
    )


def _tables(path: Path, sizes: str) -> Iterator[tuple[dict[str, Any], list[list[Any]]]]:
    """The header and the rows of a record. Of a compressed sweep, only the rows that contain `sizes`."""
    try:
        if path.name.endswith(".jsonl.xz"):
            with open_file(path, CublasError) as file, lzma.open(file) as lines:
                head = parse_json(next(lines).decode())
                rows = [parse_json(line.decode()) for line in lines if sizes.encode() in line]
                if _is_table(head, rows):
                    yield head, rows
        elif path.suffix == ".json":
            content = parse_json(read_text(path, CublasError))
            if isinstance(content, dict) and _is_table(content, content.get("rows")):
                yield content, content["rows"]
    except (CublasError, OSError, ValueError, EOFError, StopIteration, lzma.LZMAError):
        return
