"""tridec: decoders of quantum codes by belief propagation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _decode(t: Tensors, module: str, name: str, **settings: Any) -> None:
    bare_package("tridec")
    checks = (t.uniform(12, 30) < 0.2).to("cpu").to(t.torch.uint8).numpy()
    checks[:, checks.sum(0) == 0] = 1
    decoder = t.call(getattr(import_module(f"tridec.backends.{module}"), name), checks, [0.05] * 30, **settings)
    if decoder is not None:
        syndromes = (t.uniform(24, 12) < 0.3).to("cpu").to(t.torch.uint8).numpy()
        method = getattr(decoder, "decode_batch", None) or decoder.decode
        t.call(method, syndromes)


def messages(t: Tensors) -> None:
    """Call the decoder whose passes are kernels."""
    _decode(t, "bp_triton", "BpTriton", max_iter=4, block_s=16, cuda_graph=False)


def whole(t: Tensors) -> None:
    """Call the decoder that is one kernel."""
    _decode(t, "megakernel", "BpMegaTriton", max_iter=4, block_s=16)


def relay(t: Tensors) -> None:
    """Call the decoder with memory."""
    settings = {"pre_iter": 3, "num_sets": 2, "set_max_iter": 3, "block_s": 16}
    _decode(t, "relay_triton", "RelayBpTriton", **settings)
    _decode(t, "megakernel", "RelayBpMegaTriton", dtype="float32", **settings)


CASES = {each.__name__: each for each in (messages, whole, relay)}
