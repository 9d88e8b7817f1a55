"""What is assumed of the instructions of a kernel, and the evidence where none was measured, for a verdict's notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitwise_core.assembly.module import Instruction, Module
from bitwise_core.execution.architecture import ContractionAudit
from bitwise_core.numerics.mma import MmaSpec

Audit = Callable[[Module, str, str | None], ContractionAudit]

_MATRIX = ("mma", "wgmma", "tcgen05")
_TRANSFERS = ("st.async.", "cp.async.bulk.shared::cluster.shared::cta.")
TRANSFERS = (
    "transfers between the blocks of a cluster that memory barriers count (st.async, cp.async.bulk) follow the PTX "
    "ISA, and were not measured here"
)


def with_row_evidence(audit: Audit, name: str, rows: Sequence[MmaSpec]) -> Audit:
    """Return an audit whose method also says what of a kernel is assumed, or published and was not measured.

    That are matrix instructions, with the sources of an architecture's rows, if none of these was measured, and
    transfers between blocks.
    """
    own = [row for row in rows if row.architecture == name]
    measured = any(row.status == "measured by us" for row in own)
    sources = " and ".join(sorted({row.source for row in own if row.result.startswith("fp")}))

    def audited(module: Module, text: str, entry: str | None) -> ContractionAudit:
        found = audit(module, text, entry)
        if measured and not any(each in text for each in _TRANSFERS):
            return found
        instructions = [
            each for kernel in (module.kernel(entry), *module.functions.values()) for each in kernel.instructions
        ]
        opcodes = {each.opcode for each in instructions}
        notes = [TRANSFERS] * any(each.startswith(_TRANSFERS) for each in opcodes)
        if not measured and any(_is_of_matrices(each) for each in instructions):
            notes.append(
                f"the matrix instructions of {name} follow published rows, of which none was measured here ({sources})"
            )
        return ContractionAudit(found.module, "; ".join([found.method, *notes])) if notes else found

    return audited


def _is_of_matrices(instruction: Instruction) -> bool:
    return instruction.opcode.split(".")[0] in _MATRIX
