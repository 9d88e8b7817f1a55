"""tridec: decoders of quantum codes by belief propagation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors


def _decoder(t: Tensors, module: str, name: str, **settings: Any) -> tuple[Any, Any]:
    bare_package("tridec")
    checks = (t.uniform(12, 30) < 0.2).to("cpu").to(t.torch.uint8).numpy()
    checks[:, checks.sum(0) == 0] = 1
    decoder = getattr(import_module(f"tridec.backends.{module}"), name)(checks, [0.05] * 30, **settings)
    return decoder, (t.uniform(24, 12) < 0.3).to("cpu").to(t.torch.uint8).numpy()


def messages(t: Tensors) -> None:
    """Call the decoder whose passes are kernels."""
    decoder, syndromes = _decoder(t, "bp_triton", "BpTriton", max_iter=4, block_s=16, cuda_graph=False)
    decoder.run_iterations_batch(syndromes, device=t.device)


def whole(t: Tensors) -> None:
    """Call the decoder that is one kernel."""
    decoder, syndromes = _decoder(t, "megakernel", "BpMegaTriton", max_iter=4, block_s=16)
    decoder.run_iterations_batch(syndromes, device=t.device)


def relay(t: Tensors) -> None:
    """Call the decoder with memory."""
    settings = {"pre_iter": 3, "num_sets": 2, "set_max_iter": 3, "block_s": 16}
    decoder, syndromes = _decoder(t, "relay_triton", "RelayBpTriton", **settings)
    decoder.minsum_posterior_batch(syndromes, 3, gamma=0.2, device=t.device)


CASES = {each.__name__: each for each in (messages, whole, relay)}
