"""The mode: PyTorch's operators that multiply or reduce run in orders that no number of rows changes.

with batch_invariant():
    logits = model(tokens)

batch_invariant().enable()  # for all threads of the process

Operators that compute each element by itself are PyTorch's; so are those that reduce and round nothing.  An operator
that reduces and has no pinned order here causes a BatchVarianceWarning once, with `strict` an error.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from bitwise_core.errors import BitwiseError
from bitwise_torch import calls_in_c
from bitwise_torch.batch_invariance.attended_calls import ATTENDING, AttendedCalls
from bitwise_torch.batch_invariance.attention import ATTENTION
from bitwise_torch.batch_invariance.compiled_functions import run_eagerly
from bitwise_torch.batch_invariance.convolutions import CONVOLUTIONS
from bitwise_torch.batch_invariance.mask_runs import Masks
from bitwise_torch.batch_invariance.pools import POOLS
from bitwise_torch.batch_invariance.products import PRODUCT_OPERATORS, launch_of_product, setting_of_product
from bitwise_torch.batch_invariance.row_operators import (
    EXACT,
    NORMALISATIONS,
    OVER_ROWS,
    REDUCTIONS,
    ROW_OPERATORS,
    AddsNothing,
    NotServed,
    launch_of_normalisation,
    launch_of_rows,
    operands_and_rest,
)
from bitwise_torch.batch_invariance.spreads import SPREADS
from bitwise_torch.batch_invariance.triangular_systems import SYSTEMS
from bitwise_torch.interception import (
    MULTIPLYING,
    Intercepted,
    Operators,
    OtherThreads,
    WithoutGradients,
    check_other_threads,
    restore_kernels,
)
from bitwise_torch.kernel_replacement import kernel_names
from bitwise_torch.ready_launches import ReadyLaunches
from bitwise_torch.started_processes import Enter, passed_on

__all__ = ["BatchVarianceError", "BatchVarianceWarning", "Override", "batch_invariant", "overrides"]

_ROWS: dict[str, Callable[..., Any]] = ROW_OPERATORS | SPREADS | SYSTEMS | POOLS
_PRODUCTS: dict[str, Callable[..., Any]] = PRODUCT_OPERATORS | CONVOLUTIONS
_NAMES = frozenset({*_ROWS, *REDUCTIONS})
_REDUCING = Operators("bitwise_torch.reductions", lambda: kernel_names(lambda name, schema: name in _NAMES))
"""The operators that reduce rows."""

ELEMENTWISE = frozenset({"_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "addr", "addr_"})
"""Operators that multiply and add nothing up: each element is computed by itself, by PyTorch's kernel."""

_REASONS = {
    "_cudnn_rnn": "cuDNN's recurrent layers have no pinned order; those that run inside of "
    "torch.backends.cudnn.flags(enabled=False) are served",
    "mkldnn_rnn_layer": "oneDNN's recurrent layers have no pinned order; those that run inside of "
    "torch.backends.mkldnn.flags(enabled=False) are served",
}
"""Why an operator is not served, by its name."""

_UNKNOWN_RUNS = "aten::scaled_dot_product_attention under a mask with gaps"
_OF_GAPS = (
    "the bytes of aten::scaled_dot_product_attention under this mask have one order alone, in batches and beside "
    "padding, and another in chunks or packed: its queries see different first keys, and keys with gaps between them"
)
_OF_CAPTURES = (
    "a mask with several queries cannot be read in the capture of a CUDA graph: if queries see different first keys in "
    "a replay, as under a window, their bytes in chunks or packed are others; a strict mode asserts on the device that "
    "they do not"
)


class BatchVarianceWarning(UserWarning):
    """An operator ran whose bytes may depend on the batch."""


class BatchVarianceError(BitwiseError, RuntimeError):
    """An operator whose bytes may depend on the batch was called in a strict mode."""


@dataclass(frozen=True, slots=True)
class Override:
    """An operator of the namespace `aten` and what a mode does with it."""

    operator: str
    kind: str


def overrides() -> tuple[Override, ...]:
    """Return what a mode does with each operator, sorted: a kind for each.

    `product`, `rows` and `attention` have a pinned order; a mode warns of `warned`; `exact` ones round nothing, and the
    result of `over rows` is a sum over a batch.
    """
    found = dict.fromkeys(_PRODUCTS, "product")
    found |= dict.fromkeys(_ROWS, "rows") | dict.fromkeys(REDUCTIONS, "warned")
    found |= dict.fromkeys(EXACT, "exact") | dict.fromkeys(OVER_ROWS, "over rows") | {ATTENTION: "attention"}
    return tuple(Override(name, found[name]) for name in sorted(found))


