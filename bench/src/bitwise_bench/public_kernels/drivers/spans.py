"""superlinear: searches of spans, and attention over the spans that were found."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _package() -> None:
    for name in ("superlinear", "superlinear.kernels", "superlinear.kernels.superlinear"):
        bare_package(name)
    for name in ("search", "span"):
        bare_package(f"superlinear.kernels.superlinear.{name}")


def searches(t: Tensors) -> None:
    """Call the search of the best spans."""
    _package()
    module = import_module("superlinear.kernels.superlinear.search._triton")
    q, k = (t.normal(1, 2, 200, 32, dtype="bfloat16") for _ in range(2))
    places = t.torch.arange(200, device=t.device)
    t.call(module.span_search_with_values, q, k, places)


def attention(t: Tensors) -> None:
    """Call attention over given spans, forward and backward."""
    _package()
    module = import_module("superlinear.kernels.superlinear.span._triton_impl")
    q, k, v = (t.normal(1, 2, 96, 32, dtype="bfloat16", grad=True) for _ in range(3))
    places = t.torch.arange(96, device=t.device)
    first = t.integers(0, 8, 1, 2, 96, 3)
    last = first + t.integers(1, 24, 1, 2, 96, 3)
    t.backward(t.call(module.fused_span_attention, q, k, v, first, last, places))


CASES = {each.__name__: each for each in (searches, attention)}
