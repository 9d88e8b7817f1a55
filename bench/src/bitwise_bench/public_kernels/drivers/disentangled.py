"""disentangled-flash: attention with relative positions in training, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def training(t: Tensors) -> None:
    """Call attention with positions of keys and of queries, padded and packed."""
    module = import_module("disentangled_flash.training._kernels")
    config = import_module("disentangled_flash.tuning").KernelConfig
    length, table = 48, 16
    found = [min(max(place - length + 1, -8), 7) + 8 for place in range(2 * length - 1)]
    lookup = t.of(found, "int32")
    mask = t.of([[1] * length, [1] * 37 + [0] * 11], "bool")
    tile = config(32, 32, 4, 2)
    for width, dtype in ((32, "float16"), (64, "bfloat16")):
        q, k, v = (t.normal(2, 3, length, width, dtype=dtype, grad=True) for _ in range(3))
        positions = [t.normal(3, table, width, dtype=dtype, grad=True) for _ in range(2)]
        for chance in (0.0, 0.1):
            seed = t.of([11], "int64") if chance else None
            out = t.call(module.training_attention, q, k, v, *positions, lookup, mask, score_scale=0.1,
                         has_padding=True, strict_fp32=False, forward_config=tile, dq_config=tile, dkv_config=tile,
                         dropout_p=chance, dropout_seed=seed)  # fmt: skip
            if out is not None:
                t.call(t.backward, out)
    packed = [t.normal(3, 85, 32, dtype="float16", grad=True) for _ in range(3)]
    positions = [t.normal(3, table, 32, dtype="float16", grad=True) for _ in range(2)]
    out = t.call(module.training_attention_packed, *packed, *positions, lookup, t.of([0, 48, 85], "int32"),
                 max_seqlen=length, score_scale=0.1, strict_fp32=False, forward_config=tile, dq_config=tile,
                 dkv_config=tile)  # fmt: skip
    if out is not None:
        t.call(t.backward, out)


CASES = {each.__name__: each for each in (training,)}
