"""The orders of addends that the data file of sm_90 states, counted in the records of the products that showed them.

    python -m bitwise_bench.cublas.addend_orders --write

A row of a record names a call of PyTorch, the configuration of its query, and every order whose bytes are the call's:
those of the whole output, or of sampled elements. A row of the data file counts the rows that it applies to; one whose
order is another is a miss, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.fp16_accumulation import FEATURE, products
from bitwise_bench.cublas.fp16_accumulation import counted as counted_products
from bitwise_bench.cublas.row_evidence import with_tables
from bitwise_bench.cublas.settings_parity import FP16_ACCUMULATION
from bitwise_cublas_profiles.profile import Row, profile

RECORDS = tuple(
    Path(__file__).resolve().parents[4] / "records" / f"cublas-addends-{name}.json.xz"
    for name in (
        "sm90-h100-13.1",
        "sm90-h200-13.1",
        "sm90-h200-13.1-seed2101",
        "sm90-h200-13.1-seed2201",
        "sm90-h200-13.1-declined",
        "sm90-h200-13.1-both-rounded",
        "fp16-sums-sm90-h200-13.1",
        "fp16-sums-in-place-sm90-h200-13.1",
        "fp16-sums-undescribed-sm90-h200-13.1",
        "fp16-sums-later-sm90-h200-13.1",
        "fp16-sums-few-rows-sm90-h200-13.1",
    )
)
_COUNTS = {"outputs": "shapes", "elements": "sampled"}
"""What is compared, and the field of a row of the data file that counts it."""
_BIAS_ORDERS = {
    "biases": {"product_fused", "addend_fused", "operand_a", "onto_itself"},
    "biases added after rounding": {"rounded"},
    "biases under slices": {"onto_product_fused", "onto_addend_fused"},
}  # fmt: skip
"""The orders that each feature of a bias allows."""
_LONGEST = 17479
"""Outputs above which the records did not try the lanes of CUSTOM_OPTION 10 of algorithm 13 on fp32."""
_UNTRIED_SUMS = frozenset({(10, 0, 1), (20, 28, 1), (63, 15, 2)})
"""Kernels of slices, by algorithm, STAGES_ID and REDUCTION_SCHEME, whose sums some records did not try: a row of such a
kernel without an order says nothing.
"""
_UNTRIED_CHAINS = (11, 16)
"""Algorithms whose chains of fp16 the first records of sums of fp16 did not try for large outputs; the same holds."""
_LATER = ("onto_itself", "both_rounded", "onto_product_fused", "onto_addend_fused", "onto_both_rounded")
"""Orders that the records without a row of them did not try."""
IN_FP16 = " in fp16"
"""The end of the name of an order whose operations are of fp16, which all are where sums are of fp16."""
_PLAIN = ("product", "products", "times a vector", "dot")
_VECTORS = ("vector", "relu")


@dataclass(frozen=True)
class Sample:
    """A row of a record."""

    compared: str
    call: str
    dtype: str
    m: int
    n: int
    k: int
    batch: int
    transposes: str
    alpha: float
    beta: float
    configuration: tuple[int, ...]
    orders: tuple[str, ...]
    untried: tuple[str, ...] = ()
    sums: str = "fp32"

    @property
    def kind(self) -> str:
        """The call without what its name says of the memory of its operands."""
        return self.call.removesuffix(" padded").removesuffix(" unaligned")

    @property
    def addend(self) -> str:
        """The addend as the library receives it; a row that is only added is a matrix."""
        if self.kind in ("tensor", "blocks", *_PLAIN):
            return self.kind if self.kind == "tensor" else "none"
        return "vector" if self.kind in _VECTORS and self.beta == 1 and self.n > 1 else "matrix"

    @property
    def undescribed(self) -> bool:
        """Whether no row describes the call: elements of a vector with gaps, batches of one element, other sums."""
        gaps = self.n == 1 and self.call != self.kind
        unknown = (self.algorithm, self.configuration[2]) == (63, 17) or (
            (self.algorithm, self.configuration[6]) == (13, 10) and max(self.m, self.n) > _LONGEST
        )
        kernel = (self.algorithm, self.configuration[2], self.configuration[4])
        unknown |= self.sliced and not self.orders and kernel in _UNTRIED_SUMS
        unknown |= self.sums == "fp16" and not self.orders and self.algorithm in _UNTRIED_CHAINS
        if self.m == self.n == 1 < self.batch:
            few_lanes = self.kind == "batch" and (self.algorithm, self.configuration[6]) == (13, 10)
            lanes = self.configuration[6] in (75, 83) and self.k >= 1024
            unknown |= self.sums == "fp16" or (self.dtype in ("fp32", "tf32") and not lanes) or few_lanes
        return gaps or unknown or any(": " in each for each in self.orders)

    @property
    def plain(self) -> bool:
        """Whether the call is a product alone."""
        return self.kind in _PLAIN

    @property
    def algorithm(self) -> int:
        """The ALGO_ID."""
        return self.configuration[0]

    @property
    def sliced(self) -> bool:
        """Whether k is split."""
        return self.configuration[3] > 1

    def is_under(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the data file has the sample's kernel and type."""
        reduction, custom = self.configuration[4], self.configuration[6]
        dtypes = {"e4m3", "e5m2"} if self.call == "tensor" else {self.dtype}
        return bool(
            row["algorithm"] == self.algorithm
            and row.get("sums", "fp32") == self.sums
            and row["sliced"] == self.sliced
            and dtypes <= set(row["dtypes"])
            and reduction in row.get("reductions", (row.get("reduction", reduction),))
            and custom in row.get("customs", (custom,))
            and self.configuration[3] >= 0
            and not self.undescribed
        )

    def is_general(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the data file for all algorithms has the sample's type and slices."""
        measured = self.configuration[3] >= 0 and not self.undescribed and self.sums == "fp32"
        return measured and self.dtype in row["dtypes"] and self.sliced == row.get("sliced", self.sliced)

    def has_order(self, order: str) -> bool:
        """Whether an order of the data file has the sample's bytes. An operand that was not scaled is no miss."""
        if order == "operand_scaled" and self.alpha == 1:
            return not {"addend_fused", "operand_a", "untried"}.isdisjoint(self.orders)
        if order == "operand_scaled":
            operand = "operand_b" if self.algorithm == 13 and self.m > 1 else "operand_a"
            return operand in self.orders or "untried" in self.orders
        if order == "onto_itself" and self.alpha == 1:  # slices that are not multiplied are a plain sum
            return not {"onto_itself", "product_fused"}.isdisjoint(self.orders)
        return order in self.orders


def samples(paths: Sequence[Path] = RECORDS) -> list[Sample]:
    """The rows of records."""
    found = []
    for record in (json.loads(lzma.decompress(path.read_bytes())) for path in paths):
        sums = "fp16" if record.get("setting") == FP16_ACCUMULATION else "fp32"
        known = {order for each in record["rows"] for order in _named(each[-1], sums)}
        untried = (*record.get("untried", ()), *(each for each in _LATER if each not in known))
        for each in record["rows"]:
            fields: dict[str, Any] = dict(zip(record["columns"], each, strict=True))
            # A row that is only added has the query of a vector, or none of the product alone, in the first names.
            names = [
                each.removeprefix("vector ") for each in _named(fields["orders"], sums)
                if not each.startswith(("matrix ", "bias: "))
            ]  # fmt: skip
            fields |= {"configuration": tuple(fields["configuration"]), "orders": tuple(names)}
            fields |= {"untried": untried, "sums": sums}
            found.append(Sample(**fields))
    return found


def _named(orders: Sequence[str], sums: str) -> list[str]:
    """The names of a row's orders as in the data file, whose operations on sums of fp16 are those of fp16."""
    if sums == "fp32":
        return list(orders)
    return [each.removesuffix(IN_FP16) for each in orders if each.endswith(IN_FP16) or each == "plain"]


def _applies(row: Row, sample: Sample) -> bool:
    return bool(
        row["addend"] == sample.addend
        and sample.is_under(row)
        and (row.get("alpha") != "one" or sample.alpha == 1)
        and (row.get("beta") != "one" or sample.beta == 1)
    )


def counted(rows: Iterable[Row], found: Sequence[Sample]) -> Iterator[tuple[Row, dict[str, int], list[Sample]]]:
    """Each row of `finishes` with its counts and its misses; a sample belongs to the first row that applies to it."""
    listed = list(rows)
    # Of whole outputs with an activation, not all orders were tried.
    taken = [
        each for each in found
        if (each.beta or each.kind == "tensor") and (each.kind, each.compared) != ("relu", "outputs")
    ]  # fmt: skip
    owner = [next((row for row in listed if _applies(row, each)), None) for each in taken]
    for row in listed:
        mine = [each for each, of in zip(taken, owner, strict=True) if of is row]
        misses = [each for each in mine if not each.has_order(row["order"]) and row["order"] not in each.untried]
        yield row, _counts(each for each in mine if each.has_order(row["order"])), misses


def feature_counts(row: Row, found: Sequence[Sample]) -> tuple[dict[str, int], list[Sample]]:
    """The counts and misses of a row of `features`: of batches, of layouts, or of biases, before or after rounding."""
    if row["feature"] == FEATURE:
        reductions = row["reductions"]
        mine = [
            each for each in found
            if each.sums == "fp16" and each.plain and each.configuration[4] in reductions
            and (each.algorithm, each.sliced) == (row["algorithm"], row["sliced"])
            and each.configuration[3] >= 0 and not each.undescribed
        ]  # fmt: skip
        return _counts(each for each in mine if "plain" in each.orders), [
            each for each in mine if "plain" not in each.orders
        ]
    if "algorithm" not in row:
        end = {"padded rows": " padded", "unaligned operands": " unaligned", "batches": "products"}[row["feature"]]
        mine = [each for each in found if each.plain and each.call.endswith(end) and each.is_general(row)]
        return _counts(each for each in mine if "plain" in each.orders), [
            each for each in mine if "plain" not in each.orders
        ]
    if row["feature"] == "batches":
        mine = [each for each in found if each.kind == "batch" and each.is_under(row) and (each.m > 1 or each.n > 1)]
        return _counts(each for each in mine if each.orders), [each for each in mine if not each.orders]
    orders = _BIAS_ORDERS[row["feature"]]
    mine = [each for each in found if each.addend == "vector" and each.is_under(row)]
    others = [each for each in mine if not orders & set(each.orders)]
    return _counts(each for each in mine if orders & set(each.orders)), [
        each for each in others if not orders & set(each.untried)
    ]


def _counts(found: Iterable[Sample]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in found:
        name = _COUNTS[each.compared]
        counts[name] = counts.get(name, 0) + 1
    return counts


def recounted(tables: Mapping[str, Sequence[Row]], found: Sequence[Sample]) -> dict[str, list[Row]]:
    """The rows of `finishes`, and those of `features` that `feature_counts` counts, with their counts.

    Raises ValueError for a row with a miss.
    """
    wrong = []
    finishes: list[Row] = []
    features: list[Row] = []
    for row, counts, misses in counted(tables["finishes"], found):
        wrong += [(row, each) for each in misses]
        finishes.append({name: value for name, value in row.items() if name not in _COUNTS.values()} | counts)
    for row in tables["features"]:
        if "draws" in row:
            features.append(dict(row))
            continue
        counts, misses = feature_counts(row, found)
        if row["feature"] == FEATURE:
            counts["sampled"] = counts.get("sampled", 0) + counted_products(row, products())[0]
        wrong += [(row, each) for each in misses]
        features.append({name: value for name, value in row.items() if name not in _COUNTS.values()} | counts)
    if wrong:
        raise ValueError("\n".join(f"{row}: {sample}" for row, sample in wrong[:20]))
    return {"finishes": finishes, "features": features}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts of every order."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.addend_orders", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--records", type=Path, nargs="+", default=RECORDS, help="the records (default: all)")
    parser.add_argument(
        "--write", action="store_true", help="write the counts to the data file, unless there is a miss"
    )
    given = parser.parse_args(arguments)
    found = samples(given.records)
    wrong = 0
    for row, counts, misses in counted(profile("13.1", "9.0").tables["finishes"], found):
        wrong += len(misses)
        kernel = {name: row[name] for name in ("addend", "algorithm", "sliced", "dtypes", "order")}
        print(f"{json.dumps(kernel)}: {json.dumps(counts)}, {len(misses)} misses")
    print(f"{len(found)} products, {wrong} misses")
    if given.write and not wrong:
        data = Path(str(files("bitwise_cublas_profiles"))) / "data" / "sm_90-13.1.json"
        tables = profile("13.1", "9.0").tables
        rows = {name: list(each) for name, each in tables.items()} | recounted(tables, found)
        data.write_text(with_tables(data.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
