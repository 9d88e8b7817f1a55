"""Notes on what is assumed of the instructions of a kernel."""

from __future__ import annotations

import pytest

from bitwise_core.execution.architecture import Arch
from bitwise_nvidia_ptx.row_evidence import COPIES
from bitwise_nvidia_sm90.architecture import SM90
from bitwise_nvidia_sm100.architecture import SM100

COPY = "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.wait_all; bar.sync 0;"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, 1, 1, 1, 0, 0;"


def method(body: str, arch: Arch) -> str:
    text = (
        f".version 8.7\n.target {arch.name}a\n.address_size 64\n.visible .entry k(.param .u64 out)\n"
        f"{{ .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<9>;\nld.param.u64 %d1, [out];\nmov.b64 %d2, 0;\n"
        f"mov.b32 %r1, 0;\n{body}\nret;\n}}\n"
    )
    module = arch.parse(text, "k.ptx")
    assert arch.audit_contraction is not None
    return arch.audit_contraction(module, text, None).method


@pytest.mark.parametrize(
    ("body", "arch", "noted"),
    [
        (COPY + PRODUCT, SM90, True),
        (COPY + "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 16;", SM90, True),
        (COPY + "cp.async.bulk.commit_group;", SM90, False),
        (COPY, SM90, False),
        (PRODUCT, SM90, False),
        (COPY + "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 16;", SM100, True),
        ("cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 16;", SM100, False),
    ],
)
def test_reads_of_the_asynchronous_proxy_beside_copies_by_threads_are_noted(body: str, arch: Arch, noted: bool) -> None:
    assert (COPIES in method(body, arch)) == noted
