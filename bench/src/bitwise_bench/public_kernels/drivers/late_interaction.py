"""late-interaction-kernels: sums of the largest similarities of the words of a query, forward and backward."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def scores(t: Tensors) -> None:
    """Call the scores of all pairs of queries and documents."""
    module = import_module("late_interaction_kernels.autograd")
    for backward, width, dtype in (("unified", 64, "float32"), ("lowmem", 128, "float16")):
        query, documents = (
            t.normal(3, 12, width, dtype=dtype, grad=True),
            t.normal(5, 40, width, dtype=dtype, grad=True),
        )
        found = t.call(module.maxsim, query, documents, backward=backward)
        if found is not None:
            t.call(t.backward, found)
    found = t.call(module.maxsim_pairs, t.normal(4, 10, 64, grad=True), t.normal(4, 36, 64, grad=True), normalize=True)
    if found is not None:
        t.call(t.backward, found)


def packed(t: Tensors) -> None:
    """Call the scores of packed sequences, and of chosen pairs."""
    variable, pairs = (import_module(f"late_interaction_kernels.{name}") for name in ("varlen", "score_pairs"))
    query, documents = t.normal(30, 64, grad=True), t.normal(120, 64, grad=True)
    queries, ends = t.of([0, 8, 19, 30], "int32"), t.of([0, 33, 70, 120], "int32")
    found = t.call(variable.maxsim_varlen, query, documents, queries, ends)
    if found is not None:
        t.call(t.backward, found)
    chosen = (t.of([0, 2, 1, 2], "int32"), t.of([1, 0, 2, 2], "int32"))
    found = t.call(pairs.score_pairs_packed, query, documents, queries, ends, *chosen)
    if found is not None:
        t.call(t.backward, found)


def hidden(t: Tensors) -> None:
    """Call the scores from hidden states, and of numbers of 8 bits."""
    fused, small = (import_module(f"late_interaction_kernels.{name}") for name in ("fused_head", "fp8"))
    t.call(fused.maxsim_from_hidden, t.normal(2, 12, 64, dtype="bfloat16"), t.normal(3, 40, 96, dtype="bfloat16"),
           t.normal(64, 96, dtype="bfloat16"))  # fmt: skip
    quantised = [small.quantize_fp8_per_token(t.normal(2, 16, 64)), small.quantize_fp8_per_token(t.normal(3, 48, 64))]
    t.call(small.maxsim_inference_fp8, quantised[0][0], quantised[1][0], scale_Q=quantised[0][1],
           scale_D=quantised[1][1])  # fmt: skip


def codes(t: Tensors) -> None:
    """Call the approximate scores from codes, and from codes with residuals."""
    module = import_module("late_interaction_kernels.plaid")
    lengths = t.of([20, 33, 40], "int32")
    t.call(module.plaid_approx_score, t.normal(10, 32), t.integers(0, 32, 3, 40, dtype="int32"), lengths)
    for bits in (2, 4):
        residuals = t.integers(0, 256, 3, 40, 64 * bits // 8, dtype="uint8")
        t.call(module.maxsim_residual, t.normal(2, 10, 64, dtype="float16"), t.integers(0, 32, 3, 40, dtype="int32"),
               residuals, lengths, t.normal(32, 64, dtype="float16"), t.normal(1 << bits, dtype="float16"),
               bits)  # fmt: skip


CASES = {each.__name__: each for each in (scores, packed, hidden, codes)}
