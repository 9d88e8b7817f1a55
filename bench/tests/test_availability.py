"""The first architecture of each instruction, against the assembler."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path

import pytest

from bitwise_bench.register_operations.assembling import assemble
from bitwise_bench.register_operations.forms import Form, forms
from bitwise_bench.register_operations.kernels import kernels
from bitwise_nvidia_ptx.availability import least_capability

pytest.importorskip("triton")


def ptxas() -> str:
    from triton import knobs

    return str(knobs.nvidia.ptxas.path)


def rejected(gpu: str, chosen: tuple[Form, ...]) -> set[Form]:
    return {form for kernel in kernels(chosen) for form in assemble(ptxas(), kernel, gpu)[2]}


def test_register_operations_need_the_architecture_that_the_assembler_names() -> None:
    """Of a third of all forms, another one each day: the assembler takes seconds for all of them."""
    listed = forms()[date.today().toordinal() % 3 :: 3]
    unknown = rejected("sm_100", listed)
    known = tuple(form for form in listed if form not in unknown)
    assert len(known) > 1000
    for gpu, capability in (("sm_80", 80), ("sm_89", 89), ("sm_90", 90)):
        newer = {form for form in known if max(map(least_capability, form.opcodes)) > capability}
        assert {each.name for each in newer ^ rejected(gpu, known)} == set()


TEXT = """.version 8.7
.target {gpu}
.address_size 64
.visible .entry k(.param .u64 p) {{
.reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .shared .b8 shared[1024];
ld.param.u64 %rd1, [p]; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
{instruction}
ret; }}
"""
F, ACCUMULATOR = "{%f0, %f1, %f2, %f3}", "{%r1, %r2, %r3, %r4}, {%r1, %r2}, {%f0, %f1, %f2, %f3}"
OTHERS = {
    "cp.async.commit_group;": 80,
    "mbarrier.init.shared::cta.b64 [shared], 1;": 80,
    "mbarrier.test_wait.parity.shared.b64 %p, [shared], 0;": 80,
    f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {F}, {ACCUMULATOR};": 80,
    f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {F}, {ACCUMULATOR};": 89,
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};": 90,
    "elect.sync %r1|%p, -1;": 90,
    "mapa.shared::cluster.u32 %r1, %r2, %r3;": 90,
    "barrier.cluster.arrive.aligned;": 90,
    "fence.proxy.async;": 90,
    "fence.mbarrier_init.release.cluster;": 90,
    "mbarrier.try_wait.parity.shared.b64 %p, [shared], 0;": 90,
    "mbarrier.arrive.expect_tx.shared.b64 _, [shared], 16;": 90,
    "cp.async.bulk.commit_group;": 90,
    "griddepcontrol.wait;": 90,
    "atom.global.add.noftz.bf16x2 %r1, [%rd1], %r2;": 90,
    "fma.rn.f32x2 %rd2, %rd1, %rd1, %rd1;": 100,
}


@pytest.mark.parametrize(("instruction", "capability"), OTHERS.items())
def test_other_instructions_need_the_architecture_that_the_assembler_names(
    instruction: str, capability: int, tmp_path: Path
) -> None:
    source = tmp_path / "k.ptx"
    for gpu in (80, 86, 89, 90, 100):
        source.write_text(TEXT.format(gpu=f"sm_{gpu}", instruction=instruction))
        command = [ptxas(), f"--gpu-name=sm_{gpu}", str(source), "-o", str(tmp_path / "k.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (gpu >= capability), (gpu, done.stderr)
    assert max(80, least_capability(instruction.split()[0].rstrip(";"))) == capability
