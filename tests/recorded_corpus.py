"""The bytes of the corpus on an H100, which each process of the tests reads once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bitwise_bench.recorded_bytes import Records, load_records

RECORDS = Path(__file__).parents[1] / "records" / "bytes-sm90-h100-triton-3.6.0.json"


@cache
def recorded() -> Records:
    """Return the records, which no test changes."""
    return load_records(RECORDS)
