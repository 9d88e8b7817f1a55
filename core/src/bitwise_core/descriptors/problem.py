"""A matrix product as a library call requests it: shapes, types, operand layouts and epilogue."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, TypeAlias

from pydantic import StrictBool, StrictInt, model_validator

from bitwise_core.descriptors import Cut, GEMMDesc, Record, Step
from bitwise_core.descriptors import Epilogue as Steps
from bitwise_core.descriptors.cuts import FloatName, Positive
from bitwise_core.descriptors.epilogue import Number
from bitwise_core.errors import BitwiseError

DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
"""PyTorch's dtype names, by the names of types in descriptors."""
NAMES = {f"torch.{theirs}": ours for ours, theirs in DTYPES.items()}
"""The names of types in descriptors, by the `str` of PyTorch's dtypes."""

BLOCK_K = 128
"""The values of k that share a scale, where the scales are those of blocks."""

Epilogue = Literal["none", "bias"]
Scaled: TypeAlias = Literal["none", "a", "b"]
"""The operand that a kernel multiplies by a number before the product."""
BlockScaling: TypeAlias = Literal["none", "product_first", "left_first"]
"""How a kernel adds the sums of blocks of k that have scales of their own."""


class ProblemError(BitwiseError, ValueError):
    """Operands that do not form a product of a library: the message says which, and what to do."""


class Finish(Record):
    """What a call of a library asks for beyond the product P of its operands.

    The result is activation(`alpha` s P + `beta` C).  C is the addend: a vector with an element for each column, a
    matrix, or a matrix of one row, which is added to each row; without one `beta` is 0.  s is 1, the product of one
    scale of each operand (`scales` is `tensor`), or of one for each row of A and one for each column of B (`row`).
    With `blocks`, the products of BLOCK_K values of k have scales of their own: `blocks` are the numbers of rows of A
    and of columns of B that share one.
    `fast_accumulation` lets fp8 kernels keep one accumulator.  Where each part rounds is the library's choice: see
    FinishedGEMM.
    """

    alpha: Number = 1.0
    beta: Number = 0.0
    addend: Literal["none", "vector", "row", "matrix"] = "none"
    activation: Literal["none", "relu", "gelu"] = "none"
    scales: Literal["none", "tensor", "row", "blocks"] = "none"
    blocks: tuple[Literal[1, 128], Literal[1, 128]] | None = None
    fast_accumulation: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> Finish:
        if (self.addend == "none") != (self.beta == 0.0):
            raise ValueError(
                f"beta = {self.beta} with addend = {self.addend}: beta is 0 exactly where nothing is added"
            )
        if self.scales != "none" and self.alpha != 1.0:
            raise ValueError(f"alpha = {self.alpha} with scales: leave alpha out")
        if (self.scales == "blocks") != (self.blocks is not None):
            raise ValueError("scales of blocks and the sizes of the blocks belong together: give both or neither")
        return self

    @property
    def words(self) -> str:
        """The finish as the end of a problem's description."""
        parts = [f"alpha {self.alpha!r}"] if self.alpha != 1.0 else []
        if self.addend != "none":
            times = "" if self.beta == 1.0 else f"{self.beta!r} times "
            parts.append(f"{times}a {self.addend} added")
        if self.blocks is not None:
            rows, columns = self.blocks
            parts.append(f"a scale for each block of {rows} x {BLOCK_K} of A and {BLOCK_K} x {columns} of B")
        elif self.scales != "none":
            parts.append(f"a scale for each {'operand' if self.scales == 'tensor' else 'row and column'}")
        parts += [self.activation] if self.activation != "none" else []
        parts += ["fast accumulation"] if self.fast_accumulation else []
        return ", ".join(parts)


