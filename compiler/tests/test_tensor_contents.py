"""Tensors as a part of a launch: which are recorded, and kernels that are decided with them only."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton.language as tl  # noqa: E402
from fake_tensors import Storage, Tensor, new_address, tensor  # noqa: E402

from bitwise_core.checker.comparison import compare as compare_sources  # noqa: E402
from bitwise_core.checker.kernel_files import read_folder  # noqa: E402
from bitwise_core.checker.partition import partition as partition_sources  # noqa: E402
from bitwise_core.checker.sources import Options  # noqa: E402
from bitwise_core.checker.verdicts import Outcome  # noqa: E402
from bitwise_core.plugins import registry  # noqa: E402
from bitwise_triton import Buffer, CaptureError, TensorMap, capture, compare, partition, write_folder  # noqa: E402
from bitwise_triton.autotune import ConfigurationReport, equivalence_pruner  # noqa: E402
from bitwise_triton.compilation import CompiledKernel  # noqa: E402
from bitwise_triton.equivalence import source_of  # noqa: E402
from bitwise_triton.pointer_tables import with_named_pointers  # noqa: E402
from bitwise_triton.tensor_contents import buffer_bytes, recorded_tensors, state_sizes  # noqa: E402
from bitwise_triton.tensor_stand_ins import tensor_groups  # noqa: E402

pytestmark = pytest.mark.usefixtures("memory_of_this_process", "without_machine_code")

# -- kernels ----------------------------------------------------------------------------------------------------------


@triton.jit
def paged_sum(x, table, lengths, y, PAGE: tl.constexpr, ENTRIES: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, PAGE)
    total = tl.zeros((PAGE,), tl.float32)
    for entry in range(tl.load(lengths + row)):
        page = tl.load(table + row * ENTRIES + entry)
        total += tl.load(x + page * PAGE + column)
    tl.store(y + row * PAGE + column, total)


@triton.jit
def varlen_softmax(x, offsets, y, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    start, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    if end <= start:
        return
    inside = column < end - start
    value = tl.load(x + start + column, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + start + column, power / tl.sum(power, 0), mask=inside)


@triton.jit
def block_masked_sum(x, mask, y, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(BLOCKS):
        if tl.load(mask + row * BLOCKS + block) != 0:
            total += tl.load(x + (row * BLOCKS + block) * BLOCK + column)
            tl.debug_barrier()
    tl.store(y + row * BLOCK + column, total)


@triton.jit
def expert_gather(x, weights, experts, y, WIDTH: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    expert = tl.load(experts + row)
    if expert < 0:
        return
    scale = tl.load(weights + expert * WIDTH + column)
    tl.store(y + row * WIDTH + column, tl.sum(tl.load(x + row * WIDTH + column) * scale, 0) + scale)


TABLE = [3, 1, 0, 0, 2, 2, 1, 0, 4, 0, 0, 0]
KERNELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any], str, list[int]]] = {
    "paged_sum": (
        paged_sum,
        {"x": Buffer("X", "fp32"), "table": Buffer("T", "i32", values=TABLE), "y": Buffer("Y", "fp32")}
        | {"lengths": Buffer("N", "i32", values=[2, 3, 0])},
        {"PAGE": 256, "ENTRIES": 4},
        "lengths",
        [2, 2, 0],
    ),
    "varlen_softmax": (
        varlen_softmax,
        {"x": Buffer("X", "fp32"), "offsets": Buffer("O", "i64", values=[0, 100, 100, 228]), "y": Buffer("Y", "fp32")},
        {"BLOCK": 128},
        "offsets",
        [0, 101, 101, 228],
    ),
    "block_masked_sum": (
        block_masked_sum,
        {
            "x": Buffer("X", "fp32"),
            "mask": Buffer("M", "i1", values=[1, 0, 1, 0, 0, 0, 1, 1, 1]),
            "y": Buffer("Y", "fp32"),
        },
        {"BLOCKS": 3, "BLOCK": 256},
        "mask",
        [1, 0, 1, 0, 0, 1, 1, 1, 1],
    ),
    "expert_gather": (
        expert_gather,
        {"x": Buffer("X", "fp32"), "weights": Buffer("W", "fp32"), "y": Buffer("Y", "fp32")}
        | {"experts": Buffer("E", "i32", values=[1, -1, 0])},
        {"WIDTH": 64},
        "experts",
        [1, 0, 0],
    ),
}


def symbolic(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without contents."""
    return {name: Buffer(each.name, each.dtype) for name, each in arguments.items()}


def configurations() -> list[Any]:
    return [triton.Config({}, num_warps=1, num_stages=stages) for stages in (1, 2)]


