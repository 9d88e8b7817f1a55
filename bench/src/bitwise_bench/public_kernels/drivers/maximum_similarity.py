"""flash-maxsim: scores of late interaction and distances of point sets, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _module(name: str) -> Any:
    return import_module(f"flash_maxsim.{name}")


def scores(t: Tensors) -> None:
    """Call the scores of one query and of several against documents of one length."""
    module = _module("flash_maxsim")
    for dtype, width, words in (("float16", 64, 24), ("bfloat16", 128, 32)):
        query, documents = t.normal(words, width, dtype=dtype), t.normal(5, 40, width, dtype=dtype)
        t.call(module.flash_maxsim, query, documents)
        t.call(module.flash_maxsim, query, documents, doc_lengths=t.of([40, 3, 17, 25, 39], "int32"))
        t.call(module.flash_maxsim_batched, t.normal(3, words, width, dtype=dtype), documents)
        t.call(module.flash_maxsim_persistent, query, documents)


def derivatives(t: Tensors) -> None:
    """Call the scores of pairs with their backward pass."""
    query, documents = t.normal(20, 64, dtype="float16", grad=True), t.normal(4, 33, 64, dtype="float16", grad=True)
    found = t.call(_module("flash_maxsim").flash_maxsim_train, query, documents)
    if found is not None:
        t.call(t.backward, found)
    queries = t.normal(3, 20, 64, dtype="float16", grad=True)
    found = t.call(_module("flash_maxsim_batched_train").flash_maxsim_batched_train, queries, documents)
    if found is not None:
        t.call(t.backward, found)


def pairs(t: Tensors) -> None:
    """Call the scores of pairs of several lengths."""
    module = _module("flash_maxsim_varlen")
    queries = [t.normal(length, 64, dtype="float16") for length in (7, 16, 30)]
    documents = [t.normal(length, 64, dtype="float16") for length in (40, 12, 25)]
    packed = t.call(module.pack_pairs, queries, documents)
    if packed is not None:
        t.call(module.flash_maxsim_varlen, *packed)
    t.call(_module("flash_maxsim").flash_maxsim_pairs, t.normal(4, 16, 64, dtype="float16"),
           t.normal(4, 30, 64, dtype="float16"))  # fmt: skip


def ranked(t: Tensors) -> None:
    """Call the scores of packed and of padded documents, and those of chosen ones."""
    rerank, query = _module("flash_maxsim_rerank"), t.normal(16, 64, dtype="float16")
    packed, lengths = t.normal(60, 64, dtype="float16"), t.of([0, 20, 25, 60], "int32")
    t.call(rerank.flash_maxsim_rerank, query, packed, lengths, 35)
    t.call(_module("flash_maxsim_varlen").flash_maxsim_packed, query, packed, lengths, 35)
    t.call(rerank.flash_maxsim_rerank_padded, t.normal(3, 16, 64, dtype="float16"),
           t.normal(3, 4, 30, 64, dtype="float16"))  # fmt: skip
    t.call(_module("flash_maxsim_sparse").flash_maxsim_sparse, t.normal(3, 16, 64, dtype="float16"),
           t.normal(6, 30, 64, dtype="float16"), t.of([[0, 2], [5, 1], [3, 3]], "int32"))  # fmt: skip


def quantised(t: Tensors) -> None:
    """Call the scores of documents in 8 bits."""
    module, query = _module("flash_maxsim_quant"), t.normal(16, 64, dtype="float16")
    documents = t.normal(5, 40, 64, dtype="float16")
    packed = t.call(module.quantize_int8, documents)
    if packed is not None:
        t.call(module.flash_maxsim_int8, query, *packed)
    symmetric = t.call(module.quantize_int8_symmetric, documents)
    if symmetric is not None:
        t.call(module.flash_maxsim_int8_symmetric, query, *symmetric)


def advanced(t: Tensors) -> None:
    """Call the scores that keep a query, or split the documents or the width."""
    module = _module("flash_maxsim_advanced")
    query, documents = t.normal(20, 64, dtype="float16"), t.normal(6, 50, 64, dtype="float16")
    t.call(module.flash_maxsim_qreuse, query, documents)
    t.call(module.flash_maxsim_splitk, query, documents)


def chamfer(t: Tensors) -> None:
    """Call the distance of two point sets, with its two backward passes."""
    module = _module("flash_chamfer")
    left, right = t.normal(90, 3, grad=True), t.normal(70, 3, grad=True)
    t.call(module.flash_chamfer, left.detach(), right.detach())
    t.call(module.flash_chamfer, left.detach(), right.detach(), metric="l1")
    for function in (module.flash_chamfer_train, _module("flash_chamfer_invgrid").flash_chamfer_invgrid_train):
        found = t.call(function, left, right)
        if found is not None:
            t.call(t.backward, found)


def contrast(t: Tensors) -> None:
    """Call the contrastive loss of queries and documents, with its backward pass."""
    module = _module("flash_maxsim_contrastive")
    queries, documents = (
        t.normal(4, 16, 64, dtype="float16", grad=True),
        t.normal(4, 30, 64, dtype="float16", grad=True),
    )
    found = t.call(module.colbert_contrastive_step, queries, documents)
    if found is not None:
        t.call(t.backward, found)


CASES = {each.__name__: each for each in (scores, derivatives, pairs, ranked, quantised, advanced, chamfer, contrast)}
