"""A campaign: inputs drawn for readers in worker processes, their counts, and the findings."""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from bitwise_bench.environment import analysis_environment
from bitwise_bench.fuzzing.mutations import changed_json, mutated
from bitwise_bench.fuzzing.readers import Reader, readers
from bitwise_bench.worker_pool import run_all

MAXIMUM_SECONDS = 20
"""The limit of the CPU time of an input."""

MAXIMUM_WAIT = 600
"""A process whose batch takes this much longer than planned, in seconds of wall-clock time, hangs and is ended."""

MAXIMUM_MEMORY = 4 << 30
"""The limit of a process's address space in bytes."""

BATCH_SECONDS = 10.0
"""A batch draws inputs for one reader for this time."""


class TooSlow(BaseException):
    """An input took more than `MAXIMUM_SECONDS` of CPU time."""


def batch(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Draw inputs of a batch, `READER/NUMBER`; return their counts and the findings."""
    from bitwise_core.errors import BitwiseError

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MAXIMUM_MEMORY, MAXIMUM_MEMORY))
    reader = readers()[name.split("/")[0]]
    source = random.Random(f"{settings['seed']} {name}")
    counts: Counter[str] = Counter()
    findings: list[dict[str, Any]] = []
    end = time.monotonic() + settings["seconds of a batch"]
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            data = _draw(reader, source)
            counts["inputs"] += 1
            try:
                with _time_limit():
                    reader.read(data, Path(folder))
                counts["read"] += 1
            except BitwiseError as error:
                counts["refused" if str(error).strip() else "refused without a sentence"] += 1
            except (Exception, TooSlow) as error:
                counts["findings"] += 1
                _keep(findings, reader, data, error, settings["found"])
    return {"counts": dict(counts), "findings": findings}


def _draw(reader: Reader, source: random.Random) -> bytes:
    data = source.choice(reader.seeds)
    if reader.json and source.random() < 0.6:
        return changed_json(data, source)
    return mutated(data, reader.seeds, source)


@contextmanager
def _time_limit() -> Iterator[None]:
    def expire(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {MAXIMUM_SECONDS} s of CPU time")

    before = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, MAXIMUM_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _keep(findings: list[dict[str, Any]], reader: Reader, data: bytes, error: BaseException, found: str) -> None:
    """Add a finding, and write its input, unless there is one of the same place."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "/bitwise_bench/" not in each.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "-"
    kind = {"reader": reader.name, "error": type(error).__name__, "place": place}
    if any({key: each[key] for key in kind} == kind for each in findings):
        return
    name = hashlib.sha256(data).hexdigest()[:16]
    findings.append({**kind, "message": str(error)[:300], "input": name})
    Path(found).mkdir(parents=True, exist_ok=True)
    Path(found, name).write_bytes(data)


def campaign(names: Sequence[str], *, seconds: float, jobs: int, seed: int, found: Path) -> dict[str, Any]:
    """Return the record of a campaign on readers, which has so many seconds and processes."""
    weights = [readers()[name].weight for name in names]
    each = min(BATCH_SECONDS, seconds * jobs / len(names))
    count = max(len(names), round(seconds * jobs / each))
    source = random.Random(seed)
    drawn = [*names, *source.choices(names, weights, k=count - len(names))]
    settings = {"seed": seed, "seconds of a batch": each, "found": str(found)}
    answers = run_all(
        batch, [[f"{name}/{number}"] for number, name in enumerate(drawn)], settings,
        processes=jobs, seconds=each + MAXIMUM_WAIT, report=lambda name, answer: None,
    )  # fmt: skip
    return record_of(answers, seed)


def record_of(answers: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Return the sums of the answers of batches; findings of one place count once."""
    by_reader: dict[str, Counter[str]] = {}
    findings: list[dict[str, Any]] = []
    for name, answer in sorted(answers.items()):
        reader = name.split("/")[0]
        by_reader.setdefault(reader, Counter()).update(answer.get("counts", {}))
        if answer.get("counts", {}).get("refused without a sentence"):
            findings.append({"reader": reader, "error": "no sentence", "place": "-", "message": "an error has no text"})
        if "error" in answer:
            findings.append({"reader": reader, "error": "process", "place": "-", "message": answer["error"]})
        for each in answer.get("findings", ()):
            if not any((each["reader"], each["error"], each["place"]) ==
                       (other["reader"], other["error"], other["place"]) for other in findings):  # fmt: skip
                findings.append(each)
    total: Counter[str] = sum(by_reader.values(), Counter())
    return {
        "environment": analysis_environment(), "seed": seed, "inputs": total["inputs"],
        "readers": {name: dict(sorted(counts.items())) for name, counts in by_reader.items()}, "findings": findings,
    }  # fmt: skip


def lines_of(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary of a record."""
    for name, counts in record["readers"].items():
        yield f"{name}: {', '.join(f'{count} {what}' for what, count in counts.items())}"
    yield f"{record['inputs']} inputs, {len(record['findings'])} findings"
    for each in record["findings"]:
        what = f"{each['error']} at {each['place']}: {each['message']}"
        yield f"{each['reader']}: {what} (input {each.get('input', '-')})"
