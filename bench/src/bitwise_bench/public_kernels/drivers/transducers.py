"""nemo-toolkit: log-probabilities of transducers, and steps of n-gram models over a batch of states."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    package, _, module = f"nemo.collections.asr.parts.{name}".rpartition(".")
    bare_package(package)
    return import_module(f"{package}.{module}")


def probabilities(t: Tensors) -> None:
    """Call log-probabilities of labels and of the blank, of whole and of uneven sequences, forward and backward."""
    function = _module("k2.rnnt_logprobs_triton").rnnt_logprobs_triton
    for dtype, words, lengths in (("float32", 70, None), ("bfloat16", 300, ([7, 4], [5, 3]))):
        logits = t.normal(2, 7, 6, words, dtype=dtype, grad=True)
        targets = t.integers(0, words - 1, 2, 5)
        given = [t.of(each, "int64") for each in lengths] if lengths else []
        found = t.call(function, logits, targets, words - 1, *given)
        if found is not None:
            t.call(t.backward, sum(each.sum() for each in found))


def steps(t: Tensors) -> None:
    """Call a step of a model with three orders, whose states fall back to shorter contexts."""
    kernel = _module("submodules.ngram_lm.ngram_lm_triton").ngram_advance_triton_kernel
    words = 8
    arcs = [(0, list(range(words))), (1, [0, 2, 5]), (2, [1, 2, 7]), (3, [4]), (4, [])]
    labels = [label for _, chosen in arcs for label in chosen]
    targets = [(3 * label + state) % 5 for state, chosen in arcs for label in chosen]
    edges, place = [], 0
    for _, chosen in arcs:
        edges.append([place, place + len(chosen)])
        place += len(chosen)
    states = t.of([0, 1, 2, 3, 4, 3], "int64")
    kernel[(6,)](words, states, t.empty(6, words, dtype="int64"), t.empty(6, words), 0, t.of(targets, "int64"),
                 t.of(labels, "int64"), t.normal(len(labels)), t.of(edges, "int64"), t.of([0, 0, 0, 1, 2], "int64"),
                 t.normal(5), BLOCK_SIZE=8)  # fmt: skip


CASES = {each.__name__: each for each in (probabilities, steps)}
