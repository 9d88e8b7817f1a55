"""Atomic operations of one block on elements that the launch also loads or stores otherwise.

An operation that is ordered among the others is a load and a store of its thread, to which the rules of all accesses
apply.  Operations without an order among each other are not: their sum may be determined although no content in between
is.  Where they are one operation that is associative and commutative, they are loads and stores of one further thread
of the block, so that they must be ordered with every other access to the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from bitwise_core.execution.memory.atomic_contributions import is_order_independent
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.store_forwarding import Access, overlapping
from bitwise_core.execution.races.undetermined import UndeterminedValues
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import operation


def note_ordered_atomics(memory: GlobalMemory, undetermined: UndeterminedValues) -> None:
    """Let the next attempt execute such operations of this one as loads and stores."""
    for buffer, atomics in memory.atomics.items():
        others = [*memory.loads.get(buffer, ()), *memory.stores.get(buffer, ())]
        if not others:
            continue
        width = max(event.bits for _, event in atomics)
        # Barriers of one side of a branch do not order what the other side does.
        chosen = [event.address for _, event in atomics if event.chosen]
        ordered = np.setdiff1d(_ordered_elements([event for _, event in atomics]), [*chain(*chosen)])
        commuting = np.setdiff1d(_commuting_elements(atomics), [*chain(*chosen), *ordered])
        undetermined.execute_in_turn(_touched(ordered, width, others))
        undetermined.execute_together(_touched(commuting, width, others))


def _touched(address: Array, width: int, others: Sequence[Access]) -> Array:
    """Return the elements at these addresses that other accesses reach."""
    elements = Access(address, np.zeros(address.size, dtype=np.int64), 0, None, width, 0)
    touched = np.zeros(address.size, dtype=bool)
    for each in others:
        touched |= overlapping(elements, each)
    found: Array = address[touched]
    return found


def _commuting_elements(atomics: Sequence[tuple[str, Access]]) -> Array:
    """Return the addresses whose operations are one that is associative and commutative, of one block and width."""
    address = np.concatenate([each.address for _, each in atomics])
    names = {name: number for number, name in enumerate({name for name, _ in atomics})}
    kinds = [
        np.full(each.address.size, names[name] << 8 | each.bits, dtype=np.int64) * is_order_independent(operation(name))
        for name, each in atomics
    ]
    block, kind = block_of(np.concatenate([each.thread for _, each in atomics])), np.concatenate(kinds)
    order = np.argsort(address, kind="stable")
    address, block, kind = address[order], block[order], kind[order]
    same = address[1:] == address[:-1]
    unlike = same & ((block[1:] != block[:-1]) | (kind[1:] != kind[:-1]))
    distinct = np.unique(address)
    found: Array = distinct[~np.isin(distinct, np.concatenate([address[1:][unlike], address[kind == 0]]))]
    return found


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
