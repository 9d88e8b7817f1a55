"""tcgen05: matrix instructions of one thread over tiles in shared and tensor memory, and accesses to tensor memory.

Source: PTX ISA 8.8, "TensorCore 5th Generation Family Instructions".
Instructions take effect when they are issued.  Their accesses are those of asynchronous agents: the matrix pipeline of
the issuing thread, and the loads and the stores of a warp.  An access whose completion the issuing warp has not waited
for is a race with every conflicting one.  The pipeline executes multiplications with one accumulator and one shape in
the order of issue, and each after the copies before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitwise_core.assembly.module import Address, Immediate, Instruction, Kernel, Operand, Vector, once_a_kernel
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.assumptions import PIPELINE_IN_ORDER
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect, InstructionInfo, Operands
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import accessed_cells, detector_cells, write_shared
from bitwise_core.execution.memory.cluster_memory import agent_arrives_in_cluster, use_in_cluster
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.addresses.shared import own_offset
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import (
    active_lane_count,
    blocks_of_mask,
    for_each_place,
    issuers_and_receivers,
    require_pairs,
    uniform_offset,
)
from bitwise_nvidia_ptx.opcodes.copies.mbarriers import count_arrivals, initialised_mbarrier, mbarrier_at
from bitwise_nvidia_ptx.opcodes.matrices.matrix_sync import registers_in
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_value
from bitwise_nvidia_ptx.opcodes.warp import has_whole_warps
from bitwise_nvidia_sm100 import work_stealing
from bitwise_nvidia_sm100.collector_buffers import CollectorUse, collect, collector_use
from bitwise_nvidia_sm100.descriptors import KINDS, Shape, instruction_shape, scale_vector, scaled_shape
from bitwise_nvidia_sm100.issued_numbers import (
    distinct_rows,
    issuing_thread,
    known_numbers,
    numbers_of_blocks,
    require_known,
)
from bitwise_nvidia_sm100.pending_loads import is_after_loads
from bitwise_nvidia_sm100.products import Product, matrix_step
from bitwise_nvidia_sm100.row_shifts import shift_step
from bitwise_nvidia_sm100.scaled_kinds import SCALED_KINDS
from bitwise_nvidia_sm100.shared_copies import copy_step
from bitwise_nvidia_sm100.tensor_memory.accesses import loaded, stored
from bitwise_nvidia_sm100.tensor_memory.column_values import same_of_threads
from bitwise_nvidia_sm100.tensor_memory.memory import tensor_memory
from bitwise_nvidia_sm100.tensor_memory.places import (
    ALLOCATION,
    LANES,
    LOADS,
    NAME,
    PIPELINE,
    STORES,
    fragment,
    race_cells,
)

TABLE = OpcodeTable()
work_stealing.declare(TABLE)


_GROUPS = frozenset({"cta_group::1", "cta_group::2"})

_REDUCING = Operands(writes=(0, 1))
"""The registers that tcgen05.ld.red loads, and the one of their extremum."""


def tensor_info(instruction: Instruction) -> InstructionInfo:
    """Return what tcgen05 reads and writes: only loads write registers."""
    parts = instruction.opcode.split(".")
    verb = parts[1] if len(parts) > 1 else ""
    if parts[1:3] == ["ld", "red"]:
        return _REDUCING.info(instruction, Effect.LOAD | Effect.CROSS_LANE)
    if verb == "ld":
        return DESTINATION_FIRST.info(instruction, Effect.LOAD | Effect.CROSS_LANE)
    if verb in ("fence", "wait", "relinquish_alloc_permit"):
        return NO_DESTINATION.info(instruction, Effect.CROSS_LANE)
    found = Effect.LOAD | Effect.STORE | Effect.CROSS_LANE
    if not {"cta_group::2", "multicast::cluster"}.isdisjoint(parts):
        found |= Effect.CLUSTER
    return NO_DESTINATION.info(instruction, found)


@TABLE.opcode("tcgen05", operands=tensor_info)
def tensor_core(instruction: Instruction, context: Context) -> Step:
    """tcgen05 of a block or of a pair of blocks, except for its sparse products."""
    parts = instruction.opcode.split(".")[1:]
    if parts in (["fence::before_thread_sync"], ["fence::after_thread_sync"]):
        return _no_operation
    if parts in (["wait::ld", "sync", "aligned"], ["wait::st", "sync", "aligned"]):
        return _wait(LOADS if parts[0] == "wait::ld" else STORES)
    if parts[:4] == ["ld", "red", "sync", "aligned"]:
        return _reduce(instruction, context, parts[4:])
    if parts[:3] in (["ld", "sync", "aligned"], ["st", "sync", "aligned"]) and parts[-1] == "b32":
        return _move(instruction, context, parts[0] == "ld", parts[3:-1])
    verb = parts.pop(0)
    if parts[:2] == ["ws", "cta_group::1"] and verb == "mma":
        verb = f"{verb}.{parts.pop(0)}"
    if parts and parts[0] in _GROUPS:
        _check_one_group(instruction, context)
        found = _of_group(instruction, context, verb, parts[1:], parts[0] == "cta_group::2")
        if found is not None:
            return found
    raise UnknownInstruction(instruction)


@once_a_kernel
def _lines_of_groups(kernel: Kernel, opcodes: OpcodeTable) -> dict[str, int]:
    """Return the .cta_group qualifiers of a kernel, each with the line of the first instruction that has it."""
    found: dict[str, int] = {}
    for each in kernel.instructions:
        if each.opcode.startswith("tcgen05."):
            for group in _GROUPS.intersection(each.opcode.split(".")):
                found.setdefault(group, each.line)
    return found


def _check_one_group(instruction: Instruction, context: Context) -> None:
    """Raise UnknownInstruction for a kernel whose instructions have different .cta_group qualifiers."""
    (own,) = _GROUPS.intersection(instruction.opcode.split("."))
    for group, line in _lines_of_groups(context.kernel, context.arch.opcodes).items():
        if group != own:
            raise UnknownInstruction(instruction, f"has .{own}, and the instruction of line {line} .{group}")


def _of_group(instruction: Instruction, context: Context, verb: str, rest: Sequence[str], of_pair: bool) -> Step | None:
    """Return the step of an instruction with a .cta_group, None for modifiers that are not modelled.

    `rest` are the modifiers after it.  `of_pair`: .cta_group::2, which works on the tensor memory of two blocks.
    """
    if verb == "alloc" and rest in (["sync", "aligned", "shared::cta", "b32"], ["sync", "aligned", "b32"]):
        return _allocate(instruction, of_pair)
    if verb == "dealloc" and rest == ["sync", "aligned", "b32"]:
        return _release(instruction, of_pair)
    if verb == "relinquish_alloc_permit" and rest == ["sync", "aligned"]:
        return _give_up_permit
    if verb == "commit" and rest[:1] == ["mbarrier::arrive::one"]:
        if rest[1:] in (["b64"], ["shared::cluster", "b64"]):
            return _commit(instruction)
        if rest[1:] in (["multicast::cluster", "b64"], ["shared::cluster", "multicast::cluster", "b64"]):
            return _commit_to_blocks(instruction)
    if verb == "cp":
        return copy_step(instruction, rest, of_pair)
    if verb == "shift" and rest == ["down"]:
        return shift_step(instruction, of_pair)
    if verb in ("mma", "mma.ws") and rest:
        form = _form(rest[0].removeprefix("kind::"), rest[1:], of_pair=of_pair, weight_stationary=verb == "mma.ws")
        return None if form is None else _multiply(instruction, context, form)
    return None


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of a multiplication: its kind, the number of block scales of a row (0 for none), and its options."""

    kind: str
    scales: int
    of_pair: bool
    weight_stationary: bool
    use: CollectorUse

    @property
    def k(self) -> int:
        """The number of products of an element."""
        return SCALED_KINDS[self.kind].k if self.scales else KINDS[self.kind].k

    def shape(self, descriptor: int) -> Shape:
        """Return what a descriptor states.  Raises Unsupported."""
        if self.scales:
            return scaled_shape(self.kind, self.scales, descriptor, of_pair=self.of_pair)
        return instruction_shape(self.kind, descriptor, of_pair=self.of_pair, weight_stationary=self.weight_stationary)


