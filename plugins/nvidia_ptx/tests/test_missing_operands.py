"""An instruction without some of its operands is not modelled, in a sentence, and no internal error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import bitwise_core as bitwise
from bitwise_core.checker.kernel_files import read_kernel

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

SAMPLES = Path(__file__).parents[2] / "nvidia_sm90" / "tests" / "samples" / "sm_90"
FILES = ("row_sum/row_sum_1.ptx", "paged_sum/paged_sum_2.ptx", "rotate/rotate_1.ptx")


def shortened(text: str) -> list[str]:
    """The text with the first instruction of each form, once without its last operand and once without any."""
    lines, seen = text.split("\n"), set()
    found: list[str] = []
    for number, line in enumerate(lines):
        words = line.strip().rstrip(";").split(None, 1)
        if not line.strip().endswith(";") or len(words) < 2 or words[0].startswith((".", "@", "{", "//")):
            continue
        opcode, operands = words
        if opcode in seen:
            continue
        seen.add(opcode)
        fewer = {operands.rpartition(",")[0], ""}
        found += ["\n".join([*lines[:number], f"{opcode} {kept};", *lines[number + 1 :]]) for kept in sorted(fewer)]
    return found


@pytest.mark.parametrize("file", FILES)
def test_missing_operands(file: str) -> None:
    source = read_kernel(str(SAMPLES / file))
    texts = shortened(source.text)
    assert len(texts) > 20
    for text in texts:
        with suppress(bitwise.BitwiseError):
            found = bitwise.partition([bitwise.Source(source.name, text, source.launch)], cache=False, workers=1)
            assert "internal error" not in "".join(found.unknown.values())
