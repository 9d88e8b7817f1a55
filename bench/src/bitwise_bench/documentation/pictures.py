"""The charts of the documentation, as SVG files drawn by Matplotlib: python -m bitwise_bench.documentation.pictures.

Each file holds the SHA-256 of the numbers that it shows, so that a test without Matplotlib finds a stale one.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_bench.attention.page import ratios
from bitwise_bench.documentation.page_links import ROOT
from bitwise_bench.result_tables.product_tables import ratios_of_published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = ROOT / "docs" / "pictures"

_ORDERS: Mapping[str, object] = MappingProxyType(
    {
        "one after the other": (((((((0, 1), 2), 3), 4), 5), 6), 7),
        "in pairs": (((0, 1), (2, 3)), ((4, 5), (6, 7))),
        "in two lanes": ((((0, 2), 4), 6), (((1, 3), 5), 7)),
    }
)
"""Ways to add eight numbers: a pair is an addition."""

_NUMBERS = (1.0, 1.0, 1.0, 1.0, 1.0, 2.0**24, 1.0, -(2.0**24))


def summation_orders() -> dict[str, Any]:
    """Return three trees over eight numbers, and the fp32 sum of the same numbers in each of them."""
    return {
        "numbers": _NUMBERS,
        "orders": {name: {"tree": tree, "sum": float(_sum(tree))} for name, tree in _ORDERS.items()},
    }


def _sum(tree: Any) -> np.float32:
    if isinstance(tree, int):
        return np.float32(_NUMBERS[tree])
    left, right = tree
    return np.float32(_sum(left) + _sum(right))


def spread_of_sums() -> dict[str, Any]:
    """Return how often a sum of 1,000 fp32 numbers in 2,000 drawn orders has each result, by distance in ulps."""
    generator = np.random.default_rng(2024)
    numbers = generator.uniform(-1, 1, 1000).astype(np.float32)
    # `add.accumulate` adds one number after the other, in fp32.
    sums = np.array([np.add.accumulate(generator.permutation(numbers))[-1] for _ in range(2000)], np.float32)
    bits = sums.view(np.int32).astype(np.int64)
    exact = np.float32(math.fsum(numbers))
    assert (np.sign(sums) == np.sign(exact)).all()
    distances, counts = np.unique(np.sign(exact) * (bits - int(exact.view(np.int32))), return_counts=True)
    return {
        "ulps": [int(each) for each in distances],
        "sums": [int(each) for each in counts],
        "different": len(np.unique(bits)),
    }


def classes_of_configurations() -> dict[str, Any]:
    """Return configurations, equivalence classes and byte classes of kernels of the published corpus."""
    record = json.loads((ROOT / "records" / "published-corpus-sm90-h100.json").read_text(encoding="utf-8"))
    return {
        f"{name}, {row['dtype']}": [row["done"], row["classes"], row["byte classes"]]
        for name, row in record["rows"].items()
    }


COSTS = ROOT / "records" / "mode-costs-sm90-h200.json"
"""The record of what the batch-invariant mode costs; its picture exists where the record does."""


def costs_of_the_mode() -> dict[str, Any]:
    """Return the geometric mean of times beside PyTorch's, by kind of work and by scope."""
    record = json.loads(COSTS.read_text(encoding="utf-8"))
    return {kind: found for kind, found in record["ratios"].items() if kind != "rows"}


def _draw_costs(data: Mapping[str, Any], axes: Axes) -> None:
    kinds = list(data)[::-1]
    scopes = sorted({scope for found in data.values() for scope in found}, reverse=True)
    for shift, scope in enumerate(scopes):
        places = [place + 0.35 * (len(scopes) - 1 - shift) - 0.17 for place in range(len(kinds))]
        values = [data[kind].get(scope, 0.0) for kind in kinds]
        axes.barh(places, values, 0.32, label=scope, color=("#00796b", "#b0bec5", "#ff8f00")[shift])
    axes.axvline(1.0, color="#455a64", linewidth=1)
    axes.set_yticks(range(len(kinds)), [kind.replace(", graph", ", CUDA graph") for kind in kinds], fontsize=9)
    axes.set_xlabel("time beside PyTorch's own, geometric mean")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=3)


ATTENTION = tuple(
    path for path in (ROOT / "records" / f"attention-sm90-{gpu}.json" for gpu in ("h200", "h100")) if path.exists()
)
"""The records of attention, the newest first."""


def ratios_of_attention() -> dict[str, Any]:
    """Return the ratios of the cases of each kind of attention, by GPU."""
    records = [json.loads(each.read_text(encoding="utf-8")) for each in ATTENTION]
    return {each["environment"]["gpu"]: ratios(each) for each in records}


def _draw_attention(data: Mapping[str, Any], axes: Axes) -> None:
    kinds = list(dict.fromkeys(kind for found in data.values() for kind in found))[::-1]
    for shift, (gpu, found) in enumerate(data.items()):
        places = [kinds.index(kind) + 0.13 - 0.26 * shift for kind, each in found.items() for _ in each]
        values = [ratio for each in found.values() for ratio in each]
        axes.scatter(values, places, s=22, label=gpu, color=("#00796b", "#ff8f00")[shift], alpha=0.7, linewidths=0)
    axes.axvline(1.0, color="#455a64", linewidth=1)
    axes.set_yticks(range(len(kinds)), kinds, fontsize=9)
    axes.set_xlabel("time of the faster of cuDNN and flash divided by ours, one dot for each case")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2)


