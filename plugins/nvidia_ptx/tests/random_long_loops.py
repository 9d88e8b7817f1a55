# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Random loops that data ends after many iterations, in families of small changes of one loop.

Numbers are drawn from few registers and constants, so that registers with equal starts, constant registers and repeated
members of maxima are frequent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from test_opcodes_long_loops import OF_BLOCK, OF_WARP, VOTED

REGISTERS = ("%r5", "%r41", "%r42")
STARTS = ("%r2", "%r3", "%r4", "%r2", "0f00000000", "0f3F800000")
CONSTANTS = ("0f3F780000", "0f3C800000", "0f3F000000", "0f3F800000", "0f00000000")
ENDS = {"thread": "", "warp": OF_WARP, "vote": VOTED, "block": OF_BLOCK}


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: the start of each register, the instructions of its body, its end, limit and largest count."""

    starts: tuple[str, ...]
    body: tuple[str, ...]
    end: str
    limit: str
    count: int
    first: bool

    def text(self) -> str:
        """Return the PTX of the loop with its stores."""
        begin = "".join(f"mov.b32 %r{80 + place}, {start};" for place, start in enumerate(self.starts)) + "".join(
            f"mov.b32 {name}, %r{80 + place};" for place, name in enumerate(REGISTERS)
        )
        begin += "mov.b32 %r6, 0; setp.lt.u32 %p7, %r0, 8;"
        step = "".join(self.body) + "add.u32 %r6, %r6, 1;"
        test = f"setp.lt.u32 %p4, %r6, {self.count}; setp.gt.f32 %p3, %r5, {self.limit};{ENDS[self.end]} and.pred %p5, %p3, %p4;"
        stores = "".join(
            f"st.global.b32 [%d7+{256 * place}], {name};" for place, name in enumerate((*REGISTERS, "%r6"))
        )
        if self.first:
            return f"{begin} AGAIN: {test} not.pred %p5, %p5; @%p5 bra DONE; {step} bra AGAIN; DONE:{stores}"
        return f"{begin} AGAIN: {step} {test} @%p5 bra AGAIN;{stores}"


def _instruction(dice: random.Random, end: str) -> str:
    one, other, third = (dice.choice(REGISTERS) for _ in range(3))
    number, further = dice.choice(CONSTANTS), dice.choice(CONSTANTS)
    kinds = [
        f"fma.rn.f32 {one}, {one}, {number}, {further};",
        f"add.f32 {one}, {one}, {other};",
        f"add.f32 {one}, {other}, {dice.choice(('%r2', '%r3', '%r4'))};",
        f"max.f32 %r46, {one}, {other}; max.f32 %r47, {other}, {third}; max.f32 %r48, %r46, %r47; mul.f32 {one}, %r48, {number};",
        f"setp.gt.u32 %p6, %r6, {dice.choice((0, 30, 75))}; selp.b32 {one}, {other}, {one}, %p6;",
        f"setp.lt.f32 %p6, {one}, {other}; selp.b32 {third}, {one}, {third}, %p6;",
        f"@%p7 mov.b32 {one}, {other};",
        f"@%p7 mov.b32 %r49, {one};",
        f"mov.b32 {one}, {other};",
        f"mul.wide.u32 %d30, %r6, 4; add.s64 %d31, %d1, %d30; ld.global.b32 %r45, [%d31]; add.f32 {one}, {one}, %r45;",
    ]
    if end != "thread":
        lanes = dice.choice((1, 2, 16))
        kinds += 3 * [
            f"shfl.sync.bfly.b32 %r43, {one}, {lanes}, 31, -1; {dice.choice(('add', 'max'))}.f32 {other}, {third}, %r43;"
        ]
    if end == "block":
        kinds += 3 * [
            f"bar.sync 0; st.shared.b32 [%d9+512], {one}; bar.sync 0; ld.shared.b32 %r43, [%d11+512]; add.f32 {other}, {other}, %r43;"
        ]
    return dice.choice(kinds)


def random_loop(dice: random.Random) -> Loop:
    """Return a loop."""
    end = dice.choice(tuple(ENDS))
    body = tuple(_instruction(dice, end) for _ in range(dice.randint(1, 4)))
    if dice.random() < 0.7:
        body = (*body, "fma.rn.f32 %r5, %r5, 0f3F780000, 0f3C800000;")
    if any("%r49" in each for each in body) and dice.random() < 0.5:
        body = (*body, dice.choice(("@%p7 ", "")) + "add.f32 %r42, %r42, %r49;")
    starts = tuple(dice.choice(STARTS) for _ in REGISTERS)
    return Loop(
        ("%r2", *starts[1:]),
        body,
        end,
        dice.choice(("0f3F800000", "0f3F400000")),
        dice.choice((80, 100)),
        dice.random() < 0.5,
    )


def changed(loop: Loop, dice: random.Random) -> Loop:
    """Return a loop with one change, after which it may return the same bytes or others."""
    body, place = list(loop.body), dice.randrange(len(loop.body))
    what = dice.randrange(8)
    if what == 0:
        return replace(loop, starts=tuple(dice.sample(loop.starts, len(loop.starts))))
    if what == 1:
        body[place] = _instruction(dice, loop.end)
    elif what == 2:
        other = dice.randrange(len(body))
        body[place], body[other] = body[other], body[place]
    elif what == 3:
        return replace(loop, count=loop.count + dice.choice((-10, 1)))
    elif what == 4 and body[place].startswith(("add", "fma")):
        opcode, one, *others = body[place].rstrip(";").replace(",", "").split()
        body[place] = f"{opcode} {', '.join((one, *reversed(others)))};"
    elif what == 5:
        one, other = dice.sample(REGISTERS, 2)
        body[place] = body[place].replace(one, "%r_").replace(other, one).replace("%r_", other)
    elif what == 6:
        body[place] = body[place].replace(", 1, 31", ", 2, 31").replace("%d11", "%d9").replace("max", "min")
    else:
        end = "vote" if loop.end == "warp" else loop.end
        return replace(loop, end=end, starts=(*loop.starts[:1], dice.choice(STARTS), *loop.starts[2:]))
    return replace(loop, body=tuple(body))


def family(seed: int, size: int) -> Iterator[Loop]:
    """Yield a loop and changes of it."""
    dice = random.Random(seed)
    root = random_loop(dice)
    members = [root]
    yield root
    for _ in range(size - 1):
        found = changed(dice.choice(members), dice)
        members.append(found)
        yield found
