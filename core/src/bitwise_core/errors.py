"""The base class of the errors that core raises, and the error of files and arguments."""

from __future__ import annotations


class BitwiseError(Exception):
    """A mistake of the caller, or a request that cannot be met: the text says what, where and what to do."""


class InputError(BitwiseError, ValueError):
    """An error in files or arguments; `sentences` holds one sentence for each fault, which names the file."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences
