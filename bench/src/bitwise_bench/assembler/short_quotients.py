"""Record what machine code makes of quotients of short integers, which compilers compute from upper halves of products.

    python -m bitwise_bench.assembler.short_quotients --out records/short-quotients-sm90-h200.json

Every kernel takes the upper half of the product of a number of 16 bits with a positive literal (`mul.hi.s16`), and
reads it by an operation that extends its sign, on an sm_90 GPU, for all numbers that are not negative, from loads of
several kinds.  The exit status is 1 where a result is another one than that of the instructions one by one.
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

_FACTORS = (1, 2, 3, 5243, 6554, 9363, 10923, 13108, 18351, 20972, 21846, 26215, 32767)
"""Literals: those by which LLVM divides by 3, 5, 7, 10, 25, 40, 100 and others, and the least and greatest ones."""
_SOURCES = {
    "a short load": "ld.global.u16 %x, [%in];",
    "a word": "ld.global.b32 %w, [%in]; cvt.u16.u32 %x, %w;",
    "the number of a thread": "cvt.u16.u32 %x, %t;",
    "a remainder": "ld.global.b32 %w, [%in]; rem.u32 %w, %w, 32768; cvt.u16.u32 %x, %w;",
}
_READERS = {
    "a shift": "shr.s16 %y, %h, {n}; cvt.s32.s16 %r, %y;",
    "a shift with the sign added": "shr.u16 %z, %h, 15; shr.s16 %y, %h, {n}; add.s16 %y, %y, %z; cvt.s32.s16 %r, %y;",
    "an extension": "cvt.s32.s16 %r, %h;",
    "a long product": "mul.wide.s16 %r, %h, 73;",
    "a shift in a long sum": "shr.s16 %y, %h, {n}; mad.wide.s16 %r, %y, 73, %t;",
    "a remainder": "shr.s16 %y, %h, {n}; mul.lo.s16 %z, %y, 40; sub.s16 %z, %x, %z; cvt.s32.s16 %r, %z;",
    "a maximum": "max.s16 %y, %h, 5; cvt.s32.s16 %r, %y;",
    "a comparison": "setp.lt.s16 %p, %h, 100; selp.b32 %r, 1, 0, %p;",
}
_SHIFTS = (1, 4, 9)
_THREADS, _COUNT = 256, 1 << 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all kernels on the GPU, and write what they return; the exit status is 1 where something differs."""
    parser = command_parser("assembler.short_quotients", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.gpu.launching import environment

    kernels = list(_executed())
    chosen.out.write_text(json.dumps({"environment": environment(), "kernels": kernels}, indent=1) + "\n")
    differing = sum(not each["agrees"] for each in kernels)
    print(f"{len(kernels)} kernels, {differing} differ")
    return 1 if differing else 0


def variants() -> Iterator[tuple[str, str, int, int]]:
    """Yield sources and readers by name, factors, and shifts (0 for a reader without one)."""
    for source, reader, factor in product(_SOURCES, _READERS, _FACTORS):
        for shift in _SHIFTS if "{n}" in _READERS[reader] else (0,):
            yield source, reader, factor, shift


def text(source: str, reader: str, factor: int, shift: int) -> str:
    """Return the kernel of a variant."""
    return "\n".join(
        (
            ".version 8.0",
            ".target sm_90a",
            ".address_size 64",
            ".visible .entry quotients(.param .u64 a, .param .u64 b)",
            f".maxntid {_THREADS}, 1, 1",
            "{",
            ".reg .b32 %r, %t, %c, %w; .reg .b16 %x, %y, %z, %h; .reg .pred %p; .reg .b64 %in, %out, %o;",
            "ld.param.u64 %in, [a]; ld.param.u64 %out, [b];",
            f"mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %t, %c, {_THREADS}, %t;",
            "mul.wide.u32 %o, %t, 4; add.u64 %in, %in, %o; add.u64 %out, %out, %o;",
            _SOURCES[source],
            f"mul.hi.s16 %h, %x, {factor};",
            _READERS[reader].format(n=shift),
            "st.global.b32 [%out], %r;",
            "ret;",
            "}",
            "",
        )
    )


def expected(numbers: NDArray[np.int64], reader: str, factor: int, shift: int) -> NDArray[np.int64]:
    """Return what a variant leaves for numbers that are not negative."""
    half = numbers * factor >> 16
    shifted = half >> shift
    found: NDArray[np.int64] = {
        "a shift": shifted,
        "a shift with the sign added": shifted,
        "an extension": half,
        "a long product": half * 73,
        "a shift in a long sum": shifted * 73 + numbers,
        "a remainder": (numbers - shifted * 40).astype(np.int16).astype(np.int64),
        "a maximum": np.maximum(half, 5),
        "a comparison": (half < 100).astype(np.int64),
    }[reader]
    return found


def _executed() -> Iterator[dict[str, Any]]:
    from bitwise_bench.gpu.driver import LoadedKernel, assemble

    buffers = [{"buffer": each, "dtype": "i32", "elements": _COUNT} for each in ("a", "b")]
    launch = Launch.model_validate(
        {"file": "quotients.ptx", "entry": "quotients", "grid": [_COUNT // _THREADS, 1, 1], "block": [_THREADS, 1, 1]}
        | {"args": buffers}
    )
    numbers = np.arange(_COUNT, dtype=np.int64)
    contents = {"a": numbers.astype(np.int32).view(np.uint8), "b": np.zeros(4 * _COUNT, dtype=np.uint8)}
    for source, reader, factor, shift in variants():
        kernel = LoadedKernel(assemble(text(source, reader, factor, shift), fp_fusion=True), launch, 2)
        found = np.asarray(kernel.run(contents)["b"]).view(np.int32).astype(np.int64)
        kernel.unload()
        agrees = bool(np.array_equal(found, expected(numbers, reader, factor, shift)))
        yield {"source": source, "reader": reader, "factor": factor, "shift": shift, "agrees": agrees}


if __name__ == "__main__":
    sys.exit(main())
