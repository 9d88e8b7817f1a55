"""Record which lane's value remains where one store of a warp sends several to one address, on an sm_90 GPU.

Stores of 8 to 128 bits and their vectors, to shared and global memory, by all lanes, under a predicate and behind a
branch, with every cache operator, places at several distances, places of several warps in one sector, places that are
in the L1 cache, many blocks at once, and behind instructions that an assembler may expand to branches between lanes.

    python -m bitwise_bench.hardware_facts.colliding_stores --out records/colliding-stores-sm90-h200.json.xz
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_bench.adversary.device import Device
from bitwise_bench.hardware_facts.instruction_facts import HEAD, launched
from bitwise_bench.hardware_facts.measured_forms import record_forms

Array = npt.NDArray[Any]

SLOTS = 32
"""How many places a warp stores to."""
THREADS = 128
WARPS = THREADS // 32

_BODY = """shl.b32 %r4, %r3, 2; cvt.u64.u32 %d4, %r4; add.s64 %d4, %d1, %d4; ld.global.b32 %r5, [%d4];
and.b32 %r6, %r5, 31; and.b32 %r7, %r5, 32; setp.ne.u32 %p1, %r7, 0; and.b32 %r8, %r0, 31; shr.u32 %r9, %r0, 5;
mul.lo.u32 %r10, %r9, {of_warp}; mov.u32 %r11, tile; mad.lo.u32 %r15, %r6, {of_slot}, %r10;
mad.lo.u32 %r16, %r8, {of_slot}, %r10; mul.lo.u32 %r12, %r2, 4; mov.u32 %r13, %nctaid.x; mul.wide.u32 %d6, %r12, %r13;
add.s64 %d6, %d1, %d6; mul.wide.u32 %d7, %r1, {of_block}; add.s64 %d6, %d6, %d7;
cvt.u64.u32 %d8, %r15; add.s64 %d8, %d6, %d8; cvt.u64.u32 %d9, %r16; add.s64 %d9, %d6, %d9;
add.u32 %r15, %r15, %r11; add.u32 %r16, %r16, %r11;
mov.b32 %r17, -1; mov.b64 %d12, -1; mov.b16 %h5, -1;
{reset}
mad.lo.u32 %r20, %r8, 16843009, 16843009; mov.b32 %r18, 0; bar.sync 0;
{before}
setp.eq.u32 %p2, %r18, 1985229328; @%p2 add.u32 %r20, %r20, 1;
xor.b32 %r21, %r20, 1073741824; xor.b32 %r22, %r20, 541065216;
xor.b32 %r23, %r20, 269488144; mov.b64 %d10, {{%r20, %r21}}; mov.b64 %d11, {{%r22, %r23}};
mov.b32 {{%h1, %h2}}, %r20; mov.b32 {{%h3, %h4}}, %r21; shr.u32 %r30, %r20, 8; shr.u32 %r31, %r20, 16;
shr.u32 %r32, %r20, 24;
{store}
SKIP: bar.sync 0; mov.b32 %r24, 0; mov.b32 %r25, 0; mov.b32 %r26, 0; mov.b32 %r27, 0;
{read} st.global.v4.b32 [%d5], {{%r24, %r25, %r26, %r27}};"""
"""Each thread stores its lane's four words, or the first bytes of them, to the place of its warp that its given word
names (bits 0 to 4), if bit 5 is set.  Then it returns the bytes of the place of its own number.  %r18 is a result of
`before` that is not 1985229328."""

STORES: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "b8": (1, "%r20"),
        "v2.b8": (2, "{%r20, %r30}"),
        "b16": (2, "%h1"),
        "v4.b8": (4, "{%r20, %r30, %r31, %r32}"),
        "v2.b16": (4, "{%h1, %h2}"),
        "b32": (4, "%r20"),
        "v4.b16": (8, "{%h1, %h2, %h3, %h4}"),
        "v2.b32": (8, "{%r20, %r21}"),
        "b64": (8, "%d10"),
        "v4.b32": (16, "{%r20, %r21, %r22, %r23}"),
        "v2.b64": (16, "{%d10, %d11}"),
    }
)
"""The stores whose lanes collide: their bytes, and what each lane stores."""

CONTROL: Mapping[str, str] = MappingProxyType(
    {"all lanes": "{st}", "a predicate": "@%p1 {st}", "a branch": "@!%p1 bra SKIP; {st}"}
)
"""Which lanes take part in a store, and how the others are kept from it."""

_LOADS = MappingProxyType(
    {
        1: "ld.{space}.u8 %r24, [{own}];",
        2: "ld.{space}.u16 %r24, [{own}];",
        4: "ld.{space}.b32 %r24, [{own}];",
        8: "ld.{space}.v2.b32 {{%r24, %r25}}, [{own}];",
        16: "ld.{space}.v4.b32 {{%r24, %r25, %r26, %r27}}, [{own}];",
    }
)
"""A thread's load of its own place, by size."""

