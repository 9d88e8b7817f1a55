# ruff: noqa: E501 - a line of PTX is read as one
"""Where tensor copies put the rows of a box in shared memory, on a GPU of sm_90: each swizzle, rows of each length.

    python -m bitwise_bench.hardware_facts.tensor_copy_rows --record records/tensor-copy-rows-sm90-h200.json

A copy that is an illegal instruction ends the process's use of the GPU, so that another process continues.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bitwise_bench.adversary.device import Device, DeviceError
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_core.execution.launch import Argument, Launch

SPANS = {0: 256, 1: 32, 2: 64, 3: 128}
"""The longest row in bytes by the mode of the swizzle."""
OUTPUT, INPUT = 8192, 4096 + 16384
"""The sizes of the buffers in bytes; the first 4096 bytes of the input hold the map."""
FIRST = 0x1000
"""The first word of the input behind the map; the others follow."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A copy of a box of `width` words in `rows` rows at (x, y), from a tensor of `dim0` by `dim1` words.

    `stride` is the distance of its rows in bytes, `base` the offset of the box in shared memory, `mode` the swizzle.
    `store`: the box is copied to the output, else from the input.
    """

    mode: int
    width: int
    rows: int
    stride: int
    dim0: int
    dim1: int
    x: int
    y: int
    base: int
    store: bool


def configurations() -> Iterator[Configuration]:
    """Yield all configurations."""
    for store in (False, True):
        for base in (0, 256):
            for mode in (1, 2, 3, 0):
                for width in (4, 8, 16, 32):
                    if 4 * width > SPANS[mode]:
                        continue
                    yield Configuration(mode, width, 8, 128, 32, 32, 0, 0, base, store)
                    yield Configuration(mode, width, 16, 128, 32, 32, 0, 0, base, store)
                    yield Configuration(mode, width, 16, 64, 8, 12, 0, -2, base, store)
                    yield Configuration(mode, width, 16, 64, 8, 12, 4, 0, base, store)
                    yield Configuration(mode, width, 8, 48, 12, 5, -4, 1, base, store)


def _field(name: str, value: str, kind: str = "b32") -> str:
    return f"@%p1 tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%d10], {value};"


def text(of: Configuration) -> str:
    """Return a kernel that makes a map, copies a box, and stores shared memory after a copy from global memory."""
    fields = [
        _field("rank", "0x1"), _field("element_stride", "0x0, 1"), _field("element_stride", "0x1, 1"),
        _field("interleave_layout", "0x0"), _field("fill_mode", "0x0"), _field("elemtype", "0x2"),
        _field("box_dim", f"0x0, {of.width}"), _field("box_dim", f"0x1, {of.rows}"), _field("global_address", "%d2", "b64"),
        _field("global_dim", f"0x0, {of.dim0}"), _field("global_dim", f"0x1, {of.dim1}"),
        _field("global_stride", f"0x0, {of.stride}", "b64"), _field("swizzle_mode", hex(of.mode)),
    ]  # fmt: skip
    if of.store:
        copy = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d12, {%r81, %r82}], [%d8]; @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;"
    else:
        copy = f"""@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d11], {4 * of.width * of.rows};
