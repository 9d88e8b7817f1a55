"""From a descriptor to what a kernel needs to know of it; how the work is cut into tiles decides no bits."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, strided_blocks, strided_lanes
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, MergeOrder, index_bits

SLICE_ORDERS = ("chain",)
"""Merge orders of slices, which a second kernel adds."""
_CHAIN_LANES = 32
_UNITS = frozenset({"wgmma", "mma.sync"})
_FP8 = frozenset({"e4m3", "e5m2"})
_TYPES = frozenset({"fp16", "bf16", *_FP8})
_FROM_ZERO = Cut(count=1, start="zero")
"""The outermost cut of a sum that is added to +0 as a whole."""
_OUTPUTS = frozenset({"fp16", "bf16", "fp32"})


class Refused(DescriptorError):
    """A descriptor that these kernels have no way to honour; the message names the field."""


@dataclass(frozen=True, slots=True)
class Slices:
    """How k is parted over programs: `number` slices of `span` k, the last one what is left.

    They are added in an order of SLICE_ORDERS.  `partial` is the type in which a slice's sum is handed over; `rounded`
    says that the running sum has the output's type, `zero` that it starts from +0.
    """

    number: int
    span: int
    partial: str = "fp32"
    rounded: bool = False
    zero: bool = False


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """A walk on matrix units: `first` is the turn whose remainder runs first (0: last), `half` stands for
    instructions of k 8, `block` is the length of an accumulator that closes (0: none does)."""

    k: int
    slices: Slices
    first: int
    half: bool
    block: int


@dataclass(frozen=True, slots=True)
class Fold:
    """How the sums of lanes are added: a running sum takes the lanes of `sequence`; or round after round of `rounds`
    halves the lanes, adding to each the one whose number differs in that bit, of the numbers of the lanes left."""

    sequence: tuple[int, ...] = ()
    rounds: tuple[int, ...] = ()


def fold_of(order: MergeOrder, lanes: int) -> Fold | None:
    """The fold of an order, None where the kernels have none."""
    if order.running_sum:
        return Fold(sequence=tuple(order.steps(lanes).sequence))
    bits = index_bits(order, lanes)
    if bits is None:
        return None
    return Fold(rounds=tuple(sum(later < bit for later in bits[place:]) for place, bit in enumerate(bits)))


@dataclass(frozen=True, slots=True)
class ScalarPlan:
    """Lanes of fused multiply-adds: `strided` deals tiles of `tile` k, otherwise each lane has `tile` k in a row.

    Tiles are dealt to the first `taking` lanes, 0 for all of them; the others hold nothing.  `zero` says that the sum
    of the lanes starts from +0.
    """

    k: int
    slices: Slices
    lanes: int
    strided: bool
    tile: int
    fold: Fold
    chunk: int
    taking: int = 0
    zero: bool = False


@dataclass(frozen=True, slots=True)
class BlocksPlan:
    """Blocks of 128 threads that take tiles of k in turn, `wide` k for a thread in separate accumulators, and a second
    kernel of 128 threads that adds the blocks' sums, to +0 with `zero`."""

    k: int
    blocks: int
    wide: int
    zero: bool = False

    @property
    def fold(self) -> Fold:
        """How the accumulators of a block are added: those of one thread, then the threads by halves."""
        own, threads = self.wide.bit_length() - 1, fold_of(MERGE_ORDERS["halves"], 128)
        assert threads is not None
        return Fold(rounds=(0,) * own + threads.rounds)

    @property
    def threads(self) -> int:
        """Threads of the second kernel that add blocks' sums, or +0 where there is none: whole warps for groups."""
        whole = 1 << (self.blocks - 1).bit_length()
        return min(whole if self.blocks == whole else max(32, whole), 128)


Plan = MatrixPlan | ScalarPlan | BlocksPlan


def plan(desc: GEMMDesc) -> Plan:
    """What the kernels need to know.  Raises Refused for a descriptor that they cannot honour."""
    _check(desc)
    return _matrix(desc) if desc.path == "matrix" else _scalar(desc)


