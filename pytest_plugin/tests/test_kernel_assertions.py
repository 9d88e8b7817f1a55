"""Kernels that are not proved equal or deterministic fail with the classes, the counterexample and the reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bitwise_core import BitwiseError, Source
from bitwise_pytest import assert_deterministic, assert_same_bits
from bitwise_pytest.kernel_sources import sources_of

TOYS = Path(__file__).parents[2] / "examples/toy_arch/tests/samples/toy1/row_sum"
LAUNCH: dict[str, Any] = {
    "grid": [2], "args": [{"buffer": "x", "dtype": "fp32"}, {"buffer": "y", "dtype": "fp32"}]
}  # fmt: skip


def toy(name: str) -> str:
    return str(TOYS / f"{name}.toy")


def test_kernels_of_one_class_pass() -> None:
    assert_same_bits([toy("butterfly"), toy("renamed")])
    assert_deterministic(TOYS)
    assert_same_bits([Path(toy("butterfly")).read_text(), Path(toy("renamed")).read_text()], launch=LAUNCH)


def test_a_folder_with_two_classes_fails_with_the_classes_and_a_counterexample() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_same_bits(TOYS)
    first, *lines = str(raised.value).splitlines()
    assert first == "the kernels are in 2 classes"
    assert lines[:2] == ["  class 1: butterfly.toy, renamed.toy", "  class 2: halves_first.toy"]
    assert lines[2].startswith("butterfly.toy against halves_first.toy: different: ")
    assert "ulp" in lines[3]
    assert lines[4].startswith("  the first divergence is at y[0]: ")
    assert [line.split(": ")[0].strip().split(":")[0] for line in lines[5:]] == ["butterfly.toy", "halves_first.toy"]


def test_a_kernel_that_is_unknown_fails(tmp_path: Path) -> None:
    text = Path(toy("butterfly")).read_text()
    with pytest.raises(AssertionError) as raised:
        assert_same_bits([Source("a.toy", text.replace("add.f", "add.q"), None)], launch=LAUNCH)
    assert str(raised.value).startswith("nothing is proved of the kernel\n  class 1: a.toy, unknown: ")
    with pytest.raises(AssertionError, match=r"^not every kernel is proved to be deterministic\na\.toy is unknown: "):
        assert_deterministic([Source("a.toy", text.replace("add.f", "add.q"), None)], launch=LAUNCH)


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ((toy("absent"),), BitwiseError, "there is no such file"),
        ((TOYS, None, {"x": 1}), TypeError, "args: only configurations of a Triton kernel take these: give `configs`"),
    ],
)
def test_mistakes_are_no_failures_of_the_assertion(
    arguments: tuple[Any, ...], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence.replace(".", r"\.")):
        assert_same_bits(*arguments)


def test_configurations_of_a_triton_kernel() -> None:
    pytest.importorskip("triton")
    pytest.importorskip("bitwise_triton")
    pytest.importorskip("bitwise_nvidia_sm90")
    from bitwise_triton.samples.softmax_rows import SAMPLE

    chosen: dict[str, Any] = {"grid": SAMPLE.grid}
    configs = SAMPLE.configurations[:2]
    with pytest.raises(TypeError, match="give `args` and `grid`"):
        assert_same_bits(SAMPLE.kernel, configs, SAMPLE.arguments)
    assert_same_bits(SAMPLE.kernel, configs[:1], SAMPLE.arguments, **chosen)
    assert_deterministic(SAMPLE.kernel, configs[:1], SAMPLE.arguments, **chosen)
    with pytest.raises(
        AssertionError, match=r"^the kernels are in 2 classes\n  class 1: num_warps=1\n  class 2: num_warps=2\n"
    ):
        assert_same_bits(SAMPLE.kernel, configs, SAMPLE.arguments, search_seconds=1.0, **chosen)
    # Golden kernels keep their names whatever other configurations there are.
    whole = sources_of(SAMPLE.kernel, configs[:1], SAMPLE.arguments, None, chosen, whole_names=True)
    assert "num_warps=1" in whole[0].name
    assert "BLOCK=" in whole[0].name
