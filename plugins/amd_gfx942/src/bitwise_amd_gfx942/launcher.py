"""The launcher of gfx942: runs matrix products from their descriptors, with Triton, hip-python, ROCm and a GPU."""

from __future__ import annotations

import ctypes

import numpy as np

from bitwise_amd_gfx942.device import run_kernel
from bitwise_amd_gfx942.products.plan import compile_kernel, plan_product
from bitwise_amd_gfx942.requirements import missing
from bitwise_core.descriptors import DescriptorError, GEMMDesc, Record
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage

SCRATCH = 2
"""The number of scratch memory addresses that Triton appends to a kernel's parameters, null where unused."""

ELEMENTS = 1 << 31
"""The number of elements that the kernels' 32-bit offsets reach."""


class Products:
    """Runs a GEMMDesc on a gfx942; see `bitwise_core.plugins.launchers.Launcher`."""

    name = "products_gfx942"

    def missing(self) -> str | None:
        """The reason why the launcher cannot run, as a clause; None if it can."""
        return missing()

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        """Run a product; return its bit patterns.  Raises DescriptorError for unsupported descriptors, DeviceError."""
        if not isinstance(desc, GEMMDesc) or len(operands) != 2:
            raise DescriptorError(f"{self.name} runs a GEMMDesc on a and b")
        plan = plan_product(desc)
        kernel = compile_kernel(plan, desc)
        a, b = (np.ascontiguousarray(each) for each in operands)
        m, n = a.shape[0], b.shape[1]
        if max(a.size, b.size, m * n) >= ELEMENTS:
            raise DescriptorError(f"{self.name} multiplies matrices of less than {ELEMENTS} elements: use smaller ones")
        out = np.zeros((m, n), dtype=storage(FLOAT_FORMATS[desc.output_dtype].bits))
        numbers = [ctypes.c_int32(each) for each in plan.numbers(m, n, desc)]
        threads = kernel.metadata.num_warps * kernel.metadata.warp_size
        grid = -(-m // plan.block[0]), -(-n // plan.block[1]), 1
        arguments = [a, b, out, *numbers, *[None] * SCRATCH]
        shared = kernel.metadata.shared
        [found] = run_kernel(kernel.asm["hsaco"], kernel.metadata.name, grid, threads, shared, arguments, [out])
        return found
