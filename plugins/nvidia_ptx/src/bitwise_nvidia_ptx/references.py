"""References to NVIDIA architectures, which import neither the parser nor an opcode."""

from __future__ import annotations

from bitwise_core.plugins.references import ArchReference, Deferred

PARSE = Deferred("bitwise_nvidia_ptx.text.parser:parse")
AUDIT_TOOLS = Deferred("bitwise_nvidia_ptx.assembler.installed:audit_tools")


def nvidia_reference(targets: tuple[str, ...], record: str, *, approximations: bool = False) -> ArchReference:
    """Return the reference to an architecture of `nvidia_arch`, "MODULE:NAME", of which `targets` has the name first.

    `approximations` says whether its approximate instructions can be executed.
    """
    return ArchReference(
        targets[0], Deferred(record).load, ".ptx", targets, PARSE, AUDIT_TOOLS, every_launch=True, bits=True,
        approximations=approximations,
    )  # fmt: skip
