"""Record facts that the analysis takes from the PTX ISA or from rows, and that an sm_90 GPU can show.

Which lane `elect.sync` elects, whether `%warpid` is the number of a thread over 32, what steps of zeros of matrix units
leave of an accumulator, and which lane's value remains where one store of a warp sends several to one address.

    python -m bitwise_bench.hardware_facts --out records/hardware-facts-sm90-h200.json
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_bench.adversary.device import Device
from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_core.numerics import FLOAT_FORMATS, nan_of, storage
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.numerics.mma.evaluation import multiply_accumulate
from bitwise_core.plugins import registry

Array = npt.NDArray[Any]

_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 found)
{{ .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f64 %g<9>; .shared .align 128 .b8 tile[16384];
ld.param.u64 %d1, [given]; ld.param.u64 %d2, [found]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0; mul.wide.u32 %d3, %r3, {size}; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;
{body}
ret; }}
"""
"""Each thread has {size} bytes of the given elements at %d4, and of the results at %d5."""

_ELECT = """mul.wide.u32 %d6, %r1, 4; add.s64 %d6, %d1, %d6; ld.global.b32 %r4, [%d6]; mov.b32 %r7, 0;
shr.u32 %r5, %r4, %r0; and.b32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @!%p1 bra DONE;
elect.sync %r6|%p2, %r4; selp.b32 %r7, 1, 0, %p2; shl.b32 %r6, %r6, 8; or.b32 %r7, %r7, %r6; or.b32 %r7, %r7, 65536;
DONE: st.global.b32 [%d5], %r7;"""
"""A thread in the mask of its block stores whether it is elected, and which lane it is told."""

_WARPS = "mov.u32 %r4, %warpid; mov.u32 %r5, %nwarpid; st.global.v2.b32 [%d5], {%r4, %r5};"

_ZERO_TILES = """mov.u32 %r4, tile; mov.b32 %r5, 0; mov.u32 %r6, 0;
Z: mad.lo.u32 %r7, %r6, 2048, %r4; mad.lo.u32 %r7, %r0, 16, %r7; st.shared.v4.b32 [%r7], {%r5, %r5, %r5, %r5};
add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 8; @%p1 bra Z; fence.proxy.async.shared::cta; bar.sync 0;
shr.u32 %r4, %r4, 4; cvt.u64.u32 %d6, %r4; or.b64 %d6, %d6, 34359803904; setp.eq.u32 %p2, %r5, 0;"""
"""128 threads fill the tiles with zeros; %d6 becomes a descriptor of both."""

_SLOTS = 32
"""How many places a warp stores to in a measurement of colliding lanes."""

_COLLIDE = """shl.b32 %r4, %r3, 2; cvt.u64.u32 %d4, %r4; add.s64 %d4, %d1, %d4; ld.global.b32 %r5, [%d4];
and.b32 %r6, %r5, 31; and.b32 %r7, %r5, 32; setp.ne.u32 %p1, %r7, 0; and.b32 %r8, %r0, 31; shr.u32 %r9, %r0, 5;
mul.lo.u32 %r10, %r9, {region}; mov.u32 %r11, tile; add.u32 %r11, %r11, %r10;
mul.lo.u32 %r12, %r2, 4; mov.u32 %r13, %nctaid.x; mul.wide.u32 %d6, %r12, %r13; add.s64 %d6, %d1, %d6;
shr.u32 %r14, %r3, 5; mul.wide.u32 %d7, %r14, {region}; add.s64 %d6, %d6, %d7;
mad.lo.u32 %r15, %r6, {stride}, %r11; mad.lo.u32 %r16, %r8, {stride}, %r11;
mul.wide.u32 %d8, %r6, {stride}; add.s64 %d8, %d6, %d8; mul.wide.u32 %d9, %r8, {stride}; add.s64 %d9, %d6, %d9;
mov.b32 %r17, -1; st.shared.v4.b32 [%r16], {{%r17, %r17, %r17, %r17}};
st.global.v4.b32 [%d9], {{%r17, %r17, %r17, %r17}};
mad.lo.u32 %r20, %r8, 16843009, 16843009; xor.b32 %r21, %r20, 1073741824; xor.b32 %r22, %r20, 541065216;
xor.b32 %r23, %r20, 269488144; mov.b64 %d10, {{%r20, %r21}}; mov.b64 %d11, {{%r22, %r23}}; cvt.u16.u32 %h1, %r20;
bar.sync 0;
{store}
SKIP: bar.sync 0;
{read} add.s64 %d5, %d2, %d3; st.global.v4.b32 [%d5], {{%r24, %r25, %r26, %r27}};"""
"""Each thread stores its lane's four words, or the first bytes of them, to the slot of its warp that its given word
names (bits 0 to 4), if bit 5 is set.  Then it returns the first 16 bytes of the slot of its own number."""

