"""Patterns: terms over the vocabulary of operations, with variables and numbers.

    add.rn.fp32(x, -0)                     an operation under its name; a number takes the format of its place
    select(p, x, concat(0x0000, y))        the bits of x where the predicate p holds, else those of the concatenation
    slice.16.16(x)                         16 bits of x from bit 16 up

A word with brackets is an operation.  A word that begins with a sign or a digit is a number: zero, one half (+half), 1,
2 or infinity (+inf) with its sign, or a bit pattern in hexadecimal.  Any other word is a variable.  `concat` takes its
parts from the lowest up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import INTEGER_FORMATS, FloatFormat, Format, Operation, operation, storage

Array: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["variable", "number", "operation", "select", "concat", "slice"]

_TOKEN = re.compile(r"\s*([A-Za-z][\w.@]*|[+-]\w+|0x[0-9a-fA-F]+|[(),])")
_SHAPES = ("select", "concat", "slice")


class PatternError(ValueError):
    """The text of a pattern is invalid: the message says where and why."""


@dataclass(frozen=True, slots=True)
class Term:
    """One place of a pattern: a value of `format`.

    `word` is the name of a variable or of an operation; `number` the bit pattern of a number; `low` the first bit of a
    slice; `names` are the variables.
    """

    kind: Kind
    word: str
    format: Format
    operands: tuple[Term, ...] = ()
    number: int = 0
    low: int = 0
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        own = {self.word} if self.kind == "variable" else ()
        object.__setattr__(self, "names", frozenset(own).union(*(each.names for each in self.operands)))
        fields = (self.kind, self.word, self.format, self.operands, self.number, self.low)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash

    @property
    def bits(self) -> int:
        """The width in bits."""
        return self.format.bits

    @property
    def operation(self) -> Operation:
        """The operation of a term of that kind."""
        return operation(self.word)

    def __str__(self) -> str:
        if self.kind == "number":
            return f"0x{self.number:0{max(1, self.bits // 4)}x}"
        if self.kind == "variable":
            return self.word
        head = f"slice.{self.low}.{self.bits}" if self.kind == "slice" else self.word
        return f"{head}({', '.join(map(str, self.operands))})"


def subterms(term: Term) -> Iterator[Term]:
    """Yield a term and everything below it, each place once, from the root down."""
    stack = [term]
    while stack:
        found = stack.pop()
        yield found
        stack.extend(reversed(found.operands))


def variables(*terms: Term) -> dict[str, Format]:
    """Return the formats of the variables, in order of appearance.

    A variable that occurs in several formats of one width has the first floating-point one.  Raises PatternError for
    different widths.
    """
    found: dict[str, Format] = {}
    for root in terms:
        for term in subterms(root):
            if term.kind != "variable":
                continue
            known = found.setdefault(term.word, term.format)
            if known.bits != term.bits:
                raise PatternError(
                    f"the variable {term.word} has {known.bits} bits in one place and {term.bits} in another"
                )
            if not isinstance(known, FloatFormat) and isinstance(term.format, FloatFormat):
                found[term.word] = term.format
    return found


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a pattern without types, and its operands (None: no brackets)."""

    text: str
    operands: tuple[_Word, ...] | None = None


def parse(text: str, expected: Format | None = None, known: Mapping[str, Format] | None = None) -> Term:
    """Return the term of a text.

    `expected` is the format of the whole, needed where the text does not determine it; `known` holds the formats of
    variables.  Raises PatternError for text outside the notation and for formats that do not fit.
    """
    return _typed(_words(text), expected, dict(known or {}), text)


def _words(text: str) -> _Word:
    opened: list[tuple[str, list[_Word]]] = [("", [])]
    position, word = 0, ""
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            raise PatternError(f"the pattern {text!r} cannot be read from {text[position:]!r} on")
        token, position = found.group(1), found.end()
        if token == "(":
            if not word:
                raise PatternError(f"the pattern {text!r} opens a bracket without an operation")
            opened.append((word, []))
            word = ""
        elif token in ",)":
            if word:
                opened[-1][1].append(_Word(word))
            word = ""
            if token == ")":
                if len(opened) == 1:
                    raise PatternError(f"the pattern {text!r} closes a bracket that it did not open")
                verb, operands = opened.pop()
                opened[-1][1].append(_Word(verb, tuple(operands)))
        elif word:
            raise PatternError(f"the pattern {text!r} has {token!r} after {word!r}")
        else:
            word = token
    if word:
        opened[-1][1].append(_Word(word))
    if len(opened) != 1 or len(opened[0][1]) != 1:
        raise PatternError(f"the pattern {text!r} is not one term with its brackets closed")
    return opened[0][1][0]


def _typed(word: _Word, expected: Format | None, known: dict[str, Format], text: str) -> Term:
    if word.operands is None:
        return _leaf(word.text, expected, known, text)
    name = word.text.split(".")[0]
    if name not in _SHAPES:
        return _operation(word.text, word.operands, known, text)
    if name == "select":
        return _select(word.operands, expected, known, text)
    if name == "concat":
        return _concat(word.operands, expected, known, text)
    return _slice(word.text, word.operands, known, text)


