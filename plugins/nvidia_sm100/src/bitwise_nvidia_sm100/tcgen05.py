"""tcgen05: matrix instructions of one thread over tiles in shared and tensor memory, and accesses to tensor memory.

Source: PTX ISA 8.8, "TensorCore 5th Generation Family Instructions".
Instructions take effect when they are issued.  Their accesses are those of asynchronous agents: the matrix pipeline of
the issuing thread, and the loads and the stores of a warp.  An access whose completion the issuing warp has not waited
for is a race with every conflicting one.  The pipeline executes multiplications with one accumulator and one shape in
the order of issue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from bitwise_core.assembly.module import Address, Immediate, Instruction, Operand, Vector
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import write_shared
from bitwise_core.execution.memory.agent_accesses import AgentAccess
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_ptx.opcodes.common import FORMATS
from bitwise_nvidia_ptx.opcodes.issuing_thread import (
    active_lane_count,
    for_each_place,
    require_known_condition,
    value_of_issuing_thread,
)
from bitwise_nvidia_ptx.opcodes.matrix_sync import ELEMENT_BITS, integer_products, registers_in, step_name
from bitwise_nvidia_ptx.opcodes.matrix_tiles import tile_addresses, tile_cells, tile_vectors
from bitwise_nvidia_ptx.opcodes.mbarriers import count_arrivals, mbarrier_at
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_value
from bitwise_nvidia_ptx.opcodes.warp import has_whole_warps
from bitwise_nvidia_ptx.shared_addresses import own_offset
from bitwise_nvidia_sm100.descriptors import KINDS, Shape, instruction_shape, tile_layout
from bitwise_nvidia_sm100.pending_loads import early_use
from bitwise_nvidia_sm100.tensor_memory import (
    LANES,
    NAME,
    TensorMemory,
    fragment,
    loaded,
    race_cells,
    stacked,
    stored,
    tensor_memory,
    unstacked,
)

TABLE = OpcodeTable()
FAMILY = "tcgen05"
_PIPELINE, _LOADS, _STORES, _ALLOCATION = range(1, 5)
"""The agents: the pipeline of a thread, and the loads, the stores and the allocations of a warp."""
_OPERAND_READ = 1
"""The kind of work that reads A; those of multiplications are `_accumulation`."""


def tensor_info(instruction: Instruction) -> InstructionInfo:
    """Return what tcgen05 reads and writes: only loads write registers."""
    verb = instruction.opcode.split(".")[1] if "." in instruction.opcode else ""
    if verb == "ld":
        return DESTINATION_FIRST.info(instruction, Effect.LOAD | Effect.CROSS_LANE)
    if verb in ("fence", "wait", "relinquish_alloc_permit"):
        return NO_DESTINATION.info(instruction, Effect.CROSS_LANE)
    return NO_DESTINATION.info(instruction, Effect.LOAD | Effect.STORE | Effect.CROSS_LANE)


@TABLE.opcode("tcgen05", operands=tensor_info)
def tensor_core(instruction: Instruction, context: Context) -> Step:
    """tcgen05.{alloc,dealloc,relinquish_alloc_permit,ld,st,wait,fence,mma,commit} of one block."""
    parts = instruction.opcode.split(".")[1:]
    if any(each.startswith("cta_group::") and each != "cta_group::1" for each in parts):
        raise UnknownInstruction(instruction, "works on the tensor memory of two blocks, which is not modelled")
    if parts in (["fence::before_thread_sync"], ["fence::after_thread_sync"]):
        return _no_operation
    if parts in (["wait::ld", "sync", "aligned"], ["wait::st", "sync", "aligned"]):
        return _wait(_LOADS if parts[0] == "wait::ld" else _STORES)
    if parts[:4] == ["alloc", "cta_group::1", "sync", "aligned"] and parts[4:] in (["shared::cta", "b32"], ["b32"]):
        return _allocate(instruction)
    if parts == ["dealloc", "cta_group::1", "sync", "aligned", "b32"]:
        return _release(instruction)
    if parts == ["relinquish_alloc_permit", "cta_group::1", "sync", "aligned"]:
        return _give_up_permit
    if parts[:3] in (["ld", "sync", "aligned"], ["st", "sync", "aligned"]) and parts[-1] == "b32":
        return _move(instruction, context, parts[0] == "ld", parts[3:-1])
    if parts[:3] == ["commit", "cta_group::1", "mbarrier::arrive::one"] and parts[3:] in (
        ["b64"],
        ["shared::cluster", "b64"],
    ):
        return _commit(instruction)
    if parts[:2] == ["mma", "cta_group::1"] and len(parts) in (3, 4):
        kind = parts[2].removeprefix("kind::")
        if kind in KINDS and parts[3:] in ([], ["collector::a::discard"], ["collector::a::fill"]):
            return _multiply(instruction, context, kind)
    raise UnknownInstruction(instruction)


def _no_operation(machine: Machine) -> None:
    return None


def _require_known(machine: Machine) -> None:
    require_known_condition(machine, "an instruction on tensor memory", of_blocks=True)


def _warps(machine: Machine, value: Array | None = None) -> Iterator[tuple[Array, Array, Array]]:
    """Yield blocks whose active threads and numbers agree, with these threads and numbers.

    `value` holds a number of each thread, which the lanes of a warp share.  Yields boolean arrays of the shapes
    (blocks,) and (threads,), and numbers of the shape (threads,).  Raises Unsupported for a part of a warp.
    """
    _require_known(machine)
    if not has_whole_warps(machine) or machine.threads % machine.warp:
        raise Unsupported("an instruction on tensor memory runs in a part of a warp")
    active = machine.active()
    numbers = np.zeros((1, 1), dtype=np.int64) if value is None else value.astype(np.int64)
    keyed = np.where(active, np.broadcast_to(numbers, active.shape), -1)
    for row in np.unique(keyed[active.any(axis=1)], axis=0):
        if (row.reshape(-1, machine.warp) != row[:: machine.warp, None]).any():
            raise Unsupported("an operand of an instruction on tensor memory differs between the lanes of a warp")
        yield (keyed == row).all(axis=1), row >= 0, np.where(row >= 0, row, 0)


def _known_numbers(machine: Machine, operand: Operand, bits: int) -> Array:
    """Return the numbers of an address in brackets, or of another operand.  Raises DataDependent."""
    of_address = isinstance(operand, Address)
    value = machine.known(address_of(machine, operand) if of_address else machine.read_bits(operand, bits))
    if value is None:
        raise DataDependent("an operand of an instruction on tensor memory depends on data")
    return value


def _warp_threads(machine: Machine, threads: Array) -> list[int]:
    """Return the first threads of the warps of these threads (a boolean array)."""
    found: list[int] = (np.flatnonzero(threads[:: machine.warp]) * machine.warp).tolist()
    return found


def _wait(agent: int) -> Step:
    def step(machine: Machine) -> None:
        for rows, threads, _ in _warps(machine):
            for races in machine.races.of_blocks(rows):
                for thread in _warp_threads(machine, threads):
                    races.wait_for_agent((agent, thread), thread)

    return step


def _allocate(instruction: Instruction) -> Step:
    target, count = instruction.operands

    def step(machine: Machine) -> None:
        memory, number = tensor_memory(machine), _count_of(machine, count)
        outer = machine.mask
        for rows, threads, _ in _warps(machine):
            if len(_warp_threads(machine, threads)) != 1:
                raise Unsupported("several warps of a block allocate tensor memory at once")
            first = memory.allocate(number, rows)
            address = machine.known(address_of(machine, target))
            if address is None:
                raise DataDependent("the address of tensor memory is stored at a computed address")
            leader = np.arange(machine.threads) == int(np.argmax(threads))
            machine.mask = rows[:, None] & leader[None]
            try:
                write_shared(machine, own_offset(machine, address), first)
            finally:
                machine.mask = outer

    return step


def _count_of(machine: Machine, operand: Operand) -> int:
    number = _known_numbers(machine, operand, 32)
    if (number != number.flat[0]).any():
        raise Unsupported("the number of columns of an allocation differs between threads")
    return int(number.flat[0])


def _release(instruction: Instruction) -> Step:
    place, count = instruction.operands

    def step(machine: Machine) -> None:
        memory, number = tensor_memory(machine), _count_of(machine, count)
        for rows, threads, addresses in _warps(machine, _known_numbers(machine, place, 32)):
            warps = _warp_threads(machine, threads)
            if len(warps) != 1:
                raise Unsupported("several warps of a block release tensor memory at once")
            first, agent = int(addresses[warps[0]]), (_ALLOCATION, warps[0])
            memory.release(first, number, rows)
            cells = race_cells(np.arange(LANES)[:, None], np.arange(first, first + number)[None])
            for races in machine.races.of_blocks(rows):
                races.agent_accesses(NAME, cells, AgentAccess(agent, warps[0], writes=True))
                races.wait_for_agent(agent, warps[0])

    return step


def _give_up_permit(machine: Machine) -> None:
    _require_known(machine)
    memory = tensor_memory(machine)
    memory.permitted = memory.permitted & ~machine.active_blocks()


def _move(instruction: Instruction, context: Context, loads: bool, modifiers: Sequence[str]) -> Step:
    """tcgen05.ld and st: {shape}.x{count}{.pack::16b or .unpack::16b}.b32."""
    packing = "pack::16b" if loads else "unpack::16b"
    count = re.fullmatch(r"x(\d+)", modifiers[1]) if len(modifiers) > 1 else None
    packed = list(modifiers[2:]) == [packing]
    if count is None or (modifiers[2:] and not packed):
        raise UnknownInstruction(instruction)
    shape, operands = modifiers[0], list(instruction.operands)
    places = fragment(shape, int(count[1]), packed)
    place = operands.pop(1 if loads else 0)
    split = literal_value(operands.pop(1 if loads else 0), instruction) if shape == "16x32bx2" else 0
    if places is None or len(operands) != 1:
        raise UnknownInstruction(instruction)
    registers, line = registers_in(operands[0]), instruction.line
    if len(registers) != places[0].shape[1]:
        raise UnknownInstruction(instruction, f"needs {places[0].shape[1]} registers")
    early = early_use(instruction, context.kernel, context.arch.opcodes) if loads else None
    if early is not None:
        raise UnknownInstruction(
            instruction, f"writes registers that line {early} may use before tcgen05.wait::ld has waited for them"
        )
    agent = _LOADS if loads else _STORES

    def step(machine: Machine) -> None:
        memory = tensor_memory(machine)
        outer = machine.mask
        for rows, threads, addresses in _warps(machine, _known_numbers(machine, place, 32)):
            lanes, columns = _places(machine, shape, places, threads, addresses, split)
            last = columns + 1 if packed else columns
            memory.require_allocated(np.stack([columns[threads], last[threads]]), rows)
            for thread in _warp_threads(machine, threads):
                own = slice(thread, thread + machine.warp)
                cells = race_cells(lanes[own], np.stack([columns[own], last[own]]))
                access = AgentAccess((agent, thread), thread, writes=not loads)
                for races in machine.races.of_blocks(rows):
                    races.agent_accesses(NAME, cells, access)
            if not loads:
                values = [machine.read_bits(each, 32) for each in registers]
                stored(memory, values, lanes, columns, threads, packed, rows)
                continue
            found = loaded(memory, lanes, columns, threads, packed)
            machine.mask = None if rows.all() and threads.all() else rows[:, None] & threads[None]
            try:
                for register, value in zip(registers, found, strict=True):
                    machine.write(register, value)
            finally:
                machine.mask = outer

    def with_line(machine: Machine) -> None:
        try:
            step(machine)
        except Unsupported as error:
            error.line = error.line or line
            raise

    return with_line


def _places(
    machine: Machine, shape: str, places: tuple[Array, Array], threads: Array, addresses: Array, split: int
) -> tuple[Array, Array]:
    """Return the lanes and columns that each thread accesses, shape (threads, registers).  Raises Unsupported."""
    number = np.arange(machine.threads)
    if shape == "16x32bx2":
        addresses = addresses + np.where(number % 32 >= 16, split, 0)
    lane, column = addresses >> 16, addresses & 0xFFFF
    quarter = number // 32 % 4 * 32
    if (lane - lane % 32 != quarter)[threads].any():
        raise Unsupported("a warp accesses lanes of tensor memory outside of its quarter")
    if (lane % (32 if shape == "32x32b" else 16))[threads].any():
        raise Unsupported(f"an access of the shape {shape} begins at lane {int(lane[threads].max())} of tensor memory")
    within = number % 32
    return lane[:, None] + places[0][within], column[:, None] + places[1][within]


def _issuing_thread(machine: Machine, what: str) -> int:
    """Return the thread that issues an instruction in every active block.  Raises Unsupported for several."""
    _require_known(machine)
    threads = np.flatnonzero(machine.active_threads())
    if threads.size != 1:
        raise Unsupported(f"several threads issue one {what}")
    return int(threads[0])


def _commit(instruction: Instruction) -> Step:
    target = instruction.operands[0]
    if len(instruction.operands) != 1:
        raise UnknownInstruction(instruction)

    def commit(machine: Machine) -> None:
        thread = _issuing_thread(machine, "tcgen05.commit")
        barrier = mbarrier_at(machine, target)
        for races in machine.races.acting(machine.mask):
            races.agent_arrives((_PIPELINE, thread), thread, barrier.address)
        count_arrivals(machine, barrier, active_lane_count(machine), 1, (True, False), instruction.line)

    def step(machine: Machine) -> None:
        for_each_place(machine, (target,), lambda: commit(machine))

    return step


def _multiply(instruction: Instruction, context: Context, kind: str) -> Step:
    """tcgen05.mma [d], a, b, idesc, enable-input-d: D = A B, plus D if the predicate is true."""
    if len(instruction.operands) != 5 or isinstance(instruction.operands[4], Vector):
        raise UnknownInstruction(instruction, "has operands that are not modelled")
    if kind == "i8" and context.arch.name != "sm_100":
        raise UnknownInstruction(instruction, f"does not exist on {context.arch.name}")
    d, a, b, form, enable = instruction.operands
    if not isinstance(d, Address):
        raise UnknownInstruction(instruction)
    of_tensor_memory = isinstance(a, Address)

    def step(machine: Machine) -> None:
        thread = _issuing_thread(machine, "matrix instruction")
        rows = machine.active_blocks()
        predicate = (
            np.full((1, 1), bool(enable.value)) if isinstance(enable, Immediate) else _known_numbers(machine, enable, 1)
        )
        found = [
            _known_numbers(machine, each, bits)
            for each, bits in ((d, 32), (a, 32 if of_tensor_memory else 64), (b, 64), (form, 32))
        ]
        own = [value_of_issuing_thread(machine, each)[:, 0].astype(np.uint64) for each in (*found, predicate)]
        table = np.stack([np.broadcast_to(each, (machine.blocks,)) for each in own], axis=1)
        for chosen in np.unique(table[rows], axis=0):
            here = rows & (table == chosen).all(axis=1)
            numbers = [int(each) for each in chosen]
            shape = instruction_shape(kind, numbers[3])
            product = _Product(machine, thread, here, context.arch.name, KINDS[kind].k, shape)
            left = product.of_tensor_memory(numbers[0], numbers[1]) if of_tensor_memory else product.rows(numbers[1])
            product.accumulate(numbers[0], left, product.columns(numbers[2]), bool(numbers[4]))

    return step


class _Product:
    """One multiplication that a thread of some blocks issues."""

    def __init__(self, machine: Machine, thread: int, blocks: Array, arch: str, k: int, shape: Shape) -> None:
        self.machine, self.thread, self.blocks, self.k, self.shape = machine, thread, blocks, k, shape
        self.memory: TensorMemory = tensor_memory(machine)
        options = " satfinite" if shape.saturates else ""
        types = shape.result, shape.left, shape.right, shape.result
        self.step = MmaStep(
            step_name(FAMILY, k, *types, arch, options),
            positive_zero=shape.result != "s32",
            commutes=shape.left == shape.right,
            integers=integer_products(k, *types[:3], clamps=shape.saturates),
        )

    def _access(self, *, writes: bool, kind: int, after: frozenset[int] = frozenset()) -> AgentAccess:
        return AgentAccess((_PIPELINE, self.thread), self.thread, writes, kind, after)

    def rows(self, descriptor: int) -> OperandVectors:
        """Return the rows of A in shared memory."""
        return self._tile(descriptor, self.shape.m, self.shape.left, not self.shape.transposes_a)

    def columns(self, descriptor: int) -> OperandVectors:
        """Return the columns of B."""
        return self._tile(descriptor, self.shape.n, self.shape.right, not self.shape.transposes_b)

    def _tile(self, descriptor: int, rows: int, element: str, k_major: bool) -> OperandVectors:
        machine, size = self.machine, ELEMENT_BITS[element] // 8
        addresses = tile_addresses(tile_layout(descriptor), rows, self.k, size, k_major)
        cells, touched = tile_cells(machine, addresses, size)
        for races in machine.races.of_blocks(self.blocks):
            races.agent_reads(touched, self._access(writes=False, kind=_OPERAND_READ))
        return tile_vectors(machine, addresses, cells, size, FORMATS.get(element, element))

    def _lanes(self, address: int) -> Array:
        """Return the lanes of the rows of A or D at an address: those of 64 rows are half of each quarter."""
        first = address >> 16
        if first not in ((0,) if self.shape.m == LANES else (0, 16)):
            raise Unsupported(f"a matrix of {self.shape.m} rows begins at lane {first} of tensor memory")
        return first + row_lanes(self.shape.m)

    def of_tensor_memory(self, accumulator: int, address: int) -> OperandVectors:
        """Return the rows of A in tensor memory, whose elements are packed along k."""
        bits = ELEMENT_BITS[self.shape.left]
        if accumulator >> 16 != address >> 16:
            raise Unsupported("the operands of a matrix instruction begin at different lanes of tensor memory")
        lanes, per_column = self._lanes(address), 32 // bits
        columns = (address & 0xFFFF) + np.arange(self.k // per_column)
        self._record(lanes, columns, self._access(writes=False, kind=_OPERAND_READ))
        parts = [
            extract(self.memory.column(number), low * bits, bits)
            for number in columns.tolist()
            for low in range(per_column)
        ]
        elements = _of_lanes(stacked(parts), lanes)
        flags = elements.flags if isinstance(elements.flags, int) else elements.flags.transpose(0, 2, 1)
        words = elements.words.transpose(0, 1, 3, 2)
        form = FORMATS.get(self.shape.left, self.shape.left)
        return self.machine.domain.operand_vectors(SymbolicVector(bits, words, flags), form)

    def _record(self, lanes: Array, columns: Array, access: AgentAccess) -> None:
        self.memory.require_allocated(columns, self.blocks)
        cells = race_cells(lanes[:, None], columns[None])
        for races in self.machine.races.of_blocks(self.blocks):
            races.agent_accesses(NAME, cells, access)

    def accumulate(self, address: int, left: OperandVectors, right: OperandVectors, adds: bool) -> None:
        """Compute D at an address: it is the sum of products, and of its old content if the product `adds`."""
        shape, memory, lanes = self.shape, self.memory, self._lanes(address)
        columns = (address & 0xFFFF) + np.arange(shape.n)
        kind = _accumulation(address, shape)
        self._record(lanes, columns, self._access(writes=True, kind=kind, after=frozenset({kind})))
        bits = 16 if shape.result == "f16" else 32
        before = [extract(memory.column(number), 0, bits) for number in columns.tolist()]
        whole = stacked(before)
        old = _of_lanes(whole, lanes) if adds else _zero(bits)
        row, column = np.arange(shape.m)[None], np.arange(shape.n)[:, None]
        new = self.machine.domain.mma_step(self.step, old, left.take(row), right.take(column))
        for index, each in unstacked(_replaced(whole, new, lanes, self.blocks)).items():
            content = each if bits == 32 else concat([each, poison(16)])
            memory.columns[int(columns[index])] = content


def _accumulation(address: int, shape: Shape) -> int:
    """Return the kind of work of a multiplication: those with one accumulator, one type and one shape have one."""
    types = ("f16", "f32", "s32").index(shape.result)
    return 1 << 60 | address << 20 | types << 18 | shape.m // 16 << 10 | shape.n


@lru_cache(maxsize=4)
def row_lanes(m: int) -> Array:
    """Return the lanes of the rows of a matrix from its first lane on: of 64 rows, 16 are in each quarter."""
    row = np.arange(m)
    return row if m == LANES else row // 16 * 32 + row % 16


def _zero(bits: int) -> SymbolicVector:
    zero = L.constant_vector(np.zeros((1, 1), dtype=L.UNSIGNED[bits]))
    return SymbolicVector(bits, zero.words.reshape(2, 1, 1, 1), zero.flags)


def _of_lanes(value: SymbolicVector, lanes: Array) -> SymbolicVector:
    """Return some lanes of a value with words of the shape (2, blocks, columns, lanes)."""
    if lanes.size == LANES:
        return value
    flags = value.flags if isinstance(value.flags, int) else value.flags[..., lanes]
    return SymbolicVector(value.bits, value.words[..., lanes], flags)


def _replaced(whole: SymbolicVector, new: SymbolicVector, lanes: Array, blocks: Array) -> SymbolicVector:
    """Return a value of all lanes in which some lanes of some blocks are replaced."""
    count, rows = whole.words.shape[2], max(whole.words.shape[1], new.words.shape[1])
    shape = (rows, count, lanes.size)
    words = np.broadcast_to(new.words, (2, *shape))
    flags = new.flags if isinstance(new.flags, int) else np.broadcast_to(new.flags, shape)
    if lanes.size == LANES and blocks.all():
        return SymbolicVector(new.bits, words, flags)
    rows = rows if blocks.all() else len(blocks)
    full = (rows, count, LANES)
    chosen = np.zeros((rows, LANES), dtype=bool)
    chosen[np.ix_(np.ones(rows, dtype=bool) if blocks.all() else blocks, lanes)] = True
    spread = np.zeros(LANES, dtype=np.int64)
    spread[lanes] = np.arange(lanes.size)
    moved = SymbolicVector(
        new.bits,
        np.broadcast_to(words[..., spread], (2, *full)),
        flags if isinstance(flags, int) else flags[..., spread],
    )
    found = L.blend(
        np.broadcast_to(chosen[:, None], full),
        moved,
        SymbolicVector(whole.bits, np.broadcast_to(whole.words, (2, *full)), whole.flags),
    )
    return found
