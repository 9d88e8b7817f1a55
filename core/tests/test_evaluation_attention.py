from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_units import HARDWARE, MMA, UNITS, array, tree_value

from bitwise_core.descriptors import AttentionDesc, Cut, DescriptorError, GEMMDesc, index_bits, single_pass
from bitwise_core.descriptors.evaluation import attention_result, attention_tree, evaluate
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.numerics import Bits
from covering import examples


@st.composite
def attentions(draw: st.DrawFn) -> AttentionDesc:
    width, depth = draw(st.sampled_from([2, 4, 5])), draw(st.integers(1, 5))
    masking = draw(st.sampled_from(["none", "causal"]))
    mask = draw(st.sampled_from(["replaced", "added"]))
    value = draw(st.sampled_from([-1e6, -0.5] + [-math.inf] * (mask == "replaced")))
    carry = draw(st.sampled_from(["accumulator", "added"]))
    cuts = () if carry == "accumulator" else (Cut(count=2),)
    values = {**dict(single_pass(width, "fp16", MMA, output_dtype="fp32")), "k_cuts": cuts}
    return AttentionDesc(
        key_block=width,
        masking=masking,
        query_block=draw(st.none() | st.integers(1, 6)) if masking == "causal" else None,
        mask=mask,
        mask_value=value if masking == "causal" or draw(st.booleans()) else None,
        scores=single_pass(depth, "fp16", MMA, output_dtype="fp32"),
        score_scale=0.3125,
        fused_exponent=draw(st.booleans()),
        row_sum=index_bits(width, padding=draw(st.sampled_from(["absent", "zero"]))),
        fused_sum=draw(st.booleans()),
        probabilities_dtype="fp16",
        values=GEMMDesc(**values),
        carry=carry,
        division=draw(st.sampled_from(["quotient", "reciprocal"])),
        exponential="neg.fp32",
        output_dtype=draw(st.sampled_from(["fp32", "bf16"])),
    )


