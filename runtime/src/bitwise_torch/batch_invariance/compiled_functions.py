"""Functions of torch.compile run eagerly while a mode is active: a compiler's kernels have another order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_active = 0
_stance: Any = None
"""The stance of the compiler while a mode is active; its exit restores the one before."""


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Let functions of torch.compile run eagerly in all threads, until the last such block of the process ends."""
    global _active, _stance
    import torch

    with _lock:
        if not _active:
            _stance = torch.compiler.set_stance("force_eager")
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                held, _stance = _stance, None
                held.__exit__(None, None, None)
