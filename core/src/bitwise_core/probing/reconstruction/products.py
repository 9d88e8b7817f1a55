"""The descriptor of a product from its outputs alone: its order by experiments, its types by fresh draws."""

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
from bitwise_core.probing import ProbeError, Revealed, product_instrument, reveal
from bitwise_core.probing.elimination import normal_draw, wide_draw
from bitwise_core.probing.operand_arrays import NUMPY, TYPES, OperandArrays, patterns_of
from bitwise_core.probing.reconstruction.cuts import Nest, Observed, nests
from bitwise_core.probing.reconstruction.equivalence import Table, structure
from bitwise_core.probing.reconstruction.k_loops import Walk, described, rows_of, walks_of
from bitwise_core.probing.reconstruction.partial_sums import Axis

DRAWS = 10
"""Draws of each kind that a candidate must return the bytes of."""

COMPARED = 64
"""Elements of the output that candidates are evaluated for, in rows and columns spread over all of it."""

SPREAD = {"fp64": 12, "fp32": 12, "bf16": 12, "fp16": 5, "e4m3": 3, "e5m2": 5}
"""How many binades wide draws spread to either side, by the operands' type."""

VANISHING = {"fp16": (-26,), "bf16": (-135, -152), "fp32": (-152,)}
"""Powers of two below every number of a type, or of fp32: there the sign of a zero shows who rounded a sum."""


@dataclass(frozen=True)
class Reconstruction:
    """What a callable's outputs say of it.

    `desc` is the one descriptor, of all that have the order which the experiments revealed, whose bytes came back on
    every draw; None where none or several did, and `open` then holds sentences on what is not settled.  `survivors`
    are all that did, one of each computation.  `parted` tells, for the others, the kind of draw and its number.
    `alike` names the instructions that return the same bits as the descriptor's.
    """

    revealed: Revealed
    desc: Record | None
    survivors: tuple[Record, ...] = ()
    open: tuple[str, ...] = ()
    parted: tuple[tuple[Record, str, int], ...] = ()
    alike: tuple[str, ...] = ()