@given(data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_attention_and_its_tree_have_the_same_bits(data: st.DataObject) -> None:
    desc = data.draw(attentions())
    queries = data.draw(st.integers(1, 7))
    keys = queries if desc.masking == "causal" else data.draw(st.integers(1, 7))
    if desc.mask_value is None:
        keys = -(-keys // desc.key_block) * desc.key_block
    depth, width = desc.scores.k, 2
    q, k, v = (array(data.draw, "fp16", *shape) for shape in ((queries, depth), (keys, depth), (keys, width)))
    found = evaluate(desc, q, k, v, hardware=HARDWARE)
    row, column = data.draw(st.integers(0, queries - 1)), data.draw(st.integers(0, 1))
    tree = attention_tree(desc, queries, keys, width, row, column)
    assert tree_value(tree, {"Q": q, "K": k, "V": v}) == found[row, column]


def attention(**changes: Any) -> AttentionDesc:
    fields: dict[str, Any] = {
        "key_block": 4, "scores": single_pass(4, "fp16", MMA, output_dtype="fp32"), "score_scale": 0.5,
        "row_sum": index_bits(4), "probabilities_dtype": "fp16", "exponential": "two_to",
        "values": single_pass(4, "fp16", MMA, output_dtype="fp32"),
    }  # fmt: skip
    return AttentionDesc(**{**fields, **changes})


def two_to(bits: Bits) -> Bits:
    with np.errstate(all="ignore"):
        found = np.exp2(bits.view(np.float32)).view(np.uint32)
    return np.where(found & 0x7FFFFFFF > 0x7F800000, np.uint32(0x7FFFFFFF), found)


def test_attention_is_a_softmax() -> None:
    """Scores are small integers and weights powers of two, so that only the division rounds."""
    functions = {"two_to": two_to}
    q = np.array([[2, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 2]], dtype=np.float16)
    k = np.array([[1, 0, 0, 1], [2, 1, 0, 0], [3, 0, 1, 2]], dtype=np.float16)
    v = np.array([[8, 1], [4, 2], [2, 16]], dtype=np.float16)
    whole = evaluate(attention(mask_value=-math.inf), q, k, v, hardware=Hardware(UNITS, functions)).view(np.float32)
    scores = 0.5 * q.astype(np.float64) @ k.T.astype(np.float64)
    weights = 2.0 ** (scores - scores.max(axis=1, keepdims=True))
    expected = (weights @ v.astype(np.float64)).astype(np.float32) / weights.sum(axis=1, keepdims=True).astype(
        np.float32
    )
    assert whole.tolist() == expected.tolist()
    causal = attention(masking="causal", mask_value=-math.inf)
    weights = np.tril(2.0**scores)
    expected = (weights @ v.astype(np.float64)).astype(np.float32) / weights.sum(axis=1, keepdims=True).astype(
        np.float32
    )
    for desc in (causal, attention(masking="causal", mask_value=-math.inf, query_block=1)):
        found = evaluate(desc, q, k, v, hardware=Hardware(UNITS, functions)).view(np.float32)
        assert found.tolist() == expected.tolist()


def test_invalid_operands_of_attention_are_refused() -> None:
    q, k, v = np.zeros((4, 4), np.float16), np.zeros((6, 4), np.float16), np.zeros((6, 2), np.float16)
    with pytest.raises(DescriptorError, match="6 keys are not whole blocks of 4: give mask_value"):
        evaluate(attention(exponential="neg.fp32"), q, k, v, hardware=HARDWARE)
    blocks_of_queries = attention(exponential="neg.fp32", masking="causal", mask_value=-1.0, query_block=2)
    with pytest.raises(DescriptorError, match="a query_block takes as many keys as queries, not 6 and 4"):
        evaluate(blocks_of_queries, q, k, v, hardware=HARDWARE)
    with pytest.raises(DescriptorError, match=r"^ex2\.approx\.fp32@toy_1 has no exact function; "):
        evaluate(attention(exponential="ex2.approx.fp32@toy_1"), q, k[:4], v[:4], hardware=HARDWARE)
    with pytest.raises(DescriptorError, match=r"v must have the shape \(4, any\) here, not \(6, 2\)"):
        evaluate(attention(exponential="neg.fp32"), q, k[:4], v, hardware=HARDWARE)
    with pytest.raises(DescriptorError, match=r"there is no element \[4, 0\] of \(4, 2\)"):
        attention_tree(attention(exponential="neg.fp32"), 4, 4, 2, 4)


@st.composite
def chunked_attentions(draw: st.DrawFn) -> AttentionDesc:
    width, depth = draw(st.sampled_from([2, 4])), draw(st.integers(1, 4))
    causal = draw(st.booleans())
    return AttentionDesc(
        key_block=width,
        masking="causal" if causal else "none",
        mask_value=-math.inf,
        window=draw(st.none() | st.integers(1, 9)) if causal else None,
        chunk=width * draw(st.integers(1, 3)),
        descent=draw(st.sampled_from([None, 0.5, 4.0])),
        sink=draw(st.booleans()),
        scores=single_pass(depth, "fp16", MMA, output_dtype="fp32"),
        score_scale=0.3125,
        cap_factor=draw(st.none() | st.just(0.125)),
        fused_exponent=draw(st.booleans()),
        fused_masked_exponent=draw(st.booleans()),
        row_sum=index_bits(width),
        fused_sum=draw(st.booleans()),
        probabilities_dtype="fp16",
        values=single_pass(width, "fp16", MMA, output_dtype="fp32"),
        division=draw(st.sampled_from(["quotient", "reciprocal"])),
        exponential=draw(st.sampled_from(["neg.fp32", "two_to"])),
        output_dtype=draw(st.sampled_from(["fp32", "bf16"])),
        stored_dtype=draw(st.sampled_from([None, None, "e4m3", "e5m2"])),
        output_scale=draw(st.none() | st.just(0.75)),
    )


@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_attention_in_chunks_and_its_tree_have_the_same_bits(data: st.DataObject) -> None:
    desc = data.draw(chunked_attentions().filter(lambda each: each.exponential == "neg.fp32"))
    queries, keys = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    first = data.draw(st.none() | st.integers(0, 9))
    depth, width, stored = desc.scores.k, 2, desc.stored_dtype or "fp16"
    q, k = array(data.draw, "fp16", queries, depth), array(data.draw, stored, keys, depth)
    v = array(data.draw, stored, keys, width)
    sink = data.draw(st.floats(-4, 4, width=32)) if desc.sink else None
    found = evaluate(desc, q, k, v, first_position=first, sink=sink, hardware=HARDWARE)
    row, column = data.draw(st.integers(0, queries - 1)), data.draw(st.integers(0, 1))
    tree = attention_tree(desc, queries, keys, width, row, column, first_position=first)
    loads = {"Q": q, "K": k, "V": v, "S": np.array([0.0 if sink is None else sink], np.float32).view(np.uint32)}
    assert tree_value(tree, loads) == found[row, column]


@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_a_row_of_attention_in_chunks_depends_on_the_keys_that_it_sees_alone(data: st.DataObject) -> None:
    """The bits of a query are those of the query alone with the keys up to its own, whatever follows."""
    desc = data.draw(chunked_attentions().filter(lambda each: each.masking == "causal"))
    desc = AttentionDesc(**{**dict(desc), "exponential": "two_to"})
    hardware = Hardware(UNITS, {"two_to": two_to})
    keys = data.draw(st.integers(1, 12))
    queries = data.draw(st.integers(1, keys))
    stored = desc.stored_dtype or "fp16"
    q = array(data.draw, "fp16", queries, desc.scores.k)
    k, v = (array(data.draw, stored, keys, width) for width in (desc.scores.k, 2))
    sink = 0.5 if desc.sink else None
    whole = attention_result(desc, q, k, v, sink=sink, hardware=hardware)
    row = data.draw(st.integers(0, queries - 1))
    seen = keys - queries + row + 1
    alone = attention_result(desc, q[row : row + 1], k[:seen], v[:seen], sink=sink, hardware=hardware)
    assert whole.output[row].tolist() == alone.output[0].tolist()
    assert whole.logarithms[row] == alone.logarithms[0]
    stated = np.zeros((1, keys), dtype=np.bool_)
    stated[0, max(0, seen - (desc.window or keys)) : seen] = True
    free = AttentionDesc(**{**dict(desc), "masking": "none", "window": None})
    masked = evaluate(free, q[row : row + 1], k, v, sink=sink, visible=stated, hardware=hardware)
    assert masked[0].tolist() == alone.output[0].tolist()


def test_the_logarithm_is_that_of_the_sum_of_exponentials() -> None:
    """Powers of two have exact logarithms of their sums: 2^m l with l = 4 keys of one score."""
    desc = attention(mask_value=-math.inf, chunk=4)
    q, k, v = np.zeros((1, 4), np.float16), np.zeros((8, 4), np.float16), np.zeros((8, 1), np.float16)
    found = attention_result(desc, q, k, v, hardware=Hardware(UNITS, {"two_to": two_to})).logarithms
    assert found.view(np.float32)[0] == np.float32(math.log(8))
    none = attention_result(
        desc, q, k, v, visible=np.zeros((1, 8), np.bool_), hardware=Hardware(UNITS, {"two_to": two_to})
    )
    assert none.logarithms.view(np.float32)[0] == -math.inf
    assert none.output.tolist() == [[0]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"chunk": 6, "mask_value": -math.inf}, "a chunk of 6 keys is not whole blocks of 4"),
        ({"chunk": 8, "mask_value": -1.0}, "with chunk, give mask_value -inf and a positive score_scale"),
        ({"chunk": 8, "mask_value": -math.inf, "score_scale": -1.0}, "give mask_value -inf and a positive score_scale"),
        ({"sink": True}, "a sink is merged after the last chunk: give chunk"),
        ({"descent": 4.0}, "descent is 4.0: give chunk and a positive number, or leave it out"),
        ({"chunk": 8, "mask_value": -math.inf, "descent": 0.0}, "descent is 0.0: give chunk and a positive number"),
        ({"window": 3}, "a window of the keys before a query needs a causal mask"),
        ({"cap_factor": 0.0}, "cap_factor is 0.0: give a finite number other than 0"),
        ({"cap_quotient": "neg.fp32"}, "without cap_factor there is no quotient of a cap"),
        (
            {"chunk": 8, "masking": "causal", "mask_value": -math.inf, "query_block": 2},
            "with chunk, the visited blocks do not affect the bits: leave query_block out",
        ),
    ],
)
def test_invalid_chunks_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DescriptorError, match=sentence):
        attention(**changes)
