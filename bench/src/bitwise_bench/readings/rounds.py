"""The time of readings of kernels with more and more rounds of one kind, such as a store, a barrier and a load.

    python -m bitwise_bench.readings.rounds --rounds 50 100 200

A reading that takes time in proportion to the square of the rounds shows as an exponent of 2 between two numbers.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from bitwise_bench.command_line import command_parser
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

TARGET = "sm_90"
_LAUNCH = Launch.model_validate(
    {"file": "rounds.ptx", "entry": "rounds", "grid": [4, 1, 1], "block": [64, 1, 1]}
    | {"args": [{"buffer": "x", "dtype": "fp32"}, {"buffer": "y", "dtype": "fp32"}]}
)

# Each thread has the element %rd4 of x and %rd5 of y, and %rd6 is its neighbour's of y, as %r6 is in shared memory.
_HEAD = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry rounds(.param .u64 x, .param .u64 y) .maxntid 64, 1, 1
{
.reg .b32 %r<10>;
.reg .b64 %rd<10>;
.reg .f32 %f<4>;
.reg .b64 %SP;
.local .align 16 .b8 own[65536];
.shared .align 16 .b8 tile[256];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mad.lo.s32 %r3, %r2, 64, %r1;
mul.wide.s32 %rd3, %r3, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
xor.b32 %r4, %r3, 1;
mul.wide.s32 %rd3, %r4, 4;
add.s64 %rd6, %rd2, %rd3;
mov.u32 %r7, tile;
shl.b32 %r5, %r1, 2;
add.s32 %r5, %r5, %r7;
xor.b32 %r6, %r5, 4;
mov.u64 %SP, own;
ld.global.f32 %f1, [%rd4];
"""
_SUM = "add.rn.f32 %f1, %f1, %f2;\n"
_TAIL = "st.global.f32 [%rd4], %f1;\nret;\n}\n"

ROUNDS: Mapping[str, Callable[[int], str]] = {
    "arithmetic": lambda number: "mul.rn.f32 %f2, %f1, %f1;\n",
    "own element": lambda number: "st.global.f32 [%rd5], %f1;\nld.global.f32 %f2, [%rd5];\n",
    "neighbour's element": lambda number: (
        "st.global.f32 [%rd5], %f1;\nbar.sync 0;\nld.global.f32 %f2, [%rd6];\nbar.sync 0;\n"
    ),
    "more elements": lambda number: (
        f"st.global.f32 [%rd5+{4096 * number}], %f1;\nld.global.f32 %f2, [%rd5+{4096 * (number // 2)}];\n"
    ),
    "shared memory": lambda number: "st.shared.f32 [%r5], %f1;\nbar.sync 0;\nld.shared.f32 %f2, [%r6];\nbar.sync 0;\n",
    "local memory": lambda number: (
        f"st.local.f32 [%SP+{4 * number}], %f1;\nld.local.f32 %f2, [%SP+{4 * (number // 2)}];\n"
    ),
}


def kernel(kind: str, rounds: int) -> str:
    """Return the text of a kernel with some rounds of a kind."""
    return _HEAD + "".join(ROUNDS[kind](number) + _SUM for number in range(rounds)) + _TAIL


def seconds(kind: str, rounds: int) -> float:
    """Return the processor time of a reading, in seconds.  Raises RuntimeError if the kernel is Unknown."""
    arch = registry.default().arch(TARGET)
    source, options = Source(kind, kernel(kind, rounds), _LAUNCH), Options(audit_contraction=False)
    start = time.process_time()
    result = analyse(source, arch, {"x": 1, "y": 2}, options)
    if result.signature is None:
        raise RuntimeError(f"{kind}, {rounds} rounds: {result.unknown}")
    return time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the time of each kind for each number of rounds, and the exponent between two numbers."""
    parser = command_parser("readings.rounds", __doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=[50, 100, 200, 400], help="the numbers of rounds")
    parser.add_argument("--kinds", nargs="*", default=list(ROUNDS), choices=list(ROUNDS), help="these kinds only")
    chosen = parser.parse_args(arguments)
    seconds("arithmetic", 1)
    for kind in chosen.kinds:
        times = [seconds(kind, rounds) for rounds in chosen.rounds]
        pairs = list(zip(chosen.rounds, times, strict=True))
        exponents = [
            math.log(later / earlier) / math.log(more / fewer)
            for (fewer, earlier), (more, later) in itertools.pairwise(pairs)
        ]
        print(f"{kind}: " + ", ".join(f"{rounds} rounds {taken:.2f} s" for rounds, taken in pairs), end="")
        print("; exponents " + " ".join(f"{each:.1f}" for each in exponents), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
