"""Configurations of the matrix-product kernels of warpgroups: tiles, stages, roles and layouts, and what they imply.

A kernel has one producer, which copies the operands of each stage by TMA, or warpgroups that gather them without tensor
maps, and consumers, which multiply them.  No field affects the bits, except those of a gathering: each output element
has its own accumulator, which takes k in the order of the stages.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_nvidia_sm90.gemm.kernels.block_scales import BLOCK, BlockScales
from bitwise_nvidia_sm90.gemm.kernels.finish import MOST_OPERANDS, Finish, are_early

WARPGROUP = 128
"""Threads."""
STAGE_BYTES = 128
"""The least bytes of k in a stage: the width of the widest swizzle."""
DEPTHS = (1, 2, 4)
"""The bytes of k in a stage, in units of STAGE_BYTES."""
SHARED_BYTES = 227 * 1024
"""The dynamic shared memory of a block."""
RESERVED_BYTES = 1024
"""The shared memory that each block has besides."""
ROWS = 64
"""The rows of the output of one instruction of a warpgroup."""
OPERAND_BYTES = {"fp16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1}
OUTPUT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "e4m3": 1, "e5m2": 1}
_LARGEST_CLUSTER = 8
"""Blocks."""
_BARRIER_BYTES, _SCALE_BYTES = 8, 4
_REGISTERS = 65536
"""The registers of a multiprocessor."""
_OTHER_REGISTERS = 56
"""The registers of a thread for anything but sums, where all threads have equally many."""
_OTHERS_OF_ALTERNATING = 30
"""The registers of a consumer for anything but sums, totals and scales, where two sets of sums alternate."""
_OTHERS_OF_SCALED = 50
"""The registers of a consumer for anything but sums, totals and scales, where sums are multiplied by scales."""
COORDINATE_BYTES = 16
"""A copy through a tensor map starts at a multiple of this in a line; any other start is an illegal instruction.

