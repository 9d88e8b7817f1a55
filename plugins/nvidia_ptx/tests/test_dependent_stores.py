"""Stores that race with loads on which they depend, against all orders that keep what instructions wait for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.analysis import outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution import dependent_stores
from bitwise_core.execution.concrete import PreparedLaunch, prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Argument, Launch
from covering import covering
from ptx_programs import ARCH, text


@dataclass(frozen=True)
class Lane:
    """What the even or the odd lane of a pair does: it loads a cell of the pair, and stores a sum to a cell.

    `own` and `other`: whether what it loaded, and what the other lane loaded, are terms of the sum.
    """

    loads: int
    stores: int
    own: bool
    other: bool


def outcomes(lanes: tuple[Lane, Lane]) -> set[tuple[int, ...]]:
    """Return the contents that some order leaves: a store waits for what it stores, and for a load of its cell."""
    found = set()
    for order in itertools.permutations(range(4)):
        at = {event: place for place, event in enumerate(order)}  # the loads of both lanes, and then their stores
        waits = [
            (2 + lane, load)
            for lane, each in enumerate(lanes)
            for load, needed in ((lane, each.own or each.loads == each.stores), (1 - lane, each.other))
            if needed
        ]
        if all(at[store] > at[load] for store, load in waits):
            cells, loaded = [5, 11], [0, 0]
            for event in order:
                lane = lanes[event % 2]
                if event < 2:
                    loaded[event] = cells[lane.loads]
                else:
                    total = 100 * (event % 2 + 1)
                    cells[lane.stores] = total + lane.own * loaded[event % 2] + 3 * lane.other * loaded[1 - event % 2]
            found.add(tuple(cells))
    return found


def prepared(body: str, blocks: int = 1) -> PreparedLaunch:
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="u32") for name in ("out", "in"))
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(32, 1, 1), args=arguments)
    return prepare_launch(ARCH.parse(text(body), "k.ptx"), ARCH, launch)


def program(lanes: tuple[Lane, Lane], blocks: int = 1, ends: bool = False, first: str = "") -> PreparedLaunch:
    """Return a kernel whose pairs of lanes do this; `ends`: data may end it before the stores; `first`: before them."""
    even, odd = lanes
    lines = [
        "and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; shr.u32 %r2, %r0, 1; mov.u32 %r3, %ctaid.x;",
        "mad.lo.u32 %r2, %r3, 16, %r2; mul.wide.u32 %d5, %r2, 8; add.s64 %d5, %d0, %d5;",
        f"selp.b64 %d6, {4 * even.loads}, {4 * odd.loads}, %p1; add.s64 %d6, %d5, %d6; ld.global.u32 %r4, [%d6];",
        "shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1; selp.b32 %r6, 100, 200, %p1;",
        "mul.lo.u32 %r5, %r5, 3; not.pred %p2, %p1;",
    ]
    for guard, lane in (("%p1", even), ("%p2", odd)):
        lines += [f"@{guard} add.u32 %r6, %r6, %r4;"] * lane.own + [f"@{guard} add.u32 %r6, %r6, %r5;"] * lane.other
    lines.append(f"selp.b64 %d7, {4 * even.stores}, {4 * odd.stores}, %p1; add.s64 %d7, %d5, %d7;")
    if ends:
        lines.append("ld.global.u32 %r7, [%d1]; setp.eq.u32 %p3, %r7, 0; @%p3 bra END;")
    return prepared("\n".join([*lines, first, "st.global.u32 [%d7], %r6;", "END:"]), blocks)


def is_determined(ready: PreparedLaunch) -> bool:
    try:
        return outputs_of_all_blocks(ready, {"out": 1, "in": 2}, Options()) is not None
    except Unsupported:
        return False


LANES = [Lane(*each) for each in itertools.product((0, 1), (0, 1), (False, True), (False, True))]


def pairs_of_lanes(every: bool) -> list[tuple[Lane, Lane]]:
    """Return the pairs that are executed: all, or those with every two values of what lanes do."""
    # Exchanged lanes are the same program with exchanged numbers; a few are executed too.
    pairs = [*itertools.combinations_with_replacement(LANES, 2), *zip(LANES[1:], LANES, strict=False), SWAPPED[::-1]]
    values = [
        {f"{name} {lane}": each for lane, one in enumerate(pair) for name, each in vars(one).items()} for pair in pairs
    ]
    return pairs if every else [*(pairs[place] for place in covering(values)), SWAPPED]


@pytest.mark.parametrize(
    ("ends", "every"), [(False, True), (True, False), pytest.param(True, True, marks=pytest.mark.exhaustive)]
)
def test_a_determined_result_is_that_of_every_order(ends: bool, every: bool) -> None:
    proved = 0
    for lanes in pairs_of_lanes(every):
        if is_determined(program(lanes, ends=ends)):
            assert len(outcomes(lanes)) == 1, lanes
            proved += lanes[0].loads != lanes[0].stores or lanes[1].loads != lanes[1].stores
        else:  # of two loads of one element, none is followed
            assert len(outcomes(lanes)) > 1 or lanes[0].loads == lanes[1].loads, lanes
    assert proved >= (5 if every else 2)


SWAPPED = (Lane(0, 1, False, True), Lane(1, 0, False, True))
"""Each lane stores what the other has loaded to its cell."""


@pytest.mark.parametrize("ends", [False, True])
def test_an_earlier_store_of_the_same_thread_must_depend_on_the_load_too(ends: bool) -> None:
    assert is_determined(program(SWAPPED, ends=ends))
    assert not is_determined(program(SWAPPED, ends=ends, first="st.global.u32 [%d7], 7;"))


def test_blocks_are_followed_together() -> None:
    assert is_determined(program(SWAPPED, blocks=3))
    assert not is_determined(program((Lane(0, 1, True, False), Lane(1, 0, True, False)), blocks=3))


LOAD = "mul.wide.u32 %d5, %r0, 4; add.s64 %d5, %d0, %d5; ld.global.u32 %r1, [%d5];"
OTHER = "xor.b32 %r9, %r0, 1; mul.wide.u32 %d6, %r9, 4; add.s64 %d6, %d0, %d6;"
EXCHANGE = "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;"
STORE = "st.global.u32 [%d6], %r2;"
KEPT = "mul.wide.u32 %d7, %r0, 4; add.s64 %d7, %d1, %d7; st.global.u32 [%d7], %r1;"
"""What was loaded is stored in another buffer."""
OPEN = {
    "the dependence has no effect": LOAD + EXCHANGE + "and.b32 %r2, %r2, 0;" + OTHER + STORE,
    "a part of the dependence": LOAD + EXCHANGE + OTHER + "setp.gt.u32 %p1, %r0, 3; @%p1 mov.b32 %r2, 7;" + STORE,
    "two loads of an element": LOAD + OTHER + "ld.global.u32 %r3, [%d6];" + EXCHANGE + "add.u32 %r2, %r2, 1;" + STORE,
    "an atomic operation": LOAD + EXCHANGE + OTHER + STORE + "red.global.add.u32 [%d6], 1;",
    "a second store": LOAD + EXCHANGE + OTHER + STORE + "mov.b32 %r2, 7;" + STORE,
    "a store of a part": LOAD + EXCHANGE + OTHER + "mov.b16 %h1, 1; st.global.u16 [%d6+2], %h1;",
    "a wider store": LOAD + EXCHANGE + OTHER + "and.b64 %d6, %d6, -8; st.global.v2.u32 [%d6], {%r2, %r2};",
}  # fmt: skip


@pytest.mark.parametrize("body", OPEN.values(), ids=OPEN)
def test_other_stores_leave_the_result_open(body: str) -> None:
    assert is_determined(prepared(LOAD + EXCHANGE + OTHER + STORE + KEPT))
    assert not is_determined(prepared(body + KEPT))


def _always_undetermined(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(memory: Any, elements: Any, *, some: bool = False) -> Any:
        return np.full(elements.address.size, not some, dtype=bool)

    monkeypatch.setattr(dependent_stores, "_is_undetermined", found)


def _never_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dependent_stores, "_with_other_loads", lambda run, elements: np.zeros(elements.address.size, dtype=bool)
    )


def _any_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(run: Any, elements: Any, open_: Any, of: Any = None) -> Any:
        return np.ones(elements.loaded.size, dtype=bool)

    monkeypatch.setattr(dependent_stores, "_depend_on_their_own", found)


@pytest.mark.parametrize("mutate", [_always_undetermined, _never_of_others, _any_loads])
def test_each_step_of_the_proof_is_necessary(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [each for each in itertools.product(LANES, LANES) if len(outcomes(each)) > 1]
    mutate(monkeypatch)
    assert any(is_determined(program(each)) for each in pairs)


def exchanged(first: str, second: str) -> PreparedLaunch:
    """Each lane loads an element of both buffers, and stores these two for its neighbour, from what that one loaded."""
    lines = [
        "mul.wide.u32 %d5, %r0, 4; xor.b32 %r1, %r0, 1; mul.wide.u32 %d6, %r1, 4; add.s64 %d7, %d0, %d5;",
        "add.s64 %d8, %d1, %d5; add.s64 %d9, %d0, %d6; add.s64 %d10, %d1, %d6;",
        "ld.global.u32 %r2, [%d7];",
        "ld.global.u32 %r3, [%d8];",
        f"{first} {second} shfl.sync.bfly.b32 %r6, %r4, 1, 31, -1; shfl.sync.bfly.b32 %r7, %r5, 1, 31, -1;",
        "st.global.u32 [%d9], %r6;",
        "st.global.u32 [%d10], %r7;",
    ]
    return prepared("\n".join(lines))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("add.u32 %r4, %r2, %r3;", "mul.lo.u32 %r5, %r3, 3;", True),
        ("add.u32 %r4, %r2, %r3;", "mad.lo.u32 %r5, %r3, 3, %r2;", True),
        ("mul.lo.u32 %r4, %r3, 5;", "mul.lo.u32 %r5, %r3, 3;", True),  # the load of the first is not used
        ("sub.u32 %r4, %r2, %r3;", "mul.lo.u32 %r5, %r2, 3;", False),
        ("add.u32 %r4, %r2, %r3;", "mul.lo.u32 %r5, %r2, 3;", False),
        ("add.u32 %r4, %r2, %r3;", "mov.u32 %r5, 3;", False),
    ],
)
def test_stores_of_two_buffers_depend_on_the_load_of_their_own(
    first: str, second: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependent_stores, "MAXIMUM_LOADS_OF_BLOCK", 0)
    assert is_determined(exchanged(first, second)) is expected


STATE = (
    "mul.wide.u32 %d5, %r0, 4; add.s64 %d6, %d1, %d5; mov.u32 %r3, %ctaid.x; mul.wide.u32 %d7, %r3, 4;"
    "add.s64 %d7, %d0, %d7;"
    "ld.global.u32 %r1, [%d7]; ld.global.u32 %r2, [%d6]; setp.lt.u32 %p1, %r0, {lanes}; setp.eq.u32 %p2, %r0, 0;"
    "mad.lo.u32 %r4, %r1, 3, %r2; selp.b32 %r4, %r4, 0, %p1;"
)
"""Each lane loads the state of its block, and computes a number from it and from an element of its own."""
EXTREMUM = "".join(f"shfl.sync.bfly.b32 %r5, %r4, {1 << place}, 31, -1; max.u32 %r4, %r4, %r5;" for place in range(5))
NEW_STATE = "@%p2 st.global.u32 [%d7], %r4;"
OUT = "mad.wide.u32 %d8, %r3, 128, %d6; {guard} st.global.u32 [%d8+256], {value};"


@pytest.mark.parametrize(
    ("lanes", "after", "expected"),
    [
        (32, NEW_STATE, True),
        (32, NEW_STATE + OUT.format(guard="", value="%r1"), True),
        (20, NEW_STATE, True),  # what the other lanes load is not used
        (20, NEW_STATE + OUT.format(guard="@%p1", value="%r1"), True),
        (20, NEW_STATE + OUT.format(guard="", value="%r1"), False),
        (31, NEW_STATE + OUT.format(guard="@!%p1", value="%r1"), False),
        (32, "mov.b32 %r6, 7; @%p2 st.global.u32 [%d7], %r6;" + NEW_STATE + OUT.format(guard="", value="%r1"), False),
        (32, "and.b32 %r4, %r4, 0;" + NEW_STATE + OUT.format(guard="", value="%r1"), False),
        (32, "@%p2 st.global.u16 [%d7+2], %h1;" + NEW_STATE + OUT.format(guard="", value="%r1"), False),
    ],
)
@pytest.mark.parametrize("blocks", [1, 2])
def test_each_load_of_a_state_comes_before_the_stores_that_depend_on_it(
    lanes: int, after: str, expected: bool, blocks: int
) -> None:
    body = "mov.b16 %h1, 1;" + STATE.format(lanes=lanes) + EXTREMUM + after
    assert is_determined(prepared(body.replace(";", ";\n"), blocks)) is expected


SECOND = "ld.global.u32 %r7, [%d7+64]; mul.lo.u32 %r8, %r7, 5;" + EXTREMUM.replace("%r4", "%r8").replace("%r5", "%r9")
NEW_STATES = NEW_STATE + "@%p2 st.global.u32 [%d7+64], %r8;"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("", True),
        ("add.u32 %r4, %r4, %r7;", True),
        ("setp.eq.u32 %p3, %r0, 5; selp.b32 %r4, %r7, %r4, %p3;", False),  # lane 5 takes the other state instead
    ],
)
def test_a_store_of_two_states_depends_on_each_load_of_its_own(first: str, expected: bool) -> None:
    body = STATE.format(lanes=32) + SECOND + first + EXTREMUM + NEW_STATES + OUT.format(guard="", value="%r1")
    assert is_determined(prepared(body.replace(";", ";\n"))) is expected


def test_stores_of_several_states_are_not_followed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = "setp.eq.u32 %p3, %r0, 5; selp.b32 %r4, %r7, %r4, %p3;"
    body = STATE.format(lanes=32) + SECOND + lane + EXTREMUM + NEW_STATES + OUT.format(guard="", value="%r1")
    _never_of_others(monkeypatch)
    assert is_determined(prepared(body.replace(";", ";\n")))
