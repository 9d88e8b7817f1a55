"""Constants are numbers in the format of the operation that reads them, and patterns elsewhere."""

from __future__ import annotations

import pytest

from bitwise_core.ir.constant_text import constant_text
from bitwise_core.ir.svg import label
from bitwise_core.ir.text import read, render


@pytest.mark.parametrize(
    ("name", "bits", "pattern", "text"),
    [
        ("max.fp32", 32, "0xff800000", "-inf (0xff800000)"),
        ("add.rn.fp16", 16, "0x3c00", "1 (0x3c00)"),
        ("add.rn.bf16", 16, "0x8000", "-0 (0x8000)"),
        ("add.b32", 32, "0x3f800000", "0x3f800000"),
        ("add.b32", 32, "0x0", "0"),
        ("min.s32", 32, "0xfffffffd", "-3"),
        ("min.u32", 32, "0xfffffffd", "4294967293"),
    ],
)
def test_a_constant_has_the_format_of_its_operation(name: str, bits: int, pattern: str, text: str) -> None:
    (root,) = read(f"%a = load X+0 b{bits}\n%b = constant {pattern} b{bits}\n%c = {name} %a %b\nreturn %c")
    known = root.children[1]
    assert constant_text(known, root, 1) == label(known, {}, root, 1) == text  # type: ignore[arg-type]
    assert f"constant {text} b{bits}" in render(root)


def test_a_constant_alone_is_a_pattern() -> None:
    (root,) = read("%a = constant 0x3f800000 b32\nreturn %a")
    assert render(root) == "constant 0x3f800000 b32\n"
