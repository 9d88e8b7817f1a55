"""An epilogue with its operands, as the kernels of a product take them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitwise_core.descriptors import Epilogue
from bitwise_core.descriptors.epilogue import OPERANDS
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_nvidia_sm90.gemm.kernels.finish import MOST_OPERANDS, Columns, Finish, OperandLayout, finished
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM

MAP_ALIGNMENT = 16
"""The bytes of which the address and the strides of a tensor map are multiples."""
_MAPPED_BYTES = 2
"""The bytes of an element of an operand in a tensor map, whose tiles are those of the output."""
_PAIR_ALIGNMENT = 2
"""Elements."""
_CONSTRAINTS = {16: "h", 32: "r"}
"""The constraint of a register in inline assembly by its bits."""
_REGISTERS = {"p": "pred", "h": "b16", "r": "b32"}


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """The epilogue of a product of type `dtype`, and its operands: matrices, and vectors for biases."""

    epilogue: Epilogue
    dtype: str
    operands: tuple[Any, ...]

    def check(self) -> None:
        """Raise UnsupportedGEMM unless the kernels have the steps and as many operands."""
        if len(self.operands) > MOST_OPERANDS:
            raise UnsupportedGEMM(f"{len(self.operands)} operands of an epilogue: these kernels take {MOST_OPERANDS}")
        finished(self.epilogue, self.dtype, "")

    @property
    def strides(self) -> tuple[tuple[int, int], ...]:
        """The strides of each operand along rows and columns of the output, in elements; 0 along rows of a bias."""
        return tuple(
            (0, int(each.stride()[0])) if OPERANDS[name] == 1 else (int(each.stride()[0]), int(each.stride()[1]))
            for name, each in zip(self.epilogue.operands, self.operands, strict=True)
        )

    @property
    def element_size(self) -> int:
        """The bytes of an element of the product."""
        return FLOAT_FORMATS[self.dtype].bits // 8

    @property
    def matrices(self) -> int:
        """The number of operands that are as large as the output."""
        return sum(OPERANDS[each] == 2 for each in self.epilogue.operands)

    def bytes_of_operators(self, elements: int) -> list[int]:
        """Return the bytes that each of PyTorch's operators moves for an output of this number of elements."""
        found, dtype, others = [], self.dtype, iter(self.operands)
        for step, target in zip(self.epilogue.steps, self.epilogue.types(self.dtype), strict=True):
            size, written = (FLOAT_FORMATS[each].bits // 8 for each in (dtype, target))
            found.append(elements * (size + written))
            if step.name in OPERANDS:
                found[-1] += int(next(others).element_size()) * (elements if OPERANDS[step.name] == 2 else 0)
            if step.name == "swiglu":  # SiLU of the operand is an operator of its own
                found.append(2 * elements * size)
            dtype = target
        return found

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of kernels: each operand and its strides, None for those that the epilogue has not."""
        found: dict[str, Any] = {}
        for index in range(MOST_OPERANDS):
            given = index < len(self.operands)
            found[f"O{index}"] = self.operands[index] if given else None
            # A stride of 0 is None: Triton functions then need no index for it.
            row, column = self.strides[index] if given else (0, 0)
            found[f"o{index}_row"], found[f"o{index}_column"] = row or None, column or None
        return found

    def constants(self) -> dict[str, Any]:
        """Return the constants of Triton functions: the text, its constraints, and the bits of its result."""
        text = finished(self.epilogue, self.dtype, "epilogue_")
        widths = (32, *(8 * int(each.element_size()) for each in self.operands))
        constraints = ",".join(("=r", *(_CONSTRAINTS[each] for each in widths)))
        return {
            "EPILOGUE": inline_text(text.lines, text.result, len(self.operands)), "CONSTRAINTS": constraints,
            "PRODUCT": self.dtype,
        }  # fmt: skip

    def finish(self, given: Mapping[str, Any], lines: str | None) -> Finish:
        """Return the finish of a kernel of warpgroups with these arguments, N among them.

        `lines` allows it to copy the first operand of which there is one through a tensor map whose lines are "rows" or
        "columns".
        """
        layouts: list[OperandLayout] = []
        for index, each in enumerate(self.operands):
            row, column = given[f"o{index}_row"] or 0, given[f"o{index}_column"] or 0
            size = int(each.element_size())
            aligned = int(each.data_ptr()) % (_PAIR_ALIGNMENT * size) == 0
            columns: Columns = "elements"
            line, step = (row, column) if lines == "rows" else (column, row)
            has_map = (
                lines is not None and size == _MAPPED_BYTES and step == 1 and line > 0
                and line * size % MAP_ALIGNMENT == 0 and int(each.data_ptr()) % MAP_ALIGNMENT == 0
            )  # fmt: skip
            if column == 0:
                columns = "same"
            elif has_map:
                columns, lines = "map", None
            elif column == 1 and row % _PAIR_ALIGNMENT == 0 and given["N"] % _PAIR_ALIGNMENT == 0 and aligned:
                columns = "pairs"
            layouts.append(OperandLayout(size, columns, row != 0))
        return Finish(self.epilogue, self.dtype, tuple(layouts))


def inline_text(lines: tuple[str, ...], result: str, operands: int) -> str:
    """Return lines of `finished` as inline assembly: the result, in the low bits of 32, the sum, the operands."""
    body = "\n".join(lines)
    names = sorted(set(re.findall(r"%([phr])_(\w+)", body)))
    declared = "\n".join(f".reg .{_REGISTERS[kind]} %{kind}_{name};" for kind, name in names)
    body = body.replace("<sum>", "$1")
    for index in range(operands):
        body = body.replace(f"<operand{index}>", f"${index + 2}")
    move = "cvt.u32.u16" if result.startswith("%h") else "mov.b32"
    return f"{{\n{declared}\n{body}\n{move} $0, {result};\n}}"
