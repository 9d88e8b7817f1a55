"""Descriptors: records of everything that determines a computation's bits.  Equal descriptors mean equal bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_core.descriptors.attention import AttentionDesc
    from bitwise_core.descriptors.attention_gradient import AttentionGradientDesc
    from bitwise_core.descriptors.cuts import Cut, Group
    from bitwise_core.descriptors.epilogue import Epilogue, Step
    from bitwise_core.descriptors.families import (
        contiguous_slice_gemv,
        lane_tree_gemv,
        per_mma,
        single_pass,
        split_k,
        split_k_per_mma,
        strided_blocks,
        strided_lanes,
        three_level_chain,
        workspace_gemv,
    )
    from bitwise_core.descriptors.gemm import GEMMDesc, Instruction, Rotation, Share, Tail
    from bitwise_core.descriptors.record import DescriptorError, Record
    from bitwise_core.descriptors.reduction import Digit, Fold, ReductionDesc, index_bits
    from bitwise_core.descriptors.text import Descriptor, read, write

__all__ = [
    "AttentionDesc",
    "AttentionGradientDesc",
    "Cut",
    "Descriptor",
    "DescriptorError",
    "Digit",
    "Epilogue",
    "Fold",
    "GEMMDesc",
    "Group",
    "Instruction",
    "Record",
    "ReductionDesc",
    "Rotation",
    "Share",
    "Step",
    "Tail",
    "contiguous_slice_gemv",
    "index_bits",
    "lane_tree_gemv",
    "per_mma",
    "read",
    "single_pass",
    "split_k",
    "split_k_per_mma",
    "strided_blocks",
    "strided_lanes",
    "three_level_chain",
    "workspace_gemv",
    "write",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "attention": ("AttentionDesc",),
            "attention_gradient": ("AttentionGradientDesc",),
            "cuts": ("Cut", "Group"),
            "epilogue": ("Epilogue", "Step"),
            "families": (
                "contiguous_slice_gemv",
                "lane_tree_gemv",
                "per_mma",
                "single_pass",
                "split_k",
                "split_k_per_mma",
                "strided_blocks",
                "strided_lanes",
                "three_level_chain",
                "workspace_gemv",
            ),
            "gemm": ("GEMMDesc", "Instruction", "Rotation", "Share", "Tail"),
            "record": ("DescriptorError", "Record"),
            "reduction": ("Digit", "Fold", "ReductionDesc", "index_bits"),
            "text": ("Descriptor", "read", "write"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
