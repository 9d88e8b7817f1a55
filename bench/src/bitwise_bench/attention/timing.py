"""Times of attention and of PyTorch's backends, as CUDA graphs, and errors against double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PREFILL = (
    {"batch": 4, "queries": 512, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 2, "queries": 4096, "heads": 16, "groups": 16, "depth": 128},
    {"batch": 1, "queries": 8192, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 1, "queries": 16384, "heads": 16, "groups": 16, "depth": 128},
    {"batch": 2, "queries": 4096, "heads": 32, "groups": 32, "depth": 64},
    {"batch": 1, "queries": 16384, "heads": 16, "groups": 4, "depth": 64},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 256},
)
DECODE = (
    {"batch": 1, "keys": 8192, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 1, "keys": 65536, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 8, "keys": 8192, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 64, "keys": 2048, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 256, "keys": 1000, "heads": 16, "groups": 2, "depth": 128},
    {"batch": 4, "keys": 131072, "heads": 16, "groups": 1, "depth": 128},
)
TRAINING = (
    {"batch": 2, "queries": 4096, "heads": 16, "groups": 16, "depth": 128},
    {"batch": 2, "queries": 4096, "heads": 32, "groups": 32, "depth": 64},
)
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


def graph_seconds(function: Callable[[], Any], repetitions: int = 5) -> float:
    """Return the median time of a call in a CUDA graph of several."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repetitions):
                function()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / repetitions / 1000)
    return float(sorted(times)[len(times) // 2])


def _tensors(batch: int, queries: int, keys: int, heads: int, groups: int, depth: int) -> list[Any]:
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    shapes = (batch, queries, heads, depth), (batch, keys, groups, depth), (batch, keys, groups, depth)
    return [torch.randn(one, generator=generator, device="cuda").bfloat16().transpose(1, 2) for one in shapes]


def _functions(tensors: list[Any], causal: bool) -> dict[str, Callable[[], Any]]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from bitwise_torch import attention

    def backend(name: str) -> Callable[[], Any]:
        def call() -> Any:
            with sdpa_kernel(getattr(SDPBackend, name)):
                return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)

        return call

    query, key, value = tensors
    return {
        "bitwise": lambda: attention(query, key, value, is_causal=causal, enable_gqa=True),
        **{name: backend(each) for name, each in BACKENDS.items()},
    }


def _error(function: Callable[[], Any], tensors: list[Any], causal: bool) -> float:
    """Return the root of the mean square difference of the first head from double precision."""
    import torch

    q, k, v = (each[:1, :1].double() for each in tensors)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return float((function()[:1, :1].double() - exact).square().mean().sqrt())


def _measured(functions: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, function in functions.items():
        try:
            found[name] = graph_seconds(function, repetitions)
        except RuntimeError:  # a backend that does not serve these tensors
            found[name] = None
    return found


def prefill(case: dict[str, int]) -> dict[str, Any]:
    """Return seconds by implementation, and errors, of a causal prefill."""
    tensors = _tensors(case["batch"], case["queries"], case["queries"], case["heads"], case["groups"], case["depth"])
    functions = _functions(tensors, True)
    seconds = _measured(functions, 3)
    small = case["queries"] <= 4096
    errors = {name: _error(each, tensors, True) for name, each in functions.items() if small and seconds[name]}
    operations = 2 * case["batch"] * case["heads"] * case["queries"] ** 2 * case["depth"]
    return {"case": case, "seconds": seconds, "operations": operations, "errors": errors}


def decode(case: dict[str, int]) -> dict[str, Any]:
    """Return seconds by implementation, and errors, of one query for each sequence."""
    tensors = _tensors(case["batch"], 1, case["keys"], case["heads"], case["groups"], case["depth"])
    functions = _functions(tensors, False)
    seconds = _measured(functions, 10)
    errors = {name: _error(each, tensors, False) for name, each in functions.items() if seconds[name]}
    moved = 4 * case["batch"] * case["keys"] * case["groups"] * case["depth"]
    return {"case": case, "seconds": seconds, "bytes": moved, "errors": errors}


def training(case: dict[str, int]) -> dict[str, Any]:
    """Return seconds by implementation of the gradients of a causal prefill, without the forward pass."""
    import torch

    tensors = _tensors(case["batch"], case["queries"], case["queries"], case["heads"], case["groups"], case["depth"])
    seconds: dict[str, float | None] = {}
    for name, function in _functions([each.requires_grad_() for each in tensors], True).items():
        out = function()
        slope = torch.ones_like(out)

        def backward(out: Any = out, slope: Any = slope) -> Any:
            return torch.autograd.grad(out, tensors, slope, retain_graph=True)

        times = []
        for _ in range(8):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            backward()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        seconds[name] = sorted(times)[len(times) // 2]
    operations = 5 * case["batch"] * case["heads"] * case["queries"] ** 2 * case["depth"]
    return {"case": case, "seconds": seconds, "operations": operations}
