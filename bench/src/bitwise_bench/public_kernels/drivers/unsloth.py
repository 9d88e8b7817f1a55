"""unsloth: gates, norms, rotations, losses and quantised weights of the tuning of language models."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("unsloth.kernels")
    stub(
        "unsloth.device_type",
        DEVICE_TYPE="cuda",
        DEVICE_TYPE_TORCH="cuda",
        DEVICE_COUNT=1,
        ALLOW_PREQUANTIZED_MODELS=True,
        is_hip=lambda: False,
        get_device_type=lambda: "cuda",
        ALLOW_BITSANDBYTES=False,
    )
    version = lambda text: tuple(int(each) for each in re.findall(r"\d+", str(text))[:3])  # noqa: E731
    stub("unsloth_zoo.utils", Version=version)
    stub(
        "unsloth_zoo.temporary_patches.common",
        torch_compile=lambda function=None, **settings: function or (lambda each: each),
    )
    stub("unsloth_zoo.patching_utils", patch_layernorm=None)
    stub("unsloth_zoo.loss_utils", patch_loss_functions=None, post_patch_loss_function=None)
    stub("unsloth_zoo.log", logger=SimpleNamespace(**dict.fromkeys(("info", "warning", "warning_once"), print)))
    return import_module(f"unsloth.kernels.{name}")


def gates(t: Tensors) -> None:
    """Call gated activations and their derivatives."""
    for dtype in ("float16", "bfloat16"):
        parts = [t.normal(2, 17, 160, dtype=dtype) for _ in range(3)]
        flat = [t.normal(34, 160, dtype=dtype) for _ in range(3)]
        t.call(_module("swiglu").swiglu_fg_kernel, *parts[:2])
        t.call(_module("swiglu").swiglu_DWf_DW_dfg_kernel, *flat)
        for kind in ("exact", "approx"):
            t.call(getattr(_module("geglu"), f"geglu_{kind}_forward_kernel"), *parts[:2])
            t.call(
                getattr(_module("geglu"), f"geglu_{kind}_backward_kernel"),
                *[t.normal(34, 160, dtype=dtype) for _ in range(3)],
            )


def norms(t: Tensors) -> None:
    """Call norms of rows, forward and backward."""
    for dtype, width in (("float16", 192), ("bfloat16", 1000), ("float32", 640)):
        x = t.normal(2, 11, width, dtype=dtype, grad=True)
        layer = SimpleNamespace(weight=t.normal(width, dtype=dtype), bias=t.normal(width, dtype=dtype),
                                variance_epsilon=1e-6, eps=1e-6)  # fmt: skip
        for gemma in (False, True):
            found = t.call(_module("rms_layernorm").fast_rms_layernorm, layer, x, gemma)
            if found is not None:
                t.call(t.backward, found)
        found = t.call(_module("layernorm").fast_layernorm, layer, x)
        if found is not None:
            t.call(t.backward, found)


def rotations(t: Tensors) -> None:
    """Rotate queries and keys, forward and backward."""
    module = _module("rope_embedding")
    for dtype, width in (("float16", 64), ("bfloat16", 96)):
        q, k = t.normal(2, 4, 23, width, dtype=dtype, grad=True), t.normal(2, 2, 23, width, dtype=dtype, grad=True)
        found = t.call(
            module.fast_rope_embedding, q * 1, k * 1, t.normal(23, width, dtype=dtype), t.normal(23, width, dtype=dtype)
        )
        if found is not None:
            t.call(t.backward, found)


def losses(t: Tensors) -> None:
    """Call the loss of tokens, with and without softcapping, for small and large vocabularies."""
    module = _module("cross_entropy_loss")
    for dtype, words, cap in (("float32", 700, 0), ("bfloat16", 1500, 30.0), ("float16", 70000, 0)):
        logits = t.normal(1, 6, words, dtype=dtype, grad=True)
        found = t.call(module.fast_cross_entropy_loss, logits * 1, t.integers(0, words, 1, 6), cap)
        if found is not None:
            t.call(t.backward, found)


def quantised(t: Tensors) -> None:
    """Call quantisation to 8 and 4 bits, and products of what is quantised."""
    module = _module("fp8")
    found = t.call(module.act_quant, t.normal(24, 256, dtype="bfloat16"), 128)
    weight = t.normal(256, 256).to(t.dtype("float8_e4m3fn"))
    t.call(module.weight_dequant_block, weight, t.uniform(2, 2))
    if found is not None:
        t.call(module.w8a8_block_fp8_matmul_triton, found[0], weight, found[1], t.uniform(2, 2), [128, 128])
    module = _module("nvfp4")
    packed = t.integers(0, 256, 128, 64, dtype="uint8")
    scale = t.uniform(128, 8, low=0.5, high=2.0).to(t.dtype("float8_e4m3fn"))
    t.call(module._nvfp4_dequantize_triton, packed, scale, t.of([0.5], "float32"), t.dtype("bfloat16"))
    t.call(module._nvfp4_matmul_fwd_fused, t.normal(16, 128, dtype="bfloat16"), packed, scale, t.of([0.5], "float32"))
    t.call(module._nvfp4_matmul_dx_fused, t.normal(16, 128, dtype="bfloat16"), packed, scale, t.of([0.5], "float32"))


CASES = {each.__name__: each for each in (gates, norms, rotations, losses, quantised)}
