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
from bitwise_core.descriptors.evaluation.logarithm import natural_logarithm
from bitwise_core.descriptors.evaluation.operands import add, convert, fp32, patterns, zeros
from bitwise_core.descriptors.evaluation.reductions import evaluate_reduction
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.ir.nodes import Constant, Load, Node, Operation, Select
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation

MINUS_INFINITY = 0xFF800000
ONE, TWO = 0x3F800000, 0x40000000
LOWEST, LEAST_NORMAL = 0xFF7FFFFF, 0x00800000
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


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


def _first_position(desc: AttentionDesc, queries: int, keys: int, first_position: int | None) -> int:
    """Return the position of query 0 among the keys.  Raises DescriptorError for operands that do not fit."""
    if desc.query_block is not None and (queries != keys or first_position):
        raise DescriptorError(f"a query_block takes as many keys as queries, not {keys} and {queries}, from position 0")
    if desc.mask_value is None and keys % desc.key_block:
        raise DescriptorError(
            f"{keys} keys are not whole blocks of {desc.key_block}: give mask_value, the score of a key beyond the last"
        )
    return keys - queries if first_position is None else first_position


@dataclass(frozen=True, slots=True)
class AttentionResult:
    """Patterns of O (queries, width) in its output type, and of the logarithms (queries,) in fp32."""

    output: Bits
    logarithms: Bits


def evaluate_attention(
    desc: AttentionDesc,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    first_position: int | None = None,
    sink: float | None = None,
    visible: npt.NDArray[np.bool_] | None = None,
    hardware: Hardware = IEEE,
) -> Bits:
    """Return the patterns of O (queries, width) of one head, for q (queries, depth), k (keys, depth), v (keys, width).

    A causal query i sees the keys up to i + `first_position`, by default the number of keys less that of queries.
    `visible` (queries, keys) masks the other keys too; the descriptor then has chunks.  `sink` is given with the
    descriptor's `sink` alone.  `exponential` and the quotients name functions of
    `hardware.functions` or, where it has no such name, operations of `bitwise_core.numerics`.  Raises DescriptorError.
    """
    return attention_result(
        desc, q, k, v, first_position=first_position, sink=sink, visible=visible, hardware=hardware, logarithms=False
    ).output


def attention_result(
    desc: AttentionDesc,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    first_position: int | None = None,
    sink: float | None = None,
    visible: npt.NDArray[np.bool_] | None = None,
    hardware: Hardware = IEEE,
    logarithms: bool = True,
) -> AttentionResult:
    """Return what `evaluate_attention` returns, and the logarithm of each row's sum of exponentials of its scores.

    The logarithm is m ln(2) + log(l) in one multiply-add, or -inf for a row without keys, with the sink included.
    """
    queries = patterns("q", q, desc.scores.left_dtype, (None, desc.scores.k))
    keys = _stored(desc, "k", k, desc.scores.right_dtype, (None, desc.scores.k))
    values = _stored(desc, "v", v, desc.values.right_dtype, (len(keys), None))
    if desc.sink != (sink is not None):
        raise DescriptorError("a sink is given for a descriptor with sink, and only for such a one")
    if visible is not None and (desc.chunk is None or visible.shape != (len(queries), len(keys))):
        raise DescriptorError(f"visible takes a descriptor with chunk, and the shape ({len(queries)}, {len(keys)})")
    first = _first_position(desc, len(queries), len(keys), first_position)
    result = zeros(desc.output_dtype, (len(queries), values.shape[1]))
    found = zeros("fp32", (len(queries),))
    for rows in _groups(desc, len(queries)):
        softmax = _OnlineSoftmax(desc, rows.start + first, queries[rows], hardware, visible)
        state = whole = softmax.empty(values.shape[1])
        for block in blocks(desc, rows.start, len(queries), len(keys)):
            if desc.chunk is not None and block.low % desc.chunk == 0:
                whole, state = softmax.merged(whole, state), softmax.empty(values.shape[1])
            some_keys, some_values = (_padded(each, block.low, desc.key_block) for each in (keys, values))
            state = softmax.with_block(state, block, some_keys, some_values, len(keys))
        if desc.chunk is not None:
            state = softmax.merged(whole, state)
        if sink is not None:
            state = softmax.merged(state, softmax.sink_state(sink, values.shape[1]))
        result[rows] = softmax.normalised_output(state)
        if logarithms:
            found[rows] = softmax.logarithm(state)
    return AttentionResult(result, found)


