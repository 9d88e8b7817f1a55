"""Evaluation of obligations by the functions of the vocabulary: on every pattern, or on a sample."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np

from bitwise_bench.proofs.bitvectors import Array
from bitwise_bench.proofs.discharge import Discharge
from bitwise_bench.proofs.obligations import Obligation
from bitwise_bench.proofs.vectors import patterns
from bitwise_core.numerics import Format, storage

MOST_BITS = 24
_BLOCK = 1 << 16


def _kind(form: Format) -> np.dtype[np.bool_] | np.dtype[np.unsignedinteger]:
    return np.dtype(np.bool_) if form.bits == 1 else storage(form.bits)


def _every(obligation: Obligation) -> Iterator[Mapping[str, Array]]:
    """Yield blocks of all patterns of the variables."""
    total = sum(form.bits for form in obligation.formats.values())
    for start in range(0, 1 << total, _BLOCK):
        index = np.arange(start, min(start + _BLOCK, 1 << total), dtype=np.uint64)
        block: dict[str, Array] = {}
        for name, form in obligation.formats.items():
            block[name] = (index & np.uint64((1 << form.bits) - 1)).astype(_kind(form))
            index = index >> np.uint64(form.bits)
        yield block


def _search(obligation: Obligation, blocks: Iterator[Mapping[str, Array]], method: str) -> Discharge:
    started = time.monotonic()
    for block in blocks:
        size = len(next(iter(block.values()), np.zeros(1)))
        wrong = np.flatnonzero(np.broadcast_to(obligation.refuted_at(block), (size,)))
        if wrong.size:
            values = {name: int(array[wrong[0]]) for name, array in block.items()}
            return Discharge(obligation.name, "refuted", method, time.monotonic() - started, values)
    return Discharge(obligation.name, "proved", method, time.monotonic() - started)


def exhaust(obligation: Obligation) -> Discharge | None:
    """Evaluate an obligation on every pattern of its variables; None where they have more than MOST_BITS bits."""
    if sum(form.bits for form in obligation.formats.values()) > MOST_BITS:
        return None
    return _search(obligation, _every(obligation), "exhausted")


def sample(obligation: Obligation, count: int, seed: int = 0) -> Discharge:
    """Evaluate an obligation on special and random patterns, `count` of each variable."""
    generator = np.random.default_rng(seed)
    block = {name: patterns(form, count, generator).astype(_kind(form)) for name, form in obligation.formats.items()}
    return _search(obligation, iter([block]), "sampled")