def reconstruct_product(
    function: Callable[[Any, Any], Any], m: int, n: int, k: int, dtype: str = "float16", *, dtype_b: str | None = None,
    units: Units, arrays: OperandArrays = NUMPY, transpose_b: bool = False,
    architecture: str | None = None, seed: int = 0, draws: int = DRAWS,
) -> Reconstruction:  # fmt: skip
    """The GEMMDesc of `c = function(a, b)`; the first arguments are those of `probe.product_subject`.

    Matrix instructions are those of `units`, or of one `architecture` among them.
    Raises ProbeError.
    """
    b_type = dtype_b or dtype
    subject = product_instrument(function, m, n, k, dtype, dtype_b=dtype_b, arrays=arrays, transpose_b=transpose_b)
    revealed = reveal(subject, seed)
    if revealed.tree is None:
        return Reconstruction(revealed, None, open=revealed.open)
    dropped = set(range(k)) - set(revealed.tree.leaves.tolist())
    if dropped and min(dropped) != k - len(dropped):
        return Reconstruction(
            revealed, None, open=(f"{len(dropped)} positions reach no output and are not the last ones of k",)
        )
    output = TYPES.get(arrays.output_type(function, (m, k), (k, n), dtype, b_type, transpose_b))
    if output is None:
        raise ProbeError("the output's type has no descriptor")
    kinds = TYPES[dtype], TYPES[b_type]

    def called(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> Bits:
        left = arrays.of_doubles(a, dtype)
        right = arrays.of_doubles(np.ascontiguousarray(b.T), b_type).T
        return arrays.to_patterns(function(left, right if transpose_b else arrays.dense(right)))

    made = Reconstruction(revealed, None, open=("no descriptor has this order: its form is no nest of cuts",))
    tried = 0
    for skeletons in skeletons_of(revealed, k, kinds, units, architecture):
        listed = list(typed(skeletons, k, len(dropped), kinds, output, units))
        tried += len(listed)
        found = separated(revealed, listed, called, (m, n), (dtype, b_type), units, seed, draws)
        made = replace(found, parted=(*made.parted, *found.parted))
        if made.survivors:
            return made
    return (
        replace(made, open=(f"no descriptor of this order returns its bytes: {tried} were tried",)) if tried else made
    )


def skeletons_of(
    revealed: Revealed, k: int, kinds: tuple[str, str], units: Units, architecture: str | None
) -> Iterator[list[Nest[Walk]]]:
    """The nests of cuts that have a tree, without types; those of fewest cuts first."""
    assert revealed.tree is not None
    seen = Observed.of(Axis.of(k), revealed.tree)
    rows = rows_of(units, *kinds, architecture)

    def walks(parts: Sequence[npt.NDArray[np.int64]]) -> list[Walk]:
        return walks_of(seen, rows, parts, *kinds)

    yield from nests(seen, revealed.tree.leaves, walks)


def typed(
    skeletons: Sequence[Nest[Walk]], k: int, dropped: int, kinds: tuple[str, str], output: str, units: Units
) -> Iterator[tuple[GEMMDesc, Walk]]:
    """Every computation that has one of these orders, once each, the likelier ones first."""
    table, known = Table(), set()
    for nest in sorted(skeletons, key=lambda nest: nest.walk.k_loop_step is not None):
        base = described(nest.walk, k, *kinds, output)
        for path in ("fma", "mul_add") if nest.walk.unit is None else ("matrix",):
            for cuts in _typed_cuts(nest.cuts, base.accumulator_dtype, output):
                fields = {name: getattr(base, name) for name in type(base).model_fields}
                try:
                    desc = GEMMDesc(**{**fields, "path": path, "k_cuts": cuts, "k_dropped": dropped})
                except DescriptorError:
                    continue
                number = structure(desc, table, unit_of(desc, units))
                if number not in known:
                    known.add(number)
                    yield desc, nest.walk


def _typed_cuts(cuts: tuple[Cut, ...], wide_type: str, output: str) -> Iterator[tuple[Cut, ...]]:
    """All in the accumulator's type; then one cut whose parts, or whose sums, or both are of the output's type.

    Each may start from +0, and the whole sum.
    """

    def kept(cut: Cut, partial: str, merge: str, start: str = "first") -> Cut:
        return cut.model_copy(update={"partial_dtype": partial, "merge_dtype": merge, "start": start})

    plain = tuple(kept(cut, wide_type, wide_type) for cut in cuts)
    yield plain
    for place, cut in enumerate(plain):
        narrower = [] if FLOAT_FORMATS[output].holds(FLOAT_FORMATS[wide_type]) else [output]
        for partial, merge in pairs_of([*narrower, wide_type], repeat=2):
            for start in ("first", "zero") if cut.running_sum else ("first",):
                # One type for both is what trees and groups have.
                if (cut.running_sum or partial == merge) and (partial, merge, start) != (wide_type, wide_type, "first"):
                    yield (*plain[:place], kept(cut, partial, merge, start), *plain[place + 1 :])
    yield Cut(count=1, start="zero"), *plain


def separated(
    revealed: Revealed, listed: Sequence[tuple[GEMMDesc, Walk]], called: Callable[..., Bits], shape: tuple[int, int],
    dtypes: tuple[str, str], units: Units, seed: int, draws: int,
) -> Reconstruction:  # fmt: skip
    """Every candidate held against the callable on fresh draws; it goes at the first byte that differs."""
    (m, n), hardware = shape, Hardware(units)
    across = min(n, max(8, COMPARED // m))
    rows, columns = _spread(m, COMPARED // across), _spread(n, across)
    left = list(range(len(listed)))
    parted: list[tuple[Record, str, int]] = []
    for kind, number, a, b in drawn(shape, listed[0][0].k, listed[0][0].k_dropped, dtypes, seed, draws):
        expected = called(a, b)[np.ix_(rows, columns)].tobytes()
        operands = patterns_of(a[rows], dtypes[0]), patterns_of(np.ascontiguousarray(b[:, columns]), dtypes[1])
        for each in list(left):
            if evaluate_gemm(listed[each][0], *operands, hardware=hardware).tobytes() != expected:
                left.remove(each)
                parted.append((listed[each][0], kind, number))
    survivors = tuple(listed[each][0] for each in left)
    if len(left) == 1:
        return Reconstruction(revealed, survivors[0], survivors, (), tuple(parted), listed[left[0]][1].alike)
    sentence = f"{len(left)} descriptors of this order return its bytes on every draw"
    return Reconstruction(revealed, None, survivors, (sentence,), tuple(parted))


def _spread(size: int, count: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, size - 1, min(size, max(1, count))).astype(np.int64))


def _cancelling(
    random: np.random.Generator, m: int, n: int, k: int, dropped: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Operands whose sums are exactly zero, with large products: all that is left of them is what was rounded."""
    a, b = normal_draw(random, (m, k)) * 8, normal_draw(random, (k, n)) * 8
    order = random.permutation(k - dropped)
    half = len(order) // 2
    one, other = order[:half], order[half : 2 * half]
    a[:, other], b[other] = -a[:, one], b[one]
    a[:, order[2 * half :]] = 0
    return a, b


def _halves(
    random: np.random.Generator, m: int, n: int, k: int, dropped: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Products of fp32's least number and of halves of it, which are rounded with a sum, or by themselves to zero.

    Two more bring the sums to about where bf16 rounds up to its least number.  Lines of the longer axis differ.
    """
    lines = max(m, n)
    drawn: npt.NDArray[np.float64] = random.integers(1, 3, (lines, k)).astype(np.float64) * 2.0**-75
    here = np.arange(lines)
    places = np.array([random.permutation(k - dropped)[:2] for _ in here])
    # What fused additions find more is about an eighth of k; of what is taken off only so many digits are kept.
    off = random.integers(k // 4, 3 * k // 4 + 1, lines)
    kept = 1 << max(0, int(off.max()).bit_length() - 8)
    drawn[here, places[:, 0]] = 2.0**-59
    drawn[here, places[:, 1]] = -(off // kept * kept) * 2.0**-74
    if m >= n:
        return drawn, np.full((k, n), 2.0**-75)
    return np.full((m, k), 2.0**-75), drawn.T.copy()


def drawn(
    shape: tuple[int, int], k: int, dropped: int, dtypes: tuple[str, str], seed: int, draws: int
) -> Iterator[tuple[str, int, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Operands (m, k) and (k, n): flat ones, wide ones, some whose sums are zero, some of tiny products."""
    random = np.random.default_rng((seed, 1))
    (m, n), kinds = shape, [TYPES[each] for each in dtypes]
    for number in range(draws):
        yield "flat", number, normal_draw(random, (m, k)), normal_draw(random, (k, n))
        spread = min(SPREAD[each] for each in kinds)
        yield "wide", number, wide_draw(random, (m, k), spread), wide_draw(random, (k, n), spread)
        yield "cancelling", number, *_cancelling(random, m, n, k, dropped)
    for power in VANISHING.get(kinds[0], ()) if kinds[0] == kinds[1] else ():
        scale = 2.0 ** ((power - k.bit_length() - 2) // 2)
        for number in range(2):
            yield (
                "vanishing",
                number,
                abs(normal_draw(random, (m, k))) * scale,
                -abs(normal_draw(random, (k, n))) * scale,
            )
    for number in range(2 if kinds == ["bf16", "bf16"] and k - dropped > 3 else 0):
        yield "halves", number, *_halves(random, m, n, k, dropped)
