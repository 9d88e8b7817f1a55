"""Texts that leave ptxas no choice: every rounding written out, chosen products fused by hand.

Nothing here has to be right for the result to be right: a rewritten text counts only if it leaves no freedom and
its machine code equals that of the original (see `contraction`).  The choices follow what ptxas has been seen to
do (12.8 and 13.4): a product is fused where all its uses are sums of its own block, type and flush mode; of a sum of
two products the first operand is fused; a product used twice by one sum is not fused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bitwise_nvidia_ptx.contraction_scan import Program, Statement

_WIDTHS = {"f16": 16, "bf16": 16, "f64": 64, "f32x2": 64}
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$")


@dataclass(frozen=True)
class Fusion:
    """Sum `consumer` takes operand `position` (0 or 1) from `product`; `negated` if through a sign change."""

    product: int
    consumer: int
    position: int
    negated: bool


@dataclass(frozen=True)
class Division:
    """Which range checks of an expanded division are written, and how.

    `large` divisors are scaled down and `tiny` ones up, unless ptxas knows that there are none; `absolute`
    is off where it knows the divisor's sign.
    """

    large: bool = True
    tiny: bool = True
    tiny_first: bool = False
    absolute: bool = True


def fusable(program: Program) -> list[list[Fusion]]:
    """For each product that ptxas might fuse everywhere it is used: its fusions, in order of the text."""
    found = []
    for index, statement in enumerate(program.statements):
        if statement.product and (fusions := _fusions(program, index, statement)):
            found.append(fusions)
    return found


def _fusions(program: Program, index: int, product: Statement) -> list[Fusion]:
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
            if statement.base in ("neg", "mov") and "{" not in "".join(statement.operands):
                work += [(result, negated ^ (statement.base == "neg")) for result in statement.results]
            elif _compatible(product, statement):
                found.append(Fusion(index, use, position, negated))
            else:
                return []
    consumers = [fusion.consumer for fusion in found]
    return sorted(found, key=lambda f: f.consumer) if len(set(consumers)) == len(consumers) else []


def _compatible(product: Statement, total: Statement) -> bool:
    same_flush = ("ftz" in total.parts) == ("ftz" in product.parts)
    return total.contractible and total.base != "mul" and total.kind == product.kind and same_flush


def choices(program: Program) -> list[tuple[Fusion, ...]]:
    """Guesses at what ptxas fuses, likeliest first, without repetition; the empty guess is not among them."""
    groups = fusable(program)
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


def rounded(statement: Statement) -> str:
    """The instruction with an explicit round-to-nearest-even."""
    guard = f"@{statement.guard} " if statement.guard else ""
    modifiers = "".join("." + part for part in statement.parts[1:])
    return f"{guard}{statement.base}.rn{modifiers} {', '.join(statement.operands)}"


def rewrite(
    program: Program,
    fusions: Iterable[Fusion] = (),
    *,
    round_only: frozenset[int] | None = None,
    expand: frozenset[int] = frozenset(),
    division: Division | None = None,
    divisions: Mapping[int, Division] | None = None,
) -> str:
    """The text with these products fused into these sums by hand, and `.rn` on every other contractible instruction.

    `round_only` limits `.rn` to these statements.  The divisions that are fused, and those instructions of `expand`
    (which must be `expandable`), are written out as the steps ptxas takes for them, a division with the checks of
    `divisions[index]` (`division` otherwise).
    Every line keeps its number.
    """
    statements = program.statements
    by_consumer = {fusion.consumer: fusion for fusion in fusions}
    widened = {f.product for f in by_consumer.values() if statements[f.product].base == "div"} | expand
    edits: dict[int, str] = {}
    registers: list[str] = []
    for index, statement in enumerate(statements):
        if index in by_consumer:
            edits[index] = _fused(statements, by_consumer[index], registers)
        elif index in widened:
            chosen = (divisions or {}).get(index, division or Division())
            steps = _exponential if statement.base == "ex2" else _division
            edits[index] = steps(program, index, chosen, registers)
        elif statement.contractible and (round_only is None or index in round_only):
            edits[index] = rounded(statement)
    pieces: list[str] = []
    position = 0
    bodies = iter([*program.bodies, len(program.text) + 1])
    body = next(bodies)
    declaration = " " + " ".join(registers) if registers else ""
    for index in sorted(edits):
        statement = statements[index]
        while body <= statement.start:
            pieces += [program.text[position:body], declaration]
            position, body = body, next(bodies)
        lost = "\n" * program.text.count("\n", statement.start, statement.end)
        pieces += [program.text[position : statement.start], edits[index], lost]
        position = statement.end
    return "".join([*pieces, program.text[position:]])


def _fused(statements: tuple[Statement, ...], fusion: Fusion, registers: list[str]) -> str:
    consumer, product = statements[fusion.consumer], statements[fusion.product]
    kind = consumer.kind or "f32"
    left, right = _factors(product, fusion.product)
    result, *terms = consumer.operands
    other = terms[1 - fusion.position]
    negate_other = consumer.base == "sub" and fusion.position == 0
    negate_product = (consumer.base == "sub" and fusion.position == 1) ^ fusion.negated
    text = ""
    for name, wanted in (("product", negate_product), ("other", negate_other)):
        if wanted:
            temporary = f"%contraction_{name}_{fusion.consumer}"
            registers.append(f".reg .b{_WIDTHS.get(kind, 32)} {temporary};")
            value = left if name == "product" else other
            text += _negated(kind, temporary, value) + "; "
            left, other = (temporary, other) if name == "product" else (left, temporary)
    modifiers = "".join("." + part for part in consumer.parts[1:])
    return f"{text}fma.rn{modifiers} {result}, {left}, {right}, {other}"


def _negated(kind: str, result: str, value: str) -> str:
    if kind == "f32x2":
        return f"xor.b64 {result}, {value}, 0x8000000080000000"
    return f"neg.{kind} {result}, {value}"


def _factors(product: Statement, index: int) -> tuple[str, str]:
    if product.base == "div":
        return f"%contraction_a_{index}", f"%contraction_r_{index}"
    return product.operands[1], product.operands[2]


def expandable(statement: Statement) -> bool:
    """Whether `rewrite` can write out the steps of this instruction."""
    return statement.hidden_product and statement.base in ("div", "ex2") and not statement.guard


def _exponential(program: Program, index: int, division: Division, registers: list[str]) -> str:
    """The steps of `ex2.approx.f32`: below -126 half the argument is taken and the result squared."""
    result, argument = program.statements[index].operands
    p, t, r = (f"%contraction_{letter}_{index}" for letter in "ptr")
    registers.append(f".reg .b32 {t}, {r}; .reg .pred {p};")
    return (
        f"setp.geu.f32 {p}, {argument}, 0fC2FC0000; mov.b32 {t}, {argument}; @!{p} mul.rn.f32 {t}, {t}, 0f3F000000; "
        f"ex2.approx.ftz.f32 {r}, {t}; @!{p} mul.rn.f32 {r}, {r}, {r}; mov.b32 {result}, {r}"
    )


def _literal(program: Program, operand: str) -> str | None:
    """The single-precision literal an operand is, directly or through one `mov`."""
    if _FLOAT.match(operand):
        return operand
    definitions = program.definitions.get(operand, [])
    if len(definitions) == 1:
        statement = program.statements[definitions[0]]
        if statement.base == "mov" and not statement.guard and _FLOAT.match(statement.operands[-1]):
            return statement.operands[-1]
    return None


def _division(program: Program, index: int, division: Division, registers: list[str]) -> str:
    """The steps of an approximate single-precision division; factors end up in `_a_` and `_r_`."""
    statement = program.statements[index]
    result, numerator, divisor = statement.operands
    ftz = ".ftz" if "ftz" in statement.parts else ""
    a, b, r, t = (f"%contraction_{letter}_{index}" for letter in "abrt")
    p, q = f"%contraction_p_{index}", f"%contraction_q_{index}"
    registers.append(f".reg .b32 {a}, {b}, {r}, {t}; .reg .pred {p}, {q};")
    if literal := _literal(program, divisor):
        value = struct.unpack(">f", bytes.fromhex(literal[2:]))[0]
        if value not in (0.0, float("inf"), float("-inf")) and value == value and abs(1 / value) < 3e38:
            inverse = struct.pack(">f", 1 / value).hex().upper()
            return f"mov.b32 {a}, {numerator}; mov.b32 {r}, 0f{inverse}; mul.rn{ftz}.f32 {result}, {a}, {r}"
    large = division.large and "full" in statement.parts
    tiny = division.tiny and not ftz
    steps = [f"{f'abs{ftz}.f32' if division.absolute else 'mov.b32'} {t}, {divisor}", f"mov.b32 {b}, {divisor}"]
    checks = [f"setp.gt{ftz}.f32 {p}, {t}, 0f7E800000"] if large else []
    if tiny:
        checks.insert(0 if division.tiny_first else 1, f"setp.geu.f32 {q}, {t}, 0f00800000")
    steps += checks
    for register, source in ((b, None), (a, numerator)):
        if source is not None:
            steps += [f"rcp.approx.ftz.f32 {r}, {b}", f"mov.b32 {a}, {source}"]
        if large:
            steps.append(f"@{p} mul.rn{ftz}.f32 {register}, {register}, 0f3E800000")
        if tiny:
            steps.append(f"@!{q} mul.rn.f32 {register}, {register}, 0f4B800000")
    return "; ".join([*steps, f"mul.rn{ftz}.f32 {result}, {a}, {r}"])
