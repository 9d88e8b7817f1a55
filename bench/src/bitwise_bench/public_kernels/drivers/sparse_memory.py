"""sparse-delta-memory: writes to and reads from few slots of a memory, and triangular systems of chunks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("sparse_delta_memory")
    return import_module(f"sparse_delta_memory.{name}")


def steps(t: Tensors) -> None:
    """Call one step of several streams, with one decay and with one for each write."""
    module = _module("decode")
    streams, slots, width = 5, 24, 96
    for dtype, decays in (("float32", 1), ("bfloat16", 4)):
        places = [[24 * s + (7 * s + 5 * w) % slots for w in range(4)] for s in range(streams)]
        reads = [[24 * s + (3 * s + 2 * r) % slots for r in range(6)] for s in range(streams)]
        t.call(module.sdm_decode_step, t.normal(streams * slots, width, dtype=dtype), t.of(places, "int64"),
               t.normal(streams, 4, dtype=dtype), t.normal(streams, width, dtype=dtype), t.uniform(streams, 1),
               -t.uniform(streams, decays), t.of(reads, "int64"), t.normal(streams, 6, dtype=dtype))  # fmt: skip


def systems(t: Tensors) -> None:
    """Call the solution of triangular systems, of one and of several blocks."""
    solve = _module("wy_solve").wy_solve
    for count, size in ((3, 16), (2, 48), (2, 128)):
        t.call(solve, t.normal(count, size, size, scale=0.2), t.uniform(count, size), t.normal(count, size, size))


def layouts(t: Tensors) -> None:
    """Call rows in the order of time, heads apart and together, and copies of a memory with their sum."""
    module = _module("memory_ops")
    narrow = t.normal(2 * 30, 48)
    found = t.call(module.stage_time_major, narrow, 2, 30, 16, t.dtype("bfloat16"))
    if found is not None:
        t.call(module.unstage_time_major, found, 2, 30, 16, t.dtype("float32"))
    for dtype, channels in (("bfloat16", 64), ("float32", 48)):
        found = t.call(module.head_split, t.normal(2, 13, 3 * channels, dtype=dtype), 3)
        if found is not None:
            t.call(module.head_merge, found, 3)
    t.call(module.triton_sum_dim0, t.normal(3, 20, 96, dtype="bfloat16"))
    found = t.call(module.expand_memory_batch, t.normal(20, 96, grad=True), 3)
    if found is not None:
        t.call(t.backward, found)


def gradients(t: Tensors) -> None:
    """Call the parts of the gradients before and behind the products of a chunk."""
    module = _module("memory_ops")
    chunks, size, width = 3, 24, 80
    t.call(module._pre_bmm, t.normal(chunks, size, width), t.uniform(chunks * size), t.normal(chunks, size, width),
           t.empty(chunks * size, width, dtype="bfloat16"))  # fmt: skip
    t.call(module._post_bmm, t.normal(chunks, size, size), t.normal(chunks, size, size), t.uniform(chunks * size),
           t.normal(chunks, size, 1), t.empty(chunks * size))  # fmt: skip


def chunks(t: Tensors) -> None:
    """Call the products of a chunk with its inverse, and with the reads through it."""
    module = _module("phase2_kernels")
    steps_of, size, width = 2, 32, 64
    for dtype in ("float32", "bfloat16"):
        launch = t.call(
            module.make_dual_matmul, t.normal(steps_of, size, size), t.normal(steps_of, size, size),
            t.normal(steps_of * size, width, dtype=dtype), t.uniform(steps_of * size), t.normal(size, width),
            t.normal(size, width), t.empty(steps_of * size, width), t.empty(steps_of * size, width, dtype=dtype),
            num_parallel=1, valid_tokens=steps_of * size,
        )  # fmt: skip
        if launch is not None:
            t.call(launch, 0)
            t.call(launch, 1)


CASES = {each.__name__: each for each in (steps, systems, layouts, gradients, chunks)}
