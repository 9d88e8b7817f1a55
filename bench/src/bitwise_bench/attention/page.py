"""The page of a record of attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean
from typing import Any

from bitwise_bench.attention.errors import paired

_BACKENDS = ("cudnn", "flash")
"""The backends that ratios and the errors beside ours are of."""
_SAME_KEYS = {
    "flex": "FlexAttention from pages", "varlen": "`varlen_attn`", "gathered, cudnn": "cuDNN after a gather",
    "gathered, flash": "flash after a gather",
}  # fmt: skip
"""What PyTorch has for keys in pages and for lengths that differ."""
_NAMES = ("bitwise", *_BACKENDS, *_SAME_KEYS)


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of the records of several GPUs as Markdown, in their order; steps may be missing.

    A step with other kernels than those of its record's environment names them.
    """
    parts = [
        "# Attention on sm_90\n",
        "Measured against PyTorch's backends of scaled_dot_product_attention, and in some cases against its "
        "FlexAttention (`flex`, compiled). FlashAttention-2 and 3 were not installed. "
        "`python -m bitwise_bench.attention` records and prints this page.\n",
        "## Bytes\n",
        *(_bytes(each, records[0]["environment"]) for each in records if "correctness" in each),
        _comparison(records),
        *(_seeds(each) for each in records if "errors" in each),
        "## Speed\n",
        "Ratios are the time of the faster of cuDNN and flash divided by ours: above 1, ours is faster. Shapes in "
        "italics were not used while the kernels were tuned. Errors are root mean squares of the differences of one "
        "head from double precision; those of gradients are of the query, the key and the value.\n",
        "![The ratios of all cases of the tables](../pictures/attention.svg)\n",
    ]
    for each in records:
        parts += _speed(each, records[0]["environment"])
    return "\n".join(each for each in parts if each)


