# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Branches that whole blocks take by data, with barriers, copies, memory barriers and atomic operations on their ways.

Random programs are written twice: with branches, and with both ways one after the other and a choice of each result.
Both must have one form, and return the same bytes on bit patterns, whichever ways are taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from bitwise_core.execution.alternatives import NotJoined
from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, simulated

THREADS = 64
ROOM = ".shared .align 16 .b8 room[2048];"
START = """.reg .b32 %s<90>;
mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %d5, %r1; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5; mov.u64 %d8, room; add.s64 %d9, %d8, %d5;
xor.b32 %r2, %r1, 132; cvt.u64.u32 %d10, %r2; add.s64 %d11, %d8, %d10; add.s64 %d12, %d8, 1536; add.s64 %d13, %d8, 1552; setp.eq.u32 %p1, %r0, 0;
ld.global.b32 %r3, [%d6]; ld.global.b32 %r9, [%d6+256]; mov.b32 %r40, %r3; mov.b32 %r41, %r9;
@%p1 mbarrier.init.shared.b64 [%d12], 1; fence.proxy.async.shared::cta; bar.sync 0;
"""
"""%r9: what statements compute with; %r40 and %r41: results; %d9 and %d11: the own cell and that of another thread; %d12: an mbarrier."""
END = "st.global.b32 [%d7], %r9; st.global.b32 [%d7+256], %r40; st.global.b32 [%d7+512], %r41;"
WORDS = 2048
"""The place of the words in the input that decide about branches."""
NEEDED = "bar.sync 0 ;"
"""A barrier without which threads race."""
WAIT = "{{ .reg .pred %done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %done, [{}], {}; @!%done bra AGAIN; }}"
READ = "ld.shared.b32 %r20, [%d11]; add.f32 %r9, %r9, %r20;"


def line(barrier: str, parity: int, offset: int) -> str:
    """Return a copy of the cells of all threads in one line."""
    copied = (
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%d8], [%d1+{offset}], 256, [{barrier}];"
    )
    return f"fence.proxy.async.shared::cta; bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [{barrier}], 256; @%p1 {copied} {WAIT.format(barrier, parity)}"


