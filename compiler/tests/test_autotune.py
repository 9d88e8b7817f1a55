"""The pruner inside Triton's own autotuner, without a GPU and with a fake checker."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from bitwise_triton import Buffer, CaptureError, CompiledKernel, compile_configuration, equivalence  # noqa: E402
from bitwise_triton.arguments import DtypeStandIn  # noqa: E402
from bitwise_triton.autotune import ConfigurationReport, equivalence_pruner  # noqa: E402
from bitwise_triton.errors import UnverifiableReferenceError  # noqa: E402


class Tensor:
    """The attributes of a tensor that Triton and the pruner use: bytes at `address` in a storage."""

    def __init__(self, address: int, dtype: str = "fp32", storage: int | None = None, shape: tuple[int, ...] = (1024,)):
        self.address, self.dtype, self.shape = address, DtypeStandIn(dtype), shape
        self.storage = address if storage is None else storage
        self.zeroed = 0

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=lambda: self.storage, nbytes=lambda: 1 << 20)

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def zero_(self) -> Tensor:
        self.zeroed += 1
        return self


@dataclass
class Checker:
    """A fake checker: `rule` of the reference and a candidate is the verdict's outcome."""

    rule: Callable[[CompiledKernel, CompiledKernel], Any]
    calls: list[tuple[CompiledKernel, list[CompiledKernel], bool, tuple[str, ...]]] = field(default_factory=list)

    def __call__(
        self,
        reference: CompiledKernel,
        candidates: Sequence[CompiledKernel],
        *,
        every_launch: bool,
        assume: Sequence[str],
    ) -> list[equivalence.CandidateVerdict]:
        self.calls.append((reference, list(candidates), every_launch, tuple(assume)))
        return [equivalence.CandidateVerdict(self.rule(reference, one), f"as {one.name}") for one in candidates]


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Checker:
    """Kernels with equally many warps are equal."""
    found = Checker(lambda reference, one: "equal" if one.block == reference.block else "unproved")
    monkeypatch.setattr(equivalence, "compare_with_reference", found)
    return found


def configurations() -> list[Any]:
    return [
        triton.Config({"BLOCK": 128}, num_warps=1),
        triton.Config({"BLOCK": 256}, num_warps=1),
        triton.Config({"BLOCK": 256}, num_warps=2),
        triton.Config({"BLOCK": 100}, num_warps=1),
    ]


