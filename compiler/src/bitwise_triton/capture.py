"""Compile a `@triton.jit` function for any target without a GPU, and write what was compiled as a folder.

The specialisation, the compile options and the cache entry are those of Triton's own launcher for the same argument
values, so a later launch on a GPU finds the compiled kernel in Triton's cache.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bitwise_triton import manifest
from bitwise_triton.arguments import Argument, PointerStandIn, to_triton
from bitwise_triton.errors import CaptureError
from bitwise_triton.pool import run_all
from bitwise_triton.targets import check_limits, gpu_target, target_name

Grid: TypeAlias = Sequence[int] | Callable[[dict[str, Any]], Sequence[int]]

_CTA_DIMENSION = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+(?:\s*,\s*\d+)*)")


@dataclass(frozen=True)
class Captured:
    """One compiled configuration and its launch.

    `grid` and `block` are in blocks and threads as the hardware sees them: `grid[0]` counts every block of a cluster,
    and `block` every warp of a warp-specialised kernel. `entry_manifest` is the kernel's manifest entry without "file".
    """

    name: str
    assembly: str
    extension: str
    entry: str
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    entry_manifest: Mapping[str, Any]
    options: Mapping[str, Any]
    target: str
    triton_version: str
    compile_seconds: float


@dataclass(frozen=True)
class _Job:
    """One configuration to compile: everything but the function, with the grid already evaluated."""

    name: str
    function: Any
    values: Mapping[str, object]
    options: Mapping[str, Any]
    grid: tuple[int, int, int]
    target: Any


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
) -> Captured:
    """Compile one configuration of `function` (a `@triton.jit` function, autotuned or not) for `target`.

    `arguments` are the runtime arguments and `constants` the `tl.constexpr` ones, by parameter name; parameters with a
    default may be left out. `grid` is a tuple of up to three block counts, or a callable of all the parameters as
    Triton's launcher takes it. `options` are further compile options (`maxnreg`, `enable_fp_fusion`, ...).
    Raises CaptureError, which names the configuration.
    """
    options = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, **options}
    return _compile(_job(function, arguments, constants, grid, target, options, name))


def capture(
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
) -> list[Captured]:
    """Compile every `triton.Config` of `configurations`, in a pool of `workers` processes (default: all cores).

    `progress` is called with the number of finished and of all compiles. Results are in the order of `configurations`.
    Raises CaptureError of the first configuration that fails, once all have been tried.
    """
    found = capture_each(
        function,
        configurations,
        arguments,
        grid,
        constants=constants,
        target=target,
        workers=workers,
        progress=progress,
        **options,
    )
    captured = []
    for outcome in found:
        if isinstance(outcome, CaptureError):
            raise outcome
        captured.append(outcome)
    return captured


def capture_each(
    function: Any,
    configurations: Sequence[Any],
    arguments: Mapping[str, Argument] | Sequence[Mapping[str, Argument]],
    grid: Grid,
    *,
    constants: Mapping[str, object] | None = None,
    target: str = "sm_90",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[Captured | CaptureError]:
    """`capture`, with the error in place of each configuration that fails.

    `arguments` may be one mapping for all configurations or one for each of them.
    """
    each = [arguments] * len(configurations) if isinstance(arguments, Mapping) else arguments
    outcomes: list[Captured | CaptureError | None] = []
    jobs: list[_Job] = []
    places: dict[str, int] = {}
    job_of: list[int | None] = []
    for configuration, own in zip(configurations, each, strict=True):
        settings = dict(configuration.all_kwargs())
        own_constants = {**(constants or {}), **configuration.kwargs}
        own_options = {**options, **{key: value for key, value in settings.items() if key not in configuration.kwargs}}
        try:
            job = _job(function, own, own_constants, grid, target, own_options, None)
        except CaptureError as error:
            outcomes.append(error)
            job_of.append(None)
            continue
        # Two configurations of one name, grid and arguments are one kernel, compiled once.
        key = repr((job.name, job.grid, sorted(own.items(), key=lambda item: item[0]), sorted(own_options.items())))
        if key not in places:
            places[key] = len(jobs)
            jobs.append(job)
        outcomes.append(None)
        job_of.append(places[key])
    compiled = run_all(_compile, jobs, workers=workers, progress=progress)
    return [
        outcome if place is None and outcome is not None else compiled[place or 0]
        for outcome, place in zip(outcomes, job_of, strict=True)
    ]


def write_folder(captured: Sequence[Captured], folder: str | Path, names: Sequence[str] | None = None) -> Path:
    """Write one assembly file per configuration and `manifest.json` into `folder`, and return the manifest's path.

    `names` are file names without extension (default: the entry point and a running number). Files of the same name
    are overwritten. Raises CaptureError for names that are not as many as the configurations, or not all different.
    """
    if names is None:
        names = [f"{one.entry}_{index:03d}" for index, one in enumerate(captured)]
    if len(names) != len(captured) or len(set(names)) != len(names):
        raise CaptureError(f"{len(captured)} configurations need as many different file names; got {list(names)}.")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    kernels, options, titles = [], {}, {}
    for name, one in zip(names, captured, strict=True):
        file = f"{name}.{one.extension}"
        (path / file).write_text(one.assembly)
        kernels.append({"file": file, **one.entry_manifest})
        options[file], titles[file] = dict(one.options), one.name
    document = {
        "triton": _only({one.triton_version for one in captured}),
        "target": _only({one.target for one in captured}),
        "configurations": titles,
        "options": options,
        "kernels": kernels,
    }
    target = path / "manifest.json"
    target.write_text(json.dumps(document, indent=1, default=str) + "\n")
    return target


def _only(values: set[str]) -> str | list[str] | None:
    return next(iter(values), None) if len(values) < 2 else sorted(values)


def configuration_name(constants: Mapping[str, object], options: Mapping[str, object]) -> str:
    """How messages and reports name a configuration: its constants and options, as `BM=64, num_warps=4`."""
    shown = {**constants, **{key: value for key, value in options.items() if value is not None}}
    return ", ".join(f"{key}={getattr(value, '__name__', value)}" for key, value in shown.items())


def unwrap(function: Any) -> tuple[Any, list[Any]]:
    """The `@triton.jit` function under autotune and heuristics decorators, and the heuristics from the outside in.

    Raises CaptureError when there is none.
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    heuristics = []
    while not isinstance(function, JITFunction):
        if isinstance(function, Heuristics):
            heuristics.append(function)
        elif not isinstance(function, Autotuner):
            raise CaptureError(f"{function!r} is not a @triton.jit function; decorate it, or pass the decorated one.")
        function = function.fn
    return function, heuristics


