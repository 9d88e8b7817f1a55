"""The page of a record of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_NAMES = ("bitwise", "cudnn", "flash")


def page(record: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> str:
    """Return the page as Markdown; `other` has the digests of another GPU."""
    environment = record["environment"]
    correctness = record["correctness"]
    different = sum(len(each["problems"]) for each in correctness["different"])
    patterns = correctness["invariance"]
    parts = [
        "# Attention on sm_90\n",
        f"Measured on one {environment['gpu']} with driver {environment['driver']}, CUDA {environment['cuda']}, torch "
        f"{environment['torch']}, Triton {environment['triton']} and cuDNN {environment['cudnn']}, against PyTorch's "
        "backends of scaled_dot_product_attention. `python -m bitwise_bench.attention` records and prints this page.\n",
        "## Bytes\n",
        f"{correctness['problems']} random problems of {correctness['configurations']} configurations were computed on "
        f"the GPU and evaluated on a CPU: outputs, logarithms and gradients of dense sequences, variable lengths, "
        f"pages, masks, windows, soft caps and sinks. {different or 'None'} had other bytes."
        + (f" Not among them: {correctness['not covered']}.\n" if "not covered" in correctness else "\n"),
        f"The last 40 rows of a sequence were computed in {len(patterns)} cases as a prefill, in parts, in batches of "
        "1 to 64 with other neighbours, from pages of 16 to 256 keys, one at a time, and with every schedule. The "
        f"number of byte patterns of each case: {', '.join(str(each['patterns']['all']) for each in patterns)}.\n",
        *([] if other is None else [_comparison(record["digests"], other)]),
        "## Speed\n",
        f"Forward passes are timed in CUDA graphs, gradients {_clock(record)}. Ratios are the time of the faster "
        "backend divided by ours: above 1, ours is faster. Shapes in italics were not used while the kernels were "
        "tuned. Errors are root mean squares of the differences of one head from double precision; those of gradients "
        "are of the query, the key and the value.\n",
        "### Prefill, bf16\n",
        _table(
            record["prefill"]["results"],
            ("batch x queries", "heads / groups", "width", "mask"),
            lambda case: (
                f"{case['batch']} x {case['queries']}",
                f"{case['heads']} / {case['groups']}",
                f"{case['depth']} / {case['width']}" if "width" in case else case["depth"],
                "causal" if case.get("causal", True) else "none",
            ),
            "TFLOP/s",
            lambda each: each["operations"] / 1e12,
        ),
        "### Decoding: one query for each sequence, bf16\n",
        _table(
            record["decode"]["results"],
            ("batch x keys", "heads / groups", "width"),
            lambda case: (f"{case['batch']} x {case['keys']}", f"{case['heads']} / {case['groups']}", case["depth"]),
            "GB/s",
            lambda each: each["bytes"] / 1e9,
        ),
        "### Gradients of a causal prefill, bf16, without the forward pass\n",
        _table(
            record["gradients"]["results"],
            ("batch x queries", "heads / groups", "width"),
            lambda case: (f"{case['batch']} x {case['queries']}", f"{case['heads']} / {case['groups']}", case["depth"]),
            "TFLOP/s",
            lambda each: each["operations"] / 1e12,
        ),
        "### Host time\n",
        _host(record["host"]["results"]),
    ]
    return "\n".join(parts)


def _clock(record: Mapping[str, Any]) -> str:
    """Return how the gradients of a record were timed."""
    if record["gradients"]["results"][0].get("graphs"):
        return "too"
    return "between two events, which include the time of the host until the first kernel starts"


def _comparison(digests: Mapping[str, str], other: Mapping[str, Any]) -> str:
    """Return how the digests of two GPUs compare.  They are of the same calls."""
    gpu = other["environment"]["gpu"]
    different = [name for name, digest in digests.items() if other["digests"][name] != digest]
    found = f"{len(different)} have other bytes: {', '.join(different)}" if different else "None has other bytes"
    return (
        f"{len(digests)} calls were computed on an {gpu} as well: prefill, decoding, pages, variable lengths and "
        f"gradients of heads of five widths. {found}.\n"
    )


def _table(
    results: Iterable[Mapping[str, Any]], head: Sequence[str], cells: Callable[[Mapping[str, Any]], Sequence[object]],
    unit: str, amount: Callable[[Mapping[str, Any]], float],
) -> str:  # fmt: skip
    names = [f"{name}, {unit}" for name in _NAMES]
    lines = [[*head, *names, "ratio", "error", "error of flash"]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for each in results:
        seconds = each["seconds"]
        best = min((seconds[name] for name in _NAMES[1:] if seconds.get(name)), default=None)
        speeds = [f"{amount(each) / seconds[name]:.0f}" if seconds.get(name) else "-" for name in _NAMES]
        errors = [_error(each["errors"].get(name)) for name in ("bitwise", "flash")]
        found = [str(one) for one in cells(each["case"])]
        if each["case"].get("held_out"):
            found[0] = f"*{found[0]}*"
        ratio = f"{best / seconds['bitwise']:.2f}" if best and seconds["bitwise"] else "-"
        lines.append([*found, *speeds, ratio, *errors])
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
