"""testp against the classes of the PTX ISA, from the fields of a pattern."""

from __future__ import annotations

from random import Random

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import known, run, store, table

FIELDS = {"f32": (8, 23), "f64": (11, 52)}
REGISTERS = {"f32": ("%f1", 32), "f64": ("%d5", 64)}
PROPERTIES = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")


def properties(pattern: int, kind: str) -> set[str]:
    """The properties of a number by its exponent and its mantissa; the ISA counts both zeros as normal."""
    exponent_bits, mantissa_bits = FIELDS[kind]
    mantissa = pattern & ((1 << mantissa_bits) - 1)
    exponent = pattern >> mantissa_bits & ((1 << exponent_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return {"notanumber"} if mantissa else {"infinite", "number"}
    return {"finite", "number", "subnormal" if exponent == 0 and mantissa else "normal"}


def patterns(kind: str) -> list[int]:
    """Every class with both signs: the least, the greatest and random mantissas of the edges of the exponents."""
    exponent_bits, mantissa_bits = FIELDS[kind]
    random, top = Random(kind), (1 << exponent_bits) - 1
    mantissas = (0, 1, (1 << mantissa_bits) - 1, 1 << mantissa_bits - 1, random.getrandbits(mantissa_bits))
    exponents = (0, 1, top // 2, top - 1, top, random.randrange(1, top))
    return [
        sign << exponent_bits + mantissa_bits | exponent << mantissa_bits | mantissa
        for sign in (0, 1)
        for exponent in exponents
        for mantissa in mantissas
    ]


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_is_that_of_the_fields(name: str, kind: str) -> None:
    given, (register, bits) = patterns(kind), REGISTERS[kind]
    body = table(given, bits, register) + f"testp.{name}.{kind} %p1, {register}; selp.u32 %r5, 1, 0, %p1;"
    found = known(run(body + store("%r5", 32), threads=len(given))[0])
    expected = {4 * index: (32, int(name in properties(each, kind))) for index, each in enumerate(given)}
    assert found == expected
    assert {value for _, value in found.values()} == {0, 1}


@pytest.mark.parametrize("opcode", ["testp.normal.f16", "testp.zero.f32", "testp.normal.ftz.f32"])
def test_another_property_or_type_is_unknown(opcode: str) -> None:
    with pytest.raises(Unsupported, match="testp"):
        run(f"{opcode} %p1, %f1; selp.u32 %r5, 1, 0, %p1;" + store("%r5", 32), threads=1)
