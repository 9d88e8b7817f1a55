"""nequip-allegro: contractions of strided tensors of edges and nodes by sparse coefficients, forward and backward."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors

_NODES, _EDGES, _CHANNELS = 7, 40, 24


def _module(t: Tensors) -> Any:
    def scatter(values: Any, index: Any, dim: int, dim_size: int) -> Any:
        return values.new_zeros((dim_size, *values.shape[1:])).index_add_(dim, index, values)

    stub("nequip.nn", scatter=scatter)
    bare_package("allegro.nn._strided")
    stub("allegro.nn._strided._contract", Contracter=t.torch.nn.Module)
    return import_module("allegro.nn._strided._flashallegro")


def _coefficients(t: Tensors, paths: int, sizes: tuple[int, int, int]) -> Any:
    """Coefficients of several paths, of which each element has one path at most."""
    chosen = t.integers(0, 3 * paths, *sizes)
    numbers = t.normal(*sizes)
    return t.torch.stack([t.torch.where(chosen == path, numbers, 0.0) for path in range(paths)]).cpu()


def _contracted(t: Tensors, mode: str, dtype: str) -> None:
    module = _module(t)
    sizes = (9, 4, 9)
    coefficients = _coefficients(t, 5, sizes)
    made = [each.to(t.device) for each in module._initialize_metadata(coefficients)]
    fwd, l1s, l2s, bwd1, ks1, l2s1, bwd2, ks2, l1s2, vals, vals1, vals2, map0, map1, map2 = made
    kept = [each.to(t.dtype(dtype)) for each in (vals, vals1, vals2)]
    weights = t.normal(_CHANNELS, 5, dtype=dtype) if mode == "up" else t.normal(5, dtype=dtype)
    edges = t.normal(_EDGES, _CHANNELS, sizes[0], dtype=dtype, grad=True)
    nodes = t.normal(_NODES, _CHANNELS, sizes[1], dtype=dtype, grad=True)
    found = t.call(
        t.torch.ops.triton.flashallegro_forward, edges, nodes, t.integers(0, _NODES, _EDGES), mode, fwd, bwd1, bwd2,
        l1s, l2s, kept[0], map0, ks1, l2s1, kept[1], map1, ks2, l1s2, kept[2], map2, weights, sizes[2], sizes[0],
        sizes[1], int(t.torch.count_nonzero(coefficients)), t.dtype(dtype),
    )  # fmt: skip
    if found is not None:
        t.call(t.backward, found)


def coupled_channels(t: Tensors) -> None:
    """Call contractions with weights of channels and paths, in fp32 and in fp64."""
    for dtype in ("float32", "float64"):
        _contracted(t, "up", dtype)


def paths(t: Tensors) -> None:
    """Call contractions with weights of paths."""
    _contracted(t, "p", "float32")


CASES = {each.__name__: each for each in (coupled_channels, paths)}
