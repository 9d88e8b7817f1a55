"""Descriptors that ask for more than memory and seconds are refused with a sentence."""

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, DescriptorError, Fold, GEMMDesc, ReductionDesc
from bitwise_core.descriptors.cuts import MAXIMUM_LENGTH, MAXIMUM_PARTS
from bitwise_core.ir.nodes import TreeError
from bitwise_core.ir.text import read

PRODUCT = (
    "gemm(k={k} left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=matrix "
    "instruction=instruction(architecture=sm_90 family=wgmma k=16) instruction_k=16 {more})"
)


@pytest.mark.parametrize(
    ("k", "more", "sentence"),
    [
        (1 << 26, "", "GEMMDesc: k: input should be less than or equal to 16777216, not 67108864"),
        (4096, "k_cuts=[cut(count=4294967296)]", "Cut: count: input should be less than or equal to 262144"),
        (1 << 20, "k_cuts=[cut(span=1)]", "the cut has 1048576 parts of 1 k; at most 262144 are described"),
        (4096, "k_cuts=[" + "cut(count=2) " * 17 + "]", "GEMMDesc: k_cuts: tuple should have at most 16 items"),
        (4096, "self=1", "GEMMDesc: self: there is no such field"),
        (4096, 'k_cuts="\\ud800"', "is no text of JSON (a text contains half of a UTF-16 pair)"),
        (4096, "k_cuts=" + "[" * 100_000, "the values are nested too deeply"),
    ],
)
def test_a_product_beyond_the_limits_is_refused(k: int, more: str, sentence: str) -> None:
    with pytest.raises(DescriptorError) as error:
        GEMMDesc.from_text(PRODUCT.format(k=k, more=more))
    assert sentence in str(error.value)


def test_a_reduction_beyond_the_limits_is_refused() -> None:
    folds = tuple(Fold(stride=1 << 20 * level, count=1 << 20) for level in range(2))
    with pytest.raises(DescriptorError, match=r"stride: .* 16777216"):
        ReductionDesc(length=4, dtype="fp32", folds=(*folds, Fold(stride=1 << 40)))
    with pytest.raises(DescriptorError, match="the folds cover 1099511627776 indices; at most 33554432 are described"):
        ReductionDesc(length=4, dtype="fp32", folds=folds)


def test_the_largest_cuts_are_described() -> None:
    assert GEMMDesc.from_text(PRODUCT.format(k=MAXIMUM_LENGTH, more=f"k_cuts=[cut(count={MAXIMUM_PARTS})]"))
    strided = Cut(layout="strided", count=3, tile=2)
    assert [part.tolist() for part in strided.parts(np.arange(11))] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10]]
    assert [len(part) for part in Cut(layout="strided", count=4).parts(np.arange(2))] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%0 = constant 1 b99999999", "the width b999999... is beyond that of any value"),
        ("%0 = load X+" + "9" * 5000 + " b32", "line 1 of the tree: "),
        ('%0 = load "\\q"+1 b32', "line 1 of the tree: "),
    ],
)
def test_a_tree_beyond_the_limits_is_refused(line: str, sentence: str) -> None:
    with pytest.raises(TreeError) as error:
        read(line + "\nreturn %0\n")
    assert sentence in str(error.value)
