"""Launches and timing on a GPU, through PyTorch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bitwise_bench.pinned_reductions.cases import Case
from bitwise_bench.pinned_reductions.compilation import Build
from bitwise_triton.reductions.order import Order, evaluate

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

# Target duration of one timed graph.
_MILLISECONDS = 1.5


def tensors_of(case: Case) -> dict[str, Any]:
    """The buffers of a case on the GPU, with the same inputs in every run."""
    import torch

    found = {}
    for number, tensor in enumerate(case.tensors):
        dtype = getattr(torch, _DTYPES[tensor.dtype])
        if tensor.content == "out":
            found[tensor.name] = torch.zeros(tensor.count, dtype=dtype, device="cuda")
            continue
        generator = torch.Generator(device="cuda").manual_seed(number + 1)
        values = torch.randn(tensor.count, generator=generator, device="cuda")
        if tensor.content == "near one":
            values = 1 + values / 1024
        found[tensor.name] = values.to(dtype)
    return found


def launch(build: Build, tensors: Mapping[str, Any]) -> None:
    """Launch a build's kernels once; must be called inside its context."""
    from bitwise_bench.pinned_reductions.kernels import benchmark

    for step in build.steps():
        arguments = [tensors[value] if isinstance(value, str) else value for value in step.arguments]
        getattr(benchmark, step.kernel)[step.grid](*arguments, **step.constants, **step.options)


class Timer:
    """Times a build's launches, many in one CUDA graph to exclude host time."""

    def __init__(self, build: Build, tensors: Mapping[str, Any]) -> None:
        self.build = build
        with build.context():
            launch(build, tensors)
            once = _elapsed(self._graph_of(tensors, 1))
            self.count = max(2, min(40, int(_MILLISECONDS / max(once, 1e-3))))
            self._graph = self._graph_of(tensors, self.count)
        self._graph.replay()

    def _graph_of(self, tensors: Mapping[str, Any], count: int) -> Any:
        import torch

        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(count):
                launch(self.build, tensors)
        return graph

    def microseconds(self, repeats: int) -> float:
        """The median time of one launch over `repeats` runs of the graph."""
        return statistics.median(_elapsed(self._graph) for _ in range(repeats)) / self.count * 1000


def _elapsed(graph: Any) -> float:
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def same_bytes(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two lists of tensors have the same bit patterns."""
    import torch

    whole = {2: torch.int16, 4: torch.int32}
    return all(
        torch.equal(a.view(whole[a.element_size()]), b.view(whole[b.element_size()]))
        for a, b in zip(left, right, strict=True)
    )


def matches_order(case: Case, order: str, tensors: Mapping[str, Any], count: int = 16) -> bool | None:
    """Whether the first sums have the bits of the order's CPU evaluation; None if it is not evaluated."""
    if case.checked is None:
        return None
    rows, columns = case.size
    matrix = tensors["x"].view(rows, columns)
    part = matrix[:count] if case.checked == 1 else matrix[:, :count].T
    values = np.ascontiguousarray(part.float().cpu().numpy())
    found = tensors["y"][:count].cpu().numpy()
    expected = evaluate(Order(order), values)
    return bool((found.view(np.uint32) == expected.view(np.uint32)).all())
