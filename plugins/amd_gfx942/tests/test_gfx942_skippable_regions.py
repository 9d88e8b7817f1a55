"""Regions that a wave skips when no lane is active, inline and outlined after the kernel's end."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_conformance.suite.tree_evaluation import value_of
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.tree_command import tree_of
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.simulation import simulate
from gfx942_kernels import launch_of, reading, run, text_of

START = """v_mov_b32_e32 v5, v4
s_mov_b32 s24, 7
v_cmp_lt_f32_e64 s[20:21], v2, v3
s_and_saveexec_b64 s[22:23], s[20:21]
"""
JOIN = "s_or_b64 exec, exec, s[22:23]\n"
WORK = "v_add_f32_e32 v5, v2, v3\n"


def inline(after: str = "") -> str:
    return text_of(f"{START}s_cbranch_execz .Lback\n{WORK}.Lback:\n{JOIN}{after}")


def outlined(outside: str, after: str = "") -> str:
    """The region `outside` after the kernel's end; `.Lback` is the join, `.Lnext` the instruction after it."""
    text = text_of(f"{START}s_cbranch_execnz .Lout\n.Lback:\n{JOIN}.Lnext:\nv_mov_b32_e32 v6, 1\n{after}")
    lines = "".join(line + "\n" if line.endswith(":") else f"\t{line}\n" for line in outside.strip().splitlines())
    return text.replace("\ts_endpgm\n", "\ts_endpgm\n" + lines)


OUTLINED = f".Lout:\n{WORK}"


@pytest.mark.parametrize(
    "outside",
    [
        f"{OUTLINED}s_branch .Lback",
        f"{OUTLINED}{JOIN}s_branch .Lnext",
        f"{OUTLINED}s_nop 1\n{JOIN}v_mov_b32_e32 v6, 1\ns_waitcnt vmcnt(0) lgkmcnt(0)\n"
        "global_store_dword v1, v5, s[8:9]\ns_endpgm",
        f"{OUTLINED}s_mov_b32 s24, 8\ns_mov_b32 s25, 9\ns_branch .Lback",
        f".Lout:\nv_cmp_lt_f32_e64 s[26:27], v3, v4\ns_and_saveexec_b64 s[28:29], s[26:27]\ns_cbranch_execz .Lin\n"
        f"v_mov_b32_e32 v7, 0\n.Lin:\ns_or_b64 exec, exec, s[28:29]\n{WORK}s_branch .Lback",
    ],
)
def test_outlined_region_equals_inline_region(outside: str) -> None:
    """An outlined region equals the inline one, also with a copy of the code at the join."""
    expected = reading("", text=inline())
    found = reading("", text=outlined(outside))
    assert expected.signature is not None
    assert (found.signature, found.unknown) == (expected.signature, None)
    random = np.random.default_rng(5)
    words = random.integers(0, 1 << 32, (3, 64), dtype=np.uint64).astype(np.uint32)
    words[1, :32] = words[0, :32]
    contents = {name: words[index].view(np.uint8) for index, name in enumerate("abc")}
    results = []
    for text in (inline(), outlined(outside)):
        prepared = prepare_launch(GFX942.parse(text, "kernel.amdgcn"), GFX942, launch_of())
        given = {"out": np.zeros(256, dtype=np.uint8), **{name: each.copy() for name, each in contents.items()}}
        results.append(simulate(prepared, given).after["out"].view(np.uint32))
    assert (results[0] == results[1]).all()
    a, b, c = (each.view(np.float32) for each in words)
    with np.errstate(all="ignore"):
        number = np.where(a < b, a + b, c)
    assert (np.isnan(number) | (results[0] == number.view(np.uint32))).all()


@pytest.mark.parametrize(
    ("outside", "after", "message"),
    [
        (f"{OUTLINED}s_endpgm", "", "whether any lane runs depends on data"),
        (f"{OUTLINED}s_or_b64 exec, exec, s[20:21]\ns_branch .Lnext", "", "whether any lane runs depends on data"),
        (f"{OUTLINED}s_mov_b64 exec, -1\ns_branch .Lback", "", "whether any lane runs depends on data"),
        (f"{OUTLINED}s_barrier\ns_branch .Lback", "", "whether any lane runs depends on data"),
        (f"{OUTLINED}s_cbranch_execnz .Lout\ns_branch .Lback", "", "whether any lane runs depends on data"),
        (
            f"{OUTLINED}s_cmp_eq_u32 s24, 7\ns_cbranch_scc1 .Lout\ns_branch .Lback",
            "",
            "whether any lane runs depends on data",
        ),
        (f"{OUTLINED}s_mov_b32 s24, 8\ns_branch .Lback", "v_mov_b32_e32 v5, s24", "nothing wrote"),
    ],
)
def test_region_with_effects_in_an_empty_wave_is_unknown(outside: str, after: str, message: str) -> None:
    found = reading("", text=outlined(outside, after))
    assert found.signature is None
    assert message in (found.unknown or "")


