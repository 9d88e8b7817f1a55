"""Measured results of matrix units: a sample of the results of `probes` on an H100, about 200 of each row.

One file for each architecture, from `python -m bitwise_bench.matrix_units.probes --again ... --samples ...`: for every
row by its name, operands a (n, k), b (n, k), c (n) and results d (n), as bit patterns.  All kinds of operands are
represented; some results were chosen because a row that differs in one parameter of its arithmetic has other results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files

import numpy as np

from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import MmaSpec, multiply_accumulate

FILES: Mapping[str, str] = {"sm_90": "matrix-units-sm90-h100.npz"}
"""The files of `bitwise_bench/matrix_units/measured`, by architecture."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands and measured results of one row."""

    a: Bits
    b: Bits
    c: Bits
    d: Bits


@cache
def samples(architecture: str) -> Mapping[str, Sample]:
    """Return the samples of an architecture by the name of the row; empty where there is no file."""
    if architecture not in FILES:
        return {}
    resource = files("bitwise_bench.matrix_units") / "measured" / FILES[architecture]
    with as_file(resource) as path, np.load(path) as file:
        arrays = dict(file)
    rows = {name.rpartition("/")[0] for name in arrays}
    return {row: Sample(*(arrays[f"{row}/{part}"] for part in "abcd")) for row in sorted(rows)}


def differing(row: MmaSpec, sample: Sample) -> int:
    """Return how many measured results differ from those of the row."""
    found = multiply_accumulate(row, sample.a[:, None, :], sample.b[:, :, None], sample.c[:, None, None])
    return int((found[:, 0, 0] != sample.d).sum())
