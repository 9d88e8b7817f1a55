"""Guesses of the products that ptxas fuses.

The first guess follows the observed behaviour of ptxas (12.8 and 13.4): a product is fused if all its uses are sums in
its own basic block, of its type and flush mode; of a sum of two products the first operand is fused; a product used
twice by one sum is not fused.  The second is read from the line information of the machine code: a sum is fused if a
fused multiply-add has its line.  The third is the same with products that come later in the text, in a block that is
executed earlier: in a loop, a later product may also be that of the round before, which is not fused.  A wrong guess
costs only an assembly, provided that the operands of the product name the same registers at the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bitwise_core.assembly.module import registers_of
from bitwise_nvidia_ptx.contraction.program import Program, Statement, span_of
from bitwise_nvidia_ptx.machine_code.registers import ArithmeticLines
from bitwise_nvidia_ptx.text.inner_blocks import spelling


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
    first, last = sorted((product, consumer))
    spans = [span_of(each.instruction) for each in program.statements[first : last + 1]]
    between = (text[before[1] : after[0]] for before, after in pairwise(spans))
    return not any(mark in gap for gap in between for mark in ("{", "}", ".reg"))


def _is_declared(declared: set[str], name: str) -> bool:
    return name in declared or any(name.startswith(each) and name[len(each) :].isdigit() for each in declared)


def likely_fusions(program: Program, text: str) -> tuple[Fusion, ...]:
    """Return the fusions of the products that have few uses, and are first operands, before the others."""
    taken: dict[int, Fusion] = {}
    for group in sorted(fusable(program, text), key=lambda group: (len(group), min(f.position for f in group))):
        if all(fusion.consumer not in taken for fusion in group):
            taken.update({fusion.consumer: fusion for fusion in group})
    return tuple(taken[consumer] for consumer in sorted(taken))


def fusions_of_machine_code(
    program: Program, text: str, seen: ArithmeticLines, *, later: bool = False
) -> tuple[Fusion, ...]:
    """Return the fusions of the sums whose lines have a fused multiply-add, of a product without an own one if any.

    `later`: where no product comes before the sum in the text, one that comes after it.
    """
    found = []
    for index, statement in enumerate(program.statements):
        if statement.contractible and statement.base != "mul" and program.line(index) in seen.fused:
            operands = [_product_of(program, text, index, position, later) for position in (0, 1)]
            products = [each for each in operands if each is not None]
            found += sorted(
                products, key=lambda each: (each.product > each.consumer, program.line(each.product) in seen.multiplied)
            )[:1]
    return tuple(found)


def _product_of(program: Program, text: str, consumer: int, position: int, later: bool) -> Fusion | None:
    """Return the fusion of an operand of a sum, None if it is no product up to its sign.

    `later`: also of what comes after the sum in the text.
    """
    total = program.statements[consumer]
    names, negated = total.sources[position], False
    while len(names) == 1:
        (name,) = names
        written = program.definitions.get(name, [])
        known = len(written) == 1 and (later or written[0] < consumer)
        source = program.statements[written[0]] if known else None
        if source is None or source.vector or source.guard:
            return None
        if source.product:
            hidden = source.hidden_product and source.base != "div"
            usable = not hidden and "sat" not in source.parts and _compatible(source, total)
            usable = usable and _movable(program, text, written[0], consumer)
            return Fusion(written[0], consumer, position, negated) if usable else None
        if source.base not in ("neg", "mov"):
            return None
        negated ^= source.base == "neg"
        names = source.sources[0]
    return None
