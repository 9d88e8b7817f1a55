"""Record whether accesses of one warp to global memory take effect in program order, on an sm_90 GPU.

In each round the lanes of a warp load from places of each other, store to places of each other, and load again, with no
barrier between: a first load must find what was there before the store, and a second one what the store left.  Loads
and stores of 8 to 128 bits, with every cache operator, under predicates, at several distances, after loads that miss
all caches, with places in the L1 cache or not, and in many blocks at once.

    python -m bitwise_bench.hardware_facts.warp_order --out records/warp-order-sm90-h200.json.xz
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_bench.adversary.device import Device
from bitwise_bench.hardware_facts.instruction_facts import launched
from bitwise_bench.hardware_facts.measured_forms import record_forms

Array = npt.NDArray[Any]

SLOTS = 32
"""How many places the lanes of a warp access."""
ROUNDS = 6
FOLD = 33
"""The number of a thread is multiplied by this before each loaded word is added."""

_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 found)
{{ .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<60>; .reg .b32 %s<200>; .reg .b64 %d<200>;
ld.param.u64 %d1, [given]; ld.param.u64 %d2, [found]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d3, %r3, 4; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;
ld.global.b32 %r5, [%d4]; and.b32 %r8, %r0, 31; shr.u32 %r9, %r3, 5; mov.b32 %r18, 0;
and.b32 %r6, %r5, 32768; setp.ne.u32 %p1, %r6, 0; and.b32 %r6, %r5, 65536; setp.ne.u32 %p2, %r6, 0;
mul.wide.u32 %d6, %r9, {of_warp}; add.s64 %d6, %d6, {start}; add.s64 %d6, %d1, %d6;
mul.wide.u32 %d10, %r9, 128; add.s64 %d10, %d10, {cold}; add.s64 %d10, %d1, %d10;
shr.u32 %r11, %r5, 5; shr.u32 %r12, %r5, 10; mov.b32 %r19, 0;
{warm}
{addresses}
{rounds}
st.global.b32 [%d5], %r18;
ret; }}
"""

KINDS: Mapping[str, tuple[int, str, str]] = MappingProxyType(
    {
        "b8": (1, "%h1", "{0}"),
        "b16": (2, "%h1", "{0}"),
        "b32": (4, "%r20", "{0}"),
        "v2.b32": (8, "{%r20, %r21}", "{{{0}, {1}}}"),
        "b64": (8, "%d12", "{0}"),
        "v4.b32": (16, "{%r20, %r21, %r22, %r23}", "{{{0}, {1}, {2}, {3}}}"),
    }
)
"""The types of accesses: their bytes, what a lane stores, and the registers that it loads."""

LOADS = ("", "ca", "cg", "cs", "L1::evict_first", "L1::evict_last", "L1::no_allocate")
STORES = ("", "wb", "cg", "cs", "wt", "L1::evict_first", "L1::evict_last", "L1::no_allocate")
"""The cache operators and priorities."""

BEFORE = ("nothing", "a late address", "a late value", "warm places")
"""What precedes the accesses: the address of the first load, or the value that is stored, depends on a load that misses
all caches; or each lane has loaded all places."""

GUARDS = ("all lanes", "some lanes load", "some lanes store")


@dataclass(frozen=True, slots=True)
class Form:
    """How a warp accesses its places, `distance` bytes apart, in `blocks` blocks of `warps` warps."""

    load: str
    store: str
    distance: int
    load_cache: str = ""
    store_cache: str = ""
    before: str = "nothing"
    guard: str = "all lanes"
    warps: int = 1
    blocks: int = 512


def forms() -> Iterator[Form]:
    """Yield all forms that are measured."""
    for kind in KINDS:
        size = KINDS[kind][0]
        for distance, before, guard in product(sorted({size, 16, 32, 128, 4096}), BEFORE, GUARDS):
            yield Form(kind, kind, distance, before=before, guard=guard, blocks=64 if distance == 4096 else 512)
        for load, store in product(LOADS, STORES):
            if load or store:
                yield Form(kind, kind, 16, load, store)
        for warps, before in product((2, 4, 8), BEFORE):
            yield Form(kind, kind, size, before=before, warps=warps)
        yield Form(kind, kind, 32, blocks=16384)
        yield Form(kind, kind, size, blocks=16384, before="a late address")
    for load, store, before in product(KINDS, KINDS, BEFORE):
        if load != store:
            yield Form(load, store, 16, before=before)


