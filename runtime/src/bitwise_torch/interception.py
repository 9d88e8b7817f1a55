"""Intercept the operators of PyTorch that multiply matrices, below autograd.

A scope replaces the kernels of these operators for CPU and CUDA tensors while it is active, and receives every call in
its thread and in the threads in which autograd runs the backward passes of that thread.  Operators that are not listed
run as usual, at no cost.  torch.compile compiles what runs inside a scope; the products that it leaves to PyTorch are
intercepted.

Not intercepted are custom kernels, kernels that a compiler generates, replays of CUDA graphs, operators that run inside
of another intercepted operator, products of sparse tensors and of tensors of MKL-DNN, operators of other namespaces
such as `quantized`, and the solvers and decompositions of `torch.linalg`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from bitwise_core.errors import BitwiseError
from bitwise_torch import calls_in_c
from bitwise_torch.kernel_replacement import (
    InterceptionError,
    Kernel,
    KernelName,
    ThreadObject,
    kernel_names,
    replaced_kernels,
)

__all__ = [
    "ATTENTION_PREFIX",
    "MULTIPLYING",
    "PRODUCTS",
    "WATCHED",
    "Intercepted",
    "InterceptionError",
    "Operators",
    "OtherThreads",
    "Scope",
    "WithoutGradients",
    "active",
    "check_other_threads",
    "is_intercepted",
    "restore_kernels",
    "without_interception",
]  # fmt: skip

PRODUCTS = (
    "mm", "addmm", "addmm_", "bmm", "mv", "dot", "addmv", "addmv_", "baddbmm", "baddbmm_", "addbmm", "addbmm_",
    "_addmm_activation", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm",
)  # fmt: skip
"""Operators that compute products of matrices and that locks hold, in the namespace `aten`."""

ATTENTION_PREFIX = "_scaled_dot_product_"
"""The prefix of the attention operators."""

WATCHED = (
    "_cdist_backward", "_cdist_forward", "_convolution", "_cslt_sparse_mm", "_cudnn_attention_backward",
    "_cudnn_attention_forward", "_cudnn_rnn", "_cudnn_rnn_backward", "_dyn_quant_matmul_4bit",
    "_efficient_attention_backward", "_efficient_attention_forward", "_flash_attention_backward",
    "_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace", "_int_mm", "_mixed_dtypes_linear",
    "_native_multi_head_attention", "_scaled_grouped_mm_v2", "_scaled_mm_v2", "_sparse_semi_structured_addmm",
    "_sparse_semi_structured_linear", "_sparse_semi_structured_mm", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell",
    "_transformer_encoder_layer_fwd", "_trilinear", "_triton_multi_head_attention", "_triton_scaled_dot_attention",
    "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros",
    "_weight_int8pack_mm", "addr", "addr_", "convolution", "convolution_backward", "cudnn_convolution",
    "cudnn_convolution_add_relu", "cudnn_convolution_relu", "cudnn_convolution_transpose", "miopen_convolution",
    "miopen_convolution_add_relu", "miopen_convolution_relu", "miopen_convolution_transpose",
    "miopen_depthwise_convolution", "miopen_rnn", "miopen_rnn_backward", "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward", "vdot",
)  # fmt: skip
"""Other operators that multiply matrices, convolutions and recurrent layers included; attention is named by a prefix.

Releases of PyTorch that lack some of them are supported.
"""

KEPT_FROM = 3
"""The scope of a process, of those that do not overlap, after which kernels stay replaced."""

OtherThreads = Literal["error", "cover", "ignore"]
"""What an operator does in a thread without a scope while a scope is active in another thread.

"error" raises InterceptionError, "cover" passes it to that scope, "ignore" runs it as usual.
"""


def check_other_threads(other_threads: str, error: type[BitwiseError]) -> None:
    """Raise an error of a type for a value that is none of OtherThreads."""
    if other_threads not in get_args(OtherThreads):
        raise error(f"other_threads is {other_threads!r}; give one of {', '.join(map(repr, get_args(OtherThreads)))}")


class Intercepted(Protocol):
    """An operator whose call was intercepted."""

    @property
    def overload(self) -> str:
        """The name of its overload, "default" for the one without a name."""

    @property
    def full_name(self) -> str:
        """Its name with namespace and overload."""

    @property
    def is_kernel(self) -> bool:
        """Whether a call runs the kernel of PyTorch, and no other scope receives it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernel of PyTorch, or pass the call to the next outer scope."""


class Scope(Protocol):
    """Receives the calls of intercepted operators."""

    @property
    def other_threads(self) -> OtherThreads:
        """What operators do in threads without a scope."""

    @property
    def calls_in_c(self) -> Any:
        """A table of calls in C that serves calls before `handle`, where it is the only scope of a thread, or None."""

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the result of an operator, of which `name` is the name without overload.

        `operation(*arguments, **options)` runs the kernel of PyTorch, or passes the call to the next outer scope.
        """


