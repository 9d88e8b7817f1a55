"""Work that keeps multiprocessors and memory busy."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def busy(memory, cycles, seed, WORDS: tl.constexpr, LANES: tl.constexpr):
    block = tl.program_id(0)
    lanes = tl.arange(0, LANES)
    mine = (tl.rand(seed, block) * cycles).to(tl.int64)
    first = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    now = first
    turn = 0
    while now - first < mine:
        place = (tl.rand(seed + turn, block * LANES + lanes) * WORDS).to(tl.int32)
        tl.atomic_add(memory + place, 1, sem="relaxed")
        now = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
        turn += 1
