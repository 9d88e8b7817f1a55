"""Other work on the GPU beside a kernel: it delays blocks, so that they end in another order in another run."""

from __future__ import annotations

import random
from typing import Any

_WORDS = 1 << 20
"""Words of the memory that the other work writes."""
_CYCLES = 300_000
"""The longest time of a block of the other work."""
_BLOCKS = (16, 66, 132, 264, 1056)
"""Numbers of blocks of the other work: an H100 has 132 multiprocessors."""


class Disturbance:
    """Starts other work on streams of its own.  The work differs from call to call, and between runs of a program."""

    def __init__(self) -> None:
        import torch

        self._memory = torch.zeros(_WORDS, dtype=torch.int32, device="cuda")
        self._streams = [torch.cuda.Stream() for _ in range(2)]
        self._random = random.Random()

    def start(self) -> None:
        """Start the work; it ends by itself in less than a millisecond."""
        import torch

        from bitwise_bench.public_kernels.kernels.busy import busy

        for stream in self._streams[: self._random.randint(1, 2)]:
            with torch.cuda.stream(stream):
                blocks = self._random.choice(_BLOCKS)
                cycles = self._random.randrange(_CYCLES // 10, _CYCLES)
                warps = self._random.choice((1, 8))
                busy[(blocks,)](self._memory, cycles, self._random.getrandbits(30), _WORDS, 32 * warps,
                                 num_warps=warps)  # fmt: skip


def disturbance() -> Any:
    """Return the disturbance of this process's GPU."""
    global _FOUND
    if _FOUND is None:
        _FOUND = Disturbance()
    return _FOUND


_FOUND: Disturbance | None = None