COLLIDING_STORES: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "b8": (1, "%r20"),
        "b16": (2, "%h1"),
        "b32": (4, "%r20"),
        "b64": (8, "%d10"),
        "v2.b32": (8, "{%r20, %r21}"),
        "v4.b32": (16, "{%r20, %r21, %r22, %r23}"),
        "v2.b64": (16, "{%d10, %d11}"),
    }
)
"""The stores whose lanes collide: their bytes, and what each lane stores."""

COLLIDING_CONTROL: Mapping[str, str] = MappingProxyType(
    {"all lanes": "{st}", "a predicate": "@%p1 {st}", "a branch": "@!%p1 bra SKIP; {st}"}
)
"""Which lanes take part in a store, and how the others are kept from it."""

GROUP_TYPES: Mapping[str, str] = MappingProxyType({"fp16": "f16", "bf16": "bf16", "tf32": "tf32"})


def steps() -> list[MmaSpec]:
    """Return the rows of sm_90 whose steps of zeros are executed: sums of floats in fp32, fp16 and fp64."""
    rows = registry.default().matrix_units.values()
    kept = [each for each in rows if each.architecture == "sm_90" and each.accumulator in ("fp16", "fp32", "fp64")]
    return [each for each in kept if each.accumulator == each.result]


def step_of_zeros(row: MmaSpec) -> tuple[str, int, int]:
    """Return the text of a kernel that adds a step of zeros, its threads, and the bytes of each thread's accumulators.

    Raises ValueError for a row whose instruction is not written here.
    """
    held = {"fp64": "f64", "fp32": "f32", "fp16": "f16"}[row.accumulator]
    types = [GROUP_TYPES.get(each, each) for each in (row.left, row.right)]
    count = {"fp64": 2, "fp32": 4, "fp16": 2}[row.accumulator]
    d = ", ".join(f"%r{20 + each}" for each in range(count))
    group = row.family == "wgmma"
    load = f"ld.global.v{count}.b32 {{{d}}}, [%d4];"
    store = f"st.global.v{count}.b32 [%d5], {{{d}}};"
    if group:
        swapped = ", 0, 0" if row.left in ("fp16", "bf16") else ""
        operands = f"{{{d}}}, %d6, %d6, %p2, 1, 1{swapped}"
        if row.accumulator == "fp64":
            raise ValueError(row.name)
        step = (
            f"{_ZERO_TILES} {load} wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k{row.k}."
            f"{held}.{'.'.join(types)} {operands}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; "
        )
        return _HEAD.format(size=4 * count, body=step + store), 128, 4 * count
    if row.family != "mma.sync":
        raise ValueError(row.name)
    if row.accumulator == "fp64":
        if row.k != 4:
            raise ValueError(row.name)
        body = (
            "ld.global.v2.f64 {%g1, %g2}, [%d4]; mov.f64 %g0, 0d0000000000000000; "
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%g3, %g4}, {%g0}, {%g0}, {%g1, %g2}; "
            "st.global.v2.f64 [%d5], {%g3, %g4};"
        )
        return _HEAD.format(size=16, body=body), 32, 16
    width = {"fp16": 2, "bf16": 2, "tf32": 4}.get(row.left, 1)
    words = row.k * width // 16
    a, b = ", ".join(["%r9"] * 2 * words), ", ".join(["%r9"] * words)
    step = (
        f"mov.b32 %r9, 0; {load} mma.sync.aligned.m16n8k{row.k}.row.col.{held}.{types[0]}.{types[1]}.{held} "
        f"{{{d}}}, {{{a}}}, {{{b}}}, {{{d}}}; "
    )
    return _HEAD.format(size=4 * count, body=step + store), 32, 4 * count


