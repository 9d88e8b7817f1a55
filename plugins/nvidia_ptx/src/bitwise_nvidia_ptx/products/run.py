"""Products on a GPU, from a descriptor alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_ptx.products.launch import Map, calls
from bitwise_nvidia_ptx.products.plan import Plan, Refused, plan
from bitwise_nvidia_ptx.products.schedule import Schedule, default

if TYPE_CHECKING:
    import torch

_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@lru_cache(maxsize=65536)
def planned(desc: GEMMDesc) -> Plan:
    """The plan of a descriptor, kept.  Raises Refused."""
    return plan(desc)


def _with_maps(arguments: Mapping[str, Any]) -> dict[str, Any]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    found = dict(arguments)
    for name, each in arguments.items():
        if isinstance(each, Map):
            if each.matrix.data_ptr() % 16:
                raise Refused(f"{name} does not begin at a multiple of 16 bytes: tensor maps need that")
            found[name] = TensorDescriptor(each.matrix, list(each.shape), list(each.strides), list(each.block))
    return found


def run(
    desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chosen: Schedule | None = None
) -> torch.Tensor:
    """out = a b in the bits of the descriptor, on the current stream, and out.

    The matrices have two axes, any strides, and the descriptor's types and k.  Raises Refused.
    """
    import torch

    made = planned(desc)
    chosen = chosen or default(made, *out.shape)

    def workspace(shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=getattr(torch, _NAMES[dtype]), device=out.device)

    for each in calls(made, chosen, a, b, out, workspace):
        arguments = _with_maps(each.arguments) if chosen.programs else each.arguments
        each.kernel[each.grid](**arguments, **each.constants, **each.options)
    return out
