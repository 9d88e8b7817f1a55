"""DeepSpeed: norms, activations, rotary embeddings, products of groups and losses."""

from __future__ import annotations

import logging
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("deepspeed")
    stub("deepspeed.utils", logger=logging.getLogger("deepspeed"))
    stub("deepspeed.utils.torch", required_torch_version=lambda *arguments, **keywords: True)
    stub("deepspeed.accelerator", get_accelerator=_accelerator)
    bare_package(f"deepspeed.{name}".rsplit(".", 1)[0])
    bare_package("deepspeed.ops.triton_ops")
    return import_module(f"deepspeed.{name}")


def _accelerator() -> Any:
    import torch

    return SimpleNamespace(on_accelerator=lambda tensor: True, current_device=torch.cuda.current_device,
                           current_device_name=lambda: "cuda:0", device_name=lambda index=None: "cuda")  # fmt: skip


def inference(t: Tensors) -> None:
    """Call the layer norms, softmax and activations of inference."""
    path = "ops.transformer.inference.triton"
    x, r, w, b = (t.normal(*shape, dtype="float16") for shape in ((2, 12, 512), (2, 12, 512), (512,), (512,)))
    _module(f"{path}.layer_norm").layer_norm(x, w, b, 1e-5)
    _module(f"{path}.layer_norm").layer_norm_residual(x, b, r, w, b, 1e-5)
    _module(f"{path}.gelu").gelu(x)
    _module(f"{path}.softmax").softmax(t.normal(24, 500, dtype="float16"))
    _module(f"{path}.residual_add").residual_add_bias(x, r, x + r, b, b, 1, True, True, True)


def norms(t: Tensors) -> None:
    """Call the norm of rows."""
    f = _module("ops.triton_ops.fused_rms_norm")._FusedRMSNorm
    for dtype in ("bfloat16", "float32"):
        t.backward(f.apply(t.normal(24, 512, dtype=dtype, grad=True), t.normal(512, dtype=dtype, grad=True), 1e-6))


def gated_unit(t: Tensors) -> None:
    """Call the gated unit."""
    gate, up = (t.normal(24, 512, dtype="bfloat16", grad=True) for _ in range(2))
    t.backward(_module("ops.triton_ops.swiglu_triton").swiglu(gate, up))


def rotary(t: Tensors) -> None:
    """Call the rotary embedding."""
    f = _module("ops.triton_ops.fused_rotary_pos_emb")._FusedRotaryPosEmb
    q, k = t.normal(1, 4, 24, 64, dtype="bfloat16", grad=True), t.normal(1, 2, 24, 64, dtype="bfloat16", grad=True)
    cos, sin = (t.uniform(1, 24, 64, low=-1.0, dtype="bfloat16") for _ in range(2))
    t.backward(f.apply(q, k, cos, sin))


def groups(t: Tensors) -> None:
    """Call products of groups of rows with the weights of their experts."""
    f = _module("ops.triton_ops.group_gemm_triton")._GroupGemmFn
    a, b = t.normal(64, 128, dtype="bfloat16", grad=True), t.normal(4, 128, 96, dtype="bfloat16", grad=True)
    t.backward(f.apply(a, b, t.of([20, 33, 50, 64], "int32"), False))


def experts(t: Tensors) -> None:
    """Call the weighting of rows by the scores of their experts."""
    module = _module("ops.triton_ops.autoep_fused_token_ops")
    t.backward(
        module._FusedRowWeighting.apply(t.normal(32, 256, dtype="bfloat16", grad=True), t.uniform(32, grad=True))
    )


def loss(t: Tensors) -> None:
    """Call the cross entropy."""
    f = _module("runtime.chunked_cross_entropy")._TritonCrossEntropy
    t.backward(f.apply(t.normal(24, 1500, dtype="bfloat16", grad=True), t.integers(0, 1500, 24), -100))


CASES = {each.__name__: each for each in (inference, norms, gated_unit, rotary, groups, experts, loss)}
