"""TorchInductor: kernels of compiled transformers of x-transformers, with several kinds of layers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.drivers.inductor import _step
from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.sources import Driver
from bitwise_bench.public_kernels.tensors import Tensors


def _driver(dtype: str, layers: str = "Decoder", **settings: Any) -> Driver:
    def driver(t: Tensors) -> None:
        bare_package("x_transformers")
        stub("einx")
        module = import_module("x_transformers.x_transformers")
        t.torch.manual_seed(17)
        inner = getattr(module, layers)(dim=72, depth=1, heads=3, attn_dim_head=24, **settings)
        model = module.TransformerWrapper(num_tokens=210, max_seq_len=64, attn_layers=inner)
        _step(t, model.to(t.device).to(t.dtype(dtype)).train(False), t.integers(0, 210, 2, 39))

    return driver


CASES: dict[str, Driver] = {
    "plain": _driver("float32"),
    "encoder": _driver("float16", "Encoder"),
    "root_mean_square": _driver("bfloat16", use_rmsnorm=True, ff_glu=True, ff_swish=True, rotary_pos_emb=True),
    "query_key_norm": _driver("bfloat16", attn_qk_norm=True, attn_qk_norm_dim_scale=True),
    "talking_heads": _driver("float32", attn_pre_talking_heads=True, attn_post_talking_heads=True),
    "sparse": _driver("float32", attn_sparse_topk=8),
    "gated_values": _driver("float16", attn_gate_values=True, attn_on_attn=True),
    "sandwich": _driver("float32", sandwich_norm=True, scale_residual=True, shift_tokens=1),
    "memory": _driver("bfloat16", attn_num_mem_kv=4, gate_residual=True),
    "macaron": _driver("float32", "Encoder", macaron=True, ff_no_bias=True, use_scalenorm=True),
    "groups": _driver("float16", attn_kv_heads=1, softclamp_output=True, attn_softclamp_logits=True),
}
