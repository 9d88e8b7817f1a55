"""flashdrr: sums along rays through a volume."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def rays(t: Tensors) -> None:
    """Call the sum along rays, forward and backward."""
    bare_package("flashdrr.rendering")
    module = import_module("flashdrr.rendering.triton_raycast")
    density = t.uniform(1, 1, 12, 14, 10, grad=True)
    directions, origin = t.normal(1, 9, 11, 3), t.uniform(1, 3, low=2.0, high=8.0)
    depths, scale = t.uniform(1, 16, high=4.0), t.uniform(1)
    shape = t.of([12.0, 14.0, 10.0], "float32")
    t.backward(t.call(module._FusedVolumeRenderFunction.apply, density, directions, origin, depths, scale, shape))


CASES = {each.__name__: each for each in (rays,)}
