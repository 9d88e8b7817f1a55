"""Attention of this package in place of PyTorch's, while products are recorded and while a lock runs.

torch.nn.functional.scaled_dot_product_attention is received above autograd, so that its gradients are pinned as well.
The lock has the descriptors that decide the bits, and a call runs from it only where this package computes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bitwise_core.descriptors.problem import NAMES
from bitwise_torch import calls_in_c
from bitwise_torch.batch_invariance.attended_calls import ATTENDING, AttendedCalls
from bitwise_torch.batch_invariance.attention import ATTENTION, ORDER_VERSION, descriptors_of
from bitwise_torch.batch_invariance.compiled_functions import run_eagerly
from bitwise_torch.batch_invariance.mask_runs import Masks
from bitwise_torch.batch_invariance.row_operators import NotServed
from bitwise_torch.interception import Intercepted, OtherThreads
from bitwise_torch.locks import LockError, PinnedAttention
from bitwise_torch.ready_launches import ReadyLaunches

if TYPE_CHECKING:
    import torch

_TYPES = ("fp32", "fp16", "bf16")

_Heads = tuple[Any, int, int, Any]


@dataclass
class AttentionScope:
    """Receives calls of attention and computes them in pinned orders.

    `accept` is called with the description of a call's heads before the call, and raises NotServed to refuse it;
    `refuse` is called with the reason where a call is not served, and returns where PyTorch is to compute it.
    """

    accept: Callable[[PinnedAttention], None]
    refuse: Callable[[str], None]
    other_threads: OtherThreads
    calls: int = 0
    calls_in_c: None = None
    """See `interception.Scope`."""
    _calls: AttendedCalls = field(init=False)
    _accepted: set[_Heads] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Masks are read strictly: their values decide the order, and are to be the same ones in a replay of a graph.
        self._calls = AttendedCalls(ReadyLaunches(calls_in_c.module()), Masks(strict=True), lambda: None)

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return attention in its pinned order."""
        query, value = arguments[0], arguments[2]
        heads = query.dtype, int(query.shape[-1]) if query.dim() else 0, _width(value), query.device
        try:
            _check_capture(arguments)
            if heads not in self._accepted:
                self.accept(described(query, value))
                self._accepted.add(heads)
            found = self._calls.run(arguments, options)
        except NotServed as reason:
            self.refuse(f"{ATTENTION}: {reason}")
            return operation(*arguments, **options)
        self.calls += 1
        return found


def described(query: torch.Tensor, value: torch.Tensor) -> PinnedAttention:
    """Return what decides the bits of attention on heads of this type and these widths.  Raises NotServed."""
    dtype = NAMES.get(str(query.dtype))
    if dtype not in _TYPES:
        raise NotServed(f"attention of {query.dtype}; one type of fp32, fp16 and bf16 is served")
    if query.dim() < 2 or value.dim() < 2:
        raise NotServed(f"operands of {query.dim()} and {value.dim()} axes; 4 axes are served")
    descriptor, gradient = descriptors_of(query, value)
    return PinnedAttention(
        dtype=dtype, depth=int(query.shape[-1]), width=_width(value), order=ORDER_VERSION, descriptor=descriptor,
        gradient=gradient,
    )  # fmt: skip


def installed(pinned: PinnedAttention, device: str) -> PinnedAttention:
    """Return what decides the bits of attention here, for the type and the widths of an entry of a lock."""
    import torch

    kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[pinned.dtype]
    query, value = (
        torch.empty((1, 1, 1, width), dtype=kind, device=device) for width in (pinned.depth, pinned.width)
    )  # fmt: skip
    return described(query, value)


def moved_attention(locked: Sequence[PinnedAttention]) -> list[str]:
    """Return a sentence for each kind of heads whose attention this package computes in another order than a lock's."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    here = [(each, installed(each, device)) for each in locked]
    return [
        f"{each.words}: locked as {each.text}, and this package computes {own.text}"
        for each, own in here if each != own
    ]  # fmt: skip


@contextmanager
def recorded_attention(
    found: dict[tuple[str, int, int], PinnedAttention], not_locked: Counter[str], other_threads: OtherThreads
) -> Iterator[AttentionScope]:
    """Compute attention in pinned orders and note their descriptions in `found`; count other calls in `not_locked`."""

    def accept(description: PinnedAttention) -> None:
        before = found.setdefault(description.heads, description)
        if before != description:
            raise NotServed(f"{description.words} on devices whose kernels differ; one kind of device is served")

    def refuse(reason: str) -> None:
        not_locked[reason] += 1

    with _active(AttentionScope(accept, refuse, other_threads)) as scope:
        yield scope


@contextmanager
def locked_attention(
    pinned: Mapping[tuple[str, int, int], PinnedAttention], missing: Literal["error", "pass"],
    not_replayed: Counter[str], other_threads: OtherThreads,
) -> Iterator[AttentionScope]:  # fmt: skip
    """Compute attention as a lock has it; a call that is not served raises LockError, or is counted in `not_replayed`.

    Attention whose description here is another one raises LockError in either case.
    """

    def accept(description: PinnedAttention) -> None:
        entry = pinned.get(description.heads)
        if entry is None:
            known = ", ".join(f"{dtype} {depth} and {width}" for dtype, depth, width in pinned) or "none"
            raise NotServed(f"{description.words} is not in the lock, whose heads are {known}: record it")
        if entry != description:
            raise LockError(
                f"{entry.words} is locked as {entry.text}, and this package computes {description.text}: install the "
                "version that recorded the lock, or record it again"
            )

    def refuse(reason: str) -> None:
        if missing == "error":
            raise LockError(
                f'{reason}; the lock pins attention: change the call, let PyTorch compute it with missing="pass", or '
                'record with attention="library"'
            )
        not_replayed[reason] += 1

    with _active(AttentionScope(accept, refuse, other_threads)) as scope:
        yield scope


@contextmanager
def _active(scope: AttentionScope) -> Iterator[AttentionScope]:
    with run_eagerly(), ATTENDING.active(scope):
        yield scope


def _width(value: torch.Tensor) -> int:
    return int(value.shape[-1]) if value.dim() else 0


def _check_capture(arguments: tuple[Any, ...]) -> None:
    """Raise NotServed for gradients under a mask in the capture of a CUDA graph, where its values cannot be read."""
    import torch

    if len(arguments) < 4 or arguments[3] is None or not arguments[0].is_cuda or not torch.is_grad_enabled():
        return
    if any(each.requires_grad for each in arguments[:3]) and torch.cuda.is_current_stream_capturing():
        raise NotServed("gradients under a mask in the capture of a CUDA graph; without a mask they are served")