def double(x, y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def autotuned(predicate: Any, choices: list[Any] | None = None, key: tuple[str, ...] = ("n",)) -> Any:
    kernel = triton.jit(double)
    prune = {"early_config_prune": predicate}
    return triton.autotune(choices or configurations(), key=list(key), prune_configs_by=prune)(kernel)


def grid(args: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(args["n"], args["BLOCK"]),)


X, Y = Tensor(1 << 30), Tensor(1 << 31)


def test_autotuner_keeps_what_is_proved_equal(without_gpu: Any, checker: Checker, caplog: Any) -> None:
    reports: list[ConfigurationReport] = []
    kernel = autotuned(equivalence_pruner(assume=["finite"], report=reports.extend, workers=1))
    with caplog.at_level(logging.INFO, logger="bitwise_triton"):
        kernel[grid](X, Y, 1000, 2.0)
    assert [(one.kept, one.outcome) for one in reports] == [
        (True, "reference"),
        (True, "equal"),
        (False, "unproved"),
        (False, "failed"),
    ]
    assert reports[2].kernel == "double"
    assert reports[2].configuration == "BLOCK=256, num_warps=2, num_ctas=1, num_stages=3"
    assert reports[2].reason == "as BLOCK=256, num_warps=2, num_ctas=1, num_stages=3"
    assert "arange's range must be a power of 2" in reports[3].reason
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING", "WARNING"]
    assert kernel.best_config.all_kwargs() == {"BLOCK": 256, "num_warps": 1, "num_ctas": 1, "num_stages": 3}
    # The two kept configurations are benchmarked, and the faster one is launched.
    assert [launch[1] for launch in without_gpu.launches] == [(8, 1, 1), (4, 1, 1), (4, 1, 1)]
    # Each configuration is compiled once: the autotuner finds the two kept ones in the cache.
    assert without_gpu.compiles == [False, False, False, True, True]

    [(reference, requested, every_launch, assume)] = checker.calls
    assert requested[0] is reference
    assert (every_launch, assume) == (False, ("finite",))
    assert [one.grid for one in requested] == [(8, 1, 1), (4, 1, 1), (4, 1, 1)]
    assert reference.manifest_entry["args"] == [
        {"buffer": "x", "dtype": "fp32"},
        {"buffer": "y", "dtype": "fp32"},
        {"i32": 1000},
        {"fp32": 2.0},
    ]


def test_a_tuned_configuration_is_used_only_for_the_launch_of_its_proof(without_gpu: Any, checker: Checker) -> None:
    kernel = autotuned(equivalence_pruner(workers=1), key=())
    launches: list[tuple[Any, ...]] = [
        (grid, X, Y, 1000, 2.0),
        (grid, X, Y, 1008, 2.0),
        (grid, X, Tensor(Y.address + 4, storage=Y.address), 1000, 2.0),
        (grid, X, X, 1000, 2.0),
        ((16,), X, Y, 1000, 2.0),
        (grid, X, Y, 1000, 3.0),
    ]
    for place, *arguments in launches:
        for _ in range(2):
            kernel[place](*arguments)
    # Each launch is proved once, although all have the same tuning key; a repeated launch uses its cache.
    assert len(checker.calls) == len(launches)
    # The same arguments at another address are the same launch.
    kernel[grid](Tensor(1 << 33), Tensor(1 << 34), 1000, 2.0)
    assert len(checker.calls) == len(launches)
    shared = checker.calls[3][0].manifest_entry["args"]
    assert shared[:2] == [{"buffer": "x", "dtype": "fp32"}, {"buffer": "x", "dtype": "fp32"}]


def test_a_proof_for_every_launch_covers_its_specialisation(without_gpu: Any, checker: Checker) -> None:
    kernel = autotuned(equivalence_pruner(every_launch=True, workers=1), key=())
    for n, factor in [(1000, 2.0), (1001, 3.0), (2000, 2.0), (1008, 2.0), (2048, 2.0)]:
        kernel[grid](X, Y, n, factor)
    # 1000 and 1001 are not multiples of 16, the others are; 2000 is 125 times 16.
    assert [call[0].manifest_entry["args"][2] for call in checker.calls] == [{"i32": 1000}, {"i32": 2000}]
    assert [call[2] for call in checker.calls] == [True, True]


@pytest.mark.parametrize(("reference", "kept"), [(2, [2]), ({"num_warps": 2}, [2]), ({"BLOCK": 128}, [0, 1])])
def test_the_reference_is_selected_by_index_or_settings(
    without_gpu: Any, checker: Checker, reference: Any, kept: list[int]
) -> None:
    choices = configurations()
    kernel = triton.jit(double)
    predicate = equivalence_pruner(reference, function=kernel, workers=1)
    found = predicate(choices, {"x": X, "y": Y, "n": 1000, "factor": 2.0}, grid=grid, warmup=False)
    assert [choices.index(one) for one in found] == kept


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (4, "There is no configuration 4; valid indices are 0 to 3"),
        (-1, "There is no configuration -1"),
        ({"BLOCK": 256}, r"2 configurations have the settings of the reference \(BLOCK=256\)"),
        ({"BLOCK": 512}, r"0 configurations have the settings"),
        (3, "The reference configuration cannot be used. Configuration .BLOCK=100"),
    ],
)
def test_unusable_reference_is_an_error(without_gpu: Any, checker: Checker, reference: Any, message: str) -> None:
    predicate = equivalence_pruner(reference, function=triton.jit(double), workers=1)
    with pytest.raises(CaptureError, match=message):
        predicate(configurations(), {"x": X, "y": Y, "n": 1000, "factor": 2.0}, grid=grid)


