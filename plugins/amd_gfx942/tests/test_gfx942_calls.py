"""Calls of device functions: a call is equivalent to the inlined function."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core.execution.concrete import ready
from bitwise_core.execution.simulation import simulate
from gfx942_kernels import launch_of, reading, text_of

WAIT = "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\n"
RETURN = "s_setpc_b64 s[30:31]"


def address(name: str, pair: str = "s[20:21]") -> str:
    low, high = (f"s{each}" for each in pair[2:-1].split(":"))
    sums = f"s_add_u32 {low}, {low}, {name}@rel32@lo+4\ns_addc_u32 {high}, {high}, {name}@rel32@hi+12\n"
    return f"s_getpc_b64 {pair}\n{sums}"


def call(name: str) -> str:
    return f"{address(name)}s_swappc_b64 s[30:31], s[20:21]\n"


def text(body: str, **functions: str) -> str:
    """A kernel preceded by the functions that it may call."""
    before = ""
    for name, lines in functions.items():
        inside = "".join(f"{line}\n" if line.endswith(":") else f"\t{line}\n" for line in lines.strip().splitlines())
        before += f"\t.type\t{name},@function\n{name}:\n{inside}.L{name}_end:\n\t.size\t{name}, .L{name}_end-{name}\n"
    return text_of(body).replace("\t.text\n\t.globl", f"\t.text\n{before}\t.globl", 1)


SQUARE = f"{WAIT}v_mul_f32_e32 v6, v2, v2\nv_cmp_lt_f32_e32 vcc, v6, v3\nv_cndmask_b32_e32 v2, v6, v3, vcc\n{RETURN}"
LOOP = f"""{WAIT}s_mov_b32 s24, 3
.Lagain:
v_fma_f32 v2, v2, v3, v4
s_add_i32 s24, s24, -1
s_cmp_lg_u32 s24, 0
s_cbranch_scc1 .Lagain
{RETURN}"""
OUTER = (
    f"{WAIT}s_mov_b64 s[34:35], s[30:31]\n{call('inner')}v_add_f32_e32 v2, v2, v4\n"
    f"s_mov_b64 s[30:31], s[34:35]\n{RETURN}"
)


def inline(lines: str) -> str:
    return lines.replace(RETURN, "s_nop 0")


@pytest.mark.parametrize(
    ("body", "same", "functions"),
    [
        (f"{call('f')}v_mov_b32_e32 v5, v2", f"{inline(SQUARE)}\nv_mov_b32_e32 v5, v2", {"f": SQUARE}),
        (
            f"{call('f')}{call('f')}v_mov_b32_e32 v5, v2",
            f"{inline(SQUARE)}\n{inline(SQUARE)}\nv_mov_b32_e32 v5, v2",
            {"f": SQUARE},
        ),
        (f"{call('g')}v_mov_b32_e32 v5, v2", f"{inline(LOOP)}\nv_mov_b32_e32 v5, v2", {"f": SQUARE, "g": LOOP}),
        (
            f"{call('outer')}{call('inner')}v_mov_b32_e32 v5, v2",
            f"{inline(SQUARE)}\nv_add_f32_e32 v2, v2, v4\n{inline(SQUARE)}\nv_mov_b32_e32 v5, v2",
            {"outer": OUTER, "inner": SQUARE},
        ),
    ],
)
def test_call_equals_inlined_function(body: str, same: str, functions: dict[str, str]) -> None:
    found, expected = reading("", text=text(body, **functions)), reading(same)
    assert expected.signature is not None
    assert (found.signature, found.unknown) == (expected.signature, None)
    random = np.random.default_rng(4)
    words = random.standard_normal((3, 64)).astype(np.float32)
    results = []
    for each in (text(body, **functions), text_of(same)):
        given = {name: words[index].view(np.uint8).copy() for index, name in enumerate("abc")}
        given["out"] = np.zeros(256, dtype=np.uint8)
        results.append(simulate(ready(GFX942.parse(each, "kernel.amdgcn"), GFX942, launch_of()), given).after["out"])
    assert (results[0] == results[1]).all()
    assert results[0].any()


RETURNS_ELSEWHERE = f"{WAIT}s_mov_b64 s[30:31], 16\n{RETURN}"
OTHER_FUNCTION = (
    f"{address('f')}{address('g', 's[22:23]')}s_mov_b64 s[20:21], s[22:23]\ns_swappc_b64 s[30:31], s[20:21]"
)
DATA_DEPENDENT = "v_readfirstlane_b32 s20, v2\nv_readfirstlane_b32 s21, v3\ns_swappc_b64 s[30:31], s[20:21]"
RECURSION = f"{WAIT}{call('f')}{RETURN}"


@pytest.mark.parametrize(
    ("body", "functions", "message"),
    [
        (call("f"), {"f": RETURNS_ELSEWHERE}, "jumps to an address other than that of its function or its call"),
        (OTHER_FUNCTION, {"f": SQUARE, "g": LOOP}, "jumps to an address other than that of its function or its call"),
        (DATA_DEPENDENT, {"f": SQUARE}, "calls an unknown function"),
        (call("elsewhere"), {"f": SQUARE}, "an address in the text that is not a function's"),
        (address("f").replace("+12", "+16") + "s_swappc_b64 s[30:31], s[20:21]", {"f": SQUARE}, "not a function's"),
        (call("f"), {"f": RECURSION}, "calls an unknown function"),
        ("s_setpc_b64 s[30:31]", {}, "jumps to an unknown target"),
    ],
)
def test_unresolved_jumps_are_unknown(body: str, functions: dict[str, str], message: str) -> None:
    found = reading("", text=text(f"{body}\nv_mov_b32_e32 v5, v2", **functions))
    assert found.signature is None
    assert message in (found.unknown or "")


def test_function_uses_the_mode_of_its_kernel() -> None:
    body, functions = f"{call('f')}v_mov_b32_e32 v5, v2", {"f": SQUARE}
    kept = text(body, **functions)
    flushed = kept.replace("float_denorm_mode_32 3", "float_denorm_mode_32 0")
    assert reading("", text=kept).signature not in (None, reading("", text=flushed).signature)


def test_function_called_before_and_after_a_mode_change_is_unknown() -> None:
    """The copies of a function share their lines, by which the clamping bit is looked up."""
    clamp = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"
    convert = f"{WAIT}v_cvt_f16_f32_e32 v6, v2\n{RETURN}"
    both = reading("", text=text(f"{call('f')}v_mov_b32_e32 v7, v6\n{clamp}{call('f')}v_mov_b32_e32 v5, v6", f=convert))
    assert "it is unknown whether overflow is clamped" in (both.unknown or "")
    before, after = (
        reading("", text=text(body, f=convert)).signature
        for body in (f"{call('f')}{clamp}v_mov_b32_e32 v5, v6", f"{clamp}{call('f')}v_mov_b32_e32 v5, v6")
    )
    assert None not in (before, after)
    assert before != after


def test_truncated_function_is_rejected() -> None:
    cut = text(call("f"), f=SQUARE).replace(f"\t{RETURN}\n", "")
    assert "f is truncated: its last instruction neither ends the program nor branches" in (
        reading("", text=cut).unknown or ""
    )