@dataclass(frozen=True, slots=True, eq=False)
class _Refusal:
    """A scope of no thread: operators in threads without a scope raise InterceptionError with a reason."""

    reason: str
    other_threads: OtherThreads = "error"
    calls_in_c: None = None

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Raise InterceptionError."""
        raise self.error(name)

    def error(self, name: str) -> InterceptionError:
        """Return the error of an operator."""
        return InterceptionError(f"torch.{name} ran {self.reason}")


@dataclass(frozen=True, slots=True)
class _Innermost:
    """An operation that runs the kernel of PyTorch."""

    operators: Operators
    kernel: Kernel

    @property
    def overload(self) -> str:
        return self.kernel.overload

    @property
    def full_name(self) -> str:
        return self.kernel.full_name

    @property
    def is_kernel(self) -> bool:
        return True

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernel; operators of the group that run inside of it are not intercepted."""
        return self.operators.without_scopes(self.kernel, arguments, options)


@dataclass(frozen=True, slots=True)
class _Outer:
    """An operation that passes its calls to the next outer scope."""

    operation: _Innermost
    scopes: tuple[Scope, ...]

    @property
    def overload(self) -> str:
        return self.operation.overload

    @property
    def full_name(self) -> str:
        return self.operation.full_name

    @property
    def is_kernel(self) -> bool:
        return False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _handle(self.operation, self.scopes, arguments, options)


