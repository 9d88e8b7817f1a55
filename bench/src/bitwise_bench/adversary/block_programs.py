"""Kernels whose threads work together: a kernel is a list of slots, each with one of several texts, in a frame.

Its changes choose other texts, exchange slots, or drop one: some of them return the same bytes, and others do not.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import LEAVES
from bitwise_bench.adversary.kernels import CELLS, PARTS, KernelText, Place
from bitwise_bench.adversary.pair_rounds import BLOCKS, Trial
from bitwise_bench.adversary.patterns import Array, inputs
from bitwise_bench.adversary.scopes import Scope
from bitwise_core.execution.launch import Argument
from bitwise_core.execution.tensor_contents import tensor_contents

WORDS = 4
"""The words of the input and of the output of each thread."""

DRAWS = 3
"""How many inputs Equal kernels are executed on."""

_LABEL = re.compile(r"(?:^|[\s;])[.\w]+:(?:\s|$)")

Slot = tuple[str, ...]
"""The texts of which one is chosen."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is around the slots of a kernel: the language, and the texts before and after them.

    In the text before them, {kind} is the kind of the input, {threads} the number of threads of a block, {block} the
    number of bytes of its input.  `states_roundings`: no operation of a kernel leaves its rounding to the assembler.
    `cells`: the number of bytes of the buffer by which blocks synchronise, which the buffer of their parts follows; the
    launch gives zeros for it.  A kernel without it has neither.  `sizes`: the values that launches give for a scalar,
    the last argument, that of the analysed launch first; a kernel without them has no such argument.
    """

    language: Language
    head: str
    end: str
    states_roundings: bool = True
    cells: int = 0
    sizes: tuple[int, ...] = ()

    def scalars(self, number: int = 0) -> tuple[Argument, ...]:
        """Return the arguments after the input and the output, with one of the sizes."""
        if self.sizes:
            return (Argument(kind="i32", value=self.sizes[number]),)
        if not self.cells:
            return ()
        zeros = tensor_contents(np.zeros(self.cells // 4, dtype=np.uint32), "u32", None)
        return (
            Argument(kind="buffer", buffer=CELLS, dtype="u32", values=zeros),
            Argument(kind="buffer", buffer=PARTS, dtype="fp32"),
        )


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A kernel: its family (`source`), the text chosen for each slot, its other texts, and the threads of a block.

    `fixed` are the numbers of slots at the start and at the end that no change moves, `blocks` is the number of blocks
    for which its form is found.  The input has `repeats` times as many words as the threads load.
    """

    source: str
    chosen: tuple[str, ...]
    slots: tuple[Slot, ...]
    threads: int
    kind: str
    fixed: tuple[int, int]
    frame: Frame
    blocks: int = BLOCKS
    repeats: int = 1

    def text_key(self) -> str:
        """Return the program as text."""
        return f"{self.source}, {self.kind}, {self.threads} threads: " + " | ".join(self.chosen)

    @property
    def language(self) -> Language:
        """The language."""
        return self.frame.language

    @property
    def states_roundings(self) -> bool:
        """See `Frame`."""
        return self.frame.states_roundings

    @property
    def kernel(self) -> KernelText:
        """The kernel, with the first size."""
        return self.kernel_of(0)

    def kernel_of(self, size: int) -> KernelText:
        """Return the kernel with the size of a number."""
        frame, threads = self.frame, self.threads
        head = frame.head.format(kind=self.kind, threads=threads, block=4 * WORDS * threads)
        lines = "\n".join(self.chosen)
        if frame.language.suffix == ".amdgcn":
            lines = "".join(f"{each.strip()}\n" for each in lines.replace(";", "\n").splitlines() if each.strip())
        place = Place("out_fp32", 0, 4 * WORDS, True)
        file = f"kernel{frame.language.suffix}"
        return KernelText(
            f"{head}{lines}\n{frame.end}",
            (place,),
            (self.kind,),
            {"out_fp32": 1},
            LEAVES,
            threads,
            file,
            frame.scalars(size),
            self.repeats,
        )

    def analysed_kernel(self) -> tuple[KernelText, int]:
        """See `WholeProgram.analysed_kernel`."""
        return self.kernel, self.blocks

    def trials(self, scope: Scope, seed: int) -> list[Trial]:
        """Return a launch for each drawn input; for every launch, one for each size where there are some."""
        kernel, sizes = self.kernel, self.frame.sizes
        if sizes and scope.options.every_launch:
            contents = _contents(kernel, scope, seed, 1)
            return [Trial(self.kernel_of(at), contents, f", n = {size}") for at, size in enumerate(sizes)]
        return [Trial(kernel, _contents(kernel, scope, seed, draw)) for draw in range(DRAWS)]

    def smaller(self, other: BlockProgram) -> Iterator[tuple[BlockProgram, BlockProgram]]:
        """See `WholeProgram.smaller`."""
        return _smaller(self, other)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a family returns: its slots, the threads of a block, the kind of the input, the fixed slots, the blocks.

    See `BlockProgram`.  `first`: the kernel that is changed has the first text of each slot, else any.
    """

    slots: Sequence[Slot]
    threads: int
    kind: str = "f32"
    fixed: tuple[int, int] = (1, 1)
    blocks: int = BLOCKS
    repeats: int = 1
    first: bool = False


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
    first = tuple(each[0] if shape.first else dice.choice(each) for each in shape.slots)
    root = BlockProgram(
        name,
        first,
        tuple(shape.slots),
        shape.threads,
        shape.kind,
        shape.fixed,
        family.frame,
        shape.blocks,
        shape.repeats,
    )
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


def _contents(kernel: KernelText, scope: Scope, seed: int, draw: int) -> dict[str, Array]:
    """Return the bytes of the input of a kernel: special patterns in the first draw, and few of them in others.

    Sums of many products of special patterns are NaNs.
    """
    found = inputs(
        kernel.leaves, kernel.loads, BLOCKS * kernel.threads * kernel.repeats, seed + draw, finite=scope.finite
    )
    if draw == 0:
        return found
    dice = np.random.default_rng([seed, draw])
    for name, content in found.items():
        patterns = content.view(np.uint32)
        numbers = dice.standard_normal((2, patterns.size)).astype(np.float32)
        ordinary = {
            "in_f32": numbers[0].view(np.uint32),
            "in_h2": np.ascontiguousarray(numbers.T.astype(np.float16)).view(np.uint32)[:, 0],
            "in_b2": numbers[0].view(np.uint32) >> np.uint32(16) | numbers[1].view(np.uint32) & np.uint32(0xFFFF0000),
        }[name]
        found[name] = np.where(dice.random(patterns.size) < _SPECIAL, patterns, ordinary).view(np.uint8)
    return found


_SPECIAL = 0.01
"""The share of special patterns among ordinary numbers."""


def _smaller(left: BlockProgram, right: BlockProgram) -> Iterator[tuple[BlockProgram, BlockProgram]]:
    """Yield pairs with one slot less, and pairs that differ in one slot less."""
    if len(left.chosen) != len(right.chosen) or left.language is not right.language:
        return
    for place in range(left.fixed[0], len(left.chosen) - left.fixed[1]):
        if not has_label(f"{left.chosen[place]} {right.chosen[place]}"):
            yield _without(left, place), _without(right, place)
    for place, (one, other) in enumerate(zip(left.chosen, right.chosen, strict=True)):
        if one != other:
            yield left, replace(right, chosen=(*right.chosen[:place], one, *right.chosen[place + 1 :]))


def _without(program: BlockProgram, place: int) -> BlockProgram:
    return replace(
        program,
        chosen=program.chosen[:place] + program.chosen[place + 1 :],
        slots=program.slots[:place] + program.slots[place + 1 :],
    )
