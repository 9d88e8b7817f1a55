"""transformer-nuggets: attention with biases, casts to 8 bits, products of these, and weights of 4 bits."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def attention(t: Tensors) -> None:
    """Call attention with two biases, forward and backward."""
    bare_package("transformer_nuggets.flash")
    module = import_module("transformer_nuggets.flash.flash_attention")
    modes = import_module("transformer_nuggets.flash.masks").BiasMode
    for mode in (modes.none, modes.alibi):
        q, k, v = (t.normal(1, 2, 128, 64, dtype="float16", grad=True) for _ in range(3))
        found = t.call(module.attention, q, k, v, True, 0.125, mode, False)
        t.backward(found[0] if isinstance(found, tuple) else found)


def casts(t: Tensors) -> None:
    """Call the casts to 8 bits by a given and by a computed scale."""
    bare_package("transformer_nuggets.fp8")
    module = import_module("transformer_nuggets.fp8.scaled_quant")
    x = t.normal(40, 130, dtype="bfloat16")
    t.call(module.scaled_quant, x, t.of([1.5], "float32"), t.of([0.0], "float32"), saturated=True)
    t.call(module.dynamic_scaled_quant, x)


def products(t: Tensors) -> None:
    """Call the product of matrices of 8 bits."""
    bare_package("transformer_nuggets.fp8")
    stub("triton.tools.experimental_descriptor")
    stub("triton.language.extra.cuda._experimental_tma", experimental_device_tensormap_create2d=None,
         experimental_tensormap_fenceproxy_acquire=None)  # fmt: skip
    module = import_module("transformer_nuggets.fp8.fp8_matmul")
    a, b = (t.normal(128, 128).to(t.dtype("float8_e4m3fn")) for _ in range(2))
    scales = t.uniform(128, 1, low=0.5), t.uniform(1, 128, low=0.5)
    t.call(module.matmul_persistent, a, scales[0], b.t(), scales[1], t.dtype("bfloat16"))


CASES = {each.__name__: each for each in (attention, casts, products)}