def _check(desc: GEMMDesc) -> None:
    if {desc.left_dtype, desc.right_dtype} - _TYPES:
        raise Refused(f"operands of {desc.left_dtype} and {desc.right_dtype}: these kernels take {_listed(_TYPES)}")
    if (desc.left_dtype in _FP8) != (desc.right_dtype in _FP8) or (
        desc.left_dtype not in _FP8 and desc.left_dtype != desc.right_dtype
    ):
        raise Refused(f"operands of {desc.left_dtype} and {desc.right_dtype}: these kernels take two of one width")
    if desc.output_dtype not in _OUTPUTS:
        raise Refused(f"an output of {desc.output_dtype}: these kernels write {_listed(_OUTPUTS)}")
    if desc.accumulator_dtype != "fp32":
        raise Refused(f"accumulator_dtype {desc.accumulator_dtype}: these kernels accumulate in fp32")
    if desc.iteration_rotation is not None or desc.iteration_permutation:
        raise Refused("turns rotated or permuted: these kernels walk k in ascending order")
    if desc.scaled:
        raise Refused("a scale: these kernels multiply by none")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _matrix(desc: GEMMDesc) -> MatrixPlan:
    assert desc.instruction is not None
    fp8, k = desc.left_dtype in _FP8, desc.k - desc.k_dropped
    if desc.instruction.architecture != "sm_90" or desc.instruction.family not in _UNITS:
        raise Refused(f"instruction {desc.instruction_name}: these kernels run wgmma and mma.sync of sm_90")
    if fp8 and desc.instruction.family != "wgmma":
        raise Refused("fp8 by mma.sync: these kernels run wgmma, which adds it in another way")
    if not desc.use_fast_accum:
        raise Refused("use_fast_accum false: these kernels add inside the instruction")
    native = 32 if fp8 else 16
    half = not fp8 and desc.instruction_k == 8
    if desc.instruction_k != native and not half:
        raise Refused(f"instruction_k {desc.instruction_k}: these kernels add {native} values at once, or 8 of 16 bits")
    cuts = list(desc.k_cuts)
    block = 0
    if cuts and _closes(cuts[-1]) and fp8:
        block = cuts.pop().span or 0
        if block != 128:
            raise Refused(f"accumulators of {block} k: these kernels close one every 128")
    elif fp8:
        raise Refused("fp8 in one accumulator: these kernels close one every 128 k")
    slices = Slices(1, k)
    if cuts:
        slices = _sliced(cuts.pop(0), desc, k)
    if cuts:
        raise Refused(f"{len(desc.k_cuts)} cuts of k on a matrix unit: these kernels know slices, and blocks of fp8")
    first = (desc.k_loop_step or 0) if desc.short_iteration == "first" else 0
    if desc.k_loop_step is not None and not first:
        raise Refused("turns that part an instruction: these kernels fill up the last one only")
    if first and (fp8 or first % 16 or first & (first - 1) or first > 128):
        raise Refused(f"k_loop_step {first} with the short turn first: these kernels know 16, 32, 64 and 128")
    if block and slices.number > 1 and slices.span % block:
        raise Refused(f"slices of {slices.span} k: these kernels cut fp8 at whole blocks of {block}")
    if first and k % first == 0 and (slices.number == 1 or slices.span % first == 0):
        first = 0  # no turn is short
    return MatrixPlan(k, slices, first, half, block)


def _closes(cut: Cut) -> bool:
    """Whether a cut closes an accumulator every so many k and adds the totals in order, all in fp32."""
    return (
        cut.layout == "contiguous" and cut.span is not None and cut.count is None and cut.remainder == "short-last"
        and cut.merge == "chain" and cut.start == "first" and not cut.groups
        and (cut.partial_dtype, cut.merge_dtype) == ("fp32", "fp32")
    )  # fmt: skip


def _sliced(cut: Cut, desc: GEMMDesc, k: int) -> Slices:
    if cut.layout != "contiguous" or cut.merge not in SLICE_ORDERS or (cut.remainder != "short-last" or cut.groups):
        known = " or ".join(MERGE_ORDERS[name].words for name in SLICE_ORDERS)
        raise Refused(f"slices by {cut}: these kernels take contiguous ones, the last one short, added {known}")
    if cut.partial_dtype not in ("fp32", desc.output_dtype) or cut.merge_dtype not in ("fp32", desc.output_dtype):
        raise Refused(f"slices of {cut.partial_dtype}, sums of {cut.merge_dtype}: fp32 and the output's type are known")
    lengths = cut.lengths(k)
    if 0 in lengths:
        raise Refused(f"{lengths.count(0)} empty slices: these kernels run every slice on some k")
    # Several lengths: all alike but the last.
    return Slices(len(lengths), lengths[0], cut.partial_dtype, cut.merge_dtype != "fp32", cut.start == "zero")


