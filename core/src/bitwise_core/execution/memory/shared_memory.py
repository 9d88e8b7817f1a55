"""Byte-addressed shared memory of a batch of blocks, in cells of `granule` bytes.

A constant or a load is split into cells exactly.  A term that is wider than a cell occupies several, each marked with
its part number; it is restored when all of them are read together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from bitwise_core.execution.active_lanes import WholeBlocks, has_whole_blocks, whole_mask
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.memory.loaded_chunks import (
    CELLS,
    CHUNK,
    ChunkPlaces,
    LoadedChunks,
    addresses_of,
    addresses_of_cells,
)
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.loads_and_zeros import ZERO
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract_vector
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, every, some
from bitwise_core.execution.values.term_hash import term

SHARED_LIMIT = 1 << 20
"""An upper bound of the size of shared memory in bytes."""
PART_SHIFT = 24
PART_CODE = 0x1F000000
"""The bits of a cell's flags that say which part of a term it holds: 0 for none, else `part_code`."""
_WITHOUT_PART_CODE = ~PART_CODE & 0xFFFFFFFF


class FinerGranule(Exception):
    """Memory is accessed in smaller units than its cells; the run must be repeated with cells of `granule` bytes."""

    def __init__(self, granule: int) -> None:
        super().__init__(granule)
        self.granule = granule


def part_code(part: int, count: int) -> int:
    """Return the flags of a cell that holds a part of a term of `count` cells, a power of two of at most 16."""
    return (count + part) << PART_SHIFT


def _split_vector(value: SymbolicVector, count: int, granule: int) -> list[tuple[hashing.Words, L.Flags]]:
    if count == 1:
        return [(value.words, value.flags)]
    flags = value.flags
    result: list[tuple[hashing.Words, L.Flags]] = []
    form = flags & L.FORM if isinstance(flags, int) else flags & np.uint32(L.FORM)
    for part in range(count):
        code = part_code(part, count)
        if isinstance(form, int):
            if form in (L.LOAD, L.CONST):
                cell = extract_vector(value, part * granule * 8, granule * 8)
                result.append((cell.words, cell.flags))
            else:
                result.append((value.words, flags | code))
            continue
        words, marked = value.words, flags | np.uint32(code)
        load, known = form == L.LOAD, form == L.CONST
        if some(load):
            words = np.where(load, words + np.uint64(part * granule), words)
        if some(known):
            words = np.where(known, (value.words >> np.uint64(8 * part * granule)) & np.uint64(256**granule - 1), words)
        result.append((words, np.where(load | known, flags & np.uint32(L.FORM | L.STICKY), marked)))
    return result