def _stored(desc: AttentionDesc, name: str, operand: npt.ArrayLike, dtype: str, shape: tuple[int | None, ...]) -> Bits:
    """Return an operand as patterns of `dtype`, from those of the type in which it is given."""
    if desc.stored_dtype is None:
        return patterns(name, operand, dtype, shape)
    return convert(patterns(name, operand, desc.stored_dtype, shape), desc.stored_dtype, dtype)


def _padded(operand: Bits, low: int, count: int) -> Bits:
    """Return `count` rows from `low`, zeros beyond the last."""
    found = np.zeros((count, operand.shape[1]), dtype=operand.dtype)
    taken = operand[low : low + count]
    found[: len(taken)] = taken
    return found


def _on(name: str, *operands: Bits) -> Bits:
    return operation(name).evaluate(*operands)


@dataclass(frozen=True, slots=True)
class _State:
    """The maximum and the denominator of each query, (queries, 1), and the output (queries, width)."""

    top: Bits
    total: Bits
    output: Bits


class _OnlineSoftmax:
    """The steps of the softmax of consecutive queries, of which the first has the position `first`."""

    def __init__(
        self,
        desc: AttentionDesc,
        first: int,
        queries: Bits,
        hardware: Hardware,
        visible: npt.NDArray[np.bool_] | None,
    ) -> None:
        self.desc, self.queries, self.hardware, self.visible = desc, queries, hardware, visible
        self.rows = first + np.arange(len(queries))[:, None]
        self.power = function_of(desc.exponential, 1, hardware.functions)
        self.quotient = function_of(desc.quotient, 2, hardware.functions)
        self.scale = fp32("score_scale", desc.score_scale)

    def empty(self, width: int) -> _State:
        """Return the state before the first key."""
        count = len(self.queries)
        return _State(
            np.full((count, 1), MINUS_INFINITY, dtype=np.uint32),
            zeros("fp32", (count, 1)),
            zeros("fp32", (count, width)),
        )

    def sink_state(self, sink: float, width: int) -> _State:
        """Return the state of a sink: one key with this score and a value of zeros."""
        empty = self.empty(width)
        top = _on("mul.rn.fp32", np.asarray(np.float32(sink)).view(np.uint32), fp32("log2(e)", LOG2_E))
        return _State(np.full_like(empty.top, top), np.full_like(empty.total, ONE), empty.output)

    def _shift(self, top: Bits) -> Bits:
        """Return what is subtracted in exponents: with chunks at least the least finite number."""
        return top if self.desc.chunk is None else _on("max.fp32", top, np.full_like(top, LOWEST))

    def _powers_below(self, top: Bits, shift: Bits) -> Bits:
        return self.power(_on("sub.rn.fp32", top, shift))

    def merged(self, state: _State, part: _State) -> _State:
        """Return the state after the merge of a chunk's."""
        top = _on("max.fp32", state.top, part.top)
        shift = self._shift(top)
        old, fresh = self._powers_below(state.top, shift), self._powers_below(part.top, shift)

        def sum_of(left: Bits, right: Bits) -> Bits:
            return _on("fma.rn.fp32", right, fresh, _on("mul.rn.fp32", left, old))

        return _State(top, sum_of(state.total, part.total), sum_of(state.output, part.output))

    def with_block(self, state: _State, block: Block, keys: Bits, values: Bits, count: int) -> _State:
        """Return the state after one block of keys and values; there are `count` keys in all."""
        desc = self.desc
        raw = evaluate_gemm(desc.scores, self.queries, np.ascontiguousarray(keys.T), hardware=self.hardware)
        if desc.cap_factor is not None:
            raw = self._capped(raw)
        scores = _on("mul.rn.fp32", raw, self.scale)
        hidden = self._hidden(block, count)
        if hidden.any():
            scores = self._masked(scores, hidden)
        highest = scores[:, :1]
        for column in range(1, scores.shape[1]):
            highest = _on("max.fp32", highest, scores[:, column : column + 1])
        top = self._top(state.top, highest)
        shift = self._shift(top)
        exponent = _on("sub.rn.fp32", scores, shift)
        if desc.fused_masked_exponent if block.masked else desc.fused_exponent:
            fused = _on("fma.rn.fp32", raw, self.scale, _on("neg.fp32", shift))
            exponent = np.where(hidden, exponent, fused)
        weights = self.power(exponent)
        shrink = self._powers_below(state.top, shift)
        summed = evaluate_reduction(desc.row_sum, weights)[:, None]
        if desc.fused_sum:
            total = _on("fma.rn.fp32", state.total, shrink, summed)
        else:
            total = _on("add.rn.fp32", _on("mul.rn.fp32", state.total, shrink), summed)
        carried = _on("mul.rn.fp32", state.output, shrink)
        narrow = convert(weights, "fp32", desc.probabilities_dtype)
        return _State(top, total, self._weighted(narrow, values, carried, hidden))

    def _top(self, before: Bits, highest: Bits) -> Bits:
        """Return the maximum after a block, from that before and the highest score of the block."""
        if self.desc.descent is None:
            return _on("max.fp32", before, highest)
        lower = _on("sub.rn.fp32", before, fp32("descent", self.desc.descent))
        return np.where(highest == MINUS_INFINITY, before, _on("max.fp32", lower, highest))

    def _weighted(self, weights: Bits, values: Bits, carried: Bits, hidden: npt.NDArray[np.bool_]) -> Bits:
        """Return the output after a block; with chunks, the values of keys that a row does not see are zeros."""
        desc = self.desc
        wide = convert(values, desc.values.right_dtype, "fp32")
        if desc.chunk is None or not hidden.any() or (wide & 0x7F800000 != 0x7F800000).all():
            return self._product(weights, values, carried)
        each = [
            self._product(
                weights[row : row + 1],
                np.where(hidden[row][:, None], values.dtype.type(0), values),
                carried[row : row + 1],
            )
            for row in range(len(weights))
        ]
        return np.concatenate(each)

    def _product(self, weights: Bits, values: Bits, carried: Bits) -> Bits:
        if self.desc.carry == "accumulator":
            return evaluate_gemm(self.desc.values, weights, values, hardware=self.hardware, start=carried)
        product = evaluate_gemm(self.desc.values, weights, values, hardware=self.hardware)
        return add(carried, "fp32", product, "fp32", "fp32")

    def _capped(self, raw: Bits) -> Bits:
        """Return the soft cap of scores, between -1 and 1."""
        assert self.desc.cap_factor is not None
        divide = function_of(self.desc.cap_quotient, 2, self.hardware.functions)
        powers = self.power(_on("mul.rn.fp32", raw, fp32("cap_factor", self.desc.cap_factor)))
        one = np.full_like(raw, ONE)
        return _on("sub.rn.fp32", one, divide(np.full_like(raw, TWO), _on("add.rn.fp32", powers, one)))

    def _hidden(self, block: Block, count: int) -> npt.NDArray[np.bool_]:
        """Return for each query and each key of a block whether the key is masked."""
        keys = block.low + np.arange(self.desc.key_block)[None, :]
        shape = len(self.queries), self.desc.key_block
        if not block.masked:
            return np.zeros(shape, dtype=np.bool_)
        hidden = np.broadcast_to(_is_hidden(self.desc, self.rows, keys, count), shape)
        if self.visible is None:
            return hidden
        stated = self.visible[:, block.low : block.low + self.desc.key_block]
        return hidden | np.pad(~stated, ((0, 0), (0, self.desc.key_block - stated.shape[1])))

    def _masked(self, scores: Bits, hidden: npt.NDArray[np.bool_]) -> Bits:
        assert self.desc.mask_value is not None
        value = np.asarray(np.float32(self.desc.mask_value)).view(np.uint32)
        other = value if self.desc.mask == "replaced" else _on("add.rn.fp32", scores, value)
        return np.where(hidden, other, scores)

    def normalised_output(self, state: _State) -> Bits:
        """Return the output divided by the denominator, in the descriptor's output type."""
        output, total = state.output, state.total
        if self.desc.chunk is not None:
            output = _on("add.rn.fp32", output, np.zeros_like(output))
            total = _on("max.fp32", total, np.full_like(total, LEAST_NORMAL))
        if self.desc.division == "reciprocal":
            one = np.full_like(total, ONE)
            found = _on("mul.rn.fp32", output, self.quotient(one, total))
        else:
            found = self.quotient(output, np.broadcast_to(total, output.shape))
        if self.desc.output_scale is not None:
            found = _on("mul.rn.fp32", found, fp32("output_scale", self.desc.output_scale))
        return convert(found, "fp32", self.desc.output_dtype)

    def logarithm(self, state: _State) -> Bits:
        """Return the logarithm of the sum of exponentials of each row (queries,)."""
        found = _on("fma.rn.fp32", state.top, fp32("ln(2)", LN_2), natural_logarithm(state.total))
        return np.where(state.total & 0x7FFFFFFF == 0, np.uint32(MINUS_INFINITY), found)[:, 0]


