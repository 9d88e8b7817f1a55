"""The operation of PyTorch that stands for a product in traces and in graphs of gradients."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@cache
def operation() -> Any:
    """`bitwise::matmul(a, b, desc, like, dtype)`, registered once: `desc` is a descriptor's text, or `like` a name."""
    import torch

    from bitwise_core.problems import DTYPES
    from bitwise_torch import products as tensors

    def empty(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
        return a.new_empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[dtype]))

    def product(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str) -> torch.Tensor:
        out = empty(a, b, dtype)
        tensors.run(a, b, out, tensors.read(desc) if desc else None, like or None)
        return out

    def fake(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str) -> torch.Tensor:
        return empty(a, b, dtype)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        left = (gradient.to(b.dtype) @ b.t()).to(a.dtype) if ctx.needs_input_grad[0] else None
        right = (a.t() @ gradient.to(a.dtype)).to(b.dtype) if ctx.needs_input_grad[1] else None
        return left, right, None, None, None

    made = torch.library.custom_op(
        "bitwise::matmul", product, mutates_args=(),
        schema="(Tensor a, Tensor b, str desc, str like, str dtype) -> Tensor",
    )  # fmt: skip
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=setup)
    return made


def ready() -> bool:
    """Registers the operation; a trace takes the answer as it is and looks no further."""
    operation()
    return True


def output_of(text: str) -> str:
    """The type of the output of a descriptor's text; a constant to a trace."""
    from bitwise_torch import products as tensors

    return tensors.read(text).output_dtype


# What torch.compiler.assume_constant_result sets; PyTorch is not loaded here.
ready._dynamo_marked_constant = True  # type: ignore[attr-defined]
output_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
