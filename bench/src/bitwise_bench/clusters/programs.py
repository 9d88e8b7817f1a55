"""The kernels in clusters that are simulated and launched: PTX texts, and Triton kernels compiled for sm_90."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.launch import Argument, Launch

Bytes = npt.NDArray[np.uint8]

THREADS, BLOCKS = 64, 16
_HEAD = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global out, .param .u64 .ptr .global in)
.reqntid {threads}
.reqnctapercluster {shape}
{{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .shared .align 16 .b8 room[4096];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y;
mov.u32 %r4, %ctaid.z; mov.u32 %r5, %nctaid.x; mov.u32 %r6, %nctaid.y; mad.lo.u32 %r4, %r4, %r6, %r3;
mad.lo.u32 %r4, %r4, %r5, %r2; mad.lo.u32 %r1, %r4, {threads}, %r0; mul.wide.u32 %d2, %r1, 4; add.s64 %d9, %d0, %d2;
add.s64 %d8, %d1, %d2; ld.global.b32 %r20, [%d8]; mov.u32 %r10, room; mad.lo.u32 %r11, %r0, 4, %r10;
mov.u32 %r12, %cluster_ctarank; mov.u32 %r30, %cluster_nctarank; add.u32 %r13, %r12, 1; rem.u32 %r13, %r13, %r30;
setp.eq.u32 %p1, %r0, 0; add.u32 %r15, %r10, 2048;
"""
"""%r20: this thread's word of the input, %d9 its place in the output; %r11: its word in shared memory; %r13: the next
rank; %r15: an mbarrier."""
_BOTH = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
_NEXT = "mapa.shared::cluster.u32 %r14, %r11, %r13;"
_STORE = "st.global.b32 [%d9], %r21;"
_PLACES = (
    "%clusterid.x", "%clusterid.y", "%clusterid.z", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z",
    "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_nctaid.x", "%cluster_nctaid.y",
    "%cluster_nctaid.z", "%cluster_ctarank", "%cluster_nctarank",
)  # fmt: skip
_REGISTERS = "mov.u32 %r21, 0;" + "".join(f"mov.u32 %r22, {name}; mad.lo.u32 %r21, %r21, 31, %r22;" for name in _PLACES)
_READ = f"st.shared.b32 [%r11], %r20; {_BOTH} {_NEXT} ld.shared::cluster.b32 %r21, [%r14]; {_BOTH}"
_WRITE = f"{_BOTH} {_NEXT} st.shared::cluster.b32 [%r14], %r20; {_BOTH} ld.shared.b32 %r21, [%r11];"
_ROUNDS = f"""
st.shared.b32 [%r11], %r20; mov.u32 %r31, 0; {_NEXT} {_BOTH}
LOOP: ld.shared::cluster.b32 %r21, [%r14]; {_BOTH} st.shared.b32 [%r11], %r21; {_BOTH}
add.u32 %r31, %r31, 1; setp.lt.u32 %p2, %r31, 7; @%p2 bra LOOP;
"""
_HANDED = f"""
@%p1 mbarrier.init.shared::cta.b64 [%r15], {THREADS}; {_BOTH} {_NEXT} mapa.shared::cluster.u32 %r16, %r15, %r13;
st.shared::cluster.b32 [%r14], %r20; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r16];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r15], 0; @!%p2 bra WAIT;
ld.shared.b32 %r21, [%r11]; {_BOTH}
"""
_RANK_OF = f"""
{_NEXT} getctarank.shared::cluster.u32 %r21, %r14; getctarank.shared::cluster.u32 %r22, %r11;
mad.lo.u32 %r21, %r22, 100, %r21;
"""
PTX = {
    "registers": (_REGISTERS, (4, 2, 2), (2, 2, 2)),
    "registers of clusters of 8": (_REGISTERS, (BLOCKS, 1, 1), (8, 1, 1)),
    "rank of an address": (_RANK_OF, (BLOCKS, 1, 1), (4, 1, 1)),
    "read the next block": (_READ, (BLOCKS, 1, 1), (4, 1, 1)),
    "read the next block of three axes": (_READ, (4, 2, 2), (2, 2, 2)),
    "write the next block": (_WRITE, (BLOCKS, 1, 1), (4, 1, 1)),
    "seven rounds": (_ROUNDS, (BLOCKS, 1, 1), (2, 1, 1)),
    "handed over at an mbarrier": (_HANDED, (BLOCKS, 1, 1), (2, 1, 1)),
}
"""Bodies of PTX kernels by name, each with its grid and the shape of its clusters."""


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel and its launch; `contents` are the bytes of every buffer before it, by name."""

    name: str
    text: str
    launch: Launch
    contents: dict[str, Bytes]


def ptx_text(body: str, shape: tuple[int, int, int]) -> str:
    """Return a kernel k(out, in) in clusters of this shape, which stores the register that `body` computes."""
    return _HEAD.format(threads=THREADS, shape=", ".join(map(str, shape))) + body + _STORE + "\nret;\n}\n"


def ptx_programs(seed: int = 0) -> Iterator[Program]:
    """Yield the PTX kernels, each on random words."""
    generator = np.random.default_rng(seed)
    arguments = tuple(Argument(kind="buffer", buffer=name, dtype="u32") for name in ("out", "in"))
    for name, (body, grid, shape) in PTX.items():
        words = generator.integers(0, 1 << 32, THREADS * int(np.prod(grid)), dtype=np.uint32)
        launch = Launch(file=f"{name}.ptx", entry="k", grid=grid, block=(THREADS, 1, 1), args=arguments, cluster=shape)
        contents = {"out": np.zeros(words.nbytes, dtype=np.uint8), "in": words.view(np.uint8)}
        yield Program(name, ptx_text(body, shape), launch, contents)


_SQUARE, _DEPTH = 128, 128


def _triton_launches() -> dict[str, tuple[dict[str, Any], dict[str, int], tuple[int, int], dict[str, tuple[str, int]]]]:
    """Return, by kernel, its scalars, its constants, its grid, and the type and number of elements of its buffers."""
    rows = {"source": ("fp32", 64 * 128), "output": ("fp32", 64)}
    same = {"source": ("fp32", 64 * 128), "output": ("fp32", 64 * 128)}
    matrices = {"left": ("fp16", 256 * _DEPTH), "right": ("fp16", _DEPTH * 128)}
    sizes = {"columns": 128, "depth": _DEPTH}
    tile = {"ROWS": _SQUARE, "COLUMNS": _SQUARE}
    return {
        "affine": ({"size": 2000}, {"BLOCK": 512}, (4, 1), dict.fromkeys(("source", "output"), ("fp32", 2048))),
        "row_sum": ({}, {"ROWS": 16, "COLUMNS": 128}, (4, 1), rows),
        "column_sum": (
            {"columns": 128},
            {"ROWS": 128, "COLUMNS": 64},
            (2, 1),
            {"source": ("fp32", 128 * 128), "output": ("fp32", 128)},
        ),
        "softmax": ({}, {"ROWS": 16, "COLUMNS": 128}, (4, 1), same),
        "product": (sizes, {**tile, "DEPTH": 32}, (2, 1), {**matrices, "output": ("fp32", 256 * 128)}),
        "copied_product": (
            {"rows": 256, **sizes},
            {**tile, "DEPTH": 64},
            (2, 1),
            {**matrices, "output": ("fp16", 256 * 128)},
        ),
    }


CLUSTERS = (1, 2, 4)
"""The numbers of blocks of a Triton program."""


def triton_programs(seed: int = 0) -> Iterator[Program]:
    """Yield the Triton kernels in clusters of each size, compiled for sm_90, on random numbers.  Needs Triton."""
    from bitwise_bench.clusters.kernels import triton_kernels
    from bitwise_triton import Buffer, compile_configuration

    kinds = {"fp32": np.float32, "fp16": np.float16}
    for name, (scalars, constants, grid, buffers) in _triton_launches().items():
        generator = np.random.default_rng(seed)
        contents = {
            buffer: (generator.standard_normal(count) * (buffer != "output")).astype(kinds[kind]).view(np.uint8)
            for buffer, (kind, count) in buffers.items()
        }
        arguments = {**{buffer: Buffer(buffer, kind) for buffer, (kind, _) in buffers.items()}, **scalars}
        for blocks in CLUSTERS:
            kernel = getattr(triton_kernels, name)
            found = compile_configuration(kernel, arguments, constants, grid=grid, target="sm_90", num_ctas=blocks)
            launch = Launch.model_validate({"file": f"{name}.ptx", **found.manifest_entry})
            yield Program(f"{name} in clusters of {blocks}", found.assembly, launch, contents)