BRANCHES_ONLY = {"block_masked_sum", "expert_gather"}
"""The kernels whose tensors decide only which side of a branch each block takes: both sides are followed."""


@pytest.mark.parametrize("name", KERNELS)
def test_configurations_are_equal_on_the_tensors_of_the_launch(name: str, triton_cache: Any) -> None:
    kernel, arguments, constants, changed, values = KERNELS[name]
    choices: dict[str, Any] = {"grid": (3,), "constants": constants}
    found = partition(kernel, configurations(), arguments, **choices, workers=1)
    assert (found.classes, found.unknown) == (((0, 1),), {})

    without = partition(kernel, configurations(), symbolic(arguments), **choices, workers=1)
    buffer = arguments[changed].name
    if name in BRANCHES_ONLY:
        assert (without.classes, without.unknown) == (((0, 1),), {})
    else:
        assert sorted(without.unknown) == [0, 1]
        asked = re.compile(rf"; give the contents of ([A-Z] and )*{buffer}( and [A-Z])* in the manifest$")
        assert all(asked.search(reason) for reason in without.unknown.values())

    other = {**arguments, changed: Buffer(buffer, arguments[changed].dtype, values=values)}
    signatures = []
    for given in (arguments, other):
        verdict = compare(kernel, *configurations(), given, **choices, search_seconds=0)
        assert verdict.outcome is Outcome.EQUAL
        signatures.append(verdict.tensors[buffer])
    assert signatures[0] != signatures[1]


def test_launches_on_other_tensors_are_not_equal(tmp_path: Path, triton_cache: Any) -> None:
    for kernel, arguments, constants, changed, values in KERNELS.values():
        other = {**arguments, changed: Buffer(arguments[changed].name, arguments[changed].dtype, values=values)}
        captured = [
            one
            for given in (arguments, other)
            for one in capture(kernel, configurations()[:1], given, grid=(3,), constants=constants, workers=1)
        ]
        folder = tmp_path / kernel.__name__
        write_folder(captured, folder, ["a", "b"])
        found = partition_sources(read_folder(folder, (".ptx",)).sources, "sm_90", Options(), workers=1)
        assert (found.classes, found.unknown) == ((("a.ptx",), ("b.ptx",)), {})


@triton.jit
def gather_rows(x, ids, padded, y, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    tile, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    if tile * ROWS >= tl.load(padded):
        return
    row = tl.load(ids + tile * ROWS + tl.arange(0, ROWS))
    at = row[:, None] * columns * WIDTH + column * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(y + at, tl.load(x + at) * 2.0, mask=row[:, None] < 12)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_tiles_of_tokens_with_blocks_that_end_early(target: str, triton_cache: Any) -> None:
    ids = [0, 3, 5, 12, 1, 2, 11, 12]
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "ids": Buffer("S", "i32", values=ids)}
    arguments["padded"] = Buffer("P", "i32", values=[8])
    arguments |= {"y": Buffer("Y", "fp32"), "columns": 3}
    constants = {"ROWS": 4, "WIDTH": 64}
    choices: dict[str, Any] = {"grid": (12,), "constants": constants, "target": target, "workers": 1}
    configs = [triton.Config({}, num_warps=warps) for warps in (1, 2)]
    found = partition(gather_rows, configs, arguments, **choices)
    assert (found.classes, found.unknown) == (((0, 1),), {})


@triton.jit
def copy_tile(tile, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tile.load([0, 0]))


@triton.jit
def number_tile(y, LIMIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tl.where(at < LIMIT * COLUMNS, at * 3, 0))


@pytest.mark.parametrize(("rows", "missing", "outcome"), [(8, 0, "equal"), (5, 0, "equal"), (8, 1, "unknown")])
def test_a_tensor_map_loads_known_numbers(rows: int, missing: int, outcome: str, triton_cache: Any) -> None:
    """A tile of 8 rows, of which `rows` are in the tensor and the rest are zeros, is the same as computed numbers."""
    constants, output = {"ROWS": 8, "COLUMNS": 32}, Buffer("Y", "i32")
    values = np.arange(rows * 32 - missing, dtype=np.int32) * 3
    tile = TensorMap(Buffer("T", "i32", values=values), (rows, 32), (32, 1), (8, 32))
    choices: dict[str, Any] = {"grid": (1,), "workers": 1}
    [loaded] = capture(copy_tile, configurations()[:1], {"tile": tile, "y": output}, constants=constants, **choices)
    for limit, expected in ((rows, outcome), (rows - 1, "unproved" if outcome == "equal" else "unknown")):
        limits = {"LIMIT": limit, **constants}
        [computed] = capture(number_tile, configurations()[:1], {"y": output}, constants=limits, **choices)
        sources = source_of(loaded, "a"), source_of(computed, "b")
        assert "tensor_map" in loaded.manifest_entry["args"][0]
        verdict = compare_sources(*sources, registry.default().arch("sm_90"), Options()).verdict
        assert verdict.outcome.value == expected
        if expected == "unknown":
            assert "the buffer T is read at element 254 (8 bytes at byte 1016), beyond the 255 values" in verdict.reason


