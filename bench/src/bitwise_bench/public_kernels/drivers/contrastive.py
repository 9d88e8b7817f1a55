"""memeff: contrastive losses that do not hold the matrix of similarities, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.tensors import Tensors


def _loss(t: Tensors, module: str, name: str, width: int, dtype: str, *first: Any, more: bool = False) -> None:
    loss = getattr(import_module(f"memeff.{module}"), name)(*first)
    features = [t.normal(72, width, dtype=dtype, grad=True) for _ in range(3 if more else 2)]
    found = t.call(loss.to(t.device), *features)
    if found is not None:
        t.call(found.backward)


def clip(t: Tensors) -> None:
    """Call the losses of pairs of images and texts."""
    _loss(t, "clip_loss", "MemoryEfficientCLIPLoss", 64, "float32")
    _loss(t, "clip_loss", "MemoryEfficientCLIPLoss", 128, "bfloat16")
    _loss(t, "lit_loss", "MemoryEfficientLiTLoss", 64, "float16")


def queries(t: Tensors) -> None:
    """Call the losses of queries and documents, with hard negatives."""
    _loss(t, "clip_qwen3_loss", "MemoryEfficientQwen3Loss", 64, "float32", more=False)
    _loss(t, "clip_qwen3_loss", "MemoryEfficientQwen3Loss", 64, "bfloat16", 0.05, 0.1, True, True)
    _loss(t, "lit_qwen3_loss", "MemoryEfficientLiTQwen3Loss", 96, "float32")


def nested(t: Tensors) -> None:
    """Call the losses over several first parts of the features."""
    _loss(t, "mrl_clip_loss", "MemoryEfficientMatryoshkaCLIPLoss", 128, "float32", [64, 128])
    _loss(t, "mrl_qwen3_loss", "MemoryEfficientMatryoshkaQwen3Loss", 128, "bfloat16", [64, 128])


CASES = {each.__name__: each for each in (clip, queries, nested)}
