"""Verdicts behind autotune pruning: real compiles, analysed without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

from bitwise_core.checker.comparison import find_element, session_of, trace_element  # noqa: E402
from bitwise_core.checker.sources import Options  # noqa: E402
from bitwise_core.checker.trees.expression_trees import build_tree  # noqa: E402
from bitwise_core.plugins.registry import default  # noqa: E402
from bitwise_triton import CaptureError, CompiledKernel, capture  # noqa: E402
from bitwise_triton.equivalence import compare_with_reference, source_of  # noqa: E402
from bitwise_triton.samples import Sample, masked_gemm, softmax_rows  # noqa: E402


def compiled(sample: Sample, *places: int) -> list[CompiledKernel]:
    """Some configurations of a sample."""
    configurations = [sample.configurations[place] for place in places]
    return capture(sample.kernel, configurations, sample.arguments, grid=sample.grid)


@pytest.fixture(scope="module")
def softmaxes() -> list[CompiledKernel]:
    """Configurations with one row per program, with two rows, and with one row and two warps."""
    return compiled(softmax_rows.SAMPLE, 0, 8, 1)


def test_each_candidate_is_compared_with_the_reference(softmaxes: list[CompiledKernel]) -> None:
    answers = compare_with_reference(softmaxes[0], softmaxes, every_launch=False, assume=())
    assert [one.outcome for one in answers] == ["equal", "equal", "unproved"]
    assert answers[1].reason == "Every output element has the same canonical dependence tree."


def test_identical_candidates_are_analysed_once_and_in_order(softmaxes: list[CompiledKernel]) -> None:
    first, second, third = softmaxes
    answers = compare_with_reference(third, [first, third, second, third], every_launch=False, assume=(), workers=1)
    assert [one.outcome for one in answers] == ["unproved", "equal", "unproved", "equal"]


def test_an_unknown_reference_is_equal_to_nothing(softmaxes: list[CompiledKernel]) -> None:
    strange = replace(softmaxes[0], assembly=softmaxes[0].assembly.replace("ex2.approx", "frobnicate.approx"))
    answers = compare_with_reference(strange, [strange, softmaxes[1]], every_launch=False, assume=())
    assert [one.outcome for one in answers] == ["unknown", "unknown"]
    assert "frobnicate" in answers[1].reason


def test_what_cannot_be_asked(softmaxes: list[CompiledKernel]) -> None:
    with pytest.raises(CaptureError, match="unknown assumption 'sunshine'"):
        compare_with_reference(softmaxes[0], softmaxes, every_launch=False, assume=("sunshine",))
    elsewhere = replace(softmaxes[0], target="sm_12345")
    with pytest.raises(CaptureError, match="No checker is installed for sm_12345"):
        compare_with_reference(elsewhere, [elsewhere], every_launch=False, assume=())
    assert compare_with_reference(softmaxes[0], [elsewhere], every_launch=False, assume=())[0].outcome == "unknown"


def test_the_tree_of_a_matrix_product_is_the_chain_of_its_steps() -> None:
    (one,) = compiled(masked_gemm.SAMPLE, 0)
    arch, options = default().arch("sm_90"), Options()
    source = source_of(one)
    from bitwise_core.checker.analysis import prepare

    prepared, session = prepare(source, arch, options), session_of((source,), options)
    index = 3 * masked_gemm.N + 5
    element = find_element(source, prepared, session, 3, index)
    assert not isinstance(element, str)
    replayed, scalar, _ = trace_element(prepared, session, element.address, element.size, element.threads[0] or 0)
    node = build_tree(replayed, scalar).root
    assert (element.size, node.name) == (2, "convert.rn.fp16.fp32")  # type: ignore[attr-defined]
    (step,) = node.children
    chain = []
    while step.kind == "matrix":
        chain.append(step)
        step = step.children[0]
    K, N = masked_gemm.K, masked_gemm.N
    steps = -(-K // 16)
    assert (len(chain), step.kind, step.bits) == (steps, "constant", 32)
    for number, each in enumerate(reversed(chain)):
        _, *factors = each.children
        for position in range(16):
            k = 16 * number + position
            left, right = factors[position], factors[16 + position]
            if k < K:
                places = [(n.buffer, n.offset, n.bits) for n in (left, right)]  # type: ignore[attr-defined]
                assert places == [("A", 2 * (3 * K + k), 16), ("B", 2 * (k * N + 5), 16)]
            else:
                assert [(n.kind, n.value) for n in (left, right)] == [("constant", 0)] * 2  # type: ignore[attr-defined]
