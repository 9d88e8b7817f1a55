"""flash-mlm: attention of masked language models with a cached context, dense and packed."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def dense(t: Tensors) -> None:
    """Call the attention of sequences of one length in two widths and tiles."""
    bare_package("flash_mlm")
    host = import_module("flash_mlm.host.host")
    for width, length, dtype, tile in ((64, 128, "float16", 64), (32, 96, "bfloat16", 32)):
        heads = [t.normal(2, 2, length, width, dtype=dtype) for _ in range(3)]
        t.call(host.flash_attn_mlm, *heads, width**-0.5, block_m=tile)
        t.call(host.flash_attn_mlm, *heads, width**-0.5, auto_tune_tiles=True)


def packed(t: Tensors) -> None:
    """Call the attention of sequences of several lengths."""
    bare_package("flash_mlm")
    host, utilities = import_module("flash_mlm.host.host"), import_module("flash_mlm.host.host_utils")
    heads = [t.normal(2, 2, 96, 64, dtype="float16") for _ in range(3)]
    meta = t.call(utilities.build_pack_metadata, t.of([60, 96], "int32"), 96, 32)
    if meta is not None:
        t.call(host.flash_attn_mlm_compressed, *heads, 2, meta, 0.125)
        t.call(host.flash_attn_mlm_compressed, *heads, 2, meta, 0.125, causal_query_seq_attn=True)


CASES = {each.__name__: each for each in (dense, packed)}
