"""The descriptor of a matrix product from its outputs: the order by probes, the types by random inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product as pairs_of
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Record
from bitwise_core.descriptors.evaluation import evaluate_gemm, unit_of
from bitwise_core.descriptors.hardware import Hardware, Units
from bitwise_core.numerics import FLOAT_FORMATS, Bits
from bitwise_core.probing import ProbeError, RevealedOrder, product_instrument, reveal
from bitwise_core.probing.elimination import normal_draw, wide_draw
from bitwise_core.probing.operand_arrays import NUMPY, TYPES, OperandArrays, patterns_of
from bitwise_core.probing.reconstruction.cuts import CutNest, ObservedTree, nests
from bitwise_core.probing.reconstruction.equivalence import ValueTable, structure
from bitwise_core.probing.reconstruction.k_loops import KLoop, descriptor_of, k_loops_of, matrix_unit_loops
from bitwise_core.probing.reconstruction.partial_sums import Axis

DRAWS_PER_KIND = 10
"""The number of random inputs of each kind on which a candidate must return the callable's bytes."""

COMPARED_ELEMENTS = 64
"""The number of output elements for which candidates are evaluated, in evenly spaced rows and columns."""

SPREAD_BINADES = {"fp64": 12, "fp32": 12, "bf16": 12, "fp16": 5, "e4m3": 3, "e5m2": 5}
"""The largest exponent of the powers of two in wide draws, by the operands' type."""

UNDERFLOW_EXPONENTS = {"fp16": (-26,), "bf16": (-135, -152), "fp32": (-152,)}
"""Exponents of sums that underflow in a type or in fp32: the sign of the resulting zero shows where it was rounded."""


@dataclass(frozen=True)
class Reconstruction:
    """The result of a reconstruction.

    `survivors` are the descriptors of the revealed order that return the callable's bytes on every draw, one for each
    computation.  `desc` is the survivor if there is exactly one, else None, and `unresolved` holds sentences on what
    could not be determined.  `rejected` are the other descriptors, each with the kind and the number of the first draw
    on which its bytes differ.  `equivalent_instructions` are the names of matrix units that return the same bits as the
    descriptor's.
    """

    revealed: RevealedOrder
    desc: Record | None
    survivors: tuple[Record, ...] = ()
    unresolved: tuple[str, ...] = ()
    rejected: tuple[tuple[Record, str, int], ...] = ()
    equivalent_instructions: tuple[str, ...] = ()