@dataclass
class Writer:
    """A random program, with the same statements in both texts.

    `chooses`: both ways are executed, and each result is chosen.  `enclosing` are the predicates of the branches
    around the current statement, with the truth for which it is executed.
    """

    dice: random.Random
    chooses: bool
    labels: int = 0
    saved: int = 0
    enclosing: list[tuple[str, bool]] = field(default_factory=list)

    def statement(self, depth: int) -> str:
        """Return a statement."""
        kinds: Sequence[Callable[[], str]] = [
            self.exchange, self.shuffle, self.copies, self.groups, self.own_line, self.phases, self.result, self.update, self.product,
        ]  # fmt: skip
        if depth < 2 and self.dice.random() < 0.3:
            return self.branch(depth)
        return self.dice.choice(kinds)()

    def statements(self, depth: int, count: int) -> str:
        """Return several statements."""
        return " ".join(self.statement(depth) for _ in range(count))

    def exchange(self) -> str:
        return f"bar.sync 0; st.shared.b32 [%d9], %r9; {NEEDED} ld.shared.b32 %r9, [%d11];"

    def shuffle(self) -> str:
        return f"shfl.sync.bfly.b32 %r20, %r9, {self.dice.choice((1, 4, 16))}, 31, -1; add.f32 %r9, %r9, %r20;"

    def product(self) -> str:
        return self.dice.choice(("mul.f32 %r9, %r9, %r3;", "max.f32 %r9, %r9, %r3;"))

    def copies(self) -> str:
        offset = self.dice.choice((0, 256, 512))
        return f"bar.sync 0; cp.async.ca.shared.global [%d9], [%d6+{offset}], 4; cp.async.wait_all; {NEEDED} {READ}"

    def groups(self) -> str:
        first, second = self.dice.sample((0, 256, 512, 768), 2)
        return f"bar.sync 0; cp.async.ca.shared.global [%d9], [%d6+{first}], 4; cp.async.commit_group; cp.async.ca.shared.global [%d9+256], [%d6+{second}], 4; cp.async.commit_group; cp.async.wait_group 1; {NEEDED} {READ} cp.async.wait_group 0; {NEEDED} ld.shared.b32 %r21, [%d11+256]; fma.rn.f32 %r9, %r9, %r3, %r21;"

    def own_line(self) -> str:
        copied = line("%d13", 0, self.dice.choice((0, 256, 512)))
        return f"bar.sync 0; @%p1 mbarrier.init.shared.b64 [%d13], 1; {copied} {READ} bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%d13];"

    def phases(self) -> str:
        first, second = (line("%d12", parity, self.dice.choice((0, 256, 512))) for parity in (0, 1))
        return f"{first} {READ} {second} {READ}"

    def result(self) -> str:
        return f"mov.b32 {self.dice.choice(('%r40', '%r41'))}, %r9;"

    def update(self) -> str:
        """Return an atomic operation; where all ways are executed, it adds 0 on those that are not taken."""
        place = self.dice.choice((1024, 1280))
        if not self.chooses:
            return f"red.global.add.u32 [%d7+{place}], %r9;"
        chosen = "".join(
            f"selp.b32 %r22, {'%r22, 0' if truth else '0, %r22'}, {predicate};"
            for predicate, truth in reversed(self.enclosing)
        )
        return f"mov.b32 %r22, %r9; {chosen} red.global.add.u32 [%d7+{place}], %r22;"

    def branch(self, depth: int) -> str:
        """Return a branch on two words, or on the greatest words of both warps."""
        number, predicate = self.labels, f"%p{10 + self.labels}"
        self.labels += 1
        test = f"ld.global.b32 %r30, [%d1+{WORDS + 8 * number}]; ld.global.b32 %r31, [%d1+{WORDS + 8 * number + 4}]; setp.lt.f32 {predicate}, %r30, %r31;"
        if self.dice.random() < 0.3:
            test = f"ld.global.b32 %r30, [%d1+{WORDS + 8 * number}]; max.f32 %r31, %r30, %r9; bar.sync 0; st.shared.b32 [%d9], %r31; bar.sync 0; ld.shared.b32 %r31, [room]; setp.lt.f32 {predicate}, %r31, 0f3F000000;"
        counts = self.dice.choice(((1, 0), (2, 1), (1, 2)))
        ways = []
        for truth, count in zip((False, True), counts, strict=True):
            self.enclosing.append((predicate, truth))
            ways.append(self.statements(depth + 1, count))
            self.enclosing.pop()
        if not self.chooses:
            return f"{test} @{predicate} bra W{number}; {ways[0]} bra J{number}; W{number}: {ways[1]} J{number}:"
        names = ("%r9", "%r40", "%r41")
        before, after = ([f"%s{self.saved + 3 * part + place}" for place in range(3)] for part in (0, 1))
        self.saved += 6
        kept = "".join(f"mov.b32 {one}, {name};" for one, name in zip(before, names, strict=True))
        other = "".join(
            f"mov.b32 {two}, {name}; mov.b32 {name}, {one};"
            for one, two, name in zip(before, after, names, strict=True)
        )
        chosen = "".join(
            f"selp.b32 {name}, {name}, {two}, {predicate};" for two, name in zip(after, names, strict=True)
        )
        return f"{test} {kept} {ways[0]} {other} {ways[1]} {chosen}"

    def program(self) -> str:
        """Return a program; copies are in flight over its first branch in some."""
        begin = end = ""
        if self.dice.random() < 0.5:
            begin = "cp.async.ca.shared.global [%d9+768], [%d6+512], 4; cp.async.commit_group;"
            end = f"cp.async.wait_group 0; {NEEDED} ld.shared.b32 %r21, [%d11+768]; max.f32 %r9, %r9, %r21;"
        body = f"{self.statements(2, 1)} {begin} {self.branch(0)} {end} {self.statements(0, 2)}"
        return f"{START} {body} {END}"


def programs(seed: int) -> tuple[str, str]:
    """Return a random program with branches, and the same one with choices."""
    branching, choosing = (Writer(random.Random(seed), chooses).program() for chooses in (False, True))
    return branching, choosing


@cache
def form(body: str) -> dict[int, tuple[int, int, int]]:
    return hashes(body, threads=THREADS, shared=ROOM)


def contents() -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(7)
    found = []
    for _ in range(8):
        words = (generator.standard_normal(776) * 2).astype(np.float32).view(np.uint32)
        special = generator.choice(np.array([0, 1 << 31, 0x7F800000, 0x7FC00000], dtype=np.uint32), 776)
        words = np.where(generator.random(776) < 0.05, special, words)
        found.append({"out": np.zeros(2048, dtype=np.uint8), "in": words.astype(np.uint32).view(np.uint8)})
    return found


CONTENTS = contents()


def returned(body: str) -> list[bytes]:
    return simulated(body, CONTENTS, threads=THREADS, shared=ROOM)


SEEDS = range(14)


