"""Compare surveyed summation trees with those of a profile's descriptors, on any CPU.

python -m bitwise_bench.cublas.orders.order_survey_check records/cublas-survey-sm90-h100-13.1.jsonl.xz
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bitwise_bench.compressed_text import read_text
from bitwise_bench.cublas.orders.summation_trees import digest, tree_of
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import Profile, RowNotCovered, profile
from bitwise_cublas_profiles.query import Configuration, GemmQuery

Case = tuple[GemmQuery, Configuration, dict[str, Any]]


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header of a survey, and its lines."""
    text = read_text(path)
    first, *rest = (json.loads(line) for line in text.splitlines())
    return first, rest


def cases(lines: Iterable[dict[str, Any]]) -> Iterator[Case]:
    """The lines with a tree, with their queries and configurations."""
    for line in lines:
        if "digest" not in line:
            continue
        first, second = (letter == "T" for letter in line["transposes"])
        query = GemmQuery(
            line["m"], line["n"], line["k"], line["a"], line.get("b", line["a"]), line["c"], transpose_a=first,
            transpose_b=second,
        )  # fmt: skip
        yield query, Configuration(**{each.name: line.get(each.name, 0) for each in fields(Configuration)}), line


def agrees(case: Case, known: Profile) -> bool:
    """Whether the descriptor's tree is the surveyed one. Layouts without rows are extrapolated.

    Raises RowNotCovered.
    """
    query, configuration, line = case
    return digest(tree_of(descriptor_of(query, configuration, known, extrapolate=True))) == str(line["digest"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the agreement by algorithm. The exit status is 1 if a tree differs."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.order_survey_check", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("file", type=Path)
    about, lines = read(parser.parse_args(arguments).file)
    known = profile(about["library version"], about["capability"])
    outcomes: Counter[tuple[int, str]] = Counter()
    outcomes.update((line["algorithm"], "open") for line in lines if "digest" not in line and "algorithm" in line)
    for case in cases(lines):
        query, configuration, line = case
        try:
            outcome = "equal" if agrees(case, known) else "different"
        except RowNotCovered as error:
            outcome = str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
        outcomes[configuration.algorithm, outcome] += 1
        if outcome == "different":
            print(f"{query.description} by {configuration.record()}: {line['words']}")
    for (algorithm, outcome), count in sorted(outcomes.items()):
        print(f"algorithm {algorithm}: {count} {outcome}")
    return 1 if any(outcome == "different" for _, outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
