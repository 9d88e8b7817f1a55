"""Lock files: the descriptors of a library's matrix products, with which other machines reproduce their bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_torch.locks.attention_entry import PinnedAttention
    from bitwise_torch.locks.library_operators import LibraryOperator
    from bitwise_torch.locks.lock_diff import Difference, attention_differences, differences
    from bitwise_torch.locks.lock_error import LockError
    from bitwise_torch.locks.lock_file import Entry, Finding, Lock, finding_of, lock_of, read_lock

__all__ = [
    "Difference",
    "Entry",
    "Finding",
    "LibraryOperator",
    "Lock",
    "LockError",
    "PinnedAttention",
    "attention_differences",
    "differences",
    "finding_of",
    "lock_of",
    "read_lock",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "attention_entry": ("PinnedAttention",),
            "library_operators": ("LibraryOperator",),
            "lock_diff": ("Difference", "attention_differences", "differences"),
            "lock_error": ("LockError",),
            "lock_file": ("Entry", "Finding", "Lock", "finding_of", "lock_of", "read_lock"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
