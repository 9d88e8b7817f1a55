"""The launcher of attention on sm_90, with torch, Triton and a GPU of compute capability 9.0."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitwise_core.descriptors import AttentionDesc, AttentionGradientDesc, DescriptorError, Record
from bitwise_core.numerics import Bits
from bitwise_core.plugins.attention_calls import (
    AttentionForm,
    AttentionGradientTensors,
    AttentionOperands,
    RepeatedAttention,
)
from bitwise_nvidia_sm90 import requirements
from bitwise_nvidia_sm90.attention.tree import attention_descriptor, attention_gradient_descriptor, is_served

_TORCH_NAMES = {"fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


class AttentionKernels:
    """Runs an AttentionDesc of this package; see `bitwise_core.plugins.attention_calls.AttentionLauncher`."""

    name = "attention_sm_90"

    def missing(self) -> str | None:
        """See `bitwise_core.plugins.launchers.Launcher`."""
        return requirements.missing()

    def attention_descriptor(self, form: AttentionForm) -> AttentionDesc:
        """See `bitwise_core.plugins.attention_calls.AttentionLauncher`."""
        return attention_descriptor(form)

    def serves_attention(self, desc: AttentionDesc, device: Any) -> bool:
        """See `bitwise_core.plugins.attention_calls.AttentionLauncher`."""
        if device.type != "cuda" or not is_served(desc):
            return False
        import torch

        return bool(torch.cuda.get_device_capability(device) == (9, 0))

    def attend(self, desc: AttentionDesc, operands: AttentionOperands) -> RepeatedAttention | None:
        """See `bitwise_core.plugins.attention_calls.AttentionLauncher`."""
        _check(desc)
        from bitwise_nvidia_sm90.attention.launch import attend

        return attend(desc, operands)

    def attention_gradient_descriptor(self, form: AttentionForm) -> AttentionGradientDesc:
        """See `bitwise_core.plugins.attention_calls.AttentionGradientLauncher`."""
        return attention_gradient_descriptor(form)

    def attend_gradients(
        self, desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors
    ) -> RepeatedAttention | None:
        """See `bitwise_core.plugins.attention_calls.AttentionGradientLauncher`."""
        from bitwise_nvidia_sm90.attention.gradients import attend_gradients

        return attend_gradients(desc, operands, gradients)

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        """Return the bit patterns of the output of one head, for q (queries, depth), k and v.

        Raises DescriptorError for a descriptor that the kernels do not implement.
        """
        if not isinstance(desc, AttentionDesc) or len(operands) != 3:
            raise DescriptorError(f"{self.name} runs an AttentionDesc on q, k and v")
        _check(desc)
        import torch

        def tensor(patterns: Bits, name: str) -> Any:
            signed = np.ascontiguousarray(patterns).view(f"int{8 * patterns.itemsize}")
            return torch.from_numpy(signed).cuda().view(getattr(torch, _TORCH_NAMES[name]))[None, :, None]

        stored = desc.stored_dtype or desc.output_dtype
        query, key, value = map(tensor, operands, (desc.output_dtype, stored, stored))
        out = torch.empty((*query.shape[:3], value.shape[3]), dtype=query.dtype, device=query.device)
        self.attend(desc, AttentionOperands(query, key, value, out, int(query.shape[1]), int(key.shape[1])))
        return np.asarray(out[0, :, 0].view(torch.int16).cpu().numpy()).view(np.uint16)


_checked: dict[int, AttentionDesc] = {}
"""Descriptors that the kernels compute, by identity; the table keeps them."""


def _check(desc: AttentionDesc) -> None:
    if id(desc) in _checked:
        return
    if not is_served(desc):
        raise DescriptorError(
            "this descriptor of attention has no kernel on sm_90: give one that attention_descriptor returns, with its "
            f"masking, window, sink, scale or cap changed, not {desc.to_text()}"
        )
    _checked[id(desc)] = desc