def _form(kind: str, modifiers: Sequence[str], *, of_pair: bool, weight_stationary: bool) -> _Form | None:
    """Return the form that the modifiers after a kind state, None for modifiers that are not modelled."""
    rest = [each for each in modifiers if not each.startswith("collector::")]
    use = collector_use([each for each in modifiers if each not in rest], weight_stationary=weight_stationary)
    if use is None:
        return None
    if kind in KINDS and not rest:
        return _Form(kind, 0, of_pair, weight_stationary, use)
    if kind in SCALED_KINDS and rest[:1] == ["block_scale"] and len(rest) < 3 and not weight_stationary:
        vector = scale_vector(kind, "".join(rest[1:]))
        return None if vector is None else _Form(kind, vector, of_pair, weight_stationary, use)
    return None


def _no_operation(machine: Machine) -> None:
    return None


def _warps(machine: Machine, value: Array | None = None) -> Iterator[tuple[Array, Array, Array]]:
    """Yield blocks whose active threads and numbers agree, with these threads and numbers.

    `value` holds a number of each thread, which the lanes of a warp share.  Yields boolean arrays of the shapes
    (blocks,) and (threads,), and numbers of the shape (threads,).  Raises Unsupported for a part of a warp.
    """
    require_known(machine)
    if not has_whole_warps(machine) or machine.threads % machine.warp:
        raise Unsupported("an instruction on tensor memory runs in a part of a warp")
    active = machine.active()
    numbers = np.zeros((1, 1), dtype=np.int64) if value is None else value.astype(np.int64)
    keyed = np.where(active, np.broadcast_to(numbers, active.shape), -1)
    for row in distinct_rows(keyed[active.any(axis=1)]):
        if (row.reshape(-1, machine.warp) != row[:: machine.warp, None]).any():
            raise Unsupported("an operand of an instruction on tensor memory differs between the lanes of a warp")
        yield (keyed == row).all(axis=1), row >= 0, np.where(row >= 0, row, 0)


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


