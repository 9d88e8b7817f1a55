"""The assumptions that a proof may make: the one definition of each, and what it requires of bit patterns.

`FINITE`: no input and no intermediate value is infinite or NaN, except for numbers that are constant whatever memory
holds.

- An input is an element of a buffer of a floating-point type before the launch.
- An intermediate value is the result of a floating-point operation, of a conversion to a floating-point format, or of a
  step of a matrix unit.
- A constant number is a literal of the text, or a value that follows from literals and finite numbers alone: the -inf
  of a mask, the -inf that results from adding it to a number, the +0 that is its power of two.
- Integers, predicates, and operations that only move or select bits are not constrained.

In the domain of terms, rules may then treat inputs and intermediate values as finite numbers of their own format
(`values.floats.assumed_finite`), and guarded values (`values.floats.nan_guards`) are not needed.

`MATRIX_ARITHMETIC`: each matrix unit computes exactly what its row states, also where the row is published and was not
measured.  Steps of units whose rows state one arithmetic are then one operation.

`UNITS_APART`: nothing follows from a published comparison of matrix units that was not measured.  Steps of two units
are one operation only where both were measured.  It takes a default away, and is no condition of a verdict.

`WORK_STEALING`: where blocks take over tiles of others, which blocks do so is a choice of the hardware, and no result
depends on it.  One distribution of the tiles is then executed for all.

`PIPELINE_IN_ORDER`: the work that one thread gives a matrix pipeline takes effect in the order of the instructions:
multiplications read and write their memory so, also with different accumulators or shapes, and the arrivals at memory
barriers on their completion come so.  Those of one instruction at several blocks of a cluster come together.  Published
is this of multiplications with one accumulator and one shape.

`LOWEST_LANE`: of the values that one store instruction, executed by lanes of one warp together, sends to one address,
that of the lowest active lane of its last group of lanes remains (`races.colliding_lanes`).  Nothing is assumed of
stores of more than 128 bits in a lane, of atomic operations, of different instructions, of different warps, nor of
lanes that a branch may have parted.  On an architecture where this was measured (`Arch.lowest_lane`) it holds without
being requested, and a verdict that uses it has a note.

`WARP_ORDER`: the accesses of one warp to global memory take effect in the order of its machine instructions
(`warp_order`).  On an architecture where this was measured (`Arch.warp_order`) it holds without being requested.

`PROXIES_TOGETHER`: asynchronous reads of shared memory, such as those of matrix units, see what threads have copied to
it (`cp.async`), once these have waited for it and a barrier follows, also without a proxy fence between.  The PTX ISA
asks for the fence.  On an architecture where this was measured (`Arch.copies_visible`) it holds without being
requested, and a verdict that uses it has a note.

`PROXIES_APART`: asynchronous reads see what threads have copied only after a proxy fence, as they see what threads have
stored, also where `PROXIES_TOGETHER` was measured.  It takes a default away, and is no condition of a verdict.

`ANY_LANE`: what documents promise of the lanes of a warp, and no more.  Any lane's value may remain, also where
`LOWEST_LANE` was measured, and only barriers order lanes, also where `WARP_ORDER` was measured.

An execution on bit patterns cannot distinguish constant numbers from others.  Its inputs pass through
`replace_non_finite`, and it is rejected if an operation makes an infinity from finite operands, or a NaN
(`values.floats.finiteness`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

FINITE, MATRIX_ARITHMETIC, WORK_STEALING = "finite", "matrix-arithmetic", "work-stealing"
LOWEST_LANE, WARP_ORDER, ANY_LANE, UNITS_APART = "lowest-lane", "warp-order", "any-lane", "units-apart"
PIPELINE_IN_ORDER, PROXIES_APART, PROXIES_TOGETHER = "pipeline-in-order", "proxies-apart", "proxies-together"

ASSUMPTIONS: Mapping[str, str] = MappingProxyType(
    {
        ANY_LANE: "of a warp's store to one address, any lane's value may remain, also where one was measured",
        FINITE: "no input and no intermediate value is infinite or NaN, except for constants",
        LOWEST_LANE: "of a warp's store to one address, the value of the lowest lane of its last group remains",
        MATRIX_ARITHMETIC: "matrix units compute what is published of them, so that units of one arithmetic are one",
        PIPELINE_IN_ORDER: "what a thread gives a matrix pipeline takes effect in this order, at all blocks at once",
        PROXIES_APART: "asynchronous reads see what threads have copied only after a proxy fence, as what they stored",
        PROXIES_TOGETHER: "asynchronous reads see what threads have copied also without a proxy fence",
        UNITS_APART: "nothing of matrix units that is only published: two of them may differ unless both were measured",
        WARP_ORDER: "accesses of one warp to global memory take effect in the order of its machine instructions",
        WORK_STEALING: "which block computes a tile that it took over from another one changes no result",
    }
)
"""The assumptions that may be requested for a proof, each with its description."""

CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        FINITE: "all values are finite",
        LOWEST_LANE: "of a warp's store to one address its last group's lowest lane's value remains (as on an H200)",
        MATRIX_ARITHMETIC: "matrix units compute what is published of them",
        PIPELINE_IN_ORDER: "what a thread gives a matrix pipeline takes effect in this order, at all blocks at once",
        PROXIES_TOGETHER: "asynchronous reads see what threads have copied also without a proxy fence",
        WARP_ORDER: "a warp's accesses to global memory take effect in the order of its instructions (as on an H200)",
        WORK_STEALING: "which block computes a tile changes no result",
    }
)
"""The assumptions as conditions of a verdict, each as a clause.  `ANY_LANE`, `PROXIES_APART` and `UNITS_APART` take a
default away, and are none."""


def contradiction_in(assume: Collection[str]) -> str | None:
    """Return why assumptions exclude each other, as a sentence without a full stop; None if they do not."""
    if {MATRIX_ARITHMETIC, UNITS_APART} <= set(assume):
        return (
            f"{MATRIX_ARITHMETIC} takes for true what is published of matrix units, and {UNITS_APART} does not; assume "
            "one of them"
        )
    for one, other in ((ANY_LANE, LOWEST_LANE), (ANY_LANE, WARP_ORDER), (PROXIES_APART, PROXIES_TOGETHER)):
        if {one, other} <= set(assume):
            return f"{one} and {other} exclude each other; assume one of them"
    return None


def conditions_of(assume: Collection[str]) -> tuple[str, ...]:
    """Return the assumptions that are conditions of a verdict, in order."""
    return tuple(sorted(set(assume) & CONDITIONS.keys()))