Source: https://github.com/triton-lang/triton/pull/9112.
"""
STORE_BYTES = ROWS * STAGE_BYTES
"""A buffer for a part of the output that is being stored, in whole periods of the widest swizzle."""
STORE_BUFFERS = 2
"""The buffers of a consumer, where there is room for all."""


class TileError(ValueError):
    """No kernel has this configuration; the message names the field."""


@dataclass(frozen=True, slots=True)
class OperandTile:
    """The tile of one operand in shared memory: `rows` of the output, `k` values of k, `size` bytes per value.

    With `k_major`, the values of a row are contiguous: the tile is chunks of 128 bytes of k, each with one line for
    each row.  Otherwise the rows of one k are contiguous: the tile is chunks of `width` rows, each with one line for
    each k.  Each of `sharers`
    blocks copies an equal part of each chunk to all of them; where there are no equal parts, they copy stages in turn.
    """

    rows: int
    k: int
    size: int
    k_major: bool
    sharers: int

    @property
    def width(self) -> int:
        """The number of elements of a line: of k, or of rows."""
        return STAGE_BYTES // self.size if self.k_major else widest_line(self.rows, self.size)

    @property
    def swizzle(self) -> int:
        """The bytes of a line, which is the width of the swizzle."""
        return self.width * self.size

    @property
    def lines(self) -> int:
        """The lines of a chunk: rows, or values of k."""
        return self.rows if self.k_major else self.k

    @property
    def chunks(self) -> int:
        """The number of chunks of a tile."""
        return (self.k if self.k_major else self.rows) // self.width

    @property
    def parts(self) -> int:
        """The number of parts of a chunk, which are copied by one block each: whole periods of the widest swizzle."""
        return 1 if self.lines % (8 * self.sharers) else self.sharers

    @property
    def box(self) -> tuple[int, int]:
        """The lines and the elements of a line of one copy."""
        return self.lines // self.parts, self.width

    @property
    def bytes(self) -> int:
        """The bytes of the tile."""
        return self.rows * self.k * self.size


@dataclass(frozen=True, slots=True)
class Gathering:
    """How `warpgroups` of threads load operands without tensor maps, in the order of packed operands.

    An instruction takes 8 values of k with `instruction_k8`, otherwise 16, and zeros for the rest.  The remainder of a
    slice modulo `short_first` is its first iteration (0: the short iteration is the last one).  `aligned` says for A
    and B whether the address is a multiple of the vectors that are loaded.
    """

    warpgroups: int
    short_first: int
    instruction_k8: bool
    aligned: tuple[bool, bool]

    def is_aligned(self, operand: str) -> bool:
        """Return whether the address of A or of B is aligned."""
        return self.aligned[operand == "B"]

    @property
    def taken(self) -> int:
        """The values of k of an instruction."""
        return 8 if self.instruction_k8 else 16


@dataclass(frozen=True, slots=True)
class WarpgroupTiles:
    """A tile of `block_m` rows and `block_n` columns for each block, in `stages` stages of `depth` x 128 bytes of k.

    `consumers` warpgroups multiply: each a part of the rows of every tile, or with `ping_pong` every second tile alone.
    `cluster` is the number of blocks along m and n that share operands.  `group` is the number of rows
    of tiles of a group, which is computed column by column.  `a_k_major` and `b_k_major` say that the values of k of a
    row of A, and of a column of B, are contiguous.  `store` says how a tile of the output is stored: "map" through a
    tensor map, "columns" through one whose lines are parts of columns, "pairs" two neighbours of a row at once, or
    "elements".  `starts_accumulators`: each stage has its own
    accumulator, which is added to the total in fp32.  `finish` is the epilogue of each sum; `output` is its type.
    `resident` blocks fit on a multiprocessor at once.  `overlap`: the next kernel may start before this one ends.
    With a `gathering`, no operand is copied by TMA.  With `scales`, the sum of each stage is added by fused
    multiply-adds with the scales of its operands.
    """

    block_m: int
    block_n: int
    stages: int
    consumers: int
    ping_pong: bool
    cluster: tuple[int, int]
    group: int
    operands: tuple[str, str]
    output: str
    a_k_major: bool = True
    b_k_major: bool = True
    store: str = "map"
    starts_accumulators: bool = False
    finish: Finish | None = None
    resident: int = 1
    overlap: bool = True
    gathering: Gathering | None = None
    depth: int = 1
    scales: BlockScales | None = None

    @property
    def block_k(self) -> int:
        """The values of k of a stage."""
        return self.depth * STAGE_BYTES // OPERAND_BYTES[self.operands[0]]

    @property
    def a(self) -> OperandTile:
        """The tile of A."""
        size = OPERAND_BYTES[self.operands[0]]
        return OperandTile(self.block_m, self.block_k, size, self.a_k_major, self.cluster[1])

    @property
    def b(self) -> OperandTile:
        """The tile of B."""
        size = OPERAND_BYTES[self.operands[1]]
        return OperandTile(self.block_n, self.block_k, size, self.b_k_major, self.cluster[0])

    @property
    def blocks(self) -> int:
        """The number of blocks of a cluster."""
        return self.cluster[0] * self.cluster[1]

    @property
    def consumer_rows(self) -> int:
        """The rows of the part of a tile that one consumer computes."""
        return self.block_m if self.ping_pong else self.block_m // self.consumers

    @property
    def threads(self) -> int:
        """The threads of a block: the consumers, then the warpgroup of the producer, or those that gather operands."""
        return (self.consumers + (self.gathering.warpgroups if self.gathering else 1)) * WARPGROUP

    @property
    def stores_through_map(self) -> bool:
        """Whether a tile of the output is stored through a tensor map, from shared memory."""
        return self.store in ("map", "columns")

    @property
    def store_columns(self) -> int:
        """The columns of the output that are stored at once: 128 bytes, or as many lines, if the tile has as many."""
        size = OUTPUT_BYTES[self.output]
        if self.store == "columns":
            return min(self.block_n, STORE_BYTES // STAGE_BYTES)
        if self.block_n * size % 32 == 0 and self.block_n * size < STAGE_BYTES:
            return widest_line(self.block_n, size)
        return next(width for width in (STAGE_BYTES, 64, 32) if self.block_n * size >= width) // size

    @property
    def store_offsets(self) -> tuple[int, ...]:
        """The first columns of the parts of a tile that are stored.

        The last part ends with the tile; it may store columns of the part before once more.
        """
        whole = range(0, self.block_n - self.store_columns, self.store_columns)
        return (*whole, self.block_n - self.store_columns)

    @property
    def store_places(self) -> tuple[tuple[int, int], ...]:
        """The first row and column of each part of a consumer's tile that is stored through a map."""
        return tuple((row, column) for row in range(0, self.consumer_rows, ROWS) for column in self.store_offsets)

    @property
    def store_swizzle(self) -> int:
        """The bytes of a row of the output, or of a column, that are stored at once: the width of the swizzle."""
        return STAGE_BYTES if self.store == "columns" else self.store_columns * OUTPUT_BYTES[self.output]

    @property
    def store_box(self) -> tuple[int, int]:
        """The lines and the elements of a line of the part of the output that is stored at once."""
        return (self.store_columns, ROWS) if self.store == "columns" else (ROWS, self.store_columns)

    @property
    def store_buffers(self) -> int:
        """The buffers of a consumer for parts of the output that are being stored: one where more leave no room."""
        if not self.stores_through_map:
            return 0
        return STORE_BUFFERS if self._bytes_with(STORE_BUFFERS) <= shared_bytes_of_block(self.resident) else 1

    def _bytes_with(self, buffers: int) -> int:
        """Return the shared memory of a block whose consumers have this number of buffers for the output."""
        barriers = 2 * self.stages + 2 * self.ping_pong
        barriers += self.consumers * buffers if self.mapped_operand is not None else 0
        stored = self.consumers * buffers * STORE_BYTES
        return self.store_place + stored + self.scale_slots * self.scale_line + barriers * _BARRIER_BYTES

    @property
    def b_place(self) -> int:
        """The offset of the stages of B in shared memory; those of A start at 0."""
        return self.stages * self.a.bytes

    @property
    def store_place(self) -> int:
        """The offset of the buffers of the output."""
        return self.b_place + self.stages * self.b.bytes

    @property
    def maps_scales(self) -> bool:
        """Whether the scales of the rows or of the columns of a stage are copied to shared memory with its operands."""
        return self.maps_row_scales or self.maps_column_scales

    @property
    def maps_row_scales(self) -> bool:
        """Whether the scales of the rows of a stage are copied to shared memory with its operands."""
        return self.scales is not None and self.scales.maps_rows(self.block_m)

    @property
    def maps_column_scales(self) -> bool:
        """Whether the scales of the columns of a stage are copied to shared memory with its operands."""
        return self.scales is not None and self.scales.maps_columns(self.block_n)

    @property
    def scale_line(self) -> int:
        """The bytes of the scales of a stage in shared memory, in whole units of a copy's alignment."""
        return sum(self.scales.line(self.block_m, self.block_n)) if self.scales else 0

    @property
    def scale_slots(self) -> int:
        """The stages whose scales are in shared memory at once.

        With twice the stages of the operands, a warp fences its reads once a round of the ring: the next copy to a slot
        waits for its arrival a round later.  Two consumers of `ping_pong` do not arrive at each other's stages.
        """
        return self.stages if self.ping_pong else 2 * self.stages

    @property
    def scale_place(self) -> int:
        """The offset of the scales of each stage: those of its columns, then those of its rows."""
        return self.store_place + self.consumers * self.store_buffers * STORE_BYTES

    @property
    def row_scale_place(self) -> int:
        """The offset of the scales of the rows of the first stage."""
        return self.scale_place + (self.scales.line(self.block_m, self.block_n)[0] if self.scales else 0)

    @property
    def copied_bytes(self) -> int:
        """The bytes that copies bring to a stage of a block."""
        scales = self.block_n * self.maps_column_scales + self.block_m * self.maps_row_scales
        return self.a.bytes + self.b.bytes + scales * _SCALE_BYTES

    @property
    def full_place(self) -> int:
        """The offset of the barriers that the copies of each stage complete."""
        return self.scale_place + self.scale_slots * self.scale_line

    @property
    def empty_place(self) -> int:
        """The offset of the barriers at which the consumers of each stage arrive."""
        return self.full_place + self.stages * _BARRIER_BYTES

    @property
    def turn_place(self) -> int:
        """The offset of the barriers that let the two consumers of `ping_pong` multiply in turn, one for each."""
        return self.empty_place + self.stages * _BARRIER_BYTES

    @property
    def operand_place(self) -> int:
        """The offset of the barriers that the copies of an epilogue's operand complete, one for each buffer."""
        return self.turn_place + (2 * _BARRIER_BYTES if self.ping_pong else 0)

    @property
    def mapped_operand(self) -> int | None:
        """The operand of the epilogue that is copied through a tensor map, by its index."""
        layouts = () if self.finish is None else self.finish.layouts
        return next((index for index, each in enumerate(layouts) if each.columns == "map"), None)

    @property
    def operands_are_early(self) -> bool:
        """Whether the operands of the epilogue are loaded before the product is computed; not with a gathering."""
        if self.gathering is not None:
            return False
        layouts = () if self.finish is None else self.finish.layouts
        sums = self.consumer_rows * self.block_n // WARPGROUP
        return self.mapped_operand is None and are_early(sums, self.consumers, len(layouts))

    @property
    def shared_bytes(self) -> int:
        """The dynamic shared memory of a block."""
        return self._bytes_with(self.store_buffers)

    @property
    def sums_alternate(self) -> bool:
        """Whether stages with accumulators of their own have two sets of them in turn: where registers suffice.

        A set is then added to the totals while the next stage is multiplied.
        """
        sums = self.consumer_rows * self.block_n // WARPGROUP
        scales = self.scales.registers(self.block_m, self.block_n, self.consumer_rows) if self.scales else 0
        return self.starts_accumulators and 3 * sums + scales + _OTHERS_OF_ALTERNATING <= self.registers[1]

    @property
    def column_parts(self) -> int:
        """The parts of a stage's columns that have two sets of sums in turn, where whole sets do not fit.

        A part is then added to the totals while the next one is multiplied.  With 1, a stage is added after it was
        multiplied, unless `sums_alternate`.
        """
        if self.scales is None or self.sums_alternate or self.resident > 1:
            return 1
        sums, room = self.consumer_rows * self.block_n // WARPGROUP, self.registers[1] - _OTHERS_OF_ALTERNATING
        room -= sums + self.scales.registers(self.block_m, self.block_n, self.consumer_rows)
        return next((each for each in (2, 4) if self.block_n % (8 * each) == 0 and 2 * sums // each <= room), 1)

    @property
    def registers(self) -> tuple[int, int]:
        """The registers of a thread of the producer and of a consumer, which together fit in the register file.

        With a gathering, all threads have equally many.
        """
        if self.resident == 2:
            return 24, 232
        return {1: (40, 232), 2: (40, 232), 3: (32, 160)}[self.consumers]

    def check(self) -> None:
        """Raise TileError unless a kernel has this configuration."""
        _require(1 <= self.consumers <= 3, f"{self.consumers} consumers: there are 1 to 3")
        _require(not self.ping_pong or self.consumers == 2, "ping_pong needs 2 consumers")
        _require(
            self.resident == 1 or (self.resident, self.consumers) == (2, 1) or self.gathering is not None,
            "resident: 1, or 2 with 1 consumer",
        )
        self._check_gathering()
        _require(
            self.block_m > 0 and self.consumer_rows % ROWS == 0 and self.consumer_rows * self._shares() == self.block_m,
            f"block_m {self.block_m}: each consumer needs a multiple of {ROWS} rows",
        )
        _require(
            8 <= self.block_n <= 256 and self.block_n % (8 if self.b_k_major else 16) == 0,
            f"block_n {self.block_n}: a multiple of {8 if self.b_k_major else 16} up to 256",
        )
        _require(self.block_m <= 256, f"block_m {self.block_m}: at most 256")
        _require(
            {*self.cluster} <= {1, 2, 4} and self.blocks <= _LARGEST_CLUSTER,
            f"cluster {self.cluster}: 1, 2 or 4 blocks along m and n, at most {_LARGEST_CLUSTER}",
        )
        _require(
            not self.a.lines % (8 * self.a.parts) and not self.b.lines % (8 * self.b.parts),
            f"cluster {self.cluster}: the parts of a tile are multiples of 8 lines",
        )
        _require(self.group >= 1, f"group {self.group}: at least 1")
        _require(self.stages >= 2, f"{self.stages} stages: at least 2")
        _require(
            self.depth in DEPTHS and (self.depth == 1 or not (self.gathering or self.starts_accumulators)),
            f"depth {self.depth}: 1, 2 or 4, and 1 with a gathering or with an accumulator for each stage",
        )
        needed = self.consumer_rows * self.block_n // WARPGROUP
        if self.starts_accumulators and self.column_parts == 1:
            needed *= 2
        if self.scales is not None:
            self._check_scales(self.scales)
        most = most_accumulators(self.consumers, self.resident, self.gathering.warpgroups if self.gathering else 0)
        if self.scales is not None:
            most = most if self.resident > 1 else self.registers[1] - _OTHERS_OF_SCALED
            most -= self.scales.registers(self.block_m, self.block_n, self.consumer_rows)
        _require(needed <= most, f"{needed} accumulators in a thread: at most {most}")
        needed, most = self.shared_bytes, shared_bytes_of_block(self.resident)
        _require(needed <= most, f"{needed} bytes of shared memory: at most {most}")
        _require(self.store in ("map", "columns", "pairs", "elements"), f"store {self.store}")
        _require(self.output in OUTPUT_BYTES, f"output {self.output}")
        _require(
            self.store != "columns" or OUTPUT_BYTES[self.output] == 2,
            f"output {self.output}: only columns of 16 bits are stored through a map",
        )
        if self.finish is not None:
            _require(self.output == self.finish.output, f"output {self.output}: the epilogue's is {self.finish.output}")
            _require(len(self.finish.layouts) <= MOST_OPERANDS, f"more than {MOST_OPERANDS} operands of an epilogue")
        else:
            _require(OUTPUT_BYTES[self.output] > 1, f"output {self.output}: only epilogues have one of 8 bits")
        mapped = [each for each in (self.finish.layouts if self.finish else ()) if each.columns == "map"]
        _require(
            not mapped
            or (len(mapped) == 1 and self.stores_through_map and mapped[0].size == OUTPUT_BYTES[self.output] == 2),
            "an operand through a tensor map: one, of 16 bits as the output, which is stored through a map",
        )
        _require(
            self.store != "map" or fills_lines(self.block_n, OUTPUT_BYTES[self.output]),
            f"block_n {self.block_n}: a multiple of 32, or at least {STAGE_BYTES}, for a map of 8 bits",
        )
        sizes = {OPERAND_BYTES[each] for each in self.operands}
        _require(len(sizes) == 1, f"operands {self.operands}: one width")
        _require(2 in sizes or (self.a_k_major and self.b_k_major), "operands of 8 bits: k must be contiguous in both")

    def _check_scales(self, scales: BlockScales) -> None:
        _require(self.starts_accumulators and self.block_k == BLOCK, f"scales need an accumulator for each {BLOCK} k")
        _require(self.finish is None, "a product with scales has no epilogue")
        _require({scales.rows, scales.columns} <= {1, BLOCK}, f"rows and columns share a scale of 1 or {BLOCK}")
        _require(
            self.block_n <= BLOCK + scales.common_columns(self.block_n) or scales.columns == 1,
            f"block_n {self.block_n}: the columns of a tile are in at most two blocks of {BLOCK} that share a scale",
        )

    def _check_gathering(self) -> None:
        if self.gathering is None:
            return
        _require(1 <= self.gathering.warpgroups <= 2, f"{self.gathering.warpgroups} warpgroups that gather: 1 or 2")
        _require(self.cluster == (1, 1), f"cluster {self.cluster}: a gathering has none")
        _require(1 <= self.resident <= 4, f"resident {self.resident}: 1 to 4 with a gathering")
        _require(not self.starts_accumulators, "a gathering of operands of 8 bits")
        for name, tile in (("m", self.a), ("n", self.b)):
            _require(
                tile.k_major or tile.width == ROWS,
                f"block_{name} {tile.rows}: a multiple of {ROWS}, to gather an operand whose k is not contiguous",
            )

    def _shares(self) -> int:
        return 1 if self.ping_pong else self.consumers


def most_accumulators(consumers: int, resident: int = 1, gathering: int = 0) -> int:
    """Return the accumulator registers of a thread that leave enough registers for addresses, or for what is gathered.

    `gathering` is the number of warpgroups that gather operands, 0 for one producer.
    """
    if gathering:
        threads = (consumers + gathering) * WARPGROUP * resident
        return max(0, min(255, _REGISTERS // threads // 8 * 8) - _OTHER_REGISTERS)
    return 64 if resident > 1 else {1: 128, 2: 168, 3: 100}[consumers]


def shared_bytes_of_block(resident: int) -> int:
    """Return the dynamic shared memory of a block of which `resident` fit on a multiprocessor."""
    return (SHARED_BYTES + RESERVED_BYTES) // resident // RESERVED_BYTES * RESERVED_BYTES - RESERVED_BYTES


def fills_lines(block_n: int, size: int) -> bool:
    """Return whether parts of a tile of `block_n` columns fill lines that a tensor map stores; they may overlap.

    Parts start at multiples of COORDINATE_BYTES.
    """
    if block_n * size % COORDINATE_BYTES:
        return False
    return block_n * size % 32 == 0 or block_n * size >= (STAGE_BYTES if size == 1 else 32)


def widest_line(elements: int, size: int) -> int:
    """Return the widest line of 128, 64 or 32 bytes, in elements, that divides a number of elements."""
    return next(width // size for width in (128, 64, 32) if elements * size % width == 0)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise TileError(message)