def _require_both(machine: Machine, rows: Array) -> None:
    """Raise Unsupported unless the blocks of each pair execute an instruction together."""
    require_pairs(machine)
    if (rows[::2] != rows[1::2]).any():
        raise Unsupported("one block of a pair allocates or releases tensor memory without the other")


def _allocate(instruction: Instruction, of_pair: bool) -> Step:
    target, count = instruction.operands

    def step(machine: Machine) -> None:
        memory, number = tensor_memory(machine), _count_of(machine, count)
        outer = machine.mask
        for rows, threads, _ in _warps(machine):
            if len(_warp_threads(machine, threads)) != 1:
                raise Unsupported("several warps of a block allocate tensor memory at once")
            if of_pair:
                _require_both(machine, rows)
            first = memory.allocate(number, rows)
            if of_pair and (first[::2] != first[1::2]).any():
                raise Unsupported("the blocks of a pair allocate different columns of their tensor memories")
            address = machine.known(address_of(machine, target))
            if address is None:
                raise DataDependent("the address of tensor memory is stored at a computed address")
            leader = np.arange(machine.threads) == int(np.argmax(threads))
            machine.mask = rows[:, None] & leader[None]
            try:
                place = own_offset(machine, address)
                write_shared(machine, place, first)
                for races, cells, _ in detector_cells(machine, accessed_cells(machine, place), 32, machine.mask):
                    races.excuse_loads(cells)
            finally:
                machine.mask = outer

    return step


def _count_of(machine: Machine, operand: Operand) -> int:
    number = known_numbers(machine, operand, 32)
    if (number != number.flat[0]).any():
        raise Unsupported("the number of columns of an allocation differs between threads")
    return int(number.flat[0])


