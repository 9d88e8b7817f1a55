"""One PTX instruction in a kernel of an NVIDIA architecture."""

from __future__ import annotations

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

KERNEL = """.version 8.7
.target {target}
.address_size 64
.shared .align 16 .b8 shared[1024];
.visible .entry k(.param .u64 .ptr .global k_param_0, .param .u64 .ptr .global k_param_1)
.reqntid 32
{{
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b32 %s<6>; .reg .f32 %f<4>;
  .reg .b64 %rd<6>;
  ld.param.b64 %rd1, [k_param_0];
  ld.param.b64 %rd2, [k_param_1];
  mov.b32 %f0, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0;
  mov.b32 %s0, 0; mov.b32 %s1, 0; mov.b32 %s2, 0; mov.b32 %s3, 0;
  mov.b32 %r1, 0;
  mov.b32 %r2, 0;
  mov.b64 %rd3, 0;
  mov.b32 %r3, 0;
  {instruction}
  st.global.b32 [%rd2], %r3;
  ret;
}}
"""


def unknown_of(target: str, instruction: str) -> str:
    """Return why a kernel with this instruction, on line 18, is Unknown; an empty text if it is analysed."""
    text = KERNEL.format(target=target, instruction=instruction)
    launch = Launch.model_validate({"file": "k.ptx", "grid": [1], "args": [{"buffer": "X"}, {"buffer": "Y"}]})
    arch = registry.default().arch(target)
    return analyse(Source("k.ptx", text, launch), arch, {"X": 1, "Y": 2}, Options()).unknown or ""
