"""The tensors that drivers pass to operators: small, and the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Tensors:
    """Makes tensors on `device`.  Their contents depend on the order of the calls only, not on the device.

    `failures` are the errors of operators that were called by `call`.
    """

    def __init__(self, device: str) -> None:
        import torch

        self.torch, self.device = torch, device
        torch.manual_seed(7)
        self._generator = torch.Generator().manual_seed(7)
        self.failures: list[str] = []

    def dtype(self, name: str) -> Any:
        """Return torch's type of this name."""
        return getattr(self.torch, name)

    def normal(self, *shape: int, dtype: str = "float32", scale: float = 1.0, grad: bool = False) -> Any:
        """Return numbers of the normal distribution times `scale`, as a leaf of autograd if `grad`."""
        found = scale * self.torch.randn(*shape, generator=self._generator)
        return found.to(self.dtype(dtype)).to(self.device).requires_grad_(grad)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "float32", grad: bool = False
    ) -> Any:
        """Return numbers of the uniform distribution between `low` and `high`."""
        found = low + (high - low) * self.torch.rand(*shape, generator=self._generator)
        return found.to(self.dtype(dtype)).to(self.device).requires_grad_(grad)

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        """Return integers from `low` to `high` - 1."""
        found = self.torch.randint(low, high, shape, generator=self._generator)
        return found.to(self.dtype(dtype)).to(self.device)

    def of(self, numbers: list[Any], dtype: str) -> Any:
        """Return a tensor of these numbers."""
        return self.torch.tensor(numbers, dtype=self.dtype(dtype), device=self.device)

    def empty(self, *shape: int, dtype: str = "float32") -> Any:
        """Return a tensor of zeros."""
        return self.torch.zeros(*shape, dtype=self.dtype(dtype), device=self.device)

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call one of several operators; an error is kept in `failures`, and the driver goes on."""
        try:
            return function(*arguments, **keywords)
        except Exception as error:  # whatever the operator of a package raises
            name = getattr(function, "__name__", str(function))
            self.failures.append(" ".join(f"{name}: {type(error).__name__}: {error}".split())[:200])
            return None

    def backward(self, outputs: Any) -> None:
        """Run the backward pass of the tensors among the outputs that have one, from random gradients."""
        for output in outputs if isinstance(outputs, tuple | list) else (outputs,):
            if self.torch.is_tensor(output) and output.requires_grad:
                gradient = self.torch.randn(output.shape, generator=self._generator)
                output.backward(gradient.to(output.dtype).to(output.device), retain_graph=True)
