"""The corpus executed on bit patterns, without a GPU, and compared with the bytes that a GPU returned.

    python -m bitwise_bench.simulation.execution records/bytes-sm90-h100-triton-3.6.0.json

Every configuration is compiled, executed for each recorded kind of input, and its output hashes are compared.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import compile_source
from bitwise_bench.corpus.cases import DTYPE_BYTES, Case
from bitwise_bench.draws.formats import Bits
from bitwise_bench.draws.inputs import digest_of, inputs_of
from bitwise_bench.readings.assumed import reading
from bitwise_bench.recorded_bytes import CaseRecord, Records, load_records
from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import prepare
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.simulation import simulate_batch
from bitwise_core.plugins import registry


@dataclass(frozen=True, slots=True)
class Run:
    """The result for one configuration: the kinds of input whose bytes differ, or the reason why it was not executed.

    `digest` is that of the compiled text; nothing is compared where it differs from the recorded one.
    """

    id: str
    digest: str
    different: tuple[str, ...] = ()
    refused: str | None = None

    def against(self, record: CaseRecord) -> str:
        """Return `equal`, `different`, `refused`, or `another text` where the digests differ."""
        if self.digest != record.digest:
            return "another text"
        if self.refused is not None:
            return "refused"
        return "different" if self.different else "equal"


def run_case(case: Case, record: CaseRecord, recorded: Records, draws: Iterable[str] | None = None) -> Run:
    """Compile and execute a configuration on some kinds of input (default: all recorded ones) and compare hashes."""
    source, digest, _ = compile_source(case)
    if digest != record.digest:
        return Run(case.id, digest)
    try:
        target = recorded.environment["architecture"]
        prepared = prepare(source, registry.default().arch(target), reading(target))
        expected = {draw: record.hashes[recorded.draws.index(draw)] for draw in draws or recorded.draws}
        found = outputs(case, prepared, tuple(expected))
    except (Unsupported, AssemblyError) as error:
        return Run(case.id, digest, (), str(error))
    return Run(case.id, digest, tuple(draw for draw, hashes in expected.items() if found[draw] != hashes))


def outputs(case: Case, prepared: PreparedLaunch, draws: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the hashes of the outputs for each kind of input.  Raises Unsupported."""
    launch = prepared.launch
    inputs = [inputs_of(case, draw) for draw in draws]
    offsets = {array.name: array.offset * DTYPE_BYTES[array.dtype] for array in case.arrays}
    before = [{name: _allocation(bits[name], offsets[name]) for name in launch.buffers()} for bits in inputs]
    runs = simulate_batch(prepared, before) if before else []
    found = {}
    for draw, bits, run in zip(draws, inputs, runs, strict=True):
        hashes = []
        for array in case.outputs:
            name, width = array.name, f"u{DTYPE_BYTES[array.dtype]}"
            content = run.after[name][offsets[name] :] if name in run.after else bits[name].view(np.uint8)
            hashes.append(digest_of(content.view(width), array.dtype))
        found[draw] = tuple(hashes)
    return found


def _allocation(bits: Bits, offset: int) -> Bits:
    """Return the bytes of an allocation whose buffer starts at `offset`, in bytes."""
    return np.concatenate([np.zeros(offset, dtype=np.uint8), bits.view(np.uint8)])


def size(case: Case) -> int:
    """Return the number of warps of the launch, an estimate of the cost of its execution."""
    return int(np.prod(case.grid)) * case.num_warps


def run_named(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Execute the configuration with the id `name`; a job for `worker_pool.run_all`."""
    from bitwise_bench.corpus import catalogue

    recorded = load_records(settings["records"])
    found = run_case(catalogue.by_id()[name], recorded.by_id()[name], recorded, settings["draws"])
    return {"outcome": found.against(recorded.by_id()[name]), "different": found.different, "refused": found.refused}


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the corpus; the exit status is 1 where bytes differ from the recorded ones, else 0."""
    parser = command_parser("simulation.execution", __doc__)
    parser.add_argument("records", type=Path, help="the recorded bytes")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--draws", nargs="*", help="these kinds of input only")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one configuration (default 300)")
    chosen = parser.parse_args(arguments)

    from bitwise_bench.corpus import catalogue
    from bitwise_bench.worker_pool import run_all

    recorded = load_records(chosen.records)
    unknown = sorted(set(chosen.draws or ()) - set(recorded.draws))
    if unknown:
        parser.error(f"no kind of input {', '.join(unknown)} was recorded; recorded: {', '.join(recorded.draws)}")
    usable = {record.id for record in recorded.cases if record.usable}
    names = [
        case.id
        for case in catalogue.cases()
        if case.id in usable and (not chosen.families or case.family in chosen.families)
    ]
    settings = {"records": str(chosen.records), "draws": chosen.draws}
    start = time.monotonic()
    count: Counter[str] = Counter()
    wrong: list[str] = []

    def report(name: str, answer: dict[str, Any]) -> None:
        outcome = "failed" if answer.get("error") else answer["outcome"]
        count[outcome] += 1
        if outcome in ("different", "failed"):
            wrong.append(name)
        if outcome != "equal":
            why = answer.get("error") or answer["refused"] or ", ".join(answer["different"])
            print(f"{outcome}: {name}: {why}", flush=True)

    batches = [names[i : i + 6] for i in range(0, len(names), 6)]
    run_all(run_named, batches, settings, processes=chosen.processes, seconds=chosen.seconds, report=report)
    print(
        f"{len(names)} configurations in {time.monotonic() - start:.0f} s: "
        + ", ".join(f"{n} {k}" for k, n in count.items())
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
