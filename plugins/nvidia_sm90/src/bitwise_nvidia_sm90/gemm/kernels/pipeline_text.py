"""PTX of the ring of stages that warpgroups share.

%r_stage is the current stage, %r_parity the parity of the phase in which it is filled.
"""

from __future__ import annotations

from collections.abc import Iterator

Lines = Iterator[str]


def ceiling_quotient(target: str, value: str, divisor: int) -> Lines:
    """Compute the least integer that is at least value / divisor."""
    yield f"add.u32 {target}, {value}, {divisor - 1};"
    if divisor & (divisor - 1):
        yield f"div.u32 {target}, {target}, {divisor};"
    else:
        yield f"shr.u32 {target}, {target}, {divisor.bit_length() - 1};"


def wait(label: str, barrier: str, parity: str, scope: str) -> Lines:
    """Wait for a phase of the barrier of the current stage."""
    yield f"shl.b32 %r_at, %r_stage, 3;\nadd.u32 %r_at, %r_at, {barrier};"
    yield f"{label}: mbarrier.try_wait.parity{scope}.shared::cta.b64 %p_ready, [%r_at], {parity};"
    yield f"@!%p_ready bra {label};"


def next_stage(stages: int) -> Lines:
    """Go to the next stage of the ring."""
    yield "add.u32 %r_stage, %r_stage, 1;"
    yield f"setp.eq.u32 %p_wraps, %r_stage, {stages};"
    yield "@%p_wraps mov.u32 %r_stage, 0;"
    yield "@%p_wraps xor.b32 %r_parity, %r_parity, 1;"
