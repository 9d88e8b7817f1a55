"""What was written to tensor memory and is not in its columns yet, against a plain array of all places."""

import numpy as np
import pytest

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_nvidia_sm100.tensor_memory.accesses import loaded, stored
from bitwise_nvidia_sm100.tensor_memory.memory import Accumulator, TensorMemory
from bitwise_nvidia_sm100.tensor_memory.places import COLUMNS, LANES, UNIT

BLOCKS, WIDTH = 3, 16
LANE_SETS = [np.arange(LANES), np.flatnonzero(np.arange(LANES) % 32 < 16), np.flatnonzero(np.arange(LANES) % 32 >= 16)]


def of_all_blocks(value: L.SymbolicVector) -> np.ndarray:
    return np.broadcast_to(value.words[0].astype(np.uint32), (BLOCKS, *value.words.shape[2:]))


class Places:
    """Tensor memory, and beside it the number in each lane of each column of each block."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.memory = TensorMemory(np.ones((BLOCKS, COLUMNS // UNIT), dtype=np.int64), np.zeros(BLOCKS, dtype=bool))
        self.plain = np.zeros((BLOCKS, LANES, WIDTH), dtype=np.uint32)
        for number in range(WIDTH):
            self.memory.put(number, np.zeros((1, 1), dtype=np.uint32), np.ones(BLOCKS, dtype=bool))

    def places(self) -> tuple[np.ndarray, int, int, np.ndarray]:
        """Return lanes, the first column, the number of columns, and blocks."""
        count = int(self.draw.choice([1, 2, 4, 8]))
        first = int(self.draw.integers(0, WIDTH - count + 1))
        blocks = np.ones(BLOCKS, dtype=bool) if self.draw.random() < 0.6 else self.draw.random(BLOCKS) < 0.5
        blocks[int(self.draw.integers(BLOCKS))] = True
        return LANE_SETS[int(self.draw.integers(3))], first, count, blocks

    def numbers(self, columns: int, lanes: int) -> np.ndarray:
        return self.draw.integers(0, 2**32, (BLOCKS, columns, lanes), dtype=np.uint32)

    def store(self) -> None:
        """Store registers of one thread for each lane; the registers stand for the columns in some order."""
        lanes, first, count, blocks = self.places()
        numbers = self.numbers(count, LANES)
        order = self.draw.permutation(count)
        columns = np.broadcast_to(first + order[None], (LANES, count))
        active = np.isin(np.arange(LANES), lanes)
        where = np.broadcast_to(np.arange(LANES)[:, None], (LANES, count))
        stored(self.memory, list(numbers.transpose(1, 0, 2)), where, columns, active, False, blocks)
        for register, column in enumerate((first + order).tolist()):
            self.plain[np.ix_(blocks, lanes, [column])] = numbers[blocks, register][:, lanes][..., None]

    def multiply(self) -> None:
        lanes, first, count, blocks = self.places()
        numbers = self.numbers(count, lanes.size)
        self.memory.hold(Accumulator(first, lanes, blocks, L.constant_vector(numbers)))
        columns = np.arange(first, first + count)
        self.plain[np.ix_(blocks, lanes, columns)] = numbers[blocks].transpose(0, 2, 1)

    def put(self) -> None:
        lanes, first, _, blocks = self.places()
        number = self.numbers(1, LANES)[:, 0]
        self.memory.put(first, number, blocks, np.isin(np.arange(LANES), lanes))
        self.plain[np.ix_(blocks, lanes, [first])] = number[blocks][:, lanes][..., None]

    def check(self) -> None:
        """Read some places in each of the ways in which instructions do."""
        lanes, first, count, blocks = self.places()
        expected = self.plain[:, lanes, first : first + count].transpose(0, 2, 1)[blocks]
        match int(self.draw.integers(3)):
            case 0:
                found = self.memory.results_at(first, count, lanes, blocks, 32)
                assert np.array_equal(of_all_blocks(found)[blocks], expected)
            case 1:
                found = self.memory.elements_at(first, count, lanes, blocks, 16)
                halves = np.stack([expected & 0xFFFF, expected >> 16], axis=2).reshape(len(expected), -1, lanes.size)
                assert np.array_equal(of_all_blocks(found)[blocks], halves)
            case _:
                columns = np.broadcast_to(first + np.arange(count)[None], (LANES, count))
                active = np.isin(np.arange(LANES), lanes)
                where = np.broadcast_to(np.arange(LANES)[:, None], (LANES, count))
                values = loaded(self.memory, where, columns, active, False, blocks)
                for register, value in enumerate(values):
                    words = as_symbolic_vector(value).words[0].astype(np.uint32)
                    own = np.broadcast_to(words, (BLOCKS, LANES))[blocks][:, lanes]
                    assert np.array_equal(own, expected[:, register])


@pytest.mark.parametrize("seed", range(12))
def test_reads_find_what_was_written_last(seed: int) -> None:
    places = Places(seed)
    for _ in range(60):
        act = (places.store, places.multiply, places.store, places.multiply, places.put)
        act[int(places.draw.integers(len(act)))]()
        for _ in range(2):
            places.check()


def test_what_is_released_is_undefined_and_other_blocks_keep_their_columns() -> None:
    places = Places(1)
    every = np.ones(BLOCKS, dtype=bool)
    numbers = places.numbers(UNIT, LANES)
    places.memory.hold(Accumulator(0, np.arange(LANES), every, L.constant_vector(numbers)))
    places.memory.release(0, COLUMNS, np.arange(BLOCKS) == 1)
    for number in (0, 5, UNIT - 1):
        column = as_symbolic_vector(places.memory.column(number))
        undefined = np.broadcast_to((np.asarray(column.flags) & L.POISON) != 0, (BLOCKS, LANES))
        assert undefined.tolist() == [[False] * LANES, [True] * LANES, [False] * LANES]
        assert np.array_equal(column.words[0].astype(np.uint32)[[0, 2]], numbers[[0, 2], number])
