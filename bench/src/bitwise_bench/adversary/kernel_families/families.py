"""The families of kernels whose threads work together, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary import contraction_kernels
from bitwise_bench.adversary.block_programs import Family
from bitwise_bench.adversary.kernel_families import (
    argument_kernels,
    argument_loops,
    block_kernels,
    branch_kernels,
    bulk_kernels,
    cluster_kernels,
    colliding_kernels,
    conditional_store_kernels,
    fragment_kernels,
    grid_kernels,
    jump_kernels,
    local_kernels,
    narrow_kernels,
    role_kernels,
    tensor_copy_kernels,
    tensor_memory_kernels,
    update_kernels,
    warp_kernels,
    wave_kernels,
    way_kernels,
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **argument_kernels.FAMILIES,
        **argument_loops.FAMILIES,
        **block_kernels.FAMILIES,
        **branch_kernels.FAMILIES,
        **bulk_kernels.FAMILIES,
        **cluster_kernels.FAMILIES,
        **colliding_kernels.FAMILIES,
        **conditional_store_kernels.FAMILIES,
        **contraction_kernels.FAMILIES,
        **fragment_kernels.FAMILIES,
        **grid_kernels.FAMILIES,
        **jump_kernels.FAMILIES,
        **local_kernels.FAMILIES,
        **narrow_kernels.FAMILIES,
        **role_kernels.FAMILIES,
        **tensor_copy_kernels.FAMILIES,
        **update_kernels.FAMILIES,
        **warp_kernels.FAMILIES,
        **tensor_memory_kernels.FAMILIES,
        **wave_kernels.FAMILIES,
        **way_kernels.FAMILIES,
    }
)
"""Every family."""
