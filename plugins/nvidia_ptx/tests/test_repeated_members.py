"""Maxima of elements of which several are one value: the set does not depend on how often threads combine it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker.analysis import output_signature, outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Argument, Launch
from ptx_programs import ARCH, simulated, text

LANES, ELEMENTS = 32, 21


def signature(body: str, blocks: int = 1) -> bytes:
    """Return the signature of the outputs of a kernel whose blocks are one warp."""
    module = ARCH.parse(text(body, threads=LANES), "k.ptx")
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="fp32") for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(LANES, 1, 1), args=arguments)
    outputs = outputs_of_all_blocks(prepare_launch(module, ARCH, launch), {"out": 1, "in": 2}, Options())
    assert outputs is not None
    return output_signature(outputs)


def loaded(last: int, register: str = "%f1") -> str:
    """Load the element of each lane, and the last one beyond it."""
    return (
        f"min.u32 %r1, %r0, {last}; mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2;"
        f"ld.global.b32 %r2, [%d2]; mov.b32 {register}, %r2;"
    )


def combined(verb: str, distances: tuple[int, ...]) -> str:
    """Combine the registers of all lanes, those at these distances first."""
    return "".join(
        f"mov.b32 %r3, %f1; shfl.sync.bfly.b32 %r4, %r3, {distance}, 31, -1;mov.b32 %f2, %r4; {verb}.f32 %f1, %f1, %f2;"
        for distance in distances
    )


def in_one_thread(verb: str, last: int) -> str:
    """Combine the elements up to the last one in each thread."""
    loads = (
        f"ld.global.b32 %r2, [%d1+{4 * place}]; mov.b32 %f2, %r2; {verb}.f32 %f1, %f1, %f2;"
        for place in range(1, last + 1)
    )
    return "ld.global.b32 %r2, [%d1]; mov.b32 %f1, %r2;" + "".join(loads)


STORED = "setp.eq.u32 %p1, %r0, 0; mov.b32 %r5, %f1; @%p1 st.global.b32 [%d0], %r5;"


@pytest.mark.parametrize("verb", ["max", "min", "max.NaN"])
def test_order_of_lanes_that_hold_one_element(verb: str) -> None:
    last = ELEMENTS - 1
    programs = [
        loaded(last) + combined(verb, (16, 8, 4, 2, 1)) + STORED,
        loaded(last) + combined(verb, (1, 2, 4, 8, 16)) + STORED,
        in_one_thread(verb, last) + STORED,
    ]
    assert len({signature(each) for each in programs}) == 1


def test_another_set() -> None:
    shorter = loaded(ELEMENTS - 2) + combined("max", (16, 8, 4, 2, 1)) + STORED
    assert signature(shorter) != signature(in_one_thread("max", ELEMENTS - 1) + STORED)
    assert signature(shorter) == signature(in_one_thread("max", ELEMENTS - 2) + STORED)


def test_sums_count_each_lane() -> None:
    orders = ((16, 8, 4, 2, 1), (1, 2, 4, 8, 16))
    one, other = (loaded(ELEMENTS - 1) + combined("add", order) + STORED for order in orders)
    assert signature(one) != signature(other)


def test_values_that_are_equal_in_all_blocks_beside_others() -> None:
    # %f3 is one value in all blocks and lanes, and the lanes in which the other one is constant differ between blocks.
    body = (
        "ld.global.b32 %r6, [%d1]; mov.b32 %f3, %r6; mov.u32 %r7, %ctaid.x; add.u32 %r8, %r7, %r0;"
        "setp.lt.u32 %p2, %r8, 20; mul.wide.u32 %d2, %r8, 4; add.s64 %d2, %d1, %d2; mov.b32 %r2, 0;"
        "@%p2 ld.global.b32 %r2, [%d2]; mov.b32 %f1, %r2; max.f32 %f1, %f3, %f1;"
        "mad.lo.u32 %r9, %r7, 32, %r0; mul.wide.u32 %d3, %r9, 4; add.s64 %d3, %d0, %d3;"
        "mov.b32 %r5, %f1; st.global.b32 [%d3], %r5;"
    )
    exchanged = body.replace("max.f32 %f1, %f3, %f1", "max.f32 %f1, %f1, %f3")
    assert exchanged != body
    assert signature(body, blocks=3) == signature(exchanged, blocks=3)


def in_rows(last: int) -> str:
    """Combine the elements up to the last one as rows of 16 lanes do: each lane with those below it, then two rows.

    Elements beyond the last one are -inf, so that all lanes behind it hold one set.
    """
    absent = "@%p3 mov.b32 %r4, -8388608; mov.b32 %f2, %r4; max.NaN.f32 %f1, %f1, %f2;"
    masked = f"setp.gt.u32 %p2, %r0, {last}; @%p2 mov.b32 %f1, 0fff800000; and.b32 %r6, %r0, 15;"
    rows = "".join(
        f"mov.b32 %r3, %f1; shfl.sync.up.b32 %r4, %r3, {distance}, 0, -1; setp.lt.u32 %p3, %r6, {distance}; {absent}"
        for distance in (1, 2, 4, 8)
    )
    joined = f"mov.b32 %r3, %f1; shfl.sync.idx.b32 %r4, %r3, 15, 31, -1; setp.lt.u32 %p3, %r0, 16; {absent}"
    return f"{masked} {rows} {joined} mov.b32 %r3, %f1; shfl.sync.idx.b32 %r4, %r3, 31, 31, -1; mov.b32 %f1, %r4;"


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether members are followed in each domain that is made."""
    noted: list[bool] = []
    original = TermDomain.__init__

    def made(self: TermDomain, *arguments: object, follows_members: bool = False) -> None:
        noted.append(follows_members)
        original(self, *arguments, follows_members=follows_members)  # type: ignore[arg-type]

    monkeypatch.setattr(TermDomain, "__init__", made)
    return noted


