"""Evaluation of descriptors on a CPU: the bits that they determine, and the tree of one output element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_core.descriptors.evaluation.any_descriptor import evaluate
    from bitwise_core.descriptors.evaluation.attention import (
        AttentionResult,
        attention_result,
        attention_tree,
        evaluate_attention,
    )
    from bitwise_core.descriptors.evaluation.attention_gradients import AttentionGradients, evaluate_attention_gradients
    from bitwise_core.descriptors.evaluation.epilogues import Formulas, epilogue_tree, evaluate_epilogue
    from bitwise_core.descriptors.evaluation.expressions import gemm_tree, reduction_tree
    from bitwise_core.descriptors.evaluation.finishes import evaluate_finished
    from bitwise_core.descriptors.evaluation.gemm import evaluate_gemm
    from bitwise_core.descriptors.evaluation.matrix_units import unit_of
    from bitwise_core.descriptors.evaluation.reductions import evaluate_reduction

__all__ = [
    "AttentionGradients",
    "AttentionResult",
    "Formulas",
    "attention_result",
    "attention_tree",
    "epilogue_tree",
    "evaluate",
    "evaluate_attention",
    "evaluate_attention_gradients",
    "evaluate_epilogue",
    "evaluate_finished",
    "evaluate_gemm",
    "evaluate_reduction",
    "gemm_tree",
    "reduction_tree",
    "unit_of",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "any_descriptor": ("evaluate",),
            "attention": ("AttentionResult", "attention_result", "attention_tree", "evaluate_attention"),
            "attention_gradients": ("AttentionGradients", "evaluate_attention_gradients"),
            "epilogues": ("Formulas", "epilogue_tree", "evaluate_epilogue"),
            "expressions": ("gemm_tree", "reduction_tree"),
            "finishes": ("evaluate_finished",),
            "gemm": ("evaluate_gemm",),
            "matrix_units": ("unit_of",),
            "reductions": ("evaluate_reduction",),
        },
    )
