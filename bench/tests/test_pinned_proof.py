"""The equivalence proof on small cases of the benchmark, and on deliberately wrong rewritings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

from bitwise_bench.pinned_reductions import proof  # noqa: E402
from bitwise_bench.pinned_reductions.cases import Case, suite  # noqa: E402
from bitwise_triton import CaptureError  # noqa: E402
from bitwise_triton.errors import SharedMemoryLimitError  # noqa: E402
from bitwise_triton.reductions import Order, Pair, pinning, rewriting  # noqa: E402
from bitwise_triton.reductions.kernels import lowering, steps  # noqa: E402


@pytest.fixture
def triton_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty Triton cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def choose_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.9 warns if this default is not set."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


SMALL = {f"{case.kernel} {case.dtype}": case for case in proof.small_suite()}


def some(name: str, *places: int) -> Case:
    """A case with some of its configurations."""
    case = SMALL[name]
    return replace(case, configurations=tuple(case.configurations[place] for place in places))


def test_the_proof_has_every_kernel_and_type_of_the_benchmark_with_its_order() -> None:
    full: dict[str, set[str]] = {}
    for case in suite():
        full.setdefault(f"{case.kernel} {case.dtype}", set()).add(case.order)
    assert full.keys() == SMALL.keys()
    assert all(case.order in full[name] for name, case in SMALL.items())


@pytest.mark.parametrize("name", ["row_sum bf16", "layer_norm fp32", "inductor_sum fp16"])
def test_configurations_of_the_suite_are_one_class(name: str, triton_cache: Any) -> None:
    found = proof.prove(some(name, 0, -1))
    assert [(one["texts"], one["classes"]) for one in found["launches"]] == [(4, 1)]
    assert found["configurations"] == 4
    assert found["proved"] is True


def test_the_free_order_is_not_proved(triton_cache: Any) -> None:
    case = replace(some("row_sum fp32", 0, -1), order="")
    found = proof.prove(case)
    assert (found["launches"][0]["classes"], found["proved"]) == (2, False)


def test_a_step_folded_at_another_position_is_found(monkeypatch: pytest.MonkeyPatch, triton_cache: Any) -> None:
    """A rewriting that swaps two adjacent bits of one configuration."""
    case = SMALL["inductor_sum fp32"]
    rewrite = rewriting.rewrite
    calls: list[str] = []

    def wrong(text: str, order: Order, backend: str) -> Any:
        calls.append(text)
        other = Order("1, 0, inner_tree") if len(calls) == 1 else Order("inner_tree")
        return rewrite(text, other, backend)

    assert proof.prove(some("inductor_sum fp32", 0, 1))["proved"] is True
    monkeypatch.setattr(rewriting, "rewrite", wrong)
    found = proof.prove(case, "inner_tree", passes=[True])
    assert len(calls) == len(case.configurations)
    assert (found["launches"][0]["classes"], found["proved"]) == (2, False)


# The two configurations of the first case move before different steps.
@pytest.mark.parametrize(("name", "classes"), [("inductor_sum fp32", 3), ("column_sum fp16", 2)])
def test_a_layout_pass_that_continues_with_the_wrong_step_is_found(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch, triton_cache: Any
) -> None:
    """A layout pass that swaps two bits after it has moved a reduction."""
    make = steps.apply_steps
    wrong: list[int] = []

    def run(values: Any, at: int, rest: Any, *others: Any, first: int = 0, **keywords: Any) -> Any:
        if first and len(rest) > 1:
            this, other = (step.position for step in rest[:2])
            this, other = (other + 1, this) if other >= this else (other, this - 1)
            rest = (Pair(this), Pair(other), *rest[2:])
            wrong.append(first)
        return make(values, at, rest, *others, first=first, **keywords)

    case = some(name, 0, 1)
    assert proof.prove(case)["proved"] is True
    monkeypatch.setattr(steps, "apply_steps", run)
    monkeypatch.setattr(pinning, "_cache_key", lambda order, layout: f"wrong {order} {layout}")
    found = proof.prove(case)
    assert wrong
    assert (found["launches"][0]["classes"], found["proved"]) == (classes, False)


def test_a_move_that_loses_elements_does_not_compile(monkeypatch: pytest.MonkeyPatch, triton_cache: Any) -> None:
    choose_layout = lowering.choose_layout

    def losing(*arguments: Any) -> Any:
        found = choose_layout(*arguments)
        assert found.move is not None
        return replace(found, move=replace(found.move, registers=found.move.registers[1:]))

    monkeypatch.setattr(lowering, "choose_layout", losing)
    with pytest.raises(CaptureError, match="The layout pass loses elements of a tensor of"):
        proof.prove(some("inductor_sum fp32", 0))


def test_a_reduction_left_to_the_compiler_is_found(monkeypatch: pytest.MonkeyPatch, triton_cache: Any) -> None:
    """A rewriting that changes nothing and reports success."""
    case = some("inductor_sum fp32", 0, 1)
    monkeypatch.setattr(
        rewriting, "rewrite", lambda text, order, backend: (text, (rewriting.ReductionOutcome("here", True),))
    )
    found = proof.prove(case)
    assert (found["launches"][0]["classes"], found["proved"]) == (2, False)


def test_a_configuration_that_exceeds_a_block_is_named(monkeypatch: pytest.MonkeyPatch, triton_cache: Any) -> None:
    compiled = proof.captured
    case = some("inductor_sum fp32", 0, 1, 2)

    def captured(build: Any, target: str) -> Any:
        if build.number == 1:
            raise SharedMemoryLimitError(
                "It needs 9 bytes of shared memory and it has 8 per block; use smaller blocks."
            )
        return compiled(build, target)

    monkeypatch.setattr(proof, "captured", captured)
    found = proof.prove(case, passes=[True])
    assert (found["configurations"], found["proved"]) == (2, True)
    assert list(found["too_large"]) == [str(dict(case.configurations[1]))]
    monkeypatch.setattr(proof, "captured", lambda build, target: captured(replace(build, number=1), target))
    assert proof.prove(case, passes=[True])["proved"] is False


def test_the_command_writes_a_record(tmp_path: Any, triton_cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "small_suite", lambda: [some("inductor_sum fp32", 0, 1)])
    out = tmp_path / "record.json"
    assert proof.main(["--out", str(out)]) == 0
    assert '"proved": 1' in out.read_text()
    for mistake in (["--kernels", "nothing"], ["--target", "sm_1"]):
        with pytest.raises(SystemExit, match="2"):
            proof.main(["--out", str(out), *mistake])
