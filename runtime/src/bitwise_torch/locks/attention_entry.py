"""Attention that a lock pins: what decides its bits, for each type and width of heads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt, StringConstraints, model_validator

from bitwise_core.descriptors import AttentionDesc, AttentionGradientDesc
from bitwise_core.validated_records import ValidatedRecord
from bitwise_torch.locks.lock_error import LockError

MAXIMUM_FORMS = 1 << 10
"""The maximum number of types and widths of heads in a lock."""

MAXIMUM_WIDTH = 1 << 16
"""The maximum number of components of a head."""

Width = Annotated[StrictInt, Field(ge=0, le=MAXIMUM_WIDTH)]
Text = Annotated[str, StringConstraints(max_length=1 << 12)]


class PinnedAttention(ValidatedRecord):
    """The order of attention for heads whose keys have `depth` components, and whose values have `width` ones.

    `descriptor` is the text of the causal form with a scale of 1, `gradient` that of its gradients.  Each is None for
    the plain form, which consists of products, which a lock holds like all others, and of a softmax of PyTorch.
    `order` is the version of the orders under masks and of the plain form.
    """

    fault = LockError

    dtype: Literal["fp32", "fp16", "bf16"]
    depth: Width
    width: Width
    order: Annotated[StrictInt, Field(ge=1, le=1 << 16)]
    descriptor: Text | None = None
    gradient: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> PinnedAttention:
        if self.descriptor is not None:
            AttentionDesc.from_text(self.descriptor)
        if self.gradient is not None:
            if self.descriptor is None:
                raise ValueError("attention with a descriptor of gradients needs one of outputs: give `descriptor`")
            AttentionGradientDesc.from_text(self.gradient)
        return self

    @property
    def heads(self) -> tuple[str, int, int]:
        """The type and the widths of heads."""
        return self.dtype, self.depth, self.width

    @property
    def words(self) -> str:
        """The type and the widths of heads, for sentences."""
        return f"attention of {self.dtype} with heads of {self.depth} and {self.width} components"

    @property
    def text(self) -> str:
        """What decides the bits, on one line."""
        parts = (self.descriptor or "the plain form", f"gradients: {self.gradient or 'the plain form'}")
        return f"{'; '.join(parts)}; order {self.order}"