def _bytes(record: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Return what was compared with evaluation on a GPU; `first` is the environment of the first record of the page."""
    correctness = record["correctness"]
    different = sum(len(each["problems"]) for each in correctness["different"])
    patterns = correctness["invariance"]
    kernels = record["environment"].get("kernels")
    earlier = " with earlier kernels" if correctness.get("kernels", kernels) != kernels else ""
    same = record["environment"].get("descriptors") == first.get("descriptors")
    return (
        f"On an {record['environment']['gpu']}, {correctness['problems']} random problems of "
        f"{correctness['configurations']} configurations were computed{earlier}, and evaluated on a CPU: outputs, "
        "logarithms and gradients of dense sequences, variable lengths, pages, masks, windows, soft caps and sinks. "
        f"{correctness.get('numbers', '')}{different or 'None'} had other bytes."
        + (
            f" Nor had any of {correctness['before']} problems with earlier kernels of the same descriptors."
            if "before" in correctness else ""
        )
        + (f" {correctness['mended']}" if "mended" in correctness else "")
        + (f" They do not include {correctness['not covered']}." if "not covered" in correctness else "")
        + ("" if same else " Their descriptors are earlier ones than those of the first GPU of this page.")
        + (" With earlier kernels, the" if "kernels of invariance" in correctness else " The")
        + f" last 40 rows of a sequence were computed in {len(patterns)} cases as a prefill, in parts, in batches "
        "of 1 to 64 with other neighbours, from pages of 16 to 256 keys, one at a time, and with every schedule. The "
        f"number of byte patterns of each case: {', '.join(str(each['patterns']['all']) for each in patterns)}."
        + "".join(
            f" Not computed with heads of {each['case']['depth']}: {', '.join(each['missing'])}."
            for each in patterns if each.get("missing")
        )
        + _repeated(record.get("races", {}))
        + "\n"
    )  # fmt: skip


def _repeated(races: Mapping[str, Any]) -> str:
    """Return what calls that were repeated under load left, if there were any."""
    if not races:
        return ""
    other = len(races["different"])
    earlier = " of earlier kernels" if "kernels" in races else ""
    return (
        f" Calls of few rows with {races['divisions']} divisions{earlier} among programs were repeated {races['runs']} "
        f"times while other streams copied and multiplied: {other or 'none'} had other bytes in a run."
    )


def _seeds(record: Mapping[str, Any]) -> str:
    """Return the errors of several seeds of each case, beside those of flash."""
    results = record["errors"]["results"]
    lines = [
        ["batch x queries x keys", "width", "mask", "mean of values", "error", "over that of flash", "seeds above 1"],
        ["---", *["---:"] * 6],
    ]
    ratios_of_seeds: list[float] = []
    for each in results:
        case, ours, theirs = each["case"], each["errors"]["bitwise"], each["errors"]["flash"]
        ratio, deviation, higher = paired(ours, theirs)
        ratios_of_seeds += [one / other for one, other in zip(ours, theirs, strict=True)]
        shape = f"{case['batch']} x {case['queries']} x {case['keys']}"
        mask = "causal" if case["queries"] > 1 and case.get("causal", True) else "none"
        mean = f"{case.get('mean', 0.0):g}"
        found = f"{ratio:.4f} ± {deviation:.4f}", f"{higher} of {len(ours)}"
        lines.append([shape, str(case["depth"]), mask, mean, f"{fmean(ours):.2e}", *found])
    above = sum(each > 1 for each in ratios_of_seeds)
    return (
        f"## Errors\n\nOn an {record['environment']['gpu']}, the root mean square of the differences of all outputs "
        "from double precision, over several seeds of each case, bf16: its mean, and its ratio to that of PyTorch's "
        "flash backend on the same numbers, as the geometric mean over the seeds and its standard error. Of all seeds "
        f"of all cases {above} of {len(ratios_of_seeds)} have a ratio above 1.\n\n"
        + "\n".join("| " + " | ".join(line) + " |" for line in lines)
        + "\n"
    )


def _speed(record: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Return the tables of one GPU; `first` is the environment of the first record of the page."""
    environment = record["environment"]
    earlier = [name for name in ("kernels", "descriptors") if environment.get(name) != first.get(name)]
    parts = [
        f"### {environment['gpu']}\n",
        f"One GPU with driver {environment['driver']}, CUDA {environment['cuda']}, torch {environment['torch']}, "
        f"Triton {environment['triton']} and cuDNN {environment['cudnn']}."
        + (f" Recorded with earlier {' and '.join(earlier)} than the first GPU of this page." if earlier else "")
        + "\n",
    ]
    teraflops, gigabytes = ("TFLOP/s", "operations", 1e12), ("GB/s", "bytes", 1e9)
    columns_of_prefill = "batch x queries", "heads / groups", "width", "mask"
    for step, title, unit, columns in (
        ("prefill", "Prefill, bf16", teraflops, columns_of_prefill),
        ("drawn prefill", "Prefill of drawn shapes, bf16", teraflops, columns_of_prefill),
        (
            "decode", "Decoding: one query for each sequence, bf16", gigabytes,
            ("batch x keys", "heads / groups", "width"),
        ),
        (
            "pages", "Decoding from pages, bf16; backends have contiguous keys", gigabytes,
            ("batch x keys", "heads / groups", "width", "page"),
        ),
        (
            "drawn decode", "Decoding of drawn shapes, bf16", gigabytes,
            ("batch x keys", "heads / groups", "width"),
        ),
        (
            "drawn pages", "Decoding of drawn shapes from pages, bf16; backends have contiguous keys", gigabytes,
            ("batch x keys", "heads / groups", "width", "page"),
        ),
        (
            "uneven", "Decoding of drawn lengths that differ, bf16; backends have sequences of their mean length",
            gigabytes, ("batch x longest", "heads / groups", "width", "page"),
        ),
        (
            "lengths", "Causal prefill of variable lengths, bf16; flash is PyTorch's `varlen_attn`", teraflops,
            ("lengths", "heads / groups", "width"),
        ),
        ("gradients", "Gradients of a prefill, bf16, without the forward pass", teraflops, columns_of_prefill),
        (
            "drawn gradients", "Gradients of drawn prefills, bf16, without the forward pass", teraflops,
            columns_of_prefill,
        ),
    ):  # fmt: skip
        if step in record:
            earlier = record[step].get("kernels", environment.get("kernels")) != environment.get("kernels")
            parts += [
                f"#### {title}\n",
                *(["Recorded with earlier kernels.\n"] if earlier else []),
                *([_reached(record[step]["results"], _DRAWN[step])] if step in _DRAWN else []),
                *(_of_such_keys(record[step]["results"]) if step in _RAGGED else []),
                _table(record[step]["results"], columns, unit, step in _RAGGED),
                *_missing(record[step].get("missing", ())),
            ]
        if step == "lengths" in record:
            results = [
                {**each, "seconds": each["gradient seconds"], "operations": 2.5 * each["operations"]}
                for each in record[step]["results"]
            ]
            parts += [
                "#### Gradients of variable lengths, bf16, without the forward pass\n",
                _table(results, columns, unit),
            ]
    if "gradients" in record and not record["gradients"]["results"][0].get("graphs"):
        parts.append(
            "Gradients are timed between two events, with the time of the host until the first kernel starts.\n"
        )
    if "host" in record:
        parts += ["#### Host time\n", _host(record["host"]["results"])]
    return parts


_DECODING: Mapping[int | None, float] = {None: 0.95}
_DRAWN: Mapping[str, Mapping[int | None, float]] = {
    "drawn decode": _DECODING, "drawn pages": _DECODING, "uneven": _DECODING, "drawn prefill": {128: 0.9, 64: 0.85},
    "drawn gradients": {None: 0.8},
}  # fmt: skip
"""The steps of shapes that a generator draws, and the ratio that they should reach by the width of a head, or all."""
_RAGGED = ("pages", "drawn pages", "uneven")
"""The steps whose keys the backends of ratios do not take."""
STEPS: Mapping[str, str] = {
    "prefill": "prefill", "decode": "decoding", "pages": "decoding from pages", "drawn decode": "drawn decoding",
    "drawn pages": "drawn decoding from pages", "uneven": "drawn uneven lengths", "lengths": "variable lengths",
    "gradients": "gradients", "drawn prefill": "drawn prefill", "drawn gradients": "drawn gradients",
}  # fmt: skip
"""The steps of a record whose results have a ratio, and what they are called."""


def ratios(record: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the ratios of the cases of each step of a record, rounded to two digits."""
    found = {
        name: [round(each, 2) for each in map(_ratio, record[step]["results"]) if each is not None]
        for step, name in STEPS.items()
        if step in record
    }
    return {name: each for name, each in found.items() if each}


def _ratio(result: Mapping[str, Any], backends: Iterable[str] = _BACKENDS) -> float | None:
    """Return the time of the fastest of some backends divided by ours, None where one of both is missing."""
    seconds = result["seconds"]
    best = min((seconds[name] for name in backends if seconds.get(name)), default=None)
    return best / seconds["bitwise"] if best and seconds.get("bitwise") else None


def _reached(results: Sequence[Mapping[str, Any]], least: Mapping[int | None, float]) -> str:
    """Return how many of the drawn cases reach a ratio, for each width of a head that has one of its own."""
    sentences = []
    for width, ratio in least.items():
        found = sorted(
            each for each in (_ratio(one) for one in results if width in (None, one["case"]["depth"]))
            if each is not None
        )  # fmt: skip
        if found:
            sentences.append(
                f"{sum(each >= ratio for each in found)} of {len(found)}"
                + (f" of width {width}" if width else "")
                + f" have a ratio of {ratio} or more; the least is {found[0]:.2f}, the geometric mean "
                f"{geometric_mean(found):.2f}."
            )
    return " ".join(["Nothing was tuned on these shapes.", *sentences]) + "\n"


def _of_such_keys(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how we compare with what PyTorch has for keys in pages and for lengths that differ, if it was timed."""
    found = [(each, ratio) for each in results if (ratio := _ratio(each, _SAME_KEYS)) is not None]
    if not found:
        return []
    fastest = Counter(
        min((name for name in _SAME_KEYS if each["seconds"].get(name)), key=lambda name: each["seconds"][name])
        for each, _ in found
    )
    ratios = [ratio for _, ratio in found]
    return [
        f"With the same keys, the fastest of PyTorch takes {min(ratios):.2f} to {max(ratios):.2f} times as long as "
        f"ours in {len(found)} cases, {geometric_mean(ratios):.2f} in the geometric mean: "
        + ", ".join(f"{_SAME_KEYS[name]} in {count}" for name, count in fastest.most_common())
        + ".\n"
    ]


def _missing(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on the cases that were not reached, if there are any."""
    if not cases:
        return []
    names = (
        ", ".join(f"{each} {case[each]}" for each in case if each not in ("held_out", "flexible")) for case in cases
    )
    return [f"Not measured in the time of the step: {'; '.join(names)}.\n"]


_CELLS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "batch x queries": lambda case: f"{case['batch']} x {case['queries']}",
    "batch x keys": lambda case: f"{case['batch']} x {case['keys']}",
    "batch x longest": lambda case: f"{case['batch']} x {case['keys']}",
    "lengths": lambda case: ", ".join(map(str, case["lengths"])),
    "heads / groups": lambda case: f"{case['heads']} / {case['groups']}",
    "width": lambda case: f"{case['depth']} / {case['width']}" if "width" in case else case["depth"],
    "mask": lambda case: "causal" if case.get("causal", True) else "none",
    "page": lambda case: case["page"] or "-",
}
"""The cell of a case in each column."""


def _comparison(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how the digests of GPUs compare, which are of the same calls, and the errors of their common cases."""
    return _comparison_of_digests([each for each in records if "digests" in each]) + _comparison_of_errors(records)


def _comparison_of_digests(records: Sequence[Mapping[str, Any]]) -> str:
    if len(records) < 2:
        return ""
    digests = [each["digests"] for each in records]
    different = [name for name in digests[0] if len({each[name] for each in digests}) > 1]
    gpus = ", ".join(each["environment"]["gpu"] for each in records)
    found = f"{len(different)} have other bytes: {', '.join(different)}" if different else "None has other bytes"
    return (
        f"{len(digests[0])} calls were computed on each of {gpus}: prefill, decoding, pages, variable "
        f"lengths and gradients of heads of five widths. {found}.\n"
    )


def _comparison_of_errors(records: Sequence[Mapping[str, Any]]) -> str:
    """Return whether our errors agree in the cases of the tables that all records have."""
    trees = {each["environment"].get("descriptors") for each in records}
    if len(records) < 2 or len(trees) > 1:
        return ""
    found = [_errors(each) for each in records]
    common = set(found[0]).intersection(*found[1:])
    if not common:
        return ""
    other = sum(len({repr(each[case]) for each in found}) > 1 for case in common)
    gpus = ", ".join(each["environment"]["gpu"] for each in records)
    return (
        f"{len(common)} cases of the tables below have errors of our outputs or gradients on each of {gpus}, with "
        f"numbers of the same seeds. {other or 'None'} differ{'s' if other < 2 else ''} in any of 17 digits.\n"
    )


def _errors(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return our errors by case."""
    return {
        f"{step} {sorted((name, each) for name, each in result['case'].items() if name != 'flexible')}": result[
            "errors"
        ]["bitwise"]
        for step in STEPS
        for result in record.get(step, {"results": ()})["results"]
        if "bitwise" in result["errors"]
    }


def _table(
    results: Sequence[Mapping[str, Any]], head: Sequence[str], unit: tuple[str, str, float], ragged: bool = False
) -> str:  # fmt: skip
    """Return a table of cases; the unit has a name, the amount of a result, and what one of it is.

    With `ragged` there is a second ratio, to what takes the same keys.
    """
    called, amount, size = unit
    names = [name for name in _NAMES if any(each["seconds"].get(name) for each in results)]
    with_errors = any(each["errors"] for each in results)
    lines = [[*head, *(f"{name}, {called}" for name in names), "ratio", *(["ratio, same keys"] if ragged else [])]]
    lines[0] += ["error", "error of flash"] if with_errors else []
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for each in results:
        seconds = each["seconds"]
        speeds = [f"{each[amount] / size / seconds[name]:.0f}" if seconds.get(name) else "-" for name in names]
        found = [str(_CELLS[column](each["case"])) for column in head]
        if each["case"].get("held_out"):
            found[0] = f"*{found[0]}*"
        found_ratios = [_ratio(each), *([_ratio(each, _SAME_KEYS)] if ragged else [])]
        ratios = ["-" if one is None else f"{one:.2f}" for one in found_ratios]
        errors = [_error(each["errors"].get(name)) for name in ("bitwise", "flash")] if with_errors else []
        lines.append([*found, *speeds, *ratios, *errors])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _error(found: float | Sequence[float] | None) -> str:
    if found is None:
        return "-"
    return f"{found:.2e}" if isinstance(found, float) else ", ".join(f"{each:.2e}" for each in found)


def _host(results: Sequence[Mapping[str, Any]]) -> str:
    seconds = results[0]["seconds"]
    others = [
        f"{name} {1e6 * seconds[name]:.0f}" for name in ("cudnn", "flash", "default") if seconds.get(name) is not None
    ]
    return (
        f"A call takes {1e6 * seconds['bitwise']:.0f} microseconds of the host. With PyTorch's function it takes: "
        f"{', '.join(others)} microseconds; a backend that is asked for by name includes its context manager.\n"
    )
