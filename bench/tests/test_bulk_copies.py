"""The recorder of bulk copies: its kernels, simulated, move the bytes that it expects."""

import json
from pathlib import Path

import numpy as np

from bitwise_bench.hardware_facts.bulk_copies import BLOCKS, ROOM, Piece, expected, pieces, text_of
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90


def test_a_simulated_kernel_stores_what_is_expected() -> None:
    draw = np.random.default_rng(4)
    quarter = ROOM // 4
    loads = [Piece(int(draw.integers(0, 3 * quarter // 16)) * 16, place * quarter, quarter) for place in range(4)]
    stores = pieces(draw, 3)
    given, before = (draw.integers(0, 256, (BLOCKS, ROOM), dtype=np.uint8) for _ in range(2))
    wanted, defined = expected(given, before, loads, stores)
    assert defined.all()
    launch = {"file": "k.ptx", "grid": [BLOCKS], "args": [{"buffer": name, "dtype": "u32"} for name in ("in", "out")]}
    kernel = Source("k.ptx", text_of(loads, stores), Launch.model_validate(launch))
    memory = {"in": given.reshape(-1), "out": before.reshape(-1)}
    found = np.asarray(simulate(prepare(kernel, SM90, Options()), memory).after["out"]).reshape(wanted.shape)
    assert np.array_equal(found, wanted)
    assert not np.array_equal(found, before)


def test_targets_of_pieces_do_not_overlap() -> None:
    draw = np.random.default_rng(5)
    for count in range(1, 9):
        found = pieces(draw, count)
        taken = np.zeros(ROOM, dtype=int)
        for each in found:
            assert {each.source % 16, each.target % 16, each.size % 16} == {0}
            assert 0 < each.size <= ROOM - each.source
            taken[each.target : each.target + each.size] += 1
        assert len(found) == count
        assert taken.max() == 1


def test_no_copy_of_the_record_differs() -> None:
    record = Path(__file__).parents[2] / "records" / "bulk-copies-sm90-h200.json"
    result = json.loads(record.read_text())["result"]
    assert result["different"] == 0
    assert result["copies"] > 100_000