def _is_hidden(
    desc: AttentionDesc, positions: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.bool_]:
    """Return whether a descriptor's mask hides `keys` from queries at `positions`, where there are `count` keys."""
    hidden: npt.NDArray[np.bool_] = keys >= count
    if desc.masking == "causal":
        hidden = hidden | (keys > positions)
    if desc.window is not None:
        hidden = hidden | (keys <= positions - desc.window)
    return hidden


@dataclass(frozen=True, slots=True)
class _TreeState:
    top: Node
    total: Node
    output: Node


_EMPTY = _TreeState(Constant(32, MINUS_INFINITY), Constant(32, 0), Constant(32, 0))


def attention_tree(
    desc: AttentionDesc,
    queries: int,
    keys: int,
    width: int,
    row: int = 0,
    column: int = 0,
    *,
    first_position: int | None = None,
) -> Node:
    """Return the tree of O[row, column] over loads of Q (queries, depth), K (keys, depth), V (keys, width), row-major.

    `first_position` is that of `evaluate_attention`.  A sink is a load of S, in fp32.  Raises DescriptorError.
    """
    position = row + _first_position(desc, queries, keys, first_position)
    if not (0 <= row < queries and 0 <= column < width):
        raise DescriptorError(f"there is no element [{row}, {column}] of ({queries}, {width})")
    state = whole = _EMPTY
    for block in blocks(desc, row, queries, keys):
        if desc.chunk is not None and block.low % desc.chunk == 0:
            whole, state = _merged_tree(desc, whole, state), _EMPTY
        state = _tree_with_block(desc, state, block, (row, column), position, keys, width)
    if desc.chunk is not None:
        state = _merged_tree(desc, whole, state)
    if desc.sink:
        top = Operation("mul.rn.fp32", (Load("S", 0, 32), Constant(32, int(fp32("log2(e)", LOG2_E)))))
        state = _merged_tree(desc, state, _TreeState(top, Constant(32, ONE), Constant(32, 0)))
    output, total = state.output, state.total
    if desc.chunk is not None:
        output = Operation("add.rn.fp32", (output, Constant(32, 0)))
        total = Operation("max.fp32", (total, Constant(32, LEAST_NORMAL)))
    if desc.division == "reciprocal":
        output = Operation("mul.rn.fp32", (output, called(desc.quotient, Constant(32, ONE), total)))
    else:
        output = called(desc.quotient, output, total)
    if desc.output_scale is not None:
        output = Operation("mul.rn.fp32", (output, Constant(32, int(fp32("output_scale", desc.output_scale)))))
    return converted(output, "fp32", desc.output_dtype)


