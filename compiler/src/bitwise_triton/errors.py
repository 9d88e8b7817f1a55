"""The one error of this package: a sentence for the person who can mend its cause."""

from __future__ import annotations


class CaptureError(Exception):
    """A kernel configuration could not be compiled or described; the message says which one, why, and what to do."""


class SharedMemoryLimitError(CaptureError):
    """A configuration needs more shared memory than a block of the target has."""


class UndeterminedReferenceError(CaptureError):
    """No configuration can be proved equal to the reference, as the reference's own result could not be established."""
