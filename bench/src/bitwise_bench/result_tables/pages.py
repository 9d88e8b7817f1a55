"""The tables of README.md and docs/, generated from the records and the plugins.

    python -m bitwise_bench.result_tables

rewrites the text between `<!-- table: NAME -->` and `<!-- end table -->` in the pages of the working directory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bitwise_bench.compressed_text import read_text
from bitwise_bench.readings.between_generations import compiled, table_of
from bitwise_bench.readings.overpartition_reasons import REASONS
from bitwise_bench.result_tables import corpus_tables, model_tables, product_tables
from bitwise_bench.result_tables.markdown import markdown_table
from bitwise_bench.result_tables.tuned_model_tables import tuned_models
from bitwise_core.plugins import registry
from bitwise_core.plugins.capabilities import TITLES, capabilities

_BLOCK = re.compile(r"<!-- table: ([\w-]+) -->\n.*?<!-- end table -->", re.DOTALL)
_MODES = MappingProxyType(
    {
        "launch": "concrete",
        "finite": "concrete, all values finite",
        "every launch": "launch-parametric",
        "matrix arithmetic": "concrete, one arithmetic of matrix units",
    }
)


def precision(record: Mapping[str, Any]) -> str:
    """Return equivalence classes, byte classes and Unknown kernels, by kind of analysis."""
    rows = [
        [
            _MODES[mode],
            each["kernels"],
            f"{each['classes']} / {each['byte_classes']}",
            f"{each['ratio']:.2f}",
            _exact(record["families"], mode),
            f"{100 * each['unknown'] / each['kernels']:.1f} %",
            f"{100 * each['nondeterministic'] / each['kernels']:.1f} %",
            len(each["mixed"]),
        ]
        for mode, each in record["modes"].items()
    ]
    head = (
        *("analysis", "kernels", "classes / byte classes", "ratio", "families exact"),
        *("Unknown", "nondeterministic", "classes with several byte patterns"),
    )
    environment = record["environment"]
    against = "simulated bytes" if record.get("simulated") else "the bytes of an H100"
    target = record.get("target", "sm_90")
    note = f"\n\nTriton {environment['triton']} for {target}, against {against}."
    if record.get("simulated"):
        ran = record["draws"]
        note += (
            f" {ran['on all']} of {ran['configurations']} configurations were executed on all {ran['kinds']} kinds of"
            f" input, the others on at least {ran['fewest']}."
        )
    return markdown_table(head, rows) + note


def _exact(families: Mapping[str, Any], mode: str) -> str:
    return f"{sum(each[mode]['ratio'] <= 1 for each in families.values())} of {len(families)}"


def overpartition(record: Mapping[str, Any]) -> str:
    """Return the families with more equivalence classes than byte classes in the concrete analysis, and why."""
    reasons = REASONS[record.get("target", "sm_90")]
    modes = [mode for mode in ("launch", "finite") if mode in record["modes"]]
    rows = [
        [
            f"`{family}`",
            *(f"{each[mode]['classes']} / {each[mode]['byte_classes']}" for mode in modes),
            reasons[family],
        ]
        for family, each in record["families"].items()
        if any(each[mode]["ratio"] > 1 for mode in modes)
    ]
    titles = {"launch": "concrete", "finite": "all values finite"}
    return markdown_table(("family", *(titles[mode] for mode in modes), "why"), rows)


def seconds(record: Mapping[str, Any]) -> str:
    """Return median and ninth decile of the time per kernel, by step, in milliseconds."""
    steps = {
        "compile": "compilation by Triton",
        "parse": "parsing",
        "audit": "contraction audit",
        "launch": "concrete analysis",
        "every launch": "launch-parametric analysis",
    }
    sets = list(record["seconds"])

    def cell(step: Mapping[str, Any]) -> str:
        return f"{1000 * step['median']:.0f} / {1000 * step['p90']:.0f}" if step["kernels"] else "-"

    rows = [[title, *(cell(record["seconds"][name][step]) for name in sets)] for step, title in steps.items()]
    environment = record["environment"]
    head = ("median / ninth decile, ms", *sets)
    return (
        markdown_table(head, rows)
        + f"\n\nOne core of {environment['cpu']}, Python {environment['python']}, NumPy {environment['numpy']}."
    )


def reading_times(record: Mapping[str, Any]) -> str:
    """Return the time of reading beside that of compiling for each target, and beside the first target's."""
    first, *_ = targets = record["targets"]
    environment, settings = record["environment"], record["settings"]
    seed, product = settings.get("sizes drawn by"), settings.get("product")
    kind = "corpus" if seed is None else "drawn sizes"
    groups = {kind: record["summary"], f"matrix product {product}": record["summary"].get("product")}

    def cell(spread: Mapping[str, float]) -> str:
        return f"{spread['median']:.2f} / {spread['ninth decile']:.2f} / {spread['most']:.2f}"

    rows = []
    for name, found in groups.items():
        for target in targets if found else ():
            own, beside = found[target], found.get(f"{target} over {first}")
            times = own["CPU seconds to read"], own["reading over compiling"]
            kernels = [target, name, own["kernels"], own.get("Unknown", "-")]
            rows.append([*kernels, *map(cell, times), *([cell(beside), beside["above 1.5"]] if beside else ["-", "-"])])
    head = (
        *("target", "configurations", "kernels", "Unknown", "CPU seconds to read", "reading / compiling"),
        *(f"reading / reading for {first}", "above 1.5"),
    )
    sizes = "" if seed is None else f" with sizes drawn by seed {seed}, which no earlier reading has seen"
    versions = f"Python {environment['python']}, NumPy {environment['numpy']}, Triton {environment['triton']}"
    largest = record.get("largest process, MiB")
    memory = f" The process that compiled and read them all took at most {largest} MiB." if largest else ""
    return markdown_table(head, rows) + (
        "\n\nMedian / ninth decile / most, of CPU seconds, with a warm cache of the assembler. The configurations "
        f"are of the corpus{sizes}.{memory} {environment['cpu']}, {versions}."
    )


