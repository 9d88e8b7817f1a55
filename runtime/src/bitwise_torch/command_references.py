"""The commands that this distribution adds to `bitwise`; their modules are imported when they run."""

from __future__ import annotations

from bitwise_core.cli.lazy_commands import CommandReference

LOCK = CommandReference("bitwise_torch.lock_command:app", "Lock the bits of a library's matrix products.")
RECEIPT = CommandReference(
    "bitwise_torch.receipt_command:app", "State what the bits of a run rest on: proved, measured and assumed claims."
)