CACHE = ("wb", "cg", "cs", "wt", "L1::evict_first", "L1::evict_last", "L1::no_allocate")
"""The cache operators and priorities of stores to global memory."""

BEFORE: Mapping[str, str] = MappingProxyType(
    {
        "nothing": "",
        "loads of the places": "ld.{space}.u8 %r28, [{own}]; ld.{space}.u8 %r29, [{place}]; "
        "mad.lo.u32 %r18, %r28, 255, %r29; bar.sync 0;",
        "div.rn.f32": "mov.b32 %r28, 1065353216; setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 3, 1077936128, %p3; "
        "mov.b32 %f1, %r28; mov.b32 %f2, %r29; div.rn.f32 %f3, %f1, %f2; mov.b32 %r18, %f3;",
        "rcp.rn.f32": "setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 3, 1077936128, %p3; mov.b32 %f2, %r29; "
        "rcp.rn.f32 %f3, %f2; mov.b32 %r18, %f3;",
        "sqrt.rn.f32": "setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 3, 1077936128, %p3; mov.b32 %f2, %r29; "
        "sqrt.rn.f32 %f3, %f2; mov.b32 %r18, %f3;",
        "div.rn.f64": "setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 3, 1077936128, %p3; mov.b64 %g1, {{%r20, %r29}}; "
        "mov.f64 %g2, 0d3FF0000000000000; div.rn.f64 %g3, %g2, %g1; mov.b64 {{%r28, %r29}}, %g3; "
        "xor.b32 %r18, %r28, %r29;",
        "sqrt.rn.f64": "setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 3, 1077936128, %p3; mov.b64 %g1, {{%r20, %r29}}; "
        "sqrt.rn.f64 %g3, %g1; mov.b64 {{%r28, %r29}}, %g3; xor.b32 %r18, %r28, %r29;",
        "div.u64": "setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 0, 1077936128, %p3; mov.b64 %d13, {{%r20, %r29}}; "
        "mov.b64 %d14, {{%r33, 7}}; or.b64 %d14, %d14, 9; div.u64 %d15, %d13, %d14; "
        "mov.b64 {{%r28, %r29}}, %d15; xor.b32 %r18, %r28, %r29;",
        "rem.s64": "setp.lt.u32 %p3, %r33, 4; selp.b32 %r29, 0, 7, %p3; mov.b64 %d13, {{%r20, %r29}}; "
        "mov.b64 %d14, {{%r33, %r29}}; or.b64 %d14, %d14, 9; rem.s64 %d15, %d13, %d14; "
        "mov.b64 {{%r28, %r29}}, %d15; xor.b32 %r18, %r28, %r29;",
        "atomic sums of floats": "mov.u32 %r29, counts; mad.lo.u32 %r28, %r6, 4, %r29; mov.b32 %f1, 0f3F800000; "
        "atom.shared.add.f32 %f2, [%r28], %f1; mov.b32 %r18, %f2;",
        "work of some lanes": "".join(
            f"@%p1 mad.lo.u32 %r18, %r18, %r5, {turn}; @%p1 xor.b32 %r18, %r18, %r6;" for turn in range(40)
        ),
        "a loop of each lane": "mov.b32 %r28, 0; L: mad.lo.u32 %r18, %r18, %r5, 7; add.u32 %r28, %r28, 1; "
        "setp.le.u32 %p3, %r28, %r33; @%p3 bra L; bar.warp.sync -1;",
        "a loop of each lane before a shuffle": "mov.b32 %r28, 0; L: mad.lo.u32 %r18, %r18, %r5, 7; "
        "add.u32 %r28, %r28, 1; setp.le.u32 %p3, %r28, %r33; @%p3 bra L; "
        "shfl.sync.bfly.b32 %r29, %r18, 1, 31, -1; xor.b32 %r18, %r18, %r29;",
        "a branch of some lanes before a sum over lanes": "setp.lt.u32 %p3, %r33, 4; @%p3 bra M; "
        "cvt.rn.f32.u32 %f1, %r5; "
        "ex2.approx.f32 %f1, %f1; sqrt.rn.f32 %f1, %f1; mov.b32 %r18, %f1; atom.shared.add.u32 %r28, [counts], 1; "
        "M: shfl.sync.bfly.b32 %r29, %r18, 16, 31, -1; add.u32 %r18, %r18, %r29; "
        "shfl.sync.bfly.b32 %r29, %r18, 8, 31, -1; add.u32 %r18, %r18, %r29; "
        "shfl.sync.bfly.b32 %r29, %r18, 1, 31, -1; add.u32 %r18, %r18, %r29;",
        "a quotient before a shuffle": "mov.b32 %r28, 1065353216; setp.lt.u32 %p3, %r33, 4; "
        "selp.b32 %r29, 3, 1077936128, %p3; mov.b32 %f1, %r28; mov.b32 %f2, %r29; div.rn.f32 %f3, %f1, %f2; "
        "mov.b32 %r18, %f3; shfl.sync.idx.b32 %r29, %r18, 0, 31, -1; xor.b32 %r18, %r18, %r29;",
    }
)  # fmt: skip
"""What a thread does between the barrier and its store: %r33 are three bits of its given word."""