@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%d8], [%d12, {{%r81, %r82}}], [%d11];
W0: mbarrier.try_wait.parity.shared.b64 %p10, [%d11], 0; @!%p10 bra W0; bar.sync 0; mov.b32 %r11, %r0;
S: mad.lo.u32 %r12, %r11, 4, %r1; ld.shared.b32 %r13, [%r12]; mul.wide.u32 %d14, %r11, 4; add.s64 %d14, %d14, %d0;
st.global.b32 [%d14], %r13; add.u32 %r11, %r11, 64; setp.lt.u32 %p3, %r11, 2048; @%p3 bra S;"""
    return f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) .reqntid 64
{{ .reg .pred %p<40>; .reg .b32 %r<90>; .reg .b64 %d<90>; .shared .align 1024 .b8 room[16384];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mov.u32 %r1, room; cvt.u64.u32 %d7, %r1;
setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 32; add.s64 %d10, %d7, 12288; add.s64 %d11, %d7, 14336; mov.b64 %d12, %d1;
add.s64 %d2, {"%d0, 0" if of.store else "%d1, 4096"}; add.s64 %d8, %d7, {of.base}; mov.b32 %r11, %r0;
F: mad.lo.u32 %r12, %r11, 4, %r1; mov.b32 %r10, {"%r11" if of.store else "0"}; st.shared.b32 [%r12], %r10; add.u32 %r11, %r11, 64; setp.lt.u32 %p3, %r11, 2048; @%p3 bra F;
mov.b32 %r80, 0; mul.wide.u32 %d13, %r0, 4; add.s64 %d13, %d13, %d10; @%p2 st.shared.b32 [%d13], %r80; @%p1 mbarrier.init.shared.b64 [%d11], 1; fence.proxy.async.shared::cta; bar.sync 0;
{" ".join(fields)}
@%p2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d12], [%d10], 128; bar.sync 0; fence.proxy.tensormap::generic.acquire.gpu [%d12], 128;
mov.b32 %r81, {of.x}; mov.b32 %r82, {of.y}; {copy}
ret; }}
"""


def launch() -> Launch:
    """Return the launch of the kernels."""
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="u32") for name in ("out", "in"))
    return Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(64, 1, 1), args=arguments)


def given() -> Array:
    """Return the words of the input."""
    found: Array = np.zeros(INPUT // 4, np.uint32)
    found[1024:] = np.arange(INPUT // 4 - 1024) + FIRST
    return found


def units(words: Array, of: Configuration) -> list[int]:
    """Return the number of the word from which each unit of 16 bytes of the output was copied, -1 for none.

    Raises ValueError for a unit that does not hold four words in a row.
    """
    rows = words.reshape(-1, 4)
    first = rows[:, 0].astype(np.int64)
    copied = rows.any(axis=1)
    if not (rows[copied] == first[copied, None] + np.arange(4)).all():
        raise ValueError("a unit of 16 bytes does not hold four words in a row")
    found = np.where(copied, first - (0 if of.store else FIRST), -1)
    last = int(np.flatnonzero(copied).max(initial=-1))
    return [int(each) for each in found[: last + 1]]


def executed(device: Device, of: Configuration) -> Array:
    """Return the words of the output on a GPU.  Raises DeviceError."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.check("cuModuleLoadData", ctypes.byref(module), device.assembled(text(of)))
    device.check("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    out, source, words = device.allocated(OUTPUT), device.allocated(INPUT), given()
    device.check("cuMemcpyHtoD_v2", source, words.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(INPUT))
    device.check("cuMemsetD8_v2", out, ctypes.c_ubyte(0), ctypes.c_size_t(OUTPUT))
    table = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(source))
    device.check("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, table, None)
    device.check("cuCtxSynchronize")
    found: Array = np.zeros(OUTPUT // 4, np.uint32)
    device.check("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), out, ctypes.c_size_t(OUTPUT))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute all configurations that the record lacks, and write it."""
    parser = command_parser("hardware_facts.tensor_copy_rows", __doc__)
    parser.add_argument("--record", type=Path, required=True, help="write the places here, as JSON")
    chosen = parser.parse_args(arguments)
    record = json.loads(chosen.record.read_text()) if chosen.record.exists() else {"copies": []}
    device = Device()
    record["environment"] = {**analysis_environment(), **device.environment()}
    for of in list(configurations())[len(record["copies"]) :]:
        try:
            found = {"units": units(executed(device, of), of)}
        except DeviceError:
            found = {}
        record["copies"].append({**asdict(of), **found})
        chosen.record.write_text(json.dumps(record, separators=(",", ":")) + "\n")
        if not found:
            os.execv(
                sys.executable, [sys.executable, "-m", "bitwise_bench.hardware_facts.tensor_copy_rows", *sys.argv[1:]]
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
