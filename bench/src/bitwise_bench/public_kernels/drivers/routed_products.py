"""tokenspeed-triton-kernels: choices of experts, reductions, gates, and products of matrices in several formats."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    info = import_module("triton.language.target_info")
    if not hasattr(info, "is_hip_gfx1250"):
        # Triton 3.6 has no function for this GPU of AMD, which is not the one at hand.
        vars(info)["is_hip_gfx1250"] = info.is_hip
    from triton.runtime.jit import JITFunction

    for name_of_place in ("def_file_line_number", "def_file_col_number"):
        if not hasattr(JITFunction, name_of_place):
            # Triton 3.6 does not keep the place of a definition, which only messages show.
            setattr(JITFunction, name_of_place, 1)
    return import_module(f"triton_kernels.{name}")


def chosen(t: Tensors) -> None:
    """Call the choice of the largest, forward and backward."""
    module = _module("topk")
    for rows, experts, count, dtype in ((40, 16, 2, "float32"), (33, 60, 4, "bfloat16")):
        x = t.normal(rows, experts, dtype=dtype, grad=True)
        t.call(module.topk, x, count)
        t.call(module.topk, x.detach(), count, apply_softmax=False)


def reduced(t: Tensors) -> None:
    """Call reductions of a dimension, with masks and scales."""
    module = _module("reduce")
    for dtype in ("float32", "float16"):
        x = t.normal(4, 37, 72, dtype=dtype)
        t.call(module.reduce, x, 0)
        t.call(module.reduce, x, 0, mask=t.integers(0, 2, 4, 37, 72, dtype="int8"))
        t.call(module.reduce, x, 0, scale=t.uniform(4, 37, 72))


def gated(t: Tensors) -> None:
    """Call the gate of neighbouring columns."""
    module = _module("swiglu")
    for dtype, limit in (("bfloat16", None), ("float16", 1.5)):
        precision = module.PrecisionConfig(limit=limit)
        t.call(module.swiglu, t.normal(21, 300, dtype=dtype), 1.3, precision, None)


def narrowed(t: Tensors) -> None:
    """Call the conversion to 8 bits with scales of groups, and back."""
    module = _module("numerics_details.mxfp")
    for dtype in ("float8_e4m3fn", "float8_e5m2", "uint8"):
        found = t.call(module.downcast_to_mxfp, t.normal(24, 128, dtype="bfloat16"), t.dtype(dtype), 1)
        if found is not None:
            t.call(module.upcast_from_mxfp, found[0], found[1], t.dtype("bfloat16"), 1)


def compacted(t: Tensors) -> None:
    """Call the compaction of rows by masks."""
    module = _module("compaction")
    rows, count = 20, 4
    mask = t.integers(0, 1 << 30, rows, 1, dtype="int64").to(t.dtype("uint32"))
    t.call(module.compaction, t.normal(rows, count), t.integers(0, 32, rows, count, dtype="int32"), mask)


def products(t: Tensors) -> None:
    """Call products of matrices, alone and in batches."""
    module = _module("matmul")
    for dtype in ("float16", "bfloat16"):
        t.call(module.matmul, t.normal(48, 64, dtype=dtype), t.normal(64, 96, dtype=dtype), t.normal(96))
        t.call(module.matmul, t.normal(2, 40, 64, dtype=dtype), t.normal(2, 64, 80, dtype=dtype), None)


CASES = {each.__name__: each for each in (chosen, reduced, gated, narrowed, compacted, products)}