@pytest.mark.parametrize("seed", SEEDS)
def test_branches_have_the_form_of_choices_and_return_their_bytes(seed: int) -> None:
    branching, choosing = programs(seed)
    assert form(branching) == form(choosing)
    assert returned(branching) == returned(choosing)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_ways_have_another_form(seed: int) -> None:
    branching, _ = programs(seed)
    dice = random.Random(seed)
    label = dice.randrange(branching.count(" bra W"))
    changes = [
        branching.replace(f"@%p{10 + label} bra", f"@!%p{10 + label} bra"),
        branching.replace(f"bra W{label}; ", f"bra W{label}; add.f32 %r9, %r9, %r3; "),
        branching.replace(f" W{label}: ", f" W{label}: mov.b32 %r40, %r3; "),
        branching.replace(f" W{label}: ", f" W{label}: neg.f32 %r9, %r9; "),
    ]
    for each in changes:
        assert form(each) != form(branching) or returned(each) == returned(branching)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_or_a_wait_that_one_way_lacks_is_found(seed: int) -> None:
    branching, _ = programs(seed)
    start, end = branching.index(" bra W"), branching.rindex(": ")
    for dropped in (
        NEEDED,
        "cp.async.wait_all;",
        "cp.async.wait_group 0;",
        WAIT.format("%d12", 0),
        WAIT.format("%d13", 0),
    ):
        place = branching.find(dropped, start, end)
        if place >= 0:
            with pytest.raises(Unsupported):
                form(branching[:place] + branching[place + len(dropped) :])


BY_WORDS = f"ld.global.b32 %r30, [%d1+{WORDS}]; setp.lt.f32 %p10, %r30, 0f3F000000; @%p10 bra J;"
LATER = f"bar.sync 0; J: {line('%d12', 0, 0)} {READ}"
NOT_ONE_STATE = {
    "a phase on one way": (f"{BY_WORDS} {line('%d12', 0, 0)} {LATER}", "in different phases"),
    "a copy that one way starts": (
        f"{BY_WORDS} cp.async.ca.shared.global [%d9], [%d6], 4; cp.async.commit_group; J: cp.async.wait_group 0; {NEEDED} {READ}",
        "in flight",
    ),
    "a copy that one way starts and does not commit": (
        f"{BY_WORDS} cp.async.ca.shared.global [%d9], [%d6], 4; J: cp.async.wait_all; {NEEDED} {READ}",
        "in flight",
    ),
    "a copy that one way has waited for and overwritten": (
        f"cp.async.ca.shared.global [%d9], [%d6], 4; cp.async.commit_group; {BY_WORDS} cp.async.wait_all; st.shared.b32 [%d9], %r9; J: cp.async.wait_all; {NEEDED} {READ}",
        "in flight",
    ),
    "a line in flight": (
        f"{BY_WORDS} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d12], 256; @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%d8], [%d1], 256, [%d12]; J: ret;",
        "in flight|different phases",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_ONE_STATE)
def test_states_that_are_not_joined(name: str) -> None:
    body, reason = NOT_ONE_STATE[name]
    with pytest.raises(NotJoined, match=reason):
        form(f"{START} {body} {END}")


def test_an_mbarrier_of_one_way_is_not_used_after_both() -> None:
    used = f"{BY_WORDS} @%p1 mbarrier.init.shared.b64 [%d13], 1; J: bar.sync 0; {line('%d13', 0, 0)}"
    with pytest.raises(Unsupported, match="before it is initialised"):
        form(f"{START} {used} {END}")
    again = f"{BY_WORDS} @%p1 mbarrier.init.shared.b64 [%d13], 1; bar.sync 0; {line('%d13', 0, 0)} bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%d13]; J: bar.sync 0; @%p1 mbarrier.init.shared.b64 [%d13], 1; bar.sync 0; {line('%d13', 0, 256)} {READ}"
    plain = f"bar.sync 0; {line('%d12', 0, 256)} {READ}"
    assert form(f"{START} {again} {END}") == form(f"{START} {plain} {END}")


OPEN = "mul.f32 %r31, %r30, 0f3F800000;"
"""A product with 1, whose NaN an assembler may leave as it is."""
TEST = "and.b32 %r32, %r31, 1; setp.eq.u32 %p10, %r32, 0;"
EXCHANGED = "@%p10 bra J; st.shared.b32 [%d9], %r9; bar.sync 0; ld.shared.b32 %r9, [%d11]; J:"
WORD = f"ld.global.b32 %r30, [%d1+{WORDS}];"
TWO_PLACES = f"setp.lt.u32 %p9, %r0, 32; @%p9 bra A; {OPEN} bra B; A: {OPEN} B:"


def test_bits_of_a_nan_that_an_assembler_decides_are_one_number_where_they_are_loaded_from_one_place() -> None:
    loaded = f"{WORD} {OPEN} @%p1 st.shared.b32 [room+1024], %r31; bar.sync 0; ld.shared.b32 %r31, [room+1024]; {TEST} {EXCHANGED}"
    assert form(f"{START} {loaded} {END}")
    for computed in (f"{WORD} {TWO_PLACES} {TEST} {EXCHANGED}", f"{WORD} {OPEN} {TEST} {EXCHANGED}"):
        with pytest.raises(Unsupported, match="a barrier depends on data"):
            form(f"{START} {computed} {END}")


def test_sums_of_floats_that_data_selects() -> None:
    own = f"{BY_WORDS} red.global.add.f32 [%d7+1024], %r9; J:"
    with pytest.raises(Unsupported, match="data decides whether threads add floating-point numbers"):
        form(f"{START} {own} {END}")
