"""Small PTX kernels in clusters of blocks, their launches, their outputs and verdicts on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitwise_conformance.suite.observed_programs import observed
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Argument, Launch, TensorMap
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90

GRID, SHAPE = (4, 6, 2), (2, 3, 2)
"""A grid of three axes, and a shape of its clusters."""


def text(body: str, directives: str = "", threads: int = 32) -> str:
    """Return a kernel k(out, in): %r0 is the thread in the block, %r1 in the grid, %d9 its word of out, %d8 of in."""
    return f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global out, .param .u64 .ptr .global in, .param .align 64 .b8 map[128])
.reqntid {threads} {directives}
{{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .shared .align 16 .b8 room[4096];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y;
mov.u32 %r4, %ctaid.z; mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y; mad.lo.u32 %r4, %r4, %r6, %r3;
mad.lo.u32 %r4, %r4, %r5, %r2; mad.lo.u32 %r1, %r4, {threads}, %r0; mul.wide.u32 %d2, %r1, 4; add.s64 %d9, %d0, %d2;
add.s64 %d8, %d1, %d2;
{body}
ret;
}}
"""


def launch(grid: Sequence[int], cluster: Sequence[int] | None = None, threads: int = 32, name: str = "k.ptx") -> Launch:
    settings: dict[str, Any] = {} if cluster is None else {"cluster": tuple(cluster)}
    count = int(np.prod(tuple(grid))) * threads
    words_of_input = TensorMap(buffer="in", dtype="fp32", shape=(count,), strides=(1,), block=(32,))
    buffers = (
        *(Argument(kind="buffer", buffer=each, dtype="u32") for each in ("out", "in")),
        Argument(kind="tensor_map", tensor_map=words_of_input),
    )
    return Launch(file=name, entry="k", grid=tuple(grid), block=(threads, 1, 1), args=buffers, **settings)


def words(
    body: str,
    grid: Sequence[int],
    *,
    directives: str = "",
    cluster: Sequence[int] | None = None,
    threads: int = 32,
    arch: Arch = SM90,
    given: Any = None,
) -> Any:
    """Return the output of the kernel as words, shape (blocks, threads); `given` is the input.

    Every step is checked against the declaration of its opcode.
    """
    module = arch.parse(text(body, directives, threads), "k.ptx")
    prepared, found = observed(prepare_launch(module, arch, launch(grid, cluster, threads)))
    count = int(np.prod(tuple(grid))) * threads
    data = np.arange(count, dtype=np.uint32) if given is None else given
    before = {"out": np.zeros(4 * count, dtype=np.uint8), "in": data.view(np.uint8)}
    after = simulate(prepared, before).after["out"].view(np.uint32).reshape(-1, threads)
    assert not found.wrong, found.wrong
    return after


def verdict(
    first: str,
    second: str,
    *,
    every_launch: bool,
    clusters: Sequence[Sequence[int] | None] = (None, None),
    threads: int = 32,
) -> str:
    """Return the outcome of a comparison of two kernels on four blocks, or for every launch."""
    sources = [
        Source(name, body, launch((4,), cluster, threads, name))
        for name, body, cluster in zip(("a.ptx", "b.ptx"), (first, second), clusters, strict=True)
    ]
    options = Options(every_launch=every_launch, audit_contraction=False)
    return compare(sources[0], sources[1], SM90, options).verdict.outcome.value