def mutants(record: Mapping[str, Any]) -> str:
    """Return the verdicts on mutants, by kind of change."""
    rows = [
        [row["kind"], row["mutants"], row["unproved"], row["unknown"], row["equal"]]
        for row in sorted(record["table"], key=lambda row: bool(row["neutral"]))
        if not row["neutral"]
    ]
    neutral = [row for row in record["table"] if row["neutral"]]
    total = sum(row["mutants"] for row in neutral)
    equal = sum(row["equal"] for row in neutral)
    hardware = record["hardware"]
    other, not_run = len(hardware["other bytes"]), len(hardware["not run"])
    gpu = hardware["environment"]["gpu"].split()[1]
    same = sum(hardware["same bytes"].values())
    note = (
        f"\n\nOf the {hardware['equal by text']} Equal mutants, {same} returned the bytes "
        f"of the original on an {gpu}, {other} returned other bytes, and {not_run} did not run. Of {total} neutral "
        f"variants, which differ in names, order or debug lines only, {equal} are Equal."
    )
    return markdown_table(("change", "mutants", "Unproved", "Unknown", "Equal"), rows) + note


def matrix_speed(record: Mapping[str, Any]) -> str:
    """Return millions of multiply-adds per second, by row."""
    rows = [
        [f"`{name}`", f"{each['multiply_adds'] / 1e6:.0f}", f"{each['plain_loop'] / 1e6:.2f}"]
        for name, each in record["rows"].items()
    ]
    shape, environment = "x".join(map(str, record["shape"])), record["environment"]
    head = ("million multiply-adds per second", "vectorised", "scalar loop")
    return markdown_table(head, rows) + (
        f"\n\nOf a {shape} product; both give the same bits. One core of {environment['cpu']}, "
        f"Python {environment['python']}, NumPy {environment['numpy']}."
    )


