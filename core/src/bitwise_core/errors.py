"""The base class of the errors that core raises."""

from __future__ import annotations


class BitwiseError(Exception):
    """A mistake of the caller, or a request that cannot be met: the text says what, where and what to do."""
