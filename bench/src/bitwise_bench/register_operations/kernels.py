"""PTX kernels that apply forms of register operations to their operands, one case in each thread of one block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitwise_bench.register_operations.forms import Form
from bitwise_bench.register_operations.operands import CASES, WIDTHS, Words, operands

SLOT = 8 * CASES
"""The bytes of one operand or result: eight for each case."""

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class FormsKernel:
    """A kernel `forms` of forms with the same kinds of operands; its buffers are `out` and `in`."""

    forms: tuple[Form, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The kinds of the operands."""
        return self.forms[0].sources

    @property
    def input_bytes(self) -> NDArray[np.uint8]:
        """The content of the buffer `in`: the operands one after the other; never empty."""
        columns = operands(self.sources) if self.sources else (np.zeros(CASES, dtype=np.uint64),)
        return np.concatenate(columns).astype("<u8").view(np.uint8)

    @property
    def output_size(self) -> int:
        """The size in bytes of the buffer `out`."""
        return SLOT * sum(len(form.results) for form in self.forms)

    def results(self, out: NDArray[np.uint8]) -> Mapping[Form, tuple[Words, ...]]:
        """Return the results of each form from the bytes of `out`."""
        columns = iter(out.view("<u8").reshape(-1, CASES))
        return {
            form: tuple(next(columns) & np.uint64((1 << WIDTHS[kind]) - 1) for kind in form.results)
            for form in self.forms
        }

    @property
    def text(self) -> str:
        """The PTX; the instructions of `forms[i]` are all on the line that `lines` returns for it."""
        return "\n".join((*self._head(), *self._bodies(), "ret;", "}", ""))

    def form_on(self, line: int) -> Form | None:
        """Return the form whose instructions are on a line of the text, counted from 1."""
        index = line - len(self._head()) - 1
        return self.forms[index] if 0 <= index < len(self.forms) else None

    def _head(self) -> list[str]:
        lines = [
            ".version 8.7", ".target sm_90a", ".address_size 64",
            ".visible .entry forms(.param .u64 out, .param .u64 in)", f".reqntid {CASES}", "{",
            ".reg .b64 %out; .reg .b64 %in; .reg .b32 %lane; .reg .b64 %place;",
            "ld.param.u64 %out, [out];", "ld.param.u64 %in, [in];", "mov.u32 %lane, %tid.x;",
            "mul.wide.u32 %place, %lane, 8;", "add.s64 %out, %out, %place;", "add.s64 %in, %in, %place;",
        ]  # fmt: skip
        for index, (name, kind) in enumerate(zip("abce", self.sources, strict=False)):
            bits, loaded = WIDTHS[kind], f"%loaded_{name}" if kind == "pred" else f"%{name}"
            lines.append(f".reg .b{bits} {loaded}; ld.global.b{bits} {loaded}, [%in+{SLOT * index}];")
            if kind == "pred":
                lines.append(f".reg .pred %{name}; setp.ne.u32 %{name}, {loaded}, 0;")
        return lines

    def _bodies(self) -> Iterator[str]:
        slot = 0
        for form in self.forms:
            names = {name: f"%{name}" for name in "abcetuxy"}
            parts = ["{ .reg .b32 %t; .reg .b32 %u;"]
            parts += [f".reg .{_register(kind)} %{name};" for name, kind in zip("xy", form.results, strict=False)]
            parts.append(form.text.format_map(names))
            for name, kind in zip("xy", form.results, strict=False):
                bits, stored = WIDTHS[kind], f"%{name}"
                if kind == "pred":
                    parts.append(f"selp.b32 %u, 1, 0, %{name};")
                    stored = "%u"
                parts.append(f"st.global.b{bits} [%out+{slot * SLOT}], {stored};")
                slot += 1
            yield " ".join((*parts, "}"))


def _register(kind: str) -> str:
    return "pred" if kind == "pred" else f"b{WIDTHS[kind]}"


def kernels(forms: Sequence[Form], at_once: int = _AT_ONCE) -> tuple[FormsKernel, ...]:
    """Return kernels that together apply all forms, each with at most `at_once` of them."""
    alike: dict[tuple[str, ...], list[Form]] = {}
    for form in forms:
        alike.setdefault(form.sources, []).append(form)
    return tuple(
        FormsKernel(tuple(group[start : start + at_once]))
        for group in alike.values()
        for start in range(0, len(group), at_once)
    )
