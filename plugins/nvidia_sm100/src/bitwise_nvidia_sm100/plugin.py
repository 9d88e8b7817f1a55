"""The hooks of this distribution: the architectures sm_100 and sm_103 and their matrix units."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from bitwise_core.assembly.module import Module
from bitwise_core.execution.architecture import Arch, BitSupport, ContractionAudit
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_nvidia_ptx.architecture import nvidia_arch
from bitwise_nvidia_sm100 import matrix_units, tcgen05

MODELLED = (
    "its tcgen05 instructions follow the PTX ISA, and their arithmetic a published model (MMA-Sim); nothing of them "
    "was measured here"
)

_COPIES = (
    "copies to tensor memory (tcgen05.cp) are assumed to follow the copies and multiplications that their thread has "
    "issued before, as Triton assumes; the PTX ISA does not say so"
)


def _audit(
    audit: Callable[[Module, str, str | None], ContractionAudit], module: Module, text: str, entry: str | None
) -> ContractionAudit:
    """See `Arch.audit_contraction`: the method also says that nothing of tcgen05 was measured."""
    found = audit(module, text, entry)
    notes = [MODELLED] * ("tcgen05." in text) + [_COPIES] * ("tcgen05.cp." in text)
    return replace(found, method="; ".join([found.method, *notes]))


def _arch(name: str) -> Arch:
    bits = BitSupport(matrix_units=matrix_units.ROWS, block_scaled_units=matrix_units.BLOCK_SCALED_ROWS)
    arch = nvidia_arch(name, (name, f"{name}a", f"{name}f"), tcgen05.TABLE, bits, largest_cluster=16)
    assert arch.audit_contraction is not None
    return replace(arch, audit_contraction=partial(_audit, arch.audit_contraction))


SM100, SM103 = _arch("sm_100"), _arch("sm_103")


@hookimpl
def bitwise_arches() -> Iterable[Arch]:
    """sm_100 and sm_103.  The names of their approximations and matrix steps carry the architecture."""
    return [SM100, SM103]


@hookimpl
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """mma.sync and tcgen05.mma of sm_100 and sm_103."""
    return matrix_units.ROWS
