"""The launcher of sm_90, as far as it can be tested without a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import DescriptorError, GEMMDesc, index_bits, read, write
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.numerics import FLOAT_FORMATS, storage
from bitwise_nvidia_sm90 import launcher, matrix_units, requirements
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule

RUNS = json.loads((Path(__file__).parent / "samples" / "launchers" / "products_sm_90.json").read_text())["runs"]
HARDWARE = Hardware({row.name: row for row in matrix_units.ROWS})


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["descriptor"])
def test_its_samples_are_supported_descriptors(run: dict[str, object]) -> None:
    desc = read(str(run["descriptor"]))
    assert isinstance(desc, GEMMDesc)
    assert write(desc) == run["descriptor"]
    assert plan(desc).k == desc.k - desc.k_dropped
    dtypes, shapes = zip(*((each["dtype"], each["shape"]) for each in run["operands"]), strict=True)  # type: ignore[attr-defined]
    assert dtypes == (desc.left_dtype, desc.right_dtype)
    operands = [
        np.zeros(shape, storage(FLOAT_FORMATS[dtype].bits)) for dtype, shape in zip(dtypes, shapes, strict=True)
    ]
    assert not evaluate(desc, *operands, hardware=HARDWARE).any()


def missing(monkeypatch: pytest.MonkeyPatch, installed: set[str], capability: tuple[int, int] | None) -> str | None:
    cuda = SimpleNamespace(is_available=lambda: capability is not None, get_device_capability=lambda: capability)

    def find_spec(name: str) -> bool | None:
        if name == "cuda.bindings" and name not in installed:
            raise ModuleNotFoundError("No module named 'cuda'")
        return name in installed or None

    monkeypatch.setattr(requirements, "find_spec", find_spec)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return launcher.GEMMLauncher().missing()


ALL = {"torch", "triton", "cuda.bindings"}


@pytest.mark.parametrize(
    ("installed", "capability", "said"),
    [
        (set(), None, "torch, triton and cuda-bindings are not installed"),
        ({"triton", "cuda.bindings"}, None, "torch is not installed"),
        ({"torch", "triton"}, (9, 0), "cuda-bindings is not installed"),
        (ALL, None, "there is no GPU that torch can use"),
        (ALL, (10, 0), "the GPU has compute capability 10.0, not 9.0"),
        (ALL, (9, 0), None),
    ],
)
def test_missing_requirements_are_named(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], capability: tuple[int, int] | None, said: str | None
) -> None:
    assert missing(monkeypatch, installed, capability) == said


def test_it_runs_only_gemm_descriptors() -> None:
    with pytest.raises(DescriptorError, match="products_sm_90 runs a GEMMDesc on a and b"):
        launcher.GEMMLauncher().launch(index_bits(4), np.zeros((1, 4), np.uint32))


def test_a_product_runs_on_the_device_of_its_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[int] = [0]
    ran: list[object] = []

    @contextmanager
    def device(chosen: SimpleNamespace) -> Iterator[None]:
        before, current[0] = current[0], chosen.index
        yield
        current[0] = before

    cuda = SimpleNamespace(
        current_device=lambda: current[0], device=device, is_current_stream_capturing=lambda: False
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    def run_prepared(*arguments: object) -> SimpleNamespace:
        ran.append(current[0])
        return SimpleNamespace(launch=ran.append)

    monkeypatch.setattr("bitwise_nvidia_sm90.gemm.run.run_prepared", run_prepared)
    desc = GEMMDesc(k=4, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma")
    for index in (0, 1):
        a = SimpleNamespace(device=SimpleNamespace(index=index))
        launcher.GEMMLauncher().product(desc, a, a, a)
    assert (ran, current) == ([0, 1], [0])
    launcher.GEMMLauncher().prepare(desc, a, a, a)("again")  # type: ignore[call-arg, arg-type]
    assert (ran, current) == ([0, 1, 1, "again"], [0])


MAPPED, POINTERS = Schedule(64, tma=True), Schedule(32)
GATHERED, PACKED = Schedule(64, gathering=1), Schedule(64, tma=True, packed=True)


@pytest.mark.parametrize(
    ("variable", "capturing", "tuned", "every", "asked"),
    [(None, False, False, [MAPPED, POINTERS], []), (None, False, False, [POINTERS], []),
     (None, False, False, [GATHERED, replace(GATHERED, stages=2), PACKED, POINTERS, Schedule(16)],
      [(1, [GATHERED, PACKED, POINTERS, Schedule(16)])]),
     (None, False, False, [PACKED, POINTERS], [(1, [PACKED, POINTERS])]),
     (None, True, False, [PACKED, POINTERS], []), (None, False, True, [PACKED, POINTERS], []),
     (None, False, False, [], []), ("0", False, False, [PACKED, POINTERS], []),
     ("1", False, False, [PACKED, POINTERS], []), ("3", False, False, [MAPPED], [(4, [])]),
     ("5", False, False, [PACKED, POINTERS], [(6, [])]), ("3", True, False, [PACKED, POINTERS], []),
     ("3", False, True, [PACKED, POINTERS], [])],
)  # fmt: skip
def test_schedules_are_timed_at_the_first_call_where_the_variable_says_so_or_no_tensor_map_has_the_operands(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, capturing: bool, tuned: bool, every: list[Schedule],
    asked: list[tuple[int, list[Schedule]]],
) -> None:  # fmt: skip
    """Without the variable the first of each kind, and the fallback; not of a product that has no matrix units."""
    from bitwise_nvidia_sm90.gemm import tuning
    from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Slices

    given = MatrixPlan(64, Slices(1, 64), 0, instruction_k8=False, accumulator_k=0)
    monkeypatch.setattr(tuning, "planned", lambda _: given if every else None)
    monkeypatch.setattr(tuning, "ranked", lambda *_: every)

    if variable is None:
        monkeypatch.delenv(tuning.FIRST_CALL_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(tuning.FIRST_CALL_VARIABLE, variable)
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: capturing)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(tuning, "is_tuned", lambda *_: tuned)
    found: list[tuple[int, list[Schedule]]] = []

    def tune(*_: object, most: int, tried: list[Schedule]) -> None:
        found.append((most, tried))
        raise PermissionError

    monkeypatch.setattr(tuning, "tune", tune)
    tuning.tune_at_first_call(*[None] * 4)  # type: ignore[arg-type]
    assert found == asked


@pytest.mark.parametrize(
    ("variable", "saved", "capturing", "chosen"),
    [(None, 1.39, False, 7), (None, 1.41, False, 0), (None, 1.0, True, 0), (None, None, False, 0), ("0", 1.0, False, 0),
     ("1", 1.0, False, 0), ("3", 3.0, False, 5), ("3", None, False, 5), ("3", 1.0, True, 0)],
)  # fmt: skip
def test_kernels_with_an_epilogue_are_timed_at_the_first_call_where_the_variable_or_their_expected_times_say_so(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, saved: float | None, capturing: bool, chosen: int
) -> None:
    """The fastest one runs last; schedules that do not run are left out."""
    from bitwise_nvidia_sm90.gemm import tuning

    monkeypatch.setattr(tuning, "expected_seconds_of", lambda *_: saved and (2e-6, 2e-6 * saved))

    if variable is None:
        monkeypatch.delenv(tuning.FIRST_CALL_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(tuning.FIRST_CALL_VARIABLE, variable)
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: capturing)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    times, ran = {4: 9.0, 5: 7.0, 6: 8.0, 7: 1.0}, list[int]()

    class Prepared:
        def __init__(self, stages: int) -> None:
            self.stages = stages

        def launch(self, *places: int) -> None:
            assert places == (1, 2, 3, 4)
            ran.append(self.stages)

    def run_fused(*given: Any) -> Prepared:
        stages = given[5] if len(given) > 5 else 4
        if stages == 3:
            raise UnsupportedGEMM("no kernel")
        return Prepared(stages)

    monkeypatch.setattr(tuning, "run_fused", run_fused)
    monkeypatch.setattr(tuning, "planned", lambda _: None)
    monkeypatch.setattr(tuning, "candidates", lambda *given: iter([4, 3, 5, 6, 7][: given[5]]))
    monkeypatch.setattr(
        tuning,
        "launch_graphs",
        lambda launches, _: {name: each.func.__self__.stages for name, each in launches.items()},
    )
    monkeypatch.setattr(
        tuning, "times_in_turn", lambda graphs, *_: {name: times[stages] for name, stages in graphs.items()}
    )
    a, b, out, other = (SimpleNamespace(data_ptr=lambda place=place: place) for place in (1, 2, 3, 4))
    fusion = SimpleNamespace(operands=(other,), matrices=1)
    found: Any = tuning.fuse_at_first_call(None, fusion, a, b, out)  # type: ignore[arg-type]
    assert (found.stages, ran) == ((chosen, [chosen]) if chosen else (4, []))


def test_a_kernel_that_is_hardly_faster_than_the_first_one_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    from bitwise_nvidia_sm90.gemm import tuning

    times = {4: 10.0, 5: 9.95, 6: 9.92}
    prepared = {stages: SimpleNamespace(stages=stages, launch=lambda *_: None) for stages in times}
    monkeypatch.setattr(tuning, "run_fused", lambda *given: prepared[given[5] if len(given) > 5 else 4])
    monkeypatch.setattr(tuning, "planned", lambda _: None)
    monkeypatch.setattr(tuning, "candidates", lambda *_: iter(times))
    monkeypatch.setattr(tuning, "launch_graphs", lambda launches, _: launches)
    monkeypatch.setattr(tuning, "times_in_turn", lambda graphs, *_: dict(zip(graphs, times.values(), strict=True)))
    a = SimpleNamespace(data_ptr=lambda: 1)
    fusion = SimpleNamespace(operands=(), matrices=0)
    assert tuning.fastest_fused(None, fusion, a, a, a, 3).stages == 4  # type: ignore[arg-type, attr-defined]
    times[6] = 9.85
    assert tuning.fastest_fused(None, fusion, a, a, a, 3).stages == 6  # type: ignore[arg-type, attr-defined]


def test_a_number_of_timed_schedules_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from bitwise_nvidia_sm90.gemm import tuning

    monkeypatch.setenv(tuning.FIRST_CALL_VARIABLE, "yes")
    with pytest.raises(ValueError, match="BITWISE_TIMED_SCHEDULES is 'yes': give a number of schedules, such as 3"):
        tuning.timed_at_first_call()
