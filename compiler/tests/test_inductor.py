"""`same_bits` on stand-ins of Inductor's classes, over kernels that Triton compiles."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import permutations
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from fake_tensors import tensor  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler.compiler import ASTSource  # noqa: E402

from bitwise_triton.errors import CaptureError  # noqa: E402
from bitwise_triton.inductor import KernelReport, same_bits, selection, templates  # noqa: E402
from bitwise_triton.inductor.launches import numbers_of  # noqa: E402
from bitwise_triton.inductor.selection import Rules  # noqa: E402
from bitwise_triton.inductor.static_launcher import static_launcher  # noqa: E402
from bitwise_triton.inductor.templates import restricted  # noqa: E402
from bitwise_triton.inductor.tuning import hooked_autotuner, untimed_fields  # noqa: E402
from bitwise_triton.reductions import pinned_reductions  # noqa: E402

TARGET = GPUTarget("cuda", 90, 32)
SIGNATURE = {"x": "*fp32", "y": "*fp32", "columns": "i32", "BLOCK": "constexpr"}


@triton.jit
def row_sum(x, y, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
    tl.store(y + row, tl.sum(value, 0))


@dataclass(frozen=True)
class Dtype:
    """The name of a scalar type, as torch.dtype has it."""

    name: str
    itemsize: int = 4
    is_floating_point: bool = True

    def __str__(self) -> str:
        return self.name


class Tensor:
    """What a launcher reads of a tensor."""

    def __init__(self, address: int) -> None:
        self.address, self.dtype = address, Dtype("torch.float32")

    def data_ptr(self) -> int:
        return self.address


class Result:
    """A compile result."""

    def __init__(self, config: triton.Config, kernel: Any = row_sum, signature: dict[str, str] = SIGNATURE) -> None:
        self.config = config
        self.compile_meta = {"signature": signature}
        source = ASTSource(kernel, signature, {"BLOCK": config.kwargs["BLOCK"]}, {})
        self.kernel = triton.compile(source, target=TARGET, options={"num_warps": config.num_warps})

    def make_launcher(self) -> Callable[..., None]:
        def launcher(*arguments: object, stream: int) -> None:
            launched.append(self.config.num_warps)

        launcher.config = self.config  # type: ignore[attr-defined]
        return launcher


launched: list[int] = []


@dataclass
class Autotuner:
    """The parts of Inductor's autotuner that same_bits uses; `times` by number of warps."""

    times: dict[int, float]
    tuned: dict[str, Any] = field(default_factory=dict)
    reset_to_zero_arg_names: tuple[str, ...] = ()

    runs = 0

    def __post_init__(self) -> None:
        self.fn = row_sum
        self.triton_meta = {"signature": SIGNATURE}
        self.inductor_meta: dict[str, object] = {}
        self.compile_results = [Result(triton.Config({"BLOCK": 256}, num_warps=warps)) for warps in self.times]
        self.launchers: list[Any] = []

    def precompile(self) -> None:
        self.launchers = [each.make_launcher() for each in self.compile_results]

    def _interpret_args_grid(self, arguments: Sequence[Any], config: Any) -> tuple[Sequence[Any], tuple[int, int, int]]:
        return arguments, (8, 1, 1)

    def bench(self, launcher: Any, *arguments: Any) -> float:
        return self.times[launcher.config.num_warps]

    def benchmark_all_configs(self, *arguments: Any) -> dict[Any, float]:
        return {each: self.bench(each, *arguments) for each in self.launchers}

    def run(self, *arguments: Any, stream: int) -> None:
        self.runs += 1
        if len(self.launchers) > 1:
            timings = self.benchmark_all_configs(*arguments)
            self.launchers = [min(timings, key=lambda each: timings[each])]
        (launcher,) = self.launchers
        launcher(*arguments, stream=stream)


@pytest.fixture
def reports() -> Iterator[list[KernelReport]]:
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Autotuner, Result, Rules(report=found.append)):
        yield found


