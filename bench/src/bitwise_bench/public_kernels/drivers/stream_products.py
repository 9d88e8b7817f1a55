"""tokenspeed-tritonblas: products by resident programs, with tiles that several programs share."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors

_OF_ANOTHER_VENDOR = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""Options of kernels that Triton has for another vendor only."""


class _Launched:
    """A kernel that is launched without the options of another vendor."""

    def __init__(self, kernel: Any, probe_tensor: Any = None) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **keywords: Any) -> Any:
            kept = {name: value for name, value in keywords.items() if name not in _OF_ANOTHER_VENDOR}
            return self._kernel[grid](*arguments, **kept)

        return launch


def _modules() -> tuple[Any, Any]:
    stub("origami", problem_t=None)
    bare_package("tritonblas")
    module = import_module("tritonblas.matmul")
    module.__dict__["_maybe_wrap"] = _Launched
    return module, import_module("tritonblas.config")


def _choice(rows: int, columns: int, depth: int, programs: int) -> Any:
    return SimpleNamespace(
        block_m=rows, block_n=columns, block_k=depth, group_m=4, num_sms=1, sk_grid=programs, num_stages=2,
        waves_per_eu=0, COUNTERS_PER_XCD=1, _ACTIVE_CU=programs, _hardware=SimpleNamespace(N_CU=programs, NUM_XCD=1),
    )  # fmt: skip


def _config(t: Tensors, module: Any, programs: int, places: int) -> Any:
    counters = [t.empty(64, dtype="int32") for _ in range(2)]
    locks, partial = t.empty(programs, dtype="uint8"), t.empty(programs, places)
    return module.MatmulConfig(t.torch.device(t.device), *counters, locks, partial, mask=t.of([1] * programs, "int32"))


def persistent(t: Tensors) -> None:
    """Call products of which each program computes whole tiles."""
    matmul, config = _modules()
    for dtype, shape in (("float16", (256, 192, 128)), ("bfloat16", (200, 136, 100))):
        m, n, k = shape
        a, b, c = t.normal(m, k, dtype=dtype), t.normal(n, k, dtype=dtype).t(), t.empty(m, n, dtype=dtype)
        bias = t.normal(m, dtype=dtype)
        t.call(matmul.persistent_matmul_lt, a, b, c, _choice(64, 64, 32, 8), _config(t, config, 8, 4096), bias=bias)


def shared(t: Tensors) -> None:
    """Call products whose last tiles are sums of the parts of several programs."""
    matmul, config = _modules()
    for dtype, depth in (("float16", 256), ("bfloat16", 192)):
        a, b = t.normal(192, depth, dtype=dtype), t.normal(192, depth, dtype=dtype).t()
        c = t.empty(192, 192, dtype=dtype)
        t.call(matmul.streamk_matmul_lt, a, b, c, _choice(64, 64, 32, 4), _config(t, config, 4, 4096))


CASES = {each.__name__: each for each in (persistent, shared)}
