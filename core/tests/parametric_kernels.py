"""PTX kernels with two buffers and two integers, with their launch-parametric signatures and concrete results."""

from __future__ import annotations

import pytest

from bitwise_core.checker.parametric.signature import function_signature, parametric_signature
from bitwise_core.execution.concrete import checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.visible_copies import visible_copies

SM90 = pytest.importorskip("bitwise_nvidia_sm90.architecture").SM90

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1,
	.param .u32 kernel_param_2,
	.param .u32 kernel_param_3
)
{required}
{{
	.reg .pred %p<20>;
	.reg .b16 %rs<20>;
	.reg .b32 %r<60>;
	.reg .b64 %rd<40>;
	ld.param.b64 %rd1, [kernel_param_0];
	ld.param.b64 %rd2, [kernel_param_1];
	ld.param.b32 %r1, [kernel_param_2];
	ld.param.b32 %r2, [kernel_param_3];
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %tid.x;
"""


def kernel(body: str, threads: int | None = 128) -> str:
    required = "" if threads is None else f".reqntid {threads}"
    return HEAD.format(required=required) + body + "\tret;\n}\n"


def signature(text: str) -> bytes:
    module = SM90.parse(text, "kernel.ptx")
    return parametric_signature(module, module.kernel(None), SM90).value


def notes(text: str) -> tuple[str, ...]:
    module = SM90.parse(text, "kernel.ptx")
    return parametric_signature(module, module.kernel(None), SM90).notes


def program_only(text: str) -> str | None:
    """The reason why only the program text of a kernel is compared."""
    module = SM90.parse(text, "kernel.ptx")
    return parametric_signature(module, module.kernel(None), SM90).program_only


def parametric_function(text: str) -> bytes:
    module = SM90.parse(text, "kernel.ptx")
    copies = visible_copies(SM90, frozenset(), set())
    return function_signature(module, module.kernel(None), SM90, copies=copies).value


def equal_at_launch(first: str, second: str, grids: tuple[int, int], n: int, m: int) -> bool:
    """Whether two kernels store equal terms at all addresses that both write, in a concrete launch."""
    found = []
    for text, grid in zip((first, second), grids, strict=True):
        arguments = (
            Argument(kind="buffer", buffer="a"),
            Argument(kind="buffer", buffer="b"),
            Argument(kind="i32", value=n),
            Argument(kind="i32", value=m),
        )
        launch = Launch(file="kernel.ptx", grid=(grid, 1, 1), args=arguments)
        module = SM90.parse(text, "kernel.ptx")
        memory, scratch = run_blocks(prepare_launch(module, SM90, launch), TermDomain(), {"a": 1, "b": 2})
        output = checked_outputs(memory, scratch)[2]
        found.append(
            {int(a): tuple(int(w) for w in words) for a, words in zip(output.address, output.words.T, strict=True)}
        )
    common = found[0].keys() & found[1].keys()
    assert common
    return all(found[0][each] == found[1][each] for each in common)
