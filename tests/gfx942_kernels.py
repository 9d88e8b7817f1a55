"""Small gfx942 kernels for tests: a kernel around a few instructions, run on bit patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_conformance.suite.observed_programs import observed
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate

Array = npt.NDArray[Any]

HEAD = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\t.amdhsa_code_object_version 5
\t.text
\t.globl\tkernel
\t.p2align\t8
\t.type\tkernel,@function
kernel:
"""
TAIL = """
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.amdhsa_kernel kernel
\t\t.amdhsa_kernarg_size {size}
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr 64
\t\t.amdhsa_next_free_sgpr 64
\t\t.amdhsa_accum_offset 64
\t\t.amdhsa_float_round_mode_32 0
\t\t.amdhsa_float_round_mode_16_64 0
\t\t.amdhsa_float_denorm_mode_32 {denormals}
\t\t.amdhsa_float_denorm_mode_16_64 3
\t\t.amdhsa_ieee_mode 1
\t.end_amdhsa_kernel
\t.text
.Lend:
\t.size\tkernel, .Lend-kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
{arguments}    .kernarg_segment_size: {size}
    .name:           kernel
    .symbol:         kernel.kd
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
...

\t.end_amdgpu_metadata
"""

PROLOGUE = """\ts_load_dwordx8 s[8:15], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\tv_lshlrev_b32_e32 v1, 2, v0
\tglobal_load_dword v2, v1, s[10:11]
\tglobal_load_dword v3, v1, s[12:13]
\tglobal_load_dword v4, v1, s[14:15]
\ts_waitcnt vmcnt(0)
"""
"""v0 is the lane, v1 its byte offset, v2, v3 and v4 its words of a, b and c; s[8:9] is the output, which gets v5."""

EPILOGUE = "\ts_waitcnt vmcnt(0) lgkmcnt(0)\n\tglobal_store_dword v1, v5, s[8:9]\n"


def text_of(body: str, denormals: int = 3, target: str = "gfx942") -> str:
    """Return a kernel with the buffers out, a, b and c; the body writes its result to v5."""
    arguments = "".join(
        f"      - .address_space:  global\n        .offset:         {8 * index}\n        .size:           8\n"
        "        .value_kind:     global_buffer\n"
        for index in range(4)
    )
    lines = "".join(f"\t{line}\n" if not line.endswith(":") else f"{line}\n" for line in body.strip().splitlines())
    tail = TAIL.format(size=32, denormals=denormals, arguments=arguments)
    return (HEAD + PROLOGUE + lines + EPILOGUE + tail.lstrip("\n")).replace("gfx942", target)


def launch_of(threads: int = 64, dtype: str = "i32") -> Launch:
    """Return a launch of one block, with buffers of elements of a type."""
    buffers = tuple(Argument(kind="buffer", buffer=name, dtype=dtype) for name in ("out", "a", "b", "c"))
    return Launch(file="kernel.amdgcn", grid=(1, 1, 1), block=(threads, 1, 1), args=buffers)


def run(
    body: str, a: Sequence[int] | Array = (), b: Any = (), c: Any = (), *, threads: int = 64, arch: Arch = GFX942
) -> Array:
    """Run a kernel and return the words of its output, one for each thread; operands are repeated to as many words.

    Every step is checked against the declaration of its opcode.
    """
    module = arch.parse(text_of(body, target=arch.name), "kernel.amdgcn")
    contents = {"out": np.zeros(4 * threads, dtype=np.uint8)}
    for name, given in (("a", a), ("b", b), ("c", c)):
        words = np.resize(np.asarray(given if len(given) else [0]).astype(np.uint64).astype(np.uint32), threads)
        contents[name] = words.view(np.uint8).copy()
    prepared, found = observed(prepare_launch(module, arch, launch_of(threads)))
    after = simulate(prepared, contents).after["out"].view(np.uint32)
    assert not found.wrong, "an instruction reads or writes operands that it does not declare"
    return after


def reading(
    body: str,
    *,
    threads: int = 64,
    text: str | None = None,
    denormals: int = 3,
    dtype: str = "i32",
    arch: Arch = GFX942,
) -> AnalysisResult:
    """Return the concrete analysis of the kernel."""
    made = text_of(body, denormals, arch.name) if text is None else text
    source = Source("kernel.amdgcn", made, launch_of(threads, dtype))
    return analyse(source, arch, {"out": 1, "a": 2, "b": 3, "c": 4}, Options())


DIVISION = """v_div_scale_f32 v6, s[20:21], v3, v3, v2
v_rcp_f32_e32 v7, v6
v_div_scale_f32 v8, vcc, v2, v3, v2
v_fma_f32 v9, -v6, v7, 1.0
v_fmac_f32_e32 v7, v9, v7
v_mul_f32_e32 v9, v8, v7
v_fma_f32 v10, -v6, v9, v8
v_fmac_f32_e32 v9, v10, v7
v_fma_f32 v6, -v6, v9, v8
v_div_fmas_f32 v6, v6, v7, v9
v_div_fixup_f32 v5, v6, v3, v2"""
"""The instructions that LLVM emits for v2 / v3 in fp32."""


@dataclass(frozen=True, slots=True)
class NestedRegions:
    """Random instructions in nested regions under masks, with an else part or without.

    `instruction` draws one instruction, and `comparison` one that writes the pair of scalar registers that it is given.
    A sequence has 2 to `most` members, each of which is a region with the probability `share`.  The regions of a depth
    have scalar registers of their own from each of `scalars` on: for the condition, and for two saved masks.
    """

    random: Random
    instruction: Callable[[], str]
    comparison: Callable[[str], str]
    scalars: tuple[int, int, int]
    most: int
    share: float

    def several(self, depth: int) -> list[str]:
        """Return instructions and regions of a depth of at most 3."""
        lines: list[str] = []
        for _ in range(self.random.randint(2, self.most)):
            lines += self.region(depth) if depth < 3 and self.random.random() < self.share else [self.instruction()]
        return lines

    def region(self, depth: int) -> list[str]:
        """Return a region."""
        condition, outer, rest = (f"s[{base + 2 * depth}:{base + 2 * depth + 1}]" for base in self.scalars)
        lines = [self.comparison(condition), f"s_and_saveexec_b64 {outer}, {condition}"]
        if self.random.random() < 0.5:
            lines += [f"s_xor_b64 {outer}, exec, {outer}", *self.several(depth + 1)]
            lines += [f"s_andn2_saveexec_b64 {rest}, {outer}", *self.several(depth + 1), f"s_or_b64 exec, exec, {rest}"]
        else:
            lines += [*self.several(depth + 1), f"s_or_b64 exec, exec, {outer}"]
        return lines
