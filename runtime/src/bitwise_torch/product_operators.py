"""PyTorch operators that represent products in traces and in autograd graphs.

The names of their arguments: `desc` is a descriptor's text or empty, `like` a library's name or empty, `dtype` the
output's format, `grad_like` the library whose bits the products of gradients have, or "torch", and `epilogue` a text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors.problem import DTYPES
from bitwise_torch import epilogues
from bitwise_torch.product_arguments import output_format
from bitwise_torch.product_runs import parse_descriptor, run_product

if TYPE_CHECKING:
    import torch


@cache
def torch_operator() -> Any:
    """Register the PyTorch operator that represents a product in traces and in autograd graphs, and return it.

    `bitwise::matmul(a, b, desc, like, dtype, grad_like)`; see the module.  Repeated calls return the same operator.
    """
    import torch

    def product(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str, grad_like: str) -> torch.Tensor:
        out = _empty_like_product(a, b, dtype)
        run_product(a, b, out, parse_descriptor(desc) if desc else None, like or None)
        return out

    def fake(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str, grad_like: str) -> torch.Tensor:
        return _empty_like_product(a, b, dtype)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.grad_like = inputs[5]

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        needed = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return *_product_gradients(a, b, gradient, ctx.grad_like, needed), None, None, None, None

    made = torch.library.custom_op(
        "bitwise::matmul", product, mutates_args=(),
        schema="(Tensor a, Tensor b, str desc, str like, str dtype, str grad_like) -> Tensor",
    )  # fmt: skip
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=setup)
    return made


def _empty_like_product(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
    import torch

    return a.new_empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[dtype]))


def _product_gradients(
    a: torch.Tensor, b: torch.Tensor, gradient: torch.Tensor, like: str, needed: tuple[bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of a and b that are needed, with the bits of a library, or of PyTorch's products."""
    import torch

    if 0 in gradient.stride():  # an expanded matrix, of which a library receives a dense copy
        gradient = gradient.contiguous()

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if like == "torch":
            return x @ y
        # The operator, since gradients may be traced.
        found: torch.Tensor = torch.ops.bitwise.matmul(x, y, "", like, output_format(x, None), like)
        return found

    left = product(gradient.to(b.dtype), b.t()).to(a.dtype) if needed[0] else None
    right = product(a.t(), gradient.to(a.dtype)).to(b.dtype) if needed[1] else None
    return left, right


@cache
def gradients_operator() -> Any:
    """Register the PyTorch operator that represents the gradients of an epilogue in traces, and return it.

    `bitwise::epilogue_gradients(product, operands, upstream, epilogue)` returns those of the product and of each
    operand.  As one operator it has the bytes of PyTorch's eager operators: a compiler would fuse them, and round less
    often.  Repeated calls return the same operator.
    """
    import torch

    def compute(
        product: torch.Tensor, operands: list[torch.Tensor], upstream: torch.Tensor, epilogue: str
    ) -> list[torch.Tensor]:
        inner, others = epilogues.gradients(epilogues.parse_epilogue(epilogue), product, operands, upstream)
        # The results of an operator are no views of its arguments, nor one tensor twice.
        return [each.contiguous().clone() for each in (inner, *others)]

    def fake(
        product: torch.Tensor, operands: list[torch.Tensor], upstream: torch.Tensor, epilogue: str
    ) -> list[torch.Tensor]:
        return [each.new_empty(each.shape) for each in (product, *operands)]

    made = torch.library.custom_op(
        "bitwise::epilogue_gradients", compute, mutates_args=(),
        schema="(Tensor product, Tensor[] operands, Tensor upstream, str epilogue) -> Tensor[]",
    )  # fmt: skip
    made.register_fake(fake)
    return made


@cache
def epilogue_operator(multiply: Callable[..., torch.Tensor]) -> Any:
    """Register the PyTorch operator that represents a product with an epilogue in traces, and return it.

    `bitwise::matmul_epilogue(a, b, operands, epilogue, desc, like, dtype, grad_like)`: `epilogue` is a text, the other
    arguments are those of `bitwise::matmul`.  `multiply` computes it, with the parameters of `products.matmul`.  Its
    gradients compute the product again.  Repeated calls return the same operator.
    """
    import torch

    def product(
        a: torch.Tensor, b: torch.Tensor, operands: list[torch.Tensor], epilogue: str, desc: str, like: str, dtype: str,
        grad_like: str,
    ) -> torch.Tensor:  # fmt: skip
        return multiply(
            a, b, desc=desc or None, like=like or None, out_dtype=getattr(torch, DTYPES[dtype]), epilogue=epilogue,
            operands=operands, grad_like=grad_like,
        )  # fmt: skip

    def fake(
        a: torch.Tensor, b: torch.Tensor, operands: list[torch.Tensor], epilogue: str, desc: str, like: str, dtype: str,
        grad_like: str,
    ) -> torch.Tensor:  # fmt: skip
        return _empty_like_product(a, b, epilogues.parse_epilogue(epilogue).output_dtype(dtype))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        a, b, operands, *ctx.texts = inputs
        ctx.save_for_backward(a, b, *operands)

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        a, b, *operands = ctx.saved_tensors
        epilogue, desc, like, dtype, grad_like = ctx.texts
        product = torch.ops.bitwise.matmul(a, b, desc, like, dtype, grad_like)
        inner, *others = torch.ops.bitwise.epilogue_gradients(product, operands, gradient, epilogue)
        needed = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return *_product_gradients(a, b, inner, grad_like, needed), others, None, None, None, None, None

    made = torch.library.custom_op(
        "bitwise::matmul_epilogue", product, mutates_args=(),
        schema="(Tensor a, Tensor b, Tensor[] operands, str epilogue, str desc, str like, str dtype, "
        "str grad_like) -> Tensor",
    )  # fmt: skip
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=setup)
    return made
