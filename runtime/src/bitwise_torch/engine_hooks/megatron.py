"""Megatron: the mode in place of its own, and Transformer Engine's `general_gemm` by operators of PyTorch.

from bitwise_torch.engine_hooks import megatron

megatron.register()  # before enable_batch_invariant_mode() of Megatron, and before its layers are built

Transformer Engine multiplies by `general_gemm(A, B, ...)`, whose result is op(B) op(A) for matrices by rows: the layout
"TN" transposes A, "NT" transposes B.  Plain tensors are multiplied by torch.mm, which the mode computes in its order.
Where quantised tensors, an activation, or communication are part of a call, Transformer Engine computes it, and always
its grouped products and the norms that it fuses with products, with a warning once for each of them, with "strict" an
error.  Its RMSNorm modules run as torch.rms_norm.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bitwise_torch.batch_invariance.mode import BatchVarianceError, BatchVarianceWarning
from bitwise_torch.engine_hooks.process_mode import (
    VARIABLE,
    EngineHookError,
    is_enabled,
    replace_function,
    replace_functions,
)

MODULES = ("megatron.core.transformer.custom_layers.batch_invariant_kernels",)

GEMM = "transformer_engine.pytorch.cpp_extensions.gemm"
"""The module of `general_gemm`; other modules of Transformer Engine, and Megatron, import the function from it."""

NOTED = {"general_grouped_gemm": GEMM, "apply_normalization": "transformer_engine.pytorch.module._common"}
"""Functions of Transformer Engine that no operator of PyTorch stands for, and their modules."""

NORM = "transformer_engine.pytorch"
"""The module of Transformer Engine that has its RMSNorm."""

_NOT_COVERED = ("quantization_params", "gelu", "gelu_in", "ub", "extra_output", "bulk_overlap")
"""Arguments of `general_gemm` with which a call is left to Transformer Engine."""

_warned: set[str] = set()


def register() -> None:
    """Replace Megatron's functions of its mode, and `general_gemm` wherever it or Transformer Engine has imported it.

    Without Transformer Engine, Megatron multiplies by operators of PyTorch.  Raises EngineHookError.
    """
    replace_functions("Megatron", MODULES)
    if find_spec(GEMM.split(".")[0]) is None:
        return
    try:
        original = import_module(GEMM).general_gemm
    except (ImportError, AttributeError) as error:
        raise EngineHookError(f"Transformer Engine: {GEMM}.general_gemm cannot be imported ({error})") from None
    _replace("general_gemm", original, pinned_gemm(original))
    for name, module in NOTED.items():
        original = getattr(import_module(module), name, None)
        if original is not None:
            _replace(name, original, noted(original, name))
    norm = getattr(import_module(NORM), "RMSNorm", None)
    if norm is not None and not hasattr(norm.forward, "__wrapped__"):
        norm.forward = pinned_norm(norm.forward)


def _replace(name: str, original: Any, replacement: Callable[..., Any]) -> None:
    """Replace a function of Transformer Engine once, wherever it or Megatron has imported it."""
    if not hasattr(original, "__wrapped__"):
        for package in ("transformer_engine", "megatron"):
            replace_function(package, name, original, replacement)


def pinned_gemm(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the arguments of `general_gemm` that multiplies plain tensors by operators of PyTorch."""
    signature = inspect.signature(original)

    @wraps(original)
    def general_gemm(*arguments: Any, **options: Any) -> Any:
        if not is_enabled():
            return original(*arguments, **options)
        call = signature.bind(*arguments, **options)
        call.apply_defaults()
        reason = _reason(call.arguments)
        if reason is None:
            return _product(call.arguments)
        _note("general_gemm", reason)
        return original(*arguments, **options)

    return general_gemm


def noted(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that warns in the mode, or raises BatchVarianceError, and calls another one."""

    @wraps(original)
    def function(*arguments: Any, **options: Any) -> Any:
        if is_enabled():
            _note(name, "Transformer Engine computes it")
        return original(*arguments, **options)

    return function


def pinned_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method `forward` of a module RMSNorm with `weight`, `eps` and `zero_centered_gamma`."""

    @wraps(original)
    def forward(self: Any, x: Any, *arguments: Any, **options: Any) -> Any:
        if not is_enabled():
            return original(self, x, *arguments, **options)
        from torch.nn.functional import rms_norm

        weight = self.weight
        if weight.dtype == x.dtype and not self.zero_centered_gamma:
            return rms_norm(x, weight.shape, weight, self.eps)
        # Transformer Engine computes in fp32.
        wide = weight.float() + 1 if self.zero_centered_gamma else weight.float()
        return rms_norm(x.float(), wide.shape, wide, self.eps).to(x.dtype)

    return forward


def _note(name: str, reason: str) -> None:
    """Warn once of a function for a reason.  Raises BatchVarianceError in a strict mode."""
    sentence = f"the bytes of {name} may depend on the batch: {reason}"
    if os.environ.get(VARIABLE) == "strict":
        raise BatchVarianceError(sentence)
    if sentence not in _warned:
        _warned.add(sentence)
        warnings.warn(f"{sentence}; later calls cause no warning", BatchVarianceWarning, stacklevel=3)


def _reason(given: dict[str, Any]) -> str | None:
    """Return why a call is left to Transformer Engine, None where operators of PyTorch compute it."""
    import torch

    for name in _NOT_COVERED:
        value = given.get(name)
        if value is not None and value is not False:
            return f"a call with {name} is computed by Transformer Engine"
    for name in ("A", "B", "out", "bias"):
        value = given.get(name)
        if value is not None and type(value) not in (torch.Tensor, torch.nn.Parameter):
            return f"{name} is of the type {type(value).__name__}; plain tensors are covered"
    if float(given.get("alpha", 1.0)) != 1.0 or given.get("beta") not in (None, 0.0, 1.0):
        return "a call with alpha or beta is computed by Transformer Engine"
    return None


def _product(given: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the result of a plain call, the gradient of its bias, and None for the activation and an extra output."""
    import torch

    a, b, out, bias = (given.get(name) for name in ("A", "B", "out", "bias"))
    assert a is not None
    assert b is not None
    layout = given["layout"]
    left, right = b.reshape(-1, b.shape[-1]), a.reshape(-1, a.shape[-1])
    shape = [left.shape[1]] if layout[1] == "T" else list(b.shape[:-1])
    left = left.t() if layout[1] == "T" else left
    right = right.t() if layout[0] == "T" else right
    dtype = given.get("out_dtype") or (b.dtype if out is None else out.dtype)
    product = torch.mm(left, right) if dtype == left.dtype else torch.mm(left, right, out_dtype=dtype)
    bias_gradient = None
    if bias is not None and given.get("grad"):
        bias_gradient = b.reshape(-1, b.shape[-1]).sum(0).to(bias.dtype)
    elif bias is not None:
        product = product + bias.to(dtype)
    product = product.reshape(*shape, product.shape[-1])
    if out is not None:
        product = out.add_(product.view(out.shape)) if given.get("accumulate") else out.copy_(product.view(out.shape))
    return product, bias_gradient, None, None
