"""simpler-flash: attention with softmax and with rectified softmax, hashed attention, and norms."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("simpler_flash")
    return import_module(f"simpler_flash.{name}")


def attention(t: Tensors) -> None:
    """Call attention without a mask and with a causal one, forward and backward."""
    module = _module("flashattention")
    q, k, v = (t.normal(1, 80, 2, 32, dtype="float16", grad=True) for _ in range(3))
    found = t.call(module.FlashAttnFunc.apply, q, k, v, None, False)
    t.backward(found[0] if isinstance(found, tuple) else found)
    q, k, v = (t.normal(1, 128, 2, 64, dtype="bfloat16", grad=True) for _ in range(3))
    found = t.call(module.FlashAttnFunc.apply, q, k, v, None, True)
    t.backward(found[0] if isinstance(found, tuple) else found)


def picked(t: Tensors) -> None:
    """Call attention by rectified softmax of packed tensors."""
    module = _module("flashpickattention")
    qkv = t.normal(1, 96, 3, 2, 32, dtype="float16", grad=True)
    t.backward(t.call(module.FlashAttnQKVPackedFunc.apply, qkv, None, False))


def softpick(t: Tensors) -> None:
    """Call attention by rectified softmax, forward and backward, also of sequences of several lengths."""
    module = _module("og_flashsoftpick")
    q, k, v = (t.normal(1, 96, 2, 32, dtype="bfloat16", grad=True) for _ in range(3))
    t.backward(t.call(module.parallel_softpick_attn, q, k, v))
    q, k, v = (t.normal(1, 90, 2, 32, dtype="float32", grad=True) for _ in range(3))
    t.backward(t.call(module.parallel_softpick_attn, q, k, v, cu_seqlens=t.of([0, 33, 90], "int64")))


def hashed(t: Tensors) -> None:
    """Call attention of sorted blocks and sampled columns, forward and backward."""
    module = _module("hyper.hyper_attn_triton")
    q, k, v = (t.normal(1, 256, 2, 32, dtype="float16", grad=True) for _ in range(3))
    orders = [t.torch.stack([t.torch.randperm(256) for _ in range(2)], 1)[None].to(t.device) for _ in range(2)]
    found = t.call(module.HyperAttnFunc.apply, q, k, v, *orders, 128, 128, 0.2, False)
    t.backward(found[0] if isinstance(found, tuple) else found)


def hashes(t: Tensors) -> None:
    """Call the angular hash of rows."""
    module = _module("hyper.angular_lsh_triton")
    lsh = module.AngularLSHTriton(num_projs=7, dim=(1, 1, 32)).to(t.device)
    t.call(lsh.hash_triton, t.normal(1, 2, 200, 32, dtype="float16"))


def norms(t: Tensors) -> None:
    """Call layer norms and root mean square norms with residuals, forward and backward."""
    module = _module("layer_norm")
    for dtype, is_rms in (("float32", False), ("bfloat16", True)):
        x, residual = (t.normal(37, 130, dtype=dtype, grad=True) for _ in range(2))
        weight, bias = (t.normal(130, dtype=dtype, grad=True) for _ in range(2))
        t.backward(t.call(module.layer_norm_fn, x, weight, bias, residual=residual, prenorm=True, is_rms_norm=is_rms))


CASES = {each.__name__: each for each in (attention, picked, softpick, hashed, hashes, norms)}