def corpus_descriptors(record: Mapping[str, Any]) -> str:
    """Return the numbers of kernels with a descriptor, of evaluations, and of kernels with other bytes on the GPU."""
    kinds = {"products": ("gemm",), "sums": ("row_sum", "split_k_reduce"), "attention": ("attention",)}
    rows = []
    for kind, starts in kinds.items():
        mine = [each for family, each in record["families"].items() if family.startswith(starts)]
        rows.append([kind, *(sum(each[name] for each in mine) for name in ("configurations", "descriptors", "differ"))])
    gpu = record["environment"]["gpu"].split()[1]
    head = ("kernels of the corpus", "configurations", "descriptors", f"bytes differ from an {gpu}")
    return (
        markdown_table(head, rows)
        + f"\n\nEach descriptor evaluated on a CPU for {len(record['draws'])} kinds of input."
    )


def pinned(record: Mapping[str, Any]) -> str:
    """Return the speed of the pinned order relative to the free one, and the most byte classes of a case, by kernel."""
    cases, pairs, summary = record["cases"], record["summary"]["pairs"], record["summary"]
    dtypes = list(dict.fromkeys(case["dtype"] for case in cases))
    rows = []
    for kernel in dict.fromkeys(case["kernel"] for case in cases):
        speeds = [f"{pairs[f'{kernel} {dtype}']:.2f}" if f"{kernel} {dtype}" in pairs else "-" for dtype in dtypes]
        mine = [case for case in cases if case["kernel"] == kernel]
        most = [max(case[mode]["classes"] for case in mine) for mode in ("free", "pinned")]
        rows.append([f"`{kernel}`", *speeds, *most])
    gpu, (name, slowest) = record["environment"]["gpu"].split()[1], summary["slowest_case"]
    anew = sum(case["pinned"]["compile_ratio"] is not None for case in cases)
    head = ("pinned over free speed", *dtypes, "byte classes, free", "pinned")
    gains, worst = summary.get("layout"), summary.get("slowest_compile")
    of_pass = ""
    if gains:
        (most_name, most_gain), (_, least_gain) = gains["greatest_gain"], gains["least_gain"]
        of_pass = (
            f" The layout pass makes pinned kernels {gains['geometric_mean_of_gains']:.3f} times as fast, "
            f"{least_gain:.2f} to {most_gain:.2f} ({most_name})."
        )
    return markdown_table(head, rows) + (
        f"\n\nEach order at its own best configuration, {len(cases)} cases on an {gpu}, "
        f"Triton {record['environment']['triton']}. Geometric mean {summary['geometric_mean']:.3f}; the slowest case, "
        f"{name}, {slowest:.2f}. Compiling in the pinned order takes {summary['compile_ratio']:.2f} times as long "
        f"(geometric mean of the {anew} cases that both orders compiled anew"
        + (f"; at most {worst[1]:.2f}, {worst[0]}" if worst else "")
        + f").{of_pass}"
    )


def pinned_proof(record: Mapping[str, Any]) -> str:
    """Return a sentence on how many cases of pinned reductions are proved one class, and which are not."""
    summary, environment, cases = record["summary"], record["environment"], record["cases"]
    free = [case["free"] for case in cases if "free" in case]
    several = sum(any(one["classes"] > 1 for one in each) for each in free if not any("unread" in one for one in each))
    left = [f"`{case['name']}`" for case in cases if not case["proved"]]
    unproved = f" Not proved: {', '.join(left)}." if left else ""
    passes = " with the layout pass and without" if "layout_pass" in summary else ""
    return (
        f"Of {summary['cases']} kernels and types in {summary['configurations']} configurations, compiled{passes} for "
        f"{environment['target']}, {summary['proved']} are proved one class without a GPU; "
        f"in the free order, {several} of them are several classes.{unproved}"
    )