def test_reference_compiled_elsewhere(without_gpu: Any, checker: Checker) -> None:
    kernel = triton.jit(double)
    arguments: Any = {"x": Buffer("x", "fp32"), "y": Buffer("y", "fp32"), "n": 1000, "factor": 2.0}
    elsewhere = compile_configuration(kernel, arguments, {"BLOCK": 512}, grid=(2,), num_warps=2, target="sm_90")
    choices = configurations()
    named: dict[str, Any] = {"x": X, "y": Y, "n": 1000, "factor": 2.0}
    found = equivalence_pruner(elsewhere, function=kernel, workers=1)(choices, named, grid=grid)
    assert found == [choices[2]]
    with pytest.raises(CaptureError, match="No configuration of kernel 'double' is proved equal"):
        equivalence_pruner(elsewhere, function=kernel, workers=1)(choices[:2], named, grid=grid)


@pytest.mark.parametrize("outcome", ["unknown", "unproved"])
def test_a_nondeterministic_reference_is_an_error(without_gpu: Any, checker: Checker, outcome: str) -> None:
    checker.rule = lambda reference, one: outcome if one is reference else "equal"
    kernel = autotuned(equivalence_pruner(workers=1))
    with pytest.raises(UnverifiableReferenceError, match=r"result of the reference \(BLOCK=128.*as BLOCK=128"):
        kernel[grid](X, Y, 1000, 2.0)
    assert without_gpu.launches == []


def test_unproved_configurations_are_dropped(without_gpu: Any, checker: Checker) -> None:
    checker.rule = lambda reference, one: "equal" if one is reference else "unknown"
    kernel = autotuned(equivalence_pruner(workers=1))
    kernel[grid](X, Y, 1000, 2.0)
    assert kernel.best_config.kwargs == {"BLOCK": 128}


def test_a_nested_predicate_needs_its_kernel(without_gpu: Any, checker: Checker) -> None:
    inner = equivalence_pruner(function=lambda: kernel, workers=1)

    def predicate(choices: list[Any], named: dict[str, Any], **keywords: Any) -> list[Any]:
        return inner(choices[1:], dict(named), **keywords)

    kernel: Any = autotuned(predicate)
    kernel[grid](X, Y, 1000, 2.0)
    assert kernel.best_config.kwargs == {"BLOCK": 256}
    kernel[grid](X, Y, 1000, 3.0)
    assert len(checker.calls) == 2

    lost = autotuned(lambda choices, named, **keywords: equivalence_pruner(workers=1)(choices, dict(named), **keywords))
    with pytest.raises(CaptureError, match="The calling autotuner was not found"):
        lost[grid](X, Y, 1000, 2.0)


def test_heuristics_and_defaults_are_applied(without_gpu: Any, checker: Checker) -> None:
    rules = {"BLOCK": lambda args: 1024 if args["x"].shape[0] > 512 else 64, "num_warps": lambda args: 2}
    kernel = triton.autotune(
        [triton.Config({}, num_stages=2), triton.Config({}, num_stages=3)],
        key=["n"],
        prune_configs_by={"early_config_prune": equivalence_pruner(workers=1)},
    )(triton.heuristics(rules)(triton.jit(double)))
    kernel[grid](X, Y, 1000, factor=2.0)
    [(_, requested, _, _)] = checker.calls
    assert [(one.grid, one.block) for one in requested] == [((1, 1, 1), (64, 1, 1))] * 2
    assert without_gpu.compiles == [False, False, True, True]


def tile(a, b, BLOCK: tl.constexpr):
    b.store([0, 0], a.load([0, tl.program_id(0) * BLOCK]))


def set_block(args: dict[str, Any]) -> None:
    args["a"].block_shape = [64, args["BLOCK"]]
    args["b"].block_shape = [64, args["BLOCK"]]


