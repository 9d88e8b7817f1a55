"""Kernels whose threads work together: a kernel is a list of slots, each with one of several texts, in a frame.

Its changes choose other texts, exchange slots, repeat or drop one, so that some of them return the same bytes and others
do not.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bitwise_bench.adversary.kernels import KernelText, Place
from bitwise_bench.adversary.language import Language
from bitwise_bench.adversary.ptx_vocabulary import LEAVES

WORDS = 4
"""The words of the input and of the output of each thread."""

_LABEL = re.compile(r"(?:^|[\s;])[.\w]+:(?:\s|$)")

Slot = tuple[str, ...]
"""The texts of which one is chosen."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is around the slots of a kernel: the language, and the texts before and after them.

    In the text before them, {kind} is the kind of the input, {threads} the number of threads of a block, {block} the
    number of bytes of its input.
    """

    language: Language
    head: str
    end: str


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A kernel: its family, the text chosen for each slot, the other texts of each slot, and the threads of a block.

    `fixed` are the numbers of slots at the start and at the end that no change moves.
    """

    family: str
    chosen: tuple[str, ...]
    slots: tuple[Slot, ...]
    threads: int
    kind: str
    fixed: tuple[int, int]
    frame: Frame

    def text_key(self) -> str:
        """Return the program as text."""
        return f"{self.family}, {self.kind}, {self.threads} threads: " + " | ".join(self.chosen)

    @property
    def kernel(self) -> KernelText:
        """The kernel."""
        frame, threads = self.frame, self.threads
        head = frame.head.format(kind=self.kind, threads=threads, block=4 * WORDS * threads)
        lines = "\n".join(self.chosen)
        if frame.language.suffix == ".amdgcn":
            lines = "".join(f"{each.strip()}\n" for each in lines.replace(";", "\n").splitlines() if each.strip())
        place = Place("out_fp32", 0, 4 * WORDS, True)
        file = f"kernel{frame.language.suffix}"
        return KernelText(f"{head}{lines}\n{frame.end}", (place,), (self.kind,), {"out_fp32": 1}, LEAVES, threads, file)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a family returns: its slots, the threads of a block, the kind of the input, and the fixed slots."""

    slots: Sequence[Slot]
    threads: int
    kind: str = "f32"
    fixed: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels that exercise one part of the analysis, in one frame."""

    frame: Frame
    make: Callable[[random.Random], Shape]


def pick(dice: random.Random, *texts: str) -> Slot:
    """Return a slot of some texts in a random order."""
    return tuple(dice.sample(texts, len(texts)))


def has_label(text: str) -> bool:
    """Return whether a text has a label: its place decides what else is executed."""
    return _LABEL.search(text) is not None


def block_programs(name: str, family: Family, dice: random.Random, count: int) -> list[BlockProgram]:
    """Return a kernel of a family and changes of it."""
    shape = family.make(dice)
    first = tuple(dice.choice(each) for each in shape.slots)
    root = BlockProgram(name, first, tuple(shape.slots), shape.threads, shape.kind, shape.fixed, family.frame)
    found = [root]
    for _ in range(count):
        made = dice.choice(found) if dice.random() < 0.4 else root
        for _ in range(dice.choice((1, 1, 2))):
            made = changed(made, dice)
        found.append(made)
    return list({each.text_key(): each for each in found}.values())


def changed(program: BlockProgram, dice: random.Random) -> BlockProgram:
    """Return a program with one change."""
    chosen, slots = list(program.chosen), list(program.slots)
    low, high = program.fixed[0], len(chosen) - program.fixed[1]
    what = dice.random()
    places = [place for place in range(low, high - 1) if not has_label(f"{chosen[place]} {chosen[place + 1]}")]
    if what < 0.15 and places:
        place = dice.choice(places)
        chosen[place], chosen[place + 1] = chosen[place + 1], chosen[place]
        slots[place], slots[place + 1] = slots[place + 1], slots[place]
    elif what < 0.2 and high - low > 1:
        place = dice.randrange(low, high)
        if not has_label(chosen[place]):
            del chosen[place], slots[place]
    else:
        several = [place for place, each in enumerate(slots) if len(each) > 1]
        place = dice.choice(several)
        chosen[place] = dice.choice(slots[place])
    return replace(program, chosen=tuple(chosen), slots=tuple(slots))