def _job(
    function: Any,
    arguments: Mapping[str, Argument],
    constants: Mapping[str, object],
    grid: Grid,
    target: str,
    options: Mapping[str, Any],
    name: str | None,
) -> _Job:
    kernel, heuristics = unwrap(function)
    title = name or configuration_name(constants, options)
    what = f"Configuration ({title}) of kernel {kernel.__name__!r}"
    twice = arguments.keys() & constants.keys()
    if twice:
        raise CaptureError(f"{what} has {', '.join(sorted(twice))} both as an argument and as a constant; give it once.")
    values = {key: to_triton(key, value) for key, value in arguments.items()} | dict(constants)
    for heuristic in heuristics:
        for key, rule in heuristic.values.items():
            values[key] = rule(dict(values, **options))
    bound = {}
    for key, parameter in kernel.signature.parameters.items():
        if key in values:
            bound[key] = values.pop(key)
        elif parameter.default is not parameter.empty:
            bound[key] = parameter.default
        else:
            raise CaptureError(f"{what} lacks a value for parameter {key!r}; give it as an argument or a constant.")
    if values:
        known = ", ".join(kernel.signature.parameters)
        raise CaptureError(f"{what} gives {', '.join(values)}, which the kernel does not take; it takes {known}.")
    blocks = _blocks(what, grid, {**bound, **options}, int(options.get("num_ctas") or 1))
    return _Job(title, kernel, bound, dict(options), blocks, gpu_target(target))


def _blocks(what: str, grid: Grid, bound: dict[str, Any], num_ctas: int) -> tuple[int, int, int]:
    found = grid(bound) if callable(grid) else grid
    counts = [int(count) for count in found]
    if not 1 <= len(counts) <= 3 or min(counts) < 1:
        raise CaptureError(f"{what} has the grid {tuple(counts)}; a grid has one to three block counts, each 1 or more.")
    x, y, z = (*counts, 1, 1)[:3]
    return (x * num_ctas, y, z)


