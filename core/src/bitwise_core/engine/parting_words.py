"""What parts two trees, in a sentence for the person who compiled the kernels."""

from __future__ import annotations

from bitwise_core.machine import matrix

_LEAVES = {"load": "a value from memory", "constant": "a constant", "undefined": "an undefined value"}
_VERBS = {
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
_ROUNDS = ("rn", "rz", "rd", "ru", "rna")


def sentence(left: str, right: str, left_name: str, right_name: str) -> str:
    """What the first nodes that differ say of two kernels; `left` and `right` are the nodes' operations."""
    sides = ((left, left_name), (right, right_name))
    both = ((sides[0], sides[1]), (sides[1], sides[0]))
    if left.startswith(matrix.MATRIX) and right.startswith(matrix.MATRIX):
        if left == right:
            return _other_operands(left, left_name, right_name)
        steps = f"{left_name} by steps of {_unit(left)}, {right_name} by steps of {_unit(right)}"
        return f"they multiply on matrix units that round differently: {steps}"
    for (one, name), (other, other_name) in both:
        if one.startswith(matrix.MATRIX):
            return f"{name} adds products up in a matrix unit ({_unit(one)}), {other_name} {_does(other)}"
        if ".ftz" in one and _plain(one) == _plain(other) and ".ftz" not in other:
            what = _noun(one)
            return f"{name} flushes subnormal numbers to zero in this {what}, {other_name} keeps them"
    if left == right:
        return _other_operands(left, left_name, right_name)
    for (one, name), (other, other_name) in both:
        if one.startswith("fma.") and not other.startswith(("fma.", "select")) and other not in _LEAVES:
            return f"{name} rounds a product and a sum once (a fused multiply-add), {other_name} {_does(other)}"
    return f"{left_name} {_does(left)}, {right_name} {_does(right)}"


def _other_operands(operation: str, left_name: str, right_name: str) -> str:
    return f"{left_name} and {right_name} both take {_bare(operation)}, of other operands or in another order"


def _bare(operation: str) -> str:
    return operation.removeprefix(matrix.MATRIX).split("@")[0]


def _plain(operation: str) -> str:
    return _bare(operation).replace(".ftz", "")


def _unit(operation: str) -> str:
    return operation.removeprefix(matrix.MATRIX).strip()


def _noun(operation: str) -> str:
    return _VERBS.get(operation.split(".")[0], operation.split(".")[0])


def _does(operation: str) -> str:
    """What a kernel does at a node, as a verb and its object."""
    if operation in _LEAVES:
        return f"has {_LEAVES[operation]} there"
    name, _, owner = operation.partition("@")
    if owner and (".approx" in name or ".full" in name):
        return f"takes {owner}'s own approximation of the {_noun(name)} ({name})"
    if owner:
        return f"takes an operation that is {owner}'s own ({name})"
    if name == "select":
        return "chooses between two values (select)"
    if name.startswith("fma."):
        return f"takes one {_noun(name)} after another ({name})"
    if any(each in name.split(".") for each in _ROUNDS) and name.split(".")[0] in _VERBS:
        return f"rounds the {_noun(name)} by itself ({name})"
    return f"takes {name}"
