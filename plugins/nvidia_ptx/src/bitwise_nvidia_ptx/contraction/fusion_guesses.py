"""Guesses of the products that ptxas fuses.

They follow the observed behaviour of ptxas (12.8 and 13.4): a product is fused if all its uses are sums in its own
basic block, of its type and flush mode; of a sum of two products the first operand is fused; a product used twice by
one sum is not fused.  A wrong guess costs only an assembly, provided that the operands of the product name the same
registers at the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from bitwise_core.assembly.module import registers_of
from bitwise_nvidia_ptx.contraction.program import Program, Statement, span_of
from bitwise_nvidia_ptx.inner_blocks import spelling


@dataclass(frozen=True)
class Fusion:
    """Operand `position` (0 or 1) of the sum `consumer` is `product`, `negated` if through a sign change."""

    product: int
    consumer: int
    position: int
    negated: bool


def fusable(program: Program, text: str) -> list[list[Fusion]]:
    """Return, for each product that ptxas might fuse at all of its uses, its fusions, in text order."""
    found = []
    for index, statement in enumerate(program.statements):
        if statement.product and (fusions := _fusions(program, text, index, statement)):
            found.append(fusions)
    return found


def _fusions(program: Program, text: str, index: int, product: Statement) -> list[Fusion]:
    if "sat" in product.parts or product.guard or (product.hidden_product and product.base != "div"):
        return []
    found: list[Fusion] = []
    work = [(name, False) for name in product.results]
    while work:
        name, negated = work.pop()
        if len(program.definitions[name]) != 1:
            return []
        for use, position in program.uses.get(name, ()):
            statement = program.statements[use]
            if statement.block != product.block or statement.guard or use < index:
                return []
            if statement.base in ("neg", "mov") and not statement.vector:
                work += [(result, negated ^ (statement.base == "neg")) for result in statement.results]
            elif _compatible(product, statement) and _movable(program, text, index, use):
                found.append(Fusion(index, use, position, negated))
            else:
                return []
    consumers = [fusion.consumer for fusion in found]
    return sorted(found, key=lambda f: f.consumer) if len(set(consumers)) == len(consumers) else []


def _compatible(product: Statement, total: Statement) -> bool:
    same_flush = ("ftz" in total.parts) == ("ftz" in product.parts)
    return total.contractible and total.base != "mul" and total.kind == product.kind and same_flush


def _movable(program: Program, text: str, product: int, consumer: int) -> bool:
    """Return whether the operands of a product denote the same registers at its consumer.

    They do if no inner block declares a register of one of their names, or if no block or register declaration begins
    or ends between the two.
    """
    statement = program.statements[product]
    if statement.base == "div":
        return True  # the expansion of a division keeps its factors in registers of the function
    function = program.functions[statement.function]
    inner = {spelling(name) for name in function.registers if "$" in name}
    moved = registers_of(*statement.read)
    if not any("$" in name or _is_declared(inner, name) for name in moved):
        return True
    spans = [span_of(each.instruction) for each in program.statements[product : consumer + 1]]
    between = (text[before[1] : after[0]] for before, after in pairwise(spans))
    return not any(mark in gap for gap in between for mark in ("{", "}", ".reg"))


def _is_declared(declared: set[str], name: str) -> bool:
    return name in declared or any(name.startswith(each) and name[len(each) :].isdigit() for each in declared)


def fusion_guesses(program: Program, text: str) -> list[tuple[Fusion, ...]]:
    """Return distinct non-empty guesses of the fused products, the most likely first."""
    groups = fusable(program, text)
    if not groups:
        return []
    orders: list[Callable[[list[Fusion]], tuple[int, int]]] = [
        lambda group: (len(group), min(f.position for f in group)),
        lambda group: (min(f.position for f in group), len(group)),
        lambda group: (0, group[0].product),
        lambda group: (0, -group[0].product),
        lambda group: (len(group), -min(f.position for f in group)),
    ]
    guesses: list[tuple[Fusion, ...]] = []
    for order in orders:
        taken: dict[int, Fusion] = {}
        for group in sorted(groups, key=order):
            if all(fusion.consumer not in taken for fusion in group):
                taken.update({fusion.consumer: fusion for fusion in group})
        guess = tuple(taken[consumer] for consumer in sorted(taken))
        if guess and guess not in guesses:
            guesses.append(guess)
    hidden = tuple(f for f in guesses[0] if program.statements[f.product].hidden_product)
    visible = tuple(f for f in guesses[0] if not program.statements[f.product].hidden_product)
    guesses += [part for part in (hidden, visible) if part and part not in guesses]
    return guesses
