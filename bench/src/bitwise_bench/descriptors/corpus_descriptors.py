"""Kernels of the corpus as descriptors.

Tile sizes, numbers of warps and stages that do not affect the bits are in no descriptor, so several configurations of a
group share one descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bitwise_bench.corpus.cases import DTYPE_BYTES, Array, Case, Scalar
from bitwise_bench.descriptors.attention import attention
from bitwise_bench.descriptors.reductions import Loop, thread_sum
from bitwise_core.descriptors import Cut, Fold, GEMMDesc, Instruction, Record, ReductionDesc, single_pass

GROUP, WARP, SHARED = "wgmma", "mma.sync", "fused"
NATIVE = {"fp16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "fp64": 4}
FORMATS = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}


@dataclass(frozen=True, slots=True)
class Described:
    """The descriptor of a configuration with its buffers.

    `operands` are (buffer, shape, stored transposed) in the order of the descriptor's operands; `output` is the output
    buffer.  Every buffer contains `batch` consecutive problems of these shapes.
    """

    desc: Record
    operands: tuple[tuple[str, tuple[int, ...], bool], ...]
    output: str
    batch: int = 1


def _numbers(case: Case) -> dict[str, int]:
    return {each.name: int(each.value) for each in case.arguments if isinstance(each, Scalar)}


def _arrays(case: Case) -> dict[str, Array]:
    return {array.name: array for array in case.arrays}


def _format(dtype: str) -> str:
    return FORMATS.get(dtype, dtype)


def _instruction(case: Case, dtype: str, total: str = "fp32") -> Instruction:
    """Return wgmma for tiles of at least 64 rows and 4 warps, else mma.sync; or the row that both share."""
    if dtype in ("fp16", "bf16", "tf32") and total == "fp32":
        return Instruction(architecture="sm_90", family=SHARED, k=NATIVE[dtype])
    small = case.constants["BM"] < 64 or case.num_warps < 4 or dtype == "fp64"
    return Instruction(architecture="sm_90", family=WARP if small else GROUP, k=NATIVE[dtype])


def _product(case: Case, desc: GEMMDesc, order: str = "nn") -> Described:
    sizes = _numbers(case)
    m, n, k = (sizes[name] for name in "mnk")
    operands = ("a", (m, k), order[0] == "t"), ("b", (k, n), order[1] == "t")
    return Described(desc, operands, "c", _arrays(case)["a"].elements // (m * k))


def _plain(case: Case) -> Described:
    """Return a product with one accumulator over the whole k axis."""
    a, c = _arrays(case)["a"].dtype, _arrays(case)["c"].dtype
    dtype = "tf32" if case.family == "gemm_tf32" else _format(a)
    total = {"gemm_fp16_sum": "fp16", "gemm_fp64": "fp64"}.get(case.family, "fp32")
    desc = single_pass(
        _numbers(case)["k"], dtype, _instruction(case, dtype, total), output_dtype=c, accumulator_dtype=total
    )  # fmt: skip
    step = case.constants["BK"]
    if case.family == "gemm_fp64" and desc.k % step:
        # A multiply-add of zeros replaces a -0 from underflow by +0, so the padding of k is part of the descriptor.
        iterations = {"k_loop_step": step, "iteration_permutation": tuple(range(step))}
        desc = GEMMDesc(**{**dict(desc), **iterations})
    order = case.group.split("-")[1] if case.family == "gemm_layouts" else "nn"
    return _product(case, desc, order)


def _fp8(case: Case) -> Described:
    """Return an fp8 product: wgmma with promotion every IMPRECISE values of k, else operands widened to fp16."""
    arrays, k = _arrays(case), _numbers(case)["k"]
    dtype, imprecise = _format(arrays["a"].dtype), case.constants["IMPRECISE"]
    instruction = _instruction(case, dtype)
    if imprecise == 0 or instruction.family == WARP:
        wide = Instruction(architecture="sm_90", family=WARP, k=16)
        plain = single_pass(k, "fp16", wide, output_dtype=arrays["c"].dtype)
        changes = {"left_dtype": dtype, "right_dtype": dtype, "multiplied_as": "fp16"}
        # Four adjacent 8-bit elements of a thread become two pairs of fp16, each for one of two instructions.
        pairs = tuple(k for half in (0, 1) for k in range(32) if k % 4 // 2 == half)
        iterations = {"k_loop_step": 32, "iteration_permutation": pairs}
        return _product(case, GEMMDesc(**{**dict(plain), **changes, **iterations}), "nt")
    plain = single_pass(k, dtype, instruction, output_dtype=arrays["c"].dtype)
    cuts = (Cut(span=imprecise, start="zero"),) if imprecise > 0 else ()
    return _product(case, GEMMDesc(**{**dict(plain), "k_cuts": cuts}), "nt")


def _row_sum(case: Case) -> Described:
    """Return a sum of rows, one program per row; threads load 16 bytes if the rows are known to be aligned."""
    source, target = _arrays(case)["source"], _arrays(case)["target"]
    columns = _numbers(case)["columns"]
    aligned = columns % 16 == 0 and source.offset == 0
    narrow = case.function.__name__ == "row_sum_narrow"
    early = case.constants.get("EARLY")
    loop: Loop | None = None if early is None else "sums" if early else "elements"
    desc = thread_sum(
        columns,
        case.constants["BLOCK"],
        case.num_warps,
        16 // DTYPE_BYTES[source.dtype] if aligned else 1,
        dtype=source.dtype,
        accumulator_dtype=source.dtype if narrow else "fp32",
        output_dtype=target.dtype,
        loop=loop,
    )
    return Described(desc, (("source", (source.elements // columns, columns), False),), "target")


def _groups(case: Case) -> Described:
    """Return a product whose accumulator is added to a sum from +0 every GROUPS iterations, if GROUPS > 1."""
    if case.constants["GROUPS"] == 1:
        return _plain(case)
    arrays = _arrays(case)
    span = case.constants["BK"] * case.constants["GROUPS"]
    dtype = arrays["a"].dtype
    plain = single_pass(_numbers(case)["k"], dtype, _instruction(case, dtype), output_dtype=arrays["c"].dtype)
    return _product(case, GEMMDesc(**{**dict(plain), "k_cuts": (Cut(span=span, start="zero"),)}))


def _reduce(case: Case) -> Described | None:
    """Return the sum of the parts of a split-K product in order, from +0."""
    arrays, constants = _arrays(case), case.constants
    if constants["TREE"]:
        return None
    size, parts = _numbers(case)["size"], constants["SPLIT"]
    desc = ReductionDesc(
        length=parts,
        dtype="fp32",
        output_dtype=arrays["c"].dtype,
        folds=(Fold(stride=1, count=parts, start="zero"),),
    )
    return Described(desc, (("workspace", (size, parts), True),), "c")


def _attention(case: Case) -> Described | None:
    """Return forward attention of 16-bit types."""
    arrays, constants = _arrays(case), case.constants
    dtype = arrays["query"].dtype
    if dtype == "fp32":
        return None
    head, length = constants["HEAD"], _numbers(case)["length"]
    scale = next(float(each.value) for each in case.arguments if isinstance(each, Scalar) and each.name == "scale")
    desc = attention(
        dtype,
        head,
        (constants["BM"], constants["BN"]),
        case.num_warps,
        scale=scale,
        causal=constants["CAUSAL"],
        fill=constants["FILL"],
        skip=constants["SKIP"],
        output_dtype=arrays["output"].dtype,
    )
    operands = tuple((name, (length, head), False) for name in ("query", "key", "value"))
    return Described(desc, operands, "output", arrays["query"].elements // (length * head))


FAMILIES: Mapping[str, Callable[[Case], Described | None]] = {
    "gemm": _plain,
    "gemm_swizzled": _plain,
    "gemm_wrapped": _plain,
    "gemm_layouts": _plain,
    "gemm_fp16_sum": _plain,
    "gemm_tf32": _plain,
    "gemm_fp64": _plain,
    "gemm_fp8e4nv": _fp8,
    "gemm_fp8e5": _fp8,
    "gemm_batched": _plain,
    "gemm_kgroup": _groups,
    "split_k_reduce": _reduce,
    "row_sum": _row_sum,
    "row_sum_loop": _row_sum,
    "attention": _attention,
    "attention_causal": _attention,
}
"""The function that describes the kernels of each family; it returns None for those without a descriptor."""


def described(case: Case) -> Described | None:
    """Return the descriptor of a configuration, None where it has none."""
    make = FAMILIES.get(case.family)
    return None if make is None else make(case)
