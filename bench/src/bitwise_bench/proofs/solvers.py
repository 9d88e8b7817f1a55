"""Solvers for obligations: bitwuzla, and z3 as a second one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs.bitvectors import Bits

Answer: TypeAlias = Literal["none", "found", "unknown"]


@dataclass(frozen=True)
class Outcome:
    """Whether values exist under which all predicates hold: "none", "found" with the values, or "unknown"."""

    answer: Answer
    solver: str
    seconds: float
    values: Mapping[str, int] = field(default_factory=dict)


Builder: TypeAlias = Callable[[Bits, list[Any]], Any]


def _defining(roots: Sequence[Bits]) -> tuple[dict[int, Bits], list[Bits]]:
    """Return variables for integer square roots, and the predicates that define them."""
    stand_ins: dict[int, Bits] = {}
    predicates: list[Bits] = []
    for each in bv.subexpressions(*roots):
        if each.kind == "isqrt":
            stand_ins[each.number] = _root(each, predicates)
    return stand_ins, predicates


def _root(each: Bits, predicates: list[Bits]) -> Bits:
    half = (each.width + 1) // 2
    root = bv.widen(bv.variable(f"root{each.number}", half), each.width)
    radicand = each.operands[0]
    square = bv.mul(root, root)
    rest = bv.sub(radicand, square)
    twice = bv.widen(bv.join(bv.extract(root, 0, half), bv.constant(0, 1)), each.width)
    predicates.append(bv.invert(bv.below(radicand, square)))
    predicates.append(bv.invert(bv.below(twice, rest)))
    return root


def abstracted(roots: Sequence[Bits]) -> tuple[list[Bits], bool]:
    """Return predicates with variables in place of products and quotients of variables, and whether there are any.

    What holds for every value of these variables holds for the products and quotients.
    """
    stand_ins = {
        each.number: bv.variable(f"{each.kind}{each.number}", each.width)
        for each in bv.subexpressions(*roots)
        if each.kind in ("mul", "udiv", "urem") and all(below.kind != "constant" for below in each.operands)
    }
    return bv.replaced(roots, stand_ins), bool(stand_ins)


def translate(roots: Sequence[Bits], build: Builder) -> tuple[list[Any], dict[str, Any]]:
    """Return the solver's terms of the roots with the definitions of roots of squares, and its variables by name."""
    stand_ins, predicates = _defining(roots)
    if any(
        each.kind == "isqrt" for each in bv.subexpressions(*(p for p in predicates)) if each.number not in stand_ins
    ):
        raise ValueError("square roots of square roots are not translated")
    known: dict[int, Any] = {}
    names: dict[str, Any] = {}
    everything = [*stand_ins.values(), *roots, *predicates]
    for each in bv.subexpressions(*everything):
        if each.number in stand_ins:
            known[each.number] = known[stand_ins[each.number].number]
            continue
        known[each.number] = build(each, [known[below.number] for below in each.operands])
        if each.kind == "variable":
            names[each.name] = known[each.number]
    return [known[root.number] for root in (*roots, *predicates)], names


