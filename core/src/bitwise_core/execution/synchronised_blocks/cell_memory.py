"""Global memory of a run in which the accesses of given lines synchronise through cells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.synchronised_blocks.block_knowledge import BlockKnowledge
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisedMemory, SynchronisingCode
from bitwise_core.execution.values.symbolic_vector import Array, Value


class Cell(Protocol):
    """A cell: its width in bits."""

    bits: int


AnyCell = TypeVar("AnyCell", bound=Cell)


class CellMemory(SynchronisedMemory, Generic[AnyCell]):
    """Global memory in which accesses of the given lines synchronise, and give an order to all others.

    A subclass makes the cells (`_new_cell`).
    """

    def __init__(
        self, domain: Domain, given: GivenContents, code: SynchronisingCode, cells: Mapping[int, int] | None
    ) -> None:
        super().__init__(domain, given, code.unordered, cells)
        self.lines = code.lines
        self._cells: dict[int, AnyCell] = {}
        self._knowledge = BlockKnowledge(code.blocks)
        self.block_order = self._knowledge.ordered

    def cells(self) -> dict[int, int]:
        """Return the addresses of the cells, with their widths in bits."""
        return {place: cell.bits for place, cell in self._cells.items()}

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """See `GlobalMemory.load`."""
        if self._synchronises(address, mask, thread, line):
            return self._synchronise(lambda old: old, address, bits, mask, thread, epoch_of_all(epoch), line)
        self._note_other_access(epoch, line, stores=False)
        return super().load(address, bits, mask, thread, epoch, line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        self._note_other_access(epoch, line, stores=True)
        super().store(address, value, mask, thread, epoch, line)

    @abstractmethod
    def _note_other_access(self, epoch: Epoch, line: int, *, stores: bool) -> None:
        """A load or a store that does not synchronise follows.  Raises Unsupported where none may."""

    @abstractmethod
    def _new_cell(self, place: int, bits: int, line: int) -> AnyCell:
        """Return the cell at an address, before the launch.  Raises Unsupported if its content is not given."""

    def _cell(self, place: int, bits: int, line: int) -> AnyCell:
        """Return the cell at an address.  Raises Unsupported for another width than before."""
        cell = self._cells.get(place)
        if cell is None:
            cell = self._cells[place] = self._new_cell(place, bits, line)
        if cell.bits != bits:
            raise Unsupported(f"a {self.cell_name} is accessed in several widths", line)
        return cell


class WithoutComputedAddresses(SynchronisedMemory):
    """Global memory in which no access has a computed address."""

    def gather(self, *arguments: object, **keywords: object) -> Value:
        """See `GlobalMemory.gather`: not modelled in such a run."""
        raise Unsupported(f"a load from a computed address in a launch with {self.cell_name}s")

    def scatter(self, *arguments: object, **keywords: object) -> None:
        """See `GlobalMemory.scatter`: not modelled in such a run."""
        raise Unsupported(f"a store at a computed address in a launch with {self.cell_name}s")

    def copied(self, *arguments: object, **keywords: object) -> Value:
        """See `GlobalMemory.copied`: not modelled in such a run."""
        raise Unsupported(f"a copy from a computed address in a launch with {self.cell_name}s")