def _shift_tree(desc: AttentionDesc, top: Node) -> Node:
    return top if desc.chunk is None else Operation("max.fp32", (top, Constant(32, LOWEST)))


def _merged_tree(desc: AttentionDesc, state: _TreeState, part: _TreeState) -> _TreeState:
    top = Operation("max.fp32", (state.top, part.top))
    shift = _shift_tree(desc, top)
    old, fresh = (called(desc.exponential, Operation("sub.rn.fp32", (each.top, shift))) for each in (state, part))

    def sum_of(left: Node, right: Node) -> Node:
        return Operation("fma.rn.fp32", (right, fresh, Operation("mul.rn.fp32", (left, old))))

    return _TreeState(top, sum_of(state.total, part.total), sum_of(state.output, part.output))


def _tree_with_block(
    desc: AttentionDesc,
    state: _TreeState,
    block: Block,
    element: tuple[int, int],
    position: int,
    keys: int,
    width: int,
) -> _TreeState:
    row, column = element
    scale = Constant(32, int(fp32("score_scale", desc.score_scale)))
    places = range(block.low, block.low + desc.key_block)
    raw = [_capped_tree(desc, _score(desc, row, key, keys)) for key in places]
    scores: list[Node] = [Operation("mul.rn.fp32", (each, scale)) for each in raw]
    hidden = [block.masked and bool(_is_hidden(desc, np.array(position), np.array(key), keys)) for key in places]
    visible = [_masked(desc, node) if each else node for node, each in zip(scores, hidden, strict=True)]
    highest = visible[0]
    for node in visible[1:]:
        highest = Operation("max.fp32", (highest, node))
    higher = _top_tree(desc, state.top, highest)
    shift = _shift_tree(desc, higher)
    exponents: list[Node] = [Operation("sub.rn.fp32", (each, shift)) for each in visible]
    if desc.fused_masked_exponent if block.masked else desc.fused_exponent:
        negative = Operation("neg.fp32", (shift,))
        exponents = [
            plain if away else Operation("fma.rn.fp32", (each, scale, negative))
            for plain, away, each in zip(exponents, hidden, raw, strict=True)
        ]
    weights = [called(desc.exponential, each) for each in exponents]
    shrink = called(desc.exponential, Operation("sub.rn.fp32", (state.top, shift)))
    summed = sum_node(desc.row_sum, weights)
    if desc.fused_sum:
        total: Node = Operation("fma.rn.fp32", (state.total, shrink, summed))
    else:
        total = Operation("add.rn.fp32", (Operation("mul.rn.fp32", (state.total, shrink)), summed))
    carried = Operation("mul.rn.fp32", (state.output, shrink))
    left = [converted(each, "fp32", desc.probabilities_dtype) for each in weights]
    seen = [key if desc.chunk is None or not away else keys for key, away in zip(places, hidden, strict=True)]
    right = [_stored_element(desc, "V", desc.values.right_dtype, key, column, width, keys) for key in seen]
    if desc.carry == "accumulator":
        output = product_node(desc.values, left, right, start=carried)
    else:
        output = Operation("add.rn.fp32", (carried, product_node(desc.values, left, right)))
    return _TreeState(higher, total, output)


