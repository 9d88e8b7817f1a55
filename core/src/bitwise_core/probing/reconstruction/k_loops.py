"""How innermost parts may be walked: by which instructions, and in which turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bitwise_core.descriptors import DescriptorError, GEMMDesc, Instruction
from bitwise_core.descriptors.cuts import Positions
from bitwise_core.descriptors.hardware import Units
from bitwise_core.descriptors.k_axis import instructions
from bitwise_core.numerics.mma import FusedSum, MmaSpec, SequentialMultiplyAdd
from bitwise_core.probing.reconstruction.cuts import Observed
from bitwise_core.probing.reconstruction.partial_sums import walk_nodes

LONGEST_TURN = 512

MOST = 6
"""Parts of different lengths whose short steps are looked at."""


@dataclass(frozen=True)
class Walk:
    """Scalar arithmetic, or a matrix unit's row; the fields of a GEMMDesc of the same names."""

    unit: MmaSpec | None = None
    use_fast_accum: bool = True
    k_loop_step: int | None = None
    short_iteration: str = "last"
    alike: tuple[str, ...] = ()

    @property
    def fields(self) -> dict[str, object]:
        """The fields of a GEMMDesc but for the path of scalar arithmetic."""
        if self.unit is None:
            return {}
        unit = Instruction(architecture=self.unit.architecture, family=self.unit.family, k=self.unit.k)
        return {
            "path": "matrix", "instruction": unit, "instruction_k": unit.k, "use_fast_accum": self.use_fast_accum,
            "k_loop_step": self.k_loop_step, "short_iteration": self.short_iteration,
        }  # fmt: skip


def rows_of(units: Units, left: str, right: str, architecture: str | None = None) -> list[Walk]:
    """A walk for every row of a matrix unit that takes these types and differs in its bits.

    Rows of equal arithmetic are one, under the first of their names, the others being `alike`.  Only rows of results
    in fp32 are taken, or of fp64 for operands of it.
    """
    wanted = [
        row
        for row in units.values()
        if (row.left, row.right) == (left, right)
        and row.result == ("fp64" if left == "fp64" else "fp32")
        and architecture in (None, row.architecture)
        and row.family != "fused"
        and not isinstance(row.arithmetic, SequentialMultiplyAdd)  # scalar arithmetic has its bits
    ]
    found: dict[tuple[object, int], list[MmaSpec]] = {}
    # wgmma before mma.sync, larger k before smaller, and the newest architecture of a name's family last named.
    for row in sorted(wanted, key=lambda row: (row.architecture, row.k, row.family), reverse=True):
        found.setdefault((row.arithmetic, row.k), []).append(row)
    return [Walk(rows[0], alike=tuple(each.name for each in rows[1:])) for rows in found.values()]


def walks_of(seen: Observed, rows: Sequence[Walk], parts: Sequence[Positions], left: str, right: str) -> list[Walk]:
    """The ways in which every part is walked, those without turns before those with, scalar arithmetic first."""
    found: list[Walk] = []
    longest = max(parts, key=len)
    lengths = {len(part): part for part in parts}
    shown = [(_ends(seen, part), length) for length, part in sorted(lengths.items(), reverse=True)[:MOST]]
    for base in (Walk(), *rows):
        for fast in (True, False):
            if not fast and (base.unit is None or _last(base.unit)):
                continue
            for walk in _turns(replace(base, use_fast_accum=fast), shown):
                if all(_fits(seen, walk, part, left, right) for part in (longest, *parts)):
                    found.append(walk)
                    break
    return found


def _ends(seen: Observed, part: Positions) -> list[int]:
    """Where the sums of the first positions of a part end: after every step, were it one walk."""
    sums = seen.axis.prefixes(part)
    return [size for size in (np.flatnonzero(seen.among(sums[2:])) + 2).tolist() if size <= len(part)]


def _last(unit: MmaSpec) -> bool:
    return isinstance(unit.arithmetic, FusedSum) and unit.arithmetic.accumulator_last


def _turns(walk: Walk, shown: list[tuple[list[int], int]]) -> Iterator[Walk]:
    """The walk without turns, and with turns of the lengths that the short steps of some parts allow."""
    yield walk
    tried = {walk}
    for ends, length in shown:
        for each in _turns_of(walk, ends, length):
            if each not in tried:
                tried.add(each)
                yield each


def _turns_of(walk: Walk, ends: list[int], length: int) -> Iterator[Walk]:
    """Turns that one part's short steps allow."""
    unit = walk.unit
    if unit is None:
        return
    width = unit.products if walk.use_fast_accum and not _last(unit) else unit.k
    # A first step of one position is no sum: the second one's end shows it.
    starts = [0, *ends]
    sizes = [high - low for low, high in pairwise(starts)]
    if any(size > width for size in sizes[1:]) or (sizes and sizes[0] > width + 1):
        return
    short = [end for end, size in zip(ends, sizes, strict=True) if size < width and end < length]
    heads = short[:1]
    if sizes and (sizes[0] == width + 1 or (width > 1 and sizes[0] == 2)):
        heads.append(1)
    for head in heads:
        if head > 1:  # no kernel gives a matrix unit one product at a time: that is scalar arithmetic
            yield replace(walk, k_loop_step=head)
        lengths = [step for step in range(unit.k, LONGEST_TURN + 1, unit.k) if length % step == head]
        following = [end for end in short if end > head]
        lengths += [following[0] - head] if following else []
        yield from (replace(walk, k_loop_step=step, short_iteration="first") for step in lengths if step > head)


def _fits(seen: Observed, walk: Walk, part: Positions, left: str, right: str) -> bool:
    """Whether a part's nodes are those of its walk, the first ones looked at first."""
    if not len(part):
        return True
    try:
        desc = described(walk, len(part), left, right)
    except DescriptorError:  # turns that decide nothing
        return False
    taken = part[instructions(desc, desc.positions())] if walk.unit is None else _taken(desc, part)
    _, few = walk_nodes(seen.axis, walk.unit, walk.use_fast_accum, taken[:4])
    if not few <= seen.nodes.keys():
        return False
    total, nodes = walk_nodes(seen.axis, walk.unit, walk.use_fast_accum, taken)
    return nodes <= seen.nodes.keys() and len(nodes) == (seen.nodes[total[0]] if total[1] > 1 else 0)


def _taken(desc: GEMMDesc, part: Positions) -> Positions:
    found = instructions(desc, desc.positions())
    taken: Positions = part[found]
    taken[found < 0] = -1
    return taken


def described(walk: Walk, k: int, left: str, right: str, output: str = "fp32") -> GEMMDesc:
    """The descriptor of one walk of k values."""
    double = "fp64" in (left, right)
    fields: dict[str, object] = {"path": "fma", **walk.fields}
    return GEMMDesc(
        k=k, left_dtype=left, right_dtype=right, output_dtype=output, accumulator_dtype="fp64" if double else "fp32",
        **fields,
    )  # fmt: skip
