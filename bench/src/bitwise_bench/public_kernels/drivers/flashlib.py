"""flashlib: clustering, neighbours, statistics, and products of split numbers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    return import_module(f"flashlib.{name}")


def clusters(t: Tensors) -> None:
    """Call the steps of k-means: the nearest centre of each point, by distance and by angle, and new centres."""
    assign, update = (_module(f"primitives.kmeans.triton.{name}") for name in ("assign", "update"))
    x, centres = t.normal(1, 300, 64, dtype="float16"), t.normal(1, 40, 64, dtype="float16")
    t.call(assign.euclid_assign_triton, x, centres)
    t.call(assign.euclid_assign_triton, t.normal(2, 200, 48), t.normal(2, 30, 48))
    t.call(assign.cosine_assign_triton, x, centres)
    places = t.integers(0, 40, 1, 300).sort().values.to(t.dtype("int32"))
    t.call(update.triton_centroid_update_sorted_euclid, x, places, centres)
    t.call(update.triton_centroid_finalize, t.normal(1, 40, 64), t.integers(0, 9, 1, 40, dtype="int32"), centres)


def neighbours(t: Tensors) -> None:
    """Call the search for the nearest points."""
    search = _module("primitives.knn.triton.dispatch").flash_knn_triton
    t.call(search, t.normal(1, 64, 32, dtype="float16"), t.normal(1, 256, 32, dtype="float16"), 8)
    t.call(search, t.normal(1, 50, 64), t.normal(1, 300, 64), 5)


def distances(t: Tensors) -> None:
    """Call the distances of all points, of listed points, and those of mutual reachability."""
    x = t.normal(150, 40)
    t.call(_module("kernels.distance.triton.pairwise").pairwise_l2sq, x)
    t.call(_module("kernels.distance.triton.affinity").triton_affinity_with_degree, x, 0.5)
    mutual = _module("kernels.distance.triton.mrd")
    t.call(mutual.triton_pairwise_mrd, x, t.uniform(150))
    t.call(mutual.triton_fused_mrd_edges, t.uniform(150, 6), t.integers(0, 150, 150, 6, dtype="int32"), t.uniform(150))
    t.call(_module("kernels.distance.triton.knn_gather_l2sq").triton_knn_gather_sqdist,
           t.normal(1, 60, 40, dtype="bfloat16"), t.normal(1, 90, 40, dtype="bfloat16"),
           t.integers(0, 90, 1, 60, 7, dtype="int32"))  # fmt: skip


def norms(t: Tensors) -> None:
    """Call the norms of rows of even and odd lengths."""
    module = _module("kernels.norm.triton.norm")
    t.call(module.flash_rmsnorm, t.normal(24, 515, dtype="bfloat16"), t.normal(515, dtype="bfloat16"))
    t.call(module.flash_layernorm, t.normal(24, 768), t.normal(768), t.normal(768))


def covariances(t: Tensors) -> None:
    """Call the products of a tall matrix with itself."""
    module = _module("linalg.gemm.triton.tall_skinny")
    x = t.normal(1000, 48)
    t.call(module.triton_cov_gemm, x)
    t.call(module.triton_gram_gemm, t.normal(90, 300))
    t.call(module.triton_ab_gemm, x, t.normal(1000, 32))
    t.call(module.triton_streaming_matmul, x, t.normal(48, 16))
    t.call(_module("primitives.pca.triton.fused_kernels").triton_cov_gemm_fused, x, 0.001)


def split_products(t: Tensors) -> None:
    """Call products of numbers that are split into several of fewer bits."""
    module = _module("linalg.gemm.triton.fused_kernels")
    a, b = t.normal(96, 128), t.normal(128, 64)
    for mode in ("3xbf16", "bf16"):
        t.call(module.fused_ozaki_matmul, a, b, mode=mode)
    t.call(module.fused_tf32_matmul, a, b)
    t.call(module.kenney_laub_step, t.normal(64, 64))
    t.call(module.fused_sym, t.normal(100, 100))
    t.call(_module("linalg.gemm.triton.fp16x3_kahan").matmul_fp16x3_kahan, a, t.normal(64, 128))
    t.call(_module("linalg.gemm.triton.triton_mm").bf16_mm_fp32, a.bfloat16(), b.bfloat16())


def splits(t: Tensors) -> None:
    """Call the splits of numbers into parts, and the sums of parts."""
    x, double = t.normal(50, 70), t.normal(40, 96).double()
    t.call(_module("linalg.gemm.triton.split").split_fp32_bf16_pair, x)
    t.call(_module("linalg.gemm.triton.split").split_fp64_tf32_pair, double)
    t.call(_module("linalg.gemm.triton.split_fp16").split_fp32_fp16_pair, x)
    t.call(_module("linalg.gemm.triton.ozaki1_dispatch").split_fp64_to_int8, double, 4)
    t.call(_module("linalg.gemm.triton.ozaki2_split").split_fp_to_int8_moduli, x, 6, 24)
    t.call(_module("linalg.gemm.triton.sum3").fused_sum3, *(t.normal(50, 70) for _ in range(4)))


def counts(t: Tensors) -> None:
    """Call the counts of features by class, and the loss of a regression with its residuals."""
    module = _module("primitives.multinomial_nb.triton.nb_core")
    t.call(module.nb_count_features, t.uniform(200, 60, high=5.0), t.integers(0, 5, 200), 5)
    loss = _module("primitives.logistic_regression.triton.logistic_regression")
    t.call(loss._fused_logits_to_loss_resid, t.normal(300), t.integers(0, 2, 300).float())


def eigenvalues(t: Tensors) -> None:
    """Call Jacobi's iteration for the eigenvalues of a symmetric matrix."""
    x = t.normal(16, 16)
    t.call(_module("linalg.eigh.triton.jacobi").triton_jacobi_eigh, x + x.t(), 2)


CASES = {
    each.__name__: each
    for each in (clusters, neighbours, distances, norms, covariances, split_products, splits, counts, eigenvalues)
}
