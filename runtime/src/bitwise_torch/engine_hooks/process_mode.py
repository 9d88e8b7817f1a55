"""One batch-invariant mode for a process, and its place in the modules of an engine that has a mode of its own."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

from bitwise_core.errors import BitwiseError
from bitwise_torch.batch_invariance.mode import (
    BatchInvariance,
    BatchVarianceError,
    BatchVarianceWarning,
    batch_invariant,
)

VARIABLE = "BITWISE_BATCH_INVARIANT"
"""The environment variable that asks for the mode: "1", or "strict", where what is not covered is an error."""

_lock = threading.Lock()
_mode: BatchInvariance | None = None
_left: set[str] = set()
"""The functions of engines that were warned of."""


class EngineHookError(BitwiseError, RuntimeError):
    """An engine that is not installed or has another interface, or a variable with an unknown value."""


def is_asked_for() -> bool:
    """Return whether the environment asks for the mode.  Raises EngineHookError for other values."""
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "", "1", "strict"):
        raise EngineHookError(f'{VARIABLE} is {value!r}: set it to "1", to "strict", or to "0"')
    return value in ("1", "strict")


def enable(*_: Any, **__: Any) -> None:
    """Enable the mode for all threads of the process, once; strict where the environment says so.

    Arguments, which engines give to functions of this name, choose among kernels of their own and are ignored.
    """
    global _mode
    with _lock:
        if _mode is None:
            mode = batch_invariant(strict=os.environ.get(VARIABLE) == "strict")
            mode.again = held  # a process that is started anew, and whose engine enables the mode too, has it once
            _mode = mode.enable()


def disable() -> None:
    """Disable the mode, in the thread that enabled it."""
    global _mode
    with _lock:
        found, _mode = _mode, None
    if found is not None:
        found.disable()


def is_enabled() -> bool:
    """Return whether the process has the mode."""
    return _mode is not None


def renew() -> None:
    """Enable the mode again where the process has it, so that its kernels are registered behind those of others."""
    if is_enabled():
        disable()
        enable()


@contextmanager
def held(enabled: bool = True, *_: Any, **__: Any) -> Iterator[None]:
    """Enable the mode, or disable it, for a block; other arguments are those of `enable`."""
    before = is_enabled()
    (enable if enabled else disable)()
    try:
        yield
    finally:
        (enable if before else disable)()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "enable_batch_invariant_mode": enable, "disable_batch_invariant_mode": disable,
    "is_batch_invariant_mode_enabled": is_enabled, "set_batch_invariant_mode": held,
}  # fmt: skip
"""The functions of this module by the names that engines have for them."""


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Return a linear layer by PyTorch's operators."""
    from torch.nn import functional

    return functional.linear(x, weight, bias)


def matmul(a: Any, b: Any, bias: Any = None) -> Any:
    """Return a product, with a bias, by PyTorch's operators."""
    import torch

    return torch.matmul(a, b) if bias is None else torch.addmm(bias, a, b)


def addmm(bias: Any, a: Any, b: Any) -> Any:
    """Return a product with a bias by PyTorch's operator."""
    import torch

    return torch.addmm(bias, a, b)


def rms_norm(x: Any, weight: Any, eps: float = 1e-6, residual: Any = None) -> Any:
    """Return normalised rows by PyTorch's operators, `weight` may be None.

    With a residual, x is added to it, x becomes the normalised sums, and both are returned.
    """
    from torch.nn import functional

    if residual is None:
        return functional.rms_norm(x, x.shape[-1:], weight, eps)
    residual.add_(x)
    x.copy_(functional.rms_norm(residual, x.shape[-1:], weight, eps))
    return x, residual


def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """Return the softmax along an axis by PyTorch's operator."""
    import torch

    return torch.softmax(x, dim, dtype=dtype)


def log_softmax(x: Any, dim: int = -1) -> Any:
    """Return the logarithm of the softmax along an axis by PyTorch's operator."""
    import torch

    return torch.log_softmax(x, dim)


def mean(x: Any, dim: int, keepdim: bool = False, dtype: Any = None) -> Any:
    """Return the means along an axis by PyTorch's operator; those of integers are in fp32."""
    import torch

    kind = torch.float32 if dtype is None and not x.is_floating_point() else dtype
    return torch.mean(x, dim, keepdim=keepdim, dtype=kind)


OPERATORS: dict[str, Callable[..., Any]] = {
    "linear_batch_invariant": linear, "matmul_batch_invariant": matmul, "mm_batch_invariant": matmul,
    "bmm_batch_invariant": matmul, "matmul_persistent": matmul, "addmm_batch_invariant": addmm,
    "rms_norm_batch_invariant": rms_norm, "rms_norm": rms_norm, "softmax_batch_invariant": softmax,
    "log_softmax": log_softmax, "mean_dim": mean,
}  # fmt: skip
"""Functions that engines call in place of PyTorch's operators where their mode is enabled, and their replacements."""


def first_module(engine: str, modules: Sequence[str]) -> str:
    """Return the first of some modules, which releases of an engine name differently, that can be imported.

    Raises EngineHookError where there is none.
    """
    for name in modules:
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise EngineHookError(f"{engine}: none of {', '.join(modules)} can be imported: install {engine}")


def replace_functions(engine: str, modules: Sequence[str]) -> None:
    """Replace the functions of FUNCTIONS and OPERATORS that modules of an engine have, wherever it has imported them.

    A function of OPERATORS is the engine's own outside of the mode, and for arguments that its stand-in has not, with a
    warning.  Raises EngineHookError where a module cannot be imported or has no function that enables a mode.
    """
    for name in modules:
        try:
            module = import_module(name)
        except ImportError as error:
            raise EngineHookError(f"{engine}: {name} cannot be imported ({error}): install {engine}") from None
        if not hasattr(module, "enable_batch_invariant_mode"):
            raise EngineHookError(
                f"{engine}: {name} has no function enable_batch_invariant_mode: this release of {engine} has another "
                "interface; call bitwise_torch.batch_invariant().enable() before the model runs"
            )
        for function, own in FUNCTIONS.items():
            if hasattr(module, function):
                replace_function(name.split(".")[0], function, getattr(module, function), own)
        for function, own in OPERATORS.items():
            original = getattr(module, function, None)
            if original is not None and not hasattr(original, "__wrapped__"):
                replace_function(name.split(".")[0], function, original, _in_the_mode(original, own))


def _in_the_mode(original: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs another one in the mode, where it has the arguments."""
    signature = inspect.signature(own)

    @wraps(original)
    def function(*arguments: Any, **options: Any) -> Any:
        if not is_enabled():
            return original(*arguments, **options)
        given = {name: value for name, value in options.items() if value is not None}
        try:
            signature.bind(*arguments, **given)
        except TypeError:
            _note_other_arguments(f"{original.__module__}.{original.__name__}")
            return original(*arguments, **options)
        return own(*arguments, **given)

    return function


def _note_other_arguments(name: str) -> None:
    """Warn once of a function that was called with arguments that the mode has not.  Raises BatchVarianceError."""
    sentence = f"{name} was called with arguments that the mode has not: the engine's own kernel runs, in its own order"
    if _mode is not None and _mode.strict:
        raise BatchVarianceError(sentence)
    if name not in _left:
        _left.add(name)
        warnings.warn(f"{sentence}; later calls cause no warning", BatchVarianceWarning, stacklevel=3)


def replace_function(package: str, name: str, original: Any, own: Callable[..., Any]) -> None:
    """Replace a function in all loaded modules of a package that have it under its name."""
    for each, module in list(sys.modules.items()):
        if each.split(".")[0] == package and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, own)
