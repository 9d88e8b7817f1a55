"""Configurations compiled for their launch, without a GPU, and folders of compiled kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus.cases import DTYPE_BYTES, Array, Case, Descriptor


def compile_case(case: Case) -> Any:
    """Compile a configuration for its target.

    Returns the result of `bitwise_triton.configurations.compile_configuration`, and raises its errors.
    """
    from bitwise_triton.arguments import Buffer, TensorMap
    from bitwise_triton.configurations import compile_configuration

    def buffer(array: Array) -> Any:
        width = DTYPE_BYTES[array.dtype]
        return Buffer(
            array.name,
            array.dtype,
            offset=array.offset * width,
            alignment=256,
            size_bytes=(array.offset + array.elements) * width,
        )

    arguments: dict[str, Any] = {}
    for argument in case.arguments:
        if isinstance(argument, Array):
            arguments[argument.name] = buffer(argument)
        elif isinstance(argument, Descriptor):
            arguments[argument.name] = TensorMap(
                buffer(argument.array), argument.shape, argument.strides, argument.block
            )
        else:
            arguments[argument.name] = argument.value
    return compile_configuration(
        case.function,
        arguments,
        case.constants,
        grid=case.grid,
        target=case.target,
        num_warps=case.num_warps,
        num_stages=case.num_stages,
        name=case.name,
        **case.options,
    )


def describe(case: Case, extension: str) -> dict[str, Any]:
    """Return the launch of a configuration as JSON data, with the role and the distribution of every buffer."""
    return {
        "id": case.id,
        "file": f"{case.name}.{extension}",
        "function": case.function.__name__,
        "constants": {name: getattr(value, "name", value) for name, value in case.constants.items()},
        "num_warps": case.num_warps,
        "num_stages": case.num_stages,
        "options": dict(case.options),
        "target": case.target,
        "grid": list(case.grid),
        "arguments": [{"is": type(argument).__name__.lower(), **asdict(argument)} for argument in case.arguments],
    }


def compile_job(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Compile the configuration with the id `name`; a job for `worker_pool.run_all`.

    `settings["target"]` is the architecture; with `settings["keep"]` the answer contains the compiled kernel.
    """
    from bitwise_bench.corpus import catalogue

    captured = compile_case(catalogue.by_id(settings["target"])[name])
    answer: dict[str, Any] = {"captured": normalised_digest(captured.assembly)}
    if settings.get("keep"):
        answer["kernel"] = captured
    return answer


def write_folders(folder: Path, cases: list[Case], answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the kernels of each group to `<folder>/<family>/<group>/`, with `manifest.json` and `cases.json`."""
    from bitwise_triton.configurations import write_folder

    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        if "kernel" in answers[case.id]:
            groups.setdefault((case.family, case.group), []).append(case)
    for (family, group), members in groups.items():
        place = folder / family / group
        write_folder([answers[case.id]["kernel"] for case in members], place, [case.name for case in members])
        entries = []
        for case in members:
            answer = answers[case.id]
            entries.append({**describe(case, answer["kernel"].extension), "digest": answer["captured"]})
        (place / "cases.json").write_text(json.dumps(entries, indent=1, default=str) + "\n")