@dataclass
class BatchInvariance:
    """A mode; `batch_invariant` makes one.  It is a context manager, and may be entered once at a time."""

    strict: bool = False
    other_threads: OtherThreads = "error"
    warned: set[str] = field(default_factory=set)
    """The operators that were warned of."""
    again: Enter | None = None
    """What processes enter that are started anew in this mode, by default a mode of their own."""
    calls_in_c: Any = field(init=False)
    """See `interception.Scope`."""
    _attention: AttendedCalls = field(init=False)
    _ready: ReadyLaunches = field(default_factory=lambda: ReadyLaunches(calls_in_c.module()))
    _stack: ExitStack | None = None
    _entering: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        check_other_threads(self.other_threads, BatchVarianceError)
        self._attention = AttendedCalls(self._ready, Masks(self.strict), self._note_mask)
        self.calls_in_c = self._ready.calls_in_c

    def __enter__(self) -> BatchInvariance:
        with self._entering:
            if self._stack is not None:
                raise BatchVarianceError("this mode is active already: make another one with batch_invariant()")
            again = self.again or partial(batch_invariant, strict=self.strict, other_threads=self.other_threads)
            with ExitStack() as stack:
                stack.enter_context(passed_on(again, self.other_threads))
                stack.enter_context(run_eagerly())
                stack.enter_context(MULTIPLYING.active(self))
                stack.enter_context(_REDUCING.active(self))
                stack.enter_context(ATTENDING.active(self))
                self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()
        self._attention.masks = Masks(self.strict)  # a mode that ended keeps no mask alive

    def attention(self, *operands: Any, **options: Any) -> Any:
        """Return attention in this mode; the arguments are those of `attention.attention`.  Raises NotServed."""
        return self._attention.computed(*operands, **options)

    def _note_mask(self) -> None:
        """Warn once of a mask whose runs are unknown.  Raises BatchVarianceError."""
        import torch

        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        sentence = _OF_CAPTURES if capturing else _OF_GAPS
        if self.strict:
            raise BatchVarianceError(sentence)
        if _UNKNOWN_RUNS not in self.warned:
            self.warned.add(_UNKNOWN_RUNS)
            warnings.warn(f"{sentence}; later calls cause no warning", BatchVarianceWarning, stacklevel=4)

    def enable(self) -> BatchInvariance:
        """Enter the mode for this process: all threads, until `disable`."""
        self.other_threads = "cover"
        return self.__enter__()

    def disable(self) -> None:
        """Leave the mode, in the thread that enabled it, and run PyTorch's kernels directly again."""
        self.__exit__()
        restore_kernels()

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run an operator in its pinned order, or warn of it.  Raises BatchVarianceError."""
        key: Hashable = None
        operands = 0 if options else READY_OPERANDS.get(name, 0)
        rest: tuple[Any, ...]
        if operands:
            if operands == len(arguments) == 2:
                given, rest = arguments, setting_of_product(arguments[0])
            elif operands == 1:
                given, rest = arguments[:1], arguments[1:]
                if rest and type(rest[0]) is list:  # axes
                    rest = (tuple(rest[0]), *rest[1:])
            else:
                given, rest = arguments[:operands], arguments[operands:] or setting_of_product(arguments[0])
            found, key = self._ready.run(name, given, rest)
            if found is not None:
                return found
        elif name == ATTENTION:
            return self._attended(operation, arguments, options)
        elif name in NORMALISATIONS and not options:
            return self._normalised(operation, name, arguments)
        function = _function(name)
        if function is None and name in ELEMENTWISE:
            return operation(*arguments, **options)
        if function is None:
            reason = _REASONS.get(name, "it has no pinned order")
            return self._uncovered(operation, name, arguments, options, reason)
        try:
            with WithoutGradients():  # autograd recorded the operation already
                found = _run(function, arguments, options)
                launch = None if key is None else _launch_of(name, arguments, found)
                if launch is not None:
                    alone = name not in PRODUCT_OPERATORS or not setting_of_product(arguments[0])
                    call = (operation.full_name, arguments) if alone else None
                    self._ready.keep(key, arguments[:operands], found, launch, call=call)
                return found
        except AddsNothing:
            return operation(*arguments, **options)
        except NotServed as reason:
            return self._uncovered(operation, name, arguments, options, str(reason))

    def _normalised(self, operation: Intercepted, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return normalised rows and their statistics, or gradients; a repeated call is one look-up."""
        operands, rest = operands_and_rest(arguments)
        found, key = self._ready.run_several(name, operands, rest)
        if found is not None:
            return tuple(found)
        try:
            with WithoutGradients():
                results = ROW_OPERATORS[name](*arguments)
                launch = None if key is None else launch_of_normalisation(name, arguments, results)
                if launch is not None:
                    self._ready.keep_several(key, operands, results, launch, (operation.full_name, arguments))
                return results
        except NotServed as reason:
            return self._uncovered(operation, name, arguments, {}, str(reason))

    def _attended(self, operation: Intercepted, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return self._attention.run(arguments, options)
        except NotServed as reason:
            return self._uncovered(operation, ATTENTION, arguments, options, str(reason))

    def _uncovered(
        self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any], reason: str
    ) -> Any:
        """Run PyTorch's kernel of an operator and warn once, or raise BatchVarianceError."""
        if _is_exact(arguments, options):
            return operation(*arguments, **options)
        sentence = f"the bytes of {operation.full_name} may depend on the batch: {reason}"
        if self.strict:
            raise BatchVarianceError(sentence)
        if operation.full_name not in self.warned:
            self.warned.add(operation.full_name)
            warnings.warn(f"{sentence}; later calls cause no warning", BatchVarianceWarning, stacklevel=2)
        return operation(*arguments, **options)


