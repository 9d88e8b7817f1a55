"""voyager-index: maximum similarities of tokens, whole and in 1, 2, 4 and 8 bits."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _package() -> None:
    for name in ("voyager_index", "voyager_index._internal", "voyager_index._internal.kernels"):
        bare_package(name)


def similarities(t: Tensors) -> None:
    """Call the similarities of all pairs, whole and quantised."""
    _package()
    module = import_module("voyager_index._internal.kernels.triton_maxsim")
    queries, documents = t.normal(3, 12, 64, dtype="float16"), t.normal(4, 40, 64, dtype="float16")
    t.call(module.fast_colbert_scores, queries, documents)
    t.call(module.fast_colbert_scores, queries, documents, use_quantization=True)
    t.call(module.fast_colbert_scores_pairwise, queries, documents[:3])


def codes(t: Tensors) -> None:
    """Call the similarities of codes of several widths."""
    _package()
    module = import_module("voyager_index._internal.kernels.triton_roq")
    about = t.uniform(3, 10, 4), t.uniform(4, 20, 4)
    for bits in (8, 4, 2):
        width = 64 * bits // 8
        one, other = t.integers(0, 256, 3, 10, width, dtype="uint8"), t.integers(0, 256, 4, 20, width, dtype="uint8")
        t.call(getattr(module, f"roq_maxsim_{bits}bit"), one, about[0], other, about[1])
    bits_of = (t.integers(0, 256, count, length, 8, dtype="uint8") for count, length in ((3, 10), (4, 20)))
    t.call(module.roq_maxsim_1bit, *bits_of)


CASES = {each.__name__: each for each in (similarities, codes)}
