"""The functions of `bitwise_core` itself: compare, partition and run kernels, evaluate descriptors.

A kernel is a path of an assembly file, a text (it has several lines), or a `Source`.  A launch is a `Launch`, a mapping
as in a manifest, or the path of a manifest.  Mistakes raise a `BitwiseError`, whose text is a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bitwise_core.checker import partition as equivalence
from bitwise_core.checker.analysis import Options, Source, prepare
from bitwise_core.checker.comparison import compare as compared
from bitwise_core.checker.counterexamples import search_verdict
from bitwise_core.checker.kernel_files import (
    InputError,
    arch_of,
    extensions,
    find_arch,
    read_folder,
    read_kernel,
    targeted,
)
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.verdicts import Counterexample, Divergence, Outcome, Verdict
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.errors import BitwiseError
from bitwise_core.execution.buffers import Array, arrays_of, contents, fault_of, forms
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate

__all__ = [
    "BitwiseError",
    "Counterexample",
    "Divergence",
    "GEMMDesc",
    "Launch",
    "Outcome",
    "Partition",
    "RunResult",
    "Source",
    "Verdict",
    "compare",
    "evaluate",
    "partition",
    "run",
]

Kernel: TypeAlias = Source | str | Path
AnyLaunch: TypeAlias = Launch | Mapping[str, Any] | str | Path


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a launch leaves: every buffer by its name, in the type and shape that it was given in.

    Types that NumPy lacks (bf16, fp8) are unsigned integers.  `notes` names what the bytes rest on.
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
) -> Verdict:
    """The verdict on two kernels: equal, different, unproved or unknown.

    `launch` is the launch of both, or that of each; without one the answer is for every launch, unless both are
    `Source` records with launches of their own.  `target` names the architecture, by default what the texts state.
    `assume` names conditions that a proof may use ("finite").  Where no proof is found, a counterexample is searched
    for, `search_seconds` at most (0: not at all).  Raises BitwiseError.
    """
    launches = launch if isinstance(launch, tuple) else (launch, launch)
    sources = _sourced(a, launches[0], "a"), _sourced(b, launches[1], "b")
    if (sources[0].launch is None) != (sources[1].launch is None):
        raise InputError(f"{sources[0].name} and {sources[1].name}: one has a launch and the other has none: give both")
    plugins = registry.default()
    arch, (left, right) = targeted(sources, plugins, target)
    options = _options(left.launch is None, assume, audit_contraction)
    both = arch_of(left, arch, plugins), arch_of(right, arch, plugins)
    found = compared(left, right, both, options)
    _refuse(result.unknown or result.name for result in found.results if result.malformed)
    return search_verdict(left, right, both, options, found, search_seconds)


def partition(
    kernels: str | Path | Sequence[Kernel],
    launch: AnyLaunch | None = None,
    *,
    target: str | None = None,
    assume: Iterable[str] = (),
    audit_contraction: bool = True,
    workers: int | None = None,
) -> Partition:
    """The classes of kernels that are proved to return the same bits.

    `kernels` is a folder of assembly, with or without a manifest.json of launches, or kernels.  `launch` is that of
    each of these; without launches the classes hold for every launch.  `workers` is the number of processes, by default
    one a core.  Raises BitwiseError.
    """
    plugins = registry.default()
    if isinstance(kernels, str | Path):
        if launch is not None:
            raise InputError(f"{kernels}: the launches of a folder are those of its manifest.json: leave `launch` out")
        sources: tuple[Source, ...] = read_folder(Path(kernels), extensions(plugins.arches.values())).sources
    else:
        sources = tuple(_sourced(each, launch, f"kernel {number}") for number, each in enumerate(kernels, 1))
    if not sources:
        raise InputError("there are no kernels to partition")
    arch, sources = targeted(sources, plugins, target)
    options = _options(all(source.launch is None for source in sources), assume, audit_contraction)
    found = equivalence.partition(sources, arch.name, options, workers=workers)
    _refuse(reading.unknown or reading.name for reading in found.readings if reading.malformed)
    return found


def run(
    kernel: Kernel,
    buffers: Mapping[str, npt.ArrayLike],
    launch: AnyLaunch | None = None,
    *,
    target: str | None = None,
    audit_contraction: bool = True,
) -> RunResult:
    """What a launch leaves in every buffer, to the bit that the GPU returns; no GPU is needed.

    `buffers` holds every buffer of the launch before it, in the types that the launch states (patterns as unsigned
    integers may stand for them).  Without `launch`, it is that of the `Source`, or of the manifest.json beside the
    file.  Raises BitwiseError, also where an instruction has no exact meaning here.
    """
    source = _sourced(kernel, launch, "kernel")
    if source.launch is None and isinstance(kernel, Path | str) and not _is_text(kernel):
        source = read_kernel(str(kernel))
    if source.launch is None:
        raise InputError(f"{source.name}: has no launch; a kernel is run for one: give `launch`")
    before = _buffers(buffers, source)
    arch = find_arch((source,), registry.default(), target)
    try:
        prepared = prepare(source, arch, _options(False, (), audit_contraction))
        done = simulate(prepared, contents(before))
    except ManifestError as error:
        raise InputError(f"{source.name}: {error}") from None
    except Unsupported as error:
        raise Unsupported(f"{source.name} is not run: {error}") from None
    return RunResult(arrays_of(done.after, before, source.launch), (*prepared.notes, *done.notes))


def _options(every_launch: bool, assume: Iterable[str], audit_contraction: bool) -> Options:
    if isinstance(assume, str):
        assume = (assume,)
    try:
        return Options(every_launch=every_launch, assume=frozenset(assume), audit_contraction=audit_contraction)
    except ValueError as error:
        raise InputError(f"assume: {error}") from None


def _refuse(sentences: Iterable[str]) -> None:
    wrong = tuple(sentences)
    if wrong:
        raise InputError(*wrong)


def _is_text(kernel: str | Path) -> bool:
    return isinstance(kernel, str) and "\n" in kernel


def _sourced(kernel: Kernel, launch: AnyLaunch | None, name: str) -> Source:
    """A kernel as a source, under `name` where it has none, with the launch that is given."""
    if isinstance(kernel, Source):
        source = kernel
    elif not isinstance(kernel, str | Path):
        raise InputError(f"{name}: a {type(kernel).__name__} is no kernel: give a path, a text or a Source")
    elif _is_text(kernel):
        source = Source(name, str(kernel))
    elif isinstance(launch, str | Path):
        return read_kernel(str(kernel), Path(launch))
    else:
        source = replace(read_kernel(str(kernel)), launch=None)
    return source if launch is None else replace(source, launch=_launch(launch, source.name))


def _launch(launch: AnyLaunch, name: str) -> Launch:
    """A launch of a kernel of that name.  Raises InputError."""
    if isinstance(launch, Launch):
        return launch
    if isinstance(launch, str | Path):
        raise InputError(f"{name}: a launch from a manifest is that of a file: name the kernel by its path")
    found = launch
    if "kernels" in found:
        entries = [each for each in found["kernels"] if isinstance(each, Mapping) and each.get("file") == name]
        if len(entries) != 1:
            raise InputError(f"{name}: the manifest has {len(entries)} launches of it: give one launch as a mapping")
        found = entries[0]
    try:
        return Launch.model_validate({"file": name, **found})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name}: launch: {place}: {re.sub('^Value error, ', '', first['msg'])}") from None


def _buffers(buffers: Mapping[str, npt.ArrayLike], source: Source) -> dict[str, Array]:
    """The arrays of the launch's buffers.  Raises InputError with a sentence for each that does not fit."""
    assert source.launch is not None
    found: dict[str, Array] = {}
    wrong = []
    for name, form in forms([source.launch]).items():
        if name not in buffers:
            wrong.append(
                f"{source.name}: buffers: {name} is missing; the launch's buffers: {', '.join(forms([source.launch]))}"
            )
            continue
        array = np.ascontiguousarray(buffers[name])
        fault = fault_of(array, form)
        if fault is not None:
            wrong.append(f"{source.name}: buffers: the array {name} {fault}")
        found[name] = array
    _refuse(wrong)
    return found