def numbers(warps: int) -> Array:
    """Return the given word of each thread: the places of its loads and its store, and whether it loads and stores."""
    dice = np.random.default_rng(warps)
    loads = dice.integers(0, SLOTS, (2, warps, 32))
    store = np.argsort(dice.random((warps, 32)), axis=1)
    active = dice.random((2, warps, 32)) < 0.7
    word = loads[0] | store << 5 | loads[1] << 10 | active[0] << 15 | active[1] << 16
    return np.asarray(word.astype(np.uint32))


def places(words: Array, turn: int) -> tuple[Array, Array, Array]:
    """Return the places of the first load, the store and the second load of a round, shape (warps, 32)."""
    return (words + 5 * turn) & 31, ((words >> 5) + 11 * turn) & 31, ((words >> 10) + 3 * turn) & 31


def stored_words(turn: int) -> Array:
    """Return the four words that each lane stores in a round, shape (32, 4)."""
    first = np.arange(32, dtype=np.uint32) * np.uint32(0x01010101) + np.uint32(0x11111111 * (turn + 1))
    return np.stack([first, first ^ 0x40000000, first ^ 0x20402040, first ^ 0x10101010], axis=1).astype(np.uint32)


def text(form: Form) -> str:
    """Return the text of a kernel whose warps access places of each other's lanes."""
    count = form.blocks * form.warps
    start, of_warp = -(-count * 32 * 4 // 4096) * 4096, form.distance * SLOTS
    value = KINDS[form.store][1]
    addresses, rounds = [], []
    for turn in range(ROUNDS):
        for number, (source, step) in enumerate((("%r5", 5), ("%r11", 11), ("%r12", 3))):
            at = 20 + 3 * turn + number
            addresses.append(
                f"add.u32 %r13, {source}, {step * turn}; and.b32 %r13, %r13, 31; mul.wide.u32 %d{at}, %r13, "
                f"{form.distance}; add.s64 %d{at}, %d6, %d{at};"
            )
        late = form.before.startswith("a late")
        if late:
            rounds.append(f"ld.global.b32 %r19, [%d10+{16 * turn}];")
        first, store, second = (20 + 3 * turn + number for number in range(3))
        if form.before == "a late address":
            rounds.append(f"cvt.u64.u32 %d11, %r19; add.s64 %d{first}, %d{first}, %d11;")
        rounds.append(f"mad.lo.u32 %r20, %r8, 16843009, {0x11111111 * (turn + 1)};")
        if form.before == "a late value":
            rounds.append("add.u32 %r20, %r20, %r19;")
        rounds.append(
            "xor.b32 %r21, %r20, 1073741824; xor.b32 %r22, %r20, 541073472; xor.b32 %r23, %r20, 269488144; "
            "mov.b64 %d12, {%r20, %r21}; mov.b32 {%h1, %h2}, %r20;"
        )
        rounds += _load(form, first, 8 * turn, "@%p1 " if form.guard == "some lanes load" else "")
        guard = "@%p2 " if form.guard == "some lanes store" else ""
        cache = f".{form.store_cache}" if form.store_cache else ""
        rounds.append(f"{guard}st.global{cache}.{form.store} [%d{store}], {value};")
        rounds += _load(form, second, 8 * turn + 4, "")
    # The sums follow all accesses, so that no access waits for a loaded value.
    for turn, half in product(range(ROUNDS), range(2)):
        base = 8 * turn + 4 * half
        for word in range(max(1, KINDS[form.load][0] // 4)):
            rounds.append(f"mad.lo.u32 %r18, %r18, {FOLD}, %s{base + word};")
    warm = ""
    if form.before == "warm places":
        warm = " ".join(
            f"ld.global.u8 %r14, [%d6+{form.distance * slot}]; add.u32 %r19, %r19, %r14;" for slot in range(32)
        )
        warm += " setp.eq.u32 %p3, %r19, 4294967295; @%p3 mov.b32 %r18, 1;"
    return _HEAD.format(
        of_warp=of_warp,
        start=start,
        cold=start + count * of_warp,
        warm=warm,
        addresses="\n".join(addresses),
        rounds="\n".join(rounds),
    )


def _load(form: Form, address: int, base: int, guard: str) -> Iterator[str]:
    """Yield the instructions of a load to the registers %s<base> to %s<base + 3>; lanes without it have zeros."""
    size, _, registers = KINDS[form.load]
    cache = f".{form.load_cache}" if form.load_cache else ""
    names = [f"%s{base + word}" for word in range(4)]
    yield " ".join(f"mov.b32 {name}, 0;" for name in names[: max(1, size // 4)])
    if form.load == "b64":
        yield f"mov.b64 %d{60 + base}, 0; {guard}ld.global{cache}.b64 %d{60 + base}, [%d{address}];"
        yield f"mov.b64 {{{names[0]}, {names[1]}}}, %d{60 + base};"
    else:
        kind = form.load.replace("b8", "u8").replace("b16", "u16")
        yield f"{guard}ld.global{cache}.{kind} {registers.format(*names)}, [%d{address}];"


def given_bytes(form: Form) -> Array:
    """Return the given words of a launch, room for the places, and zeros that no cache holds."""
    count = form.blocks * form.warps
    start = -(-count * 32 * 4 // 4096) * 1024
    room = np.zeros(start + count * (form.distance * SLOTS + 128) // 4 + 64, np.uint32)
    room[: count * 32] = numbers(count).ravel()
    return room


def expected(form: Form) -> Array:
    """Return the number of each thread where all accesses of a warp take effect in program order."""
    count = form.blocks * form.warps
    words = numbers(count)
    memory = np.zeros((count, SLOTS, 16), np.uint8)
    loads, stores = (words >> 15) & 1 != 0, (words >> 16) & 1 != 0
    rows, width = np.arange(count)[:, None], KINDS[form.load][0]
    found = np.zeros(words.shape, np.uint32)
    size = KINDS[form.store][0]

    def loaded(place: Array, taking: Array | None) -> Array:
        seen = np.zeros((*place.shape, 16), np.uint8)
        seen[..., :width] = memory[rows, place][..., :width]
        numbers_of = seen.view(np.uint32)
        return numbers_of if taking is None else np.where(taking[..., None], numbers_of, np.uint32(0))

    for turn in range(ROUNDS):
        first, store, second = places(words, turn)
        one = loaded(first, loads if form.guard == "some lanes load" else None)
        content = np.broadcast_to(stored_words(turn).view(np.uint8)[None, :, :size], (count, 32, size))
        warp, lane = np.nonzero(stores if form.guard == "some lanes store" else np.ones_like(stores))
        memory[warp, store[warp, lane], :size] = content[warp, lane]
        two = loaded(second, None)
        for seen in (one, two):
            for word in range(max(1, width // 4)):
                found = found * np.uint32(FOLD) + seen[..., word]
    return found


def measured(device: Device, form: Form) -> dict[str, Any]:
    """Return how many threads there are, and how many loaded something else than program order leaves."""
    count = form.blocks * form.warps
    empty = np.zeros((count, 32), np.uint32)
    seen = launched(device, text(form), given_bytes(form), empty, form.blocks, 32 * form.warps)
    differing = int((seen != expected(form)).sum())
    return {**asdict(form), "threads": empty.size, "loads": 2 * ROUNDS * empty.size, "against program order": differing}


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the facts."""
    rows = record_forms("warp_order", __doc__, "forms", list(forms()), measured, arguments)
    loads, wrong = (sum(row[name] for row in rows) for name in ("loads", "against program order"))
    print(f"{len(rows)} forms, {loads} loads, {wrong} threads against program order")


if __name__ == "__main__":
    main()
