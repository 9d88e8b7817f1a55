"""Errors of this package. Each message is a sentence for the user."""

from __future__ import annotations


class CaptureError(Exception):
    """A configuration could not be compiled or described. The message names it, the reason, and the remedy."""


class SharedMemoryLimitError(CaptureError):
    """A configuration needs more shared memory than a block of the target has."""


class UnverifiableReferenceError(CaptureError):
    """The reference's own result could not be established, so no configuration can be proved equal to it."""