def unwitnessed_pairs(record: Mapping[str, Any]) -> str:
    """Return the pairs that were searched for a counterexample, by agreement of their recorded bytes."""
    rows = [
        [said, each["tried"], each["witnessed"], each["tried"] - each["witnessed"]]
        for said, each in record["by bytes"].items()
        if each["tried"]
    ]
    settings, groups = record["settings"], record["groups"]
    what = "Up to {pairs} pairs" if settings["pairs"] else "All pairs"
    chosen = "with the same recorded bytes" if settings["agreeing"] else "with the same recorded bytes first"
    note = (
        f"\n\n{what.format(**settings)} of classes in each of {groups['done']} of {groups['all']} groups of the "
        f"corpus, pairs {chosen}; {settings['seconds']:.0f} s for each pair."
        + " Executed on bit patterns, with surrogates for approximate instructions."
        * bool(settings.get("surrogates"))
    )
    head = ("recorded bytes", "pairs", "counterexample found", "none found")
    return markdown_table(head, rows) + note


def missing_fences(record: Mapping[str, Any]) -> str:
    """Return the kernels of the corpus that lack a proxy fence, by architecture and version of the compiler."""
    rows = []
    for run in record["runs"]:
        families = run["families"]
        sums = {name: sum(each[name] for each in families.values()) for name in ("kernels", "unfenced", "determined")}
        lacking = sum(each["unfenced"] > 0 for each in families.values())
        rows.append([f"{run['target']}, Triton {run['triton']}", *sums.values(), f"{lacking} of {len(families)}"])
    head = (
        *("architecture and compiler", "kernels", "lack a fence"),
        *("of these determined with `--assume proxies-together`", "families with such kernels"),
    )
    sampled = sorted({run["sample"] for run in record["runs"]})
    note = f"\n\nUp to {sampled[-1]} configurations of each family." if sampled[-1] else ""
    return markdown_table(head, rows) + note


def cross_device_replay(record: Mapping[str, Any]) -> str:
    """Return products locked on one GPU and replayed on another, or with another version of the library."""
    rows = [
        [
            f"{each['locked']['device']}, {each['locked']['library']}",
            f"{each['replayed']['device']}, {each['replayed']['library']}",
            each["summary"]["library here, other bytes"],
            each["summary"]["replayed, same bytes"],
            each["summary"]["replayed, other bytes"],
        ]
        for each in record["travels"]
    ]
    head = (
        "locked on",
        "replayed on",
        "the library there: other bytes",
        "replayed: same bytes",
        "replayed: other bytes",
    )
    return markdown_table(head, rows)


def replayed_products(record: Mapping[str, Any]) -> str:
    """Return the first replay of products on another GPU in a sentence.  Raises ValueError where bytes differed."""
    found = next(each for each in record["travels"] if each["locked"]["device"] != each["replayed"]["device"])
    counts = found["summary"]
    if counts["replayed, other bytes"]:
        raise ValueError("a replay returned other bytes: change the sentence")
    return (
        f"{counts['replayed, same bytes']:,} products were locked on an {_short_name(found['locked']['device'])} and "
        f"replayed on an {_short_name(found['replayed']['device'])}, whose own library returns other bytes for "
        f"{counts['library here, other bytes']} of them. The replay returned the locked bytes for all."
    )


def _short_name(device: str) -> str:
    return device.split()[1]


def ordered_products(record: Mapping[str, Any]) -> str:
    """Return the simulated products of the launcher of gfx942 in a sentence."""
    return (
        f"For {record['products']:,} random descriptors, its kernels were compiled and simulated on bit patterns; "
        f"{record['equal']:,} of them stored the bytes of the descriptor. They did not run on a device."
    )


def audits(record: Mapping[str, Any]) -> str:
    """Return the numbers of shapes of open-weight models whose sums drop elements, by library and GPU."""
    rows = [
        [each["library"], each["device"], *(each["summary"][name] for name in ("shapes", "split K",
         "drop values", "not as predicted"))]
        for each in record["audits"]
    ]  # fmt: skip
    head = ("library", "GPU", "shapes", "split K", "drop values", "run on ones: other than predicted")
    return markdown_table(head, rows)


def cross_architecture(record: Mapping[str, Any]) -> str:
    """Return the pairs of kernels for two architectures by verdict, and whether their bytes differ when executed."""
    rows = []
    for verdict in ("equal", "different", "unproved"):
        mine = [each for each in record["pairs"] if each["verdict"] == verdict]
        apart = sum(bool(each["different draws"] or each["counterexample"]) for each in mine)
        rows.append([verdict.capitalize(), len(mine), len(mine) - apart, apart])
    head = ("the same kernel for sm_90 and gfx942", "pairs", "same bytes on every input", "bytes differ on an input")
    return markdown_table(head, rows) + f"\n\nBoth executed on bit patterns, for {record['draws']} kinds of input."


