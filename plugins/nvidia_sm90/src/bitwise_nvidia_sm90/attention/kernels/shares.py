"""States of rows that a program hands to the next one through memory, and the flags that say so.

A program that has the first tiles of a row, but not the last ones, hands over its state: that of the chunks which have
ended, and that of the chunk in which it stops.  The next program waits for it before it visits the next tile.  Programs
wait for programs with smaller numbers alone, which start before them.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

WAIT = gl.constexpr("{ .reg .pred p; again: ld.acquire.gpu.global.b32 $0, [$1]; setp.eq.b32 p, $0, 0; @p bra again; }")
SIGNAL = gl.constexpr("st.release.gpu.global.b32 [$1], 1; mov.u32 $0, 1;")
STATES = gl.constexpr(2)
"""The states that are handed over for a row."""


@gluon.jit(do_not_specialize=["count"])
def clear_flags(flags, count, BLOCK: gl.constexpr):
    """Set the flags of `count` programs to 0, after the end of the kernel before."""
    L: gl.constexpr = gl.BlockedLayout([BLOCK // 32], [32], [1], [0])
    gdc_launch_dependents()
    gdc_wait()
    place = gl.arange(0, BLOCK, L)
    gl.store(flags + place, gl.zeros([BLOCK], gl.int32, L), mask=place < count)


@gluon.jit
def signal(flags, program):
    """Say that a program has handed over a state, which all its warps have stored."""
    gl.thread_barrier()
    place = (flags + program).to(gl.int64)
    gl.inline_asm_elementwise(SIGNAL, "=r,l", [place], gl.int32, False, 1)


@gluon.jit
def wait_for(flags, program):
    """Wait until a program has handed over its state, in each thread, and see what it has stored."""
    place = (flags + program).to(gl.int64)
    gl.inline_asm_elementwise(WAIT, "=r,l", [place], gl.int32, False, 1)
    gl.thread_barrier()
