"""Record how machine code converts one byte of a number, as one with a sign, to a float.

    python -m bitwise_bench.assembler.extended_bytes --out records/extended-bytes-sm90-h200.json

Compilers extend the sign of a byte by a permutation, or by a conversion to 8 bits.  Every such kernel converts the four
bytes of 65536 words on an sm_90 GPU, from loads of several kinds and before several operations.  The exit status is 1
where a result is another one than that of the instructions one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitwise_bench.command_line import command_parser
from bitwise_core.execution.launch import Launch

_SELECTORS = (0x8880, 0x9991, 0xAAA2, 0xBBB3)
_LOADS = {
    "a word": "ld.global.b32 %x, [%in];",
    "a word under a guard": "mov.u32 %x, 0; @%q ld.global.b32 %x, [%in];",
    "bytes": "ld.global.u8 %y0, [%in]; ld.global.u8 %y1, [%in+1]; ld.global.u8 %y2, [%in+2]; ld.global.u8 %y3, [%in+3];"
    " prmt.b32 %y0, %y0, %y1, 0x3340; prmt.b32 %y2, %y2, %y3, 0x3340; prmt.b32 %x, %y0, %y2, 0x5410;",
    "a masked word": "ld.global.b32 %x, [%in]; and.b32 %x, %x, 0x7f7f7f7f;",
    "a sum": "ld.global.b32 %x, [%in]; add.s32 %x, %x, 0x01020304;",
}
_CONVERSIONS = {
    "f32.s16": "cvt.u16.u32 %h{k}, %r{k}; cvt.rn.f32.s16 %f{k}, %h{k};",
    "f32.s16 of s16": "cvt.s16.s32 %h{k}, %r{k}; cvt.rn.f32.s16 %f{k}, %h{k};",
    "f32.s32": "cvt.rn.f32.s32 %f{k}, %r{k};",
    "f16.s16": "cvt.u16.u32 %h{k}, %r{k}; cvt.rn.f16.s16 %g{k}, %h{k}; cvt.f32.f16 %f{k}, %g{k};",
    "bf16.s16": "cvt.u16.u32 %h{k}, %r{k}; cvt.rn.bf16.s16 %g{k}, %h{k}; cvt.f32.bf16 %f{k}, %g{k};",
}
_OPERATIONS = {
    "nothing": "",
    "a product": "mul.f32 %f{k}, %f{k}, 0f3E000000;",
    "a maximum": "max.f32 %f{k}, %f{k}, 0f00000000;",
    "a magnitude": "abs.f32 %f{k}, %f{k};",
    "a choice": "setp.lt.f32 %p{k}, %f{k}, 0f00000000; selp.f32 %f{k}, 0f3F800000, %f{k}, %p{k};",
    "a conversion back": "cvt.rzi.s32.f32 %r{k}, %f{k}; cvt.rn.f32.s32 %f{k}, %r{k};",
}
_EXTENSIONS = ("a permutation", "a permutation with itself", "a conversion of the lowest byte")
_THREADS, _COUNT = 256, 1 << 16


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all kernels on the GPU, and write what they return; the exit status is 1 where something differs."""
    parser = command_parser("assembler.extended_bytes", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.gpu.launching import environment

    kernels = list(_executed(words()))
    chosen.out.write_text(json.dumps({"environment": environment(), "kernels": kernels}, indent=1) + "\n")
    differing = sum(not each["agrees"] for each in kernels)
    print(f"{len(kernels)} kernels, {differing} differ")
    return 1 if differing else 0


def variants() -> Iterator[tuple[str, str, str, str]]:
    """Yield loads, extensions, conversions and operations by name."""
    for load, extension, conversion, after in product(_LOADS, _EXTENSIONS, _CONVERSIONS, _OPERATIONS):
        if extension != _EXTENSIONS[2] or "s16" in conversion:
            yield load, extension, conversion, after


def words() -> NDArray[np.uint32]:
    """Return words whose lower or upper halves are all numbers of 16 bits."""
    numbers = np.arange(_COUNT, dtype=np.uint32)
    found = numbers | np.random.default_rng(3).integers(0, _COUNT, _COUNT, dtype=np.uint32) << np.uint32(16)
    return np.where(numbers % 2 == 0, found << np.uint32(16) | found >> np.uint32(16), found)


def text(load: str, extension: str, conversion: str, after: str) -> str:
    """Return the kernel of a variant."""
    second = "%x" if extension == _EXTENSIONS[1] else "0"
    body = []
    for place, selector in enumerate(_SELECTORS):
        extended = f"prmt.b32 %r{place}, %x, {second}, {selector};"
        converted = _CONVERSIONS[conversion].format(k=place)
        if extension == _EXTENSIONS[2] and not place:
            extended, (_, converted) = "cvt.s8.s32 %h0, %x;", converted.split("; ", 1)
        body += [extended, converted, _OPERATIONS[after].format(k=place)]
    return "\n".join(
        (
            ".version 8.0",
            ".target sm_90a",
            ".address_size 64",
            ".visible .entry bytes(.param .u64 a, .param .u64 b)",
            f".maxntid {_THREADS}, 1, 1",
            "{",
            ".reg .b32 %r<4>, %x, %y<4>, %t, %c; .reg .b16 %h<4>, %g<4>; .reg .f32 %f<4>; .reg .pred %p<4>, %q;",
            ".reg .b64 %in, %out, %o; ld.param.u64 %in, [a]; ld.param.u64 %out, [b];",
            f"mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %t, %c, {_THREADS}, %t;",
            f"setp.lt.u32 %q, %t, {_COUNT};",
            "mul.wide.u32 %o, %t, 4; add.u64 %in, %in, %o; mul.wide.u32 %o, %t, 16; add.u64 %out, %out, %o;",
            _LOADS[load],
            *body,
            "st.global.v4.f32 [%out], {%f0, %f1, %f2, %f3};",
            "ret;",
            "}",
            "",
        )
    )


def expected(given: NDArray[np.uint32], load: str, after: str) -> NDArray[np.float32]:
    """Return what a variant leaves for some words."""
    if load == "a masked word":
        given = given & np.uint32(0x7F7F7F7F)
    elif load == "a sum":
        given = given + np.uint32(0x01020304)
    numbers = np.ascontiguousarray(given).view(np.int8).reshape(-1, 4).astype(np.float32)
    changed = {
        "a product": numbers / np.float32(8),
        "a maximum": np.maximum(numbers, np.float32(0)),
        "a magnitude": np.abs(numbers),
        "a choice": np.where(numbers < 0, np.float32(1), numbers),
    }
    return changed.get(after, numbers)


def _executed(given: NDArray[np.uint32]) -> Iterator[dict[str, Any]]:
    from bitwise_bench.gpu.driver import LoadedKernel, assemble

    buffers = [
        {"buffer": "a", "dtype": "i32", "elements": _COUNT},
        {"buffer": "b", "dtype": "fp32", "elements": 4 * _COUNT},
    ]
    launch = Launch.model_validate(
        {"file": "bytes.ptx", "entry": "bytes", "grid": [_COUNT // _THREADS, 1, 1], "block": [_THREADS, 1, 1]}
        | {"args": buffers}
    )
    contents = {"a": given.view(np.uint8), "b": np.zeros(16 * _COUNT, dtype=np.uint8)}
    for load, extension, conversion, after in variants():
        kernel = LoadedKernel(assemble(text(load, extension, conversion, after), fp_fusion=True), launch, 2)
        found = np.asarray(kernel.run(contents)["b"]).view(np.float32).reshape(-1, 4)
        kernel.unload()
        agrees = bool(np.array_equal(found, expected(given, load, after)))
        yield {"load": load, "extension": extension, "conversion": conversion, "before": after, "agrees": agrees}


if __name__ == "__main__":
    sys.exit(main())
