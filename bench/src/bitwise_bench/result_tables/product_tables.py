"""Tables on matrix products: their speed beside a library's, and the products whose bytes were compared with its."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bitwise_bench.result_tables.markdown import markdown_table

LAYOUTS: Mapping[tuple[str, str], str] = MappingProxyType({
    ("nn", "float16"): "rows of both, fp16", ("nt", "bfloat16"): "linear layer, bf16",
})  # fmt: skip
"""The layouts and types of published products, by what a table calls them."""
CHOICES: Mapping[str, str] = MappingProxyType({
    "default": "without tuning", "first call": "timed at the first call", "tuned": "tuned",
})  # fmt: skip
"""The times of published products, by what a table calls them."""


def ratios_of_published(record: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return a library's time over ours for each product, by group, and by layout and choice."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in record["rows"]:
        layout = LAYOUTS[row["layout"], row["dtype"]]
        for choice, words in CHOICES.items():
            if choice in row:
                group = found.setdefault(row["group"], {})
                group.setdefault(f"{layout}, {words}", []).append(row["cublas"] / row[choice])
    return found


def published_products(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the speed of products of the published groups over a library's, by GPU and group."""
    tables = []
    for each in records:
        groups = ratios_of_published(each)
        columns = list(dict.fromkeys(name for found in groups.values() for name in found))
        rows = []
        for group in ("all", *groups):
            mine = groups.values() if group == "all" else [groups[group]]
            of_column = [[ratio for found in mine for ratio in found.get(name, ())] for name in columns]
            rows.append([group, len(of_column[0]), *(_mean(ratios) for ratios in of_column)])
        environment, summary = each["environment"], each["summary"]
        chosen = [ratio for found in groups.values() for name, ratios in found.items()
                  if name.endswith(CHOICES["default"]) for ratio in ratios]  # fmt: skip
        tuned = [row["cublas"] / row["tuned"] for row in each["rows"] if "tuned" in row]
        sentence = f"{len(tuned)} products were tuned, to a mean of {_mean(tuned)}. " if tuned else ""
        tables.append(
            markdown_table(("cuBLAS's time over ours", "shapes", *columns), rows)
            + f"\n\nGeometric means of CUDA graphs, in turn. Of {len(chosen)} products without tuning the mean is "
            f"{_mean(chosen)}, {sum(ratio < 0.9 for ratio in chosen)} are below 0.9, the slowest is {min(chosen):.2f}; "
            f"{summary['schedules whose bytes differ']} of {summary['schedules that ran']} schedules had other bytes. "
            f"{sentence}"
            f"{environment['gpu']}, cuBLASLt {environment['library']}, PyTorch {environment['torch']}, "
            f"Triton {environment['triton']}."
        )
    return "\n\n".join(tables)


def _mean(ratios: Iterable[float]) -> str:
    logarithms = [math.log(each) for each in ratios]
    return f"{math.exp(sum(logarithms) / len(logarithms)):.2f}" if logarithms else "-"


