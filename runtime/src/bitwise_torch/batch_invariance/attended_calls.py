"""Calls of scaled_dot_product_attention in pinned orders, for scopes that receive them above autograd."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from bitwise_torch.batch_invariance.attention import (
    ATTENTION,
    attention,
    launch_of_attention,
    recorded_attention,
    wider_call,
)
from bitwise_torch.batch_invariance.mask_runs import Masks
from bitwise_torch.interception import Operators
from bitwise_torch.ready_launches import ReadyLaunches

ATTENDING = Operators(
    "bitwise_torch.attention",
    lambda: tuple((key, ATTENTION) for key in ("AutogradCPU", "AutogradCUDA", "CPU", "CUDA")),
)
"""Attention, above autograd: it consists of other operators, which have gradients.

Autograd's kernels come first: once another one is replaced, PyTorch's kernel for them is a fallback, which warns that
gradients may be wrong.
"""


@dataclass
class AttendedCalls:
    """Computes calls of attention.  `ready` keeps their launches, `masks` what was read of masks.

    `note_mask` is that of `attention.attention`.
    """

    ready: ReadyLaunches
    masks: Masks
    note_mask: Callable[[], None]

    def computed(self, *operands: Any, **options: Any) -> Any:
        """Return attention; the arguments are those of `attention.attention`.  Raises NotServed."""
        wide = wider_call(operands, options)
        if wide is None:
            return self._computed(operands, options)
        return _narrowed(self._computed(*wide), operands[2])

    def run(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return attention; a repeated call is one look-up, also under a mask that another layer had.

        Raises NotServed.
        """
        wide = wider_call(arguments, options) if len(arguments) > 2 else None
        if wide is None:
            return self._run(arguments, options)
        return _narrowed(self._run(*wide), arguments[2])

    def _computed(self, operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return attention(*operands, **options, masks=self.masks, note_mask=self.note_mask)

    def _run(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        operands, rest = arguments[:3], (*arguments[4:], *options.items())
        mask = arguments[3] if len(arguments) > 3 else None
        repeated = len(operands) == 3 and not _is_recorded(*operands)
        if mask is not None and repeated:
            operands = self._with_mask(operands, mask, len(arguments) > 5 and arguments[5])
            repeated = len(operands) > 3
        key: Hashable = None
        if repeated:
            found, key = self.ready.run(ATTENTION, operands, rest)
            if found is not None:
                return found
        elif mask is None and len(operands) == 3:
            found = recorded_attention(*arguments, **options)
            if found is not None:
                return found
        found = self._computed(arguments, options)
        launch = None if key is None else launch_of_attention(operands, *arguments[3:], **options)
        if launch is not None:
            self.ready.keep(key, operands, found, launch)
        return found

    def _with_mask(self, operands: tuple[Any, ...], mask: Any, causal: bool) -> tuple[Any, ...]:
        """Return operands with those of a mask of booleans that was read before and has no runs, else without."""
        read = self.masks.known(mask, operands[0], operands[1], causal) if operands[0].dim() == 4 else None
        if read is None or read.runs != () or read.added is not None:
            return operands
        return *operands, read.allowed, read.first_keys


def _narrowed(found: Any, value: Any) -> Any:
    """Return the components of an output that those of its values have."""
    return found[..., : value.shape[-1]].contiguous()


def _is_recorded(query: Any, key: Any, value: Any) -> bool:
    """Return whether a call may be recorded for gradients, or an operand is a lazily negated view."""
    import torch

    recorded = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    return bool(recorded or query.is_neg() or key.is_neg() or value.is_neg())
