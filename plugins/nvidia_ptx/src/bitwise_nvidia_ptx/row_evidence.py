"""The evidence for the matrix instructions of a kernel, for the notes of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitwise_core.assembly.module import Module
from bitwise_core.execution.architecture import ContractionAudit
from bitwise_core.numerics.mma import MmaSpec

Audit = Callable[[Module, str, str | None], ContractionAudit]

_MATRIX = ("mma", "wgmma", "tcgen05")


def with_row_evidence(audit: Audit, name: str, rows: Sequence[MmaSpec]) -> Audit:
    """Return an audit whose method also names the sources of an architecture's rows, if none of them was measured."""
    own = [row for row in rows if row.architecture == name]
    if any(row.status == "measured by us" for row in own):
        return audit
    sources = " and ".join(sorted({row.source for row in own if row.result.startswith("fp")}))

    def audited(module: Module, text: str, entry: str | None) -> ContractionAudit:
        found = audit(module, text, entry)
        kernels = [module.kernel(entry), *module.functions.values()]
        if not any(each.opcode.split(".")[0] in _MATRIX for kernel in kernels for each in kernel.instructions):
            return found
        note = f"the matrix instructions of {name} follow published rows, of which none was measured here ({sources})"
        return ContractionAudit(found.module, f"{found.method}; {note}")

    return audited