class Bitwuzla:
    """The solver bitwuzla."""

    def __init__(self) -> None:
        import bitwuzla

        self._module = bitwuzla
        self.name = f"bitwuzla {bitwuzla.version()}"

    def build(self, manager: Any) -> Builder:
        """Return the function that makes the term of an expression."""
        kinds = self._module.Kind
        plain = {
            "add": kinds.BV_ADD, "sub": kinds.BV_SUB, "mul": kinds.BV_MUL, "udiv": kinds.BV_UDIV, "urem": kinds.BV_UREM,
            "and": kinds.BV_AND, "or": kinds.BV_OR, "xor": kinds.BV_XOR, "not": kinds.BV_NOT, "shl": kinds.BV_SHL,
            "lshr": kinds.BV_SHR, "ashr": kinds.BV_ASHR, "concat": kinds.BV_CONCAT, "eq": kinds.BV_COMP,
        }  # fmt: skip
        one, zero = manager.mk_bv_one(manager.mk_bv_sort(1)), manager.mk_bv_zero(manager.mk_bv_sort(1))

        def build(each: Bits, operands: list[Any]) -> Any:
            if each.kind == "constant":
                return manager.mk_bv_value(manager.mk_bv_sort(each.width), each.value)
            if each.kind == "variable":
                return manager.mk_const(manager.mk_bv_sort(each.width), each.name)
            if each.kind in plain:
                return manager.mk_term(plain[each.kind], operands)
            if each.kind in ("ult", "slt"):
                kind = kinds.BV_ULT if each.kind == "ult" else kinds.BV_SLT
                return manager.mk_term(kinds.ITE, [manager.mk_term(kind, operands), one, zero])
            if each.kind == "ite":
                return manager.mk_term(kinds.ITE, [manager.mk_term(kinds.EQUAL, [operands[0], one]), *operands[1:]])
            if each.kind == "extract":
                return manager.mk_term(kinds.BV_EXTRACT, operands, [each.value + each.width - 1, each.value])
            assert each.kind == "sext", each.kind
            return manager.mk_term(kinds.BV_SIGN_EXTEND, operands, [each.width - each.operands[0].width])

        return build

    def solve(self, predicates: Sequence[Bits], seconds: float) -> Outcome:
        """Search for values under which all predicates hold, for at most `seconds`."""
        started = time.monotonic()
        module = self._module
        manager = module.TermManager()
        terms, names = translate(predicates, self.build(manager))
        options = module.Options()
        options.set(module.Option.PRODUCE_MODELS, True)
        options.set(module.Option.TIME_LIMIT_PER, max(1, int(1000 * seconds)))
        solver = module.Bitwuzla(manager, options)
        one = manager.mk_bv_one(manager.mk_bv_sort(1))
        for term in terms:
            solver.assert_formula(manager.mk_term(module.Kind.EQUAL, [term, one]))
        result = solver.check_sat()
        values = {}
        answer: Answer = "unknown"
        if result == module.Result.UNSAT:
            answer = "none"
        elif result == module.Result.SAT:
            answer = "found"
            values = {name: int(solver.get_value(term).value(10)) for name, term in names.items()}
        return Outcome(answer, self.name, time.monotonic() - started, values)


class Z3:
    """The solver z3."""

    @cached_property
    def _module(self) -> Any:
        import z3

        return z3

    @property
    def name(self) -> str:
        """The solver and its version."""
        return f"z3 {self._module.get_version_string()}"

    def build(self, context: Any) -> Builder:
        """Return the function that makes the term of an expression."""
        z3 = self._module
        one, zero = z3.BitVecVal(1, 1, context), z3.BitVecVal(0, 1, context)

        def bit(condition: Any) -> Any:
            return z3.If(condition, one, zero)

        binary: dict[str, Callable[[Any, Any], Any]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "udiv": z3.UDiv,
            "urem": z3.URem, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
            "shl": lambda a, b: a << b, "lshr": z3.LShR, "ashr": lambda a, b: a >> b, "concat": z3.Concat,
            "eq": lambda a, b: bit(a == b), "ult": lambda a, b: bit(z3.ULT(a, b)), "slt": lambda a, b: bit(a < b),
        }  # fmt: skip

        def build(each: Bits, operands: list[Any]) -> Any:
            if each.kind == "constant":
                return z3.BitVecVal(each.value, each.width, context)
            if each.kind == "variable":
                return z3.BitVec(each.name, each.width, context)
            if each.kind in binary:
                return binary[each.kind](*operands)
            if each.kind == "not":
                return ~operands[0]
            if each.kind == "ite":
                return z3.If(operands[0] == one, operands[1], operands[2])
            if each.kind == "extract":
                return z3.Extract(each.value + each.width - 1, each.value, operands[0])
            assert each.kind == "sext", each.kind
            return z3.SignExt(each.width - each.operands[0].width, operands[0])

        return build

    def solve(self, predicates: Sequence[Bits], seconds: float) -> Outcome:
        """Search for values under which all predicates hold, for at most `seconds`."""
        started = time.monotonic()
        z3 = self._module
        context = z3.Context()
        terms, names = translate(predicates, self.build(context))
        # Sums of monomials decide identities of rings.
        simplify = z3.With(z3.Tactic("simplify", context), som=True, ctx=context)
        solver = z3.Then(simplify, z3.Tactic("smt", context), ctx=context).solver()
        solver.set("timeout", max(1, int(1000 * seconds)))
        for term in terms:
            solver.add(term == z3.BitVecVal(1, 1, context))
        result = solver.check()
        answer: Answer = "unknown"
        values = {}
        if result == z3.unsat:
            answer = "none"
        elif result == z3.sat:
            answer = "found"
            model = solver.model()
            values = {name: model.eval(term, model_completion=True).as_long() for name, term in names.items()}
        return Outcome(answer, self.name, time.monotonic() - started, values)


Solver: TypeAlias = Bitwuzla | Z3
