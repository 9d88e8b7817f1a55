"""The bytes of the corpus on an H100, which each process of the tests reads once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_bench.recorded_bytes import Records, load_records

if TYPE_CHECKING:
    from bitwise_bench.corpus.cases import Case

RECORDS = Path(__file__).parents[1] / "records" / "bytes-sm90-h100-triton-3.6.0.json"


@cache
def recorded() -> Records:
    """Return the records, which no test changes."""
    return load_records(RECORDS)


def families() -> list[str]:
    """Return the families of the corpus with recorded bytes."""
    return list(dict.fromkeys(family for family, _ in recorded().groups()))


def smallest_first(family: str) -> list[Case]:
    """Return the configurations of a family whose bytes were the same twice, those that execute fastest first."""
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.simulation.execution import size

    records = recorded().by_id()
    return sorted((each for each in catalogue.cases() if each.family == family and records[each.id].usable), key=size)