@dataclass(frozen=True, slots=True)
class Form:
    """How lanes collide.

    `distance` is the number of bytes from a place to the next one of the warp; with `mixed`, the places of a block's
    warps lie between each other.
    """

    memory: str
    store: str
    lanes: str
    distance: int
    cache: str = "wb"
    mixed: bool = False
    before: str = "nothing"
    blocks: int = 512


def forms() -> Iterator[Form]:
    """Yield all forms that are measured."""
    for kind, lanes in product(STORES, CONTROL):
        size = STORES[kind][0]
        for distance in sorted({size, 16, 32, 128}):
            yield Form("shared", kind, lanes, distance)
        yield Form("shared", kind, lanes, size, mixed=True)
        for distance in sorted({size, 16, 32, 64, 128, 4096}):
            yield Form("global", kind, lanes, distance, blocks=64 if distance == 4096 else 512)
        yield Form("global", kind, lanes, size, mixed=True)
        for operator in CACHE[1:]:
            for distance in (size, 128):
                yield Form("global", kind, lanes, distance, operator)
        for memory in ("shared", "global"):
            yield Form(memory, kind, lanes, 16, blocks=16384)
            if lanes != "a branch":
                for before in BEFORE:
                    if before != "nothing":
                        yield Form(memory, kind, lanes, 16, before=before)


def text(form: Form) -> str:
    """Return the text of a kernel whose lanes collide."""
    size, content = STORES[form.store]
    place, own = ("%r15", "%r16") if form.memory == "shared" else ("%d8", "%d9")
    cache_operator = "" if form.cache == "wb" else f".{form.cache}"
    store = f"st.{form.memory}{cache_operator}.{form.store} [{place}], {content};"
    values = {"b8": "%h5", "b16": "%h5", "b32": "%r17", "b64": "%d12"}
    *vector, kind = form.store.split(".")
    value = values[kind]
    empty = "{" + ", ".join([value] * int(vector[0][1])) + "}" if vector else value
    reset = f"st.{form.memory}.{form.store} [{own}], {empty};"
    names = {"space": form.memory, "own": own, "place": place}
    before = BEFORE[form.before].format(**names)
    of_warp, of_slot = (form.distance, form.distance * WARPS) if form.mixed else (form.distance * SLOTS, form.distance)
    body = _BODY.format(
        of_warp=of_warp,
        of_slot=of_slot,
        of_block=form.distance * SLOTS * WARPS,
        reset=reset,
        before=f"and.b32 %r33, %r5, 7; {before}" if before else "",
        store=CONTROL[form.lanes].format(st=store),
        read=_LOADS[size].format(space=form.memory, own=own),
    )
    registers = ".reg .b32 %r<40>; .reg .b16 %h<6>; .reg .f32 %f<4>; .shared .align 16 .b8 counts[128];"
    return HEAD.format(size=16, body=body).replace(".reg .b32 %r<40>;", registers)


