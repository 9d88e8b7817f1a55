"""Compile the configurations of a `@triton.jit` function for any target without a GPU, and write them to a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_triton.arguments import Argument
from bitwise_triton.compilation import (
    CompiledKernel,
    CompileJob,
    Grid,
    compile_all,
    compile_job,
    make_job,
    split_settings,
    unwrap,
)
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_contents import give_tensors, recorded_tensors, write_tensors


def compile_configuration(
    function: Any,
    arguments: Mapping[str, Argument],
    constants: Mapping[str, object],
    *,
    grid: Grid,
    target: str = "sm_90",
    num_warps: int = 4,
    num_stages: int = 3,
    num_ctas: int = 1,
    name: str | None = None,
    **options: Any,
) -> CompiledKernel:
    """Compile one configuration of `function` (a `@triton.jit` function, autotuned or not) for `target`.

    `arguments` are the runtime arguments and `constants` the `tl.constexpr` ones, by parameter name; parameters with
    defaults may be omitted. `grid` is a tuple of up to three block counts, or a callable of all parameters, as in a
    launch. `options` are further compile options (`maxnreg`, `enable_fp_fusion`, ...). Raises CaptureError, which names
    the configuration.
    """
    defaults = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas}
    # A constant with the name of an option is both.
    options = {**{name: value for name, value in defaults.items() if name not in constants}, **options}
    compiled = compile_job(make_job(function, arguments, constants, options, grid=grid, target=target, name=name))
    return give_tensors(compiled, recorded_tensors(arguments, False))


def compile_configurations(
    function: Any,
    configurations: Sequence[Any],
    arguments: Mapping[str, Argument],
    grid: Grid,
    *,
    constants: Mapping[str, object] | None = None,
    target: str = "sm_90",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[CompiledKernel | CaptureError]:
    """Compile every `triton.Config` of `configurations` in a pool of `workers` processes (default: all cores).

    Identical configurations are compiled once. `progress` gets the number of finished and of all compiles. Results are
    in the order of `configurations`, with a CaptureError in place of each that fails; `capture` raises instead.
    """
    jobs: list[CompileJob | CaptureError] = []
    kernel, _ = unwrap(function)
    for configuration in configurations:
        # The meta-parameters of a configuration may include compile options.
        own, own_options = split_settings(kernel, configuration.all_kwargs())
        all_constants, all_options = {**(constants or {}), **own}, {**options, **own_options}
        try:
            jobs.append(make_job(function, arguments, all_constants, all_options, grid=grid, target=target))
        except CaptureError as error:
            jobs.append(error)
    stated = recorded_tensors(arguments, False)
    outcomes = compile_all(jobs, workers=workers, progress=progress)
    return [one if isinstance(one, CaptureError) else give_tensors(one, stated) for one in outcomes]


def write_folder(captured: Sequence[CompiledKernel], folder: str | Path, names: Sequence[str] | None = None) -> Path:
    """Write one assembly file for each configuration and `manifest.json` to `folder`. Returns the manifest's path.

    The contents of tensors that the launches give are written beside it, one .npy file for each.

    `names` are file names without extension (default: the entry point and a running number). Existing files are
    overwritten. Raises CaptureError if the names are not unique or their number is wrong.
    """
    if names is None:
        names = [f"{one.entry}_{index:03d}" for index, one in enumerate(captured)]
    if len(names) != len(captured) or len(set(names)) != len(names):
        raise CaptureError(f"{len(captured)} configurations need as many different file names; got {list(names)}.")
    from bitwise_core.output_files import write_text

    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    kernels, options, titles = [], {}, {}
    for name, one in zip(names, captured, strict=True):
        file = f"{name}.{one.extension}"
        write_text(path / file, one.assembly)
        kernels.append({"file": file, **write_tensors(one.manifest_entry, path)})
        options[file], titles[file] = dict(one.options), one.name
    head = {
        "triton": _only({one.triton_version for one in captured}),
        "target": _only({one.target for one in captured}),
        "configurations": titles,
        "options": options,
    }
    target = path / "manifest.json"
    write_text(target, _document(head, kernels))
    return target


def _document(head: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]) -> str:
    """JSON with one line for each kernel."""
    lines = [f" {json.dumps(key)}: {json.dumps(value, default=str)}" for key, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(kernel)}" for kernel in kernels)
    return "{\n" + ",\n".join([*lines, f' "kernels": [\n{rows}\n ]']) + "\n}\n"


def _only(values: set[str]) -> str | list[str] | None:
    return next(iter(values), None) if len(values) < 2 else sorted(values)
