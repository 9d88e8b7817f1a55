"""Descriptors of the corpus evaluated on a CPU, compared with the bytes that a GPU returned.

    python -m bitwise_bench.descriptors.evaluation records/bytes-sm90-h100-triton-3.6.0.json

Configurations of a group with the same descriptor are evaluated once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitwise_bench.command_line import command_parser
from bitwise_bench.corpus.cases import Case
from bitwise_bench.descriptors.corpus_descriptors import FAMILIES, Described, described
from bitwise_bench.draws.inputs import digest_of, inputs_of
from bitwise_bench.environment import analysis_environment
from bitwise_bench.recorded_bytes import Records, load_records
from bitwise_core.numerics import Bits
from bitwise_core.plugins.installed import evaluate


def result(case: Case, what: Described, draw: str) -> Bits:
    """Return the evaluated output for one kind of input, as a flat array of bit patterns."""
    inputs = inputs_of(case, draw)
    found = []
    for problem in range(what.batch):
        operands = []
        for name, shape, transposed in what.operands:
            stored = inputs[name].reshape(what.batch, *(shape[::-1] if transposed else shape))[problem]
            operands.append(stored.T if transposed else stored)
        found.append(evaluate(what.desc, *operands).reshape(-1))
    return np.concatenate(found)


def _dtype(case: Case, buffer: str) -> str:
    return next(array.dtype for array in case.arrays if array.name == buffer)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The comparison of some configurations: how many were compared, and by how many evaluations.

    `different` gives the kinds of input whose bytes differ from the recorded ones, by configuration; `without` counts
    the configurations of described families that have no descriptor.
    """

    cases: int
    evaluations: int
    different: Mapping[str, tuple[str, ...]]
    without: int


def compare_with_records(cases: Iterable[Case], recorded: Records, draws: Sequence[str] | None = None) -> Outcome:
    """Evaluate descriptors on some kinds of input (default: all recorded ones) and compare hashes of outputs."""
    chosen, records = list(recorded.draws if draws is None else draws), recorded.by_id()
    known: dict[tuple[str, str, Described], tuple[str, ...]] = {}
    different: dict[str, tuple[str, ...]] = {}
    count = without = 0
    for case in cases:
        record = records.get(case.id)
        if case.family not in FAMILIES or record is None or not record.usable:
            continue
        what = described(case)
        if what is None:
            without += 1
            continue
        count += 1
        key = case.family, case.group, what
        if key not in known:
            dtype = _dtype(case, what.output)
            known[key] = tuple(digest_of(result(case, what, draw), dtype) for draw in chosen)
        place = record.outputs.index(what.output)
        wrong = [
            draw
            for draw, found in zip(chosen, known[key], strict=True)
            if found != record.hashes[recorded.draws.index(draw)][place]
        ]
        if wrong:
            different[case.id] = tuple(wrong)
    return Outcome(count, len(known), different, without)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; the exit status is 1 where bytes differ from the recorded ones."""
    parser = command_parser("descriptors.evaluation", __doc__)
    parser.add_argument("records", type=Path, help="the recorded bytes")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), help="these families only")
    parser.add_argument("--draws", nargs="*", help="these kinds of input only")
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus import catalogue

    recorded = load_records(chosen.records)
    families: dict[str, dict[str, int]] = {}
    for family in chosen.families:
        found = compare_with_records(
            (case for case in catalogue.cases() if case.family == family), recorded, chosen.draws
        )
        for name, draws in found.different.items():
            print(f"{name}: {', '.join(draws)}")
        families[family] = {
            "configurations": found.cases,
            "descriptors": found.evaluations,
            "differ": len(found.different),
            "without": found.without,
        }
        print(family, families[family], flush=True)
    if chosen.out:
        kept = {
            "environment": {**analysis_environment(), "gpu": recorded.environment["gpu"]},
            "draws": list(chosen.draws or recorded.draws),
            "families": families,
        }
        chosen.out.write_text(json.dumps(kept, indent=1) + "\n")
    return 1 if any(each["differ"] for each in families.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
