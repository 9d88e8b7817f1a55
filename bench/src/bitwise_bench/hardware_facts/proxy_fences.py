"""Record whether asynchronous reads see what threads have written without a proxy fence, on an sm_90 GPU.

A block fills tiles of shared memory by `cp.async` or by stores, waits, passes a barrier, and reads each tile at once by
`wgmma` or by a bulk copy to global memory, many times.  Each tile is compared with what global memory holds.  Rings of
one to four tiles, every swizzle, barriers of the block and memory barriers, other warps that load the memories, and
many blocks at once; with the fence, without it, and without the wait, which shows that tiles are found that come late.

    python -m bitwise_bench.hardware_facts.proxy_fences --out records/proxy-fences-sm90-h200.json.xz
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
from bitwise_bench.hardware_facts.instruction_facts import launched
from bitwise_bench.hardware_facts.measured_forms import record_forms

Array = npt.NDArray[Any]

WORKERS = 128
"""The threads of a block that fill and read tiles."""
ROWS = 64
"""The rows of a tile, which are columns of the second operand of a multiplication."""
TILES = 512
"""The tiles in global memory."""
STEP = 37
"""Each block begins so many tiles behind the one before it."""
FOLD = 33
"""The number of a thread is multiplied by this before each word of a result is added."""
OPERAND_BYTES = 16 * WORKERS
"""The first operand of the multiplications, in front of the tiles in global memory."""

WRITERS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "cp.async.cg 16": (16, "cp.async.cg.shared.global [{to}], [{source}], 16;"),
        "cp.async.ca 16": (16, "cp.async.ca.shared.global [{to}], [{source}], 16;"),
        "cp.async.ca 8": (8, "cp.async.ca.shared.global [{to}], [{source}], 8;"),
        "cp.async.ca 4": (4, "cp.async.ca.shared.global [{to}], [{source}], 4;"),
        "st.shared.v4.b32": (16, "st.shared.v4.b32 [{to}], {{%w{0}, %w{1}, %w{2}, %w{3}}};"),
        "st.shared.b32": (4, "st.shared.b32 [{to}], %w{0};"),
    }
)
"""How threads write a tile: the bytes of one instruction, and its text."""

READERS = ("second operand", "both operands", "bulk copy")
"""What reads a tile: `wgmma` as its second operand or as both, or a copy to global memory."""

BARRIERS = ("bar.sync", "mbarrier", "cp.async.mbarrier")
"""What orders the reads after the writes: in the last way the copies themselves arrive at a memory barrier."""

PRESSURE = ("none", "shared memory", "global memory")
"""What other warps of the block access meanwhile."""

SWIZZLES: Mapping[int, tuple[int, int]] = MappingProxyType({0: (32, 0), 32: (32, 3), 64: (64, 2), 128: (128, 1)})
"""The bytes of a row and the code of a descriptor, by the bytes of the swizzle; 0 is none."""

ORDERS = ("fence", "no fence", "no wait")
"""Between the writes and the barrier: a wait and a proxy fence, only the wait, or nothing."""


@dataclass(frozen=True, slots=True)
class Form:
    """How tiles are written and read: the ring has `stages` tiles, `turns` tiles are read by each block."""

    writer: str
    reader: str
    order: str
    stages: int = 2
    swizzle: int = 0
    barrier: str = "bar.sync"
    pressure: str = "none"
    blocks: int = 264
    turns: int = 256


def forms() -> Iterator[Form]:
    """Yield all forms that are measured."""
    for writer, reader, order in product(WRITERS, READERS, ORDERS[:2]):
        for stages, pressure in product((1, 2, 3, 4), PRESSURE):
            yield Form(writer, reader, order, stages, pressure=pressure)
        if reader != "bulk copy":
            for swizzle, stages in product((32, 64, 128), (2, 4)):
                yield Form(writer, reader, order, stages, swizzle)
        for barrier in BARRIERS[1:] if writer.startswith("cp.async") else BARRIERS[1:2]:
            for stages, pressure in product((2, 4), PRESSURE[:2]):
                yield Form(writer, reader, order, stages, barrier=barrier, pressure=pressure)
        if reader != "bulk copy":
            yield Form(writer, reader, order, 2, 128, pressure="shared memory", blocks=4224)
            yield Form(writer, reader, order, 4, 128, blocks=132, turns=4096)
    for writer, reader in product(("cp.async.cg 16", "cp.async.ca 4"), READERS):
        yield Form(writer, reader, "no wait", 2)


def tile_bytes(form: Form) -> int:
    """Return the bytes of a tile."""
    return ROWS * SWIZZLES[form.swizzle][0]


@cache
def given_bytes(size: int) -> Array:
    """Return the first operand and the tiles of a size in bytes."""
    dice = np.random.default_rng(size)
    return dice.integers(0, 256, OPERAND_BYTES + TILES * size, dtype=np.uint8)


def text(form: Form) -> str:
    """Return the text of a kernel that writes and reads tiles."""
    size = tile_bytes(form)
    stores = form.writer.startswith("st.")
    threads = WORKERS * (1 if form.pressure == "none" else 2)
    bulk = form.reader == "bulk copy"
    alone = form.stages == 1
    ahead = 0 if alone or stores else form.stages - 1
    arrivals = form.barrier == "cp.async.mbarrier"
    lines = [
        _HEAD.format(
            threads=threads,
            room=size * form.stages,
            first=-STEP % TILES,
            turns=form.turns,
            descriptor=_descriptor(form.swizzle),
            workers=WORKERS,
            skip=OPERAND_BYTES,
            step=STEP,
            mask=TILES - 1,
        )
    ]
    if form.pressure != "none":
        lines.append(_PRESSURE[form.pressure].format(workers=WORKERS, size=OPERAND_BYTES + TILES * size))
    # The tiles that are written before the loop; the registers of stores hold the next tile.
    for stage in range(ahead):
        lines += [f"mov.u32 %r20, {stage};", *_issue(form, size)]
    if stores:
        lines += _loads(form, size)
    lines.append("LOOP:")
    if alone:
        lines.append("bar.sync 1, 128;")
    if alone or stores:
        lines += ["mov.u32 %r20, %r21;", *_issue(form, size)]
    wait = [] if stores or arrivals or form.order == "no wait" else [f"cp.async.wait_group {max(0, ahead - 1)};"]
    fence = ["fence.proxy.async.shared::cta;"] if form.order == "fence" else []
    if arrivals:
        # The fence of each thread follows its own copies, whose end only the barrier shows.
        lines += [_WAIT.format(barrier="%r23", parity="%r22")]
        if fence:
            lines += [*fence, "bar.sync 1, 128;"]
    else:
        lines += [*wait, *fence]
        if form.barrier == "mbarrier":
            lines += ["mbarrier.arrive.shared.b64 %d30, [%r9];", _WAIT.format(barrier="%r9", parity="%r24")]
        else:
            lines.append("bar.sync 1, 128;")
    lines += _bulk_read(size) if bulk else _multiplications(form, size)
    if not alone and not stores:
        if arrivals:
            lines.append("bar.sync 1, 128;")
        lines += [f"add.u32 %r20, %r21, {ahead};", f"setp.ge.u32 %p4, %r20, {form.stages};"]
        lines += [f"@%p4 sub.u32 %r20, %r20, {form.stages};", *_issue(form, size)]
    if stores:
        lines += _loads(form, size)
    if bulk:
        lines.append("@%p3 cp.async.bulk.wait_group.read 0;")
    else:
        lines.append("wgmma.wait_group.sync.aligned 0;")
        lines += [f"mad.lo.u32 %h, %h, {FOLD}, %a{each};" for each in range(ROWS // 2)]
    lines += [
        "add.u32 %r21, %r21, 1; xor.b32 %r24, %r24, 1; add.u32 %r23, %r23, 8;",
        f"setp.eq.u32 %p4, %r21, {form.stages}; @%p4 mov.u32 %r21, 0; @%p4 xor.b32 %r22, %r22, 1;",
        "@%p4 mov.u32 %r23, %r10;",
        "add.u32 %r25, %r25, 1;",
        f"setp.lt.u32 %p4, %r25, {form.turns}; @%p4 bra LOOP;",
        "@%p3 cp.async.bulk.wait_group 0;" if bulk else "st.global.b32 [%d5], %h;",
        "cp.async.wait_all; bar.sync 1, 128;",
        "END: ret; }",
    ]
    return "\n".join(lines) + "\n"


_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 found)
.maxntid {threads}
{{ .reg .pred %p<9>; .reg .b32 %r<60>; .reg .b32 %a<40>; .reg .b32 %w<40>; .reg .b32 %h; .reg .b64 %d<40>;
.shared .align 1024 .b8 tiles[{room}]; .shared .align 16 .b8 other[4096]; .shared .align 8 .b8 barriers[64];
ld.param.u64 %d1, [given]; ld.param.u64 %d2, [found]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, {workers}, %r0; mul.wide.u32 %d3, %r2, 4; add.s64 %d5, %d2, %d3;
mov.u32 %r3, tiles; mov.u32 %r8, other; mov.u32 %r9, barriers; add.u32 %r10, %r9, 8; setp.eq.u32 %p3, %r0, 0;
@%p3 mbarrier.init.shared.b64 [%r9], 128; @%p3 mbarrier.init.shared.b64 [%r9+8], 128;
@%p3 mbarrier.init.shared.b64 [%r9+16], 128; @%p3 mbarrier.init.shared.b64 [%r9+24], 128;
@%p3 mbarrier.init.shared.b64 [%r9+32], 128; @%p3 fence.mbarrier_init.release.cluster; bar.sync 0;
mul.wide.u32 %d6, %r0, 16; add.s64 %d6, %d1, %d6; add.s64 %d7, %d1, {skip};
shr.u32 %r4, %r3, 4; cvt.u64.u32 %d8, %r4; or.b64 %d8, %d8, {descriptor};
mul.lo.u32 %r11, %r1, {step}; and.b32 %r11, %r11, {mask}; mov.u32 %r12, %r11;
mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, %r10; mov.u32 %r24, 0; mov.u32 %r25, 0; mov.u32 %h, 0;
setp.eq.u32 %p1, %r0, {workers}; setp.ge.u32 %p2, %r0, {workers}; setp.eq.u32 %p5, 0, 1;
setp.eq.u32 %p8, 0, 0; ld.global.v4.b32 {{%r50, %r51, %r52, %r53}}, [%d6];
"""
"""%r21 is the stage of the turn %r25, %r22 the parity of its barrier %r23, %r24 that of the barrier of all turns; %r12
is the number of the next tile that is written."""

