"""Readings of kernels: each different one is made once, in a pool of workers, and kept on disk between runs.

A `Reading` says how one kind of question about kernels is answered.  The key of an answer is a digest of everything
that decides it: the question with the texts and the launches, the buffers, the options, and the environment, which is
the code of core and of the plugins with their tools.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from bitwise_core.caching.code_digest import code_digest
from bitwise_core.caching.entry_files import OFF_VARIABLE, SIZE_VARIABLE, EntryFolder, cache_directory
from bitwise_core.caching.key_digest import NotAKey, key_digest
from bitwise_core.checker.sources import Options, Source
from bitwise_core.plugins import registry
from bitwise_core.plugins.references import Deferred

if TYPE_CHECKING:
    from bitwise_core.checker.analysis import Session
    from bitwise_core.checker.workers.worker_pool import Progress, WorkerPool

Job = TypeVar("Job")
Result = TypeVar("Result")

FOLDER = "readings"
"""The folder of readings in the cache directory."""

_SECONDS_BETWEEN_CHECKS = 2.0
"""The environment is compared again before a result is written, but not more often."""

_NOT_DECIDING = (OFF_VARIABLE, SIZE_VARIABLE)


@dataclass(frozen=True, slots=True)
class Reading(Generic[Job, Result]):
    """How one kind of question about kernels is answered.

    `name` belongs to the key.  `answer` runs in a worker and is a function of a module, or
    a reference to one that is imported when there is a job.  `subject` returns what
    decides the answer to a job, besides the session and the environment.  `cost` estimates its time, in any unit.
    `lost` returns the result where a worker returned none, for the given reason.  `renamed` returns a result as that
    of another job with the same key, None where the result holds for its own job only.  `keeps` decides whether a
    result may be kept: one that depends on the time or the memory of this run may not.  `result` is the dataclass of
    results, None if results are not kept; its fields are kept, except those that are not compared.
    """

    name: str
    answer: Callable[[Session, Job], Result]
    subject: Callable[[Job], object]
    cost: Callable[[Job], float]
    lost: Callable[[Job, str], Result]
    renamed: Callable[[Result, Job], Result | None]
    keeps: Callable[[Result], bool]
    result: type[Any] | None


def kernel_subject(source: Source, arch: str) -> object:
    """What decides the reading of one kernel: its text, its launch and its architecture, without the file's name."""
    launch = None if source.launch is None else {name: each for name, each in source.launch if name != "file"}
    return source.text, launch, source.entry, arch


def _session_key(buffers: Mapping[str, int], options: Options) -> object:
    """What decides the readings of a session.  A time limit ends a reading, but does not change one."""
    names = [each.name for each in fields(options) if each.name != "time_limit"]
    return dict(buffers), {name: getattr(options, name) for name in names}


def environment() -> str | None:
    """A digest of everything outside of the kernels and the options that decides a reading; None if it is unknown.

    It is unknown where a file of the code was changed after this process started.
    """
    plugins = registry.default()
    code = code_digest(each.module for each in plugins.plugins if isinstance(each.module, ModuleType))
    if code is None:
        return None
    variables = {
        name: value for name, value in os.environ.items() if name.startswith("BITWISE_") and name not in _NOT_DECIDING
    }
    loaded = [(each.name, each.distribution, each.version) for each in plugins.plugins]
    known = plugins.arches.references
    find = cache(lambda tools: tools())  # architectures of one vendor share their tools
    tools = {name: find(each.audit_tools) for name, each in known.items() if each.audit_tools is not None}
    return key_digest(code, variables, loaded, tools)


class CacheWarning(RuntimeWarning):
    """Readings cannot be kept."""


class ReadingCache:
    """The readings that are kept on disk, of one environment.  `fault` is the reason why none could be written.

    By default the environment is that of this process.  Without a known one nothing is recalled or kept.
    """

    def __init__(self, entries: EntryFolder, environment: str | None = None) -> None:
        self.entries, self._given = entries, environment
        self.fault: str | None = None
        # The analysis is imported after the environment is known, so that the first result is checked in any case.
        self._checked = float("-inf")

    @cached_property
    def environment(self) -> str | None:
        """The digest of the environment, which is made when a reading is asked for; None if it is unknown."""
        return self._given or environment()

    def get(self, reading: Reading[Job, Result], key: str | None) -> Result | None:
        """The kept result of a key, None if there is none."""
        content = None if reading.result is None else self.read(self.entries, key)
        if content is None:
            return None
        codec: _Codec[Result] = _codec(reading)
        try:
            return codec.decode(content)
        except (ValueError, TypeError):
            return None

    def put(self, reading: Reading[Job, Result], key: str | None, result: Result) -> None:
        """Keep a result that may be kept, as `write` does."""
        if reading.result is not None and reading.keeps(result):
            self.write(self.entries, key, lambda: _codec(reading).encode(result))

    def beside(self, name: str) -> EntryFolder:
        """The folder of entries of another kind, beside that of the readings."""
        return EntryFolder(self.entries.path.with_name(name))

    def read(self, entries: EntryFolder, key: str | None) -> bytes | None:
        """The kept content of a key, to which the environment belongs; None if there is none."""
        return None if key is None or self.environment is None else entries.read(key)

    def write(self, entries: EntryFolder, key: str | None, content: Callable[[], bytes]) -> None:
        """Keep the content of a key.  The first failure is stated as a warning, and nothing more is written."""
        if key is None or self.environment is None or self.fault is not None or not self._same_environment():
            return
        try:
            entries.write(key, content())
        except OSError as error:
            self.fault = f"results are not kept for another run: {entries.path} cannot be written"
            self.fault += f" ({error.strerror})" if error.strerror else ""
            warnings.warn(self.fault, CacheWarning, stacklevel=2)

    def _same_environment(self) -> bool:
        """Whether the code and the tools are those of the start: a module that is imported late may be another one."""
        if time.monotonic() > self._checked + _SECONDS_BETWEEN_CHECKS:
            self._checked = time.monotonic()
            if environment() != self.environment:
                self.fault = "results are not kept for another run: the code or a tool was changed during this one"
        return self.fault is None