def test_a_pre_hook_that_sets_a_descriptor_is_applied(without_gpu: Any, checker: Checker) -> None:
    choices = [triton.Config({"BLOCK": block}, num_warps=1, pre_hook=set_block) for block in (64, 128)]
    seen: list[Any] = []

    def look(reports: list[ConfigurationReport]) -> None:
        seen.extend([a.block_shape, b.block_shape])

    prune = {"early_config_prune": equivalence_pruner(report=look, workers=1)}
    kernel = triton.autotune(choices, key=[], prune_configs_by=prune)(triton.jit(tile))
    a = TensorDescriptor(Tensor(1 << 30, "fp16"), [64, 512], [512, 1], [1, 1])
    b = TensorDescriptor(Tensor(1 << 31, "fp16"), [64, 128], [128, 1], [1, 1])
    kernel[(1,)](a, b)
    [(_, requested, _, _)] = checker.calls
    maps = [
        [entry["tensor_map"]["block"] for entry in one.manifest_entry["args"] if "tensor_map" in entry]
        for one in requested
    ]
    assert maps == [[[64, 64]] * 2] * 2
    assert requested[0].assembly != requested[1].assembly
    # The predicate did not change the caller's descriptors; the launches then set them.
    assert seen == [[1, 1], [1, 1]]
    assert without_gpu.compiles == [False, False, True, True]


def test_configurations_whose_pre_hooks_change_tensors_differently_are_not_compared(
    without_gpu: Any, checker: Checker
) -> None:
    def clear(args: dict[str, Any]) -> None:
        if args["BLOCK"] > 128:
            args["y"].zero_()

    def fill(args: dict[str, Any]) -> None:
        args["y"].data[:] = 0

    choices = [triton.Config({"BLOCK": block}, num_warps=1, pre_hook=clear) for block in (128, 256, 64)]
    choices.append(triton.Config({"BLOCK": 512}, num_warps=1, pre_hook=fill))
    reports: list[ConfigurationReport] = []
    y = Tensor(1 << 31)
    found = equivalence_pruner(function=triton.jit(double), report=reports.extend, workers=1)(
        choices, {"x": X, "y": y, "n": 1000, "factor": 2.0}, grid=grid
    )
    assert found == [choices[0], choices[2]]
    assert y.zeroed == 0
    assert reports[1].reason.startswith("Its pre_hook has other effects on tensors")
    assert reports[3].outcome == "failed"
    assert "pre_hook of the configuration (BLOCK: 512" in reports[3].reason


def test_a_launch_without_a_grid_needs_proofs_for_every_launch(without_gpu: Any, checker: Checker) -> None:
    predicate = equivalence_pruner(function=triton.jit(double), workers=1)
    predicate(configurations(), {"x": X, "y": Y, "n": 1000, "factor": 2.0})
    assert checker.calls[0][2] is True
    given = equivalence_pruner(function=triton.jit(double), grid=grid, workers=1)
    given(configurations(), {"x": X, "y": Y, "n": 1000, "factor": 2.0})
    assert checker.calls[1][2] is False
    assert checker.calls[1][0].grid == (8, 1, 1)


def test_target_must_be_known(triton_cache: Any, checker: Checker) -> None:
    named: dict[str, Any] = {"x": X, "y": Y, "n": 1000, "factor": 2.0}
    found = equivalence_pruner(function=triton.jit(double), target="sm_80", workers=1)(
        configurations(), named, grid=grid
    )
    assert len(found) == 2
    assert checker.calls[0][0].target == "sm_80"


def test_too_few_verdicts_of_the_checker_are_an_error(without_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        equivalence, "compare_with_reference", lambda *_, **__: [equivalence.CandidateVerdict("equal", "")]
    )
    with pytest.raises(CaptureError, match="returned 1 verdicts for 3 kernels"):
        autotuned(equivalence_pruner(workers=1))[grid](X, Y, 1000, 2.0)