# -- recording --------------------------------------------------------------------------------------------------------


def test_integers_and_booleans_are_recorded_and_floats_by_name() -> None:
    values = {
        "table": tensor(np.arange(4, dtype=np.int32), "i32"),
        "mask": tensor(np.array([True, False]), "i1"),
        "x": tensor(np.ones(2, np.float32), "fp32"),
        "scale": tensor(np.full(2, 0x3F80, np.uint16), "bf16"),
        "n": 5,
    }
    found = recorded_tensors(values)
    assert {name: (each.dtype, each.data.hex()) for name, each in found.items()} == {
        "table": ("i32", "00000000010000000200000003000000"),
        "mask": ("i1", "0100"),
    }
    assert sorted(recorded_tensors(values, ["scale"])) == ["mask", "scale", "table"]
    assert sorted(recorded_tensors(values, "scale")) == ["mask", "scale", "table"]
    assert recorded_tensors(values, False) == {}
    assert sorted(recorded_tensors(values, without=["table"])) == ["mask"]
    with pytest.raises(CaptureError, match="The arguments have no tensor 'weights' to record"):
        recorded_tensors(values, ["weights"])


def test_booleans_that_nothing_was_written_to_stay_symbolic() -> None:
    values = {
        "mask": tensor(np.array([1, 0, 255], dtype=np.uint8), "i1"),
        "ids": tensor(np.array([255, 7], np.uint8), "u8"),
    }
    assert {name: each.data for name, each in recorded_tensors(values).items()} == {"ids": b"\xff\x07"}


def test_addresses_of_tensors_are_pointers_to_them() -> None:
    shared = Storage(np.zeros(32, dtype=np.uint8), new_address())
    x, low, high = (
        tensor(np.zeros(4, np.float32), "fp32"),
        Tensor("fp32", shared, 0, (2,)),
        Tensor("i64", shared, 8, (3,)),
    )
    addresses = [x.data_ptr() + 4, 0, high.data_ptr(), low.data_ptr(), low.data_ptr() + 31]
    values = {"x": x, "table": tensor(np.array(addresses, np.int64), "i64"), "n": tensor(np.array([70000]), "i64")}
    recorded = recorded_tensors(values)
    assert recorded["table"].numbers.tolist() == addresses, "two of the tensors are not known"
    found = with_named_pointers(recorded, tensor_groups(values).values(), [low, high])
    assert found["table"].manifest_form() == [
        {"buffer": "x", "offset": 4, "dtype": "fp32"},
        0,
        {"buffer": "table_2", "offset": 8, "dtype": "i64", "elements": 4},
        {"buffer": "table_2", "dtype": "fp32", "elements": 8},
        {"buffer": "table_2", "offset": 31, "dtype": "fp32", "elements": 8},
    ]
    assert found["n"] == recorded["n"]
    for other in ([*addresses, 3], [*addresses, low.data_ptr() + 32], [0, 0]):
        values["table"] = tensor(np.array(other, np.int64), "i64")
        recorded = recorded_tensors(values)
        assert with_named_pointers(recorded, tensor_groups(values).values(), [low, high]) == recorded