def _compile(job: _Job) -> Captured:
    """Compile a job as Triton's launcher would. Raises CaptureError."""
    import triton
    from triton.compiler.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    kernel = job.function
    what = f"Configuration ({job.name}) of kernel {kernel.__name__!r}"
    where = f"for {target_name(job.target)} with Triton {triton.__version__}"
    settings = {**job.options, **_launcher_options(kernel, job.options)}
    start = time.perf_counter()
    try:
        backend = make_backend(job.target)
        binder = create_function_from_signature(kernel.signature, kernel.params, _specialising(backend))
        bound, specialization, extra = binder(**job.values, **settings)
        options, signature, constants, attributes = kernel._pack_args(backend, settings, bound, specialization, extra)
        source = ASTSource(kernel, signature, constants, attributes)
        compiled = triton.compile(source, target=job.target, options=options.__dict__)
    except Exception as error:
        raise CaptureError(f"{what} does not compile {where}: {_reason(error)}") from None
    seconds = time.perf_counter() - start
    metadata = compiled.metadata._asdict()
    extension = "ptx" if job.target.backend == "cuda" else "amdgcn"
    text, entry = compiled.asm[extension], metadata["name"]
    block = _block(text, extension, entry, metadata)
    check_limits(
        what, target_name(job.target), metadata["shared"], block[0] * block[1] * block[2], metadata.get("tmem_size") or 0
    )
    arguments = manifest.manifest_arguments(signature, bound, metadata.get("tensordesc_meta"))
    read = manifest.ptx_parameter_bytes(text, entry) if extension == "ptx" else manifest.amdgcn_parameter_bytes(text)
    manifest.check_parameters(what, arguments, read)
    return Captured(
        name=job.name,
        assembly=text,
        extension=extension,
        entry=entry,
        block=block,
        grid=job.grid,
        entry_manifest={"entry": entry, "grid": list(job.grid), "block": list(block), "args": arguments},
        options=dict(job.options),
        target=target_name(job.target),
        triton_version=triton.__version__,
        compile_seconds=seconds,
    )


def _launcher_options(kernel: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What `JITFunction.run` adds to a launch's options; they are part of the cache entry's key."""
    from triton import knobs

    added: dict[str, Any] = {"debug": options.get("debug", kernel.debug) or knobs.runtime.debug}
    for name in ("instrumentation_mode", "fpsan_homomorphic_casts"):
        if hasattr(knobs.compilation, name):
            added[name] = getattr(knobs.compilation, name)
    return added


def _specialising(backend: Any) -> Any:
    """The object whose rules specialise pointers: the backend, but without its need of torch on AMD."""
    if backend.target.backend != "hip":
        return backend
    from triton import knobs
    from triton.backends.compiler import BaseBackend

    class Specialising(type(backend)):  # type: ignore[misc]
        @staticmethod
        def get_tensor_specialization(argument: PointerStandIn, **settings: Any) -> str:
            found: str = BaseBackend.get_tensor_specialization(argument, **settings)
            small = knobs.amd.use_buffer_ops and argument.ptr_range() < 1 << 31
            return found + "S" if small else found

    return Specialising(backend.target)


def _block(text: str, extension: str, entry: str, metadata: Mapping[str, Any]) -> tuple[int, int, int]:
    if extension == "ptx":
        start = re.search(rf"\.entry\s+{re.escape(entry)}\b", text)
        found = _CTA_DIMENSION.search(text, start.end()) if start else None
        if found:
            x, y, z = (*(int(count) for count in found.group(1).split(",")), 1, 1)[:3]
            return (x, y, z)
    return (metadata["num_warps"] * metadata["warp_size"], 1, 1)


def _reason(error: BaseException) -> str:
    """The sentence behind a compiler's error: its own text, or its cause's, without the dump that may follow."""
    text = str(error).strip() or (str(error.__cause__).strip() if error.__cause__ else "")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    shown = "\n".join(lines[:12]) + ("\n..." if len(lines) > 12 else "")
    return f"{type(error).__name__}: {shown}" if shown else f"{type(error).__name__}."
