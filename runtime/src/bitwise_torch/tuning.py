"""Products made faster by measurement: launchers try their ways to run a descriptor, all of the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import TunableLauncher
from bitwise_torch import products as tensors

if TYPE_CHECKING:
    import torch


def tune(
    a: torch.Tensor, b: torch.Tensor, *, desc: GEMMDesc | str | None = None, like: str | None = None,
    out_dtype: torch.dtype | None = None, path: Path | None = None, most: int = 32,
) -> tuple[str, float]:  # fmt: skip
    """Measures up to `most` ways to run matmul(a, b, ...) on the device; later products like this one take the fastest.

    It is kept in `path`, or in a file of the launcher's own, for this descriptor, shape, strides, device and compiler.
    Returns its name, and the seconds of a launch.  Raises what `matmul` raises, and RuntimeError where two ways return
    different bytes.
    """
    if (desc is None) == (like is None):
        raise tensors.ProductError("give desc, the descriptor, or like, the name of a library: exactly one of them")
    if isinstance(desc, str):
        desc = tensors.read(desc)
    # A product as `matmul` runs it: all that it refuses is refused here too.
    out = tensors.matmul(a.detach(), b.detach(), desc=desc, like=like, out_dtype=out_dtype)
    if desc is None:
        assert like is not None
        desc = tensors.described(a, b, out, like)
    for launcher in registry.default().launchers:
        if isinstance(launcher, TunableLauncher) and launcher.serves(desc, a.device):
            return launcher.tune(desc, a.detach(), b.detach(), out, path, most)
    raise tensors.ProductError(f"no plugin measures products on {a.device}")