class GEMMProblem(Record):
    """out[m, n] = a[m, k] b[k, n], or `batch` of them: the key of a lock's entries.

    `a`, `b` and `out` name types.  A transposed operand is stored as [k, m] or [n, k]; a vector is never transposed.
    Leading dimensions are in elements, None where rows are contiguous.  `batch` is None for a product without a batch;
    the matrices of a batch are contiguous, or `stride_a` and `stride_b` elements apart.  With the epilogue `bias`, a
    bias of n elements is added to the sums.  `finish` is what else the call asks for; it then states the bias, too.
    `grouped` stands for the product of a group of any shape: m, n and k are 1, and the descriptor of another k differs
    in its k only.  `dot` stands for a product of two dense vectors that a library computes by a function of its own: m
    and n are 1.  `vector` stands for a product of a matrix and a vector that a library may compute by a function of its
    own: n is 1, and there is no batch.  The device, the library and the addresses are not part of the problem.
    """

    m: Positive
    n: Positive
    k: Positive
    a: FloatName
    b: FloatName
    out: FloatName
    transpose_a: StrictBool = False
    transpose_b: StrictBool = False
    ld_a: Positive | None = None
    ld_b: Positive | None = None
    batch: Positive | None = None
    stride_a: StrictInt | None = None
    stride_b: StrictInt | None = None
    epilogue: Epilogue = "none"
    finish: Finish | None = None
    grouped: StrictBool = False
    dot: StrictBool = False
    vector: StrictBool = False

    @model_validator(mode="before")
    @classmethod
    def _vectors(cls, fields: Any) -> Any:
        """Drop the transpose of a contiguous vector, whose layout is the same in both forms."""
        if not isinstance(fields, dict):
            return fields
        found = dict(fields)
        for name, (rows, columns) in (("a", ("m", "k")), ("b", ("k", "n"))):
            dense_vector = 1 in (found.get(rows), found.get(columns)) and found.get(f"ld_{name}") is None
            if dense_vector and found.get(f"transpose_{name}") is True:
                del found[f"transpose_{name}"]
        return found

    @model_validator(mode="after")
    def _consistent(self) -> GEMMProblem:
        if self.finish is not None and self.epilogue != "none":
            raise ValueError("a problem with finish states its bias there: leave epilogue out")
        others = (self.ld_a, self.ld_b, self.batch, self.stride_a, self.stride_b)
        if self.grouped and ((self.m, self.n, self.k) != (1, 1, 1) or self.finish is None or any(others)):
            raise ValueError("a group of any shape has m = n = k = 1, a finish and no layout")
        if self.dot and ((self.m, self.n, self.grouped) != (1, 1, False) or self.finish is not None or any(others)):
            raise ValueError("a product of two vectors has m = n = 1, no finish and no layout")
        if self.vector and (self.n != 1 or self.batch is not None or self.grouped or self.dot):
            raise ValueError("a product of a matrix and a vector has n = 1, and is no batch, group or dot product")
        for name in ("a", "b"):
            rows, columns = self.stored(name)
            leading = getattr(self, f"ld_{name}")
            if leading is not None and leading <= columns:
                raise ValueError(
                    f"ld_{name} = {leading} leaves no gap after rows of {columns} elements: leave it out, or give more"
                )
            stride = getattr(self, f"stride_{name}")
            if stride is not None and (self.batch is None or stride == rows * (leading or columns)):
                raise ValueError(f"stride_{name} = {stride} has no effect here: leave it out")
        return self

    def stored(self, name: str) -> tuple[int, int]:
        """Return the rows and columns of the operand `a` or `b` as stored in memory."""
        shape = (self.m, self.k) if name == "a" else (self.k, self.n)
        return shape[::-1] if getattr(self, f"transpose_{name}") else shape

    @property
    def letters(self) -> str:
        """The layouts of A and B: N for dense rows, T for dense columns."""
        return "".join("T" if each else "N" for each in (self.transpose_a, self.transpose_b))

    @property
    def words(self) -> str:
        """The problem on one line."""
        types = self.a if self.a == self.b else f"{self.a} x {self.b}"
        batch = f"{self.batch} of " if self.batch is not None else ""
        gaps = "".join(f" {name}={value}" for name, value in (
            ("ld_a", self.ld_a), ("ld_b", self.ld_b), ("stride_a", self.stride_a), ("stride_b", self.stride_b),
        ) if value is not None)  # fmt: skip
        added = " with bias" if self.epilogue == "bias" else ""
        if self.finish is not None:
            added = f" with {self.finish.words}" if self.finish.words else ""
        if self.dot:
            return f"a dot product of {self.k} {types} to {self.out}"
        if self.grouped:
            return f"a group of {types} to {self.out}{added}"
        how = " by a vector" if self.vector else ""
        return f"{batch}{self.m}x{self.n}x{self.k} {types} {self.letters}{how} to {self.out}{gaps}{added}"


class BiasedGEMM(Record):
    """What a library computes for a problem with a bias: the descriptor of the product, and when that is rounded.

    The bias is added in fp32, to nearest even: to the sum itself, or with `rounded_first` to the sum rounded to the
    output's type.  The result is rounded to the output's type.  With `onto_bias`, the slices of the product, the parts
    of its first cut, are added one after the other to the bias instead, and each result is rounded to that type.
    """

    product: GEMMDesc
    rounded_first: StrictBool = False
    onto_bias: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> BiasedGEMM:
        if self.onto_bias and (self.rounded_first or not _has_slices(self.product)):
            raise ValueError(
                "onto_bias adds slices to the bias: the product has a contiguous first cut whose parts are added in "
                "order, and drops no k, and rounded_first is out"
            )
        return self

    def finished(self) -> FinishedGEMM:
        """Return the same product with the bias as steps on its sums.  Raises DescriptorError."""
        output = self.product.output_dtype
        converted, add = Step(name="convert", dtype=output), Step(name="add", operand_dtype=output)
        fields = {name: getattr(self.product, name) for name in type(self.product).model_fields}
        product = GEMMDesc(**(fields | {"output_dtype": "fp32"}))
        if self.onto_bias:
            step = Step(name="axpby", value=1.0, operand_value=1.0, fused="x", operand_dtype=output)
            return FinishedGEMM(product=product, steps=Steps.of(step, converted), onto_addend=True)
        steps = (converted, "add") if self.rounded_first else (add, converted)
        return FinishedGEMM(product=product, steps=Steps.of(*steps))


