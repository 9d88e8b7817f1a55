"""One configuration: compiled, read, and run on a GPU; a job for `worker_pool.run_all`."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from bitwise_bench.compilation.capture import compile_case
from bitwise_bench.compilation.remembered_stages import Compilation, remembered_stages
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus.cases import Case
from bitwise_bench.published_corpus.catalogue import case_named, cases_of, definition_of, group_of
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

READING_SECONDS = 30.0
"""The time limit of a reading."""

REPEATS = 2
"""Launches for each kind of input."""

LATE = {"late": True}
"""The answer after the end of the time of a run."""

_KEPT = 256


class _Recent(OrderedDict[object, Any]):
    """The most recent results of this process by what decides them."""

    def recalled(self, key: object, find: Callable[[], Any]) -> tuple[Any, bool]:
        """Return the result of a key, and whether it was found here."""
        known = key in self
        if known:
            self.move_to_end(key)
        else:
            self[key] = find()
            if len(self) > _KEPT:
                self.popitem(last=False)
        return self[key], known


_READINGS, _RUNS = _Recent(), _Recent()
_PROCESS = ExitStack()


@cache
def _compilation(folder: Path) -> Compilation:
    """Return the compilation of this process, which uses the folder until the process ends."""
    return _PROCESS.enter_context(remembered_stages(folder))


@cache
def _session(target: str, group: str) -> Session:
    """Return the session of a group, with the numbers of its buffers."""
    cases = cases_of(group_of(group, target), target)
    return Session(
        buffer_numbers({array.name for case in cases for array in case.arrays}), Options(time_limit=READING_SECONDS)
    )


def measure(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Compile, read and, with `settings["gpu"]`, run the configuration with an id.

    `settings` also has the `target`, the `deadline` (after it, the answer is LATE), the folder of the compiler's
    `cache`, and the digest of the `reader`.  What this process read or ran from an equal text and launch is not done
    again; its seconds are 0.
    """
    if time.time() > settings["deadline"]:
        return dict(LATE)
    case = case_named(name, settings["target"])
    compilation = _compilation(Path(settings["cache"]))
    start = time.perf_counter()
    try:
        kernel = compile_case(case)
        seconds = {"compile": round(time.perf_counter() - start, 4)}
        launch = json.dumps(kernel.manifest_entry, sort_keys=True)
        digest = normalised_digest(kernel.assembly)
        binary = hashlib.sha256(compilation.binary()).hexdigest()[:16]
        definition = definition_of(group_of(name, settings["target"]), settings["target"])
        entry: dict[str, Any] = {
            "id": name,
            "definition": definition,
            "reader": settings["reader"],
            "text": digest[:16],
            "binary": binary,
        }
        found, known = _READINGS.recalled((name.rsplit("/", 1)[0], digest, launch), lambda: _read(case, kernel))
        entry |= _plain(found)
        seconds["read"] = 0.0 if known else round(found.seconds, 4)
        if settings["gpu"]:
            start = time.perf_counter()
            ran, known = _RUNS.recalled((name.rsplit("/", 1)[0], binary, launch), lambda: _run(case, digest))
            seconds["run"] = 0.0 if known else round(time.perf_counter() - start, 4)
            entry |= ran
    finally:
        compilation.discard()
        case.function.device_caches.clear()
    return {**entry, "seconds": seconds}


def _read(case: Case, kernel: Any) -> AnalysisResult:
    launch = Launch.model_validate({"file": f"{case.name}.{kernel.extension}", **kernel.manifest_entry})
    session = _session(case.target, f"{case.family}/{case.group}")
    return session.analyse(Source(case.id, kernel.assembly, launch), registry.default().arch(case.target)).portable()


def _plain(result: AnalysisResult) -> dict[str, Any]:
    if result.signature is not None:
        return {"signature": result.signature.hex()}
    reason = result.unknown or "the grid is large: its kernels are compared block by block, not by signatures"
    return {"unknown": reason, "nondeterministic": result.nondeterministic}


def _run(case: Case, digest: str) -> dict[str, Any]:
    from bitwise_bench.gpu.launching import check_device, launch_case

    try:
        found = launch_case(case, REPEATS)
    except Exception as error:
        check_device(error)
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    if found["digest"] != digest:
        return {"error": "the launcher compiled another text than the one that was read"}
    hashed = hashlib.sha256(json.dumps(found["hashes"]).encode()).hexdigest()[:32]
    return {"bytes": hashed, "repeated": found["repeated"]}
