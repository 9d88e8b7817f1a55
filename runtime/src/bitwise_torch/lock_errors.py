"""Errors of locks and of a missing PyTorch as sentences, for the commands `bitwise lock` and `bitwise receipt`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bitwise_core.cli.common import as_errors
from bitwise_core.errors import InputError


@contextmanager
def lock_errors_as_sentences() -> Iterator[None]:
    """Print the errors of a block that a user can mend as one sentence, and end with status 2."""
    from bitwise_torch.locks import LockError

    with as_errors():
        try:
            yield
        except LockError as error:
            raise InputError(str(error)) from None
        except ImportError as error:
            if error.name != "torch":
                raise
            raise InputError("recording and replaying need PyTorch, which is not installed: install torch") from None
