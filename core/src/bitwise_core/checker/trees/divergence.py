"""The first divergence of two expression trees, and a sentence that explains it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import repeat

from bitwise_core.checker.trees.provenance import Definition, Provenance, Scalar
from bitwise_core.execution.launch import buffer_at, offset_at
from bitwise_core.execution.values.matrix_steps import mma_steps
from bitwise_core.ir.element_names import element_name
from bitwise_core.numerics import UnknownOperation, operation

_LEAVES = {"load": "a value from memory", "constant": "a constant", "undefined": "an undefined value"}
_NOUNS = {
    "add": "sum",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "sqrt": "square root",
    "fma": "fused multiply-add",
    "convert": "conversion",
    "max": "maximum",
    "min": "minimum",
    "rcp": "reciprocal",
    "rsqrt": "reciprocal square root",
    "ex2": "power of two",
    "lg2": "logarithm",
}
_ROUNDINGS = ("rn", "rz", "rd", "ru", "rna")
_TEXT_DEPTH, _TEXT_OPERANDS = 2, 4
MAXIMUM_DEPTH = 1 << 20


@dataclass(frozen=True, slots=True)
class DivergentNodes:
    """The first nodes at which two trees diverge, one of each tree, and their distance from the root.

    `above` are the pairs of nodes on the way to them, the roots first.
    """

    left: Definition
    right: Definition
    depth: int
    above: tuple[tuple[Definition, Definition], ...] = field(default=(), repr=False)

    @property
    def path(self) -> tuple[tuple[Definition, Definition], ...]:
        """The pairs of nodes from the roots to the divergent nodes."""
        return (*self.above, (self.left, self.right))


@dataclass(frozen=True, slots=True)
class Element:
    """An output element: its address and width in bytes, and the thread of each kernel that stored it (None: none)."""

    address: int
    size: int
    threads: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class DivergenceTrace:
    """The provenance of an element that differs: in both kernels, with its value and the divergent nodes.

    `buffer` is the name of the element's buffer.
    """

    element: Element
    buffer: str
    provenances: tuple[Provenance, Provenance]
    roots: tuple[Scalar, Scalar]
    nodes: DivergentNodes


def first_divergence(left: Provenance, root_left: Scalar, right: Provenance, root_right: Scalar) -> DivergentNodes:
    """Descend into the first operands that differ while operation and number of operands agree.

    Commutative operands are matched by hash first.  If the operands that differ are loads or constants, the divergent
    node is the one that uses them.
    """
    here = DivergentNodes(left.definition(root_left), right.definition(root_right), 0)
    above: list[tuple[Definition, Definition]] = []
    for depth in range(1, MAXIMUM_DEPTH):
        pair = _differing_operands(here.left, here.right)
        if pair is None:
            return replace(here, above=tuple(above))
        below = DivergentNodes(left.definition(pair[0]), right.definition(pair[1]), depth)
        if below.left.name in _LEAVES and below.right.name in _LEAVES:
            return replace(here, above=tuple(above))
        above.append((here.left, here.right))
        # Loads have no line in the recording: they get the line of their use.
        here = DivergentNodes(_with_line_of(below.left, here.left), _with_line_of(below.right, here.right), depth)
    return replace(here, above=tuple(above))


def _with_line_of(definition: Definition, user: Definition) -> Definition:
    return definition if definition.line else replace(definition, line=user.line)


def _differing_operands(left: Definition, right: Definition) -> tuple[Scalar, Scalar] | None:
    """The first operands that differ, or None where the nodes themselves differ."""
    if left.name != right.name or len(left.operands) != len(right.operands) or left.name in _LEAVES:
        return None
    left_hashes, right_hashes = ([operand.hash for operand in each.operands] for each in (left, right))
    left_unmatched = _unmatched(left_hashes, right_hashes, left.commutative)
    right_unmatched = _unmatched(right_hashes, left_hashes, left.commutative)
    for position in range(len(left.operands)):
        if position not in left.commutative:
            if left_hashes[position] != right_hashes[position]:
                return left.operands[position], right.operands[position]
        elif left_unmatched and right_unmatched and position == left_unmatched[0]:
            return left.operands[left_unmatched[0]], right.operands[right_unmatched[0]]
    return None


def _unmatched(own: list[tuple[int, int]], others: list[tuple[int, int]], positions: tuple[int, ...]) -> list[int]:
    """The positions, among these, of hashes that match none of the others; each of the others matches once."""
    available = [others[position] for position in positions]
    unmatched = []
    for position in positions:
        if own[position] in available:
            available.remove(own[position])
        else:
            unmatched.append(position)
    return unmatched


def address_text(provenance: Provenance, address: int, size: int) -> str:
    """The elements of a buffer at an address, such as `X[3]`."""
    name = buffer_name(provenance, buffer_at(address))
    return element_name(name, offset_at(address), size, provenance.widths.get(name))


def buffer_name(provenance: Provenance, number: int) -> str:
    """The name of a buffer by its number."""
    return next((name for name, each in provenance.buffers.items() if each == number), f"buffer {number}")


def number_text(number: int, bits: int, form: str) -> str:
    """A bit pattern as a number in the format `form`, in hexadecimal for other formats."""
    kinds = {"fp64": "<d", "fp32": "<f", "fp16": "<e"}
    if form in kinds and struct.calcsize(kinds[form]) * 8 == bits:
        return repr(struct.unpack(kinds[form], number.to_bytes(bits // 8, "little"))[0])
    return f"{number:#x}"


def _formats(definition: Definition) -> Iterable[str]:
    """The operand formats of an operation; all operands of a flattened AC operation have one format.

    The name of a matrix step states the format of its accumulator behind its family and its native k.
    """
    if definition.name.startswith(mma_steps.MATRIX):
        return [*definition.name.split()[3:4], "", ""]
    try:
        known = operation(definition.name).operands
    except UnknownOperation:
        return repeat("")
    return (form.name for form in (known if len(definition.operands) == len(known) else repeat(known[0])))


def expression_text(provenance: Provenance, definition: Definition, form: str = "", depth: int = _TEXT_DEPTH) -> str:
    """A value as an expression of a few levels; `form` is the operand format of the operation that uses it."""
    scalar = definition.scalar
    if definition.name == "load":
        return address_text(provenance, scalar.first, scalar.bits // 8)
    if definition.name == "constant":
        return number_text(scalar.first, scalar.bits, form)
    if definition.name == "undefined":
        return "an undefined value"
    name = definition.name.removeprefix(mma_steps.MATRIX).split("@")[0]
    if depth == 0:
        return "[…]" if name == mma_steps.VECTOR else f"{name}(…)"
    count = 1 if name == mma_steps.VECTOR else _TEXT_OPERANDS
    shown = [
        expression_text(provenance, provenance.definition(each), operand_form, depth - 1)
        for each, operand_form in zip(definition.operands[:count], _formats(definition), strict=False)
    ]
    if len(definition.operands) > count:
        shown.append(f"… {len(definition.operands) - count} more")
    return f"[{', '.join(shown)}]" if name == mma_steps.VECTOR else f"{name}({', '.join(shown)})"


def divergence_sentence(left: str, right: str, left_name: str, right_name: str) -> str:
    """A sentence on how two kernels differ at their divergent nodes, whose operations are `left` and `right`."""
    sides = ((left, left_name), (right, right_name))
    both = ((sides[0], sides[1]), (sides[1], sides[0]))
    if left.startswith(mma_steps.MATRIX) and right.startswith(mma_steps.MATRIX):
        if left == right:
            return _same_operation_sentence(left, left_name, right_name)
        steps = f"{left_name} uses {_matrix_unit(left)}, {right_name} uses {_matrix_unit(right)}"
        return f"the kernels use different matrix instructions: {steps}"
    for (one, name), (other, other_name) in both:
        if one.startswith(mma_steps.MATRIX):
            return f"{name} sums products in a matrix unit ({_matrix_unit(one)}), {other_name} {_verb_phrase(other)}"
        if ".ftz" in one and _without_flush(one) == _without_flush(other) and ".ftz" not in other:
            what = _noun(one)
            return f"{name} flushes subnormal numbers to zero in this {what}, {other_name} does not"
    if left == right:
        return _same_operation_sentence(left, left_name, right_name)
    for (one, name), (other, other_name) in both:
        if one.startswith("fma.") and not other.startswith(("fma.", "select")) and other not in _LEAVES:
            return f"{name} rounds product and sum once (fused multiply-add), {other_name} {_verb_phrase(other)}"
    return f"{left_name} {_verb_phrase(left)}, {right_name} {_verb_phrase(right)}"


def _same_operation_sentence(operation: str, left_name: str, right_name: str) -> str:
    return (
        f"{left_name} and {right_name} both compute {_bare(operation)}, on different operands or in a different order"
    )


def _bare(operation: str) -> str:
    return operation.removeprefix(mma_steps.MATRIX).split("@")[0]


def _without_flush(operation: str) -> str:
    return _bare(operation).replace(".ftz", "")


def _matrix_unit(operation: str) -> str:
    return operation.removeprefix(mma_steps.MATRIX).strip()


def _noun(operation: str) -> str:
    return _NOUNS.get(operation.split(".")[0], operation.split(".")[0])


def _verb_phrase(operation: str) -> str:
    """What a kernel computes at a node: a verb and its object."""
    if operation in _LEAVES:
        return f"uses {_LEAVES[operation]}"
    name, _, owner = operation.partition("@")
    if owner and (".approx" in name or ".full" in name):
        return f"computes {owner}'s approximation of the {_noun(name)} ({name})"
    if owner:
        return f"computes an operation specific to {owner} ({name})"
    if name == "select":
        return "selects one of two values (select)"
    if name.startswith("fma."):
        return f"computes a chain of {_noun(name)}s ({name})"
    if any(each in name.split(".") for each in _ROUNDINGS) and name.split(".")[0] in _NOUNS:
        return f"rounds the {_noun(name)} separately ({name})"
    return f"computes {name}"
