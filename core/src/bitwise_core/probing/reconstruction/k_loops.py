"""The loop over k of innermost parts: its instructions, and its iterations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bitwise_core.descriptors import DescriptorError, GEMMDesc, Instruction
from bitwise_core.descriptors.cuts import Positions
from bitwise_core.descriptors.hardware import Units
from bitwise_core.descriptors.k_axis import instructions, parts_of
from bitwise_core.numerics.mma import FusedSum, MmaSpec, SequentialMultiplyAdd
from bitwise_core.probing.reconstruction.cuts import ObservedTree
from bitwise_core.probing.reconstruction.partial_sums import k_loop_nodes

MAXIMUM_K_LOOP_STEP = 512

MAXIMUM_LENGTHS = 6
"""The number of different part lengths that are searched for short steps, the longest ones first."""


@dataclass(frozen=True)
class KLoop:
    """A loop over k by scalar arithmetic (`unit` is None) or by a matrix unit; fields are those of a GEMMDesc.

    `equivalent_instructions` are the names of other rows with the same arithmetic and k.
    """

    unit: MmaSpec | None = None
    use_fast_accum: bool = True
    k_loop_step: int | None = None
    short_iteration: str = "last"
    equivalent_instructions: tuple[str, ...] = ()

    @property
    def fields(self) -> dict[str, object]:
        """The fields of a GEMMDesc; empty for scalar arithmetic, whose path is not determined by the order."""
        if self.unit is None:
            return {}
        unit = Instruction(architecture=self.unit.architecture, family=self.unit.family, k=self.unit.k)
        return {
            "path": "matrix", "instruction": unit, "instruction_k": unit.k, "use_fast_accum": self.use_fast_accum,
            "k_loop_step": self.k_loop_step, "short_iteration": self.short_iteration,
        }  # fmt: skip


def matrix_unit_loops(units: Units, left: str, right: str, architecture: str | None = None) -> list[KLoop]:
    """Return a loop for every matrix unit that takes these types.

    Rows of equal arithmetic and equal k return the same bits and are one loop.  Only rows with results in fp32 are
    taken, or in fp64 for fp64 operands.
    """
    matching = [
        row
        for row in units.values()
        if (row.left, row.right) == (left, right)
        and row.result == ("fp64" if left == "fp64" else "fp32")
        and architecture in (None, row.architecture)
        and row.family != "fused"
        and not isinstance(row.arithmetic, SequentialMultiplyAdd)  # scalar arithmetic returns the same bits
    ]
    found: dict[tuple[object, int], list[MmaSpec]] = {}
    # The first row of a group names the loop: descending order prefers newer architectures, then larger k.
    for row in sorted(matching, key=lambda row: (row.architecture, row.k, row.family), reverse=True):
        found.setdefault((row.arithmetic, row.k), []).append(row)
    return [KLoop(rows[0], equivalent_instructions=tuple(each.name for each in rows[1:])) for rows in found.values()]


def k_loops_of(
    observed: ObservedTree, rows: Sequence[KLoop], parts: Sequence[Positions], left: str, right: str
) -> list[KLoop]:
    """Return the loops over k that explain every part: scalar arithmetic first, loops without iterations preferred.

    `rows` are the loops of `matrix_unit_loops`.
    """
    found: list[KLoop] = []
    longest = max(parts, key=len)
    lengths = {len(part): part for part in parts}
    part_steps = [
        (_step_ends(observed, part), length) for length, part in sorted(lengths.items(), reverse=True)[:MAXIMUM_LENGTHS]
    ]
    for base in (KLoop(), *rows):
        for fast in (True, False):
            if not fast and (base.unit is None or _adds_accumulator_last(base.unit)):
                continue
            for k_loop in _with_iterations(replace(base, use_fast_accum=fast), part_steps):
                if all(_fits(observed, k_loop, part, left, right) for part in (longest, *parts)):
                    found.append(k_loop)
                    break
    return found


def _step_ends(observed: ObservedTree, part: Positions) -> list[int]:
    """Return how many leading positions of a part have a sum that is a node: the ends of steps, if it is one loop."""
    sums = observed.axis.prefixes(part)
    return [size for size in (np.flatnonzero(observed.are_nodes(sums[2:])) + 2).tolist() if size <= len(part)]


def _adds_accumulator_last(unit: MmaSpec) -> bool:
    return isinstance(unit.arithmetic, FusedSum) and unit.arithmetic.accumulator_last


def _with_iterations(k_loop: KLoop, part_steps: list[tuple[list[int], int]]) -> Iterator[KLoop]:
    """Yield the loop without iterations, then with the iteration lengths that short steps of some parts allow.

    `part_steps` has for each part the ends of its steps and its length.
    """
    yield k_loop
    tried = {k_loop}
    for ends, length in part_steps:
        for each in _iterations_of(k_loop, ends, length):
            if each not in tried:
                tried.add(each)
                yield each


def _iterations_of(k_loop: KLoop, ends: list[int], length: int) -> Iterator[KLoop]:
    """Yield the loop with the iteration lengths that one part's short steps allow."""
    unit = k_loop.unit
    if unit is None:
        return
    width = unit.products if k_loop.use_fast_accum and not _adds_accumulator_last(unit) else unit.k
    # A first step of one position is not a node: the end of the second step reveals it.
    starts = [0, *ends]
    sizes = [high - low for low, high in pairwise(starts)]
    if any(size > width for size in sizes[1:]) or (sizes and sizes[0] > width + 1):
        return
    short = [end for end, size in zip(ends, sizes, strict=True) if size < width and end < length]
    heads = short[:1]
    if sizes and (sizes[0] == width + 1 or (width > 1 and sizes[0] == 2)):
        heads.append(1)
    for head in heads:
        if head > 1:  # a matrix unit that takes one product at a time is scalar arithmetic
            yield replace(k_loop, k_loop_step=head)
        lengths = [step for step in range(unit.k, MAXIMUM_K_LOOP_STEP + 1, unit.k) if length % step == head]
        following = [end for end in short if end > head]
        lengths += [following[0] - head] if following else []
        yield from (replace(k_loop, k_loop_step=step, short_iteration="first") for step in lengths if step > head)


