"""Plans: the parameters of the kernels that determine the bits of a descriptor.  Tile shapes are not among them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, strided_blocks, strided_lanes
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, MergeOrder, index_bits

SLICE_ORDERS = ("chain",)
"""The merge orders of slices that the second kernel implements."""
_CHAIN_LANES = 32
"""The largest number of lanes that are added one after the other."""
_UNITS = frozenset({"wgmma", "mma.sync"})
_FP8 = frozenset({"e4m3", "e5m2"})
_TYPES = frozenset({"fp16", "bf16", "fp32", *_FP8})
_FP8_ITERATION = 128
"""The values of k of an iteration of fp8."""
_FROM_ZERO = Cut(count=1, start="zero")
"""The outermost cut of a sum whose total is added to +0."""
_OUTPUTS = frozenset({"fp16", "bf16", "fp32"})


class UnsupportedGEMM(DescriptorError):
    """These kernels do not implement a descriptor, a schedule or a layout of operands; the message names the field."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Split-K: `number` slices of `span` k, the last one the remainder, added in an order of SLICE_ORDERS.

    `partial` is the type in which the sum of a slice is stored; `rounded` says that the running sum is rounded to the
    output's type after each addition, `from_zero` that it starts from +0, `down` that the last slice comes first.
    """

    number: int
    span: int
    partial: str = "fp32"
    rounded: bool = False
    from_zero: bool = False
    down: bool = False


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """A loop over k of matrix instructions.

    `short_first` is the length of an iteration where the remainder of a slice modulo it runs first (0: the short
    iteration runs last); `instruction_k8` asks for instructions of k 8; `accumulator_k` is the number of k of an
    iteration of fp8 (0: other types).  Each iteration of fp8 starts a new accumulator, or with `one_accumulator` all
    iterations of a slice have one.  With `fp16_sums`, accumulators are of fp16.
    """

    k: int
    slices: Slices
    short_first: int
    instruction_k8: bool
    accumulator_k: int
    one_accumulator: bool = False
    fp16_sums: bool = False

    @property
    def starts_accumulators(self) -> bool:
        """Whether each iteration starts a new accumulator, which is added to the total."""
        return self.accumulator_k > 0 and not self.one_accumulator


@dataclass(frozen=True, slots=True)
class LaneSum:
    """The order in which the sums of lanes are added.

    A running sum takes the lanes in the order of `sequence`; or each of `rounds` halves the number of lanes by adding
    the remaining lanes whose indices differ in that bit.
    """

    sequence: tuple[int, ...] = ()
    rounds: tuple[int, ...] = ()


def lane_sum_of(order: MergeOrder, lanes: int) -> LaneSum | None:
    """Return the sum of lanes in a merge order, None if the kernels do not implement the order."""
    if order.running_sum:
        return LaneSum(sequence=tuple(order.steps(lanes).sequence))
    bits = index_bits(order, lanes)
    if bits is None:
        return None
    return LaneSum(rounds=tuple(sum(later < bit for later in bits[position:]) for position, bit in enumerate(bits)))


@dataclass(frozen=True, slots=True)
class ScalarPlan:
    """Lanes of fused multiply-adds.

    With `strided`, tiles of `tile` k are distributed round-robin to the first `active_lanes` lanes (0: to all);
    otherwise each lane has `tile` consecutive k.  `chunk` is the number of its own k after which a lane starts a new
    accumulator.  `from_zero` says that the sum of the lanes starts from +0.  With `fp16_sums`, accumulators are of
    fp16.
    """

    k: int
    slices: Slices
    lanes: int
    strided: bool
    tile: int
    lane_sum: LaneSum
    chunk: int
    active_lanes: int = 0
    from_zero: bool = False
    fp16_sums: bool = False


@dataclass(frozen=True, slots=True)
class BlocksPlan:
    """Tiles of k distributed round-robin to blocks of 128 threads, whose sums a second kernel adds.

    A thread has `accumulators` k of each tile, each in its own accumulator.  With `from_zero`, the total is added to
    +0.
    """

    k: int
    blocks: int
    accumulators: int
    from_zero: bool = False

    @property
    def lane_sum(self) -> LaneSum:
        """The sum of the accumulators of a block: first those of each thread, then the threads by halves."""
        own, threads = self.accumulators.bit_length() - 1, lane_sum_of(MERGE_ORDERS["halves"], 128)
        assert threads is not None
        return LaneSum(rounds=(0,) * own + threads.rounds)

    @property
    def threads(self) -> int:
        """The threads of the second kernel; a thread without a block adds +0.  Groups of blocks need whole warps."""
        whole = 1 << (self.blocks - 1).bit_length()
        return min(whole if self.blocks == whole else max(32, whole), 128)


@dataclass(frozen=True, slots=True)
class SinglePrecisionPlan:
    """A product of matrices of fp32, or widened to it, in one accumulator for each element and slice.

    With `tf32`, operands are rounded to tf32 and multiplied by matrix instructions, otherwise by fused multiply-adds.
    `dealt` is the length of tiles of k that are distributed round-robin to the slices (0: a slice is a range of k); the
    slices' `span` is then the largest number of values of a slice.  With `paired`, the slices are added in that merge
    order.  `short_first` is that of MatrixPlan.  With `from_negative_zero`, the accumulator starts from -0.
    """

    k: int
    slices: Slices
    dealt: int
    short_first: int
    tf32: bool
    paired: bool = False
    from_negative_zero: bool = False


Plan = MatrixPlan | ScalarPlan | BlocksPlan | SinglePrecisionPlan


def plan(desc: GEMMDesc) -> Plan:
    """Return the plan of a descriptor.  Raises UnsupportedGEMM if the kernels do not implement it."""
    _check(desc)
    if desc.left_dtype == "fp32" or desc.accumulator_start != "zero":
        single = _single_precision_plan(desc)
        if single is not None:
            return single
    return _matrix_plan(desc) if desc.path == "matrix" else _scalar_plan(desc)


def _check(desc: GEMMDesc) -> None:
    if {desc.left_dtype, desc.right_dtype} - _TYPES:
        raise UnsupportedGEMM(
            f"operands of {desc.left_dtype} and {desc.right_dtype}: these kernels take {_listed(_TYPES)}"
        )
    if (desc.left_dtype in _FP8) != (desc.right_dtype in _FP8) or (
        desc.left_dtype not in _FP8 and desc.left_dtype != desc.right_dtype
    ):
        raise UnsupportedGEMM(
            f"operands of {desc.left_dtype} and {desc.right_dtype}: these kernels take two of the same width"
        )
    if desc.multiplied_as not in (None, "tf32"):
        raise UnsupportedGEMM(
            f"operands converted to {desc.multiplied_as}: these kernels convert them to tf32 or not at all"
        )
    if desc.output_dtype not in _OUTPUTS:
        raise UnsupportedGEMM(f"an output of {desc.output_dtype}: these kernels write {_listed(_OUTPUTS)}")
    halves = desc.path != "mul_add" and (desc.left_dtype, desc.accumulator_dtype) == ("fp16", "fp16")
    if desc.accumulator_dtype != "fp32" and not halves:
        raise UnsupportedGEMM(
            f"accumulator_dtype {desc.accumulator_dtype}: these kernels accumulate in fp32, and fp16 in fp16"
        )
    if desc.iteration_rotation is not None or desc.iteration_permutation:
        raise UnsupportedGEMM("rotated or permuted iterations: these kernels loop over k in ascending order")
    if desc.accumulator_start != "zero" and (desc.left_dtype in _FP8 or desc.path != "fma"):
        raise UnsupportedGEMM(
            f"sums of {desc.left_dtype} from -0 by {desc.path}: these kernels start fused multiply-adds of fp32 and of "
            "16-bit operands from it"
        )
    if desc.tail is not None:
        raise UnsupportedGEMM("a tail outside of the cuts and iterations: these kernels cut all of k")
    if desc.output_satfinite:
        raise UnsupportedGEMM("output_satfinite: these kernels store an overflow as infinity")
    if desc.scaled:
        raise UnsupportedGEMM("a scale: these kernels do not scale the product")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _matrix_plan(desc: GEMMDesc) -> MatrixPlan:
    assert desc.instruction is not None
    fp8, k = desc.left_dtype in _FP8, desc.k - desc.k_dropped
    if desc.instruction.architecture != "sm_90" or desc.instruction.family not in _UNITS:
        raise UnsupportedGEMM(f"instruction {desc.instruction_name}: these kernels run wgmma and mma.sync of sm_90")
    if fp8 and desc.instruction.family != "wgmma":
        raise UnsupportedGEMM("fp8 by mma.sync: these kernels run wgmma, whose sums of fp8 products differ")
    if not desc.use_fast_accum:
        raise UnsupportedGEMM("use_fast_accum false: these kernels add inside the instruction")
    native = 32 if fp8 else 16
    instruction_k8 = not fp8 and desc.instruction_k == 8
    if desc.instruction_k != native and not instruction_k8:
        raise UnsupportedGEMM(
            f"instruction_k {desc.instruction_k}: these kernels run instructions of k {native}, or k 8 on 16-bit types"
        )
    cuts = list(desc.k_cuts)
    accumulator_k, one_accumulator = 0, False
    if fp8 and cuts and _starts_accumulators(cuts[-1]) and (len(cuts) > 1 or cuts[-1].span == _FP8_ITERATION):
        accumulator_k = cuts.pop().span or 0
        if accumulator_k != _FP8_ITERATION:
            raise UnsupportedGEMM(
                f"accumulators of {accumulator_k} k: these kernels start a new one every {_FP8_ITERATION} k, or have "
                "one accumulator"
            )
    elif fp8:
        accumulator_k, one_accumulator = _FP8_ITERATION, True
    slices = Slices(1, k)
    if cuts:
        slices = _slices(cuts.pop(0), desc, k)
    if cuts:
        raise UnsupportedGEMM(
            f"{len(desc.k_cuts)} cuts of k on a matrix unit: these kernels take slices, and accumulators of fp8"
        )
    short_first = (desc.k_loop_step or 0) if desc.short_iteration == "first" else 0
    if desc.k_loop_step is not None and not short_first:
        raise UnsupportedGEMM("iterations that split an instruction: these kernels pad only the last iteration")
    if short_first and (fp8 or short_first % 16 or short_first & (short_first - 1) or short_first > 128):
        raise UnsupportedGEMM(
            f"k_loop_step {short_first} with the short iteration first: these kernels take 16, 32, 64 and 128"
        )
    if accumulator_k and slices.number > 1 and slices.span % accumulator_k:
        raise UnsupportedGEMM(
            f"slices of {slices.span} k: these kernels take fp8 slices of multiples of {accumulator_k} k"
        )
    if short_first and k % short_first == 0 and (slices.number == 1 or slices.span % short_first == 0):
        short_first = 0  # no iteration is short
    halves = desc.accumulator_dtype == "fp16"
    if halves and slices.number > 1 and slices.partial != "fp16":
        raise UnsupportedGEMM(f"slices of {slices.partial} with sums of fp16: these kernels store them as fp16")
    return MatrixPlan(k, slices, short_first, instruction_k8, accumulator_k, one_accumulator, halves)


def _single_precision_plan(desc: GEMMDesc) -> SinglePrecisionPlan | None:
    """Return the plan of a product of fp32 matrices in chains over slices of k, None for another order on lanes.

    Raises UnsupportedGEMM.
    """
    tf32, k, short_first = desc.path == "matrix", desc.k - desc.k_dropped, 0
    if tf32:
        short_first = _tf32_iteration(desc)
    from_zero = desc.k_cuts[:1] == (_FROM_ZERO,)
    cuts = desc.k_cuts[1:] if from_zero else desc.k_cuts
    if len(cuts) > 1:
        if tf32:
            raise UnsupportedGEMM(f"{len(cuts)} cuts of k on a matrix unit: these kernels take slices of tf32")
        return None
    if not cuts:
        kept = desc.accumulator_start == "negative-zero"
        slices = Slices(1, k, from_zero=from_zero)
        return SinglePrecisionPlan(k, slices, 0, short_first, tf32, from_negative_zero=kept)
    (cut,) = cuts
    if cut.layout == "contiguous":
        slices = _slices(cut, desc, k)
        # Starting from +0, or adding +0 to the total, changes the sign of a zero only, and both to +0.
        slices = replace(slices, from_zero=slices.from_zero or from_zero)
        return SinglePrecisionPlan(k, slices, 0, short_first, tf32)
    dealt = (
        cut.merge in (*SLICE_ORDERS, "paired") and not cut.groups and not short_first
        and (cut.partial_dtype, cut.merge_dtype) == ("fp32", "fp32")
    )  # fmt: skip
    if not dealt and tf32:
        raise UnsupportedGEMM(f"slices by {cut}: these kernels distribute tiles of k to slices that are added in order")
    if not dealt or cut.count is None:
        return None
    span = -(-k // (cut.tile * cut.count)) * cut.tile
    slices = Slices(cut.count, span, from_zero=from_zero or cut.start == "zero")
    return SinglePrecisionPlan(k, slices, cut.tile, 0, tf32, cut.merge == "paired")


def _tf32_iteration(desc: GEMMDesc) -> int:
    """Return the length of an iteration whose short one runs first, 0 for others.  Raises UnsupportedGEMM."""
    assert desc.instruction is not None
    if desc.instruction.architecture != "sm_90" or desc.instruction.family not in _UNITS:
        raise UnsupportedGEMM(f"instruction {desc.instruction_name}: these kernels run wgmma and mma.sync of sm_90")
    if desc.multiplied_as != "tf32" or (desc.instruction.k, desc.instruction_k) != (8, 8) or not desc.use_fast_accum:
        raise UnsupportedGEMM(
            f"instruction_k {desc.instruction_k} on fp32: these kernels round operands to tf32, and run "
            "instructions of k 8 that add their accumulator"
        )
    if desc.k_loop_step is None:
        return 0
    if desc.short_iteration != "first" or desc.k_loop_step not in (16, 32, 64):
        raise UnsupportedGEMM(
            f"k_loop_step {desc.k_loop_step}: these kernels take 16, 32 and 64 on tf32, with the short iteration first"
        )
    return desc.k_loop_step


def _starts_accumulators(cut: Cut) -> bool:
    """Return whether a cut starts a new fp32 accumulator every `span` k and adds the totals in order in fp32."""
    return (
        cut.layout == "contiguous" and cut.span is not None and cut.count is None and cut.remainder == "short-last"
        and cut.merge == "chain" and cut.start == "first" and not cut.groups
        and (cut.partial_dtype, cut.merge_dtype) == ("fp32", "fp32")
    )  # fmt: skip


def _slices(cut: Cut, desc: GEMMDesc, k: int) -> Slices:
    # Kernels that gather slices take the first one first; those of fp16 leave them to the kernel that adds them.
    down = cut.merge == "chain-down" and desc.accumulator_dtype == "fp16"
    ordered = cut.merge in SLICE_ORDERS or down
    if cut.layout != "contiguous" or not ordered or (cut.remainder != "short-last" or cut.groups):
        orders = " or ".join(MERGE_ORDERS[name].words for name in SLICE_ORDERS)
        raise UnsupportedGEMM(
            f"slices by {cut}: these kernels take contiguous ones, the last one short, added {orders}"
        )
    if cut.partial_dtype not in _OUTPUTS or cut.merge_dtype not in ("fp32", desc.output_dtype):
        raise UnsupportedGEMM(
            f"slices of {cut.partial_dtype}, sums of {cut.merge_dtype}: these kernels take slices of "
            f"{_listed(_OUTPUTS)}, and sums of fp32 and the output's type"
        )
    lengths = cut.lengths(k)
    if cut.start == "zero":  # the running sum is never -0, and an empty slice adds +0
        lengths = [each for each in lengths if each]
    if 0 in lengths:
        raise UnsupportedGEMM(f"{lengths.count(0)} empty slices: every slice of these kernels has at least one k")
    # All slices have the first length, except possibly the last.
    return Slices(len(lengths), lengths[0], cut.partial_dtype, cut.merge_dtype != "fp32", cut.start == "zero", down)


def _scalar_plan(desc: GEMMDesc) -> ScalarPlan | BlocksPlan:
    if desc.accumulator_dtype == "fp16":
        return _plan_in_fp16(desc)
    if desc.path != "fma" and desc.left_dtype not in ("fp16", "bf16"):
        raise UnsupportedGEMM(f"path {desc.path} on {desc.left_dtype}: these kernels use fused multiply-adds")
    if desc.path == "mul_add":
        raise UnsupportedGEMM("path mul_add: these kernels use fused multiply-adds")
    cuts, k = list(desc.k_cuts), desc.k - desc.k_dropped
    if (blocks := _blocks_plan(desc.k_cuts, k)) is not None:
        return blocks
    active_lanes = 0
    for position, cut in enumerate(cuts):
        if (cut.count or 0) > 2 and cut == strided_lanes(cut.count or 0, cut.tile):
            # A tree over the next power of two of lanes, the last of which have no k.
            active_lanes, lanes = cut.count or 0, 1 << ((cut.count or 0) - 1).bit_length()
            cuts[position] = Cut(layout="strided", count=lanes, tile=cut.tile, merge="halves")
        elif cut.groups:
            raise UnsupportedGEMM(
                f"parts in groups by {cut}: these kernels take groups of blocks of 128 threads, and of lanes of a tree"
            )
        if (cut.partial_dtype, cut.merge_dtype) != ("fp32", "fp32"):
            raise UnsupportedGEMM("scalar parts in other types than fp32: these kernels accumulate in fp32")
    chunk = 0
    if cuts and _starts_accumulators(cuts[-1]):
        chunk = cuts.pop().span or 0
    slices = Slices(1, k)
    if cuts and cuts[0].layout == "contiguous" and (len(cuts) > 1 or not _are_chain_lanes(cuts[0])):
        slices = _slices(cuts.pop(0), desc, k)
    if len(cuts) > 1:
        raise UnsupportedGEMM(f"{len(desc.k_cuts)} cuts of k: these kernels take slices, lanes, and chunks of a lane")
    total_from_zero = slices.number == 1 and slices.from_zero
    if not cuts:
        return ScalarPlan(k, slices, 1, False, slices.span, LaneSum((0,)), chunk or slices.span, 0, total_from_zero)
    (cut,) = cuts
    lanes = cut.count or 0
    if cut.remainder != "short-last":
        raise UnsupportedGEMM(f"lanes by {cut}: the last lane of these kernels has the remainder")
    if lanes & (lanes - 1) or lanes > (_CHAIN_LANES if cut.order.running_sum else 128):
        raise UnsupportedGEMM(f"{lanes} lanes: these kernels take powers of two up to {_CHAIN_LANES}, 128 in a tree")
    lane_sum = lane_sum_of(cut.order, lanes)
    if lane_sum is None:
        raise UnsupportedGEMM(
            f"lanes added {cut.order.words}: these kernels add them one after the other, or in rounds over the bits of "
            "their indices"
        )
    if cut.layout == "strided":
        tile = cut.tile
        lane_k = -(-slices.span // (tile * (active_lanes or lanes))) * tile
    else:
        lane_k = tile = cut.lengths(slices.span)[0]
        if slices.number > 1:
            raise UnsupportedGEMM("contiguous lanes of slices: these kernels take contiguous lanes of the whole k only")
    strided = cut.layout == "strided"
    from_zero = total_from_zero or cut.start == "zero"
    return ScalarPlan(k, slices, lanes, strided, tile, lane_sum, chunk or max(lane_k, 1), active_lanes, from_zero)


def _plan_in_fp16(desc: GEMMDesc) -> ScalarPlan:
    """Return the plan of the same sums in fp32, with accumulators of fp16.  Raises UnsupportedGEMM."""
    if any((each.partial_dtype, each.merge_dtype) != ("fp16", "fp16") for each in desc.k_cuts):
        raise UnsupportedGEMM("parts of sums of fp16 in other types: these kernels accumulate in fp16 and add in it")
    fields = {name: getattr(desc, name) for name in type(desc).model_fields}
    cuts = tuple(each.model_copy(update={"partial_dtype": "fp32", "merge_dtype": "fp32"}) for each in desc.k_cuts)
    found = _scalar_plan(GEMMDesc(**(fields | {"accumulator_dtype": "fp32", "k_cuts": cuts})))
    if isinstance(found, BlocksPlan) or (found.lanes > 1 and found.lane_sum.sequence != tuple(range(found.lanes))):
        raise UnsupportedGEMM("lanes of fp16 added in a tree: these kernels add them one after the other")
    slices = replace(found.slices, partial="fp16", rounded=True)
    if slices.number > 1 and desc.output_dtype != "fp16":
        raise UnsupportedGEMM(f"slices of fp16 with an output of {desc.output_dtype}: these kernels add them as fp16")
    return replace(found, slices=slices, fp16_sums=True)


def _are_chain_lanes(cut: Cut) -> bool:
    return cut.count is not None and cut.count <= _CHAIN_LANES and not cut.count & (cut.count - 1)


def _blocks_plan(cuts: tuple[Cut, ...], k: int) -> BlocksPlan | None:
    """Return the plan of tiles distributed to blocks, None unless the cuts are exactly those of one."""
    from_zero = cuts[:1] == (_FROM_ZERO,)
    cuts = cuts[1:] if from_zero else cuts
    for accumulators in (1, 2):
        if cuts and cuts[0].groups:
            blocks = cuts[0].count or 0
            if cuts == strided_blocks(blocks, accumulators):
                return BlocksPlan(k, blocks, accumulators, from_zero)
            continue
        blocks, tile = 1, 128 * accumulators
        for cut in cuts:
            if (cut.layout, cut.tile) == ("strided", tile) and cut.count is not None:
                blocks *= cut.count
        if blocks >= 4 and not blocks & (blocks - 1) and cuts == strided_blocks(blocks, accumulators):
            return BlocksPlan(k, blocks, accumulators, from_zero)
    return None
