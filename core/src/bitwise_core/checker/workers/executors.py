"""Executors of other machines: the workers of a dask scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from bitwise_core.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

EXTRA = "bitwise-core[distributed]"
"""The requirement that installs dask.distributed."""

_SECONDS_TO_CONNECT = 10


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Provide the workers of a dask scheduler, at an address such as `tcp://host:8786`, as an executor.

    Raises InputError where dask.distributed is not installed, or the scheduler does not answer.
    """
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise InputError(f"--scheduler {address}: dask.distributed is not installed: pip install '{EXTRA}'") from None
    try:
        client = distributed.Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--scheduler {address}: the scheduler does not answer ({error})") from None
    # The client warns of each result that was lost with its worker, and asks for it again.
    logging.getLogger("distributed.client").setLevel(logging.ERROR)
    with client:
        # A reading has no effect besides its result, and its key is its content: dask may run it anywhere.
        executor: Executor = client.get_executor(pure=False)
        yield executor
