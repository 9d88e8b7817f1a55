"""What tests start in processes of their own: a product, its bits, and what the process says of its mode."""

from __future__ import annotations

from multiprocessing import get_context
from typing import Any

from bitwise_core.errors import BitwiseError


def operands() -> tuple[Any, Any]:
    """Return two matrices of fp32."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 400, generator=generator), torch.randn(400, 6, generator=generator)


def product() -> list[list[float]] | str:
    """Return a product as numbers, or the sentence of an error."""
    import torch

    try:
        return list((torch.mm(*operands())).tolist())
    except BitwiseError as error:
        return str(error)


def products(connection: Any, lock: Any = None) -> None:
    """Send a product, and the one of a lock that is entered here."""
    from bitwise_torch import locked_products

    connection.send(product())
    if lock is not None:
        with locked_products(lock):
            connection.send(product())
        connection.send(product())


def modes(connection: Any) -> None:
    """Send whether this process has a batch-invariant mode that is strict, and whether a hook enabled one."""
    from bitwise_torch.batch_invariance.mode import active_mode
    from bitwise_torch.engine_hooks import process_mode

    found = active_mode()
    connection.send((found is not None and found.strict, process_mode.is_enabled()))
    process_mode.enable()
    connection.send(active_mode() is found)


class Products:
    """A data set whose elements are products."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.mm(*operands())


class Worker(get_context("forkserver").Process):  # type: ignore[misc]
    """A process with a method `run` of its own, which sends a product."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.connection = connection

    def run(self) -> None:
        """Send a product."""
        self.connection.send(product())