def test_members_are_followed_only_where_lanes_hold_one_value(followed: list[bool]) -> None:
    signature(loaded(LANES - 1) + combined("max", (16, 8, 4, 2, 1)) + STORED)
    assert followed == [False]
    signature(loaded(ELEMENTS - 1) + combined("max", (16, 8, 4, 2, 1)) + STORED)
    assert followed == [False, False, True]
    # The sets of the lanes beyond the last element repeat, and no element does.
    found = signature(loaded(LANES - 1) + in_rows(ELEMENTS - 1) + STORED)
    assert followed == [False, False, True, False]
    assert found == signature(in_one_thread("max.NaN", ELEMENTS - 1) + STORED)


def test_the_set_of_a_value_and_itself_repeats_no_member(followed: list[bool]) -> None:
    """LLVM quiets a NaN by the maximum of a value and itself, also of one that many lanes hold."""
    quieted = (
        "mov.b32 %r3, %f1; shfl.sync.idx.b32 %r4, %r3, 15, 31, -1; setp.lt.u32 %p3, %r0, 16; @%p3 mov.b32 %r4, %r3;"
        "mov.b32 %f2, %r4; max.f32 %f2, %f2, %f2; min.f32 %f1, %f1, %f2;"
    )
    signature(loaded(LANES - 1) + combined("min", (1, 2)) + quieted + STORED)
    assert followed == [False]


def drawn_program(random: np.random.Generator, places: list[int]) -> str:
    """Return a program in which lanes load elements, often the same ones, and combine them by maxima and minima."""
    mapped = "".join(
        f"setp.eq.u32 %p2, %r0, {lane}; @%p2 mov.b32 %r1, {place};" for lane, place in enumerate(places) if place
    )
    verbs = [str(random.choice(["max", "max", "min", "max.NaN"])) for _ in range(2)]
    steps = "".join(
        combined(verbs[int(random.integers(2)) if random.random() < 0.2 else 0], (int(distance),))
        for distance in random.permutation([16, 8, 4, 2, 1])[: int(random.integers(3, 6))]
    )
    bound = "mov.b32 %f3, 0f00000000; max.f32 %f1, %f1, %f3;" if random.random() < 0.3 else ""
    return (
        f"mov.b32 %r1, 0; {mapped} mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2;"
        f"ld.global.b32 %r2, [%d2]; mov.b32 %f1, %r2; {steps} {bound} {STORED}"
    )


def drawn_contents(random: np.random.Generator) -> dict[str, npt.NDArray[np.uint8]]:
    """Return small numbers, zeros of both signs, infinities and NaNs."""
    numbers = random.choice(np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan], np.float32), 6)
    return {"in": numbers.astype(np.float32).view(np.uint8), "out": np.zeros(4, dtype=np.uint8)}


def test_equal_sets_are_equal_functions() -> None:
    random = np.random.default_rng(3)
    contents = [drawn_contents(random) for _ in range(60)]
    classes: dict[bytes, set[bytes]] = {}
    programs = 0
    for _ in range(6):
        places = random.integers(0, 6, LANES).tolist()
        for _ in range(8):
            body = drawn_program(random, places)
            results = simulated(body, contents, threads=LANES)
            canonical = [np.frombuffer(each, dtype=np.float32).copy() for each in results]
            for each in canonical:
                each[np.isnan(each)] = np.nan
            classes.setdefault(signature(body), set()).add(b"".join(each.tobytes() for each in canonical))
            programs += 1
    assert len(classes) < programs - 10
    assert all(len(found) == 1 for found in classes.values())


def test_contributions_of_atomic_operations_that_are_one_element() -> None:
    """The contributions to an element are combined after the last instruction."""
    place = "mul.wide.u32 %d3, %r0, 4; add.s64 %d3, %d0, %d3; ld.global.b32 %r6, [%d1];"
    largest = "red.global.max.s32 [%d3], {};"
    one, other = (
        loaded(ELEMENTS - 1) + place + "".join(map(largest.format, order)) for order in (("%r2", "%r6"), ("%r6", "%r2"))
    )
    assert signature(one) == signature(other) != signature(loaded(ELEMENTS - 1) + place + largest.format("%r2"))
