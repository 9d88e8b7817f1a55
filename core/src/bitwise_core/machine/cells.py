"""Byte-addressed shared memory of a batch of blocks, in cells of one granule.

A known number or a leaf is cut into cells exactly; a term wider than a cell lies in several, each marked
with its part, and is one term again when all of them are read together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lane_hash import term
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.pieces import as_lanes, choose, concat, cut_lanes
from bitwise_core.machine.recording import Recorder

SHARED_LIMIT = 1 << 20
"""No shared memory has so many bytes."""
PART_SHIFT, COUNT_SHIFT = 24, 28
PART_CODE = 0x7F000000
_MARKED = ~PART_CODE & 0xFFFFFFFF


class FinerGranule(Exception):
    """Memory is accessed in smaller units than its cells: the run starts again with cells of `granule` bytes."""

    def __init__(self, granule: int) -> None:
        super().__init__(granule)
        self.granule = granule


def _split_lanes(value: Lanes, count: int, granule: int) -> list[tuple[hashing.Words, L.Meta]]:
    if count == 1:
        return [(value.words, value.meta)]
    meta = value.meta
    log = count.bit_length() - 1
    result: list[tuple[hashing.Words, L.Meta]] = []
    form = meta & L.FORM if isinstance(meta, int) else meta & np.uint32(L.FORM)
    for part in range(count):
        code = part << PART_SHIFT | log << COUNT_SHIFT
        if isinstance(form, int):
            if form in (L.LEAF, L.KNOWN):
                piece = cut_lanes(value, part * granule * 8, granule * 8)
                result.append((piece.words, piece.meta))
            else:
                result.append((value.words, meta | code))
            continue
        words, marked = value.words, meta | np.uint32(code)
        leaf, known = form == L.LEAF, form == L.KNOWN
        if leaf.any():
            words = np.where(leaf, words + np.uint64(part * granule), words)
        if known.any():
            words = np.where(known, (value.words >> np.uint64(8 * part * granule)) & np.uint64(256**granule - 1), words)
        result.append((words, np.where(leaf | known, meta & np.uint32(L.FORM | L.STICKY), marked)))
    return result


def split(value: Value, granule: int) -> list[tuple[hashing.Words, L.Meta]]:
    """The value as cells of `granule` bytes, least significant first.  Raises FinerGranule."""
    bits = granule * 8
    if isinstance(value, Pieces):
        if any(L.width(part) % bits for part in value.parts):
            widths = [L.width(part) // 8 for part in value.parts]
            raise FinerGranule(min(widths))
        cells = [cell for part in value.parts for cell in split(part, granule)]
        return cells if value.whole is None else _with_whole(value, value.whole, cells, granule)
    if L.width(value) % bits:
        raise FinerGranule(max(1, L.width(value) // 8))
    return _split_lanes(as_lanes(value), L.width(value) // bits, granule)


def _with_whole(
    value: Pieces, whole: Array, cells: Sequence[tuple[hashing.Words, L.Meta]], granule: int
) -> list[tuple[hashing.Words, L.Meta]]:
    """The cells of pieces, those of the one term in lanes that are whole."""
    terms = _split_lanes(as_lanes(value), len(cells), granule)
    return [
        (np.where(whole, of_term[0], of_part[0]), L.select_meta(whole, of_term[1], of_part[1]))
        for of_term, of_part in zip(terms, cells, strict=True)
    ]


def join(cells: Sequence[tuple[hashing.Words, Array]], granule: int, recorder: Recorder | None = None) -> Value:
    """Cells read side by side as one value of the same width as all of them."""
    if len(cells) == 1:
        return _lone(*cells[0], granule * 8, recorder)
    alike = join_alike(cells, granule, recorder)
    return join_by_lane(cells, granule, recorder) if alike is None else alike


def join_by_lane(cells: Sequence[tuple[hashing.Words, Array]], granule: int, recorder: Recorder | None = None) -> Value:
    """See `join`, of several cells, whatever their lanes hold."""
    count = len(cells)
    bits = count * granule * 8
    first_words, first_meta = cells[0]
    log = count.bit_length() - 1
    known = np.ones(first_meta.shape, dtype=bool)
    leaf, whole = known.copy(), known.copy()
    sticky: Array | np.uint32 = np.uint32(0)
    number = np.zeros_like(first_words[0])
    for part, (words, meta) in enumerate(cells):
        form = meta & np.uint32(L.FORM)
        plain = (meta & np.uint32(PART_CODE)) == 0
        known &= (form == L.KNOWN) & plain
        leaf &= (form == L.LEAF) & plain & (words[0] == first_words[0] + np.uint64(part * granule))
        code = np.uint32(part << PART_SHIFT | log << COUNT_SHIFT)
        whole &= (meta == ((first_meta & np.uint32(_MARKED)) | code)) & (words == first_words).all(axis=0)
        sticky = sticky | (meta & np.uint32(L.STICKY))
        if bits <= 64:
            number |= words[0] << np.uint64(8 * part * granule)
    poisoned = (sticky & np.uint32(L.POISON)) != 0
    if bits <= 64 and (known | leaf | whole | poisoned).all():
        words, meta = first_words, (first_meta & np.uint32(_MARKED)) | sticky
        if not whole.all():  # what is quiet as a half need not be so as a part of something wider
            meta = np.where(whole, meta, meta & np.uint32(~L.QUIET & 0xFFFFFFFF))
        if known.any():
            words = np.where(known, number, words)
            meta = np.where(known, np.uint32(0) | L.known_meta(number, bits) | sticky, meta)
        return L.settle(Lanes(bits, words, L.uniform(meta)))
    half = count // 2
    parts = concat([join(cells[:half], granule, recorder), join(cells[half:], granule, recorder)])
    if not whole.any():
        return parts
    term_of = Lanes(bits, first_words, L.uniform((first_meta & np.uint32(_MARKED)) | sticky))
    return L.put(whole, term_of, as_lanes(parts))


def join_alike(
    cells: Sequence[tuple[hashing.Words, Array]], granule: int, recorder: Recorder | None = None
) -> Value | None:
    """What `join_by_lane` gives, where the lanes of each cell share their properties and are of one kind; else None."""
    count = len(cells)
    bits, log = count * granule * 8, count.bit_length() - 1
    metas = []
    for _, meta in cells:
        first = meta.flat[0]
        if (meta != first).any():
            return None
        metas.append(int(first))
    sticky = 0
    for each in metas:
        sticky |= each & L.STICKY
    first_words = cells[0][0]
    kept = (metas[0] & _MARKED) | sticky
    if metas == [(metas[0] & _MARKED) | part << PART_SHIFT | log << COUNT_SHIFT for part in range(count)]:
        if bits <= 64 and all((words == first_words).all() for words, _ in cells[1:]):
            return L.settle(Lanes(bits, first_words, kept))
        return None
    forms = {each & (L.FORM | PART_CODE) for each in metas}
    if bits in L.UNSIGNED and forms == {L.KNOWN} and not sticky:
        number = first_words[0].copy()
        for part, (words, _) in enumerate(cells[1:], 1):
            number |= words[0] << np.uint64(8 * part * granule)
        return np.asarray(number.astype(L.UNSIGNED[bits]))
    if bits <= 64 and forms == {L.LEAF}:
        expected = ((words[0], first_words[0] + np.uint64(part * granule)) for part, (words, _) in enumerate(cells))
        if all((found == wanted).all() for found, wanted in expected):
            return L.settle(Lanes(bits, first_words, kept & ~L.QUIET))
    if bits > 64 or not (sticky & L.POISON or forms & {L.LEAF, L.KNOWN}):
        half = count // 2
        return concat([join(cells[:half], granule, recorder), join(cells[half:], granule, recorder)])
    return None


def _lone(words: hashing.Words, meta: Array, bits: int, recorder: Recorder | None) -> Value:
    code = meta & np.uint32(PART_CODE)
    value = Lanes(bits, words, L.uniform(meta & np.uint32(_MARKED)))
    value.recorder = recorder
    if not code.any():
        known = L.known_where(value)
        if known is True:
            return L.settle(value)
        if known is not False and known.any():
            value.meta = L.uniform(np.where(known, np.uint32(0) | L.known_meta(words[0], bits), meta))
        return value
    result = value
    for each in np.unique(code):
        if each == 0:
            continue
        part, log = (int(each) >> PART_SHIFT) & 15, int(each) >> COUNT_SHIFT
        whole = Lanes(bits << log, words, value.meta)
        sliced = term(bits, f"slice {part * bits} {bits} of {bits << log}", [whole], exact=True, recorder=recorder)
        result = as_lanes(choose(code == each, sliced, result))
    return result


class SharedMemory:
    """`size` bytes for each of `blocks` blocks, in cells of `granule` bytes; all undefined at first.

    `recorder` is that of a replay.
    """

    def __init__(self, size: int, blocks: int, granule: int, recorder: Recorder | None = None) -> None:
        self.granule, self.blocks, self.version, self.recorder = granule, blocks, 0, recorder
        self.words: hashing.Words = np.empty((2, blocks, 0), dtype=np.uint64)
        self.meta: Array = np.empty((blocks, 0), dtype=np.uint32)
        self._reserve(max(size, 16))

    def _reserve(self, size: int) -> None:
        count = -(-size // self.granule)
        poison = hashing.constant("poison shared memory")
        words = np.empty((2, self.blocks, count), dtype=np.uint64)
        words[:] = poison
        meta = np.full((self.blocks, count), L.TERM | L.POISON, dtype=np.uint32)
        words[:, :, : self.words.shape[2]] = self.words
        meta[:, : self.meta.shape[1]] = self.meta
        self.words, self.meta = words, meta

    def cells(self, address: Array, mask: Array | None) -> Array:
        """Byte addresses as cell numbers; inactive lanes give 0.  Raises FinerGranule, Unreadable."""
        where = address.astype(np.int64)
        if mask is not None:
            where = np.where(mask, where, 0)
        if self.granule > 1:
            low = where & (self.granule - 1)
            if low.any():
                raise FinerGranule(int(low[low != 0].min() & -low[low != 0].min()))
        top = int(where.max(initial=0))
        if top < 0 or int(where.min(initial=0)) < 0 or top >= SHARED_LIMIT:
            raise Unreadable("a shared-memory address lies outside shared memory")
        cells = where // self.granule
        if top + 16 * self.granule >= self.words.shape[2] * self.granule:
            self._reserve(top + 64 * self.granule)
        return cells

    def store(self, cells: Array, value: Value, mask: Array | None) -> None:
        """Writes the value at each active lane's cell (shape (1|blocks, lanes)) and those after it."""
        self.version += 1
        for part, (words, meta) in enumerate(split(value, self.granule)):
            self._put(cells + part if part else cells, words, meta, mask)

    def kept(self, cells: Array, value: Value, mask: Array | None) -> bool:
        """Whether what each active lane stored there last is still there: no lane put something else in its place."""
        for part, (words, meta) in enumerate(split(value, self.granule)):
            found, properties = self._get(cells + part if part else cells)
            same = (found == words).all(axis=0)
            same &= (properties ^ meta) & np.uint32(L.VALUE) == 0
            if not (same if mask is None else same | ~mask).all():
                return False
        return True

    def _put(self, cells: Array, words: hashing.Words, meta: L.Meta, mask: Array | None) -> None:
        if cells.shape[0] == 1 and (mask is None or mask.shape[0] == 1):
            columns = cells[0]
            if mask is not None:
                active = np.broadcast_to(mask[0], columns.shape)
                columns = columns[active]
                words = np.broadcast_to(words, (2, words.shape[1], active.size))[:, :, active]
                if not isinstance(meta, int):
                    meta = np.broadcast_to(meta, (meta.shape[0], active.size))[:, active]
            self.words[:, :, columns] = words
            self.meta[:, columns] = meta
            return
        shape = (self.blocks, cells.shape[1])
        where = np.broadcast_to(cells, shape)
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        block, lane = np.nonzero(active)
        column = where[block, lane]
        self.words[:, block, column] = np.broadcast_to(words, (2, *shape))[:, block, lane]
        self.meta[block, column] = meta if isinstance(meta, int) else np.broadcast_to(meta, shape)[block, lane]

    def load(self, cells: Array, bits: int) -> Value:
        """Reads `bits` bits at each lane's cell."""
        if bits % (8 * self.granule):
            raise FinerGranule(max(1, bits // 8))
        count = bits // (8 * self.granule)
        found = join([self._get(cells + part if part else cells) for part in range(count)], self.granule, self.recorder)
        return found if self.recorder is None else self.recorder.mark(found)

    def _get(self, cells: Array) -> tuple[hashing.Words, Array]:
        if cells.shape[0] == 1:
            return self.words[:, :, cells[0]], self.meta[:, cells[0]]
        rows = np.arange(self.blocks)[:, None]
        return self.words[:, rows, cells], self.meta[rows, cells]
