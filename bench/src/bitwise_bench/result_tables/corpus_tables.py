"""Tables on corpora of others: kernels of public packages, and the published corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitwise_bench.public_kernels.agreement import PARTS
from bitwise_bench.result_tables.markdown import markdown_table


def public_kernels(record: Mapping[str, Any]) -> str:
    """Return the figures about kernels of public packages, by package."""
    rows = [
        [
            name if source is None else f"{source['distribution']} {source['version']}".strip(),
            each["launches"],
            each["kernels"],
            each["determined"],
            f"{100 * each['unknown share']:.1f} %",
            f"{each['classes']} / {each['byte classes']}",
            "-" if each["ratio"] is None else f"{each['ratio']:.2f}",
            "-" if each["functions"] is None else f"{each['classes'] / each['functions']:.2f}",
            len(each["mixed"]),
            f"{each['named']} of {each['moved']}",
            f"{each['seconds']['median']:.1f} / {each['seconds']['p90']:.1f}",
        ]
        for name, each, source in [
            *((name, each, each) for name, each in record["sources"].items()),
            ("all", record["total"], None),
        ]
    ]
    head = (
        *("package", "launches", "kernels", "determined", "Unknown", "classes / byte classes", "ratio"),
        *("to functions", "classes with several byte patterns", "not determined: named", "median / ninth decile, s"),
    )
    environment = record["environment"]["bytes"]
    return markdown_table(head, rows) + (
        f"\n\nTriton {environment['triton']}, against the bytes of an {environment['gpu'].split()[1]}. A kernel is "
        "determined if all repetitions returned the same bytes; Unknown, classes and byte classes are of these. "
        "Functions are byte classes, divided where a search found an input on which two kernels differ."
    )


def public_kernels_of_target(record: Mapping[str, Any]) -> str:
    """Return the figures about kernels that were compiled for another target than that of the GPU where they ran.

    Two counts of Unknown: of the kernels that moved no bytes on that GPU, and of those of them that the reading does
    not call undetermined.
    """
    rows = []
    for part in PARTS:
        for name, of_inductor in (("packages", False), ("TorchInductor", True), ("all", None)):
            entries = [
                entry
                for entry in record["launches"]
                if entry["part"] == part and of_inductor in (None, entry["launch"].startswith("inductor"))
            ]
            kernels = [kernel for entry in entries for kernel in entry["kernels"] if not kernel.get("error")]
            moved = [kernel for kernel in kernels if kernel.get("moved")]
            still = [kernel for kernel in kernels if not kernel.get("moved")]
            unknown = [kernel for kernel in still if kernel.get("unknown")]
            open_ones = [kernel for kernel in unknown if not kernel.get("undetermined")]
            if not still:
                continue
            determined = len(still) - len(unknown) + len(open_ones)
            rows.append(
                [
                    f"{part}, {name}",
                    len(entries),
                    len(still),
                    f"{len(unknown)} ({100 * len(unknown) / len(still):.1f} %)",
                    f"{len(open_ones)} of {determined} ({100 * len(open_ones) / determined:.1f} %)",
                    f"{sum(kernel.get('unknown') is not None for kernel in moved)} of {len(moved)}",
                ]
            )
    head = (
        *("part", "launches", "kernels that moved no bytes on an H200", "of these without a class"),
        *("Unknown, of those that the reading calls determined", "that moved: named"),
    )
    environment = record["environment"]["bytes"]
    return markdown_table(head, rows) + (
        f"\n\nTriton {environment['triton']}. The same kernels, compiled for sm_90, ran on an "
        f"{environment['gpu'].split()[1]}; those of the table did not run."
    )


def public_kernels_by_part(record: Mapping[str, Any]) -> str:
    """Return the figures about kernels whose launches are in an open and a held-out part."""
    rows = []
    by_text = any("witnessed" in groups["all"] for groups in record["parts"].values())
    for part, groups in record["parts"].items():
        for name, each in groups.items():
            if not each["launches"]:
                continue
            times = each["reading over compiling"]
            rows.append(
                [
                    f"{part}, {name}",
                    each["launches"],
                    each["kernels"],
                    *([f"{each['named, witnessed']} of {each['witnessed']}"] if by_text else []),
                    each["determined"],
                    f"{each['unknown']} ({100 * each['unknown share']:.1f} %)",
                    f"{each['classes']} / {each['byte classes']}",
                    "-" if each["ratio"] is None else f"{each['ratio']:.3f}",
                    "-" if not each["functions"] else f"{each['classes'] / each['functions']:.3f}",
                    len(each["mixed"]),
                    f"{each['named']} of {each['moved']}",
                    "-" if times is None else f"{times['median']:.2f} / {times['p90']:.1f}",
                ]
            )
    head = (
        *("part", "launches", "kernels", *(["bytes alike, not determined by the text: named"] if by_text else [])),
        *("determined", "Unknown", "classes / byte classes", "ratio", "to functions"),
        *("classes with several byte patterns", "not determined: named", "reading / compiling, median / ninth decile"),
    )
    environment = record["environment"]["bytes"]
    assuming = [
        f"Under `--assume {name}`, {count} of {groups['all']['determined']} are Unknown in the {part} part."
        for part, groups in record["parts"].items()
        for name, count in groups["all"]["unknown, assuming"].items()
    ]
    return (
        markdown_table(head, rows)
        + (
            f"\n\nTriton {environment['triton']}, against the bytes of an {environment['gpu'].split()[1]}. "
            f"{len(record['sources'])} sources. A kernel is determined if all runs returned the same bytes, also those "
            f"beside other work{' and with the blocks in other orders' if 'search' in record['environment'] else ''}"
            f"{', and no two executions that its text allows are known to differ' if by_text else ''}. "
            + " ".join(assuming)
        ).rstrip()
    )


def published_corpus(record: Mapping[str, Any]) -> str:
    """Return the rows of the published table: own figures, and the published ones in brackets."""
    rows = []
    for name, each in [*record["rows"].items(), ("whole corpus", record["total"])]:
        row = each["published"] if "dtype" in each else {}
        whole = f"{name}, {each.get('kernels')} kernels, {each.get('formats')} formats"
        ratio = row["classes"] / row["byte_classes"] if row else None
        merges = each["wrong merges"]
        rows.append(
            [
                f"`{name}`, {each['dtype']}" if row else whole,
                _of_planned(each),
                _beside(each["classes"], row.get("classes")),
                _beside(each["byte classes"], row.get("byte_classes")),
                _beside(_two_digits(each["ratio"]), _two_digits(ratio)),
                "-" if merges is None else len(merges),
                each["unknown"],
                f"{1000 * each['seconds']['compile']['median']:.0f} / {1000 * each['seconds']['read']['median']:.0f}",
            ]
        )
    head = (
        *("kernel", "configurations", "classes", "byte classes", "ratio", "classes with several byte patterns"),
        *("Unknown", "compiled / read, median ms"),
    )
    environment = record["environment"]
    gpu = environment.get("gpu")
    against = f"against the bytes of {gpu}" if gpu else "not run on a GPU"
    return markdown_table(head, rows) + (
        f"\n\nTriton {environment.get('triton', '?')} for {record['target']}, {against}. In brackets: "
        f"{record['source']}. Classes are of the configurations that are not Unknown; the ratio is of those that ran "
        "with the same bytes in every repetition."
    )


def _of_planned(figures: Mapping[str, Any]) -> str:
    done, planned = figures["done"], figures["planned"]
    return f"{planned:,}" if done == planned else f"{done:,} of {planned:,}"


def _beside(own: object, published: object) -> str:
    shown = "-" if own is None else str(own)
    return shown if published is None else f"{shown} ({published})"


def _two_digits(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f}"
