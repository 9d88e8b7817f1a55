"""flashspec: the acceptance of drafted tokens."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def acceptance(t: Tensors) -> None:
    """Call the test of drafted tokens, and the choice of those that are accepted."""
    bare_package("flashspec.kernels")
    for batch, count, vocabulary in ((3, 5, 200), (8, 4, 1000)):
        draft, target = (
            t.normal(batch, count, vocabulary).log_softmax(-1),
            t.normal(batch, count, vocabulary).log_softmax(-1),
        )
        ids = t.integers(0, vocabulary, batch, count)
        t.call(
            import_module("flashspec.kernels.verify_kernel").verify_tokens, draft, target, t.uniform(batch, count), ids
        )
        t.call(
            import_module("flashspec.kernels.gather_kernel").gather_accepted,
            ids,
            t.integers(0, count, batch, dtype="int64"),
        )


CASES = {each.__name__: each for each in (acceptance,)}