def split(value: Value, granule: int) -> list[tuple[hashing.Words, L.Flags]]:
    """Return the value as cells of `granule` bytes, least significant first.  Raises FinerGranule."""
    bits = granule * 8
    if isinstance(value, PackedVector):
        if any(L.width(part) % bits for part in value.parts):
            widths = [L.width(part) // 8 for part in value.parts]
            raise FinerGranule(min(widths))
        cells = [cell for part in value.parts for cell in split(part, granule)]
        return cells if value.whole is None else _with_whole(value, value.whole, cells, granule)
    if L.width(value) % bits:
        raise FinerGranule(max(1, L.width(value) // 8))
    return _split_vector(as_symbolic_vector(value), L.width(value) // bits, granule)


def _with_whole(
    value: PackedVector, whole: Array, cells: Sequence[tuple[hashing.Words, L.Flags]], granule: int
) -> list[tuple[hashing.Words, L.Flags]]:
    """Return the cells of a packed vector; lanes in `whole` take the cells of the single term that they hold."""
    terms = _split_vector(as_symbolic_vector(value), len(cells), granule)
    return [
        (np.where(whole, of_term[0], of_part[0]), L.select_flags(whole, of_term[1], of_part[1]))
        for of_term, of_part in zip(terms, cells, strict=True)
    ]


def join(cells: Sequence[tuple[hashing.Words, Array]], granule: int, recorder: Recorder | None = None) -> Value:
    """Return consecutive cells as one value of their total width."""
    if len(cells) == 1:
        return _join_one_cell(*cells[0], granule * 8, recorder)
    numbers = joined_constants(cells, granule)
    if numbers is not None:
        return numbers
    alike = join_uniform(cells, granule, recorder)
    return join_by_lane(cells, granule, recorder) if alike is None else alike


def joined_constants(cells: Sequence[tuple[hashing.Words, Array]], granule: int) -> Array | None:
    """Return the result of `join_by_lane` if every lane of each cell is a constant without a sticky flag; else None."""
    bits = len(cells) * granule * 8
    other = np.uint32(L.FORM | L.STICKY | PART_CODE)  # a constant has the form 0
    if bits not in L.UNSIGNED or any(some(flags & other) for _, flags in cells):
        return None
    number = cells[0][0][0].copy()
    for part, (words, _) in enumerate(cells[1:], 1):
        number |= words[0] << np.uint64(8 * part * granule)
    found: Array = number.astype(L.UNSIGNED[bits])
    return found


def join_by_lane(cells: Sequence[tuple[hashing.Words, Array]], granule: int, recorder: Recorder | None = None) -> Value:
    """See `join`: for several cells with any content."""
    count = len(cells)
    bits = count * granule * 8
    first_words, first_flags = cells[0]
    known = np.ones(first_flags.shape, dtype=bool)
    load, whole = known.copy(), known.copy()
    sticky: Array | np.uint32 = np.uint32(0)
    number = np.zeros_like(first_words[0])
    for part, (words, flags) in enumerate(cells):
        form = flags & np.uint32(L.FORM)
        plain = (flags & np.uint32(PART_CODE)) == 0
        known &= (form == L.CONST) & plain
        load &= (form == L.LOAD) & plain & (words[0] == first_words[0] + np.uint64(part * granule))
        code = np.uint32(part_code(part, count))
        whole &= (flags == ((first_flags & np.uint32(_WITHOUT_PART_CODE)) | code)) & (words == first_words).all(axis=0)
        sticky = sticky | (flags & np.uint32(L.STICKY))
        if bits <= 64:
            number |= words[0] << np.uint64(8 * part * granule)
    poisoned = (sticky & np.uint32(L.POISON)) != 0
    if bits <= 64 and every(known | load | whole | poisoned):
        words, flags = first_words, (first_flags & np.uint32(_WITHOUT_PART_CODE)) | sticky
        if not every(whole):  # a half that is quiet may be part of a signalling NaN
            flags = np.where(whole, flags, flags & np.uint32(~L.QUIET & 0xFFFFFFFF))
        if some(known):
            words = np.where(known, number, words)
            flags = np.where(known, np.uint32(0) | L.constant_flags(number, bits) | sticky, flags)
        return L.as_array_if_constant(SymbolicVector(bits, words, L.uniform_flags(flags)))
    half = count // 2
    parts = concat([join(cells[:half], granule, recorder), join(cells[half:], granule, recorder)])
    if not some(whole):
        return parts
    term_of = SymbolicVector(bits, first_words, L.uniform_flags((first_flags & np.uint32(_WITHOUT_PART_CODE)) | sticky))
    return L.blend(whole, term_of, as_symbolic_vector(parts))


def join_uniform(
    cells: Sequence[tuple[hashing.Words, Array]], granule: int, recorder: Recorder | None = None
) -> Value | None:
    """Return the result of `join_by_lane` if the lanes of each cell have the same flags and one kind; else None."""
    count = len(cells)
    bits = count * granule * 8
    cell_flags = []
    for _, flags in cells:
        first = flags.flat[0]
        if some(flags != first):
            return None
        cell_flags.append(int(first))
    sticky = 0
    for each in cell_flags:
        sticky |= each & L.STICKY
    first_words = cells[0][0]
    unmarked = cell_flags[0] & _WITHOUT_PART_CODE
    kept = unmarked | sticky
    if cell_flags == [unmarked | part_code(part, count) for part in range(count)]:
        if bits <= 64 and all(every(words == first_words) for words, _ in cells[1:]):
            return L.as_array_if_constant(SymbolicVector(bits, first_words, kept))
        return None
    forms = {each & (L.FORM | PART_CODE) for each in cell_flags}
    if bits <= 64 and forms == {L.LOAD}:
        expected = ((words[0], first_words[0] + np.uint64(part * granule)) for part, (words, _) in enumerate(cells))
        if all(every(found == wanted) for found, wanted in expected):
            return L.as_array_if_constant(SymbolicVector(bits, first_words, kept & ~L.QUIET))
    if bits > 64 or not (sticky & L.POISON or forms == {L.CONST}):
        half = count // 2
        return concat([join(cells[:half], granule, recorder), join(cells[half:], granule, recorder)])
    return None


def _join_one_cell(words: hashing.Words, flags: Array, bits: int, recorder: Recorder | None) -> Value:
    code = flags & np.uint32(PART_CODE)
    value = SymbolicVector(bits, words, L.uniform_flags(flags & np.uint32(_WITHOUT_PART_CODE)))
    value.recorder = recorder
    known, unmarked = L.constant_mask(value), not code.any()
    if known is True and unmarked:
        return L.as_array_if_constant(value)
    if known is not False and known is not True and known.any():
        facts = np.uint32(0) | L.constant_flags(words[0], bits)
        value.flags = L.uniform_flags(np.where(known, facts, flags & np.uint32(_WITHOUT_PART_CODE)))
    if unmarked:
        return value
    result = value
    for each in np.unique(code):
        if each == 0:
            continue
        number = int(each) >> PART_SHIFT
        log = number.bit_length() - 1
        part = number - (1 << log)
        whole = SymbolicVector(bits << log, words, value.flags)
        sliced = term(bits, f"slice {part * bits} {bits} of {bits << log}", [whole], exact=True, recorder=recorder)
        sliced.origins = (L.Origin(f"slice.{part * bits}.{bits}", (whole,)),)
        result = as_symbolic_vector(blend_values(code == each, sliced, result))
    return result


def _blocks_and_lanes(cells: Array, mask: Array | None) -> tuple[Array | slice, Array | slice] | None:
    """Return the active blocks and lanes, if those are the same in every active block, and the cells in every block."""
    if cells.shape[0] != 1:
        return None
    if mask is None:
        return slice(None), slice(None)
    if mask.shape[0] == 1:
        return slice(None), np.broadcast_to(mask[0], cells.shape[1:])
    return (mask[:, 0], slice(None)) if has_whole_blocks(mask) else None


def _of_lanes(values: Array, blocks: Array | slice, lanes: Array | slice) -> Array:
    """Return values of shape (planes, blocks or 1, lanes or 1) in some blocks and lanes."""
    if values.shape[1] > 1:
        values = values[:, blocks]
    if isinstance(lanes, slice) or values.shape[2] == 1:
        return values
    return values[:, :, lanes]


_VERSIONS = itertools.count()

_NOT_NOTED = ~(L.NOT_MINUS_ZERO | L.NOT_NEGATIVE) & 0xFFFFFFFF
"""The bits of a constant's flags that are not about its number."""

_NEVER_WRITTEN = hashing.constant("poison shared memory")
_UNDEFINED = hashing.constant("undefined content that was stored")


def _contents(value: Value, granule: int) -> list[tuple[hashing.Words, L.Flags]]:
    """Return the cells of a stored value; one that copies a cell that nothing wrote differs from such a cell."""
    cells = split(value, granule)
    return [
        (np.where((words == _NEVER_WRITTEN).all(axis=0), _UNDEFINED, words), flags)
        if L.any_flag(flags & L.POISON)
        else (words, flags)
        for words, flags in cells
    ]


class SharedMemory:
    """`size` bytes for each of `blocks` blocks, in cells of `granule` bytes, initially undefined.

    `version` is a number that no other content of a shared memory has, so that what is computed from the content can be
    kept with it; a copy has the number of its original.  `recorder` is the recorder of a recorded run.

    `chunks` are those of 8 bytes that hold loads as a whole, and `elements` those of one cell; None without any.  What
    `_words` and `_flags` hold of their cells is not used.  No cell is held by both.
    """

    chunks: LoadedChunks | None = None
    elements: LoadedChunks | None = None

    def __init__(self, size: int, blocks: int, granule: int, recorder: Recorder | None = None) -> None:
        self.granule, self.blocks, self.version, self.recorder = granule, blocks, next(_VERSIONS), recorder
        self._words: hashing.Words = np.empty((2, blocks, 0), dtype=np.uint64)
        self._flags: Array = np.empty((blocks, 0), dtype=np.uint32)
        self._reserve(max(size, 16))

    @property
    def words(self) -> hashing.Words:
        """The payloads of all cells, shape (2, blocks, cells)."""
        self._release_all()
        return self._words

    @words.setter
    def words(self, words: hashing.Words) -> None:
        self._release_all()
        self._words = words
        self.changed()

    @property
    def flags(self) -> Array:
        """The flags of all cells, shape (blocks, cells)."""
        self._release_all()
        return self._flags

    @flags.setter
    def flags(self, flags: Array) -> None:
        self._release_all()
        self._flags = flags
        self.changed()

    def _release_all(self) -> None:
        """Write the contents of all chunks to their cells."""
        if self.chunks is not None:
            self._release(np.arange(self.chunks.held.size))
            self.chunks = None
        if self.elements is not None:
            self._release_elements(np.arange(self.elements.held.size))
            self.elements = None

    def _release(self, chunks: Array) -> None:
        """Make elements of the contents of chunks of 8 bytes (flat), in all blocks."""
        assert self.chunks is not None
        released = self.chunks.release(chunks)
        if released is None:
            return
        cells, contents = released
        inside = cells < self._flags.shape[1]
        self._held_elements().hold(cells[inside], contents[:, inside])

    def _held_elements(self) -> LoadedChunks:
        if self.elements is None:
            self.elements = LoadedChunks(self.blocks, self._flags.shape[1], self.granule, self.granule)
        return self.elements

    def _release_elements(self, chosen: Array) -> None:
        """Write the contents of elements (flat) to their cells, in all blocks."""
        assert self.elements is not None
        released = self.elements.release(chosen)
        if released is None:
            return
        cells, contents = released
        kept, zero = contents == CELLS, contents == ZERO
        words, flags = np.where(zero, np.uint64(0), contents), np.where(zero, np.uint32(L.CONST), np.uint32(L.LOAD))
        self._words[:, :, cells] = np.where(kept, self._words[:, :, cells], words)
        self._flags[:, cells] = np.where(kept, self._flags[:, cells], flags)

    def _reserve(self, size: int) -> None:
        # Kernels write their tiles one after the other, and each growth copies everything.
        count = max(-(-size // self.granule), min(2 * self._words.shape[2], SHARED_LIMIT // self.granule))
        words = np.empty((2, self.blocks, count), dtype=np.uint64)
        words[:] = _NEVER_WRITTEN
        flags = np.full((self.blocks, count), L.TERM | L.POISON, dtype=np.uint32)
        words[:, :, : self._words.shape[2]] = self._words
        flags[:, : self._flags.shape[1]] = self._flags
        self._words, self._flags = words, flags
        for held in (self.chunks, self.elements):
            if held is not None:
                held.resize(count)

    def changed(self) -> None:
        """Cells are written: the content has another `version`."""
        self.version = next(_VERSIONS)

    def possibly_written(self) -> Array:
        """Return which cells, of shape (blocks, cells), hold something undefined that may have been written.

        Data decides whether a store was executed, or what was stored is undefined.
        """
        found: Array = (self.flags & np.uint32(L.POISON)) != 0
        if found.any():
            found &= (self.words != _NEVER_WRITTEN).any(axis=0)
        return found

    def reserve_cells(self, count: int) -> None:
        """Make room for at least `count` cells."""
        if count > self._words.shape[2]:
            self._reserve(count * self.granule)

    def copy(self) -> SharedMemory:
        """An independent copy of the contents."""
        found = SharedMemory(0, self.blocks, self.granule, self.recorder)
        found.words, found.flags = self.words.copy(), self.flags.copy()
        found.version = self.version
        return found

    def selected(self, other: SharedMemory, select: Callable[[Value, Value], Value]) -> SharedMemory:
        """Return the memory whose cells are those of both, and a select of the two where they differ.

        `select` takes values of shape (blocks, cells).
        """
        count = max(self.words.shape[2], other.words.shape[2])
        for each in (self, other):
            each.reserve_cells(count)
        differ = (self.words != other.words).any(axis=0) | (self.flags != other.flags)
        columns = np.flatnonzero(differ.any(axis=0))
        if not columns.size:
            return other
        sides = [
            _join_one_cell(each.words[:, :, columns], each.flags[:, columns], self.granule * 8, self.recorder)
            for each in (self, other)
        ]
        chosen = as_symbolic_vector(select(*sides))
        shape = (self.blocks, columns.size)
        words, flags = np.broadcast_to(chosen.words, (2, *shape)), L.flags_of_lanes(chosen.flags, shape)
        found = other.copy()
        found.changed()
        here = differ[:, columns]
        found.words[:, :, columns] = np.where(here, words, other.words[:, :, columns])
        found.flags[:, columns] = np.where(here, flags, other.flags[:, columns])
        return found

    def cells(self, address: Array, mask: Array | None) -> Array:
        """Return byte addresses as cell numbers; inactive lanes give 0.  Raises FinerGranule and Unsupported."""
        where = address.astype(np.int64)
        if mask is not None:
            where = np.where(mask, where, 0)
        if self.granule > 1 and int(np.bitwise_or.reduce(where, axis=None)) & (self.granule - 1):
            low = where & (self.granule - 1)
            raise FinerGranule(int(low[low != 0].min() & -low[low != 0].min()))
        top = int(where.view(np.uint64).max(initial=0))  # a negative address is a large one
        if top >= SHARED_LIMIT:
            raise Unsupported("a shared-memory address lies outside shared memory")
        cells = where // self.granule
        if top + 16 * self.granule >= self._words.shape[2] * self.granule:
            self._reserve(top + 64 * self.granule)
        return cells

    def store(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> None:
        """Write the value to each active lane's cell (shape (1 or blocks, lanes)) and the following ones.

        `rows` holds the block in whose memory each lane writes, shape (blocks, lanes); None: its own.
        """
        self.changed()
        if rows is None and self._store_chunks(cells, value, mask):
            return
        contents = _contents(value, self.granule)
        touched = cells[..., None] + np.arange(len(contents))
        if self.chunks is not None:
            self._release((touched >> self.chunks.shift).ravel())
        if self.elements is not None:
            chosen = None if rows is not None else _blocks_and_lanes(cells, mask)
            if chosen is not None and isinstance(chosen[0], slice):
                self.elements.drop(touched[0][chosen[1]])  # all blocks overwrite them
            else:
                self._release_elements(touched.ravel())
        for part, (words, flags) in enumerate(contents):
            self._put(cells + part if part else cells, words, flags, mask, rows)

    def _store_chunks(self, cells: Array, value: Value, mask: Array | None) -> bool:
        """Write a value of loads of whole chunks or cells, and return True; False for any other value."""
        if self.recorder is not None:
            return False
        chosen = _blocks_and_lanes(cells, mask)
        if chosen is None:
            return False
        blocks, lanes = chosen
        where = cells[0][lanes]
        addresses = addresses_of(value) if self.granule < CHUNK else None
        if addresses is not None and int(np.bitwise_or.reduce(where, initial=0)) & (CHUNK // self.granule - 1) == 0:
            if self.chunks is None:
                self.chunks = LoadedChunks(self.blocks, self._flags.shape[1], self.granule)
            if self.elements is not None:
                self._overwrite_elements(where, len(addresses) * CHUNK // self.granule, blocks)
            held, places = self.chunks, where >> self.chunks.shift
        else:
            addresses = addresses_of_cells(value, self.granule)
            if addresses is None:
                return False
            if self.chunks is not None and L.some(self.chunks.held):
                self._release((where[:, None] + np.arange(len(addresses)) >> self.chunks.shift).ravel())
            held, places = self._held_elements(), where
        rows = np.arange(self.blocks)[blocks][:, None]
        for part, start in enumerate(addresses):
            held.put(rows, places + part if part else places, _of_lanes(start[None], blocks, lanes)[0])
        return True

    def _overwrite_elements(self, cells: Array, count: int, blocks: Array | slice) -> None:
        """Make room for chunks in `count` cells from each of `cells` (flat) on, in some blocks."""
        assert self.elements is not None
        if not L.some(self.elements.held):
            return
        every = (cells[:, None] + np.arange(count)).ravel()
        every = every[every < self.elements.held.size]
        if isinstance(blocks, slice):
            self.elements.drop(every)
        else:
            self._release_elements(every)

    def holds(self, cells: Array, value: Value, mask: Array | None, rows: Array | None = None) -> Array:
        """Return which lanes find their own value at their cells, inactive lanes included.

        After a store, no other lane stored a different value there.
        """
        found: Array = np.ones((1, 1), dtype=bool)
        for part, (words, flags) in enumerate(_contents(value, self.granule)):
            stored, properties = self._get(cells + part if part else cells, rows)
            same = (stored == words).all(axis=0)
            differ = (properties ^ flags) & np.uint32(L.VALUE | L.NAN_MARK)
            if some(differ):
                # A constant is its number, whatever is noted about that.
                numbers = ((properties | flags) & np.uint32(L.FORM)) == L.CONST
                differ = np.where(numbers, differ & np.uint32(_NOT_NOTED), differ)
            same &= differ == 0
            found = found & (same if mask is None else same | ~mask)
        return found

    def _put(
        self, cells: Array, words: hashing.Words, flags: L.Flags, mask: Array | None, rows: Array | None = None
    ) -> None:
        chosen = None if rows is not None else _blocks_and_lanes(cells, mask)
        if chosen is not None:
            blocks, lanes = chosen
            if not isinstance(flags, int):
                flags = _of_lanes(flags[None], blocks, lanes)[0]
            # Assigning through flat indices takes a fifth of the time of an index array behind slices.
            places = np.arange(0, self._flags.size, self._flags.shape[1])[blocks][:, None] + cells[0][lanes]
            words = _of_lanes(words, blocks, lanes)
            self._flags.reshape(-1)[places] = flags
            self._words[0].reshape(-1)[places] = words[0]
            self._words[1].reshape(-1)[places] = words[1]
            return
        shape = (self.blocks, cells.shape[1])
        where = np.broadcast_to(cells, shape)
        block, lane = np.nonzero(whole_mask(mask, shape))
        column = where[block, lane]
        row = block if rows is None else rows[block, lane]
        self._words[:, row, column] = np.broadcast_to(words, (2, *shape))[:, block, lane]
        self._flags[row, column] = flags if isinstance(flags, int) else np.broadcast_to(flags, shape)[block, lane]

    def load(self, cells: Array, bits: int, rows: Array | None = None, whole: WholeBlocks | None = None) -> Value:
        """Return `bits` bits at each lane's cell, in the memory of its own block or of `rows` as in `store`.

        Only values of the blocks of `whole` are read, where it is given.
        """
        if bits % (8 * self.granule):
            raise FinerGranule(max(1, bits // 8))
        count = bits // (8 * self.granule)
        if self.chunks is not None and rows is None and cells.shape[0] == 1:
            loaded = self.chunks.load(cells[0], count, None if whole is None else whole.sources)
            if loaded:
                return L.as_array_if_constant(loaded)
        if self.elements is not None and rows is None and cells.shape[0] == 1:
            several = self.elements.load_several(cells[0], count, None if whole is None else whole.sources)
            if several is not None:
                return several
        parts = [self._get(cells + part if part else cells, rows, whole) for part in range(count)]
        found = join(parts, self.granule, self.recorder)
        return found if self.recorder is None else self.recorder.mark(found)

    def chunk_size_at(self, cell: int) -> int:
        """Return how many cells a chunk has that may hold a load at a cell as a whole; 0 without such a chunk."""
        for held in (self.chunks, self.elements):
            if held is not None and held.held[cell >> held.shift]:
                return held.cells_per_chunk
        return 0

    def undefined(self, cells: Array, count: int) -> Array:
        """Return in which blocks all of `count` cells from `cells` on, shape (1 or blocks, 1), are undefined."""
        self.reserve_cells(int(cells.max()) + count)
        _, flags = self._get(cells + np.arange(count))
        found: Array = ((flags & np.uint32(L.POISON)) != 0).all(axis=1)
        return found

    def loads(self, places: ChunkPlaces, bits: int) -> tuple[SymbolicVector, Array] | None:
        """Return the loads of `bits` bits at some places, for some blocks, and each block's number among these.

        None if the places hold anything else.
        """
        found = None if self.chunks is None else self.chunks.loads(places)
        return None if found is None else (SymbolicVector(bits, L.both_words(found[0]), L.LOAD), found[1])

    def _get(
        self, cells: Array, rows: Array | None = None, whole: WholeBlocks | None = None
    ) -> tuple[hashing.Words, Array]:
        if rows is not None:
            return self._with_chunks(rows, cells, (self._words[:, rows, cells], self._flags[rows, cells]))
        sources = np.arange(self.blocks) if whole is None else whole.sources
        if cells.shape[0] > 1:
            own = sources[:, None]
            return self._with_chunks(own, cells, (self._words[:, own, cells], self._flags[own, cells]))
        words, flags = self._words.take(cells[0], axis=2), self._flags.take(cells[0], axis=1)
        if whole is not None:
            words, flags = words[:, sources], flags[sources]
        return self._with_chunks(sources[:, None], cells, (words, flags))

    def _with_chunks(
        self, rows: Array, cells: Array, contents: tuple[hashing.Words, Array]
    ) -> tuple[hashing.Words, Array]:
        for held in (self.elements, self.chunks):
            if held is not None:
                contents = held.cells_with_chunks(rows, cells, *contents)
        return contents