def _release(instruction: Instruction, of_pair: bool) -> Step:
    place, count = instruction.operands

    def step(machine: Machine) -> None:
        memory, number = tensor_memory(machine), _count_of(machine, count)
        for rows, threads, addresses in _warps(machine, known_numbers(machine, place, 32)):
            warps = _warp_threads(machine, threads)
            if len(warps) != 1:
                raise Unsupported("several warps of a block release tensor memory at once")
            if of_pair:
                _require_both(machine, rows)
            first, agent = int(addresses[warps[0]]), (ALLOCATION, warps[0])
            memory.release(first, number, rows)
            cells = race_cells(np.arange(LANES)[:, None], np.arange(first, first + number)[None])
            for races in machine.races.of_blocks(rows):
                races.agent_accesses(NAME, cells, AgentAccess(agent, warps[0], writes=True))
                races.wait_for_agent(agent, warps[0])

    return step


def _give_up_permit(machine: Machine) -> None:
    require_known(machine)
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
    registers = registers_in(operands[0])
    if len(registers) != places[0].shape[1]:
        raise UnknownInstruction(instruction, f"needs {places[0].shape[1]} registers")
    agent = LOADS if loads else STORES
    after_loads = not loads and is_after_loads(instruction, context.kernel, context.arch.opcodes)

    def step(machine: Machine) -> None:
        memory = tensor_memory(machine)
        outer = machine.mask
        for rows, threads, addresses in _warps(machine, known_numbers(machine, place, 32)):
            lanes, columns = _places(machine, shape, places, threads, addresses, split)
            last = columns + 1 if packed else columns
            memory.require_allocated(np.stack([columns[threads], last[threads]]), rows)
            if not loads and shape == "16x32bx2":
                for thread in _warp_threads(machine, threads):
                    _check_halves(lanes[thread:], columns[thread:], packed=packed)
            values = [] if loads else [machine.read_bits(each, 32) for each in registers]
            before: list[Array] = []
            for thread in _warp_threads(machine, threads):
                own = np.arange(thread, thread + machine.warp)
                cells = race_cells(lanes[own], np.stack([columns[own], last[own]]))
                repeats = any(
                    np.array_equal(lanes[each], lanes[own])
                    and np.array_equal(columns[each], columns[own])
                    and same_of_threads(values, each, own)
                    for each in before
                )
                before += [] if loads else [own]
                if after_loads:
                    for races in machine.races.of_blocks(rows):
                        races.wait_for_agent((LOADS, thread), thread)
                access = AgentAccess((agent, thread), thread, writes=not loads, repeats=repeats)
                for races in machine.races.of_blocks(rows):
                    races.agent_accesses(NAME, cells, access)
            if not loads:
                stored(memory, values, lanes, columns, threads, packed, rows)
                continue
            found = loaded(memory, lanes, columns, threads, packed, rows)
            machine.mask = None if rows.all() and threads.all() else rows[:, None] & threads[None]
            try:
                for register, value in zip(registers, found, strict=True):
                    machine.write(register, value)
            finally:
                machine.mask = outer

    return step


def _reduce(instruction: Instruction, context: Context, modifiers: Sequence[str]) -> Step:
    """tcgen05.ld.red: {shape}.x{count}.{min,max}{.abs}{.NaN}.f32 of the registers that each thread loads."""
    shape, *options = modifiers
    if context.arch.name == "sm_100":
        raise UnknownInstruction(instruction, f"does not exist on {context.arch.name}")
    if shape != "32x32b" or len(options) < 3 or options[-1] != "f32" or options[1] not in ("min", "max"):
        raise UnknownInstruction(instruction)
    if options[2:-1] not in ([], ["abs"], ["NaN"], ["abs", "NaN"]) or len(instruction.operands) != 3:
        raise UnknownInstruction(instruction)
    loaded, extremum, place = instruction.operands
    opcode = f"tcgen05.ld.sync.aligned.{shape}.{options[0]}.b32"
    load = _move(
        replace(instruction, opcode=opcode, operands=(loaded, place)),
        context,
        loads=True,
        modifiers=[shape, options[0]],
    )
    meaning = operation(f"{options[1]}{'.nan' if 'NaN' in options else ''}.fp32")
    magnitude = operation("abs.fp32") if "abs" in options else None

    def step(machine: Machine) -> None:
        load(machine)
        found: Value | None = None
        for each in registers_in(loaded):
            value = machine.read_bits(each, 32)
            if magnitude is not None:
                value = machine.domain.floating(magnitude, [value])
            found = value if found is None else machine.domain.floating(meaning, [found, value])
        assert found is not None
        machine.write(registers_in(extremum)[0], found)

    return step


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


