"""Functions of torch.compile and fused layers run operator by operator while a mode is active.

A compiler's kernels have another order, and so have those of the layers that `torch.backends.mha` fuses.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_active = 0
_stance: Any = None
"""The stance of the compiler while a mode is active; its exit restores the one before."""
_fuses = False
"""Whether layers are fused where no mode is active."""


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Let functions of torch.compile run eagerly in all threads, and layers in their parts, until the last such block
    of the process ends.
    """
    global _active, _stance, _fuses
    import torch

    with _lock:
        if not _active:
            _stance = torch.compiler.set_stance("force_eager")
            _fuses = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _active += 1
    try:
        yield
    finally:
        with _lock:
            _active -= 1
            if not _active:
                held, _stance = _stance, None
                held.__exit__(None, None, None)
                torch.backends.mha.set_fastpath_enabled(_fuses)
