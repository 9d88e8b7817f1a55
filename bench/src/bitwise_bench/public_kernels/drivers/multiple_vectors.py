"""colsearch: scores of queries against documents that have a vector for each token, exact and quantised."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    bare_package("colsearch._internal.kernels")
    bare_package("colsearch._internal.inference.index_core")
    return import_module(f"colsearch._internal.{name}")


def exact(t: Tensors) -> None:
    """Score with numbers of 16 and of 8 bits, with masks and without."""
    module = _module("kernels.triton_maxsim")
    for dtype, tokens, words, width in (("float16", 12, 50, 64), ("float32", 8, 33, 96)):
        q, d = t.normal(3, tokens, width, dtype=dtype), t.normal(5, words, width, dtype=dtype)
        t.call(module.fast_colbert_scores, q, d)
        t.call(module.fast_colbert_scores, q, d, use_quantization=True)
        t.call(module.fast_colbert_scores, q, d, None, t.integers(0, 2, 5, words).float())
        t.call(module.fast_colbert_scores_pairwise, q, d[:3])


def quantised(t: Tensors) -> None:
    """Score codes of 8, 4 and 2 bits."""
    module = _module("kernels.triton_roq")
    for bits, packed in ((8, 64), (4, 32), (2, 16)):
        q, d = (t.integers(0, 256, *shape, packed, dtype="uint8") for shape in ((3, 9), (4, 21)))
        t.call(getattr(module, f"roq_maxsim_{bits}bit"), q, t.uniform(3, 9, 4), d, t.uniform(4, 21, 4))


def codes(t: Tensors) -> None:
    """Gather the largest scores of the codes of documents."""
    module = _module("inference.index_core.triton_qch_kernel")
    t.call(module.qch_max_gather_gpu, t.normal(8, 32), t.integers(0, 32, 60, dtype="int32"), t.of([0, 20, 33], "int32"),
           t.of([20, 13, 27], "int32"), 8, 32)  # fmt: skip


CASES = {each.__name__: each for each in (exact, quantised, codes)}