def test_the_fastest_of_the_class_of_the_first_is_chosen(reports: list[KernelReport]) -> None:
    # 200 columns in one row: with 1, 2 and 4 warps a thread adds other elements first.
    tuner = Autotuner({1: 3.0, 2: 1.0, 4: 2.0})
    tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert launched == [1]
    (found,) = reports
    assert found.kernel == "row_sum"
    assert found.reference == "BLOCK=256, num_warps=1, num_ctas=1, num_stages=3"
    assert found.kept == ()
    assert [each.outcome for each in found.dropped] == ["unproved", "unproved"]
    assert found.chosen == found.reference
    assert dict(found.milliseconds) == {
        f"BLOCK=256, num_warps={warps}, num_ctas=1, num_stages=3": time for warps, time in tuner.times.items()
    }
    assert found.cost == 3.0


def test_a_faster_configuration_of_the_same_class_is_chosen(reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 3.0, 2: 1.0})
    tuner.compile_results.append(Result(triton.Config({"BLOCK": 256}, num_warps=1, num_stages=2)))
    tuner.compile_results[-1].config.num_warps = 8  # the launcher's name for the test
    tuner.times[8] = 2.0
    tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert launched == [8]
    assert len(reports[0].kept) == len(reports[0].dropped) == 1


def test_each_launch_with_other_numbers_is_tuned_by_itself(reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 3.0, 2: 1.0})
    tensors = Tensor(1 << 40), Tensor(1 << 41)
    # Two rows of one element: the sum of each is the element.
    tuner.run(*tensors, 1, stream=0)
    tuner.run(*tensors, 200, stream=0)
    tuner.run(*tensors, 1, stream=0)
    assert launched == [2, 1, 2]
    assert [len(each.kept) for each in reports] == [1, 0]


def test_a_chosen_configuration_is_launched_without_the_autotuner(reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 3.0, 2: 1.0})
    tensors = Tensor(1 << 40), Tensor(1 << 41)
    for columns in (1, 200):
        tuner.run(*tensors, columns, stream=0)
    assert (tuner.runs, launched) == (2, [2, 1])
    for columns in (1, 200, 200, 1):
        tuner.run(*tensors, columns, stream=0)
    assert (tuner.runs, launched[2:]) == (2, [2, 1, 1, 2])
    assert len(reports) == 2


def test_a_single_configuration_is_launched_without_the_autotuner(reports: list[KernelReport]) -> None:
    tuner = Autotuner({4: 1.0})
    for columns in (1, 200, 7):
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), columns, stream=0)
    assert (tuner.runs, launched, reports) == (1, [4, 4, 4], [])


@pytest.mark.parametrize("attribute", ["_plugins", "triton_interpret", "dump_launch_params", "dump_launch_tensors"])
def test_an_autotuner_that_does_more_than_launch_stays(attribute: str, reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 3.0, 2: 1.0})
    setattr(tuner, attribute, True)
    for _ in range(3):
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 1, stream=0)
    assert (tuner.runs, launched, len(reports)) == (3, [2, 2, 2], 1)


def test_a_profiler_sees_every_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    launched.clear()
    profiler = SimpleNamespace(_is_profiler_enabled=False)
    monkeypatch.setitem(Autotuner.run.__globals__, "autograd_profiler", profiler)
    with hooked_autotuner(Autotuner, Result, Rules()):
        tuner = Autotuner({1: 3.0, 2: 1.0})
        arguments = Tensor(1 << 40), Tensor(1 << 41), 1
        tuner.run(*arguments, stream=0)
        for profiler._is_profiler_enabled in (True, False, True):
            tuner.run(*arguments, stream=0)
    assert (tuner.runs, launched) == (3, [2, 2, 2, 2])


