"""Compiling a case from its declared launch alone, without a GPU, and writing what came out to a folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bitwise_conformance.cases import DTYPE_BYTES, Array, Case, Descriptor
from bitwise_conformance.digest import normalised_digest

TARGET = "sm_90"


def compile_case(case: Case) -> Any:
    """The captured kernel of `case` for `TARGET`: what `bitwise_triton.capture.compile_configuration` returns."""
    from bitwise_triton.capture import Buffer, TensorMap, compile_configuration

    def buffer(array: Array) -> Any:
        shift = array.offset * DTYPE_BYTES[array.dtype]
        return Buffer(array.name, array.dtype, alignment=16 if shift % 16 == 0 else shift & -shift)

    arguments: dict[str, Any] = {}
    for argument in case.arguments:
        if isinstance(argument, Array):
            arguments[argument.name] = buffer(argument)
        elif isinstance(argument, Descriptor):
            arguments[argument.name] = TensorMap(
                argument.array.name, argument.array.dtype, argument.shape, argument.strides, argument.block
            )
        else:
            arguments[argument.name] = argument.value
    return compile_configuration(
        case.function, arguments, dict(case.constants), target=TARGET, num_warps=case.num_warps,
        num_stages=case.num_stages, grid=case.grid, **case.options,
    )  # fmt: skip


def describe(case: Case) -> dict[str, Any]:
    """The declared launch of `case` as JSON data."""
    return {
        "id": case.id,
        "family": case.family,
        "group": case.group,
        "function": case.function.__name__,
        "constants": {name: getattr(value, "name", value) for name, value in case.constants.items()},
        "num_warps": case.num_warps,
        "num_stages": case.num_stages,
        "options": dict(case.options),
        "grid": list(case.grid),
        "arguments": [{"is": type(argument).__name__.lower(), **asdict(argument)} for argument in case.arguments],
        "parameters": [p.name for p in case.function.params],
    }


def compile_to_folder(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Compile the case called `name`; a job for the pool.

    With `settings["folder"]` the PTX and a description are written to `<folder>/<family>/<group>/`.
    """
    from bitwise_conformance import corpus

    case = corpus.by_id()[name]
    captured = compile_case(case)
    digest = normalised_digest(captured.ptx)
    if settings.get("folder"):
        folder = Path(settings["folder"]) / case.family / case.group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{case.name}.ptx").write_text(captured.ptx)
        entry = {**describe(case), "file": f"{case.name}.ptx", "digest": digest}
        (folder / f"{case.name}.json").write_text(json.dumps(entry, default=str))
    return {"captured": digest, "bytes": len(captured.ptx)}
