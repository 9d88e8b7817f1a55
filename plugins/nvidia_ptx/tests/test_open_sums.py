"""Kernels of which no assembly shows which products ptxas fuses: determined, and equal to no other text."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.determinism import Determinism, determinism
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.assumptions import ANY_LANE
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from ptx_programs import ARCH

HEAD = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr .global .align 16 b, .param .f32 s)
.reqntid 32
{
.reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<3>;
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %d1, %d3;
add.s64 %d5, %d2, %d3; ld.global.f32 %f1, [%d4]; ld.global.f32 %f2, [%d4+128]; ld.param.f32 %f3, [s];
"""
SCALED = "mul.f32 %f4, %f1, %f2; mul.f32 %f5, %f4, 0f3F000000;"
"""ptxas computes it with one rounding, for which PTX has no instruction."""
STORE = "st.global.f32 [%d5], %f5;"
OPTIONS = Options()


def source(body: str, name: str = "k", number: float = 2.0, head: str = HEAD) -> Source:
    arguments = (
        *(Argument(kind="buffer", buffer=each, dtype="fp32") for each in "ab"),
        Argument(kind="fp32", value=number),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
    return Source(name, head + body + "\nret;\n}\n", launch)


def outcome(left: Source, right: Source, options: Options = OPTIONS) -> Outcome:
    return compare(left, right, ARCH, options).verdict.outcome


def test_it_is_determined_and_equal_to_its_own_text_only() -> None:
    kernel = source(SCALED + STORE)
    (found,) = determinism([kernel], ARCH.name, OPTIONS, workers=1).kernels
    assert found.outcome is Determinism.DETERMINISTIC
    verdict = compare(kernel, source(SCALED + "\n\n// a comment\n" + STORE, "other"), ARCH, OPTIONS).verdict
    assert verdict.outcome is Outcome.EQUAL
    (note,) = [each for each in verdict.notes if "equal only to those of this text" in each]
    assert "ptxas may fuse the product of line" in note
    swapped = SCALED.replace("%f1, %f2", "%f2, %f1")
    for other in (swapped, SCALED.replace("%f5", "%f6") + "mov.f32 %f5, %f6;", SCALED.replace("mul.f32", "mul.rn.f32")):
        assert outcome(kernel, source(other + STORE, "other")) is Outcome.UNPROVED
    assert outcome(kernel, source(SCALED + "ld.global.f32 %f7, [%d4+256];" + STORE, "other")) is Outcome.UNPROVED


def test_two_executions_of_one_instruction_are_two_numbers() -> None:
    """What is the same operation on the same numbers in two threads or rounds may be fused in one of them."""
    same = "ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4];" + SCALED
    any_lane = Options(assume=frozenset({ANY_LANE}))
    (found,) = determinism([source(same + "st.global.f32 [%d2], %f5;")], ARCH.name, any_lane, workers=1).kernels
    assert found.outcome is Determinism.UNKNOWN
    first = "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.f32 [%d2], %f5;"
    head = HEAD.replace(".reg .b16", ".reg .pred %p<3>; .reg .b16")
    (found,) = determinism([source(same + first, head=head)], ARCH.name, OPTIONS, workers=1).kernels
    assert found.outcome is not Determinism.NONDETERMINISTIC
    twice = same + "mov.f32 %f6, %f5;" + SCALED + "sub.rn.f32 %f5, %f5, %f6;" + STORE
    assert outcome(source(twice), source("mov.f32 %f5, 0f00000000;" + STORE, "zero")) is Outcome.UNPROVED


def test_numbers_of_the_launch_count() -> None:
    body = "mul.f32 %f4, %f1, %f3; mul.f32 %f5, %f4, 0f3F000000;" + STORE
    assert outcome(source(body), source(body, "same")) is Outcome.EQUAL
    assert outcome(source(body), source(body, "other", 3.0)) is Outcome.UNPROVED


def test_it_has_no_meaning_elsewhere() -> None:
    """Bit patterns, every launch, and a text that does not assemble."""
    kernel = source(SCALED + STORE)
    contents = {"a": np.zeros(384, np.uint8), "b": np.zeros(256, np.uint8)}
    with pytest.raises(Unsupported, match="no assembly shows whether it does"):
        simulate(prepare(kernel, ARCH, OPTIONS), contents)
    found = compare(kernel, kernel, ARCH, Options(every_launch=True)).verdict
    assert found.outcome is Outcome.UNKNOWN
    assert "no assembly shows whether it does" in found.reason
    rejected = source(SCALED + STORE, head=HEAD.replace(".version 8.4", ".version 99.9"))
    found = compare(rejected, rejected, ARCH, OPTIONS).verdict
    assert found.outcome is Outcome.UNKNOWN