def _leaf(word: str, expected: Format | None, known: dict[str, Format], text: str) -> Term:
    if word[0] in "+-0123456789":
        if expected is None:
            raise PatternError(f"the pattern {text!r} does not determine the format of {word}")
        return Term("number", word, expected, number=_number(word, expected, text))
    form = known.get(word, expected)
    if form is None:
        raise PatternError(f"the pattern {text!r} does not determine the format of {word}")
    if expected is not None and expected.bits != form.bits:
        raise PatternError(f"the pattern {text!r} uses {word}, which has {form.bits} bits, as {expected.bits} bits")
    known.setdefault(word, form)
    return Term("variable", word, expected or form)


def _number(word: str, form: Format, text: str) -> int:
    if word.startswith("0x"):
        return int(word, 16)
    magnitude = None
    if isinstance(form, FloatFormat):
        step = 1 << form.mantissa_bits + form.padding  # twice the number
        magnitude = {"0": 0, "half": form.one - step, "1": form.one, "2": form.one + step, "inf": form.infinity}.get(
            word[1:]
        )
    if magnitude is None:
        raise PatternError(f"the pattern {text!r} has the number {word}, which {form.name} does not have")
    return magnitude | (1 << form.bits - 1 if word[0] == "-" else 0)


def _operation(name: str, operands: Sequence[_Word], known: dict[str, Format], text: str) -> Term:
    meaning = operation(name)
    if len(operands) != meaning.arity:
        raise PatternError(f"the pattern {text!r} gives {name} {len(operands)} operands; it takes {meaning.arity}")
    typed = tuple(_typed(each, form, known, text) for each, form in zip(operands, meaning.operands, strict=True))
    for term, form in zip(typed, meaning.operands, strict=True):
        if term.bits != form.bits:
            raise PatternError(f"the pattern {text!r} gives {name} {term.bits} bits where it takes {form.bits}")
    return Term("operation", meaning.name, meaning.result, typed)


def _select(operands: Sequence[_Word], expected: Format | None, known: dict[str, Format], text: str) -> Term:
    if len(operands) != 3:
        raise PatternError(f"the pattern {text!r} gives a select {len(operands)} operands; it takes 3")
    predicate = _typed(operands[0], INTEGER_FORMATS["b1"], known, text)
    form = expected
    for each in operands[1:]:
        if form is None:
            try:
                form = _typed(each, None, dict(known), text).format
            except PatternError:
                continue
    branches = tuple(_typed(each, form, known, text) for each in operands[1:])
    if branches[0].bits != branches[1].bits:
        raise PatternError(f"the pattern {text!r} selects between {branches[0].bits} bits and {branches[1].bits} bits")
    return Term("select", "select", branches[0].format, (predicate, *branches))


def _concat(operands: Sequence[_Word], expected: Format | None, known: dict[str, Format], text: str) -> Term:
    parts: list[Term] = []
    for each in operands:
        form: Format | None = None
        if each.operands is None and each.text.startswith("0x"):
            form = INTEGER_FORMATS[f"b{4 * (len(each.text) - 2)}"]
        parts.append(_typed(each, form, known, text))
    total = sum(each.bits for each in parts)
    if expected is not None and expected.bits != total:
        raise PatternError(f"the pattern {text!r} uses a concatenation of {total} bits as {expected.bits} bits")
    return Term("concat", "concat", expected or INTEGER_FORMATS[f"b{total}"], tuple(parts))


def _slice(name: str, operands: Sequence[_Word], known: dict[str, Format], text: str) -> Term:
    _, low, bits = name.split(".")
    inner = _typed(operands[0], None, known, text)
    if int(low) + int(bits) > inner.bits:
        raise PatternError(f"the pattern {text!r} takes bits that a value of {inner.bits} bits does not have")
    return Term("slice", "slice", INTEGER_FORMATS[f"b{bits}"], (inner,), low=int(low))


Approximation: TypeAlias = Callable[[Operation, Sequence[Array]], Array]


def evaluate(term: Term, values: Mapping[str, Array], approximate: Approximation | None = None) -> Array:
    """Return the bit patterns of a term for arrays of patterns of its variables, predicates as booleans.

    `approximate` evaluates operations without a function.  Shapes broadcast.
    """
    if term.kind == "variable":
        return values[term.word]
    if term.kind == "number":
        return np.full(1, term.number, dtype=np.bool_ if term.bits == 1 else storage(term.bits))
    below = [evaluate(each, values, approximate) for each in term.operands]
    if term.kind == "select":
        return np.where(below[0], below[1], below[2])
    if term.kind == "slice":
        shifted: Array = below[0] >> below[0].dtype.type(term.low)
        return shifted.astype(storage(term.bits))
    if term.kind == "concat":
        kind = storage(term.bits)
        total, low = np.zeros(1, dtype=kind), 0
        for part, each in zip(term.operands, below, strict=True):
            total = total | each.astype(kind) << kind.type(low)
            low += part.bits
        return total
    meaning = term.operation
    if meaning.function is None:
        if approximate is None:
            raise PatternError(f"{meaning.name} has no evaluation")
        return approximate(meaning, below)
    found: Array = meaning.function(*np.broadcast_arrays(*below))
    return found
