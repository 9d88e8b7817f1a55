"""flash-xlstm-exp: the outputs of chunks of a matrix LSTM, with its own autotuner."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def chunks(t: Tensors) -> None:
    """Call the parallel part of two sizes of chunks."""
    module = import_module("fsp.kernels.autotune")
    for length, chunk, width, dtype in ((128, 64, 64, "float32"), (128, 32, 32, "bfloat16")):
        count = length // chunk
        heads = [t.normal(1, 2, length, width, dtype=dtype) for _ in range(3)]
        gates = [t.normal(1, 2, length, dtype=dtype) for _ in range(2)]
        states = t.normal(1, 2, (count + 1) * width, width), t.normal(1, 2, (count + 1) * width)
        t.call(module.mlstm_chunkwise__parallel_fw_Hintra_autotuned, *heads, *gates, *states,
               t.normal(1, 2, count + 1), chunk_size=chunk)  # fmt: skip


CASES = {each.__name__: each for each in (chunks,)}
