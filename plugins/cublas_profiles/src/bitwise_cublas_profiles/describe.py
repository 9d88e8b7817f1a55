"""From a question and the heuristic's answer to the descriptor: which bits the library's kernel returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Instruction, dealt_blocks, dealt_lanes
from bitwise_core.descriptors.cuts import Start
from bitwise_core.problems import BiasedProduct
from bitwise_cublas_profiles.profile import Declined, Profile, Row
from bitwise_cublas_profiles.question import FP8, Configuration, Question
from bitwise_cublas_profiles.tail import ALGORITHM as SLICED
from bitwise_cublas_profiles.tail import tail


def descriptor_of(asked: Question, configuration: Configuration, known: Profile, *, beyond: bool = False) -> GEMMDesc:
    """The descriptor of what the library runs for a question that it answered with this configuration.

    With a bias it is that of the product whose sum the bias is added to, in fp32, before the one rounding.
    With `beyond`, layouts and output types that the profile has no row for are described as those that it has: a
    candidate for measurements, not a claim.  Raises Declined, with the key, for everything else that is not measured.
    """
    return _Case(asked, configuration, known, beyond).described()


def biased_product_of(asked: Question, configuration: Configuration, known: Profile) -> BiasedProduct:
    """As `descriptor_of`, for a question with a bias: the product's descriptor, and when its sum is rounded."""
    try:
        return BiasedProduct(product=descriptor_of(asked, configuration, known))
    except Declined as once:
        try:
            found = _Case(asked, configuration, known, False, rounded_first=True).described()
        except Declined:
            raise once from None
        return BiasedProduct(product=found, rounded_first=True)