def test_outside_other_numbers_keep_the_reference() -> None:
    launched.clear()
    with hooked_autotuner(Autotuner, Result, Rules()):
        tuner = Autotuner({1: 3.0, 2: 1.0})
        tensors = Tensor(1 << 40), Tensor(1 << 41)
        tuner.run(*tensors, 1, stream=0)
    # With 2 warps, rows of 200 have other bits.
    for columns in (1, 200, 1):
        tuner.run(*tensors, columns, stream=0)
    assert launched == [2, 2, 1, 2]


def test_numbers_of_other_bits_are_other_numbers() -> None:
    values = 0, False, 0.0, -0.0, 1, True, 1.0, 2.0**-1074, float("inf"), float("nan")
    assert len({numbers_of([None, value]) for value in values}) == len(values)
    assert numbers_of([float("nan")]) == numbers_of([float("nan")])


class Searching(Autotuner):
    """An autotuner that looks for other configurations, and remembers their times whatever the numbers are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inductor_meta = {"coordinate_descent_tuning": True}
        self.coordesc_tuner = SimpleNamespace(cached_benchmark_results={})
        self.found = Result(triton.Config({"BLOCK": 256}, num_warps=4))

    def coordinate_descent_tuning(self, launcher: Any, *arguments: Any) -> Any:
        other, times = self.found.make_launcher(), self.coordesc_tuner.cached_benchmark_results
        if 4 not in times:
            times[4] = self.bench(other, *arguments)
        return other if times[4] < self.times[launcher.config.num_warps] else launcher

    def run(self, *arguments: Any, stream: int) -> None:
        before, self.launchers = self.launchers, [self.choice(*arguments)]
        if self.inductor_meta["coordinate_descent_tuning"]:
            self.launchers = [self.coordinate_descent_tuning(self.launchers[0], *arguments)]
        if len(before) > 1:
            self.compile_results = [self.launchers[0].bitwise_result]  # the others are thrown away
        self.launchers[0](*arguments, stream=stream)

    def choice(self, *arguments: Any) -> Any:
        timings = self.benchmark_all_configs(*arguments)
        return min(timings, key=lambda each: timings[each])


def test_a_time_of_other_numbers_decides_nothing() -> None:
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Searching, Result, Rules(report=found.append)):
        tuner = Searching({1: 3.0, 2: 2.0, 4: 1.0})
        tensors = Tensor(1 << 40), Tensor(1 << 41)
        # A configuration that may be chosen for rows of one element, and not for others.
        for columns in (1, 200, 1, 200):
            tuner.run(*tensors, columns, stream=0)
    assert launched == [4, 1, 4, 1]


def test_a_search_cannot_return_what_is_not_proved() -> None:
    launched.clear()
    with hooked_autotuner(Searching, Result, Rules()):
        tuner = Searching({1: 3.0, 2: 2.0})
        other = tuner.found.make_launcher()
        tuner.precompile()
        tuner.coordesc_tuner.cached_benchmark_results[4] = 0.5
        first = tuner.launchers[0]
        assert tuner.coordinate_descent_tuning(first, Tensor(1 << 40), Tensor(1 << 41), 200) is first
        found = tuner.coordinate_descent_tuning(first, Tensor(1 << 40), Tensor(1 << 41), 1)
        assert found.config is other.config


def test_what_is_not_faster_needs_no_proof(reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 1.0, 2: 2.0, 4: 3.0})
    tensors = Tensor(1 << 40), Tensor(1 << 41)
    tuner.run(*tensors, 200, stream=0)
    tuner.times = {1: 3.0, 2: 1.0, 4: 2.0}
    tuner.run(*tensors, 1, stream=0)
    assert launched == [1, 2]
    names = [f"BLOCK=256, num_warps={warps}, num_ctas=1, num_stages=3" for warps in (1, 2, 4)]
    assert [(each.kept, each.dropped, each.slower) for each in reports] == [
        ((), (), (names[1], names[2])),
        ((names[1],), (), (names[2],)),
    ]


def test_a_search_proves_what_is_faster_only() -> None:
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Searching, Result, Rules(report=found.append)):
        tuner = Searching({1: 1.0, 2: 2.0})
        for tuner.times[4] in (1.5, 0.5):
            tuner.coordesc_tuner.cached_benchmark_results.clear()
            tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200 + (tuner.times[4] < 1), stream=0)
    # With 4 warps the bits are others.
    assert launched == [1, 1]
    assert [len(each.dropped) for each in found] == [0, 1]


def test_what_is_hardly_faster_needs_no_proof(reports: list[KernelReport]) -> None:
    tensors = Tensor(1 << 40), Tensor(1 << 41)
    for time, chosen in ((0.997, 1), (0.992, 2)):
        Autotuner({1: 1.0, 2: time}).run(*tensors, 1, stream=0)
        assert launched[-1] == chosen
    assert [(len(each.kept), len(each.slower)) for each in reports] == [(0, 1), (1, 0)]


def test_a_search_that_gains_little_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Searching, Result, Rules(report=found.append)):
        for time in (0.997, 0.992):
            tuner = Searching({1: 1.0})
            tuner.times[4] = time
            tuner.run(Tensor(1 << 40), Tensor(1 << 41), 1, stream=0)
    assert launched == [1, 4]
    assert [len(each.kept) for each in found] == [0, 1]


def test_a_search_from_a_start_that_is_timed_slower_again_chooses_nothing_unproved() -> None:
    class Again(Searching):
        def coordinate_descent_tuning(self, launcher: Any, *arguments: Any) -> Any:
            self.times[1] = 1.5  # the machine is slower now
            start, other = self.bench(launcher, *arguments), self.found.make_launcher()
            return other if self.bench(other, *arguments) < start else launcher

    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Again, Result, Rules(report=found.append)):
        tuner = Again({1: 1.0})
        tuner.times[4] = 1.2
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 1, stream=0)
    assert launched == [1]
    assert [len(each.kept) + len(each.dropped) for each in found] == [0]


def test_behind_the_fastest_several_are_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[tuple[int, int | None]] = []
    read = selection.compare_with_reference

    def recorded(reference: Any, candidates: Sequence[Any], **settings: Any) -> Any:
        together.append((len(candidates), settings["workers"]))
        return read(reference, candidates, **settings)

    monkeypatch.setattr(selection, "compare_with_reference", recorded)
    monkeypatch.setattr(selection, "_processors", lambda: 2)
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Autotuner, Result, Rules(report=found.append)):
        tuner = Autotuner({8: 5.0, 1: 1.0, 2: 2.0, 4: 3.0})
        # The same configuration as the reference, with other stages.
        tuner.compile_results.append(Result(triton.Config({"BLOCK": 256}, num_warps=8, num_stages=2)))
        tuner.compile_results[-1].config.num_warps = 16
        tuner.times[16] = 4.0
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert together == [(1, 1), (2, 2), (1, 1)]
    assert launched == [16]
    assert [each.outcome for each in found[0].dropped] == ["unproved"] * 3


def test_after_the_limit_of_its_proofs_a_kernel_keeps_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    read, clock = selection.compare_with_reference, iter(range(0, 1000, 4))

    def recorded(*arguments: Any, **settings: Any) -> Any:
        limits.append(settings["time_limit"])
        return read(*arguments, **settings)

    monkeypatch.setattr(selection, "compare_with_reference", recorded)
    monkeypatch.setattr(selection, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Autotuner, Result, Rules(report=found.append, seconds=4.25)):
        tuner = Autotuner({8: 5.0, 1: 1.0, 2: 2.0, 4: 3.0})
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
        # A proof takes 4 s of this clock: one is made.
        assert limits == [4.25]
        assert [each.outcome for each in found[0].dropped] == ["unproved", "unknown", "unknown"]
        assert found[0].dropped[2].reason == "The limit of 4.25 s for the proofs is reached."
        # Another launch has its own time.
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 1, stream=0)
    assert launched == [8, 1]


def test_behind_a_reference_that_cannot_be_read_nothing_is_compared(
    reports: list[KernelReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    read = selection.compare_with_reference

    def counted(reference: Any, candidates: Sequence[Any], **settings: Any) -> Any:
        compared.append(len(candidates))
        broken = dataclasses.replace(reference, assembly=reference.assembly.replace("add.f32", "add.f33"))
        return read(broken, candidates, **settings)

    monkeypatch.setattr(selection, "compare_with_reference", counted)
    tuner = Autotuner({1: 3.0, 2: 1.0, 4: 2.0})
    tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert launched == [1]
    assert [each.outcome for each in reports[0].dropped] == ["unknown", "unknown"]
    assert compared == [1]


def test_the_settled_launcher_takes_the_place_of_the_tuned_one() -> None:
    launched.clear()
    settled: list[tuple[int, Any]] = []

    def exchange(autotuner: Any, result: Any, launcher: Any) -> Any:
        assert result.config is launcher.config
        settled.append((launcher.config.num_warps, result))
        return lambda *arguments, stream: launched.append(-launcher.config.num_warps)

    with hooked_autotuner(Autotuner, Result, Rules(), exchange):
        tuner = Autotuner({1: 3.0, 2: 1.0})
        for columns in (1, 1, 200, 200):
            tuner.run(Tensor(1 << 40), Tensor(1 << 41), columns, stream=0)
    assert launched == [2, -2, 1, -1]
    assert [warps for warps, _ in settled] == [2, 1]


class OutOfResources(Exception):
    """What Inductor raises for a configuration that needs more than the GPU has."""


class PTXASError(Exception):
    """What Triton raises for an assembler that fails."""


@dataclass
class Listed(Autotuner):
    """An autotuner with the list of its configurations; those with `missing` warps did not compile where it was made.

    `failing` has an error for each number of warps that does not compile here.
    """

    missing: tuple[int, ...] = ()
    failing: dict[int, Exception] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.configs = [each.config for each in self.compile_results]
        self.compile_results = [each for each in self.compile_results if each.config.num_warps not in self.missing]
        self.fn = SimpleNamespace(fn=len, __name__="row_sum", params=row_sum.params)  # type: ignore[assignment]

    def _precompile_config(self, config: triton.Config) -> Result:
        if config.num_warps in self.failing:
            raise self.failing[config.num_warps]
        return Result(config)


def with_warps(warps: int) -> Callable[[Any], triton.Config]:
    return lambda tuner: triton.Config({"BLOCK": 256}, num_warps=warps)


def test_the_reference_is_the_preferred_configuration() -> None:
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Autotuner, Result, Rules(report=found.append), untuned=with_warps(4)):
        tuner, single = Listed({1: 3.0, 2: 1.0, 4: 5.0}), Listed({1: 3.0})
        tensors = Tensor(1 << 40), Tensor(1 << 41)
        for columns in (200, 1, 200):
            tuner.run(*tensors, columns, stream=0)
        single.run(*tensors, 200, stream=0)
    # Rows of 200 have other bits with 1 or 2 warps; of one element, all are equal.
    assert launched == [4, 2, 4, 1]
    assert [each.reference for each in found] == ["BLOCK=256, num_warps=4, num_ctas=1, num_stages=3"] * 2
    assert [len(each.kept) for each in found] == [0, 1]


def test_a_preferred_configuration_that_is_not_listed_is_compiled() -> None:
    launched.clear()
    with hooked_autotuner(Autotuner, Result, Rules(), untuned=with_warps(8)):
        tuner = Listed({1: 3.0, 2: 1.0})
        tuner.times[8] = 5.0
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert launched == [8]


@pytest.mark.parametrize("missing", [(), (1,), (2,), (1, 2), (2, 4)])
def test_neither_the_order_of_the_list_nor_what_is_missing_decides_the_reference(missing: tuple[int, ...]) -> None:
    launched.clear()
    found: list[KernelReport] = []
    with hooked_autotuner(Autotuner, Result, Rules(report=found.append)):
        for order in permutations({1: 3.0, 2: 1.0, 4: 2.0}.items()):
            tuner = Listed(dict(order), missing=missing)
            tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert launched == [1] * 6
    assert {each.reference for each in found} <= {"BLOCK=256, num_warps=1, num_ctas=1, num_stages=3"}


def test_behind_a_reference_that_compiles_nowhere_the_next_one_is_taken() -> None:
    tensors = Tensor(1 << 40), Tensor(1 << 41)
    nowhere = OutOfResources("shared memory"), PTXASError("Internal Triton PTX codegen error")
    for error in nowhere:
        launched.clear()
        with hooked_autotuner(Autotuner, Result, Rules()):
            for order in permutations({1: 1.0, 2: 3.0, 4: 2.0}.items()):
                Listed(dict(order), missing=(1,), failing={1: error}).run(*tensors, 200, stream=0)
        assert launched == [2] * 6
    here = MemoryError("no memory"), PTXASError("`ptxas` failed with error code -9")
    for other in here:
        launched.clear()
        with hooked_autotuner(Autotuner, Result, Rules()), pytest.raises(CaptureError, match=r"num_warps=1.* bits"):
            Listed({1: 1.0, 2: 3.0}, missing=(1,), failing={1: other}).run(*tensors, 200, stream=0)
        assert launched == []


def test_with_a_pinned_order_other_warps_are_equal() -> None:
    launched.clear()
    found: list[KernelReport] = []
    with pinned_reductions("auto"), hooked_autotuner(Autotuner, Result, Rules(report=found.append)):
        tuner = Autotuner({1: 3.0, 2: 2.0, 4: 1.0})
        tuner.run(Tensor(1 << 40), Tensor(1 << 41), 200, stream=0)
    assert launched == [4]
    assert (len(found[0].kept), found[0].dropped) == (1, ())


def test_a_configuration_that_is_proposed_later_is_judged(reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 3.0, 2: 1.0})
    tensors = Tensor(1 << 40), Tensor(1 << 41)
    tuner.precompile()
    other = Result(triton.Config({"BLOCK": 256}, num_warps=4))
    tuner.times[4] = 0.5
    assert tuner.bench(other.make_launcher(), *tensors, 200) == float("inf")
    assert tuner.bench(other.make_launcher(), *tensors, 1) == 0.5


def test_a_kernel_that_the_manifest_cannot_describe_keeps_its_first_configuration(reports: list[KernelReport]) -> None:
    tuner = Autotuner({1: 3.0, 2: 1.0})
    tuner.run(Tensor(1 << 40), Tensor(1 << 41), 1 << 40, stream=0)
    assert launched == [1]
    assert reports[0].dropped[0].outcome == "unknown"


def test_the_autotuner_is_restored() -> None:
    before = Autotuner.run, Autotuner.bench, Autotuner.benchmark_all_configs, Result.make_launcher
    with hooked_autotuner(Autotuner, Result, Rules()):
        assert Autotuner.run is not before[0]
    assert (Autotuner.run, Autotuner.bench, Autotuner.benchmark_all_configs, Result.make_launcher) == before


def test_another_version_of_the_autotuner_is_refused() -> None:
    with pytest.raises(CaptureError, match="lacks run, bench"), hooked_autotuner(object, Result, Rules()):
        pass


class FieldTuner:
    """Inductor's search for the fastest of several numbers."""

    @staticmethod
    def autotune_single_field(
        function: Callable[[int], float], init_val: int, min_val: int | None = None, max_val: int | None = None
    ) -> int:
        return min((init_val, 2 * init_val), key=function)


