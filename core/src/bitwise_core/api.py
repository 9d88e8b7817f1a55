"""The public functions of `bitwise_core`: compare, partition and run kernels, judge determinism, evaluate descriptors.

A kernel is the path of an assembly file, assembly text (a string of several lines), or a `Source`.  A launch is a
`Launch`, a mapping with the fields of a manifest's entry, or the path of a manifest.  A mistake raises a `BitwiseError`
whose text says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from html import escape
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bitwise_core.checker import determinism as deciding
from bitwise_core.checker import partition as equivalence
from bitwise_core.checker.counterexamples import search_verdict
from bitwise_core.checker.determinism import Determinism, DeterminismReport, KernelDeterminism
from bitwise_core.checker.kernel_comparisons import compare_or_recall
from bitwise_core.checker.kernel_files import (
    extensions,
    find_target,
    read_folder,
    read_kernel,
    resolve_targets,
    target_of,
)
from bitwise_core.checker.kernel_runs import run_kernel
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.readings import open_cache
from bitwise_core.checker.results import Place
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Counterexample, Divergence, Outcome, Verdict
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.errors import BitwiseError, InputError
from bitwise_core.execution.buffers import arrays_of, buffer_bytes, element_types, fitting_arrays
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.element_types import Array
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.limits import READING_SECONDS
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.validated_records import first_fault

__all__ = [
    "BitwiseError",
    "Counterexample",
    "Determinism",
    "DeterminismReport",
    "Divergence",
    "GEMMDesc",
    "KernelDeterminism",
    "Launch",
    "Outcome",
    "Partition",
    "Place",
    "RunResult",
    "Source",
    "Verdict",
    "compare",
    "determinism",
    "evaluate",
    "partition",
    "run",
]

Kernel: TypeAlias = Source | str | Path
AnyLaunch: TypeAlias = Launch | Mapping[str, Any] | str | Path


@dataclass(frozen=True, slots=True)
class RunResult:
    """The buffers after a launch, by name, each in the type and shape in which it was given.

    Types that NumPy lacks (bf16, fp8) are unsigned integers.  `notes` lists the assumptions behind the bytes.
    """

    buffers: Mapping[str, Array]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Array:
        return self.buffers[name]

    def __repr__(self) -> str:
        return f"RunResult({'; '.join(self._lines())})"

    def _repr_html_(self) -> str:
        return "<br>".join(escape(line) for line in self._lines())

    def _lines(self) -> list[str]:
        return [f"{name}: {each.dtype} {each.shape}" for name, each in self.buffers.items()]


def compare(
    a: Kernel,
    b: Kernel,
    launch: AnyLaunch | tuple[AnyLaunch, AnyLaunch] | None = None,
    *,
    target: str | None = None,
    assume: Iterable[str] = (),
    audit_contraction: bool = True,
    search_seconds: float = 5.0,
    time_limit: float = READING_SECONDS,
    cache: bool = True,
) -> Verdict:
    """Return the verdict on two kernels: equal, different, unproved or unknown.

    `launch` is one launch for both kernels, or a pair.  Without it the verdict is for every launch, unless both kernels
    are `Source` records that have launches.  `target` names the architecture, by default the one that the texts state.
    `assume` names conditions that a proof may use ("finite").  `audit_contraction` checks which products the assembler
    fuses into sums.  Where no proof is found, a counterexample is searched for during at most `search_seconds` seconds
    (0: no search).  A kernel that is not read within `time_limit` seconds (0: no limit) is unknown.  `cache` recalls
    readings of former runs from the disk, and keeps new ones.  Raises BitwiseError.
    """
    launches = launch if isinstance(launch, tuple) else (launch, launch)
    if len(launches) != 2:
        raise InputError(f"launch: give one launch for both kernels, or a pair, not {len(launches)} launches")
    _check_seconds("search_seconds", search_seconds, "searches for none")
    sources = source_of(a, launches[0], "a"), source_of(b, launches[1], "b")
    if (sources[0].launch is None) != (sources[1].launch is None):
        raise InputError(
            f"{sources[0].name} and {sources[1].name}: only one of them has a launch: give a launch for both"
        )
    plugins = registry.default()
    arch, (left, right) = resolve_targets(sources, plugins, target)
    options = _options(left.launch is None, assume, audit_contraction, time_limit)
    names = target_of(left, arch, plugins).name, target_of(right, arch, plugins).name
    found = compare_or_recall(left, right, names, options, open_cache(cache))
    _raise_if_any(result.unknown or result.name for result in found.results if result.malformed)
    one, other = map(plugins.arch, names)
    return search_verdict(left, right, (one, other), options, found, search_seconds)


def partition(
    kernels: str | Path | Sequence[Kernel],
    launch: AnyLaunch | None = None,
    *,
    target: str | None = None,
    assume: Iterable[str] = (),
    audit_contraction: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    time_limit: float = READING_SECONDS,
    cache: bool = True,
) -> Partition:
    """Return the equivalence classes of kernels that are proved to return the same bits.

    `kernels` is a sequence of kernels, or a folder of assembly with or without a manifest.json of launches.  `launch`
    is the launch of every kernel of a sequence; without launches the classes hold for every launch.  `workers` is the
    number of processes, by default one for each CPU core.  An `executor` (concurrent.futures.Executor) reads the
    kernels instead: its workers must have the same versions of everything.  `time_limit` and `cache` are those of
    `compare`.  Raises BitwiseError.
    """
    arch, sources = resolve_targets(_sources_of(kernels, launch), registry.default(), target)
    options = _options(all(source.launch is None for source in sources), assume, audit_contraction, time_limit)
    found = equivalence.partition(
        sources, arch.name, options, workers=_count(workers), executor=executor, cache=open_cache(cache)
    )
    _raise_if_any(reading.unknown or reading.name for reading in found.results if reading.malformed)
    return found


def determinism(
    kernels: str | Path | Sequence[Kernel],
    launch: AnyLaunch | None = None,
    *,
    target: str | None = None,
    every_launch: bool = False,
    assume: Iterable[str] = (),
    audit_contraction: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    time_limit: float = READING_SECONDS,
    cache: bool = True,
) -> DeterminismReport:
    """Return for each kernel whether it is proved to return the same bits in every run.

    A kernel that is not comes with the places that make its result depend on the order of threads.  `kernels` is a
    sequence of kernels or a folder, and `launch` the launch of every kernel of a sequence, as for `partition`; so are
    the other arguments.  `every_launch`, or no launches: the verdicts hold for every launch.  Raises BitwiseError.
    """
    arch, sources = resolve_targets(_sources_of(kernels, launch), registry.default(), target)
    without = [source for source in sources if source.launch is None]
    if without and len(without) < len(sources) and not every_launch:
        raise InputError(f"{without[0].name}: has no launch and other kernels have one: give `every_launch`")
    options = _options(every_launch or bool(without), assume, audit_contraction, time_limit)
    found = deciding.determinism(
        sources, arch.name, options, workers=_count(workers), executor=executor, cache=open_cache(cache)
    )
    _raise_if_any(reading.unknown or reading.name for reading in found.results if reading.malformed)
    return found


def run(
    kernel: Kernel,
    buffers: Mapping[str, npt.ArrayLike],
    launch: AnyLaunch | None = None,
    *,
    target: str | None = None,
    audit_contraction: bool = True,
) -> RunResult:
    """Simulate a launch and return every buffer after it, with the exact bits that the GPU returns.  No GPU is needed.

    `buffers` maps the name of every buffer of the launch to its content before the launch, in the type that the launch
    states or as unsigned integers of the same width (bit patterns).  Buffers whose contents the launch gives may be
    omitted.  `launch` is by default that of the `Source`, or that of the manifest.json in the file's folder.  Raises
    BitwiseError, also for an instruction without exact semantics.
    """
    source = source_of(kernel, launch, "kernel")
    if source.launch is None and isinstance(kernel, Path | str) and not _is_text(kernel):
        source = read_kernel(str(kernel))
    if source.launch is None:
        raise InputError(f"{source.name}: has no launch; a kernel is run for one launch: give `launch`")
    before = _buffer_arrays(buffers, source)
    arch = registry.default().arch(find_target((source,), registry.default(), target).name)
    try:
        options = _options(False, (), audit_contraction, 0)
        prepared, done = run_kernel(source, arch, options, buffer_bytes(before))
    except ManifestError as error:
        raise InputError(f"{source.name}: {error}") from None
    except Unsupported as error:
        raise Unsupported(f"{source.name} cannot be run: {error}") from None
    return RunResult(arrays_of(done.after, before, source.launch), (*prepared.notes, *done.notes))


def _sources_of(kernels: str | Path | Sequence[Kernel], launch: AnyLaunch | None) -> tuple[Source, ...]:
    """Return the kernels of a folder or of a sequence.  Raises InputError where there are none."""
    if isinstance(kernels, str | Path):
        if launch is not None:
            raise InputError(f"{kernels}: the launches of a folder are read from its manifest.json: omit `launch`")
        return read_folder(Path(kernels), extensions(registry.default())).sources
    if not isinstance(kernels, Iterable):
        raise InputError(
            f"kernels: a value of type {type(kernels).__name__} is neither a folder nor a sequence of kernels"
        )
    sources = tuple(source_of(each, launch, f"kernel {number}") for number, each in enumerate(kernels, 1))
    if not sources:
        raise InputError("kernels: the sequence is empty: give at least one kernel")
    return sources


def _count(workers: object) -> int | None:
    """Return a number of processes as it is given.  Raises InputError."""
    if workers is None:
        return None
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers: {workers!r} is not a number of processes: give an integer of at least 1, or None")
    return workers


def _options(every_launch: bool, assume: Iterable[str], audit_contraction: bool, time_limit: float) -> Options:
    if isinstance(assume, str):
        assume = (assume,)
    if not isinstance(assume, Iterable):
        raise InputError(f"assume: {assume!r} is not a sequence of names of conditions, such as ('finite',)")
    _check_seconds("time_limit", time_limit, "sets no limit")
    try:
        return Options(
            every_launch=every_launch,
            assume=frozenset(assume),
            audit_contraction=audit_contraction,
            time_limit=time_limit or None,
        )
    except ValueError as error:
        raise InputError(f"assume: {error}") from None


def _check_seconds(name: str, seconds: object, zero: str) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not float(seconds) >= 0:
        raise InputError(f"{name}: {seconds!r} is not a number of seconds of at least 0; 0 {zero}")


def _raise_if_any(sentences: Iterable[str]) -> None:
    errors = tuple(sentences)
    if errors:
        raise InputError(*errors)


def _is_text(kernel: str | Path) -> bool:
    return isinstance(kernel, str) and "\n" in kernel


def source_of(kernel: Kernel, launch: AnyLaunch | None, name: str) -> Source:
    """Return a kernel as a source with the given launch; `name` is the name of a kernel given as text."""
    if isinstance(kernel, Source):
        source = kernel
        _check_fields(source, name)
    elif not isinstance(kernel, str | Path):
        raise InputError(
            f"{name}: a value of type {type(kernel).__name__} is not a kernel: give a path, a text or a Source"
        )
    elif _is_text(kernel):
        source = Source(name, str(kernel))
    elif isinstance(launch, str | Path):
        return read_kernel(str(kernel), Path(launch))
    else:
        source = replace(read_kernel(str(kernel)), launch=None)
    return source if launch is None else replace(source, launch=_launch_of(launch, source.name))


_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "a string"),
    "text": ((str,), "a string"),
    "launch": ((Launch, type(None)), "a Launch or None"),
    "entry": ((str, type(None)), "a string or None"),
    "target": ((str, type(None)), "a string or None"),
}


def _check_fields(source: Source, name: str) -> None:
    """Check the types of a kernel's fields.  Raises InputError."""
    for field, (kinds, words) in _FIELDS.items():
        value = getattr(source, field)
        if not isinstance(value, kinds):
            raise InputError(f"{name}: the {field} of a Source is of type {type(value).__name__}: give {words}")


