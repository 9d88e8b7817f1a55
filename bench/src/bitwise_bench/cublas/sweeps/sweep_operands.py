"""Operands on a GPU by shape number and draw: flat, wide, zeros, tiny, and with exact sums of zero.

If the exact sum of an output element is zero, the output consists of the rounding errors of its order alone, so another
order returns another output; flat draws round most of that difference away. Zeros, and products that round to zero,
show by the sign of the result what a sum starts from and what an empty lane contributes.
"""

from __future__ import annotations

import math
import random
from typing import Any

from bitwise_bench.cublas.sweeps.random_queries import MAXIMUM_OPERAND
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_cublas_profiles.query import FP8, GemmQuery

KINDS = ("flat", "wide") * 5 + ("zeros", "tiny", "flat, cancelling", "wide, cancelling")
"""The draws of a shape, in order."""
DRAWS = len(KINDS)
PLAIN = sum(kind in ("flat", "wide") for kind in KINDS)
"""Number of plain random draws; they come first."""
CANCELLING = sum("cancelling" in kind for kind in KINDS)
"""Number of cancelling draws; they come last."""

_REACH = 2000.0
"""Approximate magnitude of a partial sum of a cancelling draw with an fp16 output, whose maximum is 65504."""
_SPREAD = {"fp16": (-10, 3), "bf16": (-16, 5), "fp32": (-16, 5), "e4m3": (-6, 7), "e5m2": (-10, 9)}
"""Exponent range of a wide draw, half open."""


