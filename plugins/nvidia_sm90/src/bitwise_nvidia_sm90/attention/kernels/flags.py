"""The Gluon kernel that clears the flags of programs which hand states to each other."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined, assignment"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@gluon.jit(do_not_specialize=["count"])
def clear_flags(flags, count, BLOCK: gl.constexpr):
    """Store 0 in each of `count` flags, after the kernels before have ended."""
    place = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([BLOCK // 32], [32], [1], [0]))
    gdc_launch_dependents()
    gdc_wait()
    gl.store(flags + place, gl.full([BLOCK], 0, gl.int32, place.type.layout), mask=place < count)
