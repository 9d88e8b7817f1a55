"""The family of errors that core raises for whoever calls it."""

from __future__ import annotations


class BitwiseError(Exception):
    """What a caller did wrong or asks for in vain: its text is a sentence that says what, where and what to do."""
