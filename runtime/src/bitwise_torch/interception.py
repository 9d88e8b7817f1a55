"""Intercept the operators of PyTorch that multiply matrices, below autograd.

A scope replaces the kernels of these operators for CPU and CUDA tensors while it is active, and receives every call in
its thread and in the threads in which autograd runs the backward passes of that thread.  Operators that are not listed
run as usual, at no cost.  torch.compile compiles what runs inside a scope; the products that it leaves to PyTorch are
intercepted.

Not intercepted are custom kernels, kernels that a compiler generates, replays of CUDA graphs, and operators that run
inside of another intercepted operator.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol

from bitwise_core.errors import BitwiseError

__all__ = [
    "ATTENTION_PREFIX", "PRODUCTS", "WATCHED", "Intercepted", "InterceptionError", "OtherThreads", "Scope", "active",
    "is_intercepted", "without_gradients", "without_interception",
]  # fmt: skip

PRODUCTS = ("mm", "addmm", "bmm", "mv", "dot")
"""Operators that compute one product of matrices, or one for each matrix of a batch, in the namespace `aten`."""

ATTENTION_PREFIX = "_scaled_dot_product_"
"""The prefix of the attention operators."""

WATCHED = (
    "_addmm_activation", "_cdist_forward", "_cslt_sparse_mm", "_cudnn_attention_backward", "_cudnn_attention_forward",
    "_cudnn_rnn", "_cudnn_rnn_backward", "_efficient_attention_backward", "_efficient_attention_forward",
    "_flash_attention_backward", "_flash_attention_forward", "_grouped_mm", "_int_mm", "_mixed_dtypes_linear",
    "_native_multi_head_attention", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "_scaled_mm", "_scaled_mm_v2",
    "_sparse_semi_structured_addmm", "_sparse_semi_structured_linear", "_sparse_semi_structured_mm",
    "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "_transformer_encoder_layer_fwd", "_trilinear",
    "_triton_multi_head_attention", "_triton_scaled_dot_attention", "_weight_int4pack_mm", "_weight_int8pack_mm",
    "addbmm", "addbmm_", "addmm_", "addmv", "addmv_", "addr", "addr_", "baddbmm", "baddbmm_", "convolution",
    "convolution_backward", "vdot",
)  # fmt: skip
"""Other operators that multiply matrices, convolutions and recurrent layers included; attention is named by a prefix.

Releases of PyTorch that lack some of them are supported.
"""

_KEYS = ("CPU", "CUDA")
"""The dispatch keys of the replaced kernels.  PyTorch for ROCm has the key CUDA, too."""

_THREAD_KEY = "bitwise_torch.scopes"
"""The key of this thread's scopes among PyTorch's thread-local objects, which autograd copies to its threads."""

OtherThreads = Literal["error", "cover", "ignore"]
"""What an operator does in a thread without a scope while a scope is active in another thread.

"error" raises InterceptionError, "cover" passes it to that scope, "ignore" runs it as usual.
"""


class InterceptionError(BitwiseError, RuntimeError):
    """An operator that ran where no scope can decide about it, or a PyTorch that cannot be intercepted."""


class Intercepted(Protocol):
    """An operator whose call was intercepted."""

    @property
    def overload(self) -> str:
        """The name of its overload, "default" for the one without a name."""

    @property
    def full_name(self) -> str:
        """Its name with namespace and overload."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernel of PyTorch, or pass the call to the next outer scope."""


class Scope(Protocol):
    """Receives the calls of intercepted operators."""

    @property
    def other_threads(self) -> OtherThreads:
        """What operators do in threads without a scope."""

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the result of an operator, of which `name` is the name without overload.

        `operation(*arguments, **options)` runs the kernel of PyTorch, or passes the call to the next outer scope.
        """


@dataclass(frozen=True, slots=True)
class Operation:
    """A kernel of PyTorch: an overload of an operator for one dispatch key."""

    name: str
    overload: str
    kernel: Any
    keys: Any

    @property
    def full_name(self) -> str:
        """The name with namespace and overload."""
        return f"aten::{self.name}" + (f".{self.overload}" if self.overload != "default" else "")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernel; operators that run inside of it are not intercepted."""
        with _scopes_of_thread(()):
            return self.kernel.call_boxed(self.keys, *arguments, **options)


@dataclass(frozen=True, slots=True)
class _Outer:
    """An operation that passes its calls to the next outer scope."""

    operation: Operation
    scopes: tuple[Scope, ...]

    @property
    def overload(self) -> str:
        return self.operation.overload

    @property
    def full_name(self) -> str:
        return self.operation.full_name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _handle(self.operation, self.scopes, arguments, options)


