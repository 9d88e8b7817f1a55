"""Facts of hardware that are measured one form of instructions at a time, and their records."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bitwise_bench.adversary.device import Device
from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Form = TypeVar("Form", bound="DataclassInstance")
_PARTS = 32


def record_forms(
    program: str,
    description: str | None,
    name: str,
    forms: Sequence[Form],
    measured: Callable[[Device, Form], dict[str, Any]],
    arguments: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """Measure all forms in several processes, write the rows as `name` with the environment, and return them.

    The rows so far are written after each part of the forms.

    `measured` is a function of a module, which other processes import.  `arguments` are those of the command `program`.
    """
    parser = command_parser(program, description)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    parser.add_argument("--processes", type=int, default=4, help="this many processes measure")
    chosen = parser.parse_args(arguments)
    parts = [forms[start::_PARTS] for start in range(_PARTS)]
    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        environment = {**analysis_environment(), **pool.submit(_environment).result()}
        rows: list[dict[str, Any]] = []
        for part in pool.map(partial(_measured_part, measured), parts):
            rows += part
            record = {"environment": environment, name: rows}
            chosen.out.write_bytes(lzma.compress(json.dumps(record, indent=1).encode()))
    return rows


def recorded_forms(path: Path, name: str, form: type[Form]) -> tuple[str, list[tuple[Form, dict[str, Any]]]]:
    """Return the GPU of a record that `record_forms` wrote, and its rows, each with its form."""
    record = json.loads(lzma.decompress(path.read_bytes()))
    names = [field.name for field in fields(form)]
    rows: list[dict[str, Any]] = record[name]
    return record["environment"]["gpu"], [(form(**{each: row[each] for each in names}), row) for row in rows]


def _environment() -> dict[str, str]:
    return Device().environment()


def _measured_part(measured: Callable[[Device, Form], dict[str, Any]], forms: Sequence[Form]) -> list[dict[str, Any]]:
    device = Device()
    return [measured(device, form) for form in forms]
