"""torch-fps: points that are far from each other, and their neighbours."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def points(t: Tensors) -> None:
    """Call the choice of points, with neighbours and with assignments."""
    module = import_module("torch_fps._triton")
    for count, width, dtype in ((90, 3, "float32"), (128, 5, "float16")):
        cloud, mask = t.normal(2, count, width, dtype=dtype), t.uniform(2, count) < 0.9
        start = t.of([0, 3], "int64")
        mask[:, :4] = True
        t.call(module.fps, cloud, mask, start, 7)
        t.call(module.fps_assign, cloud, mask, start, 7)
        t.call(module.fps_knn, cloud, mask, start, 6, 4)


CASES = {"points": points}
