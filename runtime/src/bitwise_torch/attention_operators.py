"""Attention as PyTorch records it: a function of autograd, and operators of traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from bitwise_core.plugins.attention_calls import AttentionForm
from bitwise_torch.attention_execution import AttentionCall, form_of, gradients_of, run, run_again

if TYPE_CHECKING:
    import torch


@cache
def recorded_call() -> Callable[..., Any]:
    """Return the function of autograd that computes a call outside of traces.

    The operator of traces computes the same, and its dispatch takes several times as long as the launch.
    """
    import torch

    def forward(ctx: Any, query: Any, key: Any, value: Any, call: AttentionCall, form: AttentionForm) -> Any:
        out, found = run_again(call, form)
        ctx.save_for_backward(query, key, value, out, found, call.query_starts, call.key_starts)
        ctx.numbers = call.longest_queries, call.longest_keys, call.first_position
        ctx.form = replace(form, sink=False)
        ctx.mark_non_differentiable(found)
        return out, found

    def backward(ctx: Any, slope: Any, _: Any) -> Any:
        query, key, value, out, found, query_starts, key_starts = ctx.saved_tensors
        queries, keys, first_position = ctx.numbers
        gradients = gradients_of(
            slope, query, key, value, out, found, query_starts, key_starts, queries, keys, first_position, ctx.form
        )
        return *gradients, None, None

    once = torch.autograd.function.once_differentiable
    members = {"forward": staticmethod(forward), "backward": staticmethod(once(backward))}
    made: Any = type("Attention", (torch.autograd.Function,), members)
    apply: Callable[..., Any] = made.apply
    return apply


def traced_call(call: AttentionCall, form: AttentionForm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a call as one operator in a trace."""
    import torch

    _register_operator()
    out, found = torch.ops.bitwise.attention(
        call.query, call.key, call.value, call.query_starts, call.key_starts, call.key_lengths, call.page_table,
        call.sinks, call.visible, call.first_keys, call.longest_queries, call.longest_keys, call.first_position,
        form.scale, form.causal, form.window, form.soft_cap, form.output_scale,
    )  # fmt: skip
    return out, found


@cache
def attention_operator() -> Any:
    """Register the PyTorch operator that represents a call in traces, and return it.

    `bitwise::attention` takes the tensors of a call, its lengths, and the numbers of its form; it returns the output
    and the logarithms.  Repeated calls return the same operator.
    """
    import torch

    def compute(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, query_starts: torch.Tensor | None,
        key_starts: torch.Tensor | None, key_lengths: torch.Tensor | None, page_table: torch.Tensor | None,
        sinks: torch.Tensor | None, visible: torch.Tensor | None, first_keys: torch.Tensor | None,
        longest_queries: int | None, longest_keys: int | None, first_position: int | None, scale: float, causal: bool,
        window: int | None, soft_cap: float | None, output_scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        call = AttentionCall(
            query, key, value, query_starts, key_starts, key_lengths, page_table, sinks, visible, first_keys,
            longest_queries, longest_keys, first_position,
        )  # fmt: skip
        form = form_of(
            query, value, causal, scale, window, soft_cap, sinks is not None, value_scale=output_scale
        )  # fmt: skip
        return run(call, form)[:2]

    def fake(*operands: Any) -> tuple[torch.Tensor, torch.Tensor]:
        query, _, value = operands[:3]
        return (
            query.new_empty((*query.shape[:-1], value.shape[-1])),
            query.new_empty(query.shape[:-1], dtype=torch.float32),
        )

    made = torch.library.custom_op(
        "bitwise::attention", compute, mutates_args=(),
        schema="(Tensor query, Tensor key, Tensor value, Tensor? query_starts, Tensor? key_starts, Tensor? "
        "key_lengths, Tensor? page_table, Tensor? sinks, Tensor? visible, Tensor? first_keys, int? longest_queries, "
        "int? longest_keys, int? first_position, float scale, bool causal, int? window, float? soft_cap, "
        "float output_scale) -> (Tensor, Tensor)",
    )  # fmt: skip
    made.register_fake(fake)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
        ctx.save_for_backward(*inputs[:3], *output, *inputs[3:5])
        ctx.numbers = inputs[10:16]
        ctx.mark_non_differentiable(output[1])

    def backward(ctx: Any, slope: torch.Tensor, _: Any) -> tuple[Any, ...]:
        query, key, value, out, found, query_starts, key_starts = ctx.saved_tensors
        gradients = torch.ops.bitwise.attention_gradients(
            slope, query, key, value, out, found, query_starts, key_starts, *ctx.numbers
        )
        return *gradients, *[None] * 15

    made.register_autograd(backward, setup_context=setup)
    return made


@cache
def gradients_operator() -> Any:
    """Register the PyTorch operator that represents the gradients of a call, and return it.

    `bitwise::attention_gradients` takes the gradient of the output, the tensors of the call and its results, and
    returns the gradients of query, key and value.  Repeated calls return the same operator.
    """
    import torch

    def compute(
        slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
        logarithms: torch.Tensor, query_starts: torch.Tensor | None, key_starts: torch.Tensor | None,
        longest_queries: int | None, longest_keys: int | None, first_position: int | None, scale: float, causal: bool,
        window: int | None,
    ) -> list[torch.Tensor]:  # fmt: skip
        form = form_of(query, value, causal, scale, window, None, False)
        return gradients_of(
            slope, query, key, value, out, logarithms, query_starts, key_starts, longest_queries, longest_keys,
            first_position, form,
        )  # fmt: skip

    def fake(slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> Any:
        return [each.new_empty(each.shape) for each in (query, key, value)]

    made = torch.library.custom_op(
        "bitwise::attention_gradients", compute, mutates_args=(),
        schema="(Tensor slope, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logarithms, "
        "Tensor? query_starts, Tensor? key_starts, int? longest_queries, int? longest_keys, int? first_position, "
        "float scale, bool causal, int? window) -> Tensor[]",
    )  # fmt: skip
    made.register_fake(fake)
    return made


def _register_operator() -> bool:
    """Register the operators; torch.compile treats the result as a constant."""
    attention_operator()
    gradients_operator()
    return True


# The attribute that torch.compiler.assume_constant_result sets; PyTorch must not be imported here.
_register_operator._dynamo_marked_constant = True  # type: ignore[attr-defined]
