"""verl: log-probabilities and entropies of products with the vocabulary, and fp8 blocks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _module(t: Tensors, name: str) -> Any:
    bare_package("verl.utils.kernel")
    stub("verl.utils.device", get_device_capability=lambda index=0: (9, 0), get_device_name=lambda: "cuda",
         is_cuda_available=True, get_torch_device=lambda: t.torch.cuda)  # fmt: skip
    return import_module(f"verl.utils.kernel.{name}")


def probabilities(t: Tensors) -> None:
    """Call log-probabilities and entropies, forward and by each method of the backward pass."""
    module = _module(t, "kernels")
    tokens, width, words = 50, 128, 1100
    for method in ("_Total_Fuse_MN", "_Total_Separate", "_Split_Dlogits_N"):
        hidden, weight = t.normal(tokens, width, dtype="bfloat16"), t.normal(words, width, dtype="bfloat16", scale=0.1)
        labels = t.integers(0, words, tokens)
        found = t.call(module.efficient_entropy_forward, hidden, weight, labels, 0, 0.8, None)
        if found is None:
            continue
        _, _, maximum, sums, entropies = found
        t.call(module.set_backward_method, getattr(module.BackwardEnum, method))
        t.call(module.efficient_entropy_backward, t.normal(tokens), t.normal(tokens), hidden, weight, labels, maximum,
               sums, entropies, 0, False, 0.8, None)  # fmt: skip


def reduced(t: Tensors) -> None:
    """Call the mean of log-probabilities of fp32 states."""
    module = _module(t, "kernels")
    t.call(module.efficient_entropy_forward, t.normal(40, 128), t.normal(300, 128, scale=0.1),
           t.integers(0, 300, 40), 2, 1.0, None)  # fmt: skip


def blocks(t: Tensors) -> None:
    """Call the quantisation of blocks to fp8."""
    module = _module(t, "fp8_kernel")
    for shape, block in (((100, 300), (64, 128)), ((96, 256), (128, 128))):
        t.call(module.scaled_fp8_blockwise_triton, t.normal(*shape, dtype="bfloat16"), block)


CASES = {each.__name__: each for each in (probabilities, reduced, blocks)}
