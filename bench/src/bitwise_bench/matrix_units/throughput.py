"""Throughput of the evaluation of matrix instructions on one core, against a scalar loop over the elements.

    python -m bitwise_bench.matrix_units.throughput --out records/matrix-speed.json

Both give the same bits, which is checked.  Times are CPU seconds of this process, the best of three runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_core.numerics import Bits, FloatFormat, operation
from bitwise_core.numerics.mma import FusedSum, MmaSpec, multiply_accumulate
from bitwise_core.plugins import registry

ROWS = (
    "wgmma_k16_fp32_fp16_fp16_fp32_sm_90",
    "wgmma_k16_fp32_bf16_bf16_fp32_sm_90",
    "wgmma_k32_fp32_e4m3_e4m3_fp32_sm_90",
    "mma.sync_k16_fp32_fp16_fp16_fp32_sm_80",
)
M, N, K = 256, 256, 1024
SCALAR_SIZE = 8
"""Rows and columns that the scalar loop computes."""


def scalar_element(spec: MmaSpec, a: Sequence[int], b: Sequence[int], c: int) -> int:
    """Return one element of c + a b by a loop over k, for a fused sum of finite operands with an fp32 result."""
    rule, left, right = spec.arithmetic, spec.form("left"), spec.form("right")
    assert isinstance(rule, FusedSum)
    assert isinstance(left, FloatFormat)
    assert isinstance(right, FloatFormat)
    result = spec.form("result")
    assert isinstance(result, FloatFormat)
    for low in range(0, len(a), rule.products):
        terms = []
        for k in range(low, low + rule.products):
            (x, x_exponent), (y, y_exponent) = _parts(a[k], left), _parts(b[k], right)
            if x and y:
                terms.append((x * y, left.mantissa_bits + right.mantissa_bits, x_exponent + y_exponent))
        start, exponent = _parts(c, result)
        if start:
            terms.append((start, result.mantissa_bits, exponent))
        if not terms:
            c = 0
            continue
        least = rule.least_exponent
        top = max(exponent for _, _, exponent in terms)
        top = top if least is None else max(top, least)
        total = 0
        for significand, point, exponent in terms:
            shift = rule.fraction_bits - point + exponent - top
            cut = abs(significand) << shift if shift >= 0 else abs(significand) >> -shift
            total += cut if significand > 0 else -cut
        c = _encode(total, top - rule.fraction_bits, rule.mantissa_bits, result)
    return c


def _parts(pattern: int, form: FloatFormat) -> tuple[int, int]:
    """Return the signed integer significand of a finite pattern, and the exponent of its leading bit."""
    field = pattern >> form.mantissa_bits & form.largest_exponent_field
    significand = pattern & ((1 << form.mantissa_bits) - 1) | (field > 0) << form.mantissa_bits
    return (-significand if pattern >> (form.bits - 1) else significand), max(field, 1) - form.bias


def _encode(total: int, unit: int, mantissa_bits: int, form: FloatFormat) -> int:
    """Return the pattern of total * 2**unit, truncated to `mantissa_bits`; it must be in the range of the format."""
    magnitude = abs(total)
    if not magnitude:
        return 0
    exponent = max(magnitude.bit_length() - 1 + unit, form.smallest_exponent)
    shift = unit - (exponent - mantissa_bits)
    magnitude = magnitude << shift if shift >= 0 else magnitude >> -shift
    magnitude <<= form.mantissa_bits - mantissa_bits
    field = (exponent - form.smallest_exponent) << form.mantissa_bits
    return (field + magnitude) | (total < 0) << (form.bits - 1) if magnitude else 0


def _seconds(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(times):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def operands(spec: MmaSpec, m: int = M, n: int = N, k: int = K) -> tuple[Bits, Bits, Bits]:
    """Return normally distributed operands a (m, k), b (k, n) and a zero accumulator, as bit patterns."""
    generator = np.random.default_rng(0)

    def drawn(form: str, *shape: int) -> Bits:
        values = generator.standard_normal(shape).astype(np.float32).view(np.uint32)
        return operation(f"convert.rn.{form}.fp32").evaluate(values)

    return drawn(spec.left, m, k), drawn(spec.right, k, n), np.zeros((m, n), dtype=np.uint32)


def measure(spec: MmaSpec, times: int = 3) -> dict[str, Any]:
    """Return multiply-adds per second of a row and of the scalar loop.  Raises ValueError where their bits differ."""
    a, b, c = operands(spec)
    seconds, result = _seconds(lambda: multiply_accumulate(spec, a, b, c), times)
    rows, columns = a[:SCALAR_SIZE].tolist(), b.T[:SCALAR_SIZE].tolist()
    slow, elements = _seconds(lambda: [[scalar_element(spec, row, column, 0) for column in columns] for row in rows], 1)
    if result[:SCALAR_SIZE, :SCALAR_SIZE].tolist() != elements:
        raise ValueError(f"{spec.name}: the scalar loop and the row give different bits")
    fast, loop = M * N * K / seconds, SCALAR_SIZE * SCALAR_SIZE * K / slow
    return {"multiply_adds": round(fast), "plain_loop": round(loop), "ratio": round(fast / loop)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 0."""
    parser = command_parser("matrix_units.throughput", __doc__)
    parser.add_argument("--out", type=Path, help="write the measurements here, as JSON")
    chosen = parser.parse_args(arguments)
    found: dict[str, Any] = {"environment": analysis_environment(), "shape": [M, N, K], "rows": {}}
    for name in ROWS:
        each = measure(registry.default().matrix_unit(name))
        found["rows"][name] = each
        print(
            f"{name}: {each['multiply_adds'] / 1e6:.0f} million multiply-adds per second, "
            f"{each['plain_loop'] / 1e6:.2f} million in a scalar loop",
            flush=True,
        )
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