def test_a_number_that_changes_bits_is_not_chosen_by_time() -> None:
    search = FieldTuner.autotune_single_field
    with untimed_fields(FieldTuner):
        assert FieldTuner.autotune_single_field(lambda number: 1 / number, 64, 8) == 64
        assert FieldTuner().autotune_single_field(lambda number: 1 / number, 32, max_val=8) == 32
    assert FieldTuner.autotune_single_field is search
    assert search(lambda number: 1 / number, 64) == 128
    with untimed_fields(Autotuner):
        assert not hasattr(Autotuner, "autotune_single_field")


@triton.jit
def counted_sum(x, lengths, y, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for index in range(tl.load(lengths + row)):
        total += tl.load(x + index * BLOCK + column)
    tl.store(y + row * BLOCK + column, total)


COUNTED = {"x": "*fp32", "lengths": "*i32", "y": "*fp32", "BLOCK": "constexpr"}


@pytest.mark.usefixtures("memory_of_this_process")
@pytest.mark.parametrize(("tensors", "reset"), [(True, ()), (False, ()), (True, ("lengths",))])
def test_a_choice_may_hold_for_the_tensors_of_a_launch(tensors: bool, reset: tuple[str, ...]) -> None:
    launched.clear()
    lengths = np.array([3] * 8, np.int32)
    x, y = tensor(np.ones(1024, np.float32), "fp32"), tensor(np.ones(2048, np.float32), "fp32")
    arguments = [x, tensor(lengths, "i32"), y]
    found: list[KernelReport] = []
    with hooked_autotuner(Autotuner, Result, Rules(report=found.append, tensors=tensors)):
        tuner = Autotuner({1: 3.0, 2: 1.0})
        tuner.fn, tuner.triton_meta, tuner.reset_to_zero_arg_names = counted_sum, {"signature": COUNTED}, reset
        tuner.compile_results = [
            Result(triton.Config({"BLOCK": 256}, num_warps=warps), counted_sum, COUNTED) for warps in (1, 2)
        ]
        for length in (3, 3, 2, 3):
            lengths[0] = length
            tuner.run(*arguments, stream=0)
    if tensors and not reset:
        assert launched == [2, 2, 2, 2]
        assert [len(each.kept) for each in found] == [1, 1]
    else:
        assert launched == [1, 1, 1, 1]
        assert [each.dropped[0].outcome for each in found] == ["unknown"]


class Library:
    """A call of a library."""

    def __init__(self, name: str = "mm") -> None:
        self.name = self.description = name


class Template:
    """A template without a kernel that compiles."""

    def __init__(self, name: str) -> None:
        self.name = self.description = name
        self.bmreq = SimpleNamespace(module_cache_key="", module_path="", kernel_name="mm")


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("torch", "torch._inductor", "torch._inductor.select_algorithm", "torch._inductor.codecache")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    selector: Any = sys.modules["torch._inductor.select_algorithm"]
    selector.ExternKernelCaller, selector.TritonTemplateCaller = Library, Template
    code: Any = sys.modules["torch._inductor.codecache"]

    def load(*arguments: object, **keywords: object) -> None:
        raise OutOfResources("shared memory")

    code.PyCodeCache = SimpleNamespace(load_by_key_path=load)


def test_the_library_is_in_a_class_of_its_own(inductor: None) -> None:
    library, others = Library(), [Template("mm_1"), Template("mm_2")]
    assert restricted([library, *others], "library", Rules()) == [library]
    assert restricted([others[0], library], "library", Rules()) == [library]


def test_of_two_calls_with_a_bias_the_one_with_one_row_of_it_is_taken(inductor: None) -> None:
    plain, row = Library("addmm"), Library("bias_addmm")
    assert restricted([plain, row, Template("mm_1")], "library", Rules()) == [row]
    assert restricted([row, plain], "library", Rules()) == [row]
    assert restricted([plain, Library("other")], "library", Rules()) == [plain]


def test_templates_without_a_proof_leave_one(inductor: None) -> None:
    library, others = Library(), [Template("mm_1"), Template("mm_2")]
    found: list[KernelReport] = []
    for order in permutations([library, *others]):
        assert restricted(order, "triton", Rules(report=found.append)) == others[:1]
    assert "shared memory" in found[0].dropped[0].reason


def test_a_template_that_is_not_compiled_here_is_an_error(inductor: None) -> None:
    def load(*arguments: object, **keywords: object) -> None:
        raise OSError("no such module")

    sys.modules["torch._inductor.codecache"].PyCodeCache = SimpleNamespace(load_by_key_path=load)  # type: ignore[attr-defined]
    with pytest.raises(CaptureError, match="mm_1 cannot be compiled here: OSError: no such module"):
        restricted([Template("mm_1"), Template("mm_2")], "triton", Rules())


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize("nowhere", [None, "BLOCK_M=128, BLOCK_N=128, num_warps=8"])
def test_the_reference_of_templates_does_not_depend_on_their_order(
    nowhere: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template's name stands for its kernel here: those with eight warps return the same bits."""

    def compiled(choice: Any) -> Any:
        name = choice.description
        return templates.DoesNotCompile("registers") if name == nowhere else name

    def compared(reference: Any, others: Sequence[Any], rules: Rules) -> list[Any]:
        outcomes = ["equal" if "num_warps=8" in str(one) else "unproved" for one in others]
        return [SimpleNamespace(outcome=each, reason="") for each in outcomes]

    monkeypatch.setattr(templates, "_kernel", compiled)
    monkeypatch.setattr(templates, "compared", compared)
    names = [f"BLOCK_M={size}, BLOCK_N={size}, num_warps={warps}" for size, warps in ((16, 2), (128, 8), (64, 8))]
    for order in permutations(map(Template, names)):
        found: list[KernelReport] = []
        kept = restricted(order, "triton", Rules(report=found.append))
        assert found[0].reference == (names[2] if nowhere else names[1])
        assert {each.name for each in kept} <= {names[1], names[2]}
        assert found[0].reference in {each.name for each in kept}


def test_a_wrong_argument_is_named() -> None:
    with pytest.raises(ValueError, match="'library' or 'triton'"):
        same_bits(templates="aten")  # type: ignore[arg-type]
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="a number of seconds above 0"):
            same_bits(proof_seconds=seconds)


@pytest.mark.parametrize("same", [True, False])
def test_only_the_tuned_machine_code_is_launched_statically(
    same: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, inductor: None
) -> None:
    cubin = tmp_path / "row_sum.cubin"
    cubin.write_bytes(b"machine code")

    class StaticResult:
        def __init__(self, kernel: Any, *others: object) -> None:
            self.kernel = kernel

        @staticmethod
        def can_statically_launch(kernel: Any, *others: object) -> Any:
            return SimpleNamespace(cubin_path=str(cubin)) if config.use_static_cuda_launcher else None

        def make_launcher(self) -> Any:
            return lambda *arguments, stream: None

    config: Any = ModuleType("torch._inductor.config")
    config.use_static_cuda_launcher = True
    config.patch = lambda **settings: nullcontext()
    heuristics: Any = ModuleType("torch._inductor.runtime.triton_heuristics")
    heuristics.StaticTritonCompileResult = StaticResult
    for module in (config, ModuleType("torch._inductor.runtime"), heuristics):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys.modules["torch._inductor"], "config", config, raising=False)
    exchange = static_launcher()
    assert exchange is not None
    code = b"machine code" if same else b"other machine code"
    result = SimpleNamespace(kernel=SimpleNamespace(asm={"cubin": code}), config=None, compile_meta={})
    tuner = SimpleNamespace(inductor_meta={}, triton_meta={}, heuristic_type=None, fn=row_sum)
    launcher = Result(triton.Config({"BLOCK": 256}, num_warps=1)).make_launcher()
    assert (exchange(tuner, result, launcher) is launcher) is not same
    config.use_static_cuda_launcher = False
    assert static_launcher() is None