def active_mode() -> BatchInvariance | None:
    """Return the mode that computes the attention of this thread."""
    scopes = ATTENDING.receiving()
    return scopes[0] if scopes and isinstance(scopes[0], BatchInvariance) else None


def batch_invariant(*, strict: bool = False, other_threads: OtherThreads = "error") -> BatchInvariance:
    """Return a mode in which the bytes of a row do not depend on the batch: a context manager, with `enable()`.

    Operators that may depend on the batch cause a BatchVarianceWarning once each, with `strict` BatchVarianceError.
    The mode holds for the thread that enters it and the backward passes that it runs.  `other_threads` says what the
    operators of other threads do: raise InterceptionError ("error"), join this mode where it is the only one ("cover"),
    or run as usual ("ignore").  Processes that Python's multiprocessing starts in the mode have it in their first
    thread; those that are started anew, and not forked, have none with "ignore".  Functions of torch.compile run
    eagerly in all threads until the mode ends.

    Raises InterceptionError where PyTorch is older than 2.10, and BatchVarianceError for another word about threads.
    """
    return BatchInvariance(strict, other_threads)


READY_OPERANDS = {
    "mm": 2, "bmm": 2, "addmm": 3, "_grouped_mm": 3, "mean": 1, "sum": 1, "_softmax": 1, "_log_softmax": 1,
    "_softmax_backward_data": 2, "_log_softmax_backward_data": 2,
}  # fmt: skip
"""Operators whose launches are kept, with the numbers of their tensors, which come first."""


def _launch_of(name: str, arguments: tuple[Any, ...], found: Any) -> Callable[..., None] | None:
    """Return the launch of a call that ran, a function of the addresses of its tensors and of its result."""
    return (launch_of_product if name in PRODUCT_OPERATORS else launch_of_rows)(name, arguments, found)


@cache
def _function(name: str) -> Callable[..., Any] | None:
    return _PRODUCTS.get(name) or _ROWS.get(name)


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a function; several outputs of an operator are filled one by one."""
    if "out0" not in options:
        return function(*arguments, **options)
    given = {name: value for name, value in options.items() if not name.startswith("out")}
    outputs = [options[f"out{place}"] for place in range(len(options) - len(given))]
    for target, value in zip(outputs, function(*arguments, **given), strict=True):
        if value is not None:
            target.resize_(value.shape).copy_(value)
    return tuple(outputs)


def _is_exact(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Return whether a call computes with integers only, which round nothing."""
    dtype = options.get("dtype")
    if dtype is not None:
        return not (dtype.is_floating_point or dtype.is_complex)
    tensors = list(_tensors(arguments))
    return bool(tensors) and not any(each.is_floating_point() or each.is_complex() for each in tensors)


def _tensors(arguments: tuple[Any, ...]) -> Iterator[Any]:
    for each in arguments:
        if isinstance(each, list | tuple):
            yield from _tensors(tuple(each))
        elif hasattr(each, "is_floating_point"):
            yield each
