"""Mutants and neutral variants of a PTX text, chosen by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bitwise_bench.mutants.ptx_mutations import KINDS
from bitwise_bench.mutants.ptx_neutral_variants import VARIANTS
from bitwise_bench.mutants.ptx_text import Text, read_text


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed PTX text.

    `line` is the line of the change, from 1, or 0 for a neutral change of the whole text; `before` and `after` are the
    changed statements.
    """

    kind: str
    line: int
    before: str
    after: str
    text: str
    neutral: bool = False


def mutants(text: str, seed: str, count: int, kinds: Iterable[str] = tuple(KINDS)) -> list[Mutant]:
    """Return up to `count` different mutants of a PTX text, spread over the applicable kinds and chosen by a seed."""
    parsed = read_text(text)
    found: list[Mutant] = []
    queues = [_of_kind(parsed, kind, random.Random(f"{seed}\0{kind}")) for kind in kinds]
    random.Random(seed).shuffle(queues)
    seen = {text}
    while queues and len(found) < count:
        for queue in list(queues):
            mutant = next(queue, None)
            if mutant is None:
                queues.remove(queue)
            elif mutant.text not in seen and len(found) < count:
                seen.add(mutant.text)
                found.append(mutant)
    return found


def _of_kind(parsed: Text, kind: str, dice: random.Random) -> Iterator[Mutant]:
    sites = list(KINDS[kind](parsed, dice))
    dice.shuffle(sites)
    for site in sites:
        yield Mutant(kind, site.line, *_shown(parsed.lines, site.changes), parsed.with_lines(site.changes))


def _shown(lines: Sequence[str], changes: Mapping[int, str | None]) -> tuple[str, str]:
    before = "; ".join(lines[number - 1].strip() for number in sorted(changes))
    after = "; ".join((changes[number] or "").strip() for number in sorted(changes))
    return before[:300], after[:300]


def variants(text: str, seed: str, kinds: Iterable[str] = tuple(VARIANTS)) -> list[Mutant]:
    """Return neutral variants of a PTX text, one for each applicable kind, chosen by a seed."""
    found = []
    for kind in kinds:
        changed = VARIANTS[kind](text, random.Random(f"{seed}\0{kind}"))
        if changed != text:
            found.append(Mutant(kind, 0, "", "", changed, neutral=True))
    return found
