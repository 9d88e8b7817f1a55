"""axiomlm: root mean square norms, gated units, and attention with windows."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def rows(t: Tensors) -> None:
    """Call norms of rows and gated units in two formats."""
    bare_package("axiomlm.kernels")
    module = import_module("axiomlm.kernels.triton_kernels")
    for dtype in ("float32", "bfloat16"):
        t.call(module.triton_rmsnorm_forward, t.normal(33, 200, dtype=dtype), t.normal(200, dtype=dtype))
        t.call(module.triton_swiglu_forward, *(t.normal(11, 300, dtype=dtype) for _ in range(2)))


def gradients(t: Tensors) -> None:
    """Launch the kernels of the gradients of norms and of gated units."""
    bare_package("axiomlm.kernels")
    module = import_module("axiomlm.kernels.triton_kernels")
    dy, x, w = t.normal(33, 200), t.normal(33, 200), t.normal(200)
    inverse = x.square().mean(-1).add(1e-6).rsqrt()
    dx, dw = t.empty(33, 200), t.empty(33, 200)
    t.call(lambda: module._rmsnorm_backward_kernel[(33,)](
        dy, x, w, inverse, dx, dw, 200, 200, 200, 200, 200, BLOCK_SIZE=256))  # fmt: skip
    gate, up, dy = (t.normal(3000, dtype="float16") for _ in range(3))
    found = [t.empty(3000, dtype="float16") for _ in range(2)]
    t.call(lambda: module._swiglu_backward_kernel[(3,)](dy, gate, up, *found, 3000, BLOCK_SIZE=1024))


def attention(t: Tensors) -> None:
    """Call attention without a mask, with a causal one, and with a window."""
    bare_package("axiomlm.kernels")
    module = import_module("axiomlm.kernels.triton_kernels")
    for causal, window in ((False, None), (True, None), (True, 40)):
        q, k, v = (t.normal(1, 2, 256, 32, dtype="float16") for _ in range(3))
        t.call(module.triton_fused_sdpa_forward, q, k, v, causal, window)


CASES = {each.__name__: each for each in (rows, gradients, attention)}
