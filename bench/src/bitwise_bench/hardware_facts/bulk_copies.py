"""Record what bulk copies without a tensor map leave in memory, against the bytes that they name, on an sm_90 GPU.

python -m bitwise_bench.hardware_facts.bulk_copies --out records/bulk-copies-sm90-h200.json
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bitwise_bench.adversary.device import Device
from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment

Bytes = npt.NDArray[np.uint8]

ROOM = 1 << 14
"""The bytes of shared memory, of the input of a block and of its output."""
UNIT = 16
"""Addresses and sizes are multiples of this number of bytes."""
BLOCKS = 64

_TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) .reqntid 64
{{ .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<20>; .shared .align 128 .b8 room[{room}]; .shared .align 8 .b8 barrier[8];
ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, room;
mov.u32 %r3, barrier; mul.wide.u32 %d3, %r1, {room}; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
setp.eq.u32 %p1, %r0, 0; @!%p1 bra DONE; mbarrier.init.shared::cta.b64 [%r3], 1; fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {total};
{loads}
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra WAIT;
{stores}
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE: ret; }}
"""  # noqa: E501 - a line of PTX is read as one


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes from one place to another."""

    source: int
    target: int
    size: int


def pieces(draw: np.random.Generator, count: int) -> list[Piece]:
    """Return some pieces whose targets do not overlap."""
    ends = np.sort(draw.choice(np.arange(1, ROOM // UNIT), 2 * count, replace=False)) * UNIT
    found = []
    for start, end in ends.reshape(-1, 2).tolist():
        size = min(end - start, ROOM // 4)
        found.append(Piece(int(draw.integers(0, (ROOM - size) // UNIT + 1)) * UNIT, start, size))
    return found


def text_of(loads: Sequence[Piece], stores: Sequence[Piece]) -> str:
    """Return a kernel whose blocks copy pieces of the input to shared memory, and pieces of that to the output."""
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    return _TEXT.format(
        room=ROOM,
        total=sum(each.size for each in loads),
        loads="\n".join(f"{load} [%r2+{e.target}], [%d1+{e.source}], {e.size}, [%r3];" for e in loads),
        stores="\n".join(f"{store} [%d2+{e.target}], [%r2+{e.source}], {e.size};" for e in stores),
    )


def expected(given: Bytes, before: Bytes, loads: Sequence[Piece], stores: Sequence[Piece]) -> tuple[Bytes, Bytes]:
    """Return the output, and which of its bytes do not depend on what nothing wrote to shared memory."""
    shared, known = np.zeros_like(given), np.zeros(given.shape, dtype=bool)
    for each in loads:
        shared[:, each.target : each.target + each.size] = given[:, each.source : each.source + each.size]
        known[:, each.target : each.target + each.size] = True
    found, defined = before.copy(), np.ones(given.shape, dtype=bool)
    for each in stores:
        found[:, each.target : each.target + each.size] = shared[:, each.source : each.source + each.size]
        defined[:, each.target : each.target + each.size] = known[:, each.source : each.source + each.size]
    return found, defined.astype(np.uint8)


def copied(device: Device, text: str, given: Bytes, before: Bytes) -> Bytes:
    """Return the output after a launch."""
    source, target = (device.allocated(each.nbytes) for each in (given, before))
    for pointer, content in ((source, given), (target, before)):
        device.check(
            "cuMemcpyHtoD_v2", pointer, content.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(content.nbytes)
        )
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.check("cuModuleLoadData", ctypes.byref(module), device.assembled(text))
    device.check("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    table = (ctypes.c_void_p * 2)(ctypes.addressof(source), ctypes.addressof(target))
    device.check("cuLaunchKernel", function, BLOCKS, 1, 1, 64, 1, 1, 0, None, table, None)
    device.check("cuCtxSynchronize")
    found = np.empty_like(before)
    device.check("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), target, ctypes.c_size_t(found.nbytes))
    for each in (source, target):
        device.check("cuMemFree_v2", each)
    device.check("cuModuleUnload", module)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Record kernels of drawn pieces."""
    parser = command_parser("hardware_facts.bulk_copies", __doc__)
    parser.add_argument("--kernels", type=int, default=200, help="the number of kernels (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    device, draw = Device(), np.random.default_rng(chosen.seed)
    result = {"kernels": 0, "copies": 0, "bytes": 0, "different": 0}
    for _ in range(chosen.kernels):
        loads, stores = pieces(draw, int(draw.integers(1, 9))), pieces(draw, int(draw.integers(1, 9)))
        given, before = (draw.integers(0, 256, (BLOCKS, ROOM), dtype=np.uint8) for _ in range(2))
        wanted, defined = expected(given, before, loads, stores)
        found = copied(device, text_of(loads, stores), given, before)
        result["kernels"] += 1
        result["copies"] += BLOCKS * (len(loads) + len(stores))
        result["bytes"] += int(defined.sum())
        result["different"] += int(((found != wanted) & (defined > 0)).sum())
    print(result, flush=True)
    record = {"environment": {**analysis_environment(), **device.environment()}, "seed": chosen.seed, "result": result}
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