NESTED = """v_cmp_gt_u32_e64 s[30:31], {lanes}, v0
s_and_saveexec_b64 s[32:33], s[30:31]
{before}
v_cmp_lt_f32_e64 s[20:21], v2, v3
s_and_saveexec_b64 s[22:23], s[20:21]
s_xor_b64 s[24:25], exec, s[22:23]
s_cbranch_execz .Lother
v_mul_f32_e32 v7, v2, v2
v_cmp_lt_f32_e64 s[20:21], v3, v4
s_and_saveexec_b64 s[26:27], s[20:21]
s_xor_b64 s[28:29], exec, s[26:27]
s_cbranch_execz .Linner
v_mul_f32_e32 v6, v3, v3
v_add_f32_e32 v6, v6, v7
.Linner:
s_andn2_saveexec_b64 s[20:21], s[28:29]
s_cbranch_execz .Ljoined
{inner}
v_sub_f32_e32 v6, v7, v4
.Ljoined:
s_or_b64 exec, exec, s[20:21]
.Lother:
s_andn2_saveexec_b64 s[22:23], s[24:25]
s_cbranch_execz .Ldone
{other}
.Ldone:
s_or_b64 exec, exec, s[22:23]
v_mov_b32_e32 v5, v6
"""


def nested(
    lanes: int = 64, before: str = "s_nop 0", inner: str = "s_nop 0", other: str = "v_mov_b32_e32 v6, v3"
) -> str:
    store = (
        "s_waitcnt vmcnt(0)\nglobal_store_dword v1, v5, s[8:9]\ns_or_b64 exec, exec, s[32:33]\nv_mov_b32_e32 v5, v2\n"
    )
    skip = f"v_cmp_le_u32_e64 s[30:31], {lanes}, v0\ns_and_b64 exec, exec, s[30:31]"
    return NESTED.format(lanes=lanes, before=before, inner=inner, other=other) + store + skip


@pytest.mark.parametrize("lanes", [64, 50])
def test_register_written_on_all_paths_has_no_previous_value(lanes: int) -> None:
    """Nested divergence, in all lanes or in some: the previous value of a register is not part of the result."""
    first = reading(nested(lanes))
    assert first.signature is not None
    assert first.signature == reading(nested(lanes, before="v_mov_b32_e32 v6, v4")).signature
    assert first.signature != reading(nested(lanes, other="v_mov_b32_e32 v6, v4")).signature
    assert first.signature != reading(nested(lanes, inner="v_add_f32_e32 v7, v7, v7")).signature
    assert "nothing wrote" in (reading(nested(lanes, other="s_nop 0")).unknown or "")
    kept = reading(nested(lanes, before="v_mov_b32_e32 v6, v4", other="s_nop 0")).signature
    assert kept == reading(nested(lanes, before="v_mov_b32_e32 v6, v4", other="v_mov_b32_e32 v6, v4")).signature
    random = np.random.default_rng(lanes)
    a, b, c = (random.standard_normal(64).astype(np.float32) for _ in range(3))
    found = run(nested(lanes), *(each.view(np.uint32) for each in (a, b, c))).view(np.float32)
    expected = np.where(a < b, np.where(b < c, b * b + a * a, a * a - c), b)
    assert (found[:lanes] == expected[:lanes]).all()
    assert (found[lanes:] == a[lanes:]).all()


@pytest.mark.parametrize("lanes", [64, 50])
def test_expressions_of_nested_divergence_have_the_simulated_bits(lanes: int) -> None:
    random = np.random.default_rng(lanes + 1)
    words = {name: (random.standard_normal(64) * 3).astype(np.float32).view(np.uint32) for name in "abc"}
    contents = {name: each.view(np.uint8) for name, each in words.items()}
    for body in (nested(lanes), nested(lanes, "v_mov_b32_e32 v6, v4", other="s_nop 0")):
        left = run(body, words["a"], words["b"], words["c"])
        source = Source("kernel.amdgcn", text_of(body), launch_of())
        for lane in range(0, lanes, 3):
            root = tree_of(source, GFX942, Options(), f"out[{lane}]", None)[0].root
            assert value_of(root, contents, {}) == int(left[lane])
