"""vsa: attention over chosen blocks of keys, and the lists of these blocks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


def _lists(t: Tensors, chosen: Any) -> tuple[Any, Any]:
    """Return the numbers of the chosen blocks of each row, and how many they are."""
    order = t.torch.argsort(chosen.logical_not().int(), dim=-1, stable=True).int().contiguous()
    return order, chosen.sum(-1).int().contiguous()


def attention(t: Tensors) -> None:
    """Call attention over chosen blocks, forward and backward."""
    bare_package("vsa")
    stub("pytest")
    module = import_module("vsa.block_sparse_attn_triton")
    for length, width, dtype in ((256, 64, "bfloat16"), (192, 128, "float16")):
        count = length // 64
        q, k, v, do = (t.normal(1, 2, length, width, dtype=dtype) for _ in range(4))
        chosen = t.integers(0, 2, 1, 2, count, count, dtype="bool") | t.torch.eye(count, device=t.device).bool()
        rows, columns = _lists(t, chosen), _lists(t, chosen.transpose(2, 3))
        sizes = t.of([64] * (count - 1) + [37], "int32")
        found = t.call(module.triton_block_sparse_attn_forward, q, k, v, *rows, sizes)
        if found is not None:
            t.call(module.triton_block_sparse_attn_backward, do, q, k, v, *found, *rows, *columns, sizes)


def lists(t: Tensors) -> None:
    """Call the conversions between maps of blocks and lists of their numbers."""
    bare_package("vsa")
    module = import_module("vsa.index")
    index = t.torch.stack([t.torch.randperm(12)[:4] for _ in range(10)]).view(1, 2, 5, 4).int().to(t.device)
    t.call(module.topk_index_to_map, index, 12)
    t.call(module.topk_index_to_map, index, 12, True)
    t.call(module.map_to_index, t.integers(0, 2, 1, 2, 5, 12, dtype="bool"))


CASES = {each.__name__: each for each in (attention, lists)}