def _fits(observed: ObservedTree, k_loop: KLoop, part: Positions, left: str, right: str) -> bool:
    """Return whether a part's nodes are exactly those of the loop; the first steps are compared first."""
    if not len(part):
        return True
    try:
        desc = descriptor_of(k_loop, len(part), left, right)
    except DescriptorError:  # iterations that do not affect the bits
        return False
    positions = part[instructions(desc, parts_of(desc))] if k_loop.unit is None else _padded_positions(desc, part)
    _, first_nodes = k_loop_nodes(observed.axis, k_loop.unit, k_loop.use_fast_accum, positions[:4])
    if not first_nodes <= observed.nodes.keys():
        return False
    total, nodes = k_loop_nodes(observed.axis, k_loop.unit, k_loop.use_fast_accum, positions)
    return nodes <= observed.nodes.keys() and len(nodes) == (observed.nodes[total[0]] if total[1] > 1 else 0)


def _padded_positions(desc: GEMMDesc, part: Positions) -> Positions:
    """Return the positions of each instruction, -1 for padding."""
    indices = instructions(desc, parts_of(desc))
    padded: Positions = part[indices]
    padded[indices < 0] = -1
    return padded


def descriptor_of(k_loop: KLoop, k: int, left: str, right: str, output: str = "fp32") -> GEMMDesc:
    """Return the descriptor of one loop over k values."""
    double = "fp64" in (left, right)
    fields: dict[str, object] = {"path": "fma", **k_loop.fields}
    return GEMMDesc(
        k=k, left_dtype=left, right_dtype=right, output_dtype=output, accumulator_dtype="fp64" if double else "fp32",
        **fields,
    )  # fmt: skip
