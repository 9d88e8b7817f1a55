"""trifast: attention over the rows of pair representations."""

from __future__ import annotations

import importlib.metadata
import tempfile
from importlib import import_module
from unittest.mock import patch

from bitwise_bench.public_kernels.packages import stub
from bitwise_bench.public_kernels.tensors import Tensors


def pairs(t: Tensors) -> None:
    """Call attention over pairs, forward and backward."""
    stub("jaxtyping", Bool=dict, Float=dict)
    stub("platformdirs", user_config_dir=lambda **names: tempfile.gettempdir())
    with patch.object(importlib.metadata, "version", lambda name: "0.1.13"):
        module = import_module("trifast.torch")
    q, k, v = (t.normal(1, 2, 37, 37, 32, dtype="bfloat16", grad=True) for _ in range(3))
    bias = t.normal(1, 2, 37, 37, dtype="bfloat16", grad=True)
    t.backward(t.call(module.triangle_attention, q, k, v, bias, t.integers(0, 2, 1, 37, 37, dtype="bool")))


CASES = {each.__name__: each for each in (pairs,)}
