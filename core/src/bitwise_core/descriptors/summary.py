"""A summary of a GEMMDesc in sentences."""

from __future__ import annotations

from bitwise_core.descriptors.cuts import Cut
from bitwise_core.descriptors.gemm import ROUNDED_OPERANDS, GEMMDesc
from bitwise_core.descriptors.k_axis import Part, innermost_parts, instructions, parts_of
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS
from bitwise_core.numerics.mma import FusedSum, MmaSpec

_SHORT = {
    "short-last": "the last one short",
    "short-first": "the first one short",
    "long-last": "the last one longer",
    "long-first": "the first one longer",
    "spread": "the first ones a tile longer",
    "spread-last": "the last ones a tile longer",
}


def words(desc: GEMMDesc, unit: MmaSpec | None = None) -> list[str]:
    """Return the summary, one sentence a line; with the row of its unit, also what one instruction computes."""
    lines = [
        f"C = A B over k = {desc.k}: {desc.left_dtype} times {desc.right_dtype}, accumulated in "
        f"{desc.accumulator_dtype}, stored as {desc.output_dtype}"
        + _converted(desc)
        + (", an overflow as the largest finite number" if desc.output_satfinite else "")
        + (", an infinity as NaN." if desc.output_nan_for_infinity else ".")
    ]
    if desc.k_dropped:
        lines.append(f"The last {desc.k_dropped} of k are dropped: the sum is over {desc.k - desc.k_dropped} products.")
    lines += _path(desc, unit)
    axis, level = parts_of(desc), [parts_of(desc)]
    cuts = desc.k_cuts
    if cuts and cuts[0] == Cut(count=1, start="zero"):
        lines.append("The whole sum is added to +0 at the end: it is never -0.")
        cuts, level = cuts[1:], list(axis.parts)
    for number, cut in enumerate(cuts):
        lines += _cut(cut, level, "The k axis is" if number == 0 else "Each part is")
        level = [each for part in level for each in part.parts if not each.empty]
    lines += _k_loop(desc, axis)
    lines += _tail(desc)
    if desc.operand_scales:
        lines.append("At the end the value is multiplied in fp32 by the fp32 product of both operands' scales.")
    elif desc.scaled:
        lines.append(f"At the end the value is multiplied in fp32 by {desc.alpha!r}.")
    return lines


def _converted(desc: GEMMDesc) -> str:
    """Return the words for the type in which both operands are multiplied, if it is not theirs."""
    if desc.multiplied_as is None:
        return ""
    rounded = any((name, desc.multiplied_as) in ROUNDED_OPERANDS for name in (desc.left_dtype, desc.right_dtype))
    if rounded:
        return f", both rounded to {desc.multiplied_as} first, to nearest even"
    return f", both widened to {desc.multiplied_as} first"


def _path(desc: GEMMDesc, unit: MmaSpec | None) -> list[str]:
    if desc.instruction is None:
        verb = "one fused multiply-add" if desc.path == "fma" else "a product and a sum, each rounded,"
        start = ", from -0" if desc.accumulator_start == "negative-zero" else ""
        return [f"Scalar arithmetic: {verb} for each k in {desc.accumulator_dtype}, to nearest even{start}."]
    called = desc.instruction
    filled = "" if desc.instruction_k == called.k else f", of which {desc.instruction_k} are filled and the rest zeros"
    lines = [f"Matrix instruction {called.family} of {called.architecture}, k {called.k}{filled}."]
    if unit is not None and isinstance(unit.arithmetic, FusedSum):
        rule = unit.arithmetic
        rounding = "to nearest even" if rule.rounding == "rn" else "toward zero"
        start = "the products alone" if rule.accumulator_last else "the products and the accumulator"
        lines.append(
            f"It sums {rule.products} products at a time, {start}: every term is cut {rule.fraction_bits} bits below "
            f"the largest exponent, the sum rounded {rounding} to {rule.mantissa_bits} bits ({unit.status})."
        )
    if not desc.use_fast_accum:
        lines.append("Each instruction starts from +0, and one more addition takes its result into the accumulator.")
    return lines


def _lengths(parts: list[Part]) -> str:
    found = sorted({len(part.positions) for part in parts}, reverse=True)
    return f"{found[0]} k" if len(found) == 1 else f"{found[0]} to {found[-1]} k"


def _cut(cut: Cut, level: list[Part], subject: str) -> list[str]:
    most = max(level, key=lambda part: len(part.parts))
    parts = [each for part in level for each in part.parts]
    if cut.layout == "strided":
        how = f"distributed round-robin in tiles of {cut.tile} k over {cut.count} parts, {_lengths(parts)} each"
    else:
        uneven = len({len(part.positions) for part in parts}) > 1
        short = f", {_SHORT[cut.remainder]}" if uneven else ""
        how = f"cut into {len(most.parts)} contiguous parts of {_lengths(parts)}{short}"
    start = ", from +0" if cut.start == "zero" else ""
    kept = f"as {cut.partial_dtype}, " if cut.partial_dtype != cut.merge_dtype else ""
    if cut.groups:
        each = (
            f"over {group.count} groups, whose sums are added {MERGE_ORDERS[group.merge].words}" for group in cut.groups
        )
        return [
            f"{subject} {how}.",
            f"The parts are distributed round-robin {'; the parts of a group '.join(each)}; the parts of an innermost "
            f"group are added {cut.order.words}; all in {cut.merge_dtype}.",
        ]
    return [
        f"{subject} {how}.",
        f"The parts are added {cut.order.words}{start}, {kept}in {cut.merge_dtype}.",
    ]


def _k_loop(desc: GEMMDesc, axis: Part) -> list[str]:
    parts = list(innermost_parts(axis))
    longest = max(parts, key=lambda part: len(part.positions))
    count = len(instructions(desc, longest))
    unit = "instructions" if desc.instruction is not None else "steps"
    subject = "A part" if len(parts) > 1 else "The axis"
    lines = [f"{subject} is accumulated in ascending k from +0, by {count} {unit} in sequence."]
    step = desc.k_loop_step
    if step is None:
        return lines
    short = len(longest.positions) % step
    lines = [f"{subject} is accumulated from +0 in iterations of {step} k, by {count} {unit} in sequence."]
    if short:
        filled = ", filled with zeros" if desc.iteration_permutation else ""
        lines.append(f"The short iteration, of {short} k{filled}, runs {desc.short_iteration}.")
    if desc.iteration_permutation and list(desc.iteration_permutation) != list(range(step)):
        lines.append(f"Inside an iteration k is taken in the order {_listed(desc.iteration_permutation)}.")
    rotation = desc.iteration_rotation
    if rotation is not None:
        lines.append(
            f"Tiles of {rotation.tile} {rotation.axis} start at different iterations: tile t at iteration "
            f"(t mod {rotation.period}) * {rotation.step}."
        )
        if rotation.halved:
            lines.append(
                f"A part of fewer than {rotation.period * rotation.step} iterations halves that period to fit."
            )
    return lines


def _tail(desc: GEMMDesc) -> list[str]:
    if desc.tail is None:
        return []
    owners = [
        f"part {share.part} of cut {level}"
        if share.tile is None
        else f"all parts of cut {level} round-robin in tiles of {share.tile}, filled with zeros"
        for level, share in enumerate(desc.tail.shares)
    ]
    where = f" to {', '.join(owners)}" if owners else ""
    return [f"The last {desc.tail.length} k are in no iteration: they are added after all of them{where}, ascending."]


def _listed(order: tuple[int, ...]) -> str:
    shown = " ".join(map(str, order[:16]))
    return shown if len(order) <= 16 else f"{shown} ..."
