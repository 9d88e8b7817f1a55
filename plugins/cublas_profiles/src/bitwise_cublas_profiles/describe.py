"""From a query and the heuristic's configuration to the descriptor of the kernel that the library runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Instruction, strided_blocks, strided_lanes
from bitwise_core.descriptors.cuts import Start
from bitwise_core.descriptors.merge_orders import MergeName
from bitwise_core.descriptors.problem import BiasedGEMM, Finish
from bitwise_cublas_profiles.dropped_k import ALGORITHM as SPLIT_K_ALGORITHM
from bitwise_cublas_profiles.dropped_k import dropped_k
from bitwise_cublas_profiles.finish_rows import finish_row
from bitwise_cublas_profiles.profile import Profile, Row, RowNotCovered
from bitwise_cublas_profiles.query import FP8, Configuration, GemmQuery

_VECTOR_ALGORITHMS = (13, 14)
"""Algorithms of a matrix and a vector, whose elements may have gaps between them."""
_FP16_ELEMENTS = 24
"""The algorithm of batches of one element whose sums are of fp16."""
FILLING = 20
"""The algorithm whose slices in place start from +0 where one of them is filled with products of +0."""
_IN_PLACE = 1
"""The REDUCTION_SCHEME that adds slices one after the other to the output."""
ONTO = "onto_"
"""The prefix of orders in which slices are added to the addend."""
_COUNTERS = 4096
"""The most bytes of a workspace that has room for counters only, and not for sums of parts of a tile."""
_SHARED_WORKSPACE = 159
"""The bytes of a workspace that are neither sums of parts of a tile nor counters."""
_TILES = {
    15: (64, 64), 17: (64, 128), 18: (128, 64), 20: (128, 128), 21: (256, 64), 23: (128, 256), 24: (256, 128),
}  # fmt: skip
"""By the library's number of a tile: its rows and columns, which are columns and rows of a query's output."""
_CLUSTERS = {
    0: (2, 2), 3: (2, 1), 4: (4, 1), 5: (1, 2), 6: (2, 2), 7: (4, 2), 8: (1, 4), 9: (2, 4), 11: (8, 1), 12: (1, 8),
    14: (2, 8), 17: (3, 1), 18: (5, 1), 20: (7, 1), 27: (15, 1), 28: (3, 2), 32: (1, 3), 38: (1, 5), 43: (1, 7),
    50: (1, 14),
}  # fmt: skip
"""By the library's number of a cluster: its blocks along the rows and columns of the library's output; 0 is its choice.
"""
_SHARE_MERGES: dict[int, MergeName] = {2: "chain-down", 3: "chain-down", 4: "neighbours"}
"""By the number of blocks that share a tile along k: the order in which their sums are added, a tree from the last."""


def descriptor_of(
    query: GemmQuery, configuration: Configuration, known: Profile, *, extrapolate: bool = False,
    workspace: int | None = None,
) -> GEMMDesc:  # fmt: skip
    """The descriptor of the GEMM that the library runs for a query with this configuration.

    With a bias it describes the product whose fp32 sum the bias is added to before the single rounding. `workspace` is
    the number of bytes that the configuration needs; without it, configurations that may divide tiles between blocks
    (SPLITK_NUM -1) are not described. `extrapolate` applies the rows of other layouts and output types to those without
    rows: a candidate for measurements, not a measured fact. Raises RowNotCovered, with the key, for everything else
    that is not measured.
    """
    return _Description(query, configuration, known, extrapolate, workspace=workspace).descriptor()


def depends_on_rows(configuration: Configuration, known: Profile) -> bool:
    """Whether descriptors of one configuration may differ between two products that differ in m above 1 alone.

    Kernels of tiles and of fused multiply-adds depend on m only by whether it is 1; the lanes of others are tables over
    the number of outputs. True also for an algorithm without a row.
    """
    row = known.row("algorithms", algorithm=configuration.algorithm)
    return row is None or row["family"] not in ("single", "per_mma", "fma")


def biased_product_of(
    query: GemmQuery, configuration: Configuration, known: Profile, *, workspace: int | None = None
) -> BiasedGEMM:
    """As `descriptor_of` for a query with a bias: the product's descriptor, and when the bias is added.

    `workspace` is used for sums of fp16 only: a bias on other tiles that may be divided is not measured.
    """
    if query.compute == "fp16":
        return _biased_sums_of_fp16(query, configuration, known, workspace)
    first: RowNotCovered | None = None
    for added in ("biases", "biases added after rounding", "biases under slices"):
        try:
            found = _Description(query, configuration, known, False, bias=added).descriptor()
        except RowNotCovered as error:
            first = first or error
        else:
            onto = added == "biases under slices"
            if onto and (found.k_dropped or found.tail or not found.k_cuts):
                continue
            if onto:
                found = from_first_slice(found, each=configuration.algorithm == FILLING)
            return BiasedGEMM(product=found, onto_bias=onto, rounded_first=added == "biases added after rounding")
    assert first is not None
    raise first


def _biased_sums_of_fp16(
    query: GemmQuery, configuration: Configuration, known: Profile, workspace: int | None
) -> BiasedGEMM:
    """A bias on sums of fp16, which rounds once however the kernel adds it."""
    alone = Finish(beta=1.0, addend="vector")
    row = finish_row(known, query, configuration, "vector", alone)
    if row is None:
        raise _Description(query, configuration, known, False).not_covered("a bias on sums of fp16 is not measured")
    product = sums_under_addend(replace(query, epilogue="none"), configuration, known, workspace)
    onto = str(row["order"]).startswith(ONTO)
    return BiasedGEMM(product=from_first_slice(product) if onto else product, onto_bias=onto)


def sums_under_addend(
    query: GemmQuery, configuration: Configuration, known: Profile, workspace: int | None = None
) -> GEMMDesc:
    """The sums of a query without an epilogue to which something is added, also in place. Raises RowNotCovered."""
    return _Description(query, configuration, known, False, workspace=workspace, addend=True).descriptor()


class _Description:
    """The descriptor of one query and configuration by one profile."""

    def __init__(
        self,
        query: GemmQuery,
        configuration: Configuration,
        known: Profile,
        extrapolate: bool,
        bias: str = "biases",
        workspace: int | None = None,
        addend: bool = False,
    ) -> None:
        self.query, self.configuration, self.known, self.extrapolate = query, configuration, known, extrapolate
        self.bias, self.workspace, self.addend = bias, workspace, addend

    def not_covered(self, why: str) -> RowNotCovered:
        """The error for a missing measurement, with the key."""
        fields = ", ".join(f"{name} {value}" for name, value in self.configuration.record().items())
        return RowNotCovered(f"{self.query.description} by {self.known.description} is not described: {why} ({fields})")

    def descriptor(self) -> GEMMDesc:
        query, configuration = self.query, self.configuration
        if query.epilogue not in ("none", "bias"):
            raise self.not_covered(f"the epilogue {query.epilogue} is not measured")
        if query.fast_accumulation:
            raise self.not_covered("fast accumulation is not measured")
        if not self.extrapolate:
            self._check_measured()
        row = self.known.row("algorithms", algorithm=configuration.algorithm)
        if row is None:
            raise self.not_covered(f"algorithm {configuration.algorithm} has no row")
        self._check_layout(row, f"algorithm {configuration.algorithm}")
        family = str(row["family"])
        if query.a in FP8 and family != "single":
            raise self.not_covered(f"algorithm {configuration.algorithm} is not measured on fp8")
        families: dict[str, Callable[[], GEMMDesc]] = {
            "single": self._single, "per_mma": self._per_mma, "chain": self._chain, "lanes": self._lanes,
            "dot": self._dot, "fma": self._fma, "product": self._product,
        }  # fmt: skip
        try:
            found = families[family]()
            return found if query.compute != "fp16" else self._with_fp16_sums(found)
        except DescriptorError as error:
            raise self.not_covered(str(error)) from None

    def _with_fp16_sums(self, found: GEMMDesc) -> GEMMDesc:
        """The descriptor with sums of fp16, and parts of k of that type, added in it."""
        fields = {name: getattr(found, name) for name in type(found).model_fields}
        cuts = tuple(each.model_copy(update={"partial_dtype": "fp16", "merge_dtype": "fp16"}) for each in found.k_cuts)
        return GEMMDesc(**(fields | {"accumulator_dtype": "fp16", "k_cuts": cuts}))

    def _check_measured(self) -> None:
        query = self.query
        operands = query.multiplied if query.a == query.b else f"{query.a} x {query.b}"
        if self.known.row("layouts", operands=operands, transposes=query.transposes, output=query.c) is None:
            raise self.not_covered(
                f"{operands} operands stored {query.transposes}, with output {query.c}, are not measured"
            )
        gaps = any(getattr(query, f"ld_{name}") not in (None, width) for name, width in query.dense_ld.items())
        matrices, dense_output = query.m > 1 and query.n > 1, query.ld_c in (None, query.n)
        sparse_left = query.m == 1 and query.transpose_a and query.ld_a not in (None, 1)
        measured_columns = self.query.compute == "fp16" or self.configuration.algorithm in _VECTOR_ALGORITHMS
        sparse_right = self._is_sparse_column() and not measured_columns
        gaps_measured = dense_output and not sparse_left and not sparse_right
        if query.compute == "fp16":
            in_place = self.configuration.split_k > 1 and self.configuration.reduction == _IN_PLACE
            if not (in_place and self.addend):  # the row of the addend says how these slices are added
                self._check_feature("fp16 accumulation", measured=True)
        if query.batch > 1 and query.epilogue == "none":
            if query.k == 1 and query.a == "fp32" and query.contiguous_output_batch:
                pass  # a single product has no order
            elif gaps or not query.contiguous_batch:
                self._check_feature("strided batches", measured=matrices and query.contiguous_output_batch)
            else:
                elements = query.m == query.n == 1
                self._check_feature("batches", measured=not elements or self._has_measured_elements())
        elif query.epilogue == "bias":
            if gaps:
                self._check_feature("padded rows", measured=gaps_measured)
            more = {} if self.bias == "biases" else {"reduction": self.configuration.reduction}
            self._check_feature(self.bias, measured=query.n > 1 and query.batch == 1, **more)
        elif gaps:
            self._check_feature("padded rows", measured=gaps_measured)
        if min(query.alignment) < 16:
            self._check_feature("unaligned operands", measured=gaps_measured and query.batch == 1)

    def _has_measured_elements(self) -> bool:
        """Whether sums of batches of one element were measured: by lanes, and by one algorithm with sums of fp16."""
        algorithm = self.configuration.algorithm
        return algorithm == _VECTOR_ALGORITHMS[0] or (self.query.compute, algorithm) == ("fp16", _FP16_ELEMENTS)

    def _is_sparse_column(self) -> bool:
        """Whether B is one column whose elements have gaps between them."""
        return self.query.n == 1 and not self.query.transpose_b and self.query.ld_b not in (None, 1)

    def _check_feature(self, feature: str, *, measured: bool, **more: Any) -> None:
        """Raise RowNotCovered unless products with this feature were measured to have the plain descriptor.

        A row without an algorithm, or without `sliced`, holds for all of them.
        """
        sliced = self.configuration.split_k > 1
        wanted = {"feature": feature, "algorithm": self.configuration.algorithm, "sliced": sliced, **more}
        dtype = self.query.multiplied
        row = next(
            (
                row for row in self.known.tables["features"]
                if dtype in row["dtypes"]
                and self.configuration.reduction in row.get("reductions", (self.configuration.reduction,))
                and all(row.get(name, None if name in more else value) == value for name, value in wanted.items())
            ), None,
        )  # fmt: skip
        if row is not None:
            self.known.record_use("features", row)
        if row is None or not measured:
            how = f"algorithm {self.configuration.algorithm}{' with slices' if sliced else ''} on {dtype}"
            raise self.not_covered(f"{feature} are not measured for this shape by {how}")

    def _check_operands(self, row: Row, what: str) -> None:
        """Raise RowNotCovered if fp32 operands were not measured with a row of a scalar kernel."""
        if self.query.a == "fp32" and not self.extrapolate and not row.get("fp32"):
            raise self.not_covered(f"{what} is not measured on fp32")

    def _check_layout(self, row: Row, what: str) -> None:
        """Raise RowNotCovered if a row was measured for some layouts and not for the query's."""
        if not self.extrapolate and self.query.transposes not in row.get("transposes", (self.query.transposes,)):
            raise self.not_covered(f"{what} is not measured on operands stored {self.query.transposes}")

    def _stages(self, family: str) -> Row:
        number, query = self.configuration.stages, self.query
        names = {query.multiplied} if query.a == query.b else {query.a, query.b}
        rows = [
            row for row in self.known.tables["stages"] if (row["family"], row["stages"]) == (family, number)
        ]  # fmt: skip
        if not rows:
            raise self.not_covered(f"STAGES_ID {number} of algorithm {self.configuration.algorithm} has no row")
        row = next((row for row in rows if names <= set(row["dtypes"])), None)
        if row is None:
            raise self.not_covered(f"STAGES_ID {number} is not measured on {' and '.join(sorted(names))}")
        self.known.record_use("stages", row)
        return row

    def _instruction(self, family: str, k: int) -> Instruction:
        row = self.known.row("units", family=family)
        assert row is not None
        return Instruction(architecture=self.known.architecture, family=str(row["unit"]), k=k)

    def _merge(self) -> tuple[str, str, Start]:
        """The dtype of a finished slice, the dtype of the running sum, and its initial value."""
        row = self.known.row("merges", reduction=self.configuration.reduction)
        if row is None:
            raise self.not_covered(f"REDUCTION_SCHEME {self.configuration.reduction} has no row")
        partial, merge = (self.query.c if row[name] == "output" else "fp32" for name in ("partial", "merge"))
        return partial, merge, row.get("start", "first")

    def _matrix(self, row: Row, cuts: tuple[Cut, ...], dropped: int = 0, *, first: bool = False) -> GEMMDesc:
        query, k = self.query, int(row["instruction_k"])
        return GEMMDesc(
            k=query.k, left_dtype=query.a, right_dtype=query.b, output_dtype=query.c, path="matrix",
            multiplied_as="tf32" if query.compute == "tf32" else None,
            instruction=self._instruction(str(row["family"]), k), instruction_k=k, k_cuts=cuts, k_dropped=dropped,
            k_loop_step=int(row["k_step"]) if first else None, short_iteration="first" if first else "last",
        )  # fmt: skip

    def _single(self) -> GEMMDesc:
        """One accumulator over a slice of whole k steps. fp8 on sm_90 promotes its accumulator every step."""
        row = self._stages("single")
        split, step, k = self.configuration.split_k, int(row["k_step"]), self.query.k
        block = (Cut(span=int(row["block"])),) if row["block"] else ()
        if split == -1 and (self.workspace is None or self.workspace > _COUNTERS):
            return self._matrix(row, (self._shared_tiles(step),))
        if split <= 1:
            return self._matrix(row, block)
        if "dealt" in row:
            if self.configuration.reduction != 2:
                raise self.not_covered(
                    f"REDUCTION_SCHEME {self.configuration.reduction} of this algorithm is not measured"
                )
            # With CUSTOM_OPTION 1 the slices are added in pairs half their number apart.
            merge = "paired" if self.configuration.custom == 1 else "chain"
            return self._matrix(row, (Cut(layout="strided", count=split, tile=int(row["dealt"]), merge=merge),))
        if self.configuration.algorithm != SPLIT_K_ALGORITHM:
            raise self.not_covered(f"slices of algorithm {self.configuration.algorithm} are not measured")
        found = dropped_k(k, self.configuration)
        if found.count is None:
            raise self.not_covered(found.reason)
        chunk = -(-(k // split) // step) * step
        if self._merge() != ("fp32", "fp32", "first"):
            raise self.not_covered(f"REDUCTION_SCHEME {self.configuration.reduction} of this algorithm is not measured")
        return self._matrix(row, (Cut(span=chunk), *block), found.count)

    def _shared_tiles(self, step: int) -> Cut:
        """The slices of tiles of which as many blocks share each along k.

        The workspace has room for a tile of fp16 for each block, and for a counter for each sum of a tile's binary tree
        over its blocks. The tiles fill whole clusters. The first blocks have the last values of k, and one iteration
        more where their number does not divide the iterations.
        """
        tile, cluster = _TILES.get(self.configuration.tile), _CLUSTERS.get(self.configuration.cluster_shape)
        if tile is not None and cluster is not None and self.query.compute == "fp16" and self.query.batch == 1:
            # The library's matrices have columns where the query's have rows. Tiles that are not shared fill whole
            # waves of blocks: where tiles are so few that as many blocks share each, there is none of them.
            lengths = (self.query.n, self.query.m)
            tiles = math.prod(
                -(-length // (side * blocks)) * blocks
                for length, side, blocks in zip(lengths, tile, cluster, strict=True)
            )
            iterations = -(-self.query.k // step)
            for slices, merge in _SHARE_MERGES.items():
                counters = sum(-(-slices >> bit) for bit in range(1, (slices - 1).bit_length() + 1))
                if self.workspace == tiles * (slices * math.prod(tile) * 2 + counters * 4) + _SHARED_WORKSPACE:
                    if iterations % slices or merge != "chain-down":
                        return Cut(count=slices, tile=step, remainder="spread-last", merge=merge)
                    return Cut(span=iterations // slices * step, merge=merge)
        raise self.not_covered("tiles that several blocks share along k are not measured")

    def _product(self) -> GEMMDesc:
        """The products of one value of k, to which no +0 is added: those of fp32 are not rounded to tf32."""
        query = self.query
        if query.k != 1 or self.configuration.custom or self.configuration.split_k > 1:
            raise self.not_covered("this algorithm was measured with k = 1 and CUSTOM_OPTION 0 only")
        return GEMMDesc(
            k=1, left_dtype=query.a, right_dtype=query.b, output_dtype=query.c, path="fma",
            accumulator_start="negative-zero",
        )  # fmt: skip

    def _per_mma(self) -> GEMMDesc:
        """The k remainder first, in steps of the k loop; slices of whole granules, each with its own remainder."""
        row = self._stages("per_mma")
        if self.configuration.split_k <= 1:
            return self._matrix(row, (), first=True)
        return self._matrix(row, (self._granules(self._granularity()),), first=True)

    def _granules(self, granularity: int, *, floored: bool = False) -> Cut:
        """Slices of whole granules of k; with `floored`, k / slices is rounded down before it is to granules.

        There may then be one slice more, of the remainder.
        """
        k, split = self.query.k, self.configuration.split_k
        whole = -(-k // granularity)
        granules = -(-(k // split) // granularity) if floored else -(-whole // split)
        if not granules:
            raise self.not_covered(f"{split} slices of {k} values are not measured")
        partial, merge, start = self._merge()
        chunk = granules * granularity
        return Cut(span=chunk, partial_dtype=partial, merge_dtype=merge, start=start)

    def _granularity(self) -> int:
        """The unit of slice lengths: the largest granularity of the layout that divides k, or the smallest."""
        transposes, k = self.query.transposes, self.query.k
        column = self.query.n == 1 and transposes == "TN"
        if column:
            transposes = "TT"  # the library takes a column for a row
        table = [row for row in self.known.tables["granularities"] if self.query.a in row["dtypes"]]
        if not table:
            raise self.not_covered(f"slices of {self.query.a} operands are not measured")
        rows = sorted(table, key=lambda row: int(row["granularity"]), reverse=True)
        allowed = [row for row in rows if transposes in row.get("transposes", (transposes,))]
        chosen = next((row for row in allowed if k % int(row["granularity"]) == 0), allowed[-1])
        if column and self.query.compute == "fp16" and "TN" not in chosen.get("transposes", ("TN",)):
            raise self.not_covered(
                f"slices of one column are not measured with sums of fp16 where {chosen['granularity']} divides k"
            )
        self.known.record_use("granularities", chosen)
        return int(chosen["granularity"])

    def _fma(self) -> GEMMDesc:
        """One chain of fused multiply-adds over a slice, of whole granules of k or of tiles dealt round-robin."""
        configuration = self.configuration
        split = configuration.split_k
        sliced = split > 1
        row = self.known.row(
            "fma", algorithm=configuration.algorithm, stages=configuration.stages, custom=configuration.custom,
            sliced=sliced, reduction=configuration.reduction if sliced else None,
        )  # fmt: skip
        if row is None and self.extrapolate:
            other = self.known.row(
                "fma", algorithm=configuration.algorithm, stages=configuration.stages, sliced=sliced
            )  # fmt: skip
            row = other and {name: value for name, value in other.items() if name != "start"}
        if row is None:
            how = f" with REDUCTION_SCHEME {configuration.reduction}" if sliced else " without slices"
            raise self.not_covered(
                f"STAGES_ID {configuration.stages}, CUSTOM_OPTION {configuration.custom} of algorithm "
                f"{configuration.algorithm}{how} has no row"
            )
        if split == 0 and self.query.k > row.get("longest", self.query.k):
            raise self.not_covered(f"the library chooses the slices of more than {row['longest']} values of k")
        cuts: tuple[Cut, ...] = ()
        if sliced and "dealt" in row:
            cuts = (Cut(layout="strided", count=split, tile=int(row["dealt"]), merge=row["merge"]),)
        elif sliced:
            granularity = int(row.get("granularity") or self._granularity())
            cuts = (self._granules(granularity, floored=bool(row.get("floored"))),)
        zero = row.get("start") == "zero" or self._is_filled(cuts, row)
        return self._chains(starting_from_zero(cuts) if zero else cuts)

    def _is_filled(self, cuts: tuple[Cut, ...], row: Row) -> bool:
        """Whether a slice is shorter than an iteration, which is filled with products of +0: its sum is never -0."""
        lengths = cuts[0].part_lengths(self.query.k) if cuts else [self.query.k]
        return min(lengths) < int(row.get("iteration", 0))

    def _scalar(self, *cuts: Cut) -> GEMMDesc:
        row = self.known.row("algorithms", algorithm=self.configuration.algorithm)
        if row is not None and row.get("start") == "zero":
            cuts = starting_from_zero(cuts)
        return self._chains(cuts)

    def _chains(self, cuts: tuple[Cut, ...]) -> GEMMDesc:
        query = self.query
        return GEMMDesc(
            k=query.k, left_dtype=query.a, right_dtype=query.b, output_dtype=query.c, path="fma", k_cuts=cuts
        )

    def _row(self, section: str) -> Row | None:
        """The row of a scalar kernel, by its algorithm, its custom option, the type of its sums and the layout."""
        keys: dict[str, Any] = {"algorithm": self.configuration.algorithm, "custom": self.configuration.custom}
        keys["sums"] = "fp16" if self.query.compute == "fp16" else None
        row = self.known.row(section, self.query.transposes, **keys, dtype=self.query.a)
        row = row or self.known.row(section, self.query.transposes, **keys, dtype=None)
        if row is not None:
            self._check_operands(row, f"CUSTOM_OPTION {self.configuration.custom}")
            self._check_layout(row, f"CUSTOM_OPTION {self.configuration.custom}")
        return row

    def _chain(self) -> GEMMDesc:
        """Contiguous chunks, each a chain of accumulated blocks in ascending order; or lanes."""
        configuration = self.configuration
        if configuration.split_k > 1:
            raise self.not_covered(f"{configuration.split_k} slices of algorithm {configuration.algorithm} have no row")
        row = self._row("chains")
        if row is None:
            return self._interleaved()
        if self.query.k > row.get("longest", self.query.k):
            raise self.not_covered(f"CUSTOM_OPTION {configuration.custom} was measured up to k = {row['longest']} only")
        chunks = () if row["chunks"] == 1 else (Cut(count=int(row["chunks"])),)
        return self._scalar(*chunks, *((Cut(span=int(row["block"])),) if row["block"] else ()))

    def _lanes(self) -> GEMMDesc:
        """A matrix times a vector: the lanes of one output element, inside split-K slices."""
        query, configuration = self.query, self.configuration
        if query.m > 1 and query.n > 1:
            raise self.not_covered("this algorithm was measured on vectors only")
        if configuration.split_k > 1 and configuration.reduction != 2:
            raise self.not_covered(f"REDUCTION_SCHEME {configuration.reduction} of this algorithm is not measured")
        if (row := self._row("slices")) is not None:
            if configuration.split_k > 1:
                raise self.not_covered(f"CUSTOM_OPTION {configuration.custom} was measured without slices only")
            return self._scalar(Cut(count=int(row["lanes"])), Cut(span=int(row["chunk"])))
        return self._interleaved()

    def _interleaved(self) -> GEMMDesc:
        """Lanes that take tiles of k round-robin, inside contiguous slices."""
        query, configuration, row = self.query, self.configuration, self._row("lanes")
        if row is None:
            raise self.not_covered(f"CUSTOM_OPTION {configuration.custom} has no row")
        outputs = max(query.m, query.n)
        if row.get("longest") and outputs > row["longest"]:
            raise self.not_covered(
                f"CUSTOM_OPTION {configuration.custom} changes its order above {row['longest']} outputs"
            )
        split = max(1, configuration.split_k)
        bounds = row.get("lanes_above", ())
        if bounds and split > 1 and split * outputs > bounds[0][0]:
            raise self.not_covered(f"slices of CUSTOM_OPTION {configuration.custom} are not measured for many outputs")
        above = [int(few) for bound, few in bounds if outputs > bound]
        lanes, longest = above[-1] if above else int(row["lanes"]), -(-query.k // split)
        tile = int(row["tile"]) if "tile" in row else min(int(row["tile_at_most"]), -(-longest // lanes))
        outer = (Cut(count=split),) if split > 1 else ()
        dealt = (strided_lanes(lanes, tile, row["merge"]),) if lanes > 1 else ()
        chunk = (Cut(span=int(row["chunk_tiles"]) * tile),) if row["chunk_tiles"] else ()
        return self._scalar(*outer, *dealt, *chunk)

    def _dot(self) -> GEMMDesc:
        """Blocks of 128 threads take tiles round-robin. A second kernel of 128 threads adds the blocks' sums."""
        query, blocks = self.query, self.configuration.split_k
        if query.m > 1 and query.n > 1:
            raise self.not_covered("this algorithm was measured on vectors only")
        if self.configuration.reduction != 2:
            raise self.not_covered(f"REDUCTION_SCHEME {self.configuration.reduction} of this algorithm is not measured")
        powers = blocks >= 4 and not blocks & (blocks - 1)
        row = self.known.row("algorithms", algorithm=self.configuration.algorithm)
        if row is not None:
            self._check_operands(row, f"algorithm {self.configuration.algorithm}")
        if not powers and not self.extrapolate and not (row or {}).get("any_blocks"):
            raise self.not_covered(f"{blocks} blocks are not measured: only powers of two from 4 are")
        # If k is the dense axis of the matrix, a thread takes two values of k, with one accumulator each.
        dense = query.transpose_b if query.n > 1 else query.m == 1 or not query.transpose_a
        wide = 2 if dense and not self._is_sparse_column() else 1
        return self._scalar(*strided_blocks(blocks, wide))


def from_first_slice(desc: GEMMDesc, *, each: bool = False) -> GEMMDesc:
    """The descriptor without the +0 to which the first slice is added; with `each`, every slice is added to +0."""
    first = desc.k_cuts[0] if desc.k_cuts else None
    if first != Cut(count=1, start="zero"):
        return desc
    fields = {name: getattr(desc, name) for name in type(desc).model_fields}
    return GEMMDesc(**(fields | {"k_cuts": (*desc.k_cuts[1:], *((first,) if each else ()))}))


def starting_from_zero(cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
    """The cuts of a sum that starts from +0. The only effect is that the result is never -0."""
    outer = cuts[0] if cuts else None
    if outer is not None and outer.layout == "contiguous" and outer.count is not None and outer.merge == "chain":
        return (outer.model_copy(update={"start": "zero"}), *cuts[1:])
    return (Cut(count=1, start="zero"), *cuts)
