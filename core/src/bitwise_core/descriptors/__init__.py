"""Descriptors: records that hold all that decides a computation's bits.  Equal descriptors owe equal bits."""

from __future__ import annotations

from bitwise_core.descriptors.attention import AttentionDesc
from bitwise_core.descriptors.cuts import Cut, Group
from bitwise_core.descriptors.families import (
    contiguous_slice_gemv,
    dealt_blocks,
    dealt_lanes,
    lane_tree_gemv,
    per_mma,
    single_pass,
    split_k,
    split_k_per_mma,
    three_level_chain,
    workspace_gemv,
)
from bitwise_core.descriptors.gemm import GEMMDesc, Instruction, Rotation
from bitwise_core.descriptors.record import DescriptorError, Record
from bitwise_core.descriptors.reduction import Digit, Fold, ReductionDesc, index_bits
from bitwise_core.descriptors.text import Descriptor, read, write

__all__ = [
    "AttentionDesc",
    "Cut",
    "Descriptor",
    "DescriptorError",
    "Digit",
    "Fold",
    "GEMMDesc",
    "Group",
    "Instruction",
    "Record",
    "ReductionDesc",
    "Rotation",
    "contiguous_slice_gemv",
    "dealt_blocks",
    "dealt_lanes",
    "index_bits",
    "lane_tree_gemv",
    "per_mma",
    "read",
    "single_pass",
    "split_k",
    "split_k_per_mma",
    "three_level_chain",
    "workspace_gemv",
    "write",
]