def product_speeds(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the speed of products of held-out sizes over a library's, by GPU, set and rows of the output."""
    classes = ("M <= 1", "M <= 16", "M <= 64", "M <= 256", "M <= 1024", "M <= 4096", "M > 4096")
    rows, wrong = [], 0
    for each in records:
        found = each["summary"]["default"]
        means = [found["all"], *(found["rows"].get(name) for name in classes), found["groups"].get("odd")]
        slowest = found["slowest"][0][-1]
        rows.append([
            f"{each['environment']['gpu']}, {each['set'].replace('-', ' ')}", found["problems"],
            *("-" if mean is None else f"{mean:.2f}" for mean in means), found["below 0.9"], f"{slowest:.2f}",
        ])  # fmt: skip
        wrong += each["summary"]["schedules whose bytes differ"]
    head = ("cuBLAS's time over ours", "products", "all", *classes, "odd sizes", "below 0.9", "slowest")
    return (
        markdown_table(head, rows) + f"\n\nGeometric means of CUDA graphs, in turn; {wrong} schedules had other bytes."
    )


def library_bytes(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the products of sweeps whose bytes were compared with a library's, by GPU, library and operand type."""
    types = ("fp16", "bf16", "e4m3", "e5m2")
    counts: dict[tuple[str, str], Counter[str]] = {}
    for each in records:
        found = counts.setdefault((each["environment"]["gpu"], each["environment"]["library"]), Counter())
        for key, count in each["outcomes"].items():
            dtype, outcome = key.removeprefix("candidate ").split(": ")
            found[dtype if outcome == "equal" else "other" if outcome == "different" else "not compared"] += count
    rows = [
        [gpu, library, *(f"{found[dtype]:,}" for dtype in types), found["other"], found["not compared"]]
        for (gpu, library), found in sorted(counts.items())
    ]
    return markdown_table(("GPU", "cuBLASLt", *types, "other bytes", "not compared"), rows)


def calls_by_setting(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the calls of PyTorch whose elements were compared with their descriptions, by GPU and setting."""
    rows = []
    for each in records:
        for setting, found in each["settings"].items():
            counts = found["totals"]
            calls = sum(counts.get(name, 0) for name in ("equal", "different", "failed", "declined"))
            declined = counts.get("declined", 0)
            rows.append([
                each["environment"]["gpu"], setting if setting[0].islower() else f"`{setting}`",
                f"{counts.get('equal', 0):,}", counts.get("different", 0) + counts.get("failed", 0),
                f"{declined} ({declined / calls:.2%})",
            ])  # fmt: skip
    return markdown_table(("GPU", "setting", "equal", "other bytes", "declined"), rows)


def fused_epilogues(record: Mapping[str, Any]) -> str:
    """Return the speed of products with an epilogue over PyTorch's separate operators, by part and epilogue."""
    rows = []
    columns = ("ours", "first call", "library", "compiled")
    for part, each in record["parts"].items():
        totals = each["summary"]
        for name in (None, *totals["ours"]["epilogues"]):
            means = [totals.get(column, {}) for column in columns]
            shown = [found.get("mean") if name is None else found.get("epilogues", {}).get(name) for found in means]
            cases = [row for row in each["rows"] if "ours" in row and name in (None, row["epilogue"])]
            below = [
                sum(row["sequence"] < row[column] for row in cases) if column in cases[0] else "-"
                for column in ("ours", "first call")
            ]
            cells = ["-" if found is None else f"{found:.2f}" for found in shown]
            rows.append([f"{part}: {name or 'all'}", len(cases), *cells, *below])
    environment = record["environment"]
    head = ("speed over torch.mm and separate operators", "products", "`matmul`", "timed at its first call",
            "cuBLASLt's epilogue", "torch.compile", "`matmul` below 1", "timed, below 1")  # fmt: skip
    wrong, fused, count = (
        sum(each["summary"][name] for each in record["parts"].values()) for name in ("other bytes", "fused", "cases")
    )
    return markdown_table(head, rows) + (
        f"\n\nGeometric means; {wrong} outputs have other bytes than the operators. A fused kernel computes {fused} of "
        f"{count} products, and the product and the operators the others. "
        "A kernel that is timed at its first call is the fastest of four. "
        "cuBLASLt's epilogue and torch.compile (with dynamic shapes) may return other bytes. "
        f"{environment['gpu']}, cuBLASLt {environment['library']}, PyTorch {environment['torch']}, "
        f"Triton {environment['triton']}."
    )


SCALED_BLOCKS = "python -m bitwise_bench.cublas.times.scaled_block_timing --out RECORD"
"""The command that writes a record of `scaled_blocks`."""


def scaled_blocks(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the speed of fp8 products with scales of blocks over a library's, by GPU, blocks and rows."""
    if not records:
        return f"This is not measured yet; `{SCALED_BLOCKS}` measures it."
    names = ("all", "1x128", "1x1", "128x1", *(f"M <= {most}" for most in (1, 16, 64, 256, 1024, 4096)))
    rows = []
    for each in records:
        found = each["summary"]
        means = [f"{found[name]:.2f}" if name in found else "-" for name in (*names, "slowest")]
        label = f"{each['environment']['gpu']}, {each.get('set', 'layers')}"
        rows.append([label, found["products"], *means, found["other bytes"]])
    shown = (name.replace("x", " x ") for name in names)
    head = ("cuBLAS's time over ours", "products", *shown, "slowest", "other bytes")
    return markdown_table(head, rows) + (
        "\n\nGeometric means of CUDA graphs, in turn; 1 x 128: a scale for each row of A and for 128 columns of B."
    )


def all_fused_epilogues(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of `fused_epilogues` for each record."""
    return "\n\n".join(map(fused_epilogues, records))
