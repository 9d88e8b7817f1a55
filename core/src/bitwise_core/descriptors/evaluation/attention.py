"""Evaluation of an AttentionDesc, O = softmax(Q K^T) V, on bit patterns, and the tree of one output element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import AttentionDesc, DescriptorError
from bitwise_core.descriptors.evaluation.expressions import converted, product_node, sum_node
from bitwise_core.descriptors.evaluation.functions import called, function_of
from bitwise_core.descriptors.evaluation.gemm import evaluate_gemm
from bitwise_core.descriptors.evaluation.operands import add, convert, fp32, patterns, zeros
from bitwise_core.descriptors.evaluation.reductions import evaluate_reduction
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.ir.nodes import Constant, Load, Node, Operation
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation

MINUS_INFINITY = 0xFF800000
ONE = 0x3F800000


@dataclass(frozen=True, slots=True)
class Block:
    """One iteration of the loop over blocks of keys: the block starts at key `low`, `masked` says if a mask applies."""

    low: int
    masked: bool


def blocks(desc: AttentionDesc, query: int, queries: int, keys: int) -> list[Block]:
    """Return the blocks of keys that the loop of a query visits, in order."""
    width = desc.key_block
    if desc.query_block is None:
        masked = desc.masking == "causal" or desc.mask_value is not None
        return [Block(low, masked) for low in range(0, keys, width)]
    first = query // desc.query_block * desc.query_block
    border = first // width * width
    end = min(first + desc.query_block, queries)
    return [Block(low, False) for low in range(0, border, width)] + [
        Block(low, True) for low in range(border, end, width)
    ]


def _groups(desc: AttentionDesc, queries: int) -> Iterator[slice]:
    """Yield ranges of queries that visit the same blocks of keys."""
    size = desc.query_block or queries
    for low in range(0, queries, size):
        yield slice(low, min(low + size, queries))


def _check(desc: AttentionDesc, queries: int, keys: int) -> None:
    if desc.masking == "causal" and queries != keys:
        raise DescriptorError(f"a causal mask takes as many keys as queries, not {keys} and {queries}")
    if desc.mask_value is None and keys % desc.key_block:
        raise DescriptorError(
            f"{keys} keys are not whole blocks of {desc.key_block}: give mask_value, the score of a key beyond the last"
        )


def _shapes(desc: AttentionDesc, q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike) -> tuple[Bits, Bits, Bits]:
    queries = patterns("q", q, desc.scores.left_dtype, (None, desc.scores.k))
    keys = patterns("k", k, desc.scores.right_dtype, (None, desc.scores.k))
    values = patterns("v", v, desc.values.right_dtype, (len(keys), None))
    _check(desc, len(queries), len(keys))
    return queries, keys, values


def evaluate_attention(
    desc: AttentionDesc,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    hardware: Hardware = IEEE,
) -> Bits:
    """Return the patterns of O (queries, width) of one head, for q (queries, depth), k (keys, depth), v (keys, width).

    `exponential` and `quotient` name functions of `hardware.functions` or, where it has no such name, operations of
    `bitwise_core.numerics`.  Raises DescriptorError.
    """
    queries, keys, values = _shapes(desc, q, k, v)
    result = zeros(desc.output_dtype, (len(queries), values.shape[1]))
    for rows in _groups(desc, len(queries)):
        state = _OnlineSoftmax(desc, rows.start, queries[rows], values.shape[1], hardware)
        for block in blocks(desc, rows.start, len(queries), len(keys)):
            state.add_block(
                block, _padded(keys, block.low, desc.key_block), _padded(values, block.low, desc.key_block), len(keys)
            )
        result[rows] = state.normalised_output()
    return result


def _padded(operand: Bits, low: int, count: int) -> Bits:
    """Return `count` rows from `low`, zeros beyond the last."""
    found = np.zeros((count, operand.shape[1]), dtype=operand.dtype)
    taken = operand[low : low + count]
    found[: len(taken)] = taken
    return found


def _on(name: str, *operands: Bits) -> Bits:
    return operation(name).evaluate(*operands)


class _OnlineSoftmax:
    """The running maximum, denominator and output of consecutive queries, from `first` on."""

    def __init__(
        self,
        desc: AttentionDesc,
        first: int,
        queries: Bits,
        width: int,
        hardware: Hardware,
    ) -> None:
        self.desc, self.queries, self.hardware = desc, queries, hardware
        self.rows = first + np.arange(len(queries))[:, None]
        self.power = function_of(desc.exponential, 1, hardware.functions)
        self.quotient = function_of(desc.quotient, 2, hardware.functions)
        self.scale = fp32("score_scale", desc.score_scale)
        self.top = np.full((len(queries), 1), MINUS_INFINITY, dtype=np.uint32)
        self.total = zeros("fp32", (len(queries), 1))
        self.output = zeros("fp32", (len(queries), width))

    def add_block(self, block: Block, keys: Bits, values: Bits, count: int) -> None:
        """Add one block of keys and values to the state; there are `count` keys in all."""
        desc = self.desc
        raw = evaluate_gemm(desc.scores, self.queries, np.ascontiguousarray(keys.T), hardware=self.hardware)
        scores = _on("mul.rn.fp32", raw, self.scale)
        if block.masked:
            scores = self._masked(scores, block.low + np.arange(desc.key_block)[None, :], count)
        highest = scores[:, :1]
        for column in range(1, scores.shape[1]):
            highest = _on("max.fp32", highest, scores[:, column : column + 1])
        top = _on("max.fp32", self.top, highest)
        if desc.fused_exponent and not block.masked:
            exponent = _on("fma.rn.fp32", raw, self.scale, _on("neg.fp32", top))
        else:
            exponent = _on("sub.rn.fp32", scores, top)
        weights = self.power(exponent)
        shrink = self.power(_on("sub.rn.fp32", self.top, top))
        summed = evaluate_reduction(desc.row_sum, weights)[:, None]
        if desc.fused_sum:
            self.total = _on("fma.rn.fp32", self.total, shrink, summed)
        else:
            self.total = _on("add.rn.fp32", _on("mul.rn.fp32", self.total, shrink), summed)
        carried = _on("mul.rn.fp32", self.output, shrink)
        narrow = convert(weights, "fp32", desc.probabilities_dtype)
        if desc.carry == "accumulator":
            self.output = evaluate_gemm(desc.values, narrow, values, hardware=self.hardware, start=carried)
        else:
            product = evaluate_gemm(desc.values, narrow, values, hardware=self.hardware)
            self.output = add(carried, "fp32", product, "fp32", "fp32")
        self.top = top

    def _masked(self, scores: Bits, keys: npt.NDArray[np.int64], count: int) -> Bits:
        desc = self.desc
        assert desc.mask_value is not None
        value = np.asarray(np.float32(desc.mask_value)).view(np.uint32)
        hidden = np.broadcast_to(keys >= count, scores.shape)
        if desc.masking == "causal":
            hidden = hidden | (keys > self.rows)
        other = value if desc.mask == "replaced" else _on("add.rn.fp32", scores, value)
        return np.where(hidden, other, scores)

    def normalised_output(self) -> Bits:
        """Return the output divided by the denominator, in the descriptor's output type."""
        if self.desc.division == "reciprocal":
            one = np.full_like(self.total, ONE)
            found = _on("mul.rn.fp32", self.output, self.quotient(one, self.total))
        else:
            found = self.quotient(self.output, np.broadcast_to(self.total, self.output.shape))
        return convert(found, "fp32", self.desc.output_dtype)


