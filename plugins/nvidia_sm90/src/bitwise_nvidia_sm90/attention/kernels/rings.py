"""The slots of a ring of tiles in shared memory, as products take and release them."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier


@gluon.jit
def next_slot(slot, phase, STAGES: gl.constexpr):
    """Return the slot of the ring after a slot, and the phase of its barrier."""
    last = slot == STAGES - 1
    return gl.where(last, 0, slot + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def block_of_slot(
    ring, rest, full, slot, phase, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr
):  # fmt: skip
    """Return a block once it has been copied: the matrices of D1 and, if any, D2 components."""
    mbarrier.wait(full.index(slot), phase)
    found = (ring.index(slot).reshape([BLOCK, D1]),)
    if D2:
        found += (rest.index(slot).reshape([BLOCK, D2]),)
    return found


@gluon.jit
def release(empty, slot):
    """Say that all products have read a slot of the ring."""
    gl.thread_barrier()
    mbarrier.arrive(empty.index(slot))


@gluon.jit
def release_after_loads(empty, slot):
    """Say that all warps have loaded a slot of the ring.

    Loads may still be under way when a barrier lets the warps pass; a copy that then starts could overtake them.
    """
    fence_async_shared()
    release(empty, slot)
