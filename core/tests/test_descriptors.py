from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.descriptors import (
    AttentionDesc,
    Cut,
    DescriptorError,
    Digit,
    Fold,
    GEMMDesc,
    Group,
    Instruction,
    Record,
    ReductionDesc,
    Rotation,
    Share,
    Tail,
    contiguous_slice_gemv,
    index_bits,
    lane_tree_gemv,
    per_mma,
    read,
    single_pass,
    split_k,
    split_k_per_mma,
    three_level_chain,
    workspace_gemv,
    write,
)
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, MergeSteps
from bitwise_core.plugins.installed import evaluate

UNIT = Instruction(architecture="unit_1", family="mma", k=16)
PLAIN = single_pass(64, "fp16", UNIT)
ATTENTION = AttentionDesc(
    key_block=32,
    masking="causal",
    query_block=64,
    mask="added",
    mask_value=-1e6,
    scores=single_pass(64, "fp16", UNIT, output_dtype="fp32"),
    score_scale=0.125,
    row_sum=index_bits(32),
    probabilities_dtype="fp16",
    values=single_pass(32, "fp16", UNIT, output_dtype="fp32"),
    exponential="exp2.approx",
)
EVERY: dict[str, Record] = {
    "single pass": PLAIN,
    "scaled": single_pass(100, ("e4m3", "e5m2"), UNIT, output_dtype="bf16", operand_scales=True, use_fast_accum=False),
    "blocks": single_pass(1000, "e4m3", UNIT, output_dtype="fp16", block=128),
    "split-K": split_k(8648, "fp16", UNIT, slices=9, tile=64, k_dropped=8, merge_dtype="fp16"),
    "per-MMA": per_mma(1003, "bf16", UNIT, k_loop_step=32, instruction_k=8),
    "split-K per-MMA": split_k_per_mma(1003, "bf16", UNIT, slices=3, k_loop_step=32, tile=8),
    "three-level chain": three_level_chain(1000, "fp16", chunks=4, span=128, fused=False),
    "lane tree": lane_tree_gemv(1000, "fp32", lanes=32, tile=4, chunk_tiles=3),
    "contiguous slices": contiguous_slice_gemv(1000, "fp16", lanes=32, chunk=16),
    "workspace": workspace_gemv(1000, "fp16", slices=4, lanes=8, count_down=False),
    "rotated": GEMMDesc(
        k=256, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="matrix", instruction=UNIT,
        instruction_k=16, k_loop_step=32, iteration_rotation=Rotation(axis="rows", tile=64, period=4, step=2),
        iteration_permutation=tuple(range(31, -1, -1)), alpha=-0.1875,
    ),
    "tail": GEMMDesc(
        k=300, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="matrix", instruction=UNIT,
        instruction_k=16, k_cuts=(Cut(count=3, tile=64, remainder="spread"), Cut(layout="strided", count=2, tile=16)),
        k_loop_step=32, iteration_rotation=Rotation(axis="columns", tile=64, period=4, halved=True),
        tail=Tail(length=44, shares=(Share(part=2), Share(tile=16))),
    ),
    "reduction": ReductionDesc(
        length=100, dtype="fp16", folds=(Fold(stride=4, count=32), Fold(stride=1, count=4, order="chain-down")),
        padding="zero",
    ),
    "one chain": ReductionDesc(
        length=64, dtype="fp32", folds=(Fold(stride=32, within=(Digit(stride=1, count=4),)), Fold(stride=4, count=8)),
    ),
    "chunks": index_bits(1000, (2, 0, 1, 3), chunk=16, chunks_first=False),
    "attention": ATTENTION,
    "infinite mask": AttentionDesc(**{**dict(ATTENTION), "mask": "replaced", "mask_value": -math.inf}),
    "numbers as names": single_pass(16, "fp16", Instruction(architecture="942", family="1e5", k=16)),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_text_and_json_round_trip(name: str) -> None:
    record = EVERY[name]
    line = write(record)
    assert "\n" not in line
    assert read(line) == record
    assert type(record).from_json(record.to_json()) == record
    assert hash(read(line)) == hash(record)
    assert write(read(line)) == line


def test_the_records_differ() -> None:
    assert len(set(EVERY.values())) == len(EVERY)


def test_the_text_of_split_k() -> None:
    assert EVERY["split-K"].to_text() == (  # type: ignore[attr-defined]
        "gemm(k=8648 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=matrix "
        "instruction=instruction(architecture=unit_1 family=mma k=16) instruction_k=16 "
        "k_cuts=[cut(count=9 tile=64 merge_dtype=fp16)] k_dropped=8)"
    )
    assert PLAIN.instruction_name == "mma_k16_fp32_fp16_fp16_fp32_unit_1"


def test_records_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        PLAIN.k = 3  # type: ignore[misc]


def _gemm(**changes: object) -> GEMMDesc:
    fields: dict[str, object] = {
        "k": 600, "left_dtype": "fp16", "right_dtype": "fp16", "output_dtype": "fp16", "path": "matrix",
        "instruction": UNIT, "instruction_k": 16,
    }  # fmt: skip
    return GEMMDesc(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"k_cuts": (Cut(span=192, count=3),)},
            "GEMMDesc: k_cuts[0] does not cover k: the cut's 3 parts of 192 k cover 576 of 600: "
            "give span = 200, or count = 4, or leave count out",
        ),
        (
            {"k_cuts": (Cut(span=300), Cut(span=64, count=4))},
            "GEMMDesc: k_cuts[1] does not cover k: the cut's 4 parts of 64 k cover 256 of 300: "
            "give span = 75, or count = 5, or leave count out",
        ),
        ({"alpha": float("nan")}, "GEMMDesc: alpha: the scale is nan: give a finite number, 1 for none"),
        ({"alpha": 0.1}, "GEMMDesc: alpha: 0.1 is not a number of fp32: round it first"),
        (
            {"alpha": -0.0},
            "GEMMDesc: alpha: -0.0 equals 0.0 but has other bits, so records of different bits would be equal: "
            "give 0.0",
        ),
        ({"k": 0}, "GEMMDesc: k: input should be greater than or equal to 1, not 0"),
        ({"k": "64"}, "GEMMDesc: k: input should be a valid integer, not '64'"),
        (
            {"multiplied_as": "fp16"},
            "GEMMDesc: operands of fp16 are fp16 already: leave multiplied_as out",
        ),
        (
            {"multiplied_as": "e5m2", "left_dtype": "e4m3"},
            "GEMMDesc: e5m2 does not hold every e4m3: choose another multiplied_as",
        ),
        ({"speed": 3}, "GEMMDesc: speed: there is no such field"),
        ({"instruction": None}, "GEMMDesc: the matrix path needs its instruction: architecture, family and native k"),
        ({"instruction_k": 32}, "GEMMDesc: instruction_k = 32 exceeds the instruction's native k of 16"),
        ({"k_dropped": 600}, "GEMMDesc: k_dropped = 600 drops all of k = 600"),
        (
            {"k_loop_step": 64},
            "GEMMDesc: k_loop_step = 64 does not affect the bits: the accumulator is carried across iterations and the "
            "short iteration runs last; leave it out, so that equal bits have equal records",
        ),
        (
            {"short_iteration": "first"},
            "GEMMDesc: short_iteration = first and iteration_rotation need the length of an iteration: "
            "give k_loop_step",
        ),
        (
            {"path": "fma"},
            "GEMMDesc: the path fma has no instruction: leave instruction and instruction_k out",
        ),
        (
            {"alpha": 2.0, "operand_scales": True},
            "GEMMDesc: give alpha or operand_scales: in which order the two multiply is not stated",
        ),
        (
            {"iteration_permutation": (0, 0)},
            "GEMMDesc: iteration_permutation is a permutation of the positions 0 to 0 of an iteration, whose length is "
            "k_loop_step",
        ),
        (
            {"tail": Tail(length=601)},
            "GEMMDesc: tail.length = 601 exceeds the 600 k that are summed",
        ),
        (
            {"tail": Tail(length=60)},
            "GEMMDesc: without cuts, rotation and permutation the tail is accumulated like all other k: leave tail out",
        ),
        (
            {"tail": Tail(length=60), "k_cuts": (Cut(count=2),)},
            "GEMMDesc: the tail has 0 shares, and k has 1 cuts: give one share a cut",
        ),
        (
            {"tail": Tail(length=60, shares=(Share(part=2),)), "k_cuts": (Cut(count=2),)},
            "GEMMDesc: tail.shares[0] needs a cut into a given number of parts, more than 2: k_cuts[0] has count = 2",
        ),
        (
            {"tail": Tail(length=60, shares=(Share(),)), "k_cuts": (Cut(span=270),)},
            "GEMMDesc: tail.shares[0] needs a cut into a given number of parts, more than 0: k_cuts[0] has "
            "count = None",
        ),
        (
            {"tail": Tail(length=60), "short_iteration": "first", "k_loop_step": 64},
            "GEMMDesc: the tail comes after all iterations: leave short_iteration or tail out",
        ),
    ],
)
def test_an_invalid_product_is_refused_with_what_to_change(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        _gemm(**changes)
    assert str(caught.value) == message


def test_an_unknown_type_lists_the_known_ones() -> None:
    with pytest.raises(DescriptorError, match=r"^GEMMDesc: left_dtype: there is no floating-point type 'half'; there "):
        _gemm(left_dtype="half")


def test_an_invalid_rotation_or_share_is_refused_with_what_to_change() -> None:
    with pytest.raises(DescriptorError) as caught:
        Rotation(axis="rows", tile=8, period=6, halved=True)
    assert str(caught.value) == "Rotation: a period is halved to 1 only from a power of two, not from 6"
    with pytest.raises(DescriptorError) as caught:
        Share(part=1, tile=8)
    assert str(caught.value) == "Share: a tail in tiles is distributed from part 0 on: give part or tile"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Cut: a contiguous cut needs the length of its parts, span, or their number, count"),
        (
            {"layout": "strided", "span": 3},
            "Cut: a strided cut distributes tiles over `count` parts: give count, and no span",
        ),
        (
            {"count": 3, "merge": "halves"},
            "Cut: the merge halves takes a power of two of parts: give such a count, not 3, or a chain",
        ),
        (
            {"count": 2, "partial_dtype": "fp16", "merge_dtype": "bf16"},
            "Cut: neither fp16 nor bf16 holds the other's values: they cannot be added",
        ),
    ],
)
def test_an_invalid_cut_is_refused_with_what_to_change(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        Cut(**fields)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gemm(k=3", "the line ends where a field or ')' is expected, in the descriptor 'gemm(k=3'"),
        ("gemm(k=3 k=4)", "k is given twice, in the descriptor 'gemm(k=3 k=4)'"),
        ("matmul(k=3)", "there is no descriptor 'matmul'; there are attention, attention_gradient, cut, digit, "
                        "epilogue, fold, gemm, group, instruction, reduction, rotation, share, step, tail, in the "
                        "descriptor 'matmul(k=3)'"),
        ("cut(span=3) 4", "found '4' after the descriptor, which must end the line, in the descriptor 'cut(span=3) 4'"),
        ("cut(span=)", "found ')' where a value is expected, in the descriptor 'cut(span=)'"),
        ("cut(span=3x)", "'3x' is not a value, in the descriptor 'cut(span=3x)'"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_refused_with_the_token(line: str, message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        read(line)
    assert str(caught.value) == message


def test_a_line_of_another_descriptor_is_refused() -> None:
    with pytest.raises(DescriptorError, match="this line holds a Cut where a GEMMDesc is expected"):
        GEMMDesc.from_text("cut(span=3)")
    with pytest.raises(DescriptorError, match="this is not JSON"):
        GEMMDesc.from_json("{")


def test_reductions_check_their_folds() -> None:
    with pytest.raises(DescriptorError) as caught:
        ReductionDesc(length=1000, dtype="fp32", folds=(Fold(stride=1, count=512),))
    assert str(caught.value) == (
        "ReductionDesc: the folds cover 512 indices and the axis has 1000: give one more of stride 512 and count 2"
    )
    with pytest.raises(DescriptorError, match="give one of stride 4"):
        ReductionDesc(length=64, dtype="fp32", folds=(Fold(stride=8, count=8), Fold(stride=1, count=4)))
    with pytest.raises(DescriptorError, match="does not name each of the bits 0 to 2"):
        index_bits(8, (0, 1))


def test_attention_checks_its_parts() -> None:
    fields = dict(ATTENTION)
    for change, message in (
        ({"row_sum": index_bits(64)}, "row_sum adds 64 values and a block has 32 keys"),
        ({"mask_value": None}, "a causal mask needs its mask_value"),
        ({"mask_value": -math.inf}, "a mask of -inf cannot be added: make mask replaced"),
        ({"mask_value": -1e-60}, "-1e-60 is not a number of fp32: round it first"),
        ({"score_scale": math.nan}, "nan is not a number of fp32: round it first"),
        (
            {"masking": "none"},
            "without a causal mask the block of queries does not affect the bits: leave query_block out",
        ),
        ({"scores": single_pass(64, "fp16", UNIT)}, "scores returns fp32"),
        ({"values": split_k(32, "fp16", UNIT, slices=2, output_dtype="fp32")}, "needs values in fp32, without k_cuts"),
        ({"probabilities_dtype": "bf16"}, "make left_dtype of values and probabilities_dtype one type"),
        ({"stored_dtype": "fp32"}, "scores takes fp16, which has not all numbers of fp32"),
        ({"output_scale": math.inf}, "output_scale is inf: give a finite number"),
    ):
        with pytest.raises(DescriptorError, match=message):
            AttentionDesc(**{**fields, **change})


def _cuts() -> st.SearchStrategy[Cut]:
    spans = st.builds(Cut, span=st.integers(1, 40), remainder=st.sampled_from(["short-last", "short-first"]))
    counts = st.builds(
        Cut,
        count=st.integers(1, 12),
        tile=st.integers(1, 9),
        remainder=st.sampled_from(["short-last", "short-first", "long-last", "long-first", "spread", "spread-last"]),
    )
    strided = st.builds(Cut, layout=st.just("strided"), count=st.integers(1, 12), tile=st.integers(1, 9))
    return st.one_of(spans, counts, strided)


@given(cut=_cuts(), length=st.integers(1, 300))
def test_parts_hold_every_position_once_and_in_order(cut: Cut, length: int) -> None:
    parts = cut.parts(np.arange(length))
    assert cut.part_lengths(length) == [len(part) for part in parts]
    assert sorted(k for part in parts for k in part.tolist()) == list(range(length))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    if cut.count is not None:
        assert len(parts) == cut.count
    else:
        assert all(len(part) for part in parts)


@pytest.mark.parametrize(
    ("cut", "length", "expected"),
    [
        (Cut(span=192), 576, [192, 192, 192]),
        (Cut(span=192, remainder="short-first"), 500, [116, 192, 192]),
        (Cut(count=3, tile=64), 200, [128, 72, 0]),
        (Cut(count=3, tile=64, remainder="short-first"), 200, [0, 72, 128]),
        (Cut(count=3, tile=64, remainder="long-last"), 200, [64, 64, 72]),
        (Cut(count=2, tile=64, remainder="long-first"), 200, [136, 64]),
        (Cut(count=3, tile=64, remainder="spread"), 200, [128, 64, 8]),
        (Cut(count=3, tile=64, remainder="spread-last"), 300, [64, 128, 108]),
        (Cut(count=4, tile=64, remainder="spread-last"), 8016, [1984, 1984, 2048, 2000]),
        (Cut(count=9, tile=64), 8640, [960] * 9),
    ],
)
def test_lengths_of_parts(cut: Cut, length: int, expected: list[int]) -> None:
    assert cut.lengths(length) == expected


def test_additions_of_merges() -> None:
    assert MERGE_ORDERS["chain"].additions(4) == [(0, 1), (0, 2), (0, 3)]
    assert MERGE_ORDERS["chain-down"].additions(4) == [(3, 2), (3, 1), (3, 0)]
    assert MERGE_ORDERS["halves"].additions(4) == [(0, 2), (1, 3), (0, 1)]
    assert MERGE_ORDERS["neighbours"].additions(4) == [(0, 1), (2, 3), (0, 2)]


def test_parts_are_distributed_over_groups_and_an_empty_group_is_zero() -> None:
    two = Cut(layout="strided", count=5, groups=(Group(count=2), Group(count=2, merge="halves")))
    # Groups 0 2 4 and 1 3; inside the first, 0 4 and 2.
    assert two.merge_steps(5) == MergeSteps([(0, 4), (0, 2), (1, 3), (0, 1)])
    four = Cut(layout="strided", count=3, groups=(Group(count=4),))
    assert four.merge_steps(3) == MergeSteps([(0, 1), (0, 2), (0, 3)], zeros=1)
    assert read(write(two)) == two


def test_inconsistent_groups_are_refused() -> None:
    for fields, why in (
        ({"merge": "halves", "count": 4}, "leave merge and start out"),
        ({"start": "zero"}, "leave merge and start out"),
        ({"partial_dtype": "fp16"}, "make partial_dtype and merge_dtype one type"),
    ):
        with pytest.raises(DescriptorError, match=why):
            Cut(**{"layout": "strided", "count": 5, "groups": (Group(count=2),), **fields})
    with pytest.raises(DescriptorError, match="the merge neighbours takes a power of two of groups, not 3"):
        Group(count=3, merge="neighbours")


def test_groups_give_the_bits_of_the_equivalent_nested_cuts() -> None:
    numbers = np.random.default_rng(3).standard_normal((8, 640)).astype(np.float16)
    a, b = numbers[:4].view(np.uint16), numbers[4:].T.view(np.uint16)
    base = {"k": 640, "left_dtype": "fp16", "right_dtype": "fp16", "output_dtype": "fp32", "path": "fma"}
    nested = (Cut(layout="strided", count=4), Cut(layout="strided", count=8, merge="halves"))
    groups = (Cut(layout="strided", count=32, groups=(Group(count=4), Group(count=8, merge="halves"))),)
    other = (Cut(layout="strided", count=32, groups=(Group(count=4), Group(count=8))),)
    found = [evaluate(GEMMDesc(**base, k_cuts=cuts), a, b).tolist() for cuts in (nested, groups, other)]
    assert found[0] == found[1] != found[2]
