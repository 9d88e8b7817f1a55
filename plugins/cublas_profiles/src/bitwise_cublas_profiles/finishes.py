"""Products with a finish: alpha and beta with an addend, activations, and scales of fp8 operands.

Each describes the sums in fp32 and the steps on each of them (FinishedGEMM). The rows of the table `finishes` say in
which order a kernel rounds alpha P + beta C:

- `product_fused`: fma(alpha, P, beta C), then rounded to the output's type.
- `addend_fused`: fma(beta, C, alpha P), then rounded to the output's type.
- `both_rounded`: alpha P and beta C, each rounded in fp32, then their sum rounded to the output's type.
- `rounded`: alpha P is rounded to the output's type before C is added; beta is 1.
- `operand_scaled`: an operand is multiplied by alpha in fp32 before the product, then as `addend_fused`.
- `onto_product_fused`, `onto_addend_fused`, `onto_both_rounded`: the slices of k are added one after the other to the
  addend, or without one to the first slice, which is multiplied by alpha.
- `onto_itself`: the slices, each multiplied by alpha and rounded, are added one after the other, and then the addend.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from bitwise_core.descriptors import Cut, Epilogue, GEMMDesc, Instruction, Step
from bitwise_core.descriptors.problem import Finish, FinishedGEMM, GEMMProblem
from bitwise_cublas_profiles.describe import (
    FILLING,
    ONTO,
    biased_product_of,
    descriptor_of,
    from_first_slice,
    sums_under_addend,
)
from bitwise_cublas_profiles.finish_rows import finish_row, rectifier
from bitwise_cublas_profiles.profile import Profile, Row, RowNotCovered
from bitwise_cublas_profiles.query import FP8, Configuration, CublasError, GemmQuery

_SCALED_OUTPUTS = ("bf16", "fp16", "fp32")
_OTHER_BETA = 0.5
"""A number that is not 1: rows that were measured with a beta of 1 only do not apply."""
_INSTRUCTION_K = 32
"""The k of an instruction of fp8."""
_BLOCK = 128
"""The k after which fp8 kernels start an accumulator without fast accumulation."""
_ONTO_ITSELF = "itself"
"""The order, without the prefix ONTO, in which an addend follows the slices."""
_FUSED: dict[str, Literal["x", "none"]] = {"product_fused": "x", "both_rounded": "none"}
"""By order: the term of a sum whose multiplication is fused, where it is not that of the addend."""
_FP32_PARTIALS = 2
"""The REDUCTION_SCHEME that adds slices in fp32."""


def plain_problem(problem: GEMMProblem, finish: Finish, known: Profile, torch_version: str) -> GEMMProblem:
    """The problem whose query PyTorch makes for a finish without scales: with a bias, or of the product alone.

    PyTorch sends a fused bias, and a row that is only added, through the interface that has another workspace.  It has
    copied the row to the output, to which the library adds the product.  Raises CublasError.
    """
    fields = {name: getattr(problem, name) for name in type(problem).model_fields} | {"finish": None}
    if finish.addend == "vector" or adds_row(problem, finish):
        if problem.k == 1:
            raise CublasError(f"{problem.words} is not described: one value of k is measured with another beta only")
        if finish.addend != "vector":
            call = "one row added" if problem.m == 1 else "one row added to all"
            check_pytorch(known, call, torch_version, problem.words)
        fields["epilogue"] = "bias"
    return GEMMProblem(**fields)


def adds_row(problem: GEMMProblem, finish: Finish) -> bool:
    """Whether one row is only added, to all rows or to the only one."""
    alone = finish.beta == 1.0 and problem.m == 1 and problem.batch is None and problem.n > 1
    return finish.addend == "row" or (finish.addend == "matrix" and alone)


def scaled_query(problem: GEMMProblem, finish: Finish, workspace: int) -> GemmQuery:
    """The query of a product of fp8 operands with a scale for each. Raises CublasError."""
    check_scaled(problem)
    if finish.addend != "none" and problem.out == "fp32":
        raise CublasError(
            f"{problem.words} is not described: PyTorch adds no bias to a scaled product of fp32; the nearest "
            "described call has an output of bf16 or fp16"
        )
    return GemmQuery(
        problem.m, problem.n, problem.k, problem.a, problem.b, problem.out, transpose_b=True,
        epilogue="none" if finish.addend == "none" else "bias", fast_accumulation=finish.fast_accumulation,
        blocks=finish.blocks, workspace=workspace,
    )  # fmt: skip


def check_scaled(problem: GEMMProblem) -> None:
    """Raise CublasError unless a product of scaled fp8 operands has measured types, layouts and finish."""
    finish = problem.finish or Finish()
    nearest = "the nearest described call multiplies e4m3 by e4m3 or one of them e5m2, A as [m, k] and B as [n, k]"
    if not {problem.a, problem.b} <= FP8 or {problem.a, problem.b} == {"e5m2"}:
        raise CublasError(f"{problem.words} is not described: these operand types are not multiplied; {nearest}")
    dense = (problem.ld_a, problem.ld_b, problem.batch) == (None, None, None)
    if problem.transpose_a or not (problem.transpose_b or problem.n == 1) or not dense:
        raise CublasError(f"{problem.words} is not described: this layout is not measured; {nearest}, without gaps")
    if problem.out not in _SCALED_OUTPUTS:
        raise CublasError(
            f"{problem.words} is not described: outputs of {problem.out} are not measured; the nearest described ones "
            f"are {', '.join(_SCALED_OUTPUTS)}"
        )
    if finish.activation != "none" or finish.addend in ("row", "matrix") or finish.beta not in (0.0, 1.0):
        raise CublasError(f"{problem.words} is not described: a scaled product is measured alone and with a bias")


def scaled_product_of(problem: GEMMProblem, query: GemmQuery, configuration: Configuration, known: Profile,
                      workspace: int) -> FinishedGEMM:  # fmt: skip
    """What the library computes for a query of `scaled_query`: acc (s_a s_b), rounded in fp32, then the bias.

    Raises RowNotCovered.
    """
    _row(known, query, configuration, "tensor", Finish())
    plain = replace(query, epilogue="none", fast_accumulation=False)
    desc = descriptor_of(plain, configuration, known, extrapolate=True, workspace=workspace)
    return FinishedGEMM(product=accumulated(desc, query.fast_accumulation), steps=scaled_steps(problem, ("multiply",)))


def block_scaled_product_of(
    problem: GEMMProblem, query: GemmQuery, configuration: Configuration, known: Profile, torch_version: str
) -> FinishedGEMM:
    """What the library computes for a query of `scaled_query` with scales of blocks of k, then the bias.

    Slices are whole blocks of k, whole groups of four where an operand has blocks of 128 x 128. Raises RowNotCovered.
    """
    check_pytorch(known, "blocks", torch_version, problem.words)
    split, k, fields = configuration.split_k, problem.k, configuration.record()
    sliced = split > 1
    for row in known.tables["block_scales"]:
        wanted = (row["algorithm"], tuple(row["blocks"]), row["sliced"], *row["dtypes"])
        if wanted[:3] == (configuration.algorithm, query.blocks, sliced) and {problem.a, problem.b} <= {*wanted[3:]}:
            break
    else:
        row = None
    if row is None or (sliced and configuration.reduction != _FP32_PARTIALS) or split < 0 or k % _BLOCK:
        raise RowNotCovered(
            f"{query.description} by {known.description} is not described: {problem.words} is not measured with this "
            f"configuration ({', '.join(f'{name} {value}' for name, value in fields.items())}); the nearest described "
            "call has one scale for each operand"
        )
    known.record_use("block_scales", row)
    step = _BLOCK * (4 if _BLOCK in (query.blocks or ()) else 1)
    span = -(-(k // split) // step) * step if sliced else k
    if sliced and k > span * split:
        raise RowNotCovered(f"{query.description} is not described: {split} slices of {span} values are not measured")
    plain = single_pass(k, problem.a, problem.b, known, fast_accumulation=False)
    cuts = (Cut(span=span), *plain.k_cuts) if sliced else plain.k_cuts
    return FinishedGEMM(
        product=plain.model_copy(update={"k_cuts": cuts}), steps=scaled_steps(problem, ()),
        block_scaling=row["order"],
    )  # fmt: skip


def row_scaled_product_of(problem: GEMMProblem, known: Profile, torch_version: str) -> FinishedGEMM:
    """What PyTorch's own kernel computes with a scale for each row and column: (acc s_b) s_a, then the bias.

    Its kernel does not depend on a heuristic. Raises RowNotCovered.
    """
    check_scaled(problem)
    finish = problem.finish or Finish()
    check_pytorch(known, "rows and columns", torch_version, problem.words)
    return FinishedGEMM(
        product=single_pass(problem.k, problem.a, problem.b, known, finish.fast_accumulation),
        steps=scaled_steps(problem, ("multiply", "multiply")),
    )


def group_of(problem: GEMMProblem, known: Profile, torch_version: str) -> FinishedGEMM:
    """What PyTorch's own kernels compute for one group: bf16 operands, or e4m3 with a scale for each row and column.

    They make one pass over k, whatever the shapes, and multiply by the scales of the rows first: (acc s_a) s_b. Raises
    CublasError.
    """
    finish = problem.finish or Finish()
    if finish.scales == "none" and (problem.a, problem.b, problem.out) == ("bf16", "bf16", "bf16"):
        check_pytorch(known, "groups", torch_version, problem.words)
        product = single_pass(problem.k, "bf16", "bf16", known)
        return FinishedGEMM(product=product, steps=Epilogue.of(_converted("bf16")))
    if finish.scales == "row" and (problem.a, problem.b, problem.out) == ("e4m3", "e4m3", "bf16"):
        check_pytorch(known, "scaled groups", torch_version, problem.words)
        product = single_pass(problem.k, "e4m3", "e4m3", known, finish.fast_accumulation)
        return FinishedGEMM(product=product, steps=scaled_steps(problem, ("multiply", "multiply")))
    raise RowNotCovered(
        f"{problem.words} in a group is not described: groups of bf16, and of e4m3 with scales of rows and columns, "
        "with outputs of bf16, are measured; others are products of their own, by torch.mm or torch._scaled_mm"
    )


def check_pytorch(known: Profile, call: str, torch_version: str, words: str) -> None:
    """Raise RowNotCovered unless a call whose kernel PyTorch decides was measured with this version of PyTorch."""
    release = ".".join(torch_version.split(".")[:2])
    rows = [row for row in known.tables["pytorch"] if row["call"] == call]
    for row in rows:
        if release in row["torch"]:
            known.record_use("pytorch", row)
            return
    measured = sorted({each for row in rows for each in row["torch"]})
    raise RowNotCovered(
        f"{words} on compute capability {known.key[1]} is not described: PyTorch decides which kernel computes it, and "
        f"that is measured with PyTorch {', '.join(measured) or 'of no version'}, not {release}"
    )


def single_pass(k: int, left: str, right: str, known: Profile, fast_accumulation: bool = True) -> GEMMDesc:
    """The fp32 sums of one pass over k by warpgroups, of 16-bit or 8-bit operands."""
    native = _INSTRUCTION_K if left in FP8 else 16
    cuts = () if fast_accumulation or left not in FP8 else (Cut(span=_BLOCK),)
    return GEMMDesc(
        k=k, left_dtype=left, right_dtype=right, output_dtype="fp32", path="matrix", instruction_k=native, k_cuts=cuts,
        instruction=Instruction(architecture=known.architecture, family="wgmma", k=native),
    )  # fmt: skip


def accumulated(desc: GEMMDesc, fast_accumulation: bool) -> GEMMDesc:
    """The descriptor of the sums in fp32; with fast accumulation, a slice has one accumulator."""
    fields = {name: getattr(desc, name) for name in type(desc).model_fields} | {"output_dtype": "fp32"}
    if fast_accumulation:
        fields["k_cuts"] = desc.k_cuts[:-1]
    return GEMMDesc(**fields)


def scaled_steps(problem: GEMMProblem, scales: tuple[str, ...]) -> Epilogue:
    """The steps on the sums of fp8 operands: multiplications by scales, a bias, and the conversion to the output."""
    bias = () if problem.finish is None or problem.finish.addend == "none" else (
        Step(name="add", operand_dtype=problem.out),
    )  # fmt: skip
    return Epilogue.of(*scales, *bias, _converted(problem.out))


def _converted(dtype: str) -> Step:
    return Step(name="convert", dtype=dtype)


def finished_product_of(
    query: GemmQuery, configuration: Configuration, known: Profile, finish: Finish, workspace: int
) -> FinishedGEMM:
    """What the library computes for a query and its finish without scales, in this configuration.

    Raises RowNotCovered.
    """
    if finish.activation == "gelu":
        raise RowNotCovered(
            f"{query.description} with gelu is not described: the library's approximation of tanh is not; the nearest "
            "described call is torch.addmm, followed by torch.nn.functional.gelu, whose bytes differ"
        )
    rounded = onto = False
    if finish.addend == "vector":
        biased = biased_product_of(replace(query, epilogue="bias"), configuration, known, workspace=workspace)
        product, rounded, onto = biased.product, biased.rounded_first, biased.onto_bias
    elif finish.addend == "none":
        product = descriptor_of(replace(query, epilogue="none"), configuration, known, workspace=workspace)
    else:
        product = sums_under_addend(replace(query, epilogue="none"), configuration, known, workspace)
    order = "rounded" if rounded else _order(known, query, configuration, finish)
    onto |= order.startswith(ONTO)
    if onto and query.scale_type == "fp16" and finish.addend == "none":
        raise RowNotCovered(
            f"{query.description} with {finish.words} is not described: slices of sums of fp16 that are multiplied and "
            "added in place are measured onto an addend"
        )
    order = order.removeprefix(ONTO)
    product = from_first_slice(product, each=configuration.algorithm == FILLING) if onto else product
    fields = {name: getattr(product, name) for name in type(product).model_fields} | {"output_dtype": "fp32"}
    if query.scale_type == "fp16":
        finish = in_fp16(finish)
    alpha, scaled = finish.alpha, {}
    if order == "operand_scaled" and alpha != 1.0:
        if query.m == query.n == 1 and query.batch > 1:
            raise RowNotCovered(
                f"{query.description} with {finish.words} is not described: which operand alpha multiplies is not "
                "measured for batches of one element; the nearest described call is the product, followed by the sum"
            )
        # The kernel multiplies the vector of a product of a matrix and a vector.
        operand = "b" if configuration.algorithm == 13 and query.m > 1 else "a"
        scaled = {"scaled": operand, "scale": alpha, "widened_from": query.a}
        fields |= {"left_dtype": "fp32", "right_dtype": "fp32"}
        alpha = 1.0
    activation = (rectifier(known, query, configuration),) if finish.activation == "relu" else ()
    steps = Epilogue.of(*_steps(query.c, order, finish, alpha, activation, onto=onto, arithmetic=query.scale_type))
    if onto and (product.k_dropped or product.tail or not product.k_cuts or steps.steps[0].name != "axpby"):
        raise RowNotCovered(
            f"{query.description} with {finish.words} is not described: slices of this product onto the addend are not "
            f"measured (algorithm {configuration.algorithm}, split_k {configuration.split_k})"
        )
    return FinishedGEMM(product=GEMMDesc(**fields), steps=steps, onto_addend=onto, **scaled)


def in_fp16(finish: Finish) -> Finish:
    """The finish with the factors that a library receives for sums of fp16. Raises RowNotCovered."""
    with np.errstate(over="ignore"):
        alpha, beta = (float(np.float16(each)) for each in (finish.alpha, finish.beta))
    lost = (alpha == 0.0) != (finish.alpha == 0.0) or (beta == 0.0) != (finish.beta == 0.0)
    if lost or not np.isfinite([alpha, beta]).all():
        raise RowNotCovered(
            f"alpha {finish.alpha!r} and beta {finish.beta!r} on sums of fp16 are not described: fp16, in which the "
            "library multiplies, has no such numbers"
        )
    return finish.model_copy(update={"alpha": alpha, "beta": beta})


def _steps(
    output: str, order: str, finish: Finish, alpha: float, activation: tuple[Step, ...], *, onto: bool,
    arithmetic: Literal["fp32", "fp16"],
) -> tuple[Step | str, ...]:  # fmt: skip
    """The steps on a sum in fp32, in an order of the table, for an alpha that is not yet part of the product.

    With `onto` they are those of slices that are added in place. `activation` follows the addend. The product of two
    numbers of fp16 is exact in fp32, and their sum rounds to the same number of fp16 by way of fp32, so that only sums
    of products need `arithmetic`.
    """
    scale = () if alpha == 1.0 else (Step(name="scale", value=alpha),)
    if finish.addend == "none" and not onto:
        return (*scale, *activation, _converted(output))
    if order == "rounded":
        return (*scale, _converted(output), "add", *activation)
    fused = _FUSED.get(order, "operand")
    after = (Step(name="add", operand_dtype=output),) if order == _ONTO_ITSELF else ()
    under = 0.0 if after else finish.beta
    if arithmetic == "fp16" and alpha == under == 1.0 and not onto:
        return (Step(name="add", operand_dtype=output), *activation, _converted(output))
    step = Step(
        name="axpby", value=alpha, operand_value=under, fused=fused, operand_dtype=output, arithmetic=arithmetic
    )  # fmt: skip
    return (step, *after, *activation, _converted(output))


def _order(known: Profile, query: GemmQuery, configuration: Configuration, finish: Finish) -> str:
    """The order of a kernel. Raises RowNotCovered.

    Without an addend it is where the kernel multiplies by alpha, which it does for any addend. A vector that is only
    added has one result in every order that does not round first.
    """
    if finish.addend == "vector" and finish.alpha == finish.beta == 1.0:
        return "product_fused"
    if finish.addend == "none":
        added = Finish(alpha=finish.alpha, beta=_OTHER_BETA, addend="matrix")
        return str(_row(known, query, configuration, "matrix", added, finish.words)["order"])
    addend = "matrix" if finish.addend == "row" else finish.addend
    return str(_row(known, query, configuration, addend, finish)["order"])


def _row(
    known: Profile, query: GemmQuery, configuration: Configuration, addend: str, finish: Finish, words: str = ""
) -> Row:
    """The row of a configuration and a finish, which the message of RowNotCovered calls `words`."""
    row = finish_row(known, query, configuration, addend, finish)
    if row is not None:
        return row
    fields = ", ".join(f"{name} {value}" for name, value in configuration.record().items())
    what = words or ("one scale for each operand" if addend == "tensor" else finish.words)
    raise RowNotCovered(
        f"{query.description} by {known.description} is not described: {what} is not measured with this "
        f"configuration on {query.multiplied} ({fields}); the nearest described call is the product alone"
    )
