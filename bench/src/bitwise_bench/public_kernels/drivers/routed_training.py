"""torchtitan: rows of chosen experts, their sums and gradients, and gated units of groups of rows."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors

_TOKENS, _CHOSEN, _WIDTH = 13, 3, 160


class _Names(ModuleType):
    """A module in which every name is a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"Config": type("Config", (), {})})


def _experts() -> Any:
    bare_package("torchtitan.distributed.minimal_async_ep")
    return import_module("torchtitan.distributed.minimal_async_ep.kernels")


def _places(t: Tensors) -> Any:
    order = [(7 * place + 3) % (_TOKENS * _CHOSEN) for place in range(_TOKENS * _CHOSEN)]
    return t.of(order, "int64")


def rows_of_experts(t: Tensors) -> None:
    """Call the weighted sum of the rows of a token, its gradients, and the inverse order, with and without scores."""
    module = _experts()
    routed, gradient = t.normal(_TOKENS * _CHOSEN, _WIDTH, dtype="bfloat16"), t.normal(_TOKENS, _WIDTH)
    scores = t.uniform(_TOKENS * _CHOSEN)
    narrow = t.dtype("bfloat16")
    for given in (None, scores):
        t.call(module.reduce_topk_slots_kernel, routed, _places(t), given, num_tokens=_TOKENS, top_k=_CHOSEN)
        t.call(module.expand_topk_grad_kernel, gradient, _places(t), given, top_k=_CHOSEN, dtype=narrow)
    t.call(module.topk_scores_grad_kernel, routed, gradient, _places(t), top_k=_CHOSEN, dtype=t.dtype("float32"))
    t.call(module.invert_flat_indices_kernel, _places(t), num_rows=_TOKENS * _CHOSEN)


def destinations(t: Tensors) -> None:
    """Call the destinations of rows for experts of several ranks."""
    module = _experts()
    counts = t.of([5, 0, 9, 3, 7, 15, 0, 0], "int64")
    starts = t.of([0, 5, 5, 14, 17, 24, 39, 39], "int64")
    t.call(module.fill_dispatch_metadata_kernel, counts, starts, starts, num_routed_tokens=39, num_local_experts=4,
           max_tokens_per_segment=39)  # fmt: skip
    sources = t.integers(0, 40, 2, 8)
    t.call(module.fill_combine_metadata_kernel, counts, starts, sources, ep_rank=1, ep_size=2, num_local_experts=4,
           receive_capacity=48, max_tokens_per_segment=39)  # fmt: skip


def _units() -> Any:
    bare_package("torchtitan.overrides")
    stub("spmd_types")
    stub("torchtitan.config", derive=lambda *given, **named: lambda kept: kept,
         override=lambda *given, **named: lambda kept: kept)  # fmt: skip
    import sys

    for name in ("torchtitan.models", "torchtitan.models.common", "torchtitan.protocols", "torchtitan.distributed"):
        stub(name)
    for name in ("models.common.decoder_sharding", "models.common.feed_forward", "models.common.moe",
                 "protocols.sharding"):  # fmt: skip
        sys.modules[f"torchtitan.{name}"] = _Names(f"torchtitan.{name}")
    return import_module("torchtitan.overrides.fused_swiglu")


def gated_units(t: Tensors) -> None:
    """Call gated units, of all rows and of groups of rows, forward and backward."""
    module = _units()
    for rows, offsets in ((37, None), (40, t.of([5, 5, 21, 33], "int32"))):
        gate, up = t.normal(rows, 200, dtype="bfloat16"), t.normal(rows, 200, dtype="bfloat16")
        t.call(module.silu_and_mul_forward_kernel, gate, up, offsets)
        t.call(module.silu_and_mul_backward_kernel, t.normal(rows, 200, dtype="bfloat16"), gate, up, offsets)


CASES = {each.__name__: each for each in (rows_of_experts, destinations, gated_units)}
