"""Small kernels with tcgen05 instructions, written instruction by instruction, and their execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry

HEAD = """
.version 8.8
.target {target}a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 .ptr .global k_in, .param .u64 .ptr .global k_out)
.reqntid {threads}
{{
  .reg .pred %p<12>;
  .reg .b32 %r<1200>;
  .reg .b64 %rd<100>;
  ld.param.b64 %rd1, [k_in];
  ld.param.b64 %rd2, [k_out];
  mov.u32 %r1, %tid.x;
  mov.b32 %r2, smem;
  setp.lt.u32 %p1, %r1, 32;
  setp.eq.u32 %p2, %r1, 0;
  mov.pred %p3, -1;
  mov.pred %p4, 0;
  shr.u32 %r4, %r1, 5;
  and.b32 %r5, %r4, 3;
  shl.b32 %r6, %r5, 21;
  @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], {columns};
  bar.sync 0;
  ld.shared.b32 %r3, [smem];
  @%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  add.s32 %r7, %r3, %r6;
"""
TAIL = """
  bar.sync 0;
  @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};
  ret;
}}
"""
WAIT = """
{{
  .reg .pred done;
again{label}:
  mbarrier.try_wait.parity.shared.b64 done, [%r20], {parity};
  @!done bra again{label};
}}"""


def registers(first: int, count: int) -> str:
    """Return a vector of registers."""
    return "{" + ", ".join(f"%r{first + index}" for index in range(count)) + "}"


@dataclass
class Text:
    """A kernel in the making: its lines, with 128 threads unless stated otherwise."""

    columns: int = 128
    target: str = "sm_100"
    threads: int = 128
    lines: list[str] = field(default_factory=list)
    waits: int = 0

    def add(self, *lines: str) -> Text:
        """Append lines."""
        self.lines += lines
        return self

    def copy_in(self, size: int, place: int = 1024) -> Text:
        """Copy `size` bytes of the input to shared memory at an offset, 16 bytes a thread at a time."""
        self.add("shl.b32 %r8, %r1, 4;", "add.s32 %r9, %r2, %r8;", "mad.wide.u32 %rd10, %r1, 16, %rd1;")
        step = 16 * self.threads
        for at in range(0, size, step):
            four, guard = registers(10, 4), "@%p6 " if size - at < step else ""
            if guard:
                self.add(f"setp.lt.u32 %p6, %r1, {(size - at) // 16};")
            self.add(f"{guard}ld.global.v4.b32 {four}, [%rd10+{at}];")
            self.add(f"{guard}st.shared.v4.b32 [%r9+{at + place}], {four};")
        return self.add("fence.proxy.async.shared::cta;", "bar.sync 0;")

    def barrier(self) -> Text:
        """Initialise a memory barrier."""
        return self.add(
            "add.s32 %r20, %r2, 16;",
            "@%p2 mbarrier.init.shared::cta.b64 [%r20], 1;",
            "bar.sync 0;",
            "cvt.u64.u32 %rd20, %r20;",
        )

    def commit(self) -> Text:
        """Commit, and let all threads wait for the memory barrier."""
        self.add("@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd20];")
        return self.wait()

    def wait(self) -> Text:
        """Let all threads wait for the next phase of the memory barrier."""
        self.add(WAIT.format(label=self.waits, parity=self.waits % 2))
        self.waits += 1
        return self

    def load(
        self, shape: str, count: int, first: int, registers_of: int, address: str = "[%r7]", packing: str = ""
    ) -> Text:
        """Load from tensor memory and wait."""
        self.add(
            f"tcgen05.ld.sync.aligned.{shape}.x{count}{packing}.b32 {registers(first, registers_of)}, {address};",
            "tcgen05.wait::ld.sync.aligned;",
        )
        return self

    def store(
        self, shape: str, count: int, first: int, registers_of: int, address: str = "[%r7]", packing: str = ""
    ) -> Text:
        """Store to tensor memory and wait."""
        return self.add(
            f"tcgen05.st.sync.aligned.{shape}.x{count}{packing}.b32 {address}, {registers(first, registers_of)};",
            "tcgen05.wait::st.sync.aligned;",
        )

    def read_in(self, first: int, count: int, place: int = 0) -> Text:
        """Load registers of each thread, one after another, from the input."""
        self.add(f"mad.wide.u32 %rd11, %r1, {4 * count}, %rd1;")
        return self.add(*(f"ld.global.b32 %r{first + each}, [%rd11+{place + 4 * each}];" for each in range(count)))

    def write_out(self, first: int, count: int, half: bool = False) -> Text:
        """Store registers of each thread, one after another, to the output; `half`: only of lanes 0 to 15 of a warp."""
        self.add(f"mad.wide.u32 %rd12, %r1, {4 * count}, %rd2;", "and.b32 %r8, %r1, 16;", "setp.eq.u32 %p7, %r8, 0;")
        guard = "@%p7 " if half else ""
        return self.add(*(f"{guard}st.global.b32 [%rd12+{4 * each}], %r{first + each};" for each in range(count)))

    def whole(self) -> str:
        """Return the text."""
        names = {"columns": self.columns, "target": self.target, "threads": self.threads}
        return HEAD.format(**names) + "\n".join("  " + each for each in self.lines) + TAIL.format(**names)


def _source(text: str, blocks: int, element: str) -> Source:
    arguments = [{"buffer": "in", "dtype": element}, {"buffer": "out", "dtype": "u32"}]
    return Source("k.ptx", text, Launch.model_validate({"file": "k.ptx", "grid": [blocks], "args": arguments}))


def reading(
    text: str, target: str = "sm_100", blocks: int = 1, element: str = "u32", *, every_launch: bool = False,
    assume: frozenset[str] = frozenset(),
) -> AnalysisResult:  # fmt: skip
    """Analyse a kernel for its launch, or for every launch."""
    return analyse(
        _source(text, blocks, element),
        registry.default().arch(target),
        {"in": 1, "out": 2},
        Options(every_launch=every_launch, assume=assume),
    )


def executed(
    text: str, content: npt.NDArray[np.uint8], size: int, target: str = "sm_100", blocks: int = 1
) -> npt.NDArray[np.uint32]:
    """Execute a kernel on bit patterns; return the output as words."""
    ready = prepare(_source(text, blocks, "u32"), registry.default().arch(target), Options())
    before: Mapping[str, npt.NDArray[np.uint8]] = {"in": content, "out": np.zeros(size, dtype=np.uint8)}
    return simulate(ready, before).after["out"].view(np.uint32)


def smem_descriptor(
    offset: int, leading: int, stride: int, swizzle: int, base: int = 2048, *, wide: bool = False
) -> int:
    """Return the descriptor of a tile at an offset from shared memory's first copied byte.

    `wide`: the swizzle, of 128 bytes, is in units of 32 bytes.
    """
    mode = 1 if wide else {0: 0, 128: 2, 64: 4, 32: 6}[swizzle]
    return (base + offset) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | mode << 61


def instruction_descriptor(
    m: int,
    n: int,
    result: int,
    left: int,
    right: int,
    transposes: Sequence[bool] = (False, False),
    saturates: bool = False,
) -> int:
    """Return the descriptor of an instruction, from the numbers of its types."""
    return (
        saturates << 3
        | result << 4
        | left << 7
        | right << 10
        | transposes[0] << 15
        | transposes[1] << 16
        | n >> 3 << 17
        | m >> 4 << 24
    )
