"""Lock files: the descriptors of a library's matrix products, written down so that their bits travel."""

from __future__ import annotations

from bitwise_torch.locks.lock_diff import Difference, differences
from bitwise_torch.locks.lock_file import Entry, Lock, LockError, What, locked, read_lock

__all__ = ["Difference", "Entry", "Lock", "LockError", "What", "differences", "locked", "read_lock"]