def _carried(reading: Mapping[str, Any]) -> str:
    """Return how many kernels of a reading have the texts of another architecture, in words."""
    carried = reading.get("carried")
    return f", {carried['kernels']} as `{carried['from']}`" if carried else ""


def _unknown(reading: Mapping[str, Any]) -> str:
    """Return the Unknown kernels of a reading, and for a sample how many of all these would be."""
    found, sample = reading["modes"]["launch"], reading.get("sample")
    if sample is None:
        return f"{found['unknown']} ({100 * found['unknown'] / found['kernels']:.1f} %)"
    unknown, kernels = sample["unknown of these"], sample["kernels of these families"]
    return f"{found['unknown']} in a sample, for {unknown} of {kernels} ({100 * unknown / kernels:.1f} %)"


def siblings(record: Mapping[str, Any]) -> str:
    """Return the concrete analysis of each architecture without a GPU, against simulated bytes."""
    rows = []
    for target, each in record.items():
        found, one = each["modes"]["launch"], each["modes"].get("matrix arithmetic")
        rows.append(
            [
                f"`{target}`",
                f"{found['kernels']} of {each['families']} families{_carried(each)}",
                found["compared"],
                f"{found['classes']} / {found['byte_classes']}" if found["compared"] else "-",
                f"{found['ratio']:.2f}" if found["compared"] else "-",
                "-" if one is None else f"{one['classes']} / {one['byte_classes']} ({one['ratio']:.2f})",
                _unknown(each),
                found["nondeterministic"],
                len(found["mixed"]),
            ]
        )
    head = (
        *("architecture", "kernels read", "executed"),
        *("classes / byte classes of these", "ratio", "the same with `--assume matrix-arithmetic`"),
        *("Unknown", "nondeterministic", "classes with several byte patterns"),
    )
    return markdown_table(head, rows)