@cache
def given_words(blocks: int) -> Array:
    """Return the given word of each thread: few or many places, and few or many lanes that take part."""
    dice = np.random.default_rng(11)
    shape = blocks, WARPS, 1
    used = np.array([1, 1, 2, 3, 4, 8, 32])[dice.integers(0, 7, shape)]
    taking = np.array([0.05, 0.2, 0.5, 0.9, 1.0])[dice.integers(0, 5, shape)]
    chosen = dice.integers(0, 32, (*shape[:2], 32)) % used
    moved = (chosen + dice.integers(0, 32, shape)) % SLOTS
    part = dice.random((*shape[:2], 32)) < taking
    return np.asarray((moved | part << 5).astype(np.uint32).reshape(blocks, THREADS))


def lanes_at_once(kind: str) -> int:
    """Return how many lanes a store may serve at once if it moves at most 128 bytes: 32, 16 or 8."""
    return min(32, 128 // STORES[kind][0])


@cache
def expected(blocks: int, kind: str, lanes: str, group: int) -> tuple[Array, Array]:
    """Return what each place holds if the lowest lane's value remains, and the places that several lanes store to.

    The lanes are in groups of `group`, of which the last one with a lane at the place decides.  The shapes are (warps,
    places, 4) and (warps, places).
    """
    words = given_words(blocks).reshape(-1, 32)
    slot, part = words & 31, (words & 32 != 0) | (lanes == "all lanes")
    numbers = np.arange(32, dtype=np.uint32)[:, None] * np.uint32(0x01010101) + np.uint32(0x01010101)
    content = (numbers ^ np.array([0, 1 << 30, 541065216, 269488144], np.uint32)).view(np.uint8)
    size = STORES[kind][0]
    found = np.zeros((len(words), SLOTS, 16), np.uint8)
    found[:, :, :size] = 255
    count = np.zeros((len(words), SLOTS), np.int64)
    for lane in sorted(range(32), key=lambda lane: (lane // group, -lane)):
        rows = np.flatnonzero(part[:, lane])
        found[rows, slot[rows, lane], :size] = content[lane, :size]
        count[rows, slot[rows, lane]] += 1
    return found.view(np.uint32), count > 1


def differences(seen: Array, kept: Array, several: Array) -> tuple[int, int, int]:
    """Return the number of places with several lanes, of those with another content than `kept`, and of such others.

    `seen` has the shape (blocks, threads, 4), the others those of `expected`.
    """
    other = (seen.reshape(kept.shape) != kept).any(axis=2)
    return int(several.sum()), int((other & several).sum()), int((other & ~several).sum())


def given_bytes(form: Form) -> Array:
    """Return the given words of a launch and room for the places in global memory behind them."""
    room = np.zeros(form.blocks * THREADS * form.distance // 4 + 1, np.uint32)
    return np.concatenate([given_words(form.blocks).ravel(), room])


def measured(device: Device, form: Form) -> dict[str, Any]:
    """Return how many places several lanes stored to, and how many hold another value than the rule states."""
    empty = np.zeros((form.blocks, THREADS, 4), np.uint32)
    seen = launched(device, text(form), given_bytes(form), empty, form.blocks, THREADS)
    group = lanes_at_once(form.store)
    names = ("collisions", "not the value of the lowest lane of the last group", "other differences")
    counts = differences(seen, *expected(form.blocks, form.store, form.lanes, group))
    lowest = differences(seen, *expected(form.blocks, form.store, form.lanes, 32))[1]
    return {**asdict(form), **dict(zip(names, counts, strict=True)), "not the lowest lane's value": lowest}


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the facts."""
    rows = record_forms("colliding_stores", __doc__, "stores", list(forms()), measured, arguments)
    total = sum(row["collisions"] for row in rows)
    wrong = sum(row["not the value of the lowest lane of the last group"] for row in rows)
    print(f"{len(rows)} forms, {total} collisions, {wrong} against the rule")


if __name__ == "__main__":
    main()
