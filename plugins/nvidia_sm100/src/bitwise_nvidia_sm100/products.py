"""Multiplications of tcgen05.mma: their operands in shared and tensor memory, and their accumulators.

Source: PTX ISA 8.8, "tcgen05.mma" and "Block Scaling".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bitwise_core.execution.architecture import Context
from bitwise_core.execution.assumptions import PIPELINE_IN_ORDER
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.cluster_memory import agent_detectors
from bitwise_core.execution.races.agent_accesses import AgentAccess
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.matrix_steps.matrix_chains import shape_of
from bitwise_core.execution.values.matrix_steps.mma_steps import MmaStep, OperandVectors
from bitwise_core.execution.values.packing import extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_nvidia_ptx.opcodes.common import FORMATS
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import require_pairs
from bitwise_nvidia_ptx.opcodes.matrices.matrix_sync import (
    ELEMENT_BITS,
    cuts_accumulator,
    integer_products,
    step_name,
    units_of,
)
from bitwise_nvidia_ptx.opcodes.matrices.matrix_tiles import (
    TileCells,
    tile_addresses,
    tile_cells,
    tile_values,
    tile_vectors,
)
from bitwise_nvidia_sm100.descriptors import Scales, Shape, check_unit, element_places, tile_layout
from bitwise_nvidia_sm100.matrix_units import SAME_STEPS, SHARED, TCGEN05
from bitwise_nvidia_sm100.scaled_kinds import SCALED_KINDS
from bitwise_nvidia_sm100.tensor_memory.column_values import (
    differ_in_pairs,
    first_copies,
    joined_vectors,
    of_both_blocks,
)
from bitwise_nvidia_sm100.tensor_memory.memory import Accumulator, TensorMemory, tensor_memory
from bitwise_nvidia_sm100.tensor_memory.places import LANES, NAME, PIPELINE, QUARTER, race_cells

OPERAND_READ, COPY, SHIFT, ORDERED_RESULT = 1, 2, 3, 4
"""The kinds of work that read A or scales, copy, shift rows, and write D where all multiplications of a thread are in
order (`PIPELINE_IN_ORDER`); those of multiplications else are `_accumulation`."""
_BYTES = "bytes"
"""The form of operand vectors of packed elements: they have no format."""
_SCALE_OF_ONE = 127
"""The pattern of 1 as a ue8m0 scale."""


def matrix_step(shape: Shape, exponent: int, k: int, context: Context) -> MmaStep:
    """Return the step of a multiplication, of which D is multiplied by 2**-`exponent` before it is added."""
    scales = shape.scales
    options, family, own = " satfinite" if shape.saturates else "", TCGEN05, ""
    if scales is not None:
        options, family = f" {scales.form} block{scales.block}", f"{TCGEN05}.{scales.kind}"
    elif shape.packed:
        options, family = f" ue8m0 block{k}", f"{TCGEN05}.f8f6f4"  # a scale of 1
    elif not exponent and shape.left == shape.right and f"{shape.result} {shape.left} k{k}" in SAME_STEPS:
        family, own = SHARED, TCGEN05
    if exponent:
        options += f" input/{2**exponent}"
    types = shape.result, shape.left, shape.right, shape.result
    name = step_name(family, k, *types, context.arch.name, options)
    return MmaStep(
        name,
        positive_zero=shape.result != "s32",
        commutes=shape.left == shape.right,
        integers=integer_products(k, *types[:3], clamps=shape.saturates),
        cuts=cuts_accumulator(name, context),
        opaque=shape.packed or exponent != 0,
        units=units_of(context),
        own_name=own and step_name(own, k, *types, context.arch.name, options),
    )


class Product:
    """One multiplication that a thread of some blocks issues.

    `of_pair`: a thread of the even block of a pair issues it.  Each block then holds half of the rows of A and of D,
    and half of the columns of B, of which it takes all.
    """

    def __init__(
        self,
        machine: Machine,
        thread: int,
        blocks: Array,
        k: int,
        shape: Shape,
        of_pair: bool,
        step: MmaStep,
    ) -> None:
        self.machine, self.thread, self.k, self.shape, self.step = machine, thread, k, shape, step
        self.memory: TensorMemory = tensor_memory(machine)
        self.of_pair, self.issuers, self.blocks = of_pair, blocks, blocks
        if of_pair:
            self.blocks = pairs_of(machine, blocks, "a matrix instruction")
        self.own_rows = shape.m // 2 if of_pair else shape.m
        self.parts = LANES // self.own_rows if of_pair or shape.weight_stationary else 1
        """How many parts of the columns of D different lanes hold."""
        self.in_order = machine.domain.assumes(PIPELINE_IN_ORDER)

    def _access(self, *, writes: bool, kind: int, after: frozenset[int] = frozenset()) -> AgentAccess:
        if self.in_order:
            after |= {OPERAND_READ, ORDERED_RESULT}
        return AgentAccess((PIPELINE, self.thread), self.thread, writes, kind, after)

    def _read(self, cells: Array) -> None:
        """Record that the pipeline reads these cells of shared memory, in both blocks of a pair."""
        access = self._access(writes=False, kind=OPERAND_READ)
        for races, own in agent_detectors(self.machine, self.issuers, access, of_pairs=self.of_pair):
            races.agent_reads(cells, own)

    def rows(self, descriptor: int, scales: int = 0) -> OperandVectors:
        """Return the rows of A in shared memory; `scales` is the address of its scales, if it has any."""
        shape = self.shape
        if not shape.packed:
            return self._tile(descriptor, self.own_rows, shape.left, not shape.transposes_a)
        values = self._bytes(descriptor, self.own_rows, shape.left, not shape.transposes_a)
        if shape.scales is None:
            return self._scaled_by_one(values)
        return self._scaled(values, scales, shape.scales, shape.scales.left_byte)

    def columns(self, descriptor: int, scales: int = 0) -> OperandVectors:
        """Return the columns of B; `scales` is the address of its scales, if it has any."""
        shape = self.shape
        if not shape.packed:
            if self.of_pair:
                return self._columns_of_pair(descriptor)
            return self._tile(descriptor, shape.n, shape.right, not shape.transposes_b)
        own = shape.n // 2 if self.of_pair else shape.n
        values = self._bytes(descriptor, own, shape.right, not shape.transposes_b)
        if self.of_pair:
            values = of_both_blocks(values, self.machine.blocks)
        if shape.scales is None:
            return self._scaled_by_one(values)
        return self._scaled(values, scales, shape.scales, shape.scales.right_byte, of_both=self.of_pair)

    def _tile(self, descriptor: int, rows: int, element: str, k_major: bool) -> OperandVectors:
        size, form = ELEMENT_BITS[element] // 8, FORMATS.get(element, element)
        tile = self._tile_cells(descriptor, rows, size, k_major)
        if self.of_pair:  # the other block may be inactive
            return self.machine.domain.operand_vectors(tile_values(self.machine, tile), form)
        return tile_vectors(self.machine, tile, form)

    def _tile_cells(self, descriptor: int, rows: int, size: int, k_major: bool) -> TileCells:
        layout = tile_layout(descriptor)
        check_unit(layout, wide=size == 4 and not k_major)
        addresses = tile_addresses(layout, rows, self.k, size, k_major)
        tile = tile_cells(self.machine, addresses, size)
        self._read(tile.touched)
        return tile

    def _columns_of_pair(self, descriptor: int) -> OperandVectors:
        """Return all columns of B in each block: those of the even block, and then those of the odd one."""
        shape, machine = self.shape, self.machine
        size = ELEMENT_BITS[shape.right] // 8
        tile = self._tile_cells(descriptor, shape.n // 2, size, not shape.transposes_b)
        half = machine.domain.operand_vectors(tile_values(machine, tile), FORMATS.get(shape.right, shape.right))
        even = np.arange(machine.blocks) // 2 * 2
        return half.of_blocks(even).concatenated([half.of_blocks(even + 1)])

    def _bytes(self, descriptor: int, rows: int, element: str, k_major: bool) -> SymbolicVector:
        """Return the bytes of packed elements of each row, words of shape (2, blocks, rows, bytes)."""
        padded = self.shape.scales is None or self.shape.scales.kind == "mxf8f6f4"
        layout = tile_layout(descriptor)
        check_unit(layout, wide=False)
        addresses = element_places(layout, rows, element, self.k, k_major, padded)
        tile = tile_cells(self.machine, addresses, 1)
        self._read(tile.touched)
        return tile_values(self.machine, tile)

    def _scaled_by_one(self, elements: SymbolicVector) -> OperandVectors:
        """Return the vectors of rows of bytes without block scales: with one scale of 1."""
        one = L.constant_vector(np.full(elements.words.shape[1:3], _SCALE_OF_ONE, dtype=np.uint8))
        return self.machine.domain.operand_vectors(joined_vectors(elements, [one]), _BYTES)

    def _scaled(
        self, elements: SymbolicVector, address: int, scales: Scales, byte: int, *, of_both: bool = False
    ) -> OperandVectors:
        """Return the vectors of rows of bytes and their scales, which tensor memory holds at an address.

        Row r has its scales in lane r % 32 and column r // 32, from a byte on.  Each quarter of the lanes holds a copy.
        `of_both`: so do both blocks of a pair.
        """
        rows = elements.words.shape[2]
        if address >> 16:
            raise Unsupported(f"the scales of a matrix instruction begin at lane {address >> 16} of tensor memory")
        columns = (address & 0xFFFF) + np.arange(-(-rows // QUARTER))
        self._record(np.arange(LANES), columns, self._access(writes=False, kind=OPERAND_READ, after=frozenset({COPY})))
        found = []
        for place in range(scales.count):
            parts = [extract(self.memory.column(number), 8 * (byte + place), 8) for number in columns.tolist()]
            found.append(first_copies(parts, rows))
            if of_both and differ_in_pairs(found[-1], self.blocks):
                raise Unsupported("the blocks of a pair do not hold the same scales of B")
        return self.machine.domain.operand_vectors(joined_vectors(elements, found), _BYTES)

    def _lanes(self, address: int) -> Array:
        """Return the lanes of D at an address, and of A: those of 64 rows may be half of each quarter."""
        first = address >> 16
        fills_lanes = self.own_rows * self.parts == LANES
        if first not in ((0,) if fills_lanes else (0, 16)):
            raise Unsupported(f"a matrix of {self.shape.m} rows begins at lane {first} of tensor memory")
        return first + row_lanes(LANES if fills_lanes else self.shape.m)

    def of_tensor_memory(self, accumulator: int, address: int, scales: int = 0) -> OperandVectors:
        """Return the rows of A in tensor memory, whose elements are packed along k; `scales` as for `rows`.

        Where several parts of D are in different lanes, there is one row for each lane, instead of one for each row.
        """
        if self.shape.packed and self.shape.left not in ELEMENT_BITS:
            raise Unsupported(f"an operand of {self.shape.left} in tensor memory is not modelled")
        if self.shape.transposes_a:
            raise Unsupported("a transposed operand in tensor memory does not exist")
        if self.of_pair and self.own_rows != LANES:
            raise Unsupported(f"an operand of {self.shape.m} rows in the tensor memories of a pair is not modelled")
        bits = ELEMENT_BITS[self.shape.left]
        if accumulator >> 16 != address >> 16:
            raise Unsupported("the operands of a matrix instruction begin at different lanes of tensor memory")
        lanes, per_column = self._lanes(address), 32 // bits
        columns = (address & 0xFFFF) + np.arange(self.k // per_column)
        self._record(lanes, columns, self._access(writes=False, kind=OPERAND_READ, after=frozenset({COPY, SHIFT})))
        elements = self.memory.elements_at(int(columns[0]), columns.size, lanes, self.blocks, bits)
        flags = elements.flags if isinstance(elements.flags, int) else elements.flags.transpose(0, 2, 1)
        words = elements.words.transpose(0, 1, 3, 2)
        whole = SymbolicVector(bits, words, flags)
        if self.shape.scales is not None:
            return self._scaled(whole, scales, self.shape.scales, self.shape.scales.left_byte)
        if self.shape.packed:
            return self._scaled_by_one(whole)
        return self.machine.domain.operand_vectors(whole, FORMATS.get(self.shape.left, self.shape.left))

    def _record(self, lanes: Array, columns: Array, access: AgentAccess) -> None:
        self.memory.require_allocated(columns, self.blocks)
        cells = race_cells(lanes[:, None], columns[None])
        for races, own in agent_detectors(self.machine, self.issuers, access, of_pairs=self.of_pair):
            races.agent_accesses(NAME, cells, own)

    def accumulate(
        self,
        address: int,
        left: OperandVectors,
        right: OperandVectors,
        *,
        adds: bool,
        of_lanes: bool,
        disabled: Array | None = None,
    ) -> None:
        """Compute D at an address: it is the sum of products, and of its old content if the product `adds`.

        `of_lanes`: A was in tensor memory.  `disabled` (boolean): the lanes that are not written.
        """
        shape, memory, lanes = self.shape, self.memory, self._lanes(address)
        row, column = self._elements(of_lanes=of_lanes)
        if disabled is not None:
            kept = np.flatnonzero(~disabled[lanes])
            lanes, row = lanes[kept], row[:, kept]
            column = column if column.shape[1] == 1 else column[:, kept]
            if not lanes.size:
                return
        columns = (address & 0xFFFF) + np.arange(len(column))
        kind = ORDERED_RESULT if self.in_order else _accumulation(address, shape)
        self._record(lanes, columns, self._access(writes=True, kind=kind, after=frozenset({kind, COPY})))
        bits, first = 16 if shape.result == "f16" else 32, address & 0xFFFF
        old = memory.results_at(first, len(column), lanes, self.blocks, bits) if adds else _zero(bits)
        new = self.machine.domain.mma_step(self.step, old, left.take(row), right.take(column))
        blocks, full = shape_of(new)[1], (len(column), lanes.size)
        if shape_of(new)[2:] != full:
            new = SymbolicVector(bits, np.broadcast_to(new.words, (2, blocks, *full)), new.flags)
        memory.hold(Accumulator(first, lanes, self.blocks, new))

    def _elements(self, *, of_lanes: bool) -> tuple[Array, Array]:
        """Return the own rows of A and the columns of D that the columns and lanes of tensor memory hold.

        They have the shapes (1, lanes) and (columns, 1 or lanes).  With 64 own rows of a pair of blocks, the second
        half of the lanes holds the second half of the columns of D (layout B of "Data Path Layout Organization" of the
        PTX ISA).  tcgen05.mma.ws splits the columns in the same way in 2 with 64 rows, and in 4 with 32 rows (layouts E
        and G; CUTLASS, `tmem_frg_ws`).
        """
        n = self.shape.n
        if self.parts == 1:
            return np.arange(self.own_rows)[None], np.arange(n)[:, None]
        lane = np.arange(LANES)
        part, row = np.divmod(lane, self.own_rows)
        count = n // self.parts
        return (lane if of_lanes else row)[None], np.arange(count)[:, None] + part[None] * count


def pairs_of(machine: Machine, issuers: Array, what: str) -> Array:
    """Return the blocks of the pairs whose even blocks issue an instruction (boolean arrays).  Raises Unsupported."""
    require_pairs(machine)
    if issuers[1::2].any():
        raise Unsupported(f"the block of a pair with the odd rank issues {what}")
    return np.repeat(issuers[::2], 2)


def _accumulation(address: int, shape: Shape) -> int:
    """Return the kind of work of a multiplication.

    Those with one accumulator, one type, one shape, one layout of D and one kind of block scales have one.
    """
    types = ("f16", "f32", "s32").index(shape.result)
    scaled = 0 if shape.scales is None else 1 + list(SCALED_KINDS).index(shape.scales.kind)
    layout = int(shape.weight_stationary)
    return 1 << 60 | scaled << 50 | address << 20 | types << 18 | layout << 16 | shape.m // 16 << 10 | shape.n


@lru_cache(maxsize=4)
def row_lanes(m: int) -> Array:
    """Return the lanes of the rows of a matrix from its first lane on: of 64 rows, 16 are in each quarter."""
    row = np.arange(m)
    return row if m == LANES else row // 16 * 32 + row % 16


def _zero(bits: int) -> SymbolicVector:
    zero = L.constant_vector(np.zeros((1, 1), dtype=L.UNSIGNED[bits]))
    return SymbolicVector(bits, zero.words.reshape(2, 1, 1, 1), zero.flags)
