"""fairchem-core: rotations of edge features by compact Wigner matrices, gates, and sums at nodes."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors

_NODES, _EDGES, _CHANNELS = 9, 21, 128


def _module() -> Any:
    bare_package("fairchem.core.models.uma")
    name = "fairchem.core.models.uma.triton"
    functions: dict[str, Any] = dict(vars(import_module(name)))
    for part in ("node_to_edge_wigner_permute", "permute_wigner_inv_edge_to_node", "fused_wigner", "packed_gate"):
        functions.update(vars(import_module(f"{name}.{part}")))
    return SimpleNamespace(**functions)


def _edges(t: Tensors) -> Any:
    return t.integers(0, _NODES, 2, _EDGES)


def _differentiated(t: Tensors, function: Any, *arguments: Any) -> None:
    found = t.call(function, *arguments)
    if found is not None:
        t.call(t.backward, found)


def rotated_edges(t: Tensors) -> None:
    """Call the rotation of gathered node features, forward and backward."""
    module = _module()
    _differentiated(t, module.NodeToEdgeWignerPermuteFunction.apply, t.normal(_NODES, 9, _CHANNELS, grad=True),
                    _edges(t), t.normal(_EDGES, 9, 9, grad=True))  # fmt: skip
    _differentiated(t, module.PermuteWignerInvEdgeToNodeFunction.apply, t.normal(_EDGES, 9, _CHANNELS, grad=True),
                    t.normal(_EDGES, 9, 9, grad=True))  # fmt: skip


def gates(t: Tensors) -> None:
    """Call the gates of packed features, forward and backward."""
    module = _module()
    for edges, channels in ((21, 32), (40, 64)):
        _differentiated(t, module.packed_gate_op, t.normal(edges, 5 * channels, grad=True),
                        t.normal(edges, 4 * channels, grad=True), t.normal(edges, 2 * channels, grad=True),
                        channels)  # fmt: skip


def packed_edges(t: Tensors) -> None:
    """Call the rotation to packed features with radial factors, forward and backward."""
    module = _module()
    channels = 32
    _differentiated(t, module.wigner_conv1_fused_op, t.normal(_NODES, 9, channels, grad=True), _edges(t),
                    t.normal(_EDGES, 35, grad=True), t.normal(_EDGES, 12 * channels, grad=True),
                    channels)  # fmt: skip


def _packed(t: Tensors, channels: int) -> list[Any]:
    return [t.normal(_EDGES, parts * channels, grad=True) for parts in (3, 4, 2)]


def rotated_back(t: Tensors) -> None:
    """Call the rotation of packed features back, forward and backward."""
    module = _module()
    _differentiated(t, module.wigner_inv_conv2_fused_op, *_packed(t, 32), t.normal(_EDGES, 35, grad=True), 32)


def sums_at_nodes(t: Tensors) -> None:
    """Call the rotation back with atomic sums at nodes, forward and backward."""
    module = _module()
    _differentiated(t, module.wigner_inv_conv2_scatter_op, *_packed(t, 32), t.normal(_EDGES, 35, grad=True),
                    t.integers(0, _NODES, _EDGES), _NODES, 32)  # fmt: skip


CASES = {each.__name__: each for each in (rotated_edges, gates, packed_edges, rotated_back, sums_at_nodes)}
