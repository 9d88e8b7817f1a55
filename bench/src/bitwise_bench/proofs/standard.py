"""Whether the expressions of floating-point operations are SMT-LIB's theory of floating-point numbers.

That theory states IEEE 754, with one NaN.  bitwuzla has it for fp16, fp32 and fp64; the expressions are written once
for all formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs.encoding import encode_operation
from bitwise_bench.proofs.faithfulness import Unfaithful
from bitwise_bench.proofs.solvers import Bitwuzla, translate
from bitwise_core.numerics import FloatFormat, IntegerFormat, Operation, operation
from bitwise_core.numerics.softfloat import ROUNDINGS

SECONDS = 300.0

_MODES = {"rn": "RNE", "rna": "RNA", "ru": "RTP", "rd": "RTN", "rz": "RTZ"}
_ARITHMETIC = {"add": "FP_ADD", "sub": "FP_SUB", "mul": "FP_MUL", "div": "FP_DIV", "fma": "FP_FMA", "sqrt": "FP_SQRT"}
_RELATIONS = {"eq": "FP_EQUAL", "lt": "FP_LT", "le": "FP_LEQ", "gt": "FP_GT", "ge": "FP_GEQ"}
_SIGNS = {"neg": "FP_NEG", "abs": "FP_ABS"}
_FORMATS = ("fp16", "fp32", "fp64")


def names() -> Iterator[str]:
    """Yield the operations that bitwuzla compares in seconds to minutes."""
    for rounding in ROUNDINGS:
        yield from (f"{verb}.{rounding}.fp16" for verb in ("add", "sub", "sqrt"))
        yield from (f"convert.{rounding}.{n}.{w}" for n, w in (("fp16", "fp32"), ("fp16", "fp64"), ("fp32", "fp64")))
        yield from (f"convert.{rounding}.{f}.{sign}32" for f in ("fp16", "fp32") for sign in "su")
    yield from (f"convert.{w}.{n}" for n, w in (("fp16", "fp32"), ("fp16", "fp64"), ("fp32", "fp64")))
    yield from (f"{verb}.{form}" for verb in (*_RELATIONS, *_SIGNS) for form in _FORMATS)


class _Theory:
    """An operation in the theory, over the same bit-vectors as its expression."""

    def __init__(self, module: Any, manager: Any) -> None:
        self._module, self._manager, self._kinds = module, manager, module.Kind

    def number(self, bits: Any, form: FloatFormat) -> Any:
        """Return the number of a pattern."""
        return self._manager.mk_term(self._kinds.FP_TO_FP_FROM_BV, [bits], [form.exponent_bits, form.precision])

    def result(self, meaning: Operation, operands: list[Any]) -> Any:
        """Return the theory's result: a number, or a Boolean."""
        mode = getattr(self._module.RoundingMode, _MODES[meaning.rounding or "rn"])
        rounding = self._manager.mk_rm_value(mode)
        if meaning.verb == "convert":
            target, source = meaning.result, meaning.operands[0]
            assert isinstance(target, FloatFormat)
            size = [target.exponent_bits, target.precision]
            if isinstance(source, IntegerFormat):
                kind = self._kinds.FP_TO_FP_FROM_SBV if source.signed else self._kinds.FP_TO_FP_FROM_UBV
                return self._manager.mk_term(kind, [rounding, operands[0]], size)
            return self._manager.mk_term(
                self._kinds.FP_TO_FP_FROM_FP, [rounding, self.number(operands[0], source)], size
            )
        numbers = [
            self.number(bits, form)
            for bits, form in zip(operands, meaning.operands, strict=True)
            if isinstance(form, FloatFormat)
        ]
        name = {**_RELATIONS, **_SIGNS, **_ARITHMETIC}[meaning.verb]
        first = [rounding] if meaning.verb in _ARITHMETIC else []
        return self._manager.mk_term(getattr(self._kinds, name), [*first, *numbers])


def agrees(name: str, seconds: float) -> bool | None:
    """Return whether an operation's expression has the theory's result on all patterns; None without an answer.

    A NaN must be the format's canonical NaN, and every other number its only pattern.
    """
    import bitwuzla

    bv.forget()
    meaning = operation(name)
    variables = tuple(bv.variable(f"operand{place}", form.bits) for place, form in enumerate(meaning.operands))
    expression = encode_operation(meaning, variables)
    manager = bitwuzla.TermManager()
    kinds, mk = bitwuzla.Kind, manager.mk_term
    one = manager.mk_bv_one(manager.mk_bv_sort(1))
    terms, _ = translate([expression, *variables], Bitwuzla().build(manager))
    result = _Theory(bitwuzla, manager).result(meaning, terms[1 : 1 + meaning.arity])
    if isinstance(meaning.result, FloatFormat):
        canonical = manager.mk_bv_value(manager.mk_bv_sort(meaning.bits), meaning.result.canonical_nan)
        is_canonical = mk(kinds.EQUAL, [terms[0], canonical])
        found = _Theory(bitwuzla, manager).number(terms[0], meaning.result)
        number = mk(kinds.AND, [mk(kinds.NOT, [mk(kinds.FP_IS_NAN, [found])]), mk(kinds.EQUAL, [found, result])])
        same = mk(kinds.ITE, [mk(kinds.FP_IS_NAN, [result]), is_canonical, number])
    else:
        same = mk(kinds.EQUAL, [mk(kinds.EQUAL, [terms[0], one]), result])
    options = bitwuzla.Options()
    options.set(bitwuzla.Option.TIME_LIMIT_PER, max(1, int(1000 * seconds)))
    solver = bitwuzla.Bitwuzla(manager, options)
    for defining in terms[1 + meaning.arity :]:
        solver.assert_formula(mk(kinds.EQUAL, [defining, one]))
    solver.assert_formula(mk(kinds.NOT, [same]))
    return {bitwuzla.Result.UNSAT: True, bitwuzla.Result.SAT: False}.get(solver.check_sat())


def compare_all(say: Callable[[str], None], seconds: float = SECONDS) -> dict[str, Any]:
    """Compare every operation of `names`.  Raises Unfaithful where one is different, or where there is no answer."""
    found = list(names())
    for name in found:
        answer = agrees(name, seconds)
        if not answer:
            what = "differs from" if answer is False else "was not compared in time with"
            raise Unfaithful(f"the expression of {name} {what} SMT-LIB's theory of floating-point numbers")
    say(f"{len(found)} operations are those of SMT-LIB's theory of floating-point numbers")
    return {"solver": Bitwuzla().name, "names": found}
