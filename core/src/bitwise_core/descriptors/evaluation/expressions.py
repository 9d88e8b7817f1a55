"""The dependence tree of one output element of a descriptor, as nodes of `ir`."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_core.descriptors import DescriptorError, GEMMDesc, ReductionDesc
from bitwise_core.descriptors.evaluation.operands import conversion, fp32
from bitwise_core.descriptors.k_axis import FILL, Part, instructions, parts_of, tile_number
from bitwise_core.descriptors.record import wider
from bitwise_core.ir.nodes import Constant, Load, Matrix, Node, Operation
from bitwise_core.numerics import FLOAT_FORMATS


def converted(node: Node, source: str, target: str, satfinite: bool = False) -> Node:
    """Return a node converted to another format."""
    name = conversion(source, target, satfinite)
    return node if name is None else Operation(name, (node,))


def added(left: Node, left_dtype: str, right: Node, right_dtype: str, target: str) -> Node:
    """Return left + right in the wider of their types, then rounded to `target`."""
    wide = wider(left_dtype, right_dtype)
    operands = converted(left, left_dtype, wide), converted(right, right_dtype, wide)
    return converted(Operation(f"add.rn.{wide}", operands), wide, target)


def _zero(dtype: str) -> Node:
    return Constant(FLOAT_FORMATS[dtype].bits, 0)


def gemm_tree(desc: GEMMDesc, row: int = 0, column: int = 0, columns: int = 1) -> Node:
    """Return the tree of C[row, column] over loads of A (m, k) and B (k, columns), row-major, offsets in bytes.

    Scales of operands are loads of fp32 from scale_a and scale_b.  Raises DescriptorError.
    """
    if row < 0 or not 0 <= column < columns:
        raise DescriptorError(f"there is no element [{row}, {column}] of {columns} columns")
    sizes = [FLOAT_FORMATS[name].bits for name in (desc.left_dtype, desc.right_dtype)]
    if any(bits % 8 for bits in sizes):
        raise DescriptorError("a tree loads whole bytes: operands narrower than 8 bits have no tree")
    left: list[Node] = [Load("A", (row * desc.k + k) * sizes[0] // 8, sizes[0]) for k in range(desc.k)]
    right: list[Node] = [Load("B", (k * columns + column) * sizes[1] // 8, sizes[1]) for k in range(desc.k)]
    return product_node(desc, left, right, tile_number(desc, row, column))


def product_node(desc: GEMMDesc, left: list[Node], right: list[Node], tile: int = 0, start: Node | None = None) -> Node:
    """Return the sum of the products of two lists of nodes, in the descriptor's output type.

    `tile` is the number of the output tile that a rotation depends on, `start` an initial accumulator instead of +0.
    """
    dtype, node = _merged(desc, parts_of(desc), left, right, tile, start)
    if desc.scaled:
        node, dtype = Operation("mul.rn.fp32", (converted(node, dtype, "fp32"), _scale(desc))), "fp32"
    if desc.output_nan_for_infinity:
        # A finite number minus itself is +0, and adding -0 changes no number.
        zero_or_nan = Operation(f"neg.{dtype}", (Operation(f"sub.rn.{dtype}", (node, node)),))
        node = Operation(f"add.rn.{dtype}", (node, zero_or_nan))
    return converted(node, dtype, desc.output_dtype, desc.output_satfinite)


def _scale(desc: GEMMDesc) -> Node:
    if desc.operand_scales:
        return Operation("mul.rn.fp32", (Load("scale_a", 0, 32), Load("scale_b", 0, 32)))
    return Constant(32, int(fp32("alpha", desc.alpha)))


def _merged(
    desc: GEMMDesc, part: Part, left: list[Node], right: list[Node], tile: int, start: Node | None = None
) -> tuple[str, Node]:
    cut = part.cut
    if cut is None:
        return desc.accumulator_dtype, _accumulated(desc, part, left, right, tile, start)
    found = []
    for each in part.parts:
        dtype, node = _merged(desc, each, left, right, tile)
        found.append((cut.partial_dtype, converted(node, dtype, cut.partial_dtype)))

    def plus(one: tuple[str, Node], other: tuple[str, Node]) -> tuple[str, Node]:
        total = converted(one[1], one[0], cut.merge_dtype)
        return cut.merge_dtype, added(total, cut.merge_dtype, other[1], other[0], cut.merge_dtype)

    zero = cut.partial_dtype, _zero(cut.partial_dtype)
    dtype, node = cut.merge_steps(len(found)).run(found, zero, plus)
    return cut.merge_dtype, converted(node, dtype, cut.merge_dtype)


def _start(desc: GEMMDesc) -> Node:
    """Return the initial value of an accumulator."""
    kind = FLOAT_FORMATS[desc.accumulator_dtype]
    if desc.accumulator_start == "zero" or kind.negative_zero is None:
        return _zero(desc.accumulator_dtype)
    return Constant(kind.bits, kind.negative_zero)


def _accumulated(
    desc: GEMMDesc, part: Part, left: list[Node], right: list[Node], tile: int, start: Node | None
) -> Node:
    """Return the accumulator of an innermost part after its loop over k."""
    dtype = desc.accumulator_dtype
    total = _start(desc) if start is None else start
    types = desc.factor_dtypes
    fills = _zero(types[0]), _zero(types[1])
    for places in instructions(desc, part, tile).tolist():
        one = [fills[0] if k == FILL else converted(left[k], desc.left_dtype, types[0]) for k in places]
        other = [fills[1] if k == FILL else converted(right[k], desc.right_dtype, types[1]) for k in places]
        if desc.path == "matrix":
            begin = total if desc.use_fast_accum else _zero(dtype)
            step = Matrix(desc.instruction_name, begin, tuple(one), tuple(other))
            total = step if desc.use_fast_accum else added(total, dtype, step, dtype, dtype)
            continue
        factors = one[0], other[0]
        if desc.path == "fma":
            total = Operation(f"fma.rn.{dtype}", (*factors, total))
        else:
            total = Operation(f"add.rn.{dtype}", (total, Operation(f"mul.rn.{dtype}", factors)))
    return total


def reduction_tree(desc: ReductionDesc) -> Node:
    """Return the tree of the sum over loads of X (length), offsets in bytes.  Raises DescriptorError."""
    bits = FLOAT_FORMATS[desc.dtype].bits
    if bits % 8:
        raise DescriptorError("a tree loads whole bytes: elements narrower than 8 bits have no tree")
    return sum_node(desc, [Load("X", index * bits // 8, bits) for index in range(desc.length)])


def sum_node(desc: ReductionDesc, nodes: Sequence[Node]) -> Node:
    """Return the sum of the nodes of the elements, in the descriptor's output type."""
    dtype = desc.accumulator_dtype
    pads: dict[str, int | None] = {
        "absent": None,
        "zero": 0,
        "negative-zero": FLOAT_FORMATS[dtype].negative_zero,
    }
    pad = pads[desc.padding]
    filled = None if pad is None else Constant(FLOAT_FORMATS[dtype].bits, pad)
    values: dict[int, Node | None] = {
        index: converted(nodes[index], desc.dtype, dtype) if index < desc.length else filled
        for index in range(desc.reach)
    }
    for fold in desc.folds:
        summed: dict[int, Node | None] = {}
        for index in values:
            if any(index // digit.stride % digit.count for digit in fold.digits):
                continue
            total = _zero(dtype) if fold.start == "zero" else None
            for offset in fold.offsets:
                value = values[index + offset]
                if value is not None:
                    total = value if total is None else Operation(f"add.rn.{dtype}", (total, value))
            summed[index] = total
        values = summed
    (result,) = values.values()
    assert result is not None
    return converted(result, dtype, desc.output_dtype)
