"""flash-sd-kde: sums of Gaussian functions, their derivatives, and scores of samples."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("kernels.flash_sd_kde")
    return import_module(f"kernels.{name}")


def densities(t: Tensors) -> None:
    """Call sums at given points in one and in sixteen dimensions."""
    module = _module("flash_sd_kde.kde")
    device = t.torch.device(t.device)
    data, queries = t.normal(300), t.normal(70)
    t.call(module.gaussian_kde_triton, data, queries, 0.3, device=device, synchronize=False)
    t.call(module.gaussian_kde_score_triton, data, queries, 0.3, device=device, synchronize=False)
    t.call(module.gaussian_kde_triton_nd, t.normal(200, 16), t.normal(70, 16), 0.9, device=device, synchronize=False)


def scores(t: Tensors) -> None:
    """Call the shift of samples along the score of their density."""
    module = _module("flash_sd_kde.empirical")
    device = t.torch.device(t.device)
    t.call(module.emp_score_16d_flash_sd_kde, t.normal(150, 16), 0.8, device=device, block_n=128, synchronize=False)
    t.call(module.empirical_sd_kde_triton_nd, t.normal(130, 16), 0.8, device=device, block_n=128, return_tensor=True,
           synchronize=False)  # fmt: skip
    t.call(module.empirical_sd_kde_triton, t.normal(200), device=device, return_tensor=True, synchronize=False)


def parts(t: Tensors) -> None:
    """Call sums in parts that a second kernel adds, and by atomic operations, in one dimension."""
    module = _module("kde_eval_1d_splitk")
    device = t.torch.device(t.device)
    for corrected in (False, True):
        t.call(module.kde_eval_1d_splitk, t.normal(700), t.normal(90), 0.3, device=device, autotune=False,
               apply_laplacian_correction=corrected)  # fmt: skip
    t.call(module.kde_eval_1d_atomic, t.normal(300), t.normal(90), 0.3, device=device)


def parts_of_products(t: Tensors) -> None:
    """Call sums in parts in sixteen dimensions, and the scores of samples in parts."""
    module = _module("kde_eval_16d_stream_splitk")
    device = t.torch.device(t.device)
    for mode in ("fp32_ieee", "fast_tf32"):
        t.call(module.kde_eval_16d_splitk, t.normal(300, 16), t.normal(70, 16), 0.9, device=device,
               precision_mode=mode, use_precomputed_norms=True, autotune=False)  # fmt: skip
    module = _module("emp_score_16d_ordered_splitk")
    t.call(module.emp_score_16d_ordered_splitk, t.normal(200, 16), 0.9, device=device, precision_mode="fast_tf32",
           use_precomputed_norms=True, autotune=False)  # fmt: skip
    module = _module("emp_score_16d_symmetric_atomic")
    t.call(module.emp_score_16d_symmetric_atomic, t.normal(130, 16), 0.9, device=device, precision_mode="fast_tf32",
           use_precomputed_norms=True)  # fmt: skip


CASES = {each.__name__: each for each in (densities, scores, parts, parts_of_products)}
