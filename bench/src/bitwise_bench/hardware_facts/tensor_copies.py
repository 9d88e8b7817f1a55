"""Record which bits tensor copies change, by the element type of their map, on an sm_90 GPU.

python -m bitwise_bench.hardware_facts.tensor_copies --out records/tensor-copies-sm90-h200.json
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

Array = npt.NDArray[Any]

TYPES: Mapping[str, int] = MappingProxyType(
    {
        "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2,
        "f32.ftz": 4, "tf32": 4, "tf32.ftz": 4,
    }
)  # fmt: skip
"""The bytes of an element of each type, in the order of the driver's codes (`tensormap.replace` has another one)."""

BYTES = 1 << 20
_THREADS = 64
_TEXT = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .u64 raw, .param .u64 loaded) .reqntid {threads}
{{ .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<20>; .shared .align 128 .b8 tile[2048]; .shared .align 8 .b8 bar[8];
mov.b64 %d1, from; cvta.param.u64 %d1, %d1; mov.b64 %d2, to; cvta.param.u64 %d2, %d2; ld.param.u64 %d3, [raw];
ld.param.u64 %d4, [loaded]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, tile; mov.u32 %r3, bar;
setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p3, %r0, {lanes}; mul.lo.u32 %r4, %r1, {count}; mul.lo.u32 %r5, %r1, {size};
mad.lo.u32 %r5, %r0, 16, %r5; cvt.u64.u32 %d5, %r5; add.s64 %d6, %d3, %d5; add.s64 %d7, %d4, %d5; mad.lo.u32 %r6, %r0, 16, %r2;
@%p1 mbarrier.init.shared::cta.b64 [%r3], 1; fence.proxy.async.shared::cta; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {size};
@%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d1, {{%r4}}], [%r3];
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra W;
@%p3 ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r6]; @%p3 st.global.v4.b32 [%d7], {{%r10, %r11, %r12, %r13}};
@%p3 ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d6]; @%p3 st.shared.v4.b32 [%r6+1024], {{%r10, %r11, %r12, %r13}};
fence.proxy.async.shared::cta; bar.sync 0; add.u32 %r7, %r2, 1024;
@%p1 cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d2, {{%r4}}], [%r7];
@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0; ret; }}
"""  # noqa: E501 - a line of PTX is read as one
"""A block copies a box to shared memory and stores what it finds there, and copies another one back unchanged."""


def patterns(size: int, seed: int = 5) -> Array:
    """Return elements of a size in bytes: all of up to 16 bits, else special ones, subnormals, NaNs and others."""
    dice = np.random.default_rng(seed)
    if size <= 2:
        return np.resize(np.arange(1 << 8 * size).astype(f"u{size}"), BYTES // size)
    words = dice.integers(0, 1 << 32, BYTES // 4, dtype=np.uint32)
    if size == 8:
        found = words.view(np.uint64)
        found[:9000] &= np.uint64(0x800FFFFFFFFFFFFF)
        found[9000:20000] |= np.uint64(0x7FF0000000000000)
        return found
    words[:60_000] &= np.uint32(0x807FFFFF)
    words[60_000:90_000] |= np.uint32(0x7F800000)
    special = (
        0,
        0x80000000,
        1,
        0x7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7F800001,
        0x3F801000,
        0x3F803000,
        0x7F7FF000,
    )
    words[: len(special)] = special
    return words


def copied(device: Device, code: int, elements: Array) -> tuple[Array, Array]:
    """Return what copies to shared memory and copies from it leave of elements, through maps of the type of a code."""
    size = elements.dtype.itemsize
    count = min(256, 1024 // size)
    text = _TEXT.format(threads=_THREADS, lanes=count * size // 16, count=count, size=count * size)
    raw, loaded, stored = (device.allocated(elements.nbytes) for _ in range(3))
    device.check("cuMemcpyHtoD_v2", raw, elements.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(elements.nbytes))
    maps = [encoded(device, code, each, elements.size, count) for each in (raw, stored)]
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.check("cuModuleLoadData", ctypes.byref(module), device.assembled(text))
    device.check("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    cells = (*(at for _, at in maps), ctypes.addressof(raw), ctypes.addressof(loaded))
    table = (ctypes.c_void_p * len(cells))(*cells)
    device.check("cuLaunchKernel", function, elements.size // count, 1, 1, _THREADS, 1, 1, 0, None, table, None)
    device.check("cuCtxSynchronize")
    found = []
    for each in (loaded, stored):
        result = np.empty_like(elements)
        device.check("cuMemcpyDtoH_v2", result.ctypes.data_as(ctypes.c_void_p), each, ctypes.c_size_t(result.nbytes))
        found.append(result)
    for each in (raw, loaded, stored):
        device.check("cuMemFree_v2", each)
    return found[0], found[1]


def encoded(device: Device, code: int, pointer: ctypes.c_uint64, elements: int, box: int) -> tuple[Any, int]:
    """Return the memory of a map of a tensor of one dimension, and its aligned address."""
    memory = (ctypes.c_ubyte * 192)()
    at = (ctypes.addressof(memory) + 63) // 64 * 64
    extents, strides = (ctypes.c_uint64 * 1)(elements), (ctypes.c_uint64 * 1)(0)
    boxes, steps = (ctypes.c_uint32 * 1)(box), (ctypes.c_uint32 * 1)(1)
    device.check(
        "cuTensorMapEncodeTiled", ctypes.c_void_p(at), code, 1, ctypes.c_void_p(pointer.value), extents, strides, boxes,
        steps, 0, 0, 0, 0,
    )  # fmt: skip
    return memory, at


def _summary(before: Array, after: Array) -> dict[str, Any]:
    """Return how many elements differ, and how numbers and NaNs of 32 bits are changed."""
    changed = before != after
    found: dict[str, Any] = {"elements": int(before.size), "changed": int(changed.sum())}
    if before.dtype.itemsize == 4 and changed.any():
        wide, nan = before.astype(np.uint64), (before & np.uint32(0x7FFFFFFF)) > 0x7F800000
        even = (wide + 0xFFF + (wide >> np.uint64(13) & np.uint64(1))) & np.uint64(0xFFFFE000)
        found["numbers that are not rounded to nearest even in 10 bits"] = int((even != after)[~nan].sum())
        found["results of NaNs"] = [hex(int(each)) for each in np.unique(after[nan])[:4]]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the copies of every type."""
    parser = command_parser("hardware_facts.tensor_copies", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    device = Device()
    types = {}
    for code, (name, size) in enumerate(TYPES.items()):
        elements = patterns(size)
        loaded, stored = copied(device, code, elements)
        types[name] = {"load": _summary(elements, loaded), "store": _summary(elements, stored)}
        print(name, {kind: each["changed"] for kind, each in types[name].items()})
    record = {"environment": {**analysis_environment(), **device.environment()}, "types": types}
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
