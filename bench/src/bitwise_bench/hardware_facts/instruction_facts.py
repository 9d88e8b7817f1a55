"""Record facts that the analysis takes from the PTX ISA or from rows, and that an sm_90 GPU can show.

Which lane `elect.sync` elects, whether `%warpid` is the number of a thread over 32, and what steps of zeros of matrix
units leave of an accumulator.

    python -m bitwise_bench.hardware_facts.instruction_facts --out records/hardware-facts-sm90-h200.json
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

HEAD = """.version 8.7
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
"""A thread in the mask of its block stores whether it is elected, and the lane that `elect.sync` returns."""

_WARPS = "mov.u32 %r4, %warpid; mov.u32 %r5, %nwarpid; st.global.v2.b32 [%d5], {%r4, %r5};"

_ZERO_TILES = """mov.u32 %r4, tile; mov.b32 %r5, 0; mov.u32 %r6, 0;
Z: mad.lo.u32 %r7, %r6, 2048, %r4; mad.lo.u32 %r7, %r0, 16, %r7; st.shared.v4.b32 [%r7], {%r5, %r5, %r5, %r5};
add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 8; @%p1 bra Z; fence.proxy.async.shared::cta; bar.sync 0;
shr.u32 %r4, %r4, 4; cvt.u64.u32 %d6, %r4; or.b64 %d6, %d6, 34359803904; setp.eq.u32 %p2, %r5, 0;"""
"""128 threads fill the tiles with zeros; %d6 becomes a descriptor of both."""

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
        return HEAD.format(size=4 * count, body=step + store), 128, 4 * count
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
        return HEAD.format(size=16, body=body), 32, 16
    width = {"fp16": 2, "bf16": 2, "tf32": 4}.get(row.left, 1)
    words = row.k * width // 16
    a, b = ", ".join(["%r9"] * 2 * words), ", ".join(["%r9"] * words)
    step = (
        f"mov.b32 %r9, 0; {load} mma.sync.aligned.m16n8k{row.k}.row.col.{held}.{types[0]}.{types[1]}.{held} "
        f"{{{d}}}, {{{a}}}, {{{b}}}, {{{d}}}; "
    )
    return HEAD.format(size=4 * count, body=step + store), 32, 4 * count


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
    found = launched(device, HEAD.format(size=4, body=_ELECT), given, empty, len(given), 32)
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
        seen = launched(device, HEAD.format(size=8, body=_WARPS), np.zeros(1, np.uint32), empty, blocks, threads)
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
    parser = command_parser("hardware_facts.instruction_facts", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    device = Device()
    record = {
        "environment": {**analysis_environment(), **device.environment()},
        "elect.sync": elections(device),
        "warp numbers": warp_numbers(device),
        "steps of zeros": zero_steps(device),
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