def _launch_of(launch: AnyLaunch, name: str) -> Launch:
    """Return the launch record for the kernel `name`.  Raises InputError."""
    if isinstance(launch, Launch):
        return launch
    if isinstance(launch, str | Path):
        raise InputError(f"{name}: a manifest gives launches of files: give the kernel by its path")
    if not isinstance(launch, Mapping):
        raise InputError(
            f"{name}: a value of type {type(launch).__name__} is not a launch: give a Launch, a mapping or a manifest"
        )
    found = launch
    if "kernels" in found:
        if not isinstance(found["kernels"], list | tuple):
            raise InputError(f"{name}: the key `kernels` of a manifest has a list of launches")
        entries = [each for each in found["kernels"] if isinstance(each, Mapping) and each.get("file") == name]
        if len(entries) != 1:
            raise InputError(f"{name}: the manifest has {len(entries)} launches of this kernel: give one as a mapping")
        found = entries[0]
    try:
        return Launch.model_validate({"file": name, **found})
    except ValidationError as error:
        raise InputError(f"{name}: launch: {first_fault(error)}") from None


def _buffer_arrays(buffers: Mapping[str, npt.ArrayLike], source: Source) -> dict[str, Array]:
    """Return the arrays of the launch's buffers.  Raises InputError with a sentence for each that does not fit."""
    assert source.launch is not None
    if not isinstance(buffers, Mapping):
        raise InputError(f"{source.name}: buffers: a value of type {type(buffers).__name__} is not a mapping of arrays")
    names = list(element_types([source.launch]))
    arrays = {}
    for name in (each for each in names if each in buffers):
        try:
            arrays[name] = np.ascontiguousarray(buffers[name])
        except (ValueError, TypeError) as error:
            raise InputError(f"{source.name}: buffers: {name} is not an array: {error}") from None
    found, faults = fitting_arrays(source.launch, arrays)
    missing = f"is missing; the launch's buffers: {', '.join(names)}"
    _raise_if_any(
        f"{source.name}: buffers: {name} {missing}"
        if fault is None
        else f"{source.name}: buffers: the array {name} {fault}"
        for name, fault in faults.items()
    )
    return found
