"""Compile one configuration exactly as Triton's launcher does, without a GPU.

The specialisation, the compile options and therefore the cache entry are those of `JITFunction.run` for the same
argument values: a later launch on a GPU finds the compiled kernel in Triton's cache.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from bitwise_triton import manifest
from bitwise_triton.argument_keys import argument_key
from bitwise_triton.arguments import PointerStandIn, to_triton
from bitwise_triton.errors import CaptureError
from bitwise_triton.process_pool import run_in_processes
from bitwise_triton.targets import check_limits, gpu_target, target_name

Grid: TypeAlias = Sequence[int] | Callable[[dict[str, Any]], Sequence[int]]

_BLOCK_DIRECTIVE = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+(?:\s*,\s*\d+)*)")


@dataclass(frozen=True)
class CompiledKernel:
    """One compiled configuration and its launch.

    `grid` and `block` count blocks and threads as the hardware does: `grid[0]` includes every block of a cluster, and
    `block` every warp of a warp-specialised kernel. `manifest_entry` is the kernel's manifest entry without "file".
    """

    name: str
    assembly: str
    extension: str
    entry: str
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    manifest_entry: Mapping[str, Any]
    options: Mapping[str, Any]
    target: str
    triton_version: str
    compile_seconds: float


@dataclass(frozen=True)
class CompileJob:
    """One configuration to compile: the function, its bound values and options, and the launch grid."""

    name: str
    function: Any
    values: Mapping[str, object]
    options: Mapping[str, Any]
    grid: tuple[int, int, int]
    target: Any

    @property
    def title(self) -> str:
        """The name of this configuration in messages."""
        return f"Configuration ({self.name}) of kernel {self.function.__name__!r}"


def configuration_name(constants: Mapping[str, object], options: Mapping[str, object]) -> str:
    """The name of a configuration in messages and reports: its constants and options, as `BM=64, num_warps=4`."""
    shown = {**constants, **{key: value for key, value in options.items() if value is not None}}
    return ", ".join(f"{key}={getattr(value, '__name__', value)}" for key, value in shown.items())


def unwrap(function: Any) -> tuple[Any, list[Any]]:
    """The `@triton.jit` function inside autotune and heuristics decorators, and the heuristics, outermost first.

    Raises CaptureError if there is none.
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