class _Case:
    """One question, its answer and a profile."""

    def __init__(
        self, asked: Question, configuration: Configuration, known: Profile, beyond: bool, rounded_first: bool = False
    ) -> None:
        self.asked, self.configuration, self.known, self.beyond = asked, configuration, known, beyond
        self.rounded_first = rounded_first

    def declined(self, why: str) -> Declined:
        """What is missing, with the key."""
        fields = ", ".join(f"{name} {value}" for name, value in self.configuration.record().items())
        return Declined(f"{self.asked.words} by {self.known.words} is not described: {why} ({fields})")

    def described(self) -> GEMMDesc:
        asked, configuration = self.asked, self.configuration
        if asked.compute != "fp32" or asked.a == "fp32":
            raise self.declined("products of fp32 operands have no rows")
        if asked.epilogue not in ("none", "bias"):
            raise self.declined(f"the epilogue {asked.epilogue} is not measured")
        if asked.fast_accumulation:
            raise self.declined("fast accumulation is not measured")
        if not self.beyond:
            self._check_measured()
        row = self.known.row("algorithms", algorithm=configuration.algorithm)
        if row is None:
            raise self.declined(f"algorithm {configuration.algorithm} has no row")
        self._check_layout(row, f"algorithm {configuration.algorithm}")
        family = str(row["family"])
        if asked.a in FP8 and family != "single":
            raise self.declined(f"algorithm {configuration.algorithm} is not measured on fp8")
        families: dict[str, Callable[[], GEMMDesc]] = {
            "single": self._single, "per_mma": self._per_mma, "chain": self._chain, "lanes": self._lanes,
            "dot": self._dot,
        }  # fmt: skip
        try:
            return families[family]()
        except DescriptorError as error:
            raise self.declined(str(error)) from None

    def _check_measured(self) -> None:
        asked = self.asked
        operands = asked.a if asked.a == asked.b else f"{asked.a} x {asked.b}"
        if self.known.row("layouts", operands=operands, transposes=asked.letters, output=asked.c) is None:
            raise self.declined(f"operands of {operands} that lie {asked.letters}, to {asked.c}, are not measured")
        gaps = any(getattr(asked, f"ld_{name}") not in (None, width) for name, width in asked.widths.items())
        matrices, dense_output = asked.m > 1 and asked.n > 1, asked.ld_c in (None, asked.n)
        if asked.batch > 1 and asked.epilogue == "none":
            if gaps or not asked.consecutive:
                self._check_form("batches with gaps", measured=matrices and asked.consecutive_output)
            else:
                self._check_form("batches", measured=asked.m > 1 or asked.n > 1)
        elif asked.epilogue == "bias":
            measured = (matrices and dense_output if gaps else asked.n > 1) and asked.batch == 1
            if self.rounded_first:
                form, more = "biases of rounded sums", {"reduction": self.configuration.reduction}
            else:
                form, more = ("biases of rows with gaps" if gaps else "biases"), {}
            self._check_form(form, measured=measured, **more)
        elif gaps:
            self._check_form("rows with gaps between them", measured=matrices and dense_output)
        if min(asked.alignment) < 16:
            raise self.declined("pointers that are no multiples of 16 bytes are not measured")

    def _check_form(self, form: str, *, measured: bool, **more: Any) -> None:
        """Raises Declined where a product of this form is not known to be described as the plain one is."""
        sliced = self.configuration.split_k > 1
        row = self.known.row("forms", form=form, algorithm=self.configuration.algorithm, sliced=sliced, **more)
        if row is None or not measured or self.asked.a not in row["dtypes"]:
            how = f"algorithm {self.configuration.algorithm}{' with slices' if sliced else ''} on {self.asked.a}"
            raise self.declined(f"{form} are not measured for this shape by {how}")

    def _check_layout(self, row: Row, what: str) -> None:
        """Raises Declined where a row holds for some layouts, and not for the one asked."""
        if not self.beyond and self.asked.letters not in row.get("transposes", (self.asked.letters,)):
            raise self.declined(f"{what} is not measured on operands that lie {self.asked.letters}")

    def _stages(self, family: str) -> Row:
        number, asked = self.configuration.stages, self.asked
        row = self.known.row("stages", family=family, stages=number)
        if row is None:
            raise self.declined(f"STAGES_ID {number} of algorithm {self.configuration.algorithm} has no row")
        for name in {asked.a, asked.b}:
            if name not in row["dtypes"]:
                raise self.declined(f"STAGES_ID {number} is not measured on {name}")
        return row

    def _instruction(self, family: str, k: int) -> Instruction:
        row = self.known.row("units", family=family)
        assert row is not None
        return Instruction(architecture=self.known.architecture, family=str(row["unit"]), k=k)

    def _merge(self) -> tuple[str, str, Start]:
        """The type of a finished slice, that of the running sum, and what this starts from."""
        row = self.known.row("merges", reduction=self.configuration.reduction)
        if row is None:
            raise self.declined(f"REDUCTION_SCHEME {self.configuration.reduction} has no row")
        partial, merge = (self.asked.c if row[name] == "output" else "fp32" for name in ("partial", "merge"))
        return partial, merge, row.get("start", "first")

    def _matrix(self, row: Row, cuts: tuple[Cut, ...], dropped: int = 0, *, first: bool = False) -> GEMMDesc:
        asked, k = self.asked, int(row["instruction_k"])
        return GEMMDesc(
            k=asked.k, left_dtype=asked.a, right_dtype=asked.b, output_dtype=asked.c, path="matrix",
            instruction=self._instruction(str(row["family"]), k), instruction_k=k, k_cuts=cuts, k_dropped=dropped,
            k_loop_step=int(row["k_step"]) if first else None, short_turn="first" if first else "last",
        )  # fmt: skip

    def _single(self) -> GEMMDesc:
        """One accumulator over a slice of whole k steps; fp8 on sm_90 closes one every step."""
        row = self._stages("single")
        split, step, k = self.configuration.split_k, int(row["k_step"]), self.asked.k
        block = (Cut(span=int(row["block"])),) if row["block"] else ()
        if split <= 1:
            return self._matrix(row, block)
        if self.configuration.algorithm != SLICED:
            raise self.declined(f"slices of algorithm {self.configuration.algorithm} are not measured")
        found = tail(k, self.configuration)
        if found.dropped is None:
            raise self.declined(found.reason)
        chunk = -(-(k // split) // step) * step
        if self._merge() != ("fp32", "fp32", "first"):
            raise self.declined(f"REDUCTION_SCHEME {self.configuration.reduction} of this algorithm is not measured")
        return self._matrix(row, (Cut(span=chunk), *block), found.dropped)

    def _per_mma(self) -> GEMMDesc:
        """The short turn first, on the grid of the turn; slices of whole grains, each with its own short turn."""
        if self.configuration.algorithm == 12 and self.asked.k != 1:
            raise self.declined("algorithm 12 was seen with k = 1 only")
        row = self._stages("per_mma")
        split, k = self.configuration.split_k, self.asked.k
        if split <= 1:
            return self._matrix(row, (), first=True)
        grain = self._grain()
        whole = -(-k // grain)
        chunk = -(-whole // split) * grain
        partial, merge, start = self._merge()
        cut = Cut(span=chunk, partial_dtype=partial, merge_dtype=merge, start=start)
        return self._matrix(row, (cut,), first=True)

    def _grain(self) -> int:
        """What slices are whole multiples of: the largest grain of the layout that divides k, the smallest for none."""
        letters, k = self.asked.letters, self.asked.k
        rows = sorted(self.known.tables["grains"], key=lambda row: int(row["grain"]), reverse=True)
        allowed = [row for row in rows if letters in row.get("transposes", (letters,))]
        chosen = next((row for row in allowed if k % int(row["grain"]) == 0), allowed[-1])
        self.known.used("grains", chosen)
        return int(chosen["grain"])

    def _scalar(self, *cuts: Cut) -> GEMMDesc:
        asked = self.asked
        row = self.known.row("algorithms", algorithm=self.configuration.algorithm)
        if row is not None and row.get("start") == "zero":
            cuts = from_zero(cuts)
        return GEMMDesc(
            k=asked.k, left_dtype=asked.a, right_dtype=asked.b, output_dtype=asked.c, path="fma", k_cuts=cuts
        )

    def _row(self, section: str) -> Row | None:
        """The row of a scalar kernel, found by its algorithm, its custom option and the layout."""
        keys = {"algorithm": self.configuration.algorithm, "custom": self.configuration.custom}
        row = self.known.row(section, self.asked.letters, **keys)
        if row is not None:
            self._check_layout(row, f"CUSTOM_OPTION {self.configuration.custom}")
        return row

    def _chain(self) -> GEMMDesc:
        """Contiguous chunks, accumulators that close in them, all in ascending order; or lanes."""
        configuration = self.configuration
        if configuration.split_k > 1:
            raise self.declined(f"{configuration.split_k} slices of algorithm {configuration.algorithm} have no row")
        row = self._row("chains")
        if row is None:
            return self._dealt()
        chunks = () if row["chunks"] == 1 else (Cut(count=int(row["chunks"])),)
        return self._scalar(*chunks, *((Cut(span=int(row["block"])),) if row["block"] else ()))

    def _lanes(self) -> GEMMDesc:
        """A matrix and a vector: the lanes of one output element, and slices in front of them."""
        asked, configuration = self.asked, self.configuration
        if asked.m > 1 and asked.n > 1:
            raise self.declined("this algorithm was seen with vectors only")
        if configuration.split_k > 1 and configuration.reduction != 2:
            raise self.declined(f"REDUCTION_SCHEME {configuration.reduction} of this algorithm is not measured")
        if (row := self._row("slices")) is not None:
            if configuration.split_k > 1:
                raise self.declined(f"CUSTOM_OPTION {configuration.custom} was seen without slices only")
            return self._scalar(Cut(count=int(row["lanes"])), Cut(span=int(row["chunk"])))
        return self._dealt()

    def _dealt(self) -> GEMMDesc:
        """Lanes that take tiles of k in turn, in contiguous slices."""
        asked, configuration, row = self.asked, self.configuration, self._row("lanes")
        if row is None:
            raise self.declined(f"CUSTOM_OPTION {configuration.custom} has no row")
        outputs = max(asked.m, asked.n)
        if row.get("longest") and outputs > row["longest"]:
            raise self.declined(
                f"CUSTOM_OPTION {configuration.custom} changes its order above {row['longest']} outputs"
            )
        split = max(1, configuration.split_k)
        bounds = row.get("lanes_above", ())
        if bounds and split > 1 and split * outputs > bounds[0][0]:
            raise self.declined(f"slices of CUSTOM_OPTION {configuration.custom} are not measured for many outputs")
        above = [int(few) for bound, few in bounds if outputs > bound]
        lanes, longest = above[-1] if above else int(row["lanes"]), -(-asked.k // split)
        tile = int(row["tile"]) if "tile" in row else min(int(row["tile_at_most"]), -(-longest // lanes))
        outer = (Cut(count=split),) if split > 1 else ()
        dealt = (dealt_lanes(lanes, tile, row["merge"]),) if lanes > 1 else ()
        chunk = (Cut(span=int(row["chunk_tiles"]) * tile),) if row["chunk_tiles"] else ()
        return self._scalar(*outer, *dealt, *chunk)

    def _dot(self) -> GEMMDesc:
        """Blocks of 128 threads take tiles in turn; a second kernel of 128 threads adds the blocks' sums."""
        asked, blocks = self.asked, self.configuration.split_k
        if asked.m > 1 and asked.n > 1:
            raise self.declined("this algorithm was seen with vectors only")
        if self.configuration.reduction != 2:
            raise self.declined(f"REDUCTION_SCHEME {self.configuration.reduction} of this algorithm is not measured")
        powers = blocks >= 4 and not blocks & (blocks - 1)
        row = self.known.row("algorithms", algorithm=self.configuration.algorithm)
        if not powers and not self.beyond and not (row or {}).get("any_blocks"):
            raise self.declined(f"{blocks} blocks are not described: powers of two from 4 on are")
        # Where k is dense in the matrix a thread takes two of it, in an accumulator each; two vectors always are.
        dense = asked.transpose_b if asked.n > 1 else asked.m == 1 or not asked.transpose_a
        wide = 2 if dense else 1
        return self._scalar(*dealt_blocks(blocks, wide))


def from_zero(cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
    """The cuts of a sum that starts from +0: it is never -0, and that is all that this decides."""
    outer = cuts[0] if cuts else None
    if outer is not None and outer.layout == "contiguous" and outer.count is not None and outer.merge == "chain":
        return (outer.model_copy(update={"start": "zero"}), *cuts[1:])
    return (Cut(count=1, start="zero"), *cuts)