def _check_halves(lanes: Array, columns: Array, *, packed: bool) -> None:
    """Raise Unsupported where the halves of a warp, of whose threads these are the places, store to one place."""
    distance = abs(int(columns[0, 0]) - int(columns[16, 0]))
    if lanes[0, 0] == lanes[16, 0] and distance < columns.shape[1] * (2 if packed else 1):
        raise Unsupported("two threads of a warp store to one place of tensor memory, and nothing says which one last")


def _commit(instruction: Instruction) -> Step:
    target = instruction.operands[0]
    if len(instruction.operands) != 1:
        raise UnknownInstruction(instruction)

    def commit(machine: Machine) -> None:
        thread = issuing_thread(machine, "tcgen05.commit")
        barrier = mbarrier_at(machine, target)
        _begin_completion(machine, thread)
        for races in machine.races.acting(machine.mask):
            races.agent_arrives((PIPELINE, thread), thread, barrier.address, in_order=_in_order(machine))
        count_arrivals(machine, barrier, active_lane_count(machine), 1, (True, False), instruction.line)

    def step(machine: Machine) -> None:
        for_each_place(machine, (target,), lambda: commit(machine))

    return step


def _in_order(machine: Machine) -> bool:
    return machine.domain.assumes(PIPELINE_IN_ORDER)


def _begin_completion(machine: Machine, thread: int) -> None:
    """The thread of each active block that executes tcgen05.commit issues it."""
    for races in machine.races.of_blocks(machine.active_blocks()):
        races.begin_completion(thread)


def _commit_to_blocks(instruction: Instruction) -> Step:
    """tcgen05.commit to the memory barriers at one offset of the blocks of a cluster that a mask of ranks gives."""
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction)
    target, ranks = instruction.operands

    def commit(machine: Machine) -> None:
        thread = issuing_thread(machine, "tcgen05.commit")
        address = uniform_offset(machine, target, "an mbarrier")
        masks = blocks_of_mask(machine, ranks)
        agent, outer, active = (PIPELINE, thread), machine.mask, machine.active()
        where = issuers_and_receivers(machine, masks, machine.active_blocks(), "tcgen05.commit")
        _begin_completion(machine, thread)
        for issuer, receiver, rows in where:
            machine.mask = active & rows[:, None]
            try:
                use_in_cluster(machine, address, receiver)
            finally:
                machine.mask = outer
            receiving = np.roll(rows, receiver - issuer)
            barrier = initialised_mbarrier(machine, address, receiving)
            agent_arrives_in_cluster(machine, agent, thread, (address, receiver), rows, in_order=_in_order(machine))
            count_arrivals(machine, barrier, receiving.astype(np.int64), 1, (True, False), instruction.line)

    def step(machine: Machine) -> None:
        for_each_place(machine, (target,), lambda: commit(machine))

    return step