def open_cache(wanted: bool = True) -> ReadingCache | None:
    """The cache of readings; None where it is turned off or has no folder."""
    directory = cache_directory()
    if not wanted or os.environ.get(OFF_VARIABLE, "") not in ("", "0") or directory is None:
        return None
    return ReadingCache(EntryFolder(directory / FOLDER))


def reading_key(
    reading: Reading[Job, Result],
    job: Job,
    buffers: Mapping[str, int],
    options: Options,
    cache: ReadingCache | None,
) -> str | None:
    """The digest of everything that decides a result, None where a part of it has no digest."""
    known = None if cache is None else cache.environment
    try:
        return key_digest(reading.name, reading.subject(job), _session_key(buffers, options), known)
    except NotAKey:
        return None


@dataclass(frozen=True, slots=True)
class Readers:
    """Where readings are made and kept: the buffers and options of their sessions, a pool of such sessions, a cache.

    `pool` provides the same pool in each call, and is called where a reading is not recalled.  `progress` is called
    after each reading of `read_all`, and `before` before the first one that is not recalled.
    """

    buffers: Mapping[str, int]
    options: Options
    pool: Callable[[], WorkerPool[Session]]
    cache: ReadingCache | None = None
    progress: Progress | None = field(default=None)
    before: Callable[[], object] = lambda: None

    def read_all(self, reading: Reading[Job, Result], jobs: Sequence[Job]) -> list[Result]:
        """The results of all jobs, in order.  Jobs with the same key are read once."""
        keys = [reading_key(reading, job, self.buffers, self.options, self.cache) for job in jobs]
        found: dict[int, Result] = {}
        for positions in _grouped(keys):
            key = keys[positions[0]]
            kept = None if self.cache is None else self.cache.get(reading, key)
            if kept is not None:
                found.update(_shared(reading, kept, jobs, positions))
        self._report(len(found), len(jobs))
        while len(found) < len(jobs):
            # One of each group: the others follow from it, or are read themselves where its result is its own.
            groups = [[each for each in positions if each not in found] for positions in _grouped(keys)]
            groups = [positions for positions in groups if positions]
            for place, result in self._read([jobs[positions[0]] for positions in groups], reading):
                positions = groups[place]
                key = keys[positions[0]]
                found[positions[0]] = result
                if self.cache is not None:
                    self.cache.put(reading, key, result)
                found.update(_shared(reading, result, jobs, positions[1:]))
                self._report(len(found), len(jobs))
        return [found[position] for position in range(len(jobs))]

    def _read(self, jobs: Sequence[Job], reading: Reading[Job, Result]) -> Iterator[tuple[int, Result]]:
        from bitwise_core.checker.workers.worker_pool import Lost

        self.before()
        # What a process that is forked has imported, its workers need not import again.
        answer = reading.answer.load() if isinstance(reading.answer, Deferred) else reading.answer
        for place, result in self.pool().stream(answer, jobs, [reading.cost(job) for job in jobs]):
            yield place, reading.lost(jobs[place], result.reason) if isinstance(result, Lost) else result

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def _grouped(keys: Sequence[str | None]) -> list[list[int]]:
    """The positions of each key; a position without a key is alone."""
    groups: dict[str | int, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(position if key is None else key, []).append(position)
    return list(groups.values())


def _shared(
    reading: Reading[Job, Result], result: Result, jobs: Sequence[Job], positions: Iterable[int]
) -> Iterator[tuple[int, Result]]:
    for position in positions:
        renamed = reading.renamed(result, jobs[position])
        if renamed is not None:
            yield position, renamed


@dataclass(frozen=True, slots=True)
class _Codec(Generic[Result]):
    """Results of one dataclass as JSON, field by field."""

    kind: type[Result]
    adapters: Mapping[str, TypeAdapter[Any]]

    def encode(self, result: Result) -> bytes:
        found = {}
        for name, adapter in self.adapters.items():
            value = getattr(result, name)
            bits = {"hex": value.hex()} if isinstance(value, bytes) else None
            found[name] = bits or adapter.dump_python(value, mode="json")
        return json.dumps(found).encode()

    def decode(self, content: bytes) -> Result:
        """Raises ValueError for a content that this class of results does not have."""
        stored = json.loads(content)
        if not isinstance(stored, dict) or stored.keys() != self.adapters.keys():
            raise ValueError("other fields")
        return self.kind(**{name: self._decode_field(name, value) for name, value in stored.items()})

    def _decode_field(self, name: str, value: object) -> object:
        if isinstance(value, dict) and value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        try:
            return self.adapters[name].validate_json(json.dumps(value))
        except ValidationError as error:
            raise ValueError(str(error)) from None


@cache
def _codec(reading: Reading[Any, Any]) -> _Codec[Any]:
    kind = reading.result
    assert kind is not None
    kept = {each.name: each.type for each in fields(kind) if each.compare}
    # The types of the other fields need not be imported.
    hints = get_type_hints(type(kind.__name__, (), {"__annotations__": kept, "__module__": kind.__module__}))
    return _Codec(kind, {name: TypeAdapter(hints[name]) for name in kept})