PUBLISHED = tuple(
    path
    for path in (ROOT / "records" / f"cublas-published-sm90-{gpu}.json" for gpu in ("h200", "h100"))
    if path.exists()
)
"""The records of products of the published groups, the newest first."""


def ratios_of_products() -> dict[str, Any]:
    """Return the ratios of the published products of each group, by layout and choice, of the newest record."""
    record = json.loads(PUBLISHED[0].read_text(encoding="utf-8"))
    groups = {
        group: {name: [round(each, 3) for each in ratios] for name, ratios in found.items()}
        for group, found in ratios_of_published(record).items()
    }
    return {"gpu": record["environment"]["gpu"], "groups": groups}


def _draw_products(data: Mapping[str, Any], axes: Axes) -> None:
    groups = list(data["groups"])[::-1]
    names = list(dict.fromkeys(name for found in data["groups"].values() for name in found))
    for shift, name in enumerate(names):
        height = 0.8 * (0.5 - (shift + 0.5) / len(names))
        pairs = [
            (ratio, row + height) for row, group in enumerate(groups) for ratio in data["groups"][group].get(name, ())
        ]
        colour = ("#00796b", "#ff8f00", "#5e35b1", "#c62828")[shift % 4]
        axes.scatter(*zip(*pairs, strict=True), s=8, label=name, color=colour, alpha=0.5, linewidths=0)
    axes.axvline(1.0, color="#455a64", linewidth=1)
    axes.set_yticks(range(len(groups)), groups, fontsize=9)
    axes.set_xlabel(f"cuBLAS's time divided by ours on an {data['gpu']}, one dot for each product")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2)


def _draw_orders(data: Mapping[str, Any], axes: Axes) -> None:
    for place, (name, order) in enumerate(data["orders"].items()):
        left = 9.5 * place
        _draw_tree(order["tree"], left, axes)
        axes.text(left + 3.5, -1.5, f"{name}: {order['sum']:g}", ha="center", fontsize=10)
    axes.set_axis_off()
    axes.set_ylim(-2.2, 7.6)


def _draw_tree(tree: Any, left: float, axes: Axes) -> tuple[float, float]:
    """Draw a tree with its leaves on one line; the coordinates of its root."""
    if isinstance(tree, int):
        axes.text(left + tree, -0.45, f"x{tree}", ha="center", va="center", fontsize=8, color="#555555")
        return left + tree, 0.0
    ends = [_draw_tree(each, left, axes) for each in tree]
    x, y = sum(end[0] for end in ends) / 2, max(end[1] for end in ends) + 1
    for end in ends:
        axes.plot([end[0], x], [end[1], y], color="#00796b", linewidth=1.2, zorder=1)
    axes.plot([x], [y], marker="o", markersize=9, color="white", markeredgecolor="#00796b", zorder=2)
    axes.text(x, y - 0.02, "+", ha="center", va="center", fontsize=8, zorder=3)
    return x, y


def _draw_spread(data: Mapping[str, Any], axes: Axes) -> None:
    axes.bar(data["ulps"], data["sums"], color="#00796b")
    axes.set_xlabel("distance from the exact sum, in units in the last place")
    axes.set_ylabel("orders")
    axes.set_title(f"2,000 orders of the same 1,000 numbers: {data['different']} different fp32 sums", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_classes(data: Mapping[str, Any], axes: Axes) -> None:
    names = list(data)[::-1]
    for shift, (index, label, colour) in enumerate(
        ((2, "byte classes on an H100", "#ff8f00"), (1, "classes", "#00796b"), (0, "configurations", "#b0bec5"))
    ):
        places = [place + 0.27 * (shift - 1) for place in range(len(names))]
        axes.barh(places, [data[name][index] for name in names], 0.25, label=label, color=colour)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(
        handles[::-1], labels[::-1], fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=3
    )


PICTURES: Mapping[
    str, tuple[Callable[[], dict[str, Any]], Callable[[Mapping[str, Any], Any], None], tuple[float, float]]
]
PICTURES = MappingProxyType(
    {
        "summation-orders": (summation_orders, _draw_orders, (8.4, 2.8)),
        "spread-of-sums": (spread_of_sums, _draw_spread, (7.0, 3.0)),
        "classes": (classes_of_configurations, _draw_classes, (7.0, 5.0)),
        **({"attention": (ratios_of_attention, _draw_attention, (7.0, 3.0))} if ATTENTION else {}),
        **({"products": (ratios_of_products, _draw_products, (7.0, 4.6))} if PUBLISHED else {}),
        **({"mode-costs": (costs_of_the_mode, _draw_costs, (7.0, 3.2))} if COSTS.exists() else {}),
    }
)
"""The numbers, the drawing and the size in inches of each picture."""


def digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the numbers of a picture."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def main() -> int:
    """Draw every picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and identifiers follow from the content.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bitwise", "font.family": "sans-serif"})
    for name, (numbers, draw, size) in PICTURES.items():
        data = numbers()
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        draw(data, figure.subplots())
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Description": digest(data)})
        text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        (FOLDER / f"{name}.svg").write_text(
            "".join(f"{line.rstrip()}\n" for line in text.splitlines()), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
