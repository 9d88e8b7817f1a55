"""Lock files: the descriptors of a library's matrix products, with which other machines reproduce their bits."""

from __future__ import annotations

from bitwise_torch.locks.library_operators import LibraryOperator
from bitwise_torch.locks.lock_diff import Difference, differences
from bitwise_torch.locks.lock_file import Entry, Finding, Lock, LockError, finding_of, lock_of, read_lock

__all__ = [
    "Difference",
    "Entry",
    "Finding",
    "LibraryOperator",
    "Lock",
    "LockError",
    "differences",
    "finding_of",
    "lock_of",
    "read_lock",
]
