"""The buffers whose contents would answer an Unknown: those from which the value derives that must be known.

The block where the analysis stopped is executed again with recording.  From the value that must be known, the
operations that made it lead back to the loads.  What is found is a hint for the reader, and changes no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core.checker.trees.provenance import Provenance, RecordingDomain, Scalar, scalar_at
from bitwise_core.execution.buffers import open_integers
from bitwise_core.execution.concrete import PreparedLaunch, WorkLimitExceeded, run_blocks
from bitwise_core.execution.data_loops.iterations import LongLoop
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.launch import buffer_at
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.term_recorder import Recorder, TooManyTerms
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Value

MAXIMUM_WORK = 20_000_000
"""The most thread steps of the repeated execution."""
MAXIMUM_BYTES = 1 << 28
"""The most bytes of recorded hashes."""
MAXIMUM_NODES = 20_000
"""The most operations that are followed."""
MAXIMUM_LANES = 4
"""The number of lanes that are followed."""


@dataclass(frozen=True, slots=True)
class MissingTensors:
    """The names of the buffers that would answer an Unknown.

    `deciding` are those from which the value derives that must be known.  `further` are those of which a loop reads
    elements, as often as the deciding ones say: an analysis with these needs them next.
    """

    deciding: tuple[str, ...] = ()
    further: tuple[str, ...] = ()


def missing_tensors(
    prepared: PreparedLaunch, buffers: Mapping[str, int], assume: frozenset[str], error: Exception
) -> MissingTensors | None:
    """Return the buffers of integers whose contents decide what stopped an analysis, None where that is not known."""
    candidates = open_integers(prepared.launch, untyped=True)
    if not candidates:
        return MissingTensors()
    block = error.block or 0 if isinstance(error, DataDependent) else 0
    recorder = Recorder(MAXIMUM_BYTES)
    domain = RecordingDomain(assume, recorder)

    def names_below(found: Provenance, values: Iterable[Value], row: int) -> set[str]:
        numbers = _buffers_below(found, (each for value in values for each in _lanes(value, row)))
        return {name for name in candidates if buffers.get(name) in numbers}

    try:
        run_blocks(prepared, domain, buffers, [block], work=MAXIMUM_WORK)
    except DataDependent as again:
        found = Provenance(prepared, GlobalMemory(domain), recorder.terms, buffers)
        deciding = names_below(found, again.values, again.row)
        carried = again.carried if isinstance(again, LongLoop) and deciding else ()
        further = names_below(found, carried, again.row) - deciding
        return MissingTensors(tuple(sorted(deciding)), tuple(sorted(further)))
    except (Unsupported, TooManyTerms, WorkLimitExceeded, MemoryError):
        return None
    return None


def _lanes(value: Value, row: int) -> list[Scalar]:
    """A few of the lanes of a row in which the value depends on data."""
    if isinstance(value, np.ndarray):
        return []
    vector = as_symbolic_vector(value)
    shape = vector.words.shape[1:]
    unknown = np.broadcast_to(~np.asarray(L.constant_mask(vector)), shape)
    row = min(row, shape[0] - 1)
    columns = np.flatnonzero(unknown[row])
    chosen = columns[:: max(1, columns.size // MAXIMUM_LANES)][:MAXIMUM_LANES]
    return [scalar_at(vector, shape, row * shape[1] + int(column)) for column in chosen]


def _buffers_below(found: Provenance, roots: Iterable[Scalar]) -> set[int]:
    """The numbers of the buffers from which values derive: of their loads, and of pointers in computed addresses."""
    buffers: set[int] = set()
    pending = [(each, False) for each in roots]
    seen = set(pending)
    while pending and len(seen) < MAXIMUM_NODES:
        scalar, in_address = pending.pop()
        definition = found.definition(scalar)
        if definition.name == "load" or (definition.name == "constant" and in_address and scalar.bits == 64):
            buffers.add(buffer_at(scalar.first))
        below = in_address or definition.name.startswith("gather ")
        for each in definition.operands:
            if (each, below) not in seen:
                seen.add((each, below))
                pending.append((each, below))
    return buffers
