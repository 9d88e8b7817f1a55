"""sm_100 and sm_103: shared opcodes are analysed, and approximations carry the name of the architecture."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

KERNEL = """
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 .ptr .global k_param_0, .param .u64 .ptr .global k_param_1)
.reqntid 32
{{
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.b64 %rd1, [k_param_0];
  ld.param.b64 %rd2, [k_param_1];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd3, %r1, 4, %rd1;
  mad.wide.u32 %rd4, %r1, 4, %rd2;
  ld.global.b32 %r2, [%rd3];
  {instruction}
  st.global.b32 [%rd4], %r3;
  ret;
}}
"""


def _analysis(target: str, instruction: str) -> object:
    arch = registry.default().arch(target)
    text = KERNEL.format(target=target, instruction=instruction)
    launch = Launch.model_validate({"file": "k.ptx", "grid": [1], "args": [{"buffer": "X"}, {"buffer": "Y"}]})
    return analyse(Source("k.ptx", text, launch), arch, {"X": 1, "Y": 2}, Options())


@pytest.mark.parametrize("target", ["sm_100", "sm_103"])
def test_shared_opcodes_are_analysed(target: str) -> None:
    found = _analysis(target, "add.rn.f32 %r3, %r2, %r2;")
    assert found.unknown is None  # type: ignore[attr-defined]
    assert found.signature is not None  # type: ignore[attr-defined]


def test_approximations_of_two_architectures_differ() -> None:
    left, right = (_analysis(target, "ex2.approx.f32 %r3, %r2;") for target in ("sm_100", "sm_103"))
    assert left.signature != right.signature  # type: ignore[attr-defined]