_PRESSURE: Mapping[str, str] = MappingProxyType(
    {
        "none": "",
        "shared memory": """@!%p2 bra WORK; mov.u32 %r40, 0; sub.u32 %r41, %r0, {workers}; shl.b32 %r41, %r41, 4;
and.b32 %r41, %r41, 4095; add.u32 %r41, %r41, %r8; mov.u32 %r42, 0;
MORE: st.shared.v4.b32 [%r41], {{%r40, %r42, %r40, %r42}}; ld.shared.v4.b32 {{%r43, %r44, %r45, %r46}}, [%r41];
xor.b32 %r42, %r42, %r45; add.u32 %r42, %r42, %r43; add.u32 %r40, %r40, 1; setp.lt.u32 %p6, %r40, 4000; @%p6 bra MORE;
setp.eq.u32 %p7, %r42, 1234567; @%p7 st.shared.b32 [%r8], %r42; bra END;
WORK:""",
        "global memory": """@!%p2 bra WORK; mov.u32 %r40, 0; mov.u32 %r42, 0; mad.lo.u32 %r41, %r1, 7919, %r0;
MORE: mad.lo.u32 %r41, %r41, 1664525, 1013904223; rem.u32 %r43, %r41, {size}; and.b32 %r43, %r43, -16;
cvt.u64.u32 %d31, %r43; add.s64 %d31, %d1, %d31; ld.global.v4.b32 {{%r44, %r45, %r46, %r47}}, [%d31];
xor.b32 %r42, %r42, %r44; add.u32 %r40, %r40, 1; setp.lt.u32 %p6, %r40, 600; @%p6 bra MORE;
setp.eq.u32 %p7, %r42, 1234567; @%p7 st.shared.b32 [%r8], %r42; bra END;
WORK:""",
    }
)  # fmt: skip

