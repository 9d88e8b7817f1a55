"""What a launch leaves in a buffer is the same whether its elements are sorted together or range by range."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.memory import outputs as module
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import Output, outputs
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import term
from bitwise_core.numerics import FLOAT_FORMATS
from covering import drawn_params

LANES = 64


def values(random: np.random.Generator, bits: int) -> SymbolicVector:
    """Return lanes of loads, numbers and terms."""
    load = SymbolicVector(bits, L.both_words(random.integers(0, 1 << 20, (1, LANES)).astype(np.uint64)), L.LOAD)
    number = L.constant_vector(random.integers(0, 1 << bits, (1, LANES), dtype=np.uint64).astype(L.UNSIGNED[bits]))
    made = term(bits, "test", [load], L.INTEGER if random.random() < 0.5 else 0)
    kind = random.integers(0, 4, (1, LANES))
    return L.blend(kind == 0, load, L.blend(kind == 1, number, made))


def memory_of(seed: int) -> GlobalMemory:
    """Return a memory after random stores; their kind depends on the seed."""
    random = np.random.default_rng(seed)
    memory = GlobalMemory(TermDomain())
    if seed % 3 == 0:
        memory.formats = {1: FLOAT_FORMATS["fp32"]}
    places = random.permutation(12 * LANES)
    for number in range(10):
        bits = 16 if seed % 5 == 1 and number == 3 else 32
        address = (1 << POINTER_SHIFT) + 4 * places[number * LANES : (number + 1) * LANES].astype(np.uint64)
        if seed % 5 == 2 and number == 7:
            address = address + np.uint64(2)  # not aligned
        owner = number * LANES
        if seed % 5 >= 3 and number == 9:
            # Elements of an earlier store: by the same threads, or, where the seed is even, by others.
            address = (1 << POINTER_SHIFT) + 4 * places[:LANES].astype(np.uint64)
            owner = 0 if seed % 2 else 1 << 20
        thread = np.arange(owner, owner + LANES, dtype=np.int64)[None]
        mask = random.random((1, LANES)) < 0.8 if number % 2 else None
        # The second half of the lanes may have passed one more barrier, as another block may.
        epoch = 2 * number + (np.arange(LANES)[None] >= LANES // 2) if seed % 4 == 1 else number
        memory.store(address[None].astype(np.uint64), values(random, bits), mask, thread, epoch, 100 + number)
    return memory


def left_by(memory: GlobalMemory, release: bool = False) -> dict[int, Output] | str:
    try:
        return outputs(memory, release=release)
    except Unsupported as error:
        return str(error)


def columns(found: dict[int, Output] | str) -> Any:
    if isinstance(found, str):
        return found
    # The numbers of threads take 4 or 8 bytes, as they need.
    return {
        (buffer, each.name): (
            None if each.name == "thread" else getattr(output, each.name).dtype,
            getattr(output, each.name).tolist(),
        )
        for buffer, output in found.items()
        for each in fields(Output)
    }


@pytest.mark.parametrize("seed", drawn_params(range(30), lambda seed: seed < 10))
def test_ranges_leave_the_same_elements(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = columns(left_by(memory_of(seed)))
    used = []
    by_ranges = module._output_by_ranges

    def noted(*arguments: Any) -> Output | None:
        used.append(by_ranges(*arguments))
        return used[-1]

    monkeypatch.setattr(module, "_output_by_ranges", noted)
    for most in (1, 37, 200):
        monkeypatch.setattr(module, "MAXIMUM_ROWS", most)
        assert columns(left_by(memory_of(seed))) == together
        memory = memory_of(seed)
        assert columns(left_by(memory, release=True)) == together
        assert bool(memory.stores) == (seed % 5 != 0), "stores are forgotten where no element is stored twice"
    if seed % 5 == 0:
        assert all(used), "aligned elements of one width, each stored once, are sorted by ranges"
    if seed % 5 in (1, 2):
        assert not any(used), "elements of several widths, or not aligned, are sorted together"
    assert isinstance(together, str) == (seed % 5 >= 3 and seed % 2 == 0)