def _multiply(instruction: Instruction, context: Context, form: _Form) -> Step:
    """tcgen05.mma{.ws} [d], a, b, idesc{, [scales of a], [scales of b]}{, lanes}, enable-input-d{, last}.

    D = A B, plus D if enabled.  `lanes` is a vector of words whose bits are 1 for the lanes that are not written.
    `last` is for tcgen05.mma.ws a descriptor of the columns of B that count as zeros, and else an exponent: D is
    multiplied by 2**-last before it is added, in a sum whose arithmetic nobody has published.
    """
    operands, of_pair = list(instruction.operands), form.of_pair
    masked = operands.pop(4) if not form.scales and isinstance(operands[4], Vector) else None
    last = operands.pop() if not form.scales and len(operands) == 6 else None
    zeros, exponent = (last, 0) if form.weight_stationary else (None, _input_exponent(instruction, form, last))
    if len(operands) != (7 if form.scales else 5) or any(isinstance(each, Vector) for each in operands):
        raise UnknownInstruction(instruction, "has operands that are not modelled")
    masks = () if masked is None else registers_in(masked)
    if masks and (form.weight_stationary or len(masks) != (8 if of_pair else 4)):
        raise UnknownInstruction(instruction, f"has a mask of {len(masks)} words")
    if form.kind == "i8" and context.arch.name != "sm_100":
        raise UnknownInstruction(instruction, f"does not exist on {context.arch.name}")
    d, a, b, shape_of, *scales, enable = operands
    if not all(isinstance(each, Address) for each in (d, *scales)):
        raise UnknownInstruction(instruction)
    of_tensor_memory = isinstance(a, Address)
    steps: dict[tuple[Shape, int], MmaStep] = {}
    sizes = [(d, 32), (a, 32 if of_tensor_memory else 64), (b, 64), (shape_of, 32), *((each, 32) for each in scales)]

    def step(machine: Machine) -> None:
        thread = issuing_thread(machine, "matrix instruction")
        if zeros is not None:
            _check_all_columns(known_numbers(machine, zeros, 64))
        words = [known_numbers(machine, each, 32) for each in masks]
        predicate = (
            np.full((1, 1), bool(enable.value)) if isinstance(enable, Immediate) else known_numbers(machine, enable, 1)
        )
        found = [known_numbers(machine, each, bits) for each, bits in sizes]
        for numbers, here in numbers_of_blocks(machine, (*found, predicate, *words)):
            (accumulator, left, right, descriptor), more = numbers[:4], numbers[4:]
            (of_a, of_b), more = (more[:2], more[2:]) if scales else ((0, 0), more)
            adds, disabled = more[0], more[1:]
            if of_pair and any(disabled):
                raise Unsupported("a matrix instruction of a pair that does not write all lanes is not modelled")
            shape = form.shape(descriptor)
            key = shape, exponent if adds else 0
            if key not in steps:
                steps[key] = matrix_step(*key, form.k, context)
            product = Product(machine, thread, here, form.k, shape, of_pair, steps[key])
            rows = product.of_tensor_memory(accumulator, left, of_a) if of_tensor_memory else product.rows(left, of_a)
            columns = product.columns(right, of_b)
            kept, place = (columns, right) if form.weight_stationary else (rows, (left, of_tensor_memory))
            collect(machine, thread, here, form.use, (place, shape), kept)
            product.accumulate(
                accumulator, rows, columns, adds=bool(adds), of_lanes=of_tensor_memory, disabled=_lanes_of(disabled)
            )

    return step


def _input_exponent(instruction: Instruction, form: _Form, operand: Operand | None) -> int:
    """Return the immediate scale-input-d, 0 without one.  Raises UnknownInstruction for any other operand."""
    if operand is None:
        return 0
    found = literal_value(operand, instruction) if isinstance(operand, Immediate) else -1
    if form.kind not in ("f16", "tf32") or not 0 <= found <= 15:
        raise UnknownInstruction(instruction, "has operands that are not modelled")
    return found


def _lanes_of(words: Sequence[int]) -> Array | None:
    """Return the lanes (boolean) whose bits are set in words of 32 bits, None for none of them."""
    if not any(words):
        return None
    bits = np.array(words, dtype="<u4").view(np.uint8)
    return np.unpackbits(bits, bitorder="little").astype(bool)


def _check_all_columns(descriptors: Array) -> None:
    """Raise Unsupported unless a zero-column mask is empty and shifts no columns: bits 39 and 56 to 61 are 0."""
    if (descriptors.astype(np.uint64) & np.uint64(1 << 39 | 0x3F << 56)).any():
        raise Unsupported("tcgen05.mma.ws that takes columns of B as zeros, or shifts them, is not modelled")
