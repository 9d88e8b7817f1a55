"""flash-kmeans: the nearest centres of points, and new centres from their points."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def euclidean(t: Tensors) -> None:
    """Call the assignment by distance and the new centres, with and without sorting."""
    assign = import_module("flash_kmeans.assign_euclid_triton")
    update = import_module("flash_kmeans.centroid_update_triton")
    for points, centres, width, dtype in ((300, 24, 48, "float32"), (256, 40, 64, "float16")):
        x, old = t.normal(2, points, width, dtype=dtype), t.normal(2, centres, width, dtype=dtype)
        t.call(assign.euclid_assign_triton, x, old, (x.float() ** 2).sum(-1), use_heuristic=False)
        clusters = t.integers(0, centres, 2, points)
        t.call(update.triton_centroid_update_euclid, x, clusters, old)
        t.call(update.triton_centroid_update_sorted_euclid, x, clusters, old)


def cosine(t: Tensors) -> None:
    """Call the assignment by angle and the new centres."""
    assign = import_module("flash_kmeans.assign_euclid_triton")
    update = import_module("flash_kmeans.centroid_update_triton")
    x, old = t.normal(2, 200, 32), t.normal(2, 20, 32)
    x, old = x / x.norm(dim=-1, keepdim=True), old / old.norm(dim=-1, keepdim=True)
    t.call(assign.cosine_assign_triton, x, old)
    clusters = t.integers(0, 20, 2, 200)
    t.call(update.triton_centroid_update_cosine, x, clusters, old)
    t.call(update.triton_centroid_update_sorted_cosine, x, clusters, old)


CASES = {each.__name__: each for each in (euclidean, cosine)}
