"""turbo-attn: keys and values as norms and few bits of rotated directions, pages of a cache, and products of rows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("tkv.codec")
    bare_package("tkv.kernels")
    bare_package("tkv.runtime")
    return import_module(f"tkv.{name}")


def packing(t: Tensors) -> None:
    """Call the packing of vectors by several widths, with corrected norms and scales of channels."""
    module = _module("codec.triton_kernels")
    for bits, width, dtype, corrected in ((2, 64, "bfloat16", False), (3, 128, "float32", True),
                                          (4, 128, "bfloat16", True)):  # fmt: skip
        levels = 1 << bits
        boundaries = t.uniform(levels - 1, low=-0.2, high=0.2).sort().values
        centroids = t.uniform(levels, low=-0.2, high=0.2).sort().values
        rotation = t.torch.linalg.qr(t.normal(width, width).cpu()).Q.contiguous().to(t.device)
        found = t.call(module.triton_compress, t.normal(3, 7, width, dtype=dtype), rotation, boundaries, bits, width,
                       centroids=centroids, norm_correct=corrected,
                       per_channel_scale_inv=t.uniform(width, low=0.5, high=2.0) if corrected else None)  # fmt: skip
        if found is not None:
            t.call(module.triton_decompress, *found, rotation.t().contiguous(), centroids, bits, width)
            t.call(module.triton_decompress_raw, *found, centroids, bits, width)


def pairs(t: Tensors) -> None:
    """Call the unpacking of keys and values of different widths together."""
    module = _module("codec.triton_kernels")
    packed = [t.integers(0, 256, 2, 9, 64 * bits // 8, dtype="uint8") for bits in (4, 2)]
    t.call(module.triton_decompress_raw_kv, packed[0], t.uniform(2, 9), t.uniform(16), packed[1], t.uniform(2, 9),
           t.uniform(4), 4, 2, 64)  # fmt: skip


def pages(t: Tensors) -> None:
    """Call the lists of pages of several sequences."""
    module = _module("kernels.page_metadata")
    lengths = t.of([17, 40, 1, 64], "int32")
    table = t.of([[3, 8, 0, 0], [1, 2, 9, 0], [7, 0, 0, 0], [4, 5, 6, 10]], "int32")
    t.call(module.compute_page_metadata_triton, lengths, table, 16, t.empty(5, dtype="int32"),
           t.empty(16, dtype="int32"), t.empty(4, dtype="int32"))  # fmt: skip


def rows(t: Tensors) -> None:
    """Call products that do not depend on the number of rows, and the scatter of keys and values to a cache."""
    module = _module("runtime._rows_matmul")
    t.call(module.rows_matmul, t.normal(9, 128, dtype="bfloat16"), t.normal(128, 128, dtype="bfloat16"))
    t.call(module.rows_matmul, t.normal(40, 128), t.normal(128, 128))
    module = _module("runtime.bypass_scatter")
    cache = t.empty(6, 2, 16, 2, 64, dtype="bfloat16")
    keys, values = (t.normal(11, 2, 64, dtype="bfloat16") for _ in range(2))
    slots = t.of([3, 90, 17, 18, 19, 40, 41, -1, 60, 61, 62], "int64")
    t.call(module.bypass_scatter, cache, keys, values, slots, 11, 2, 64)


CASES = {each.__name__: each for each in (packing, pairs, pages, rows)}
