"""Clamps between 0 and 1: stated as saturations where the machine code shows them, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.assembly.module import Module
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.contraction.audit import audit_contraction
from bitwise_nvidia_ptx.contraction.saturations import stated_saturations
from bitwise_nvidia_ptx.text.parser import parse
from ptx_programs import ARCH, store, text

LOAD = (
    "mul.wide.u32 %d2, %r0, 16; add.s64 %d2, %d1, %d2; ld.global.v4.b32 {%r1, %r2, %r5, %r6}, [%d2]; mov.b32 %f1, %r1;"
)
OUT = " mov.b32 %r9, %f9;" + store("%r9", 32)
HIDE = "mov.b32 %r20, %f3; shfl.sync.bfly.b32 %r20, %r20, 0, 31, -1; mov.b32 %f4, %r20;"


def kernel(body: str) -> str:
    return text(LOAD + body + OUT)


def stated(body: str) -> Module | None:
    found = stated_saturations(ARCH.opcodes, parse(kernel(body), "k.ptx"), kernel(body))
    if found is None:
        return None
    assert parse(found.text, "k.ptx") == found.module
    return found.module


def opcodes(module: Module) -> list[str]:
    return [each.opcode for each in module.kernels[0].instructions if each.opcode.startswith(("min", "max", "cvt.s"))]


MERGED = {
    "literals": ("min.f32 %f3, %f1, 0f3F800000; max.f32 %f9, %f3, 0f00000000;", "cvt.sat.f32.f32"),
    "literals in registers": (
        "mov.f32 %f7, 0f3F800000; mov.f32 %f8, 0f00000000; min.f32 %f3, %f7, %f1; max.f32 %f9, %f8, %f3;",
        "cvt.sat.f32.f32",
    ),
    "of a product": (
        "mov.b32 %f2, %r2; mul.f32 %f4, %f1, %f2; min.f32 %f3, %f4, 0f3F800000; max.f32 %f9, %f3, 0f00000000;",
        "cvt.sat.f32.f32",
    ),
}


@pytest.mark.parametrize(("body", "opcode"), MERGED.values(), ids=MERGED)
def test_a_clamp_that_the_machine_code_saturates_is_stated(body: str, opcode: str) -> None:
    module = stated(body)
    assert module is not None
    assert opcodes(module) == ["min.f32", opcode]
    audited = audit_contraction(ARCH.opcodes, parse(kernel(body), "k.ptx"), kernel(body), None)
    assert opcodes(audited.module) == opcodes(module)
    assert "1 clamps between 0 and 1 are saturations in the machine code (ptxas" in audited.method


def test_products_behind_a_saturation_are_audited() -> None:
    body = (
        "mov.b32 %f2, %r2; min.f32 %f3, %f1, 0f3F800000; max.f32 %f4, %f3, 0f00000000; mul.f32 %f5, %f4, %f2;"
        "add.f32 %f9, %f5, %f1;"
    )
    audited = audit_contraction(ARCH.opcodes, parse(kernel(body), "k.ptx"), kernel(body), None)
    assert opcodes(audited.module) == ["min.f32", "cvt.sat.f32.f32"]


OTHERS = {
    "hidden": f"min.f32 %f3, %f1, 0f3F800000; {HIDE} max.f32 %f9, %f4, 0f00000000;",
    "from below first": "max.f32 %f3, %f1, 0f00000000; min.f32 %f9, %f3, 0f3F800000;",
    "to another bound": "min.f32 %f3, %f1, 0f40000000; max.f32 %f9, %f3, 0f00000000;",
    "to -0": "min.f32 %f3, %f1, 0f3F800000; max.f32 %f9, %f3, 0f80000000;",
    "that keeps NaNs": "min.NaN.f32 %f3, %f1, 0f3F800000; max.NaN.f32 %f9, %f3, 0f00000000;",
    "under a condition": (
        "setp.lt.s32 %p1, %r2, 0; mov.f32 %f9, 0f40000000; min.f32 %f3, %f1, 0f3F800000;"
        "@%p1 max.f32 %f9, %f3, 0f00000000;"
    ),
}


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_clamps_are_not(body: str) -> None:
    assert stated(body) is None


def test_a_minimum_that_is_written_again_between_is_not() -> None:
    assert stated("min.f32 %f3, %f1, 0f3F800000; mov.b32 %f3, %r2; max.f32 %f9, %f3, 0f00000000;") is None


def test_the_machine_code_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    body = MERGED["literals"][0]
    monkeypatch.setattr(Ptxas, "digest", lambda self, text, fuse=True: text)
    assert stated(body) is None


def test_without_an_assembler_the_text_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **keywords: object) -> Ptxas:
        raise PtxasNotFound("no assembler")

    body = MERGED["literals"][0]
    monkeypatch.setattr(Ptxas, "locate", missing)
    assert stated(body) is None
    module = parse(kernel(body), "k.ptx")
    assert audit_contraction(ARCH.opcodes, module, kernel(body), None).module == module


def test_a_stated_saturation_returns_0_for_a_nan() -> None:
    module = stated(MERGED["literals"][0])
    assert module is not None
    arguments = (Argument(kind="buffer", buffer="out"), Argument(kind="buffer", buffer="in"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)
    given = np.tile(np.array([0x7FC00000, 0, 0, 0], dtype=np.uint32), 32).view(np.uint8)
    found = simulate(prepare_launch(module, ARCH, launch), {"in": given, "out": np.ones(128, dtype=np.uint8)})
    assert not found.after["out"].any()
    assert not found.notes