class Pools:
    """Random numbers of every type, and the operands that are slices of them."""

    def __init__(self, seed: int, device: str = "cuda", elements: int = MAXIMUM_OPERAND + (1 << 22)) -> None:
        import torch

        self.torch = torch
        self.seed, self.device, self.elements = seed, device, elements
        self.made: dict[tuple[str, bool], Any] = {}

    def pool(self, dtype: str, wide: bool) -> Any:
        """Random numbers of a type. `wide` spreads magnitudes as far as sums stay finite."""
        if (dtype, wide) not in self.made:
            from bitwise_cublas_profiles.tensors import torch_type

            torch = self.torch
            generator = torch.Generator(device=self.device).manual_seed(self.seed * 16 + len(dtype) * 2 + wide)
            made = torch.empty(self.elements, dtype=torch_type(dtype), device=self.device)
            low, high = _SPREAD[dtype]
            for start in range(0, made.numel(), 1 << 22):
                size = min(1 << 22, made.numel() - start)
                part = torch.randn(size, device=self.device, generator=generator)
                if wide:
                    part *= torch.randint(low, high, part.shape, device=self.device, generator=generator).float().exp2()
                made[start : start + size] = part.to(made.dtype)
            self.made[dtype, wide] = made
        return self.made[dtype, wide]

    def operands(self, query: GemmQuery, number: int, draw: int) -> tuple[Any, Any]:
        """A (m, k) and B (k, n) of a draw, in the query's layout. Read-only."""
        source = random.Random(f"{self.seed}:{number}:{draw}")
        stored = []
        for dtype, (rows, columns) in ((query.a, query.stored_a), (query.b, query.stored_b)):
            pool = self.pool(dtype, "wide" in KINDS[draw])
            start = source.randrange(0, (pool.numel() - rows * columns) // 256) * 256
            stored.append(pool[start : start + rows * columns].view(rows, columns))
        if "cancelling" in KINDS[draw] and query.k > 1:
            stored = self._cancelled(query, source, *stored)
        elif KINDS[draw] in ("zeros", "tiny"):
            change = self._zeros if KINDS[draw] == "zeros" else self._tiny
            stored = change(query, source, *(each.clone() for each in stored))
        a, b = stored
        return a.t() if query.transpose_a else a, b.t() if query.transpose_b else b

    def _cancelled(self, query: GemmQuery, source: random.Random, a: Any, b: Any) -> list[Any]:
        """Copies with random pairs of k whose products have opposite signs. If k is odd, one value is zero."""
        torch = self.torch
        generator = torch.Generator(device=self.device).manual_seed(source.getrandbits(48))
        order = torch.randperm(query.k, device=self.device, generator=generator)
        half = query.k // 2
        first, second, over = order[:half], order[half : 2 * half], order[2 * half :]
        made = []
        for matrix, axis, sign in ((a, 0 if query.transpose_a else 1, True), (b, 1 if query.transpose_b else 0, False)):
            copy = matrix.clone()
            if sign and query.c == "fp16" and query.a not in FP8:
                copy *= 2.0 ** math.floor(math.log2(max(2.0, _REACH / math.sqrt(query.k))))
            bits, sign_bit = self._bits(copy)
            chosen = bits.index_select(axis, first)
            if sign:
                chosen ^= sign_bit
            bits.index_copy_(axis, second, chosen)
            bits.index_fill_(axis, over, 0)
            made.append(copy)
        return made

    def _bits(self, matrix: Any) -> tuple[Any, int]:
        """The bit patterns as a view, and the sign bit."""
        size = matrix.element_size()
        form = {1: self.torch.int8, 2: self.torch.int16, 4: self.torch.int32}[size]
        return matrix.view(form), -(1 << (8 * size - 1))

    def _lines(self, query: GemmQuery, source: random.Random, a: Any, b: Any) -> list[tuple[Any, Any]]:
        """A by rows and B by columns, each with a class from 0 to 3 for each line."""
        found = []
        for matrix, across in ((a, query.transpose_a), (b, not query.transpose_b)):
            lines = matrix.t() if across else matrix
            number = self.torch.arange(source.randrange(4), lines.shape[0] + 4, device=self.device) % 4
            found.append((lines, number[: lines.shape[0], None]))
        return found

    def _zeros(self, query: GemmQuery, source: random.Random, a: Any, b: Any) -> list[Any]:
        """Rows with -0 alone, with zeros of either sign and few numbers, with -0 and negative numbers, and unchanged.

        Columns with positive numbers, with +0 alone, with +0 and positive numbers, and unchanged.
        """
        torch = self.torch
        generator = torch.Generator(device=self.device).manual_seed(source.getrandbits(48))
        for (lines, number), left in zip(self._lines(query, source, a, b), (True, False), strict=True):
            bits, sign = self._bits(lines)
            chance = torch.randint(0, 64, lines.shape, device=self.device, generator=generator, dtype=torch.uint8)
            few, half = (number == 1) & (chance == 0), (number == 2) & (chance < 32)
            kept = (number == 3) | few | half if left else (number == 0) | (number == 3) | half
            bits.copy_(torch.where(kept, bits, bits & sign))
            self._sign(bits, sign, (number == 0) | (number == 2) if left else number != 3, negative=left)
        return [a, b]

    def _tiny(self, query: GemmQuery, source: random.Random, a: Any, b: Any) -> list[Any]:
        """Rows and columns whose sums are near the underflow threshold of the output type or fp32. Three of four have
        one sign.
        """
        deep = math.log2(query.k)
        if query.a in ("bf16", "fp32"):
            # Products below fp32; products near its limit; products whose sums may be below bf16; larger ones.
            exponents = [-156.0, -150.0, max(-150.0, -136 - deep), -131 - deep / 2]
        else:
            exponents = [-28 - deep, -26 - deep, -24 - deep, -22 - deep / 2]
        half, less = round(exponents[1] / 2), 14 if query.a in ("bf16", "fp32") else 2
        powers = [round(each) - half for each in exponents], [half, half - less, half, half]
        for (lines, number), left in zip(self._lines(query, source, a, b), (True, False), strict=True):
            bits, sign = self._bits(lines)
            if query.a in FP8:
                bits &= sign | ((1 << FLOAT_FORMATS[query.a if left else query.b].mantissa_bits) - 1)
            else:
                scales = [2.0**each for each in powers[0 if left else 1]]
                lines *= self.torch.tensor(scales, dtype=lines.dtype, device=self.device)[number]
            self._sign(bits, sign, number != 3, negative=left)
        return [a, b]

    def _sign(self, bits: Any, sign: int, where: Any, *, negative: bool) -> None:
        bits.copy_(self.torch.where(where, bits | sign if negative else bits & ~sign, bits))
