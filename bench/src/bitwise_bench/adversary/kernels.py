"""Kernels of many programs: the place of each program, and the launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bitwise_bench.adversary.expressions import WIDTHS, operations
from bitwise_bench.adversary.instruction_sets.vocabulary import Vocabulary
from bitwise_bench.adversary.programs import MIXED_BYTES, STORES, Program
from bitwise_core.checker.sources import buffer_numbers
from bitwise_core.execution.launch import Argument, Launch

DTYPES = {store.buffer: store.dtype for store in STORES.values()}
"""The element type of each buffer that programs store."""

PART_BYTES = 16
"""The bytes that each thread has in the buffer `PARTS`."""

CELLS, PARTS = "cells", "parts"
"""The buffers by which blocks synchronise, whose contents are given, and through which they pass values."""

BUFFERS: Mapping[str, int] = MappingProxyType(
    buffer_numbers({f"in_{kind}" for kind in WIDTHS} | {store.buffer for store in STORES.values()} | {CELLS, PARTS})
)
"""The number of every buffer, the same in all kernels: forms of programs of several kernels are compared."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program stores: the buffer, and the number of its slot there; a slot has `size` bytes for each thread.

    `crosses`: the program reads values of other threads.
    """

    buffer: str
    slot: int
    size: int
    crosses: bool


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel: its text, the place of each program, the kinds of values that it loads, and the slots of its buffers.

    `leaves` are the loaded values of each kind.  The entry is named `kernel`.  `scalars` follow the buffers among its
    arguments; one of them may be the buffer `CELLS` or `PARTS`.  A thread loads its values `repeats` times.
    """

    text: str
    places: tuple[Place, ...]
    loads: tuple[str, ...]
    stores: Mapping[str, int]
    leaves: Mapping[str, tuple[str, int]]
    threads: int
    file: str
    scalars: tuple[Argument, ...] = ()
    repeats: int = 1

    def launch(self, blocks: int) -> Launch:
        """Return the launch with this number of blocks."""
        arguments = [Argument(kind="buffer", buffer=f"in_{kind}", dtype=self.leaves[kind][0]) for kind in self.loads]
        arguments += [Argument(kind="buffer", buffer=name, dtype=DTYPES[name]) for name in self.stores]
        return Launch(file=self.file, entry="kernel", grid=(blocks, 1, 1), block=(self.threads, 1, 1),
                      args=(*arguments, *self.scalars))  # fmt: skip

    def slot_bytes(self, buffer: str) -> int:
        """Return the bytes of one slot of a block."""
        return self.threads * next(place.size for place in self.places if place.buffer == buffer)

    def bytes_of(self, buffer: str, blocks: int) -> int:
        """Return the size of a buffer in bytes."""
        if buffer == CELLS:
            given = (each.values for each in self.scalars if each.buffer == buffer)
            return next(len(each.data) for each in given if each is not None)
        if buffer == PARTS:
            return blocks * self.threads * PART_BYTES
        if buffer.startswith("in_"):
            kind = buffer.removeprefix("in_")
            return blocks * self.threads * self.repeats * self.leaves[kind][1] * WIDTHS[kind] // 8
        return blocks * self.stores[buffer] * self.slot_bytes(buffer)


def leaf_place(name: str) -> tuple[str, int]:
    """Return the kind and the number of a loaded value, from its name such as `f32.1`."""
    kind, number = name.split(".")
    return kind, int(number)


def places_of(programs: Sequence[Program], words: Vocabulary) -> tuple[tuple[Place, ...], dict[str, int]]:
    """Return the place of each program, and the number of slots of each buffer; the first of a mixed one is free."""
    buffers = sorted({STORES[program.store].buffer for program in programs})
    counts = {name: 1 if name.startswith("mixed") else 0 for name in buffers}
    places = []
    for program in programs:
        store = STORES[program.store]
        size = MIXED_BYTES if store.buffer.startswith("mixed") else store.bits // 8
        crosses = any(words.specs[node.opcode].crosses for node in operations(program.root))
        places.append(Place(store.buffer, counts[store.buffer], size, crosses))
        counts[store.buffer] += 1
    return tuple(places), counts
