"""lasp: linear attention with decay, of one sequence and of parts of a sequence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("lasp")
    stub(
        "lasp.utils",
        get_seq_parallel_receive_rank=lambda: 0,
        get_seq_parallel_send_rank=lambda: 0,
        get_sequence_parallel_group=lambda: None,
        get_sequence_parallel_rank=lambda: 0,
        get_sequence_parallel_world_size=lambda: 1,
    )
    return import_module(f"lasp.{name}")


def _inputs(t: Tensors, length: int, dtype: str) -> tuple[Any, ...]:
    q, k, v = (t.normal(1, 2, length, 32, dtype=dtype, scale=0.5, grad=True) for _ in range(3))
    return q, k, v, t.uniform(2, 1, 1, low=0.02, high=0.2)


def whole(t: Tensors) -> None:
    """Call attention of one sequence, forward and backward."""
    module = _module("lightning_attention")
    t.backward(t.call(module.lightning_attn, *_inputs(t, 128, "bfloat16")))
    t.backward(t.call(module.lightning_attn, *_inputs(t, 192, "float32")))


def with_states(t: Tensors) -> None:
    """Call attention of a part of a sequence with the state before it, forward and backward."""
    module = _module("lasp_cache")
    states = [t.normal(1, 2, 32, 32, scale=0.3) for _ in range(2)]
    array = t.torch.arange(128, device=t.device).float()
    t.backward(t.call(module.lasp_cache, *_inputs(t, 128, "float16"), array, *states))


def fused(t: Tensors) -> None:
    """Call the kernels that add what the state gives themselves."""
    for name, function in (("lasp_fuse", "lasp_fuse"), ("lasp_naive", "lasp_naive")):
        module = _module(name)
        states = [t.normal(1, 2, 32, 32, scale=0.3) for _ in range(2)] if function == "lasp_fuse" else []
        t.backward(t.call(getattr(module, function), *_inputs(t, 128, "float16"), *states))


def in_parallel(t: Tensors) -> None:
    """Call the kernels of the diagonal blocks, of their states, and of what lies below them."""
    module = _module("lasp_fuse_parallel")
    q, k, v, decay = _inputs(t, 256, "bfloat16")
    states = [t.normal(1, 2, 32, 32, scale=0.3) for _ in range(2)]
    found = t.call(module.lasp_forward, q, k, v, decay, states[0], 256, 32)
    if found is not None:
        t.call(module.lasp_backward, q, k, v, decay, t.normal(1, 2, 256, 32, dtype="bfloat16"), *found[1:], states[1],
               256, 32)  # fmt: skip


CASES = {each.__name__: each for each in (whole, with_states, fused, in_parallel)}
