"""mLSTM kernels: the matrix memory of xLSTM in chunks, in parallel, and in steps."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _kernel(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(import_module(f"mlstm_kernels.torch.{module}"), name)


def _inputs(t: Tensors, tokens: int, width: int, *, grad: bool) -> list[Any]:
    q, k, v = (t.normal(1, 2, tokens, width, scale=0.5, grad=grad) for _ in range(3))
    gates = [t.normal(1, 2, tokens, grad=grad), t.uniform(1, 2, tokens, low=2.0, high=5.0, grad=grad)]
    return [q, k, v, *gates]


def limited_chunks(t: Tensors) -> None:
    """Call the form in short chunks, forward and backward."""
    f = _kernel("chunkwise.triton_limit_chunk.mlstm_chunkwise__limit_chunk")
    t.backward(t.call(f, *_inputs(t, 128, 64, grad=True), chunk_size=64, autocast_kernel_dtype=t.dtype("bfloat16")))


def long_chunks(t: Tensors) -> None:
    """Call the form in long chunks, forward and backward."""
    f = _kernel("chunkwise.triton_xl_chunk.mlstm_chunkwise__xl_chunk")
    t.backward(t.call(f, *_inputs(t, 256, 32, grad=True), chunk_size=128, autocast_kernel_dtype=t.dtype("bfloat16")))


def long_chunks_of_single(t: Tensors) -> None:
    """Call the form in long chunks of fp32, with the states at the end."""
    f = _kernel("chunkwise.triton_xl_chunk.mlstm_chunkwise__xl_chunk")
    t.call(f, *_inputs(t, 128, 32, grad=False), chunk_size=64, return_last_states=True,
           autocast_kernel_dtype=t.dtype("float32"))  # fmt: skip


def sigmoid_gates(t: Tensors) -> None:
    """Call the form with sigmoid input gates, forward and backward."""
    f = _kernel("chunkwise.triton_xl_chunk_siging.mlstm_siging_chunkwise__xl_chunk")
    t.backward(t.call(f, *_inputs(t, 256, 32, grad=True), chunk_size=128, autocast_kernel_dtype=t.dtype("float16")))


def parallel(t: Tensors) -> None:
    """Call the parallel form, forward and backward."""
    f = _kernel("parallel.triton_limit_headdim.mlstm_parallel__limit_headdim")
    t.backward(t.call(f, *_inputs(t, 128, 64, grad=True), autocast_kernel_dtype=t.dtype("bfloat16")))


def step(t: Tensors) -> None:
    """Call a step of one token."""
    f = _kernel("recurrent.triton_step.mlstm_recurrent_step__triton")
    q, k, v = (t.normal(2, 2, 64) for _ in range(3))
    t.call(f, q, k, v, t.normal(2, 2, 1), t.normal(2, 2, 1), c=t.normal(2, 2, 64, 64), n=t.normal(2, 2, 64),
           m=t.normal(2, 2, 1))  # fmt: skip


CASES = {
    each.__name__: each for each in (limited_chunks, long_chunks, long_chunks_of_single, sigmoid_gates, parallel, step)
}
