"""Operands that are the same bits on every machine: patterns hashed from counters by whole numbers alone.

No generator of a library and no arithmetic of floating point takes part, on a GPU or on a CPU.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from bitwise_core.numeric import FLOAT_FORMATS
from bitwise_cublas_profiles.question import Question

if TYPE_CHECKING:
    import torch

DRAWS = ("flat", "wide")
POOL = 1 << 25
"""Elements of a pool: stretches of it are operands."""
_CHUNK = 1 << 22
_FEW = 1 << 20
_MASK = (1 << 32) - 1
_REACH = {"fp16": 10, "bf16": 16, "e4m3": 5, "e5m2": 8}
"""Binary orders of magnitude, below 8, that wide draws spread over: sums stay finite."""


def hashed(counters: torch.Tensor, seed: int) -> torch.Tensor:
    """32 bits for each counter (int64), as int64: a multiplicative hash and the finalizer of MurmurHash3."""
    found = (counters * 0x9E3779B1 + seed * 0x632BE5AB) & _MASK
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = ((found ^ (found >> shift)) * factor) & _MASK
    return found ^ (found >> 16)


def patterns(counters: torch.Tensor, seed: int, dtype: str, draw: str) -> torch.Tensor:
    """Patterns of a type, as int64: any sign and fraction, magnitudes from 0.25 to 2, or wide ones up to 8."""
    form, words = FLOAT_FORMATS[dtype], hashed(counters, seed)
    low, reach = (form.bias - 2, 3) if draw == "flat" else (form.bias + 3 - _REACH[dtype], _REACH[dtype])
    exponent = low + (words >> 12) % reach
    fraction = (words >> 22) & ((1 << form.mantissa_bits) - 1)
    return ((words & 1) << form.magnitude_bits) | (exponent << form.mantissa_bits) | fraction


class Operands:
    """Pools of patterns on a device, of `size` elements each, and the operands that are stretches of them."""

    def __init__(self, seed: int, device: str = "cuda", size: int = POOL) -> None:
        self.seed, self.device, self.size = seed, device, size
        self._pools: dict[tuple[str, str], Any] = {}

    def pool(self, dtype: str, draw: str) -> torch.Tensor:
        """The pool of a type and a kind of draw."""
        import torch

        from bitwise_cublas_profiles.tensors import torch_type

        if (dtype, draw) not in self._pools:
            made = torch.empty(self.size, dtype=torch_type(dtype), device=self.device)
            for start in range(0, self.size, _CHUNK):
                counters = torch.arange(start, min(start + _CHUNK, self.size), dtype=torch.int64, device=self.device)
                made[start : start + len(counters)] = self._made(counters, dtype, draw)
            self._pools[dtype, draw] = made
        return self._pools[dtype, draw]

    def stretch(self, dtype: str, draw: str, start: int, length: int) -> torch.Tensor:
        """So many elements of a pool; where no pool was made and they are few, they alone are made."""
        import torch

        if (dtype, draw) in self._pools or length > _FEW or self.device != "cpu":
            return self.pool(dtype, draw)[start : start + length]
        counters = torch.arange(start, start + length, dtype=torch.int64)
        return self._made(counters, dtype, draw)

    def _made(self, counters: torch.Tensor, dtype: str, draw: str) -> torch.Tensor:
        import torch

        from bitwise_cublas_profiles.tensors import torch_type

        narrow = torch_type(dtype).itemsize == 1
        found = patterns(counters, self.seed, dtype, draw).to(torch.uint8 if narrow else torch.int32)
        return (found if narrow else found.to(torch.int16)).view(torch_type(dtype))

    def draw(self, asked: Question, number: int, draw: str) -> tuple[torch.Tensor, torch.Tensor]:
        """A (m, k) and B (k, n) of a question without gaps, laid as it says."""
        source = random.Random(f"{self.seed}:{number}:{draw}")
        found = []
        for dtype, (rows, columns), transposed in (
            (asked.a, asked.stored_a, asked.transpose_a), (asked.b, asked.stored_b, asked.transpose_b),
        ):  # fmt: skip
            start = source.randrange(0, (self.size - rows * columns) // 256) * 256
            matrix = self.stretch(dtype, draw, start, rows * columns).view(rows, columns)
            found.append(matrix.t() if transposed else matrix)
        return found[0], found[1]
