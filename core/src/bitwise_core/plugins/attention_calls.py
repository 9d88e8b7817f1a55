"""Attention of tensors: what a call asks for, its operands, and the interface of plugins that run it on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from bitwise_core.descriptors import AttentionDesc, AttentionGradientDesc
from bitwise_core.plugins.launchers import Launcher


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """What decides the descriptor of a call: types and widths of a head, the scale, and the mask.

    `dtype` is that of query, key and value and of the output; `stored` is the type of key and value where it is
    another one, whose numbers `dtype` has.  The output is multiplied by `output_scale`.  Scores are Q K^T `scale`, or
    with `soft_cap` c the value c tanh(Q K^T scale / c).  `window` is the number of keys that a query sees, itself
    included.
    """

    dtype: str
    depth: int
    width: int
    scale: float
    causal: bool = False
    window: int | None = None
    soft_cap: float | None = None
    sink: bool = False
    stored: str | None = None
    output_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionOperands:
    """The tensors of a call on one device; their last axis is contiguous.

    Dense: query (batch, queries, heads, depth), key and value (batch, keys, groups, ...), out (batch, queries, heads,
    width), logarithms (batch, queries, heads) in fp32.  With `query_starts` (sequences + 1), query, out and logarithms
    have no batch, and sequence i has the rows from `query_starts[i]` to `query_starts[i + 1]`; `key_starts` is the same
    for key and value.  With `page_table` (sequences, pages), key and value are (pages, page size, groups, ...), and
    `key_lengths` (sequences) gives the number of keys; dense keys may have it too.  Integers are int32.

    `longest_queries` and `longest_keys` are bounds of the lengths of all sequences.  Query i of a causal mask sees the
    keys up to i // `query_share` * `query_step` + `first_position`; None stands for the number of keys less that of
    queries.  `sinks` (heads) are
    scores in fp32.  `visible` (batch, heads, queries, keys) is a mask of bytes, whose strides may be 0.  With
    `first_keys` (batch), which needs `visible`, the keys of a sequence begin at its first key, and the columns too.
    """

    query: Any
    key: Any
    value: Any
    out: Any
    longest_queries: int
    longest_keys: int
    logarithms: Any = None
    query_starts: Any = None
    key_starts: Any = None
    key_lengths: Any = None
    page_table: Any = None
    first_position: int | None = None
    sinks: Any = None
    visible: Any = None
    first_keys: Any = None
    query_share: int = 1
    query_step: int = 1


RepeatedAttention: TypeAlias = Callable[..., None]
"""Launches a call again, on tensors of the same types, shapes, strides and alignments, given by their addresses.

For `AttentionLauncher.attend` they are those of query, key, value, query_starts, key_starts, key_lengths, page_table,
sinks, visible, first_keys, logarithms and out, in this order, without those that the call has not.
"""


@runtime_checkable
class AttentionLauncher(Launcher, Protocol):
    """A launcher that computes attention of tensors on its device, with the same bits for every schedule."""

    def attention_descriptor(self, form: AttentionForm) -> AttentionDesc:
        """Return the descriptor of its kernels; it needs no device.

        Raises DescriptorError for a form that it has no kernels for, with the nearest that it has.
        """

    def serves_attention(self, desc: AttentionDesc, device: Any) -> bool:
        """Return whether it supports this descriptor on this device, a `torch.device`."""

    def attend(self, desc: AttentionDesc, operands: AttentionOperands) -> RepeatedAttention | None:
        """Compute the output, and the logarithms where there are any, on the device's current stream.

        Return a function that does it again, or None.  Raises DescriptorError for a descriptor or operands that it does
        not support.
        """


@dataclass(frozen=True, slots=True)
class AttentionGradientTensors:
    """The gradient of a call's output, and the tensors for those of query, key and value, all of their shapes.

    The last axis of each is contiguous.
    """

    slope: Any
    query: Any
    key: Any
    value: Any


@runtime_checkable
class AttentionGradientLauncher(AttentionLauncher, Protocol):
    """A launcher that computes the gradients of attention, with the same bits for every schedule."""

    def attention_gradient_descriptor(self, form: AttentionForm) -> AttentionGradientDesc:
        """Return the descriptor of its gradients; it needs no device.

        Raises DescriptorError for a form whose gradients it has no kernels for.
        """

    def attend_gradients(
        self, desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors
    ) -> RepeatedAttention | None:
        """Compute the gradients of a call, whose operands hold its output and contiguous logarithms.

        It runs on the device's current stream.  Return a function that does it again, or None: its addresses are those
        of slope, query, key, value, out, logarithms, query_starts and key_starts, without those that the call has not,
        and of the gradients of query, key and value.  Raises DescriptorError for what it does not support.
        """