def accumulators(row: MmaSpec, count: int) -> Array:
    """Return accumulators of a row: random bits, small numbers, subnormal numbers, both zeros, and specials."""
    form = FLOAT_FORMATS[row.accumulator]
    dice = np.random.default_rng(7)
    found = dice.integers(0, 1 << min(form.bits, 63), size=count, dtype=np.uint64)
    if form.bits == 64:
        found |= dice.integers(0, 2, size=count, dtype=np.uint64) << np.uint64(63)
    found[: count // 8] = dice.integers(0, 1 << form.mantissa_bits, size=count // 8)
    sign = 1 << form.bits - 1
    infinity = sign - (1 << form.mantissa_bits)
    special = (0, sign, 1, sign | 1, infinity, sign | infinity, infinity - 1, infinity | 1 << form.mantissa_bits - 1)
    found[: len(special)] = special
    return found.astype(storage(form.bits))


def after_zeros(row: MmaSpec, given: Array) -> Array:
    """Return what the row states for a step of +0 on these accumulators."""
    left, right = (storage(FLOAT_FORMATS[each].bits) for each in (row.left, row.right))
    side = given.reshape(-1, 8)
    zeros = np.zeros((len(side), row.k), left), np.zeros((row.k, 8), right)
    return np.asarray(multiply_accumulate(row, *zeros, side)).reshape(-1)


def masks() -> Array:
    """Return masks of lanes: each lane, each pair, all but one or two, runs, and random ones."""
    one = [1 << lane for lane in range(32)]
    pairs = [a | b for a in one for b in one]
    runs = [((1 << length) - 1) << start for start in range(32) for length in range(1, 33 - start)]
    dice = np.random.default_rng(3).integers(1, 1 << 32, 60_000)
    whole = (1 << 32) - 1
    found = [*pairs, *(whole ^ each for each in pairs), *runs, *dice.tolist()]
    return np.unique(np.array(found, dtype=np.uint32))


def launched(device: Device, text: str, given: Array, results: Array, blocks: int, threads: int) -> Array:
    """Launch a kernel on given elements, and return the results, of the shape and type of `results`."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.check("cuModuleLoadData", ctypes.byref(module), device.assembled(text))
    device.check("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    given, results = np.ascontiguousarray(given), np.ascontiguousarray(results)
    pointers = [device.allocated(each.nbytes) for each in (given, results)]
    for pointer, each in zip(pointers, (given, results), strict=True):
        device.check("cuMemcpyHtoD_v2", pointer, each.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(each.nbytes))
    table = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in pointers))
    device.check("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, table, None)
    device.check("cuCtxSynchronize")
    found = np.empty_like(results)
    device.check("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), pointers[1], ctypes.c_size_t(found.nbytes))
    for pointer in pointers:
        device.check("cuMemFree_v2", pointer)
    device.check("cuModuleUnload", module)
    return found


def elections(device: Device) -> dict[str, Any]:
    """Return how many masks elect exactly their first lane, and tell it to all their lanes."""
    given = masks()
    empty = np.zeros((len(given), 32), np.uint32)
    found = launched(device, _HEAD.format(size=4, body=_ELECT), given, empty, len(given), 32)
    lanes = np.arange(32, dtype=np.uint32)
    inside = (given[:, None] >> lanes & 1).astype(bool)
    first = np.argmax(inside, axis=1)
    expected = np.where(inside, 65536 + (first[:, None] << 8) + (lanes == first[:, None]), 0)
    return {"masks": len(given), "masks that do not elect their first lane": int((found != expected).any(1).sum())}


def warp_numbers(device: Device) -> list[dict[str, int]]:
    """Return for blocks of several sizes in how many threads `%warpid` and `%nwarpid` are those of the block."""
    found = []
    for threads in (32, 96, 256, 1024):
        blocks = 4096
        empty = np.zeros((blocks, threads, 2), np.uint32)
        seen = launched(device, _HEAD.format(size=8, body=_WARPS), np.zeros(1, np.uint32), empty, blocks, threads)
        of_block = np.arange(threads) // 32
        found.append(
            {
                "threads of a block": threads,
                "threads": blocks * threads,
                "%warpid is not tid / 32": int((seen[:, :, 0] != of_block).sum()),
                "%nwarpid is not ntid / 32": int((seen[:, :, 1] != threads // 32).sum()),
            }
        )
    return found


def colliding_text(space: str, kind: str, control: str, stride: int) -> str:
    """Return the text of a kernel whose lanes store to slots `stride` bytes apart, see `_COLLIDE`."""
    address, own = ("%r15", "%r16") if space == "shared" else ("%d8", "%d9")
    store = COLLIDING_CONTROL[control].format(st=f"st.{space}.{kind} [{address}], {COLLIDING_STORES[kind][1]};")
    read = f"ld.{space}.v4.b32 {{%r24, %r25, %r26, %r27}}, [{own}];"
    body = _COLLIDE.format(region=_SLOTS * stride, stride=stride, store=store, read=read)
    return _HEAD.format(size=16, body=body).replace(".reg .b32 %r<40>;", ".reg .b32 %r<40>; .reg .b16 %h<4>;")


def collisions_given(blocks: int, threads: int) -> Array:
    """Return the given word of each thread: few or many slots, and few or many lanes that take part."""
    dice = np.random.default_rng(11)
    shape = blocks, threads // 32, 1
    used = np.array([1, 1, 2, 3, 4, 8, 32])[dice.integers(0, 7, shape)]
    taking = np.array([0.05, 0.2, 0.5, 0.9, 1.0])[dice.integers(0, 5, shape)]
    chosen = dice.integers(0, 32, (*shape[:2], 32)) % used
    moved = (chosen + dice.integers(0, 32, shape)) % _SLOTS
    part = dice.random((*shape[:2], 32)) < taking
    return np.asarray((moved | part << 5).astype(np.uint32).reshape(blocks, threads))


def lanes_at_once(kind: str) -> int:
    """Return how many lanes a store may serve at once if it moves at most 128 bytes: 32, 16 or 8."""
    return min(32, 128 // COLLIDING_STORES[kind][0])


def of_lowest_lanes(given: Array, kind: str, control: str, group: int = 32) -> tuple[Array, Array]:
    """Return what each slot holds if the lowest lane's value remains, and the slots that several lanes store to.

    The lanes are in groups of `group`, of which the last one with a lane at the slot decides.  The shapes are (warps,
    slots, 4) and (warps, slots).
    """
    words = given.reshape(-1, 32)
    slot, part = words & 31, (words & 32 != 0) | (control == "all lanes")
    lanes = np.arange(32, dtype=np.uint32)[:, None] * np.uint32(0x01010101) + np.uint32(0x01010101)
    content = (lanes ^ np.array([0, 1 << 30, 541065216, 269488144], np.uint32)).view(np.uint8)
    found = np.full((len(words), _SLOTS, 16), 255, np.uint8)
    count = np.zeros((len(words), _SLOTS), np.int64)
    size = COLLIDING_STORES[kind][0]
    for lane in sorted(range(32), key=lambda lane: (lane // group, -lane)):
        rows = np.flatnonzero(part[:, lane])
        found[rows, slot[rows, lane], :size] = content[lane, :size]
        count[rows, slot[rows, lane]] += 1
    return found.view(np.uint32), count > 1


def differences(seen: Array, expected: Array, several: Array) -> tuple[int, int, int]:
    """Return the number of slots with several lanes, of those with another content than expected, and of such others.

    `seen` has the shape (blocks, threads, 4), the others those of `of_lowest_lanes`.
    """
    other = (seen.reshape(expected.shape) != expected).any(axis=2)
    return int(several.sum()), int((other & several).sum()), int((other & ~several).sum())


def colliding_lanes(device: Device, blocks: int = 512) -> list[dict[str, Any]]:
    """Return for each kind of store how many slots several lanes store to, and how many hold no lowest lane's value."""
    threads = 128
    found = []
    for space in ("shared", "global"):
        for kind in COLLIDING_STORES:
            for control in COLLIDING_CONTROL:
                counts, of_groups = np.zeros(3, dtype=np.int64), 0
                for stride in (16, 128):
                    words = collisions_given(blocks, threads)
                    given = np.concatenate([words.ravel(), np.zeros(blocks * threads * stride // 4, np.uint32)])
                    empty = np.zeros((blocks, threads, 4), np.uint32)
                    text = colliding_text(space, kind, control, stride)
                    seen = launched(device, text, given, empty, blocks, threads)
                    counts += differences(seen, *of_lowest_lanes(words, kind, control))
                    grouped = of_lowest_lanes(words, kind, control, lanes_at_once(kind))
                    of_groups += differences(seen, *grouped)[1]
                names = ("collisions", "not the lowest lane's value", "other differences")
                row = {**dict(zip(names, counts.tolist(), strict=True)), "lanes of a group": lanes_at_once(kind)}
                row["not the value of the lowest lane of the last group"] = of_groups
                found.append({"memory": space, "store": kind, "lanes": control, **row})
                print(found[-1], flush=True)
    return found


def zero_steps(device: Device) -> dict[str, dict[str, int]]:
    """Return for each row how many accumulators a step of zeros leaves as the row states, and how many it changes."""
    found = {}
    for row in steps():
        try:
            text, threads, size = step_of_zeros(row)
        except ValueError:
            continue
        form = FLOAT_FORMATS[row.accumulator]
        blocks = 256
        given = accumulators(row, blocks * threads * size * 8 // form.bits)
        after, expected = launched(device, text, given, given, blocks, threads), after_zeros(row, given)
        nan = nan_of(given, form)
        found[row.name] = {
            "accumulators": int(given.size),
            "changed": int((after != given)[~nan].sum()),
            "not as the row states": int(((after != expected) & ~(nan & nan_of(after, form))).sum()),
        }
        print(row.name, found[row.name], flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the facts."""
    parser = command_parser("hardware_facts", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    device = Device()
    record = {
        "environment": {**analysis_environment(), **device.environment()},
        "elect.sync": elections(device),
        "warp numbers": warp_numbers(device),
        "steps of zeros": zero_steps(device),
        "colliding lanes": colliding_lanes(device),
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
