"""The error of lock files and their records."""

from __future__ import annotations

from bitwise_core.errors import BitwiseError


class LockError(BitwiseError, ValueError):
    """A lock file that cannot be used, or a product without an entry; the message says what to do."""
