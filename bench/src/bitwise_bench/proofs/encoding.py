"""Terms of patterns, over the vocabulary of operations, as expressions over bit-vectors."""

from __future__ import annotations

from collections.abc import Mapping

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs import floats
from bitwise_bench.proofs.bitvectors import Bits, constant
from bitwise_bench.proofs.conversions import Unencoded, convert
from bitwise_bench.proofs.integers import encoder_of
from bitwise_core.ir.rules.patterns import Term
from bitwise_core.numerics import IntegerFormat, Operation
from bitwise_core.numerics.floating import ARITHMETIC, CLASSES, COMPARISONS

_COMPARED = frozenset((*COMPARISONS, *(f"{each}u" for each in COMPARISONS), "ord", "unord"))


def encode_operation(operation: Operation, operands: tuple[Bits, ...]) -> Bits:
    """Return the expression of an operation applied to patterns.  Raises Unencoded for one without an expression."""
    verb, modifiers = operation.verb, operation.modifiers
    unencoded = Unencoded(f"the operation {operation.name} has no expression over bit-vectors")
    if operation.architecture and operation.function is None:
        # What the definition of an operation leaves open is some function of its operands.
        called = ",".join(str(each.number) for each in operands)
        return bv.variable(f"{operation.name}({called})", operation.bits)
    if operation.function is None or operation.architecture:
        raise unencoded
    if verb == "convert":
        return convert(operation.name, operation.result, operation.operands[0], modifiers, operands[0])
    form = operation.operands[0]
    if isinstance(form, IntegerFormat):
        encoder = encoder_of(verb)
        if encoder is None:
            raise unencoded
        # The operation's own format says whether numbers are signed; predicates of carries have another one.
        return encoder(form, *operands)
    if verb in ARITHMETIC:
        return floats.arithmetic(verb, form, str(operation.rounding), modifiers, operands)
    if verb in ("min", "max"):
        return floats.extremum(verb, form, modifiers, *operands)
    if verb in ("neg", "abs"):
        return floats.change_sign(verb, form, modifiers, *operands)
    if verb == "guard":
        return floats.guard(form, *operands)
    if verb in _COMPARED:
        return floats.compare(verb, form, modifiers, *operands)
    if verb in CLASSES:
        return floats.classify(verb, form, *operands)
    raise unencoded


def encode(term: Term, values: Mapping[str, Bits]) -> Bits:
    """Return the expression of a term, with expressions for its variables.  Raises Unencoded."""
    if term.kind == "variable":
        return values[term.word]
    if term.kind == "number":
        return constant(term.number, term.bits)
    below = tuple(encode(each, values) for each in term.operands)
    if term.kind == "select":
        return bv.choose(*below)
    if term.kind == "slice":
        return bv.extract(below[0], term.low, term.bits)
    if term.kind == "concat":
        found = below[0]
        for each in below[1:]:
            found = bv.join(each, found)
        return found
    return encode_operation(term.operation, below)


def has_expression(operation: Operation) -> bool:
    """Return whether an operation has an expression."""
    operands = tuple(bv.variable(f"operand{place}", form.bits) for place, form in enumerate(operation.operands))
    try:
        encode_operation(operation, operands)
    except Unencoded:
        return False
    return True
