"""What a kernel does to each sum of a product before it stores it: an epilogue, on registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from bitwise_core.descriptors import Epilogue
from bitwise_core.descriptors.evaluation import epilogue_tree
from bitwise_core.ir import Load, Node, Operation
from bitwise_nvidia_sm90.activations import SHORT_FORMULAS
from bitwise_nvidia_sm90.gemm.kernels.element_text import ElementText, element_text

MOST_OPERANDS = 3
"""The operands of an epilogue in one kernel."""
Columns: TypeAlias = Literal["pairs", "elements", "same", "map"]
_EARLY = {1: 192, 2: 192, 3: 144}
"""By the consumers of a kernel: the registers of a thread for sums and for operands that are loaded early."""


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """How a kernel of warpgroups loads an operand of `size` bytes an element.

    `columns`: two neighbours of a row at once, one by one, one for all columns, or parts of a tile through a tensor map
    to the memory from which they are stored.  `rows`: whether rows differ.
    """

    size: int
    columns: Columns
    rows: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """The epilogue of a product of type `dtype`, and the layouts of its operands."""

    epilogue: Epilogue
    dtype: str
    layouts: tuple[OperandLayout, ...] = ()

    @property
    def output(self) -> str:
        """The type of what is stored."""
        return self.epilogue.output_dtype(self.dtype)


def are_early(sums: int, consumers: int, operands: int) -> bool:
    """Return whether operands fit in registers while a product is computed: a thread has `sums` elements."""
    return sums * (2 + operands) <= _EARLY[consumers]


@lru_cache(maxsize=1024)
def finished(epilogue: Epilogue, dtype: str, prefix: str) -> ElementText:
    """Return the PTX of an epilogue of one sum in fp32.

    The sum is in `<sum>` and the operands are in `<operand0>`, ...: the caller replaces these by registers.  Raises
    UnsupportedGEMM and DescriptorError.
    """
    start: Node = Load("sum", 0, 32)
    if dtype != "fp32":
        start = Operation(f"convert.rn.{dtype}.fp32", (start,))
    tree = epilogue_tree(epilogue, dtype, start, SHORT_FORMULAS)
    leaves = {"sum": "<sum>", **{f"operand{index}": f"<operand{index}>" for index in range(len(epilogue.operands))}}
    return element_text(tree, leaves, prefix)


def with_registers(text: str, total: str, operands: tuple[str, ...]) -> str:
    """Return a text of `finished` with its registers."""
    text = text.replace("<sum>", total)
    for index, each in enumerate(operands):
        text = text.replace(f"<operand{index}>", each)
    return text
