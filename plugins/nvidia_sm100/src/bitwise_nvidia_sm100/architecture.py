"""The architectures sm_100 and sm_103.  The names of their approximations and matrix steps carry the architecture."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from bitwise_core.assembly.module import Module
from bitwise_core.execution.architecture import Arch, BitSupport, ContractionAudit
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm100 import matrix_units, tcgen05
from bitwise_nvidia_sm100.block_scaled_rows import BLOCK_SCALED_ROWS
from bitwise_nvidia_sm100.pending_loads import first_early_use
from bitwise_nvidia_sm100.work_stealing import OPCODE, TAKEN

MODELLED = (
    "its tcgen05 instructions follow the PTX ISA, and their arithmetic a published model (MMA-Sim); nothing of them "
    "was measured here"
)

_ONE_UNIT = (
    "tcgen05.mma and mma.sync of fp16 are one operation unless units-apart is assumed: a published model has the "
    "results of both on a B200 (MMA-Sim); they were not compared here"
)

_COPIES = (
    "copies to tensor memory (tcgen05.cp) are assumed to follow the copies and multiplications that their thread has "
    "issued before, as Triton assumes; the PTX ISA does not say so"
)


_EARLY = (
    "registers of tcgen05.ld are read before tcgen05.wait::ld (line {line}), which the PTX ISA leaves undefined; the "
    "assembler is assumed to wait for them, as ptxas 12.9 and 13.4 do"
)


_SHIFT = (
    "tcgen05.shift moves the content of lane i + 1 to lane i in each quarter of the lanes, as a public readback on a "
    "B200 shows; the PTX ISA does not say which row takes the place of which"
)


_STATIONARY = (
    "tcgen05.mma.ws with A in tensor memory multiplies the row of A of each lane of its result, as public kernels "
    "assume; the PTX ISA does not say so"
)


_STEALING = (
    f"blocks take over tiles of others (clusterlaunchcontrol): each block was executed with its own and {TAKEN} "
    "further tiles, and a tile has the same values in each of them; that every other distribution of the tiles gives "
    "these values, too, is assumed"
)


_PRODUCT_OF_HALVES = re.compile(r"tcgen05\.mma\.\S*kind::f16\b")
"""tcgen05.mma of the kind that multiplies fp16 and bf16."""

_STATIONARY_OPERAND = re.compile(r"tcgen05\.mma\.ws\.\S+\s+\[[^]]*\]\s*,\s*\[")
"""tcgen05.mma.ws whose second operand is an address."""


def _audit(arch: Arch, module: Module, text: str, entry: str | None) -> ContractionAudit:
    """See `Arch.audit_contraction`: the method also says what of tcgen05 is assumed, and that nothing was measured."""
    assert arch.audit_contraction is not None
    found = arch.audit_contraction(module, text, entry)
    notes = [MODELLED] * ("tcgen05." in text) + [_COPIES] * ("tcgen05.cp." in text)
    notes += [_ONE_UNIT] * (_PRODUCT_OF_HALVES.search(text) is not None)
    notes += [_STEALING] * (f"{OPCODE}.try_cancel" in text)
    notes += [_SHIFT] * ("tcgen05.shift." in text)
    notes += [_STATIONARY] * (_STATIONARY_OPERAND.search(text) is not None)
    if "tcgen05.ld." in text:
        line = first_early_use(module.kernel(entry), arch.opcodes)
        notes += [] if line is None else [_EARLY.format(line=line)]
    return replace(found, method="; ".join([found.method, *notes]))


def _arch(name: str) -> Arch:
    bits = BitSupport(matrix_units=matrix_units.ROWS, block_scaled_units=BLOCK_SCALED_ROWS)
    same = dict.fromkeys(matrix_units.SAME_STEPS, matrix_units.SHARED)
    targets = (name, f"{name}a", f"{name}f")
    arch = nvidia_arch(name, targets, tcgen05.TABLE, bits, same, largest_cluster=16, measured_steps=False)
    return replace(arch, audit_contraction=partial(_audit, arch))


SM100, SM103 = _arch("sm_100"), _arch("sm_103")
