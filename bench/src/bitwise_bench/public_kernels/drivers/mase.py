"""mase-triton: formats with shared exponents, small formats, flipped bits, and products with quantised operands."""

from __future__ import annotations

from importlib import import_module

from bitwise_bench.public_kernels.tensors import Tensors


def bit_flips(t: Tensors) -> None:
    """Call the random flips of bits of the exponent and of the fraction, forward and backward."""
    module = import_module("mase_triton.random_bitflip.core")
    for count, dtype in ((700, "float32"), (1024, "bfloat16"), (900, "float16")):
        t.call(module.random_bitflip_fn, t.normal(count, dtype=dtype), 3, 2, 11, 12, 8.0)
        values = [t.normal(count, dtype=dtype) for _ in range(2)]
        t.call(module._random_bitflip_backward, *values, 3, 2, 11, 12, 8.0)


def optical(t: Tensors) -> None:
    """Call quantisation and products of an optical computer."""
    parts = "mase_triton.optical_compute.core.optical_transformer"
    quantise = import_module(f"{parts}.quantize").ot_quantize_fn
    linear, product = import_module(f"{parts}.linear").ot_qlinear_fn, import_module(f"{parts}.matmul").ot_qmatmul_fn
    for mode in ("det", "rand"):
        t.call(quantise, t.normal(40, 30), 7, 128, -2.0, 2.0, 0.01, mode)
    t.call(linear, t.normal(24, 64), t.normal(48, 64), t.normal(48), -2.0, 2.0, -2.0, 2.0, 0.01, -20.0, 20.0, 256, 5)
    t.call(product, t.normal(2, 24, 48), t.normal(2, 48, 40), -2.0, 2.0, -2.0, 2.0, 0.01, -20.0, 20.0, 256, 5)


def shared_exponents(t: Tensors) -> None:
    """Call the way into formats with shared exponents, and back."""
    cast = import_module("mase_triton.mxfp.kernels.cast")
    formats = import_module("mase_triton.mxfp.meta")
    for name in ("MXFP8_E4M3_fn", "OCP_MXFP8_E5M2", "OCP_MXFP6_E2M3", "OCP_MXFP4_E2M1"):
        meta = getattr(formats, name, None)
        found = None if meta is None else t.call(cast.extract_mxfp_components, t.normal(1024, dtype="bfloat16"), meta)
        if found is not None:
            t.call(cast.compose_mxfp_tensor, *found, meta, t.dtype("bfloat16"))


CASES = {each.__name__: each for each in (bit_flips, optical, shared_exponents)}