def _is_scalable(product: GEMMDesc) -> bool:
    """Whether a product has accumulators of BLOCK_K values of k, in slices of whole ones, if any."""
    *slices, block = product.k_cuts or (None,)
    whole = not slices or ((slices[0].span or 1) % BLOCK_K == 0 and slices[0] == Cut(span=slices[0].span))
    return block == Cut(span=BLOCK_K) and len(slices) < 2 and whole and not product.k_dropped


def _has_slices(product: GEMMDesc) -> bool:
    """Whether a product is a sum of slices of consecutive k, added in order."""
    first = product.k_cuts[0] if product.k_cuts else None
    ordered = first is not None and (first.layout, first.running_sum) == ("contiguous", True)
    return ordered and not product.k_dropped and product.tail is None


class FinishedGEMM(Record):
    """What a library computes for a problem with a finish: the sums in fp32, and the steps on each of them.

    The operands of `steps` are, in order, the scale of the operands' product (`tensor`), or the scales of the columns
    and then those of the rows (`row`), all of fp32, and the addend.  Where a step is a function of a column or of a row
    its operand is that of the whole matrix, with equal rows or columns.

    With `block_scaling`, the accumulators P of `product` have BLOCK_K values of k each, and are multiplied by the
    scales x of the block of A and y of that of B: a slice is the total of fma(P, x y, total) with x y rounded
    (`product_first`), or of fma(P x, y, total) with P x rounded (`left_first`), from +0 in ascending k.  Two operands
    precede those of the steps: the scales of A, a column for each block of k, and those of B, a row for each.

    With `onto_addend`, the slices of `product`, the parts of its first cut, are added one after the other to the addend
    C in the type of the output: the first step, `axpby`, adds `operand_value` C to the first slice and the result to
    each other one, and the steps after it follow on the last one.  Where `operand_value` is 0 nothing is added to the
    first slice, which is multiplied by the step's `value` alone: the operands are those of the steps after the first.

    A kernel may multiply an operand by `scale` in fp32 before the product, the operand `scaled`.  Both operands are
    then widened from `widened_from` to fp32, the type of the operands of `product`.
    """

    product: GEMMDesc
    steps: Steps
    scaled: Scaled = "none"
    scale: Number = 1.0
    widened_from: FloatName | None = None
    block_scaling: BlockScaling = "none"
    onto_addend: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> FinishedGEMM:
        if self.product.output_dtype != "fp32":
            raise ValueError(f"the steps take sums of fp32, and the product's output is {self.product.output_dtype}")
        if (self.scaled == "none") != (self.widened_from is None) or (self.scaled == "none" and self.scale != 1.0):
            raise ValueError("scaled, scale and widened_from belong together: give all of them or none")
        if self.scaled != "none" and {self.product.left_dtype, self.product.right_dtype} != {"fp32"}:
            raise ValueError("a scaled operand is a number of fp32: the product's operands are fp32, too")
        if self.block_scaling != "none" and not _is_scalable(self.product):
            raise ValueError(
                f"block_scaling multiplies sums of {BLOCK_K} values of k: the product has a cut of span {BLOCK_K}, in "
                "slices of whole blocks that are added in order in fp32, and drops no k"
            )
        if self.onto_addend and not (_has_slices(self.product) and self.steps.steps[0].name == "axpby"):
            raise ValueError(
                "onto_addend adds slices to the addend: the product has a contiguous first cut whose parts are added "
                "in order, and drops no k, and the first step is axpby"
            )
        if self.onto_addend and (self.block_scaling, self.scaled) != ("none", "none"):
            raise ValueError("onto_addend adds slices of operands as they are: leave block_scaling and scaled out")
        return self

    @property
    def starts_from_addend(self) -> bool:
        """With `onto_addend`: whether the first slice is added to an operand."""
        return self.steps.steps[0].operand_value != 0.0

    @cached_property
    def slices(self) -> tuple[tuple[int, GEMMDesc, Steps], ...]:
        """With `onto_addend`: for each slice the first k, the product, and the steps on it.

        The operand of the first slice's steps is the addend, if any, and that of the others the result of the one
        before; the operands of further steps follow it on the last slice.
        """
        first, *others = self.steps.steps
        fields = {name: getattr(self.product, name) for name in type(self.product).model_fields}
        fields["k_cuts"] = self.product.k_cuts[1:]
        found, low = [], 0
        lengths = [each for each in self.product.k_cuts[0].lengths(self.product.k) if each]
        for place, length in enumerate(lengths):
            factor = first.operand_value if place == 0 else 1.0
            step = first.model_copy(update={"operand_value": factor})
            if factor == 0.0:
                step = Step(name="scale", value=first.value)
            ending = others if place == len(lengths) - 1 else [Step(name="convert", dtype=self.output_dtype)]
            found.append((low, GEMMDesc(**(fields | {"k": length})), Steps.of(step, *ending)))
            low += length
        return tuple(found)

    @property
    def operand_dtypes(self) -> tuple[str, str]:
        """The types of the operands that the library receives."""
        return self.widened_from or self.product.left_dtype, self.widened_from or self.product.right_dtype

    @property
    def output_dtype(self) -> str:
        """The type of the result."""
        return self.steps.output_dtype("fp32")
