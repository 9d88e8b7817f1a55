"""The rows of matrix units that the instructions of descriptors name."""

from __future__ import annotations

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.hardware import Units
from bitwise_core.known_distributions import advice
from bitwise_core.numerics.mma import MmaSpec


def unit_of(desc: GEMMDesc, units: Units) -> MmaSpec | None:
    """Return the row of a descriptor's instruction among `units`; None on a scalar path.

    Raises DescriptorError, which lists the rows that exist, where no row has the descriptor's types.
    """
    called = desc.instruction
    if called is None:
        return None
    if desc.instruction_name in units:
        return units[desc.instruction_name]
    types = f"{' times '.join(desc.factor_dtypes)} accumulated in {desc.accumulator_dtype}"
    architectures = sorted({row.architecture for row in units.values()})
    if called.architecture not in architectures:
        there = f"there are {', '.join(architectures)}" if architectures else "there are none"
        missing = advice("matrix units", called.architecture)
        raise DescriptorError(
            f"no plugin has matrix units of {called.architecture}: {there}{missing and f'; {missing}'}"
        )
    rows = [row for row in units.values() if row.architecture == called.architecture]
    same = sorted({row.k for row in rows if _types(row) == _wanted(desc) and row.family == called.family})
    if same:
        listed = ", ".join(map(str, same))
        raise DescriptorError(
            f"{called.family} of {called.architecture} takes {types} with k = {listed}, not {called.k}"
        )
    families = sorted({row.family for row in rows if _types(row) == _wanted(desc)})
    if families:
        raise DescriptorError(f"{called.architecture} takes {types} by {', '.join(families)}, not by {called.family!r}")
    kinds = sorted({f"{left} times {right} in {result}" for left, right, result in map(_types, rows)})
    raise DescriptorError(f"{called.architecture} has no unit of {types}; it has {', '.join(kinds)}")


def _types(row: MmaSpec) -> tuple[str, str, str]:
    return row.left, row.right, row.result


def _wanted(desc: GEMMDesc) -> tuple[str, str, str]:
    return (*desc.factor_dtypes, desc.accumulator_dtype)
