"""Autotuning of products: a launcher measures its kernel configurations for a descriptor, all of the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import TunableLauncher
from bitwise_torch import dispatch_cache, epilogues
from bitwise_torch.product_arguments import ProductError
from bitwise_torch.product_runs import descriptor_of, parse_descriptor
from bitwise_torch.products import matmul

if TYPE_CHECKING:
    import torch


def tune(
    a: torch.Tensor, b: torch.Tensor, *, desc: GEMMDesc | str | None = None, like: str | None = None,
    out_dtype: torch.dtype | None = None, path: Path | None = None, most: int = 32,
) -> tuple[str, float]:  # fmt: skip
    """Measure at most `most` kernel configurations for matmul(a, b, ...), and use the fastest one from now on.

    Return its name and the time of a launch in seconds.  It is stored for this descriptor, shape, strides, device and
    compiler, in the file `path` or in the launcher's default file.  Raises what `matmul` raises, and RuntimeError where
    two configurations return different bytes.
    """
    if (desc is None) == (like is None):
        raise ProductError("give exactly one of desc, a descriptor, and like, the name of a library")
    if isinstance(desc, str):
        desc = parse_descriptor(desc)
    # Run the product once: matmul checks the operands.
    out = matmul(a.detach(), b.detach(), desc=desc, like=like, out_dtype=out_dtype)
    if desc is None:
        assert like is not None
        desc = descriptor_of(a, b, out, like)
    for launcher in registry.default().launchers:
        if isinstance(launcher, TunableLauncher) and launcher.serves(desc, a.device):
            chosen = launcher.tune(desc, a.detach(), b.detach(), out, path, most)
            epilogues.clear()
            dispatch_cache.clear()  # prepared products have the configuration of before
            return chosen
    raise ProductError(f"no installed plugin can tune products on {a.device}")