def attention_tree(desc: AttentionDesc, queries: int, keys: int, width: int, row: int = 0, column: int = 0) -> Node:
    """Return the tree of O[row, column] over loads of Q (queries, depth), K (keys, depth), V (keys, width), row-major.

    Raises DescriptorError.
    """
    _check(desc, queries, keys)
    if not (0 <= row < queries and 0 <= column < width):
        raise DescriptorError(f"there is no element [{row}, {column}] of ({queries}, {width})")
    top: Node = Constant(32, MINUS_INFINITY)
    total: Node = Constant(32, 0)
    output: Node = Constant(32, 0)
    scale = Constant(32, int(fp32("score_scale", desc.score_scale)))
    for block in blocks(desc, row, queries, keys):
        places = range(block.low, block.low + desc.key_block)
        raw = [_score(desc, row, key, keys) for key in places]
        scores = [Operation("mul.rn.fp32", (each, scale)) for each in raw]
        visible = [
            _masked(desc, node, row, key, keys) if block.masked else node
            for node, key in zip(scores, places, strict=True)
        ]
        highest = visible[0]
        for each in visible[1:]:
            highest = Operation("max.fp32", (highest, each))
        higher = Operation("max.fp32", (top, highest))
        if desc.fused_exponent and not block.masked:
            negative = Operation("neg.fp32", (higher,))
            exponents = [Operation("fma.rn.fp32", (each, scale, negative)) for each in raw]
        else:
            exponents = [Operation("sub.rn.fp32", (each, higher)) for each in visible]
        weights = [called(desc.exponential, each) for each in exponents]
        shrink = called(desc.exponential, Operation("sub.rn.fp32", (top, higher)))
        summed = sum_node(desc.row_sum, weights)
        if desc.fused_sum:
            total = Operation("fma.rn.fp32", (total, shrink, summed))
        else:
            total = Operation("add.rn.fp32", (Operation("mul.rn.fp32", (total, shrink)), summed))
        carried = Operation("mul.rn.fp32", (output, shrink))
        left = [converted(each, "fp32", desc.probabilities_dtype) for each in weights]
        right = [_element("V", desc.values.right_dtype, key, column, width, keys) for key in places]
        if desc.carry == "accumulator":
            output = product_node(desc.values, left, right, start=carried)
        else:
            output = Operation("add.rn.fp32", (carried, product_node(desc.values, left, right)))
        top = higher
    if desc.division == "reciprocal":
        output = Operation("mul.rn.fp32", (output, called(desc.quotient, Constant(32, ONE), total)))
    else:
        output = called(desc.quotient, output, total)
    return converted(output, "fp32", desc.output_dtype)


def _element(name: str, dtype: str, row: int, column: int, width: int, rows: int) -> Node:
    bits = FLOAT_FORMATS[dtype].bits
    if row >= rows:
        return Constant(bits, 0)
    return Load(name, (row * width + column) * bits // 8, bits)


def _score(desc: AttentionDesc, row: int, key: int, keys: int) -> Node:
    depth = desc.scores.k
    left = [_element("Q", desc.scores.left_dtype, row, place, depth, row + 1) for place in range(depth)]
    right = [_element("K", desc.scores.right_dtype, key, place, depth, keys) for place in range(depth)]
    return product_node(desc.scores, left, right)


def _masked(desc: AttentionDesc, score: Node, row: int, key: int, keys: int) -> Node:
    assert desc.mask_value is not None
    if key < keys and not (desc.masking == "causal" and key > row):
        return score
    value = Constant(32, int(np.asarray(np.float32(desc.mask_value)).view(np.uint32)))
    return value if desc.mask == "replaced" else Operation("add.rn.fp32", (score, value))
