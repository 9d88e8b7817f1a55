"""vLLM: attention over pages, convolutions and linear attention with states, quantised products, and sampling."""

from __future__ import annotations

import enum
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from bitwise_bench.public_kernels.packages import bare_package, stub
from bitwise_bench.public_kernels.tensors import Tensors


class _Off(ModuleType):
    """A module of settings, all of them off."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False


class _Capability(NamedTuple):
    major: int
    minor: int


class _Platform:
    """What the package asks about the device."""

    def fp8_dtype(self) -> Any:
        import torch

        return torch.float8_e4m3fn

    def get_device_capability(self) -> _Capability:
        return _Capability(9, 0)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: name in ("is_cuda", "is_cuda_alike", "has_device_capability")


class _CacheKind(enum.IntEnum):
    """The numbers of the kinds of caches in the package."""

    NONE = 0
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4


def _module(name: str) -> Any:
    import triton
    import triton.language as tl

    bare_package(f"vllm.{name}".rsplit(".", 1)[0])
    sys.modules.setdefault("vllm.envs", _Off("vllm.envs"))
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]  # type: ignore[attr-defined]
    stub("vllm.platforms", current_platform=_Platform())
    stub("vllm.platforms.interface", DeviceCapability=_Capability)
    stub("vllm.logger", init_logger=_Off)
    stub("vllm.triton_utils", tl=tl, triton=triton, LOG2E=1.4426950408889634)
    stub("vllm.v1.kv_cache_interface", KVQuantMode=_CacheKind)
    stub("vllm.v1.attention.backends.utils", NULL_BLOCK_ID=0, PAD_SLOT_ID=-1)
    stub("vllm.utils.mem_utils", get_max_shared_memory_bytes=lambda *arguments: 232448)
    stub("vllm.utils.nccl", pin_nccl_env=None)
    stub("vllm.utils.platform_utils", num_compute_units=lambda *arguments: 132)
    stub("vllm.utils.torch_utils", is_torch_equal_or_newer=lambda version: True)
    return import_module(f"vllm.{name}")


def _cache(t: Tensors) -> dict[str, Any]:
    """Return 12 pages of 16 tokens, and two sequences of 50 and 37 tokens in them."""
    return {
        "k": t.normal(12, 16, 2, 64, dtype="bfloat16"),
        "v": t.normal(12, 16, 2, 64, dtype="bfloat16"),
        "pages": t.of([[3, 7, 1, 10], [5, 0, 11, 2]], "int32"),
        "lengths": t.of([50, 37], "int32"),
    }


def unified_attention(t: Tensors) -> None:
    """Call the attention over pages: of prompts with a window, and of one token in segments."""
    c, f = _cache(t), _module("v1.attention.ops.triton_unified_attention").unified_attention
    for window in ((-1, -1), (19, 0)):
        q = t.normal(31, 8, 64, dtype="bfloat16")
        t.call(f, q, c["k"], c["v"], t.torch.empty_like(q), t.of([0, 20, 31], "int32"), 20, c["lengths"], 50, 0.125,
               True, window, c["pages"], 0, None, None, None)  # fmt: skip
    q = t.normal(2, 8, 64, dtype="bfloat16")
    t.call(f, q, c["k"], c["v"], t.torch.empty_like(q), t.of([0, 1, 2], "int32"), 1, c["lengths"], 50, 0.125, True,
           (-1, -1), c["pages"], 30.0, None, None, None, seq_threshold_3D=8, num_par_softmax_segments=4,
           softmax_segm_output=t.empty(2, 8, 4, 64), softmax_segm_max=t.empty(2, 8, 4),
           softmax_segm_expsum=t.empty(2, 8, 4), sinks=t.normal(8))  # fmt: skip


def decode(t: Tensors) -> None:
    """Call the attention of one token, with the keys in splits."""
    c, module = _cache(t), _module("v1.attention.ops.triton_decode_attention")
    one = t.of([1.0], "float32")
    for heads in (2, 8):
        q, o = t.normal(2, heads, 64, dtype="bfloat16"), t.empty(2, heads, 64, dtype="bfloat16")
        t.call(module.decode_attention_fwd, q, c["k"], c["v"], o, t.empty(2, heads, dtype="bfloat16"), c["pages"],
               c["lengths"], t.empty(2, heads, 4, 65), 4, 0.125, 16, k_scale=one, v_scale=one)  # fmt: skip


def merge(t: Tensors) -> None:
    """Call the sum of two parts of an attention."""
    prefix, suffix = (t.normal(20, 4, 64, dtype="bfloat16") for _ in range(2))
    t.call(_module("v1.attention.ops.triton_merge_attn_states").merge_attn_states, t.torch.empty_like(prefix), prefix,
           t.normal(4, 20), suffix, t.normal(4, 20), t.empty(4, 20))  # fmt: skip


def weights_of_four_bits(t: Tensors) -> None:
    """Call the product with weights of 4 bits, and their expansion."""
    module = _module("model_executor.layers.quantization.awq_triton")
    words, zeros = (
        t.integers(-(1 << 31), 1 << 31, count, 16, dtype="int64").to(t.dtype("int32")) for count in (256, 2)
    )
    scales = t.uniform(2, 128, dtype="float16")
    t.call(module.awq_dequantize_triton, words, scales, zeros)
    t.call(module.awq_gemm_triton, t.normal(20, 256, dtype="float16"), words, scales, zeros, 2)


def quantised_rows(t: Tensors) -> None:
    """Call the quantisation of rows to 8 bits."""
    module = _module("model_executor.layers.quantization.utils.int8_utils")
    t.call(module.per_token_quant_int8, t.normal(24, 256, dtype="bfloat16"))


def invariant_operators(t: Tensors) -> None:
    """Call the operators whose bits do not depend on the batch."""
    module = _module("model_executor.determinism.batch_invariant")
    x = t.normal(30, 300)
    t.call(module.log_softmax, x)
    t.call(module.softmax, x)
    t.call(module.mean_dim, t.normal(6, 50, 40), 1)
    t.call(module.rms_norm_batch_invariant, t.normal(30, 512, dtype="bfloat16"), t.normal(512, dtype="bfloat16"))
    t.call(module.matmul_persistent, t.normal(100, 96, dtype="bfloat16"), t.normal(96, 130, dtype="bfloat16"))
    t.call(module.bmm_batch_invariant, *(t.normal(2, 64, 64, dtype="float16") for _ in range(2)))


def lightning(t: Tensors) -> None:
    """Call linear attention with decay, of prompts and of one token."""
    module = _module("model_executor.layers.lightning_attn")
    q, k, v = (t.normal(1, 2, 200, 64, dtype="bfloat16") for _ in range(3))
    t.call(module.lightning_attention, q, k, v, t.uniform(2))
    one = [t.normal(2, 2, 1, 64, dtype="bfloat16") for _ in range(3)]
    t.call(module.linear_decode_forward_triton, *one, t.normal(4, 2, 64, 64), t.uniform(2), t.of([1, 3], "int32"))


def convolution(t: Tensors) -> None:
    """Call the causal convolution of prompts with states, and of one token."""
    module = _module("model_executor.layers.mamba.ops.causal_conv1d")
    x = t.normal(60, 128, dtype="bfloat16").t()
    w, b = t.normal(128, 4, dtype="bfloat16"), t.normal(128, dtype="bfloat16")
    states = t.normal(5, 3, 128, dtype="bfloat16").transpose(1, 2)
    t.call(module.causal_conv1d_fn, x, w, b, states, t.of([0, 40, 60], "int32"), t.of([1, 3], "int32"),
           t.of([True, False], "bool"))  # fmt: skip
    t.call(module.causal_conv1d_update, t.normal(2, 128, dtype="bfloat16"), states, w, b, "silu",
           conv_state_indices=t.of([4, 2], "int32"))  # fmt: skip


def sampling(t: Tensors) -> None:
    """Call the temperature and the sampling of tokens by random numbers."""
    module = _module("v1.worker.gpu.sample.gumbel")
    places, temperature = t.of([1, 0, 2], "int32"), t.of([0.7, 0.0, 1.0], "float32")
    t.call(module.apply_temperature, t.normal(3, 1500), places, temperature)
    t.call(module.gumbel_sample, t.normal(3, 1500), places, temperature, t.of([11, 22, 33], "int64"),
           t.of([5, 6, 7], "int64"), True, False)  # fmt: skip


CASES = {
    each.__name__: each
    for each in (
        *(unified_attention, decode, merge, weights_of_four_bits, quantised_rows, invariant_operators, lightning),
        *(convolution, sampling),
    )
}