def _top_tree(desc: AttentionDesc, before: Node, highest: Node) -> Node:
    if desc.descent is None:
        return Operation("max.fp32", (before, highest))
    lower = Operation("sub.rn.fp32", (before, Constant(32, int(fp32("descent", desc.descent)))))
    without = Operation("eq.fp32", (highest, Constant(32, MINUS_INFINITY)))
    return Select(without, before, Operation("max.fp32", (lower, highest)))


def _capped_tree(desc: AttentionDesc, raw: Node) -> Node:
    if desc.cap_factor is None:
        return raw
    factor, one = Constant(32, int(fp32("cap_factor", desc.cap_factor))), Constant(32, ONE)
    power = called(desc.exponential, Operation("mul.rn.fp32", (raw, factor)))
    quotient = called(desc.cap_quotient, Constant(32, TWO), Operation("add.rn.fp32", (power, one)))
    return Operation("sub.rn.fp32", (one, quotient))


def _element(name: str, dtype: str, row: int, column: int, width: int, rows: int) -> Node:
    bits = FLOAT_FORMATS[dtype].bits
    if row >= rows:
        return Constant(bits, 0)
    return Load(name, (row * width + column) * bits // 8, bits)


def _stored_element(desc: AttentionDesc, name: str, dtype: str, row: int, column: int, width: int, rows: int) -> Node:
    if desc.stored_dtype is None or row >= rows:
        return _element(name, dtype, row, column, width, rows)
    return converted(_element(name, desc.stored_dtype, row, column, width, rows), desc.stored_dtype, dtype)


def _score(desc: AttentionDesc, row: int, key: int, keys: int) -> Node:
    depth = desc.scores.k
    left = [_element("Q", desc.scores.left_dtype, row, place, depth, row + 1) for place in range(depth)]
    right = [
        _stored_element(desc, "K", desc.scores.right_dtype, key, place, depth, keys) for place in range(depth)
    ]  # fmt: skip
    return product_node(desc.scores, left, right)


def _masked(desc: AttentionDesc, score: Node) -> Node:
    assert desc.mask_value is not None
    value = Constant(32, int(np.asarray(np.float32(desc.mask_value)).view(np.uint32)))
    return value if desc.mask == "replaced" else Operation("add.rn.fp32", (score, value))
