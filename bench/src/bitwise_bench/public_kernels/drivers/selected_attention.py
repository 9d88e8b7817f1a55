"""native-sparse-attention-pytorch: attention to selected blocks of the keys."""

from __future__ import annotations

import importlib.metadata
from importlib import import_module
from typing import Any
from unittest.mock import patch

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module() -> Any:
    """Return the module, which asks for the version of Triton."""
    with patch.object(importlib.metadata, "version", lambda name: "3.6.0"):
        return import_module("native_sparse_attention_pytorch.triton_native_sparse_attention")


class _Annotation:
    def __class_getitem__(cls, shape: object) -> type:
        return object


def _attend(t: Tensors, sliding: bool) -> None:
    bare_package("native_sparse_attention_pytorch")
    stub("einx")
    stub("native_sparse_attention_pytorch.tensor_typing", Float=_Annotation, Int=_Annotation, Bool=_Annotation)
    module = _module()
    q = t.normal(1, 4, 96, 32, dtype="float16", grad=True)
    k, v = (t.normal(1, 2, 96, 32, dtype="float16", grad=True) for _ in range(2))
    blocks, mask = t.integers(0, 3, 1, 2, 96, 2), t.integers(0, 2, 1, 2, 96, 2, dtype="bool")
    t.backward(t.call(module._native_sparse_attend, q, k, v, 32, blocks, mask, None, True, False, sliding))


def selected(t: Tensors) -> None:
    """Call attention to selected blocks, forward and backward."""
    _attend(t, False)


def selected_and_sliding(t: Tensors) -> None:
    """Call attention to selected blocks and to a sliding window, forward and backward."""
    _attend(t, True)


CASES = {each.__name__: each for each in (selected, selected_and_sliding)}
