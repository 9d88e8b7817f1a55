"""Atomic operations that are ordered among each other, on elements that the launch also loads or stores otherwise.

Such an operation is a load and a store of its thread, to which the rules of all accesses apply.  Operations without an
order among each other are not: their sum may be determined although no content in between is.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.store_forwarding import Access, overlapping
from bitwise_core.execution.memory.undetermined import UndeterminedValues
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values.symbolic_vector import Array


def note_ordered_atomics(memory: GlobalMemory, undetermined: UndeterminedValues) -> None:
    """Let the next attempt execute such operations of this one as loads and stores."""
    for buffer, atomics in memory.atomics.items():
        others = [*memory.loads.get(buffer, ()), *memory.stores.get(buffer, ())]
        if not others:
            continue
        address = _ordered_elements([event for _, event in atomics])
        width = max(event.bits for _, event in atomics)
        elements = Access(address, np.zeros(address.size, dtype=np.int64), 0, None, width, 0)
        touched = np.zeros(address.size, dtype=bool)
        for each in others:
            touched |= overlapping(elements, each)
        undetermined.execute_in_turn(address[touched])


def _ordered_elements(events: list[Access]) -> Array:
    """Return the addresses whose operations are those of one thread, or of one block with barriers between threads."""
    address = np.concatenate([each.address for each in events])
    thread = np.concatenate([each.thread for each in events])
    epoch = np.concatenate([np.full(each.address.size, each.epoch, dtype=np.int64) for each in events])
    order = np.lexsort((thread, epoch, block_of(thread), address))
    address, thread, epoch = address[order], thread[order], epoch[order]
    same = address[1:] == address[:-1]
    other_block = block_of(thread[1:]) != block_of(thread[:-1])
    unordered = (thread[1:] != thread[:-1]) & (epoch[1:] == epoch[:-1])
    distinct = np.unique(address)
    found: Array = distinct[~np.isin(distinct, address[1:][same & (other_block | unordered)])]
    return found