def _handle(
    operation: _Innermost, scopes: tuple[Scope, ...], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Pass a call to the innermost of some scopes."""
    inner = operation if len(scopes) == 1 else _Outer(operation, scopes[1:])
    return scopes[0].handle(inner, operation.kernel.name, arguments, options)


_groups: list[Operators] = []


def restore_kernels() -> None:
    """Remove the replaced kernels that the end of a scope left in place, of all groups without an active scope."""
    for each in _groups:
        each.restore()


class Operators:
    """A group of operators, and the scopes that receive their calls.

    `names` returns the kernels of the group, which are replaced while a scope is active in any thread.  `key` names the
    group in the threads' objects.

    Replacing hundreds of kernels takes tens of milliseconds.  Where scopes follow each other, as one for each request
    of a server, the kernels stay replaced from the end of scope KEPT_FROM on: without a scope they run PyTorch's, at a
    cost of some microseconds a call.  `restore_kernels` removes them.
    """

    def __init__(self, key: str, names: Callable[[], tuple[KernelName, ...]]) -> None:
        self.library: Any = None
        self.calls_in_c: Any = ()
        """The table of the only scope, where it receives the calls of threads without scopes; see `Scope`.

        It is an empty tuple where there is no scope at all.
        """
        self._names = names
        self._lock = threading.Lock()
        self._of_thread: ThreadObject[tuple[Scope, ...]] = ThreadObject(key)
        self._active: tuple[Scope, ...] = ()
        self._found: tuple[KernelName, ...] | None = None
        self._entered = 0
        _groups.append(self)

    @contextmanager
    def active(self, scope: Scope) -> Iterator[None]:
        """Pass the operators of this thread to a scope, inside of the scopes that are active already.

        Raises InterceptionError where PyTorch is older than 2.10, and at the end of a block that is not nested in the
        thread's other blocks, as those of two tasks of asyncio that take turns: the operators of one task may have gone
        to the scope of the other.
        """
        self._add(scope)
        before, mine = self._of_thread.get(), (scope, *self.scopes())
        self._of_thread.set(mine)
        try:
            yield
        finally:
            found = self._of_thread.get()
            nested = found is mine
            others = None if found is None else tuple(each for each in found if each is not scope)
            self._of_thread.set(before if nested else others)
            self._remove(scope)
        if not nested:
            raise InterceptionError(
                "a lock, a recording or a mode ended in another thread than it began in, or before one that began in "
                "it, so that operators may have run in the wrong one: enter and leave each in one thread, nested in "
                "the others, and let no other task of asyncio run before it ends"
            )

    @contextmanager
    def refused(self, reason: str) -> Iterator[None]:
        """Raise InterceptionError with a reason in all threads without a scope, in this block."""
        refusal = _Refusal(reason)
        self._add(refusal)
        try:
            yield
        finally:
            self._remove(refusal)

    @contextmanager
    def held(self, scopes: tuple[Scope, ...]) -> Iterator[None]:
        """Set the scopes of this thread for a block."""
        with self._of_thread.held(scopes):
            yield

    def without_scopes(self, kernel: Kernel, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run a kernel in a thread without scopes, at less cost than in a block of `held`."""
        before = self._of_thread.get()
        self._of_thread.set(())
        try:
            return kernel.run(*arguments, **options)
        finally:
            self._of_thread.set(before)

    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes of this thread, the innermost first."""
        return self._of_thread.get() or ()

    def receiving(self) -> tuple[Scope, ...]:
        """Return the scopes that receive the calls of this thread: its own, or else the one that covers it."""
        found = self._of_thread.get()
        if found is not None:
            return found
        covering = tuple(each for each in self._active if each.other_threads == "cover")
        return covering if len(covering) == len(self._active) == 1 else ()

    def _add(self, scope: Scope) -> None:
        with self._lock:
            if self.library is None:
                if self._found is None:
                    self._found = self._names()
                self.library = replaced_kernels(self._found, self._replacement)
            self._entered += not self._active
            self._set_active((*self._active, scope))

    def _remove(self, scope: Scope) -> None:
        with self._lock:
            position = next(at for at, each in enumerate(self._active) if each is scope)
            self._set_active(self._active[:position] + self._active[position + 1 :])
            if not self._active and self._entered < KEPT_FROM:
                self._destroy()

    def restore(self) -> None:
        """Run PyTorch's kernels directly again, where no scope is active."""
        with self._lock:
            if not self._active:
                self._entered = 0
                self._destroy()

    def _destroy(self) -> None:
        if self.library is not None:
            self.library._destroy()
            self.library = None

    def _set_active(self, scopes: tuple[Scope, ...]) -> None:
        self._active = scopes
        only = scopes[0] if len(scopes) == 1 and scopes[0].other_threads == "cover" else None
        self.calls_in_c = () if not scopes else None if only is None else only.calls_in_c

    def _replacement(self, kernel: Kernel) -> Callable[..., Any]:
        """Return a function that passes the calls of a kernel to the scopes of its thread."""
        operation, name = _Innermost(self, kernel), kernel.name
        run, keys = kernel.kernel.call_boxed, kernel.keys
        key, is_there, read = self._of_thread.functions()

        def replacement(*arguments: Any, **options: Any) -> Any:
            scopes = read(key) if is_there(key) else None  # each function that is called here costs all operators time
            if scopes is None:
                if not self._active:
                    return run(keys, *arguments, **options)
                scopes = self._scopes_of_others(kernel)
            if len(scopes) == 1:
                return scopes[0].handle(operation, name, arguments, options)
            if not scopes:
                return kernel.run(*arguments, **options)
            return _handle(operation, scopes, arguments, options)

        module = calls_in_c.module()
        if module is None:
            return replacement
        made: Callable[..., Any] = module.Kernel(replacement, kernel.full_name, key, is_there, read, run, keys, self)
        return made

    def _scopes_of_others(self, kernel: Kernel) -> tuple[Scope, ...]:
        """Return the scope that covers a call in a thread without a scope.  Raises InterceptionError."""
        scopes = self._active
        for each in scopes:
            if isinstance(each, _Refusal):
                raise each.error(kernel.name)
        covering = [each for each in scopes if each.other_threads == "cover"]
        if any(each.other_threads == "error" for each in scopes) or len(covering) > 1:
            raise InterceptionError(
                f"torch.{kernel.name} ran in the thread {threading.current_thread().name!r}, which has no lock, while "
                "another thread has one: enter the lock in this thread as well, or give the other thread's "
                'other_threads="cover", which covers threads of their own where it is the only lock, or "ignore"'
            )
        return tuple(covering)


def is_intercepted(name: str) -> bool:
    """Return whether the operator of a name, without namespace and overload, is intercepted."""
    return name in PRODUCTS or name in WATCHED or name.startswith(ATTENTION_PREFIX)


class WithoutGradients:
    """Do not record operations for gradients in a block, at a fifth of the cost of torch.no_grad."""

    __slots__ = ("recorded",)

    def __enter__(self) -> None:
        import torch

        self.recorded = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *exception: object) -> None:
        import torch

        torch._C._set_grad_enabled(self.recorded)


MULTIPLYING = Operators("bitwise_torch.scopes", lambda: kernel_names(lambda name, schema: is_intercepted(name)))
"""The operators that multiply matrices."""


@contextmanager
def active(scope: Scope) -> Iterator[None]:
    """Pass the operators of this thread that multiply matrices to a scope; see `Operators.active`."""
    with MULTIPLYING.active(scope):
        yield


@contextmanager
def without_interception() -> Iterator[None]:
    """Run the operators of this thread that multiply matrices as usual."""
    with MULTIPLYING.held(()):
        yield
