"""PyTorch tensors as the operands of a probed callable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitwise_core.numerics import Bits
from bitwise_core.probing.operand_arrays import Doubles, OperandArrays


@dataclass(frozen=True, slots=True)
class TensorArrays(OperandArrays):
    """Tensors on one device, such as "cuda" or "cpu".  Raises ImportError where PyTorch is not installed."""

    device: str

    def __post_init__(self) -> None:
        try:
            import torch  # noqa: F401
        except ImportError:
            raise ImportError("PyTorch is not installed", name="torch") from None

    def of_patterns(self, bits: Bits, dtype: str) -> Any:
        """Return a tensor of `dtype` on the device."""
        import torch

        size = bits.dtype.itemsize
        signed = np.ascontiguousarray(bits).view("u1" if size == 1 else f"i{size}")
        return torch.from_numpy(signed).to(self.device).view(_integer_type(size)).view(getattr(torch, dtype))

    def to_patterns(self, array: Any) -> Bits:
        """Return the tensor's bits as unsigned integers on the CPU."""
        size = array.element_size()
        found: Bits = array.detach().contiguous().view(_integer_type(size)).cpu().numpy().view(f"u{size}")
        return found

    def dense(self, array: Any) -> Any:
        """Return a contiguous tensor."""
        return array.contiguous()

    def doubles(self, array: Any, dtype: str) -> Doubles:
        """Return the tensor in float64 on the CPU."""
        return np.asarray(array.double().cpu().numpy(), dtype=np.float64)

    def name(self, array: Any) -> str:
        """Return the name of the tensor's dtype without the prefix `torch.`."""
        return str(array.dtype).removeprefix("torch.")


def _integer_type(size: int) -> Any:
    import torch

    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