def _handle(operation: Operation, scopes: tuple[Scope, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:  # fmt: skip # noqa: E501
    """Pass a call to the innermost of some scopes."""
    if not scopes:
        return operation(*arguments, **options)
    inner = operation if len(scopes) == 1 else _Outer(operation, scopes[1:])
    return scopes[0].handle(inner, operation.name, arguments, options)


class _Installed:
    """The active scopes of all threads, and the library of kernels that is registered while there are any."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.scopes: tuple[Scope, ...] = ()
        self.library: Any = None

    def add(self, scope: Scope) -> None:
        with self.lock:
            if not self.scopes:
                self.library = _registered_kernels()
            self.scopes = (*self.scopes, scope)

    def remove(self, scope: Scope) -> None:
        with self.lock:
            position = next(at for at, each in enumerate(self.scopes) if each is scope)
            self.scopes = self.scopes[:position] + self.scopes[position + 1 :]
            if not self.scopes:
                self.library._destroy()
                self.library = None


_installed = _Installed()


@contextmanager
def active(scope: Scope) -> Iterator[None]:
    """Pass the intercepted operators of this thread to a scope, inside of the scopes that are active already.

    Raises InterceptionError where PyTorch is older than 2.10.
    """
    import torch

    if not hasattr(torch.library, "get_kernel"):
        raise InterceptionError(
            f"PyTorch {torch.__version__} cannot run a kernel that was replaced: install PyTorch 2.10 or later"
        )
    _installed.add(scope)
    try:
        with _scopes_of_thread((scope, *(_scopes() or ()))):
            yield
    finally:
        _installed.remove(scope)


def is_intercepted(name: str) -> bool:
    """Return whether the operator of a name, without namespace and overload, is intercepted."""
    return name in PRODUCTS or name in WATCHED or name.startswith(ATTENTION_PREFIX)


@contextmanager
def without_gradients() -> Iterator[None]:
    """Do not record operations for gradients, at less cost than torch.no_grad."""
    import torch

    recorded = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(recorded)


@contextmanager
def without_interception() -> Iterator[None]:
    """Run all operators of this thread as usual."""
    with _scopes_of_thread(()):
        yield


def _scopes() -> tuple[Scope, ...] | None:
    """Return the scopes of this thread, the innermost first; None in a thread that has none."""
    import torch

    if not torch._C._is_key_in_tls(_THREAD_KEY):
        return None
    found: tuple[Scope, ...] | None = torch._C._get_obj_in_tls(_THREAD_KEY)
    return found


@contextmanager
def _scopes_of_thread(scopes: tuple[Scope, ...]) -> Iterator[None]:
    """Set the scopes of this thread."""
    before = _scopes()
    _set_thread_object(scopes)
    try:
        yield
    finally:
        _set_thread_object(before)


def _set_thread_object(value: Any) -> None:
    import torch

    if _releases_more_than_it_holds():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    torch._C._stash_obj_in_tls(_THREAD_KEY, value)


@cache
def _releases_more_than_it_holds() -> bool:
    """Return whether this PyTorch releases a thread-local object without having counted its reference, as 2.11 does."""
    import torch

    probe = object()
    before = sys.getrefcount(probe)
    torch._C._stash_obj_in_tls(f"{_THREAD_KEY}.probe", probe)
    if sys.getrefcount(probe) > before:
        return False
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(probe))
    return True


def _scopes_of_others(operation: Operation) -> tuple[Scope, ...]:
    """Return the scope that covers a call in a thread without a scope.  Raises InterceptionError."""
    scopes = _installed.scopes
    covering = [each for each in scopes if each.other_threads == "cover"]
    if any(each.other_threads == "error" for each in scopes) or len(covering) > 1:
        raise InterceptionError(
            f"torch.{operation.name} ran in the thread {threading.current_thread().name!r}, which has no lock, while "
            "another thread has one: enter the lock in this thread as well, or give the other thread's "
            'other_threads="cover", which covers threads of their own where it is the only lock, or "ignore"'
        )
    return tuple(covering)


def _registered_kernels() -> Any:
    """Replace the kernels of all intercepted operators, and return the library that holds the replacements."""
    import torch

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*other operators may also be overridden", UserWarning)
        for key, name, replacement in _replacements():
            library.impl(name, replacement, key)
    return library


def _replacements() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield the dispatch key, the name with its overload, and the replacement of each intercepted kernel."""
    import torch

    for key, each in _intercepted_kernels():
        name, _, overload = each.partition(".")
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        kernel = torch.library.get_kernel(f"aten::{each}", key)
        yield key, each, _replacement(Operation(name, overload or "default", kernel, keys))


@cache
def _intercepted_kernels() -> tuple[tuple[str, str], ...]:
    """Return the dispatch key and the name with its overload of each intercepted kernel of this PyTorch."""
    import torch

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    has_computed_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    found = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, each = full.partition("::")
        name = each.partition(".")[0]
        if namespace != "aten" or not is_intercepted(name):
            continue
        if not has_kernel(full, "CompositeImplicitAutograd"):  # such an operator consists of others
            found += [(key, each) for key in _KEYS if has_computed_kernel(full, key)]
    return tuple(found)


def _replacement(operation: Operation) -> Callable[..., Any]:
    """Return a function that passes the calls of an operation to the scopes of its thread."""
    import torch

    has_scopes, scopes_of_thread = torch._C._is_key_in_tls, torch._C._get_obj_in_tls

    def replacement(*arguments: Any, **options: Any) -> Any:
        scopes = scopes_of_thread(_THREAD_KEY) if has_scopes(_THREAD_KEY) else None
        if scopes is None:
            scopes = _scopes_of_others(operation)
        if len(scopes) == 1:
            return scopes[0].handle(operation, operation.name, arguments, options)
        if scopes:
            return _handle(operation, scopes, arguments, options)
        return operation.kernel.call_boxed(operation.keys, *arguments, **options)

    return replacement
