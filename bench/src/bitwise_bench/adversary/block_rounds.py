"""Rounds on kernels whose threads work together: their classes in the analysis of one launch, and their bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitwise_bench.adversary.block_kernels import BlockProgram
from bitwise_bench.adversary.device import Device
from bitwise_bench.adversary.execution import Executed, run
from bitwise_bench.adversary.folders import MANIFEST, Element, element_of, manifest, typed
from bitwise_bench.adversary.judging import Difference, canonical, difference
from bitwise_bench.adversary.kernels import BUFFERS, DTYPES
from bitwise_bench.adversary.language import Language
from bitwise_bench.adversary.pair_shrinking import shrunk_pair
from bitwise_bench.adversary.patterns import Array, inputs
from bitwise_bench.adversary.scopes import Scope
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.sources import Source
from bitwise_core.execution.domains.domain import Unsupported

BLOCKS = 4
DRAWS = 3
"""How many inputs Equal kernels are executed on."""


@dataclass(frozen=True, slots=True)
class BlockPair:
    """Two kernels that the checker calls Equal, and an input for which they return different bytes."""

    left: BlockProgram
    right: BlockProgram
    scope: str
    sample: int
    element: Element
    values: tuple[str, str]
    with_nan: bool
    contents: Mapping[str, Array]

    def entry(self) -> dict[str, Any]:
        """Return the pair for a record."""
        return {
            "left": self.left.text_key(), "right": self.right.text_key(), "scope": self.scope,
            "element": f"thread {self.sample} of {BLOCKS} blocks", "place": self.element.entry(),
            "values": list(self.values), "loaded": {}, "source": self.left.family, "confirmed": True,
            "with NaN": self.with_nan,
        }  # fmt: skip

    def arrays(self) -> Mapping[str, Array]:
        """See `WrongEqual.arrays`."""
        return self.contents

    def texts(self) -> Mapping[str, str]:
        """See `WrongEqual.texts`."""
        kernels = {"left.ptx": self.left.kernel, "right.ptx": self.right.kernel}
        launches = {name: kernel.launch(BLOCKS) for name, kernel in kernels.items()}
        return {**{name: kernel.text for name, kernel in kernels.items()}, MANIFEST: manifest(launches)}


def analysed(
    programs: Sequence[BlockProgram], language: Language, scope: Scope
) -> tuple[list[Hashable | None], list[str]]:
    """Return the form of each program, None where its analysis stopped, and the reasons of those."""
    forms: list[Hashable | None] = []
    reasons = []
    for program in programs:
        kernel = program.kernel
        launch = kernel.launch(BLOCKS)
        result = Session(BUFFERS, scope.options).analyse(
            Source("kernel", kernel.text, launch, launch.entry), language.arch
        )
        if result.malformed or result.failed:
            raise RuntimeError(f"the adversary wrote a kernel that the analysis rejects: {result.unknown}")
        forms.append(result.signature)
        if result.signature is None:
            reasons.append(f"{program.family}: {result.unknown}")
    return forms, reasons


def contents_of(program: BlockProgram, language: Language, scope: Scope, seed: int, draw: int) -> dict[str, Array]:
    """Return the bytes of the input of a program: special patterns in the first draw, and few of them in others.

    Sums of many products of special patterns are NaNs.
    """
    kernel = program.kernel
    found = inputs(language.words.leaves, kernel.loads, BLOCKS * kernel.threads, seed + draw, finite=scope.finite)
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


def executed(program: BlockProgram, language: Language, scope: Scope, seed: int) -> list[Executed]:
    """Execute a program on each of its inputs.  Raises Unsupported."""
    draws = [contents_of(program, language, scope, seed, draw) for draw in range(DRAWS)]
    return [run(program.kernel, language, BLOCKS, each, finite=scope.finite) for each in draws]


def executed_on_device(
    program: BlockProgram, language: Language, scope: Scope, seed: int, device: Device, *, optimised: bool = True
) -> list[Array]:
    """Return the bytes of a program on a GPU for each of its inputs."""
    draws = [contents_of(program, language, scope, seed, draw) for draw in range(DRAWS)]
    return [device.run(program.kernel, language, BLOCKS, each, optimised=optimised)[0] for each in draws]


def pair_difference(left: Sequence[Executed], right: Sequence[Executed]) -> tuple[int, Difference] | None:
    """Return the number of the input and the sample in which two programs differ, the most serious one."""
    found: list[tuple[int, Difference]] = []
    for draw, (first, second) in enumerate(zip(left, right, strict=True)):
        one, two = first.allowed[0], second.allowed[0]
        allowed = None if one is None or two is None else one & two
        nans = first.nans[0] | second.nans[0]
        seen = difference(first.results[0], second.results[0], DTYPES["out_fp32"], allowed, nans)
        if seen is not None:
            found.append((draw, seen))
    return min(found, key=lambda each: (each[1].covered, each[1].with_nan), default=None)


def device_difference(left: Sequence[Array], right: Sequence[Array]) -> Difference | None:
    """Return a sample in which two programs differ on a GPU."""
    found = (difference(one, other, DTYPES["out_fp32"]) for one, other in zip(left, right, strict=True))
    return next((each for each in found if each is not None), None)


def wrong_pair(
    left: BlockProgram, right: BlockProgram, language: Language, scope: Scope, seed: int, *, with_nan: bool
) -> BlockPair | None:
    """Return the pair if the checker calls it Equal and its bytes differ; unless `with_nan`, without a NaN."""
    try:
        forms, _ = analysed((left, right), language, scope)
        if forms[0] is None or forms[0] != forms[1]:
            return None
        results = [executed(each, language, scope, seed) for each in (left, right)]
    except (Unsupported, RuntimeError):
        return None
    found = pair_difference(*results)
    if found is None or found[1].covered or (found[1].with_nan and not with_nan):
        return None
    draw, seen = found
    rows = [each[draw].results[0][seen.sample : seen.sample + 1] for each in results]
    shown = [canonical(each, DTYPES["out_fp32"])[0] for each in rows]
    column = int(np.flatnonzero(shown[0] != shown[1])[0])
    kernel = left.kernel
    launch = kernel.launch(BLOCKS)
    contents = {name: np.zeros(kernel.bytes_of(name, BLOCKS), dtype=np.uint8) for name in launch.buffers()}
    contents |= contents_of(left, language, scope, seed, draw)
    return BlockPair(
        left, right, scope.name, seen.sample, element_of(kernel, 0, seen.sample, column),
        (hex(int(shown[0][column])), hex(int(shown[1][column]))), seen.with_nan, typed(launch, contents),
    )  # fmt: skip


def shrunk(pair: BlockPair, language: Language, scope: Scope, seed: int, most: int = 40) -> BlockPair:
    """Return a smaller pair after at most `most` attempts."""

    def wrong(known: BlockPair, left: BlockProgram, right: BlockProgram) -> BlockPair | None:
        return wrong_pair(left, right, language, scope, seed, with_nan=known.with_nan)

    return shrunk_pair(pair, lambda each: _smaller(each.left, each.right), wrong, most)


def _smaller(left: BlockProgram, right: BlockProgram) -> Iterator[tuple[BlockProgram, BlockProgram]]:
    """Yield pairs with one slot less, and pairs that differ in one slot less."""
    if len(left.chosen) != len(right.chosen):
        return
    for place in range(left.fixed[0], len(left.chosen) - left.fixed[1]):
        if ":" not in left.chosen[place] + right.chosen[place]:
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