def _scalar(desc: GEMMDesc) -> ScalarPlan | BlocksPlan:
    if desc.path != "fma" and desc.left_dtype not in ("fp16", "bf16"):
        raise Refused(f"path {desc.path} on {desc.left_dtype}: these kernels fuse multiply and add")
    if desc.path == "mul_add":
        raise Refused("path mul_add: these kernels fuse multiply and add")
    cuts, k = list(desc.k_cuts), desc.k - desc.k_dropped
    if (blocks := _blocks(desc.k_cuts, k)) is not None:
        return blocks
    taking = 0
    for place, cut in enumerate(cuts):
        if (cut.count or 0) > 2 and cut == strided_lanes(cut.count or 0, cut.tile):
            # A tree of so many lanes in which the last ones hold nothing.
            taking, lanes = cut.count or 0, 1 << ((cut.count or 0) - 1).bit_length()
            cuts[place] = Cut(layout="strided", count=lanes, tile=cut.tile, merge="halves")
        elif cut.groups:
            raise Refused(f"parts in groups by {cut}: these kernels know blocks of 128 threads, and lanes of a tree")
        if (cut.partial_dtype, cut.merge_dtype) != ("fp32", "fp32"):
            raise Refused("scalar parts in other types than fp32: these kernels keep fp32")
    chunk = 0
    if cuts and _closes(cuts[-1]):
        chunk = cuts.pop().span or 0
    slices = Slices(1, k)
    if cuts and cuts[0].layout == "contiguous" and (len(cuts) > 1 or not _few(cuts[0])):
        slices = _sliced(cuts.pop(0), desc, k)
    if len(cuts) > 1:
        raise Refused(f"{len(desc.k_cuts)} cuts of k: these kernels know slices, lanes, and chunks of a lane")
    whole = slices.number == 1 and slices.zero
    if not cuts:
        return ScalarPlan(k, slices, 1, False, slices.span, Fold((0,)), chunk or slices.span, 0, whole)
    (cut,) = cuts
    lanes = cut.count or 0
    if cut.remainder != "short-last":
        raise Refused(f"lanes by {cut}: these kernels cut the last one short")
    if lanes & (lanes - 1) or lanes > (_CHAIN_LANES if cut.order.running_sum else 128):
        raise Refused(f"{lanes} lanes: these kernels know powers of two up to {_CHAIN_LANES}, 128 in a tree")
    fold = fold_of(cut.order, lanes)
    if fold is None:
        raise Refused(
            f"lanes added {cut.order.words}: these kernels add them one after the other, or in rounds over the bits of "
            "their numbers"
        )
    if cut.layout == "strided":
        tile = cut.tile
        own = -(-slices.span // (tile * (taking or lanes))) * tile
    else:
        own = tile = cut.lengths(slices.span)[0]
        if slices.number > 1:
            raise Refused("contiguous lanes of slices: these kernels know them of the whole k")
    strided = cut.layout == "strided"
    zero = whole or cut.start == "zero"
    return ScalarPlan(k, slices, lanes, strided, tile, fold, chunk or max(own, 1), taking, zero)


def _few(cut: Cut) -> bool:
    return cut.count is not None and cut.count <= _CHAIN_LANES and not cut.count & (cut.count - 1)


def _blocks(cuts: tuple[Cut, ...], k: int) -> BlocksPlan | None:
    """The plan of tiles dealt to blocks, None where the cuts are not exactly those of one."""
    zero = cuts[:1] == (_FROM_ZERO,)
    cuts = cuts[1:] if zero else cuts
    for wide in (1, 2):
        if cuts and cuts[0].groups:
            blocks = cuts[0].count or 0
            if cuts == strided_blocks(blocks, wide):
                return BlocksPlan(k, blocks, wide, zero)
            continue
        blocks, tile = 1, 128 * wide
        for cut in cuts:
            if (cut.layout, cut.tile) == ("strided", tile) and cut.count is not None:
                blocks *= cut.count
        if blocks >= 4 and not blocks & (blocks - 1) and cuts == strided_blocks(blocks, wide):
            return BlocksPlan(k, blocks, wide, zero)
    return None