def generations(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how many kernels keep their bits from one architecture to another, a row for each pair."""
    return "\n".join(table_of("architectures", {" and ".join(each["targets"]): compiled(each) for each in records}))


def supported() -> str:
    """Return what each plugin supports for each architecture, as `bitwise plugins` shows it."""
    rows = [each.cells for each in capabilities(registry.load(PLUGINS))]
    return markdown_table(TITLES, [[f"`{name}`", *others] for name, *others in rows])


def headlines(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the main figures: verdicts, products with the bytes of a library, pinned orders."""
    published, pinned_orders, fitted, held_out, second, *sweeps = records
    total, gpu = published["total"], published["environment"]["gpu"].split()[1]
    outcomes: Counter[str] = Counter()
    for sweep in sweeps:
        for key, count in sweep["outcomes"].items():
            outcomes[key.split(": ")[1]] += count
    libraries = sorted({sweep["environment"]["library"] for sweep in sweeps})
    speeds = [each["summary"]["default"] for each in (fitted, held_out, second)]
    cost = pinned_orders["summary"]
    rows = [
        [
            "[Verdicts](docs/results/verdicts.md#the-published-configurations)",
            f"{total['done']:,} compiled configurations of {total['kernels']} kernels form {total['classes']:,} "
            f"classes, and return {total['byte classes']:,} different results on an {gpu}. "
            f"{len(total['wrong merges'])} classes have several results; "
            f"{total['unknown']} configurations are Unknown.",
        ],
        [
            "[Matrix products](docs/results/products.md)",
            f"{outcomes['equal']:,} products return the bytes of cuBLASLt {' or '.join(libraries)}, and "
            f"{outcomes['different']} return others. The speed is {speeds[0]['all']:.2f} of cuBLAS's on "
            f"{speeds[0]['problems']} products of published ranges, and {speeds[1]['all']:.2f} and "
            f"{speeds[2]['all']:.2f} on {speeds[1]['problems']} and {speeds[2]['problems']} held-out products.",
        ],
        [
            "[Pinned reductions](docs/results/reductions.md)",
            f"In a pinned order, kernels with up to {cost['most_classes']['free']} byte classes have "
            f"{cost['most_classes']['pinned']}, at {cost['geometric_mean']:.2f} of the free speed; the slowest of "
            f"{len(pinned_orders['cases'])} cases is at {cost['slowest_case'][1]:.2f}.",
        ],
    ]
    return "\n".join(["| measured | result |", "| --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)])


def adversary(record: Mapping[str, Any]) -> str:
    """Return the pairs with the verdict Equal that the adversary judged, by the source of their programs."""
    names = ("equal", "on device", "wrong", "device wrong")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name in names:
        for where, count in record[name].items():
            counts[name][where.split(", ")[2]] += count
    rows = [[source, *(f"{counts[name][source]:,}" for name in names)] for source in sorted(counts["equal"])]
    rows.append(["all", *(f"{counts[name].total():,}" for name in names)])
    return markdown_table(
        ("programs", "Equal pairs", "executed on a GPU", "other bytes, simulated", "other bytes, GPU"), rows
    )


PLUGINS = ("nvidia_earlier", "sm90", "sm100", "sm120", "gfx942")
"""The plugins of architectures that exist."""

STATED: Mapping[str, Callable[[], str]] = MappingProxyType({"plugins": supported})
"""The tables that are generated from the plugins, without a record."""

SOURCES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = MappingProxyType(
    {
        "precision": ("reading-sm90.json", precision),
        "overpartition": ("reading-sm90.json", overpartition),
        "precision-gfx942": ("reading-gfx942.json", precision),
        "overpartition-gfx942": ("reading-gfx942.json", overpartition),
        "overpartition-sm100": ("reading-sm100.json", overpartition),
        "adversary": ("adversary-sm90.json", adversary),
        "siblings": ("reading-siblings.json", siblings),
        "cross-architecture": ("cross-architecture-sm90-gfx942.json", cross_architecture),
        "seconds": ("reading-sm90.json", seconds),
        "reading-times": ("reading-times.json", reading_times),
        "published-corpus": ("published-corpus-sm90-h100.json", corpus_tables.published_corpus),
        "published-corpus-gfx942": ("published-corpus-gfx942.json", corpus_tables.published_corpus),
        "public-kernels": ("public-kernels-sm90-h100.json", corpus_tables.public_kernels),
        "public-kernels-unseen": ("public-kernels-unseen-sm90-h100.json", corpus_tables.public_kernels),
        "public-kernels-sm100": ("public-kernels-sm100-beside-h200.json.xz", corpus_tables.public_kernels_of_target),
        "public-kernels-sm103": ("public-kernels-sm103-beside-h200.json.xz", corpus_tables.public_kernels_of_target),
        "public-kernels-held-out": ("public-kernels-held-out-sm90-h200.json.xz", corpus_tables.public_kernels_by_part),
        "public-kernels-later": ("public-kernels-later-sm90-h200.json.xz", corpus_tables.public_kernels_by_part),
        "public-kernels-packages": ("public-kernels-packages-sm90-h200.json.xz", corpus_tables.public_kernels_by_part),
        "public-kernels-further": ("public-kernels-further-sm90-h200.json.xz", corpus_tables.public_kernels_by_part),
        "public-kernels-fresh": ("public-kernels-fresh-sm90-h200.json.xz", corpus_tables.public_kernels_by_part),
        "public-kernels-newest": ("public-kernels-newest-sm90-h200.json.xz", corpus_tables.public_kernels_by_part),
        "mutants": ("mutants.json", mutants),
        "corpus-descriptors": ("corpus-descriptors-sm90-h100.json", corpus_descriptors),
        "pinned": ("pinned-reductions-sm90-h100.json", pinned),
        "pinned-proof": ("pinned-reductions-proof-sm90.json", pinned_proof),
        "pinned-proof-gfx942": ("pinned-reductions-proof-gfx942.json", pinned_proof),
        "unwitnessed-pairs": ("unwitnessed-pairs-sm90.json", unwitnessed_pairs),
        "unwitnessed-pairs-sm100": ("unwitnessed-pairs-sm100.json", unwitnessed_pairs),
        "missing-fences": ("missing-fences.json", missing_fences),
        "matrix-speed": ("matrix-speed.json", matrix_speed),
        "cross-device-replay": ("cublas-travels-sm90.json", cross_device_replay),
        "replayed-products": ("cublas-travels-sm90.json", replayed_products),
        "ordered-products": ("ordered-products-gfx942.json", ordered_products),
        "ordered-products-second-seed": ("ordered-products-gfx942-seed7300000.json", ordered_products),
        "audits": ("cublas-audit-models-sm90.json", audits),
        "train-equals-serve": ("train-equals-serve-sm90-h100.json", model_tables.train_equals_serve),
        "train-equals-serve-h200": ("train-equals-serve-sm90-h200.json", model_tables.train_equals_serve),
        "train-equals-serve-more-h200": ("train-equals-serve-more-sm90-h200.json", model_tables.train_equals_serve),
        "train-equals-serve-later-h200": ("train-equals-serve-later-sm90-h200.json", model_tables.train_equals_serve),
        "train-equals-serve-drawn-h200": ("train-equals-serve-drawn-sm90-h200.json", model_tables.train_equals_serve),
        "train-equals-serve-other-draws-h200": (
            "train-equals-serve-other-draws-sm90-h200.json",
            model_tables.train_equals_serve,
        ),
        "receipts-h200": ("receipts-sm90-h200.json", model_tables.receipts),
        "own-attention-h200": ("own-attention-sm90-h200.json", model_tables.train_equals_serve),
        "mode-entries-h200": ("mode-entries-sm90-h200.json", model_tables.mode_entries),
        "mode-costs": ("mode-costs-sm90-h100.json", model_tables.mode_costs),
        "mode-costs-held-out-h200": ("mode-costs-held-out-sm90-h200.json", model_tables.mode_costs),
        "mode-costs-further-h200": ("mode-costs-further-sm90-h200.json", model_tables.mode_costs),
        "mode-costs-public-h200": ("mode-costs-public-sm90-h200.json", model_tables.mode_costs),
        "mode-costs-h200": ("mode-costs-sm90-h200.json", model_tables.pictured_mode_costs),
        "model-locks": ("model-locks-sm90-h100.json", model_tables.model_locks),
        "model-locks-h200": ("model-locks-own-sm90-h200.json", model_tables.model_locks),
        "model-locks-pinned-h200": ("model-locks-pinned-sm90-h200.json", model_tables.model_locks),
        "model-locks-held-out-h200": ("model-locks-held-out-sm90-h200.json", model_tables.model_locks),
        "lock-costs-h200": ("lock-costs-sm90-h200.json", model_tables.lock_costs),
        "replayed-locks": ("model-locks-sm90-h200.json", model_tables.replayed_locks),
        "replayed-locks-h200": ("model-locks-workspaces-sm90-h200.json", model_tables.replayed_locks),
        "replayed-locks-later-h200": ("model-locks-later-sm90-h200.json", model_tables.replayed_locks),
        "replayed-locks-library-h200": ("model-locks-library-sm90-h200.json", model_tables.replayed_locks),
    }
)
"""The record and the generator of each table."""

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "reading-times": "python -m bitwise_bench.readings.compile_times --other-sizes SEED --out RECORD",
        "mode-costs": "nox -s bench-mode",
        "mode-costs-h200": "nox -s bench-mode",
        "mode-costs-further-h200": "python -m bitwise_bench.models.mode_costs --models NAMES --out RECORD",
        "mode-costs-public-h200": "python -m bitwise_bench.models.mode_costs --models NAMES --out RECORD",
        "train-equals-serve-other-draws-h200": (
            "python -m bitwise_bench.models.train_equals_serve --seed SEED --out RECORD"
        ),
        "receipts-h200": "python -m bitwise_bench.models.receipt_commands --out RECORD",
        "train-equals-serve-h200": "nox -s gpu-train-equals-serve",
        "lock-costs-h200": "nox -s bench-locks",
        "model-locks-pinned-h200": (
            "python -m bitwise_bench.models.model_locks --attention pinned --folder FOLDER --out RECORD"
        ),
        "replayed-locks": "python -m bitwise_bench.models.model_locks --replay --folder FOLDER --out RECORD",
        "replayed-locks-h200": "python -m bitwise_bench.models.model_locks --replay --folder FOLDER --out RECORD",
    }
)
"""Tables whose record may be missing, and the command that writes it."""

_SWEEPS = (
    *(f"cublas-sweep-sm90-h100-13.1-seed{seed}.json" for seed in (4, 6, 7, 14)),
    "cublas-sweep-sm90-h200-13.1-seed5.json",
    "cublas-sweep-sm90-h200-13.1-seed1501.json",
    "cublas-sweep-sm90-h100-12.8-seed12.json",
    "cublas-sweep-sm90-h200-12.8-seed21.json",
)

COMBINED: Mapping[str, tuple[tuple[str, ...], Callable[[Sequence[Mapping[str, Any]]], str]]] = MappingProxyType(
    {
        "headlines": (
            (
                "published-corpus-sm90-h100.json",
                "pinned-reductions-sm90-h100.json",
                *(f"cublas-{name}-sm90-h100.json" for name in ("published", "held-out", "second-held-out")),
                *_SWEEPS,
            ),
            headlines,
        ),
        "library-bytes": (_SWEEPS, product_tables.library_bytes),
    }
)
"""The records and the generator of each table that needs several records."""

COLLECTED: Mapping[str, tuple[str, Callable[[Sequence[Mapping[str, Any]]], str]]] = MappingProxyType(
    {
        "product-speeds": ("cublas-*held-out-sm90-*.json", product_tables.product_speeds),
        "published-products": ("cublas-published-sm90-*.json", product_tables.published_products),
        "scaled-blocks": ("cublas-scaled-blocks-sm90-*.json", product_tables.scaled_blocks),
        "calls-by-setting": ("cublas-calls-settings-sm90-*.json", product_tables.calls_by_setting),
        "generations": ("bits-sm90-*.json", generations),
        "tuned-models": ("inductor-tuned-models-sm90-*.json", tuned_models),
        "fused-epilogues": ("cublas-epilogues-sm90-*.json", product_tables.all_fused_epilogues),
    }
)
"""The pattern of the records, and the generator, of each table that shows all records of its kind."""


def rewritten(page: str, records: Path) -> str:
    """Return the page with every table regenerated.  Raises KeyError for a table without a generator."""

    def fill(found: re.Match[str]) -> str:
        if found[1] in STATED:
            content = STATED[found[1]]()
        elif found[1] in COLLECTED:
            pattern, collect = COLLECTED[found[1]]
            content = collect([_read(each) for each in sorted(records.glob(pattern))])
        elif found[1] in COMBINED:
            files, combine = COMBINED[found[1]]
            content = combine([_read(records / file) for file in files])
        else:
            file, make = SOURCES[found[1]]
            if found[1] in COMMANDS and not (records / file).exists():
                content = f"This is not measured yet; `{COMMANDS[found[1]]}` measures it."
            else:
                content = make(_read(records / file))
        return f"<!-- table: {found[1]} -->\n{content}\n<!-- end table -->"

    return _BLOCK.sub(fill, page)


def _read(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(read_text(path))
    return found


def pages(root: Path) -> list[Path]:
    """Return README.md, SOUNDNESS.md and the pages of docs/ in the folder of the repository, also without tables."""
    return [root / "README.md", root / "SOUNDNESS.md", *sorted((root / "docs").rglob("*.md"))]


def main() -> int:
    """Rewrite the pages of the working directory."""
    for page in pages(Path()):
        text = page.read_text(encoding="utf-8")
        if (found := rewritten(text, Path("records"))) != text:
            page.write_text(found, encoding="utf-8")
    return 0
