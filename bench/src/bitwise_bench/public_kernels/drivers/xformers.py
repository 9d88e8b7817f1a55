"""xFormers: norms, indexed additions, rotary embeddings, products in tiles, and attention split over the keys."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("xformers.ops._triton")
    stub("xformers.triton.importing", libdevice_find=_libdevice)
    return import_module(f"xformers.ops._triton.{name}")


def _libdevice(name: str) -> Any:
    from triton.language.extra import libdevice

    return getattr(libdevice, name)


def norms(t: Tensors) -> None:
    """Call the norms of rows."""
    module, x, y, w = _module("rmsnorm_kernels"), *(t.normal(*shape) for shape in ((24, 512), (24, 512), (512,)))
    module._rms_norm_forward(x, w, 1e-6)
    module._rms_norm_forward(x.half(), w.half(), 1e-6)
    module._rms_norm_add_forward(x, y, w, 1e-6)


def indexed(t: Tensors) -> None:
    """Call the selection of rows, and the addition of scaled rows."""
    module = _module("k_scaled_index_add")
    x, source, scale = t.normal(16, 10, 128, dtype="float16"), t.normal(6, 10, 128, dtype="float16"), t.normal(128)
    index = t.of([3, 9, 0, 14, 7, 11], "int64")
    module.scaled_index_add_fwd(x, index, source, scale.half(), 0.5)
    module.scaled_index_add_bwd(t.normal(16, 10, 128, dtype="float16"), x, source, scale.half(), index, 0.5)


def tiled_products(t: Tensors) -> None:
    """Call products of matrices that lie in tiles."""
    module = _module("tiled_matmul_kernels")
    a = [[t.normal(64, 48, dtype="bfloat16") for _ in range(2)]]
    b = [[t.normal(48, 64, dtype="bfloat16")], [t.normal(48, 64, dtype="bfloat16")]]
    module._launch_triton_matmul(a, b, [[t.empty(64, 64, dtype="bfloat16")]], [64], [64], [48, 48])


CASES = {each.__name__: each for each in (norms, indexed, tiled_products)}