class TensorWrapper:
    """Triton's, as far as a launch uses it."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base, self.dtype = base, dtype

    def data_ptr(self) -> int:
        return int(self.base.data_ptr())


def test_an_address_in_a_tensor_that_triton_wraps_is_a_pointer_to_it() -> None:
    x = tensor(np.zeros(4, np.float32), "fp32")
    values = {
        "x": TensorWrapper(x, tl.float32),
        "table": tensor(np.array([x.data_ptr() + 8], np.int64), "i64"),
    }
    assert recorded_tensors(values)["table"].manifest_form() == [{"buffer": "x", "offset": 8, "dtype": "fp32"}]


def test_a_large_tensor_stays_symbolic(memory_of_this_process: list[int]) -> None:
    values = {"table": tensor(np.arange(5, dtype=np.int32), "i32")}
    assert recorded_tensors(values, maximum_bytes=16) == {}
    assert memory_of_this_process == []
    assert len(recorded_tensors(values, maximum_bytes=20)["table"]) == 5


def test_tensors_of_one_storage_are_one_buffer_from_the_lowest_address_on() -> None:
    memory = Storage(np.arange(10, dtype=np.int32).view(np.uint8), new_address())
    high, low = Tensor("i32", memory, 24, (2,)), Tensor("i32", memory, 8, (2, 2), (3, 1))
    found = recorded_tensors({"high": high, "low": low})
    assert {name: each.numbers.tolist() for name, each in found.items()} == {"high": [2, 3, 4, 5, 6, 7, 8, 9]}
    # Too much memory: up to the last element of a tensor.
    assert recorded_tensors({"low": low}, maximum_bytes=20)["low"].numbers.tolist() == [2, 3, 4, 5, 6]
    assert recorded_tensors({"low": low}, maximum_bytes=19) == {}
    mixed = {"low": low, "floats": Tensor("fp32", memory, 24, (2,))}
    assert recorded_tensors(mixed) == {}
    assert sorted(recorded_tensors(mixed, ["floats"])) == ["low"]
    assert recorded_tensors({"low": low, "high": high}, without=["high"]) == {}


def test_sizes_are_those_of_the_memory_from_its_start_on() -> None:
    whole = Storage(np.zeros(64, dtype=np.uint8), new_address())
    values = {
        "x": Tensor("fp32", whole, 16, (4,)),
        "y": Tensor("fp32", whole, 0, (2,)),
        "inside": Tensor("fp32", Storage(np.zeros(64, dtype=np.uint8), new_address()), 16, (4,)),
    }
    sizes = buffer_bytes(values)
    assert sizes == {"x": 64}, "elements below the pointer belong to a tensor that is read from its end"
    arguments = [
        {"buffer": "x", "dtype": "fp32", "offset": 16}, {"buffer": "x", "dtype": "i1"}, {"i32": 3},
        {"buffer": "inside", "dtype": "fp32"}, {"buffer": None}, {"buffer": "x", "dtype": "fp8e4m3"},
    ]  # fmt: skip
    compiled = CompiledKernel("k", "", "ptx", "k", (1, 1, 1), (1, 1, 1), {"args": arguments}, {}, "sm_90", "", 0.0)
    stated = state_sizes(compiled, sizes)
    assert [each.get("elements") for each in stated.manifest_entry["args"]] == [16, 64, None, None, None, None]


def test_a_capture_writes_the_tensors_beside_the_manifest(tmp_path: Path, triton_cache: Any) -> None:
    table, lengths = np.array(TABLE, np.int32), np.array([2, 3, 0], np.int32)
    arguments = {
        "x": tensor(np.ones(5 * 256, np.float32), "fp32"),
        "table": tensor(table, "i32"),
        "lengths": tensor(lengths, "i32"),
        "y": tensor(np.zeros(3 * 256, np.float32), "fp32"),
    }
    constants = {"PAGE": 256, "ENTRIES": 4}
    captured = capture(paged_sum, configurations(), arguments, grid=(3,), constants=constants, workers=1)
    manifest = json.loads(write_folder(captured, tmp_path).read_text())
    named = [[argument.get("values") for argument in kernel["args"]] for kernel in manifest["kernels"]]
    assert named[0] == named[1]
    assert named[0][0] is named[0][3] is None
    assert np.array_equal(np.load(tmp_path / named[0][1]), table)
    assert np.array_equal(np.load(tmp_path / named[0][2]), lengths)
    assert len(list(tmp_path.glob("*.npy"))) == 2
    found = partition_sources(read_folder(tmp_path, (".ptx",)).sources, "sm_90", Options(), workers=1)
    assert (len(found.classes), found.unknown) == (1, {})
    plain = capture(paged_sum, configurations(), arguments, grid=(3,), constants=constants, tensors=False, workers=1)
    assert all("values" not in argument for one in plain for argument in one.manifest_entry["args"])


@triton.jit
def shifted_copy(x, y, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at + SHIFT))


@pytest.mark.parametrize(("shift", "determined"), [(0, True), (64, True), (65, False)])
def test_a_capture_states_how_many_elements_each_tensor_has(shift: int, determined: bool, triton_cache: Any) -> None:
    """A kernel that reads one element beyond its tensor is not equal to itself; one that reads the last one is."""
    arguments = {
        "x": tensor(np.ones(320, np.float32), "fp32"),
        "y": tensor(np.zeros(256, np.float32), "fp32"),
    }
    choices: dict[str, Any] = {"grid": (2,), "constants": {"SHIFT": shift, "BLOCK": 128}}
    captured = capture(shifted_copy, configurations(), arguments, **choices, workers=1)
    assert [[each.get("elements") for each in one.manifest_entry["args"]] for one in captured] == [[320, 256]] * 2
    found = partition(shifted_copy, configurations(), arguments, **choices, workers=1)
    verdict = compare(shifted_copy, *configurations(), arguments, **choices, search_seconds=0)
    if determined:
        assert (found.classes, found.unknown) == (((0, 1),), {})
        assert verdict.outcome is Outcome.EQUAL
    else:
        assert found.classes == ((0,), (1,))
        assert sorted(found.unknown) == [0, 1]
        assert all("memory beyond the elements of a buffer is read" in one for one in found.unknown.values())
        assert verdict.outcome is Outcome.UNKNOWN


def test_values_of_a_buffer_that_do_not_fit_are_refused() -> None:
    def stated(*values: object) -> None:
        recorded_tensors({f"t{place}": Buffer("T", "i32", values=each) for place, each in enumerate(values)})

    with pytest.raises(CaptureError, match=r"The values of buffer 'T' hold 0\.5 at index 0, which does not fit i32\."):
        stated([0.5])
    with pytest.raises(CaptureError, match="Two arguments give buffer 'T' different values; give them once"):
        stated([1], [2])
    stated([1], [1])


# -- autotuning -------------------------------------------------------------------------------------------------------


def autotuned(reports: list[list[ConfigurationReport]], kernel: Any = paged_sum, **choices: Any) -> Any:
    pruner = equivalence_pruner(report=reports.append, workers=1, **choices)
    prune = {"early_config_prune": pruner}
    return triton.autotune(configurations(), key=[], prune_configs_by=prune)(kernel)


def launch_arguments(lengths: list[int]) -> tuple[list[Any], npt.NDArray[np.int32]]:
    own = np.array(lengths, np.int32)
    x, y = tensor(np.ones(5 * 256, np.float32), "fp32"), tensor(np.zeros(3 * 256, np.float32), "fp32")
    return [x, tensor(np.array(TABLE, np.int32), "i32"), tensor(own, "i32"), y], own


def test_the_pruner_takes_tensors_from_the_call_and_tunes_again_for_others(without_gpu: Any) -> None:
    reports: list[list[ConfigurationReport]] = []
    kernel = autotuned(reports)
    arguments, lengths = launch_arguments([2, 3, 0])
    for expected in (1, 1):
        kernel[(3,)](*arguments, PAGE=256, ENTRIES=4)
        assert len(reports) == expected
    assert [one.outcome for one in reports[0]] == ["reference", "equal"]
    lengths[0] = 1
    kernel[(3,)](*arguments, PAGE=256, ENTRIES=4)
    assert len(reports) == 2
    lengths[0] = 2
    kernel[(3,)](*arguments, PAGE=256, ENTRIES=4)
    assert len(reports) == 2


def test_the_pruner_without_tensors_cannot_establish_the_reference(without_gpu: Any) -> None:
    arguments, _ = launch_arguments([2, 3, 0])
    with pytest.raises(CaptureError, match="could not be established"):
        autotuned([], tensors=False)[(3,)](*arguments, PAGE=256, ENTRIES=4)


def test_the_pruner_reads_no_tensor_where_a_proof_needs_none(
    without_gpu: Any, memory_of_this_process: list[int]
) -> None:
    @triton.jit
    def gather(x, index, y, WIDTH: tl.constexpr):
        column = tl.arange(0, WIDTH)
        tl.store(y + column, tl.load(x + tl.load(index + column)))

    reports: list[list[ConfigurationReport]] = []
    kernel = autotuned(reports, gather)
    arguments, _ = launch_arguments([0] * 256)
    for _ in range(2):
        kernel[(1,)](arguments[0], arguments[2], arguments[3], WIDTH=256)
    assert [[one.outcome for one in each] for each in reports] == [["reference", "equal"]]
    assert memory_of_this_process == []


def test_a_tensor_that_a_hook_resets_is_not_taken_from_the_call(without_gpu: Any) -> None:
    arguments, _ = launch_arguments([2, 3, 0])
    hooks: tuple[dict[str, Any], ...] = ({"reset_to_zero": ["lengths"]}, {"pre_hook": lambda *_, **__: None})
    for changes in hooks:
        prune = {"early_config_prune": equivalence_pruner(workers=1)}
        kernel = triton.autotune(configurations(), key=[], prune_configs_by=prune, **changes)(paged_sum)
        with pytest.raises(CaptureError, match="could not be established"):
            kernel[(3,)](*arguments, PAGE=256, ENTRIES=4)
