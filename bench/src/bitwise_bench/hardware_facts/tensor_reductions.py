"""Record what reductions of tensor copies leave in global memory, against their operations, on an sm_90 GPU.

python -m bitwise_bench.hardware_facts.tensor_reductions --out records/tensor-reductions-sm90-h200.json
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_bench.adversary.device import Device
from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_bench.hardware_facts.tensor_copies import TYPES, encoded
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.opcodes.common import FORMATS
from bitwise_nvidia_ptx.opcodes.copies.tensor_copy import REDUCED_TYPES, name_of_reduction

Array = npt.NDArray[Any]

ELEMENTS = 1 << 18
_BOX = 128
"""The elements of a box."""
_TEXT = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 to[128], .param .u64 raw) .reqntid 64
{{ .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<20>; .shared .align 128 .b8 tile[1024];
mov.b64 %d2, to; cvta.param.u64 %d2, %d2; ld.param.u64 %d3, [raw]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, tile;
setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p3, %r0, {lanes}; mul.lo.u32 %r4, %r1, {count}; mul.lo.u32 %r5, %r1, {size}; mad.lo.u32 %r5, %r0, 16, %r5; cvt.u64.u32 %d5, %r5;
add.s64 %d6, %d3, %d5; mad.lo.u32 %r6, %r0, 16, %r2; @%p3 ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d6];
@%p3 st.shared.v4.b32 [%r6], {{%r10, %r11, %r12, %r13}}; fence.proxy.async.shared::cta; bar.sync 0;
@%p1 cp.reduce.async.bulk.tensor.1d.global.shared::cta.{verb}.tile.bulk_group [%d2, {{%r4}}], [%r2];
@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0; ret; }}
"""  # noqa: E501 - a line of PTX is read as one
"""Each block combines a box of elements with as many of a tensor."""


def cases() -> Iterator[tuple[str, str]]:
    """Yield the operations of reductions that are modelled, each with the types of its elements."""
    for verb, kinds in REDUCED_TYPES.items():
        for kind in kinds:
            yield verb, kind


def operands(kind: str, seed: int) -> Array:
    """Return patterns of elements: any, and of floats also numbers around 1, subnormals, infinities and NaNs."""
    size = TYPES[kind]
    found = np.random.default_rng(seed).integers(0, 256, ELEMENTS * size, dtype=np.uint8).view(f"u{size}")
    if kind in FORMATS:
        exponent, fraction = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}[kind]
        bias = (1 << exponent - 1) - 1
        rest = found & ~found.dtype.type((1 << exponent) - 1 << fraction)
        for place, code in ((0, bias), (1, bias + 1), (2, 0), (3, 1), (4, fraction // 2), (5, (1 << exponent) - 1)):
            part = slice(place + seed, None, 8)
            found[part] = rest[part] | found.dtype.type(code << fraction)
    return found


def reduced(device: Device, verb: str, kind: str, given: Array, before: Array) -> Array:
    """Return what a reduction of `given` leaves of the tensor `before`."""
    size = _BOX * given.dtype.itemsize
    text = _TEXT.format(count=_BOX, size=size, lanes=size // 16, verb=verb)
    raw, tensor = (device.allocated(given.nbytes) for _ in range(2))
    for pointer, content in ((raw, given), (tensor, before)):
        device.check(
            "cuMemcpyHtoD_v2", pointer, content.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(content.nbytes)
        )
    memory, place = encoded(device, list(TYPES).index(kind), tensor, given.size, _BOX)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.check("cuModuleLoadData", ctypes.byref(module), device.assembled(text))
    device.check("cuModuleGetFunction", ctypes.byref(function), module, b"k")
    table = (ctypes.c_void_p * 2)(place, ctypes.addressof(raw))
    device.check("cuLaunchKernel", function, given.size // _BOX, 1, 1, 64, 1, 1, 0, None, table, None)
    device.check("cuCtxSynchronize")
    del memory  # the map was copied by the launch
    found = np.empty_like(before)
    device.check("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), tensor, ctypes.c_size_t(found.nbytes))
    for each in (raw, tensor):
        device.check("cuMemFree_v2", each)
    return found


def is_nan(kind: str, patterns: Array) -> npt.NDArray[np.bool_]:
    """Return which patterns are NaNs; none of integers is."""
    if kind not in FORMATS:
        return np.zeros(patterns.shape, dtype=bool)
    top, infinity = {"f32": (31, 0x7F800000), "f16": (15, 0x7C00), "bf16": (15, 0x7F80)}[kind]
    return np.asarray((patterns & patterns.dtype.type((1 << top) - 1)) > infinity)


def compared(verb: str, kind: str, given: Array, before: Array, found: Array) -> dict[str, int]:
    """Return the number of elements, and of those that differ from the operation; all NaNs are one value."""
    expected = operation(name_of_reduction(verb, kind)).evaluate(before, given)
    nan = is_nan(kind, found) & is_nan(kind, expected)
    return {"elements": int(found.size), "different": int(((found != expected) & ~nan).sum())}


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the reductions of every operation and type."""
    parser = command_parser("hardware_facts.tensor_reductions", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    device = Device()
    results: dict[str, dict[str, int]] = {}
    for verb, kind in cases():
        given, before = operands(kind, 0), operands(kind, 1)
        found = reduced(device, verb, kind, given, before)
        results[f"{verb} {kind}"] = compared(verb, kind, given, before, found)
        print(verb, kind, results[f"{verb} {kind}"], flush=True)
    record = {"environment": {**analysis_environment(), **device.environment()}, "reductions": results}
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