def apply_heuristics(heuristics: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` (all arguments of a launch, by name) with the values that `@triton.heuristics` decorators add."""
    found = dict(settings)
    for heuristic in heuristics:
        for name, rule in heuristic.values.items():
            found[name] = rule(dict(found))
    return found


def split_settings(kernel: Any, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a launch, split into the kernel's parameters and compile options."""
    names = kernel.signature.parameters
    return (
        {name: value for name, value in settings.items() if name in names},
        {name: value for name, value in settings.items() if name not in names},
    )


def bind(what: str, kernel: Any, values: Mapping[str, object]) -> dict[str, Any]:
    """`values` in the order of the kernel's parameters, with its defaults. Raises CaptureError; `what` starts the
    message.
    """
    bound = {}
    for name, parameter in kernel.signature.parameters.items():
        if name not in values and parameter.default is parameter.empty:
            raise CaptureError(f"{what} lacks a value for parameter {name!r}; give it as an argument or a constant.")
        bound[name] = values.get(name, parameter.default)
    return bound


def evaluate_grid(what: str, grid: Grid, bound: dict[str, Any], num_ctas: int) -> tuple[int, int, int]:
    """The number of blocks in x, y and z, including all blocks of a cluster. Raises CaptureError."""
    found = grid(bound) if callable(grid) else grid
    counts = [int(count) for count in found]
    if not 1 <= len(counts) <= 3 or min(counts) < 1:
        raise CaptureError(
            f"{what} has the grid {tuple(counts)}; a grid has one to three block counts, each 1 or more."
        )
    x, y, z = (*counts, 1, 1)[:3]
    return (x * num_ctas, y, z)


def make_job(
    function: Any,
    arguments: Mapping[str, object],
    constants: Mapping[str, object],
    options: Mapping[str, Any],
    *,
    grid: Grid,
    target: Any,
    name: str | None = None,
) -> CompileJob:
    """Bind and check everything that does not need the compiler. Raises CaptureError.

    `target` is a name ("sm_90") or a Triton GPUTarget. Heuristics around `function` are evaluated.
    """
    kernel, heuristics = unwrap(function)
    job = CompileJob(
        name or configuration_name(constants, options), kernel, {}, dict(options), (1, 1, 1), gpu_target(target)
    )
    twice = sorted(arguments.keys() & constants.keys())
    if twice:
        raise CaptureError(f"{job.title} has {', '.join(twice)} both as an argument and as a constant; give it once.")
    values = {key: to_triton(key, value) for key, value in arguments.items()} | dict(constants)
    unknown = [key for key in values if key not in kernel.signature.parameters]
    if unknown:
        known = ", ".join(kernel.signature.parameters)
        raise CaptureError(f"{job.title} gives {', '.join(unknown)}, which the kernel does not take; it takes {known}.")
    values, own_options = split_settings(kernel, apply_heuristics(heuristics, {**values, **options}))
    bound = bind(job.title, kernel, values)
    blocks = evaluate_grid(job.title, grid, bound, int(own_options.get("num_ctas") or 1))
    return CompileJob(job.name, kernel, bound, own_options, blocks, job.target)


def compile_job(job: CompileJob) -> CompiledKernel:
    """Compile a job as Triton's launcher does. Raises CaptureError."""
    import triton

    where = target_name(job.target)
    start = time.perf_counter()
    try:
        compiled, signature, bound = _compile(job)
    except Exception as error:
        raise CaptureError(
            f"{job.title} does not compile for {where} with Triton {triton.__version__}: {_reason(error)}"
        ) from None
    return compiled_kernel(job, compiled, signature, bound, time.perf_counter() - start)


def compiled_kernel(
    job: CompileJob, compiled: Any, signature: Mapping[str, Any], values: Mapping[str, object], seconds: float
) -> CompiledKernel:
    """Describe Triton's result of compiling a job, with its launch. Raises CaptureError.

    `signature` has Triton's types by parameter, and `values` the arguments of the same names.
    """
    import triton

    metadata = compiled.metadata._asdict()
    extension = "ptx" if job.target.backend == "cuda" else "amdgcn"
    text, entry = compiled.asm[extension], metadata["name"]
    block = _block(text, extension, entry, metadata)
    columns = metadata.get("tmem_size") or 0
    where = target_name(job.target)
    check_limits(job.title, where, metadata["shared"], block[0] * block[1] * block[2], columns)
    arguments = manifest.manifest_arguments(signature, values, metadata.get("tensordesc_meta"))
    read = manifest.ptx_parameter_bytes if extension == "ptx" else manifest.amdgcn_parameter_bytes
    manifest.check_parameters(job.title, arguments, read(text, entry))
    # Triton's launcher requests clusters along x for more than one block a program, and none otherwise.
    blocks = metadata.get("num_ctas") or 1
    cluster = {"cluster": [blocks, 1, 1]} if blocks > 1 else {}
    return CompiledKernel(
        name=job.name,
        assembly=text,
        extension=extension,
        entry=entry,
        block=block,
        grid=job.grid,
        manifest_entry={"entry": entry, "grid": list(job.grid), "block": list(block), **cluster, "args": arguments},
        options=dict(job.options),
        target=where,
        triton_version=triton.__version__,
        compile_seconds=seconds,
    )


def compile_all(
    jobs: Sequence[CompileJob | CaptureError],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[CompiledKernel | CaptureError]:
    """Compile jobs in a pool of processes, in order; identical jobs are compiled once. Errors stay in place.

    `workers` defaults to all cores. `progress` gets the number of finished and of all compiles.
    """
    distinct: list[CompileJob] = []
    places: dict[object, int] = {}
    where: list[int | CaptureError] = []
    for job in jobs:
        if isinstance(job, CaptureError):
            where.append(job)
            continue
        identity = argument_key((job.function, job.grid, str(job.target), dict(job.values), dict(job.options)))
        if identity not in places:
            places[identity] = len(distinct)
            distinct.append(job)
        where.append(places[identity])
    compiled = run_in_processes(compile_job, distinct, workers=workers, progress=progress)
    return [compiled[place] if isinstance(place, int) else place for place in where]


def _compile(job: CompileJob) -> tuple[Any, Mapping[str, Any], Mapping[str, object]]:
    """The compiled kernel, Triton's signature of it, and the bound values."""
    import triton
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import create_function_from_signature

    kernel = job.function
    settings = {**job.options, **_launcher_options(kernel, job.options)}
    backend = make_backend(job.target)
    binder = create_function_from_signature(kernel.signature, kernel.params, _specialising(backend))
    bound, specialization, extra = binder(**job.values, **settings)
    # Triton has no public function from a specialisation to compile options.
    pack = kernel._pack_args
    named = {**settings, **_options_among_parameters(backend, job.values)}
    options, signature, constants, attributes = pack(backend, named, bound, specialization, extra)
    source = _source_class(kernel)(kernel, signature, constants, attributes)
    return triton.compile(source, target=job.target, options=options.__dict__), signature, bound


def _options_among_parameters(backend: Any, values: Mapping[str, object]) -> dict[str, object]:
    """The values of parameters that have the name of a compile option: a keyword of a launch gives both."""
    names = {each.name for each in fields(backend.parse_options(_default_fusion()))}
    return {name: value for name, value in values.items() if name in names}


def _source_class(kernel: Any) -> Any:
    """The class of the compiler's input: functions of Gluon have one of their own."""
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    from triton.compiler.compiler import ASTSource

    return ASTSource


def _launcher_options(kernel: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that `JITFunction.run` adds to those of a launch; they are part of the cache key."""
    from triton import knobs

    added: dict[str, Any] = {"debug": options.get("debug", kernel.debug) or knobs.runtime.debug}
    if options.get("enable_fp_fusion") is None:
        added |= _default_fusion()
    for name in ("instrumentation_mode", "fpsan_homomorphic_casts"):
        if hasattr(knobs.compilation, name):
            added[name] = getattr(knobs.compilation, name)
    return added


def _default_fusion() -> dict[str, bool]:
    """The compile option that a launch has without `enable_fp_fusion`, where Triton has a setting for it.

    Triton 3.9 warns in each process where the default decides.  A launch by the user still warns.
    """
    from triton import knobs

    default = getattr(knobs.language, "default_fp_fusion", None)
    return {} if default is None else {"enable_fp_fusion": default}


def _specialising(backend: Any) -> Any:
    """The object whose rules specialise pointers: the backend, on AMD without its dependency on torch."""
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
        found = _BLOCK_DIRECTIVE.search(text, start.end()) if start else None
        if found:
            x, y, z = (*(int(count) for count in found.group(1).split(",")), 1, 1)[:3]
            return (x, y, z)
    return (metadata["num_warps"] * metadata["warp_size"], 1, 1)


def _reason(error: BaseException) -> str:
    """A compiler error's message without the dump that may follow, and the message of its root cause."""
    text = str(error).strip()
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    shown = "\n".join(lines[:12]) + ("\n..." if len(lines) > 12 else "")
    said = f"{type(error).__name__}: {shown}" if shown else f"{type(error).__name__}."
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    words = next((line.strip() for line in str(first).splitlines() if line.strip()), "")
    return said if first is error or words in said else f"{said}\n{type(first).__name__}: {words}"