_WAIT = (
    "{{ .reg .pred %done; AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [{barrier}], {parity}; "
    "@!%done bra AGAIN; }}"
)


def _descriptor(swizzle: int) -> int:
    """Return a descriptor of a tile without its address."""
    row, code = SWIZZLES[swizzle]
    leading, stride = (128, 256) if swizzle == 0 else (16, 8 * row)
    return leading >> 4 << 16 | stride >> 4 << 32 | code << 62


def _issue(form: Form, size: int) -> list[str]:
    """Return the instructions by which each thread writes its part of the next tile to the stage %r20."""
    width, instruction = WRITERS[form.writer]
    lines = [f"mad.lo.u32 %r30, %r20, {size}, %r3; mad.lo.u32 %r30, %r0, {width}, %r30;"]
    stores = form.writer.startswith("st.")
    if not stores:
        lines.append(_source(size, width))
    for number, at in enumerate(range(0, size, width * WORKERS)):
        words = [number * width // 4 + each for each in range(4)]
        lines.append(instruction.format(*words, to=f"%r30+{at}", source=f"%d20+{at}"))
    if stores:
        return lines
    if form.barrier == "cp.async.mbarrier":
        lines.append(
            "shl.b32 %r31, %r20, 3; add.u32 %r31, %r31, %r10; cp.async.mbarrier.arrive.noinc.shared.b64 [%r31];"
        )
    else:
        lines.append("cp.async.commit_group;")
    return lines


def _source(size: int, width: int) -> str:
    """Return the instructions that compute where a thread's part of the next tile begins, and go to the next one."""
    return (
        f"mul.wide.u32 %d20, %r12, {size}; add.s64 %d20, %d20, %d7; mul.wide.u32 %d21, %r0, {width}; "
        f"add.s64 %d20, %d20, %d21; add.u32 %r12, %r12, 1; and.b32 %r12, %r12, {TILES - 1};"
    )


def _loads(form: Form, size: int) -> list[str]:
    """Return the instructions that load a thread's part of the next tile to registers."""
    width = WRITERS[form.writer][0]
    lines = [_source(size, width)]
    for number, at in enumerate(range(0, size, width * WORKERS)):
        words = [f"%w{number * width // 4 + each}" for each in range(width // 4)]
        lines.append(
            f"ld.global.b32 {words[0]}, [%d20+{at}];"
            if width == 4
            else f"ld.global.v4.b32 {{{', '.join(words)}}}, [%d20+{at}];"
        )
    return lines


def _multiplications(form: Form, size: int) -> list[str]:
    """Return the instructions that multiply with the tile of the stage %r21."""
    d = ", ".join(f"%a{each}" for each in range(ROWS // 2))
    lines = [
        f"mul.lo.u32 %r32, %r21, {size >> 4}; cvt.u64.u32 %d22, %r32; add.s64 %d22, %d22, %d8;",
    ]
    lines.append("wgmma.fence.sync.aligned;")
    for step in range(SWIZZLES[form.swizzle][0] // 32):
        at = f"%d{23 + step}"
        first = "{%r50, %r51, %r52, %r53}" if form.reader == "second operand" else at
        scale = "%p5" if step == 0 else "%p8"
        lines.append(f"add.s64 {at}, %d22, {2 * step};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {{{d}}}, {first}, {at}, {scale};")
    lines.append("wgmma.commit_group.sync.aligned;")
    return lines


def _bulk_read(size: int) -> list[str]:
    """Return the instructions by which one thread copies the tile of the stage %r21 to global memory."""
    return [
        f"mad.lo.u32 %r32, %r21, {size}, %r3; mov.u32 %r33, %nctaid.x; mad.lo.u32 %r33, %r25, %r33, %r1; "
        f"mul.wide.u32 %d22, %r33, {size}; add.s64 %d22, %d22, %d2;",
        f"@%p3 cp.async.bulk.global.shared::cta.bulk_group [%d22], [%r32], {size};",
        "@%p3 cp.async.bulk.commit_group;",
    ]


def tile_numbers(form: Form) -> Array:
    """Return the number of the tile of each turn of each block, shape (turns, blocks)."""
    return (np.arange(form.blocks) * STEP + np.arange(form.turns)[:, None]) % TILES


@cache
def products(swizzle: int, both: bool) -> Array:
    """Return what each thread adds to its number for each tile, shape (tiles, threads)."""
    row = SWIZZLES[swizzle][0]
    size = ROWS * row
    given = given_bytes(size)
    tiles = given[OPERAND_BYTES:].reshape(TILES, size)
    n, k = np.arange(ROWS)[:, None], np.arange(row)[None, :]
    if swizzle == 0:
        place = n // 8 * 256 + k // 16 * 128 + n % 8 * 16 + k % 16
    else:
        place = n * row + k
        place ^= (place >> 7 & (swizzle // 16 - 1)) << 4
    right = tiles[:, place].view(np.int8).astype(np.float32)
    left = right if both else np.tile(_first_operand(given), (1, 1, row // 32))
    # The sums are below 2^24, so that fp32 holds them.
    results = (left @ right.transpose(0, 2, 1)).astype(np.int64)
    found = np.zeros((TILES, WORKERS), np.int64)
    thread = np.arange(WORKERS)
    rows, columns = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    for each in range(ROWS // 2):
        found = found * FOLD + results[:, rows + each % 4 // 2 * 8, columns + each // 4 * 8 + each % 2]
        found &= 0xFFFFFFFF
    return found.astype(np.uint32)


def _first_operand(given: Array) -> Array:
    """Return the matrix of 64 rows and 32 columns that the threads hold in registers, with a leading axis."""
    words = given[:OPERAND_BYTES].view(np.int8).reshape(WORKERS, 4, 4)
    found = np.zeros((1, 64, 32), np.float32)
    thread = np.arange(WORKERS)
    rows, columns = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 4
    for word, byte in product(range(4), range(4)):
        found[0, rows + word % 2 * 8, columns + word // 2 * 16 + byte] = words[:, word, byte]
    return found


def expected(form: Form) -> Array:
    """Return the results: the bytes of all tiles in order, or the number of each thread."""
    order, size = tile_numbers(form), tile_bytes(form)
    if form.reader == "bulk copy":
        return given_bytes(size)[OPERAND_BYTES:].reshape(TILES, size)[order]
    added = products(form.swizzle, form.reader == "both operands")
    found = np.zeros((form.blocks, WORKERS), np.uint32)
    times = np.uint32(pow(FOLD, ROWS // 2, 1 << 32))
    for turn in order:
        found = found * times + added[turn]
    return found


def measured(device: Device, form: Form) -> dict[str, Any]:
    """Return how many tiles were read, and how many threads or tiles have other results than those of the tiles."""
    wanted = expected(form)
    threads = WORKERS * (1 if form.pressure == "none" else 2)
    seen = launched(device, text(form), given_bytes(tile_bytes(form)), np.zeros_like(wanted), form.blocks, threads)
    other = (seen != wanted).any(axis=2) if wanted.ndim == 3 else seen != wanted
    return {**asdict(form), "tiles": form.blocks * form.turns, "other results": int(other.sum()), "of": other.size}


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the facts."""
    rows = record_forms("proxy_fences", __doc__, "forms", list(forms()), measured, arguments)
    for order, stores in product(ORDERS, (False, True)):
        of = [row for row in rows if row["order"] == order and row["writer"].startswith("st.") == stores]
        tiles, wrong = sum(row["tiles"] for row in of), sum(row["other results"] for row in of)
        what = "stores" if stores else "copies"
        print(f"{order}, {what}: {len(of)} forms, {tiles} tiles, {wrong} other results")


if __name__ == "__main__":
    main()
