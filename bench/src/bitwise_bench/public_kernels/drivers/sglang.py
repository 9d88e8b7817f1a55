"""SGLang: attention over a cache of tokens, and norms, for serving."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


class _Answers(ModuleType):
    """A module whose functions tell the kind of GPU."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **keywords: name == "is_cuda"


def _module(name: str) -> Any:
    bare_package(f"sglang.kernels.ops.{name}".rsplit(".", 1)[0])
    stub("sglang.srt.environ", envs=_Switches())
    stub("sglang.kernels.jit.utils", is_arch_support_pdl=lambda: False)
    stub("sglang.srt.batch_invariant_ops", is_batch_invariant_mode_enabled=lambda: False)
    for path in ("sglang.srt.utils", "sglang.srt.utils.common"):
        sys.modules.setdefault(path, _Answers(path)).__path__ = []
    return import_module(f"sglang.kernels.ops.{name}")


class _Switches:
    """The settings of the package from the environment, all of them off."""

    def __getattr__(self, name: str) -> Any:
        return _Switch()


class _Switch:
    def get(self) -> int:
        return 0


def _cache(t: Tensors) -> dict[str, Any]:
    return {
        "k": t.normal(160, 2, 64, dtype="bfloat16"),
        "v": t.normal(160, 2, 64, dtype="bfloat16"),
        "starts": t.of([0, 50, 87], "int32"),
        "places": t.torch.randperm(160, generator=t._generator)[:87].to(t.dtype("int32")).to(t.device),
    }


def decode(t: Tensors) -> None:
    """Call the attention of one token, with the keys in splits, for each head and for groups of heads."""
    module, c = _module("attention.decode_attention"), _cache(t)
    for heads, f in ((2, module.decode_attention_fwd_normal), (8, module.decode_attention_fwd_grouped)):
        q, o = t.normal(2, heads, 64, dtype="bfloat16"), t.empty(2, heads, 64, dtype="bfloat16")
        f(q, c["k"], c["v"], o, c["starts"], c["places"], t.empty(2, heads, 4, 64), t.empty(2, heads, 4),
          t.of([4, 4], "int32"), 4, 0.125, 1.0)  # fmt: skip


def prefill(t: Tensors) -> None:
    """Call the attention of whole prompts."""
    q, o = t.normal(87, 4, 64, dtype="bfloat16"), t.empty(87, 4, 64, dtype="bfloat16")
    k, v = (t.normal(87, 2, 64, dtype="bfloat16") for _ in range(2))
    f = _module("attention.prefill_attention").context_attention_fwd
    f(q, k, v, o, t.of([0, 50], "int32"), t.of([50, 37], "int32"), 50, True)


def extend(t: Tensors) -> None:
    """Call the attention of prompts of which a part is cached."""
    c, f = _cache(t), _module("attention.extend_attention").extend_attention_fwd
    q, o = t.normal(60, 4, 64, dtype="bfloat16"), t.empty(60, 4, 64, dtype="bfloat16")
    k, v = (t.normal(60, 2, 64, dtype="bfloat16") for _ in range(2))
    f(q, k, v, o, c["k"], c["v"], t.of([0, 40, 60], "int32"), c["starts"], c["places"], None, True, None, 40, 1.0, 1.0)


def norms(t: Tensors) -> None:
    """Call the norm of rows."""
    f = _module("layernorm.rmsnorm_fp32").rmsnorm_fp32
    f(t.normal(24, 512), t.normal(512), 1e-6)


def gated_norms(t: Tensors) -> None:
    """Call the gated norms."""
    module = _module("attention.fla.layernorm_gated")
    x, z = (t.normal(24, 512, dtype="bfloat16") for _ in range(2))
    module.rms_norm_gated(x=x, weight=t.normal(512), bias=None, z=z, eps=1e-6, group_size=None,
                          norm_before_gate=True, is_rms_norm=True)  # fmt: skip


CASES = {each.__name__: each for each in (decode, prefill, extend, norms, gated_norms)}
