"""Execution of a kernel of many programs on bit patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.kernels import KernelText
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import Program
from bitwise_bench.adversary.scopes import SCOPES
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.concrete import LANES_PER_BATCH, checked_outputs, machine_for, run_until_valid
from bitwise_core.execution.domains.bits import BitsDomain
from bitwise_core.execution.executor import MAXIMUM_STEPS, Executor
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.memory.bit_memory import BitsMemory, BufferContents, bytes_after
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.values.floats.finiteness import non_finite_lanes
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import FloatFormat, Operation, nan_of


@dataclass(frozen=True, slots=True)
class Executed:
    """The results of programs: for each one its bytes, of shape (samples, bytes), and which samples count.

    A sample is one thread of one block.  `allowed` is None where all samples count.  `nans` holds the samples in which
    an operation of the program had a NaN among its operands or as its result; where lanes exchange values, in one lane
    of the block.  `notes` are the assumptions of the execution.
    """

    results: tuple[Array, ...]
    allowed: tuple[Array | None, ...]
    nans: tuple[Array, ...]
    notes: tuple[str, ...] = ()


class _ObservingDomain(BitsDomain):
    """Bit patterns, with records of lanes.

    `violated`: those in which an operation violated finiteness; `nans`: those in which one had a NaN as an operand or
    as its result.
    """

    violated: Array
    nans: Array

    def floating(self, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        """See `BitsDomain.floating`."""
        result = super().floating(operation, operands, properties)
        for value, form in zip((result, *operands), (operation.result, *operation.operands), strict=True):
            if isinstance(form, FloatFormat) and isinstance(value, np.ndarray):
                self.nans |= self._of_lanes(nan_of(value, form))
        self.violated |= self._of_lanes(non_finite_lanes(operation, operands, result))
        return result

    def _of_lanes(self, found: bool | Array) -> bool | Array:
        """Return what was found in each lane; in contributions to elements, which have no lane, it counts for all."""
        if isinstance(found, bool):
            return found
        alike = all(one in (1, other) for one, other in zip(found.shape, self.nans.shape, strict=True))
        return found if alike else np.full_like(self.nans, found.any())


class _RecordingMemory(BitsMemory):
    """Global memory that keeps, with each store, the lanes recorded since the store before it."""

    def __init__(self, domain: _ObservingDomain, buffers: BufferContents, names: Mapping[int, str]) -> None:
        super().__init__(domain, buffers, names)
        self.own = domain
        self.lanes: dict[int, tuple[Array, Array]] = {}

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `BitsMemory.store`."""
        super().store(address, value, mask, thread, epoch, line)
        stored = active_values(address, mask)
        if not stored.size:
            return
        self.lanes[int(stored.flat[0])] = self.own.violated.copy(), self.own.nans.copy()
        self.own.violated[:] = False
        self.own.nans[:] = False


def execute(programs: Sequence[Program], language: Language, blocks: int, seed: int, *, finite: bool) -> Executed:
    """Run programs on drawn inputs, in one kernel.  Raises Unsupported."""
    kernel = language.kernel(programs)
    contents = language.inputs(kernel, blocks, seed, finite=finite)
    return run(kernel, language, blocks, contents, finite=finite)


def run(
    kernel: KernelText,
    language: Language,
    blocks: int,
    contents: Mapping[str, Array],
    *,
    finite: bool,
    options: Options = SCOPES["launch"].options,
) -> Executed:
    """Run a kernel of many programs on these input bytes.  Raises Unsupported."""
    launch = kernel.launch(blocks)
    prepared = prepare(Source("kernel", kernel.text, launch), language.arch, options)
    before = {
        name: contents[name] if name in contents else np.zeros(kernel.bytes_of(name, blocks), dtype=np.uint8)
        for name in launch.buffers()
    }
    numbers = {name: index + 1 for index, name in enumerate(sorted(before))}
    names = {number: name for name, number in numbers.items()}
    by_number = {numbers[name]: each for name, each in before.items()}
    buffers = BufferContents([by_number])
    support = language.arch.bits
    assert support is not None
    units = support.units
    recorded: dict[tuple[str, int], Array] = {}
    notes: dict[str, None] = {}

    def attempt(granule: int, watched: frozenset[int]) -> BitsMemory:
        nonlocal notes
        domain = _ObservingDomain(buffers, support.functions, units)
        memory = _RecordingMemory(domain, buffers, names)
        memory.watched, notes = watched, domain.notes
        per_batch = max(1, LANES_PER_BATCH // prepared.threads)
        recorded.clear()
        for start in range(0, blocks, per_batch):
            batch = np.arange(start, min(blocks, start + per_batch))
            domain.violated, domain.nans = np.zeros((2, len(batch), prepared.threads), dtype=bool)
            memory.lanes = {}
            machine = machine_for(prepared, memory, numbers, batch, granule)
            Executor(prepared.program, machine, [MAXIMUM_STEPS]).start()
            for address, masks in memory.lanes.items():
                buffer = names[address >> POINTER_SHIFT]
                slot = (address & ((1 << POINTER_SHIFT) - 1)) // kernel.slot_bytes(buffer) % kernel.stores[buffer]
                every = recorded.setdefault((buffer, slot), np.zeros((2, blocks, prepared.threads), dtype=bool))
                every[:, batch] |= np.stack(masks)
        return memory

    memory = run_until_valid(prepared.arch.granule(prepared.kernel), attempt)
    checked_outputs(memory, frozenset())
    after = bytes_after(memory, [by_number])[0]
    found = {names[number]: each for number, each in after.items()}
    results, allowed, nans = [], [], []
    for place in kernel.places:
        rows = found[place.buffer].reshape(blocks, kernel.stores[place.buffer], kernel.threads, place.size)
        results.append(rows[:, place.slot].reshape(blocks * kernel.threads, place.size))
        masks = recorded.get((place.buffer, place.slot), np.zeros((2, blocks, kernel.threads), dtype=bool))
        if place.crosses:
            masks = np.broadcast_to(masks.any(axis=2, keepdims=True), masks.shape)
        violated, nan = masks.reshape(2, -1)
        allowed.append(~violated if finite else None)
        nans.append(nan)
    return Executed(tuple(results), tuple(allowed), tuple(nans), tuple(notes))
