"""bitsandbytes: quantisation of blocks to 4 and 8 bits, and optimisers with quantised states, in Triton."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _operators() -> Any:
    bare_package("bitsandbytes.backends.triton")
    return import_module("bitsandbytes.backends.triton.ops")


def _code(t: Tensors) -> Any:
    """Return 256 numbers between -1 and 1 in order."""
    return t.uniform(256, low=-1.0).sort().values


def four_bits(t: Tensors) -> None:
    """Call the quantisation of blocks to both types of 4 bits, and back."""
    ops = _operators()
    for kind, dtype, count in (("nf4", "float16", 4096), ("fp4", "bfloat16", 3000), ("nf4", "float32", 1000)):
        t.call(ops.quantize_4bit, t.normal(count, dtype=dtype), 64, kind, t.dtype("uint8"))
        packed = t.integers(0, 256, count // 2, 1, dtype="uint8")
        t.call(ops.dequantize_4bit, packed, t.uniform(-(-count // 64)), 64, kind, (count,), t.dtype(dtype))
    t.call(ops.gemv_4bit, t.normal(1, 128, dtype="float16"), t.integers(0, 256, 4096, 1, dtype="uint8"), (64, 128),
           t.uniform(128), _code(t)[:16].contiguous(), 64)  # fmt: skip


def eight_bits(t: Tensors) -> None:
    """Call the quantisation of blocks to 8 bits with a table, and back."""
    ops = _operators()
    for dtype, count in (("float32", 5000), ("bfloat16", 4096)):
        t.call(ops.quantize_blockwise, t.normal(count, dtype=dtype), _code(t), 256)
        t.call(ops.dequantize_blockwise, t.integers(0, 256, count, dtype="uint8"), t.uniform(-(-count // 256)),
               _code(t), 256, t.dtype(dtype))  # fmt: skip


def optimisers(t: Tensors) -> None:
    """Call steps of optimisers with states of 32 bits."""
    ops = _operators()
    for name in ("adam", "momentum", "rmsprop", "lion", "ademamix"):
        second = None if name in ("momentum", "rmsprop", "lion") else t.uniform(3000)
        first = t.normal(2, 3000) if name == "ademamix" else t.normal(3000)
        t.call(ops.optimizer_update_32bit, name, t.normal(3000, dtype="float16"), t.normal(3000, dtype="float16"),
               first, second, None, 0.0, 0.0, 0.9, 0.99, 0.999, 5.0, 1e-8, 0.01, 3, 1e-3, 1.0)  # fmt: skip


def clipped_optimiser(t: Tensors) -> None:
    """Call a step with the norm of the update."""
    t.call(_operators().optimizer_update_32bit, "adam", t.normal(3000), t.normal(3000), t.normal(3000),
           t.uniform(3000), t.empty(1), 0.5, 3.0, 0.9, 0.99, 0.0, 0.0, 1e-8, 0.0, 3, 1e-3, 1.0)  # fmt: skip


def small_states(t: Tensors) -> None:
    """Call steps of optimisers with states of 8 bits."""
    ops = _operators()
    for name in ("adam", "momentum", "lion"):
        two = name == "adam"
        states = [t.integers(0, 256, 2048, dtype="uint8") for _ in range(2)]
        t.call(ops.optimizer_update_8bit_blockwise, name, t.normal(2048), t.normal(2048), states[0],
               states[1] if two else None, 0.9, 0.99, 0.0, 0.0, 1e-8, 3, 1e-3, _code(t), _code(t) if two else None,
               t.uniform(8), t.uniform(8) if two else None, 0.01, 1.0)  # fmt: skip


CASES = {each.__name__: each for each in (four_bits, eight_bits, optimisers, clipped_optimiser, small_states)}