def reconstruct_product(
    function: Callable[[Any, Any], Any], m: int, n: int, k: int, dtype: str = "float16", *, dtype_b: str | None = None,
    units: Units, arrays: OperandArrays = NUMPY, transpose_b: bool = False,
    architecture: str | None = None, seed: int = 0, draws: int = DRAWS_PER_KIND,
) -> Reconstruction:  # fmt: skip
    """Reconstruct the GEMMDesc of `c = function(a, b)`; the first arguments are those of `product_instrument`.

    Candidate matrix instructions are those of `units`, of one `architecture` if it is given.  Raises ProbeError.
    """
    b_type = dtype_b or dtype
    subject = product_instrument(function, m, n, k, dtype, dtype_b=dtype_b, arrays=arrays, transpose_b=transpose_b)
    revealed = reveal(subject, seed)
    if revealed.tree is None:
        return Reconstruction(revealed, None, unresolved=revealed.unresolved)
    dropped = set(range(k)) - set(revealed.tree.leaves.tolist())
    if dropped and min(dropped) != k - len(dropped):
        return Reconstruction(
            revealed, None, unresolved=(f"{len(dropped)} positions reach no output and are not the last ones of k",)
        )
    output = TYPES.get(arrays.output_type(function, (m, k), (k, n), dtype, b_type, transpose_b))
    if output is None:
        raise ProbeError("descriptors do not support the output's type")
    kinds = TYPES[dtype], TYPES[b_type]

    def call(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> Bits:
        left = arrays.of_doubles(a, dtype)
        right = arrays.of_doubles(np.ascontiguousarray(b.T), b_type).T
        return arrays.to_patterns(function(left, right if transpose_b else arrays.dense(right)))

    result = Reconstruction(
        revealed, None, unresolved=("no descriptor has this order: it is not a nest of cuts of the k axis",)
    )
    tried = 0
    for untyped in untyped_nests(revealed, k, kinds, units, architecture):
        candidates = list(typed_descriptors(untyped, k, len(dropped), kinds, output, units))
        tried += len(candidates)
        found = eliminate_descriptors(revealed, candidates, call, (m, n), (dtype, b_type), units, seed, draws)
        result = replace(found, rejected=(*result.rejected, *found.rejected))
        if result.survivors:
            return result
    if not tried:
        return result
    return replace(result, unresolved=(f"none of the {tried} descriptors of this order returns its bytes",))


def untyped_nests(
    revealed: RevealedOrder, k: int, kinds: tuple[str, str], units: Units, architecture: str | None
) -> Iterator[list[CutNest[KLoop]]]:
    """Yield lists of the nests of cuts that have the revealed tree, without types, those with the fewest cuts first."""
    assert revealed.tree is not None
    observed = ObservedTree.of(Axis.of(k), revealed.tree)
    rows = matrix_unit_loops(units, *kinds, architecture)

    def k_loops(parts: Sequence[npt.NDArray[np.int64]]) -> list[KLoop]:
        return k_loops_of(observed, rows, parts, *kinds)

    yield from nests(observed, revealed.tree.leaves, k_loops)


def typed_descriptors(
    untyped: Sequence[CutNest[KLoop]], k: int, dropped: int, kinds: tuple[str, str], output: str, units: Units
) -> Iterator[tuple[GEMMDesc, KLoop]]:
    """Yield one descriptor for each distinct computation with one of these nests, the more likely ones first."""
    table, known = ValueTable(), set()
    for nest in sorted(untyped, key=lambda nest: nest.k_loop.k_loop_step is not None):
        base = descriptor_of(nest.k_loop, k, *kinds, output)
        for path in ("fma", "mul_add") if nest.k_loop.unit is None else ("matrix",):
            for cuts in _typed_cuts(nest.cuts, base.accumulator_dtype, output):
                fields = {name: getattr(base, name) for name in type(base).model_fields}
                try:
                    desc = GEMMDesc(**{**fields, "path": path, "k_cuts": cuts, "k_dropped": dropped})
                except DescriptorError:
                    continue
                number = structure(desc, table, unit_of(desc, units))
                if number not in known:
                    known.add(number)
                    yield desc, nest.k_loop


def _typed_cuts(cuts: tuple[Cut, ...], wide_type: str, output: str) -> Iterator[tuple[Cut, ...]]:
    """Yield the cuts with types: all in the accumulator's, then one with partial sums or merges in the output's.

    A running sum may start from +0.  The last candidate adds the whole sum to +0.
    """

    def with_types(cut: Cut, partial: str, merge: str, start: str = "first") -> Cut:
        return cut.model_copy(update={"partial_dtype": partial, "merge_dtype": merge, "start": start})

    plain = tuple(with_types(cut, wide_type, wide_type) for cut in cuts)
    yield plain
    for place, cut in enumerate(plain):
        narrower = [] if FLOAT_FORMATS[output].holds(FLOAT_FORMATS[wide_type]) else [output]
        for partial, merge in pairs_of([*narrower, wide_type], repeat=2):
            for start in ("first", "zero") if cut.running_sum else ("first",):
                # Trees and groups have one type for partial sums and merges.
                if (cut.running_sum or partial == merge) and (partial, merge, start) != (wide_type, wide_type, "first"):
                    yield (*plain[:place], with_types(cut, partial, merge, start), *plain[place + 1 :])
    yield Cut(count=1, start="zero"), *plain


def eliminate_descriptors(
    revealed: RevealedOrder, candidates: Sequence[tuple[GEMMDesc, KLoop]], call: Callable[..., Bits],
    shape: tuple[int, int], dtypes: tuple[str, str], units: Units, seed: int, draws: int,
) -> Reconstruction:  # fmt: skip
    """Compare the candidates with the callable on random inputs; reject one at the first byte that differs."""
    (m, n), hardware = shape, Hardware(units)
    width = min(n, max(8, COMPARED_ELEMENTS // m))
    rows, columns = _spread_indices(m, COMPARED_ELEMENTS // width), _spread_indices(n, width)
    remaining = list(range(len(candidates)))
    rejected: list[tuple[Record, str, int]] = []
    for kind, number, a, b in draw_operands(shape, candidates[0][0].k, candidates[0][0].k_dropped, dtypes, seed, draws):
        expected = call(a, b)[np.ix_(rows, columns)].tobytes()
        operands = patterns_of(a[rows], dtypes[0]), patterns_of(np.ascontiguousarray(b[:, columns]), dtypes[1])
        for index in list(remaining):
            if evaluate_gemm(candidates[index][0], *operands, hardware=hardware).tobytes() != expected:
                remaining.remove(index)
                rejected.append((candidates[index][0], kind, number))
    survivors = tuple(candidates[index][0] for index in remaining)
    if len(remaining) == 1:
        return Reconstruction(
            revealed, survivors[0], survivors, (), tuple(rejected), candidates[remaining[0]][1].equivalent_instructions
        )
    sentence = f"{len(remaining)} descriptors of this order return its bytes on every draw"
    return Reconstruction(revealed, None, survivors, (sentence,), tuple(rejected))


def _spread_indices(size: int, count: int) -> npt.NDArray[np.int64]:
    """Return at most `count` evenly spaced indices below `size`."""
    return np.unique(np.linspace(0, size - 1, min(size, max(1, count))).astype(np.int64))


def _cancelling_operands(
    random: np.random.Generator, m: int, n: int, k: int, dropped: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return operands of large products whose exact sums are zero, so that the results are rounding errors only."""
    a, b = normal_draw(random, (m, k)) * 8, normal_draw(random, (k, n)) * 8
    order = random.permutation(k - dropped)
    half = len(order) // 2
    first, second = order[:half], order[half : 2 * half]
    a[:, second], b[second] = -a[:, first], b[first]
    a[:, order[2 * half :]] = 0
    return a, b


def _subnormal_operands(
    random: np.random.Generator, m: int, n: int, k: int, dropped: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return operands whose products are fp32's smallest subnormal number and halves of it.

    A fused addition rounds the halves together with the sum; a separate multiplication rounds them to zero.  Two more
    products bring the sums close to where bf16 rounds up to its smallest subnormal number.  Rows of the longer axis
    differ.
    """
    rows = max(m, n)
    values: npt.NDArray[np.float64] = random.integers(1, 3, (rows, k)).astype(np.float64) * 2.0**-75
    row_indices = np.arange(rows)
    places = np.array([random.permutation(k - dropped)[:2] for _ in row_indices])
    # Fused additions return sums that are larger by about k / 8 units; the offset is rounded to 8 bits to be exact.
    offset = random.integers(k // 4, 3 * k // 4 + 1, rows)
    granularity = 1 << max(0, int(offset.max()).bit_length() - 8)
    values[row_indices, places[:, 0]] = 2.0**-59
    values[row_indices, places[:, 1]] = -(offset // granularity * granularity) * 2.0**-74
    if m >= n:
        return values, np.full((k, n), 2.0**-75)
    return np.full((m, k), 2.0**-75), values.T.copy()


def draw_operands(
    shape: tuple[int, int], k: int, dropped: int, dtypes: tuple[str, str], seed: int, draws: int
) -> Iterator[tuple[str, int, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Yield operands (m, k) and (k, n), each with its kind and number.

    The kinds are `flat` (normal numbers), `wide` (magnitudes far apart), `cancelling` (exact sums of zero), `vanishing`
    (sums that underflow) and `halves` (products at fp32's smallest subnormal number).
    """
    random = np.random.default_rng((seed, 1))
    (m, n), kinds = shape, [TYPES[each] for each in dtypes]
    for number in range(draws):
        yield "flat", number, normal_draw(random, (m, k)), normal_draw(random, (k, n))
        spread = min(SPREAD_BINADES[each] for each in kinds)
        yield "wide", number, wide_draw(random, (m, k), spread), wide_draw(random, (k, n), spread)
        yield "cancelling", number, *_cancelling_operands(random, m, n, k, dropped)
    for power in UNDERFLOW_EXPONENTS.get(kinds[0], ()) if kinds[0] == kinds[1] else ():
        scale = 2.0 ** ((power - k.bit_length() - 2) // 2)
        for number in range(2):
            yield (
                "vanishing",
                number,
                abs(normal_draw(random, (m, k))) * scale,
                -abs(normal_draw(random, (k, n))) * scale,
            )
    for number in range(2 if kinds == ["bf16", "bf16"] and k - dropped > 3 else 0):
        yield "halves", number, *_subnormal_operands(random, m, n, k, dropped)
