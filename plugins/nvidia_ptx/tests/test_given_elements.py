"""Elements that a launch leaves with the number it gives for them are as if they were not stored."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import output_signature, outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.tensor_contents import tensor_contents
from ptx_programs import ARCH, text

WORD = "ld.global.b32 %r2, [%d1]; st.global.b32 [%d1+128], %r2;"


def signature(body: str, given: list[int] | None = None, threads: int = 1) -> bytes:
    """Return the signature of what a launch leaves, where out is given."""
    values = tensor_contents([0, 7, 0, 0] if given is None else given, "u32", None) if given != [] else None
    arguments = (
        Argument(kind="buffer", buffer="out", dtype="u32", values=values),
        Argument(kind="buffer", buffer="in", dtype="u32"),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(threads, 1, 1), args=arguments)
    prepared = prepare_launch(ARCH.parse(text(WORD + body, threads=threads), "k.ptx"), ARCH, launch)
    found = outputs_of_all_blocks(prepared, {"out": 1, "in": 2}, Options())
    assert found is not None
    return output_signature(found)


@pytest.mark.parametrize(
    "body",
    [
        "st.global.b32 [%d0], 0;",
        "st.global.b32 [%d0+4], 7; st.global.b16 [%d0+8], 0;",
        "st.global.b32 [%d0], 1; st.global.b32 [%d0], 0;",
        "ld.global.b32 %r3, [%d0+4]; st.global.b32 [%d0+4], %r3;",
        "ld.global.b32 %r3, [%d0+4]; sub.u32 %r3, %r3, 7; st.global.b32 [%d0+8], %r3;",
    ],
)
def test_a_given_number_that_is_stored_again_changes_nothing(body: str) -> None:
    assert signature(body) == signature("")


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("st.global.b32 [%d0], 7;", None),
        ("st.global.b32 [%d0+4], 0;", None),
        ("st.global.b16 [%d0+4], 0;", None),
        ("st.global.b32 [%d0], 0; st.global.b32 [%d0], 1;", None),
        ("st.global.b32 [%d0], %r2;", None),
        ("st.global.b32 [%d0], 0;", [1, 7, 0, 0]),
        ("st.global.b32 [%d0], 0;", []),
        ("st.global.b32 [%d0+16], 0;", None),
    ],
)
def test_other_contents_change_something(body: str, given: list[int] | None) -> None:
    assert signature(body, given) != signature("", given)


def test_stores_that_race_are_not_left_out() -> None:
    body = "setp.eq.u32 %p1, %r0, 0; selp.b32 %r3, 0, 5, %p1; st.global.b32 [%d0], %r3;"
    with pytest.raises(Unsupported, match="race"):
        signature(body, threads=2)
