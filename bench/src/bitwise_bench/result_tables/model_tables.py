"""Tables on whole models: bytes under the batch-invariant mode, its costs, and those of a lock, from their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitwise_bench.result_tables.markdown import markdown_table

_KINDS = {
    "prefill": "prefill", "prefill, graph": "prefill, CUDA graph", "decode": "decoding", "decode, graph": "decoding, "
    "CUDA graph", "training step": "training step", "compiled prefill": "prefill, torch.compile",
    "compiled prefill, graph": "prefill, torch.compile and CUDA graph",
    "compiled training step": "training step, torch.compile",
}  # fmt: skip
"""Kinds of work as a table names them."""


def _origin(environment: Mapping[str, Any]) -> str:
    named = (
        f"{name} {environment[name]}" for name in ("driver", "torch", "triton", "transformers") if name in environment
    )
    variables = environment.get("variables", {})
    setting = f", {', '.join(f'{name}={value}' for name, value in variables.items())}" if variables else ""
    return f"{environment['gpu']}, {', '.join(named)}{setting}"


def _and(parts: Sequence[object]) -> str:
    *first, last = map(str, parts)
    return f"{', '.join(first)} and {last}" if first else last


def train_equals_serve(record: Mapping[str, Any]) -> str:
    """Return, for each model, how many comparisons agree in the mode, and how many differ without it."""
    rows = []
    for name, found in record["models"].items():
        if "error" in found:
            rows.append([name, found["error"], "-", "-", "-"])
            continue
        checks = {what: each for what, each in found["mode"].items() if what != "greatest divergence"}
        rows.append([
            f"{name}{' (held out)' if found['held out'] else ''}{' (unfinished)' if 'unfinished' in found else ''}",
            f"{sum(checks.values())} of {len(checks)}",
            f"{found['mode']['greatest divergence']:g}" if "greatest divergence" in found["mode"] else "-",
            f"{len(found['without the mode, differing'])} of {len(checks)}",
            f"{found['without the mode, greatest divergence']:.1e}" if "unfinished" not in found else "-",
        ])  # fmt: skip
    head = ("model", "equal in the mode", "divergence", "different without it", "divergence without it")
    shape = record["shape"]
    packed = f"in packs of {_and(shape['packed'])} sequences, " if "packed" in shape else ""
    return markdown_table(head, rows) + (
        f"\n\nSequences of {shape['tokens']} tokens, in batches of {_and(shape['batches'])}, {packed}in chunks of "
        f"{_and(shape['chunks'])}, {shape['generated tokens']} generated tokens. The divergence is the "
        f"greatest Kullback-Leibler divergence between the distributions of training and of generation. "
        f"{_origin(record['environment'])}."
    )


def _pair(times: Mapping[str, float]) -> str:
    return f"{times['PyTorch']} / {times['mode']}"


def _ratios(record: Mapping[str, Any], scopes: Sequence[str]) -> str:
    """Return the geometric means over all models, and those over the held-out ones where there are some."""
    held_out = record.get("ratios of held-out models") or {}
    columns = [(record["ratios"], scope) for scope in scopes] + [(held_out, scope) for scope in scopes if held_out]
    rows = [
        [name, *(f"{found[kind][scope]:.3f}" if scope in found.get(kind, {}) else "-" for found, scope in columns)]
        for kind, name in _KINDS.items() if kind in record["ratios"]
    ]  # fmt: skip
    head = [f"{scope}, held-out models" if found is held_out else scope for found, scope in columns]
    return markdown_table(("time beside PyTorch's", *head), rows)


def pictured_mode_costs(record: Mapping[str, Any]) -> str:
    """Return `mode_costs` under their picture."""
    return f"![Times in the mode beside PyTorch's](../pictures/mode-costs.svg)\n\n{mode_costs(record)}"


def _widths(kind: str, fields: Mapping[str, Any]) -> str:
    """Return the words of a model of drawn widths."""
    window = fields.get("sliding_window")
    return (
        f"{kind.removesuffix('ForCausalLM')}, {fields['hidden_size']} x {fields['intermediate_size']}, "
        f"{fields['num_attention_heads']} heads, {fields['num_key_value_heads']} of keys"
        f"{'' if window is None else f', window of {window}'}"
    )


def receipts(record: Mapping[str, Any]) -> str:
    """Return the commands of receipts of a run with their exit statuses, and how many digests of the run agree."""
    rows = [
        [name, each["status"], "" if each["right"] else "wrong"] for name, each in sorted(record["commands"].items())
    ]  # fmt: skip
    kinds = list(record["claims"].values())
    counts = _and([f"{kinds.count(kind)} {kind}" for kind in ("proved", "measured", "assumed")])
    return markdown_table(("command", "exit status", "result"), rows) + (
        f"\n\nThe run is {record['model']}'s, with {record['products']} products; claims: {counts}. Of "
        f"{len(record['digests'])} digests of the run, {len(record['lock: other bytes'])} differ under its lock in a "
        f"library without workspaces, and {len(record['library: other bytes'])} without the lock there. "
        f"{_origin(record['environment'])}."
    )


def mode_costs(record: Mapping[str, Any]) -> str:
    """Return the times in the mode beside PyTorch's: geometric means over models and sizes, and each model's."""
    models = {name: works for name, works in record["milliseconds"].items() if name != "rows"}
    scopes = sorted({scope for works in models.values() for times in works.values() for scope in times} - {"PyTorch"})
    parts = [_ratios(record, scopes)]
    sizes = list(dict.fromkeys(what for works in models.values() for what in works))
    times = [[what, *(_pair(works[what]) if what in works else "-" for works in models.values())] for what in sizes]
    drawn = record.get("drawn", {})
    named = [
        f"{_widths(*drawn[name]) if name in drawn else name}{' (held out)' if name in record['held out'] else ''}"
        for name in models
    ]  # fmt: skip
    parts.append(markdown_table(("milliseconds, PyTorch / mode", *named), times))
    if "rows" in record["ratios"]:
        own = [[what, *(f"{each[scope]:.3f}" for scope in scopes)] for what, each in record["ratios"]["rows"].items()]
        parts.append(markdown_table(("operators of rows, time beside PyTorch's", *scopes), own))
    alternative = record["batch_invariant_ops"]
    others = {"measured": "", "not installed": "; batch_invariant_ops was not installed"}.get(
        alternative, f"; batch_invariant_ops: {alternative[:1].lower()}{alternative[1:]}"
    )
    shape = record["shape"]
    parts.append(
        f"{shape['layers']} layers of each model's widths, a context of {shape['context of decoding']} tokens for each "
        f"sequence that decodes; geometric means over models and sizes{others}. {_origin(record['environment'])}."
    )
    return "\n\n".join(parts)


def replayed_locks(record: Mapping[str, Any]) -> str:
    """Return what a replay on another GPU than the one that recorded the locks has returned."""
    rows = []
    for name, found in record["models"].items():
        if "error" in found:
            rows.append([name, found["error"], "-", "-", "-"])
            continue
        samples = found["samples"]
        others = {verdict: each for verdict, each in samples.items() if verdict != "agrees"}
        rows.append([
            name,
            found["replayed"],
            f"{samples.get('agrees', 0)}{''.join(f', {verdict}: {_and(each)}' for verdict, each in others.items())}",
            len(found["lock: other bytes"]),
            len(found["library: other bytes"]),
        ])  # fmt: skip
    head = ("model", "products from the lock", "samples that agree", "digests that differ", "without the lock")
    origin = record.get("recorded by")
    recorded = f" Recorded on: {_origin(origin)}." if origin else ""
    return markdown_table(head, rows) + f"\n\nReplayed on: {_origin(record['environment'])}.{recorded}"


def lock_costs(record: Mapping[str, Any]) -> str:
    """Return the times under a lock beside the library's: geometric means, and each model's with its quartiles."""
    rows = []
    for name, measured in record["milliseconds"].items():
        for what, times in measured.items():
            spread = record["quartiles"][name][what]
            low, middle, high = record["ratios of turns"][name][what]["lock"]
            rows.append([
                f"{name}{' (held out)' if name in record['held out'] else ''}", what,
                *(f"{times[scope]:.3f} ({spread[scope][0]:.3f} to {spread[scope][1]:.3f})" for scope in times),
                f"{middle:.3f} ({low:.3f} to {high:.3f})",
            ])  # fmt: skip
    others = "".join(f", of {name} {count}" for name, count in record.get("turns of others", {}).items())
    return "\n\n".join([
        _ratios(record, ("lock",)),
        markdown_table(("model", "work", "library", "lock", "lock beside library"), rows),
        f"Milliseconds, and ratios of the times of one turn: the median of {record['turns']} turns{others}, and the "
        f"first and the third quartile; geometric means over models. {_origin(record['environment'])}.",
    ])  # fmt: skip


def model_locks(record: Mapping[str, Any]) -> str:
    """Return how many products ran from a lock on the GPU that recorded it, and how many digests differ."""
    rows = [
        [name, found["replayed"], len(found["lock: other bytes"]), len(found["library: other bytes"])]
        for name, found in record["models"].items()
    ]  # fmt: skip
    head = ("model", "products from the lock", "digests that differ", "without the lock")
    return f"{markdown_table(head, rows)}\n\n{_origin(record['environment'])}."


def mode_entries(record: Mapping[str, Any]) -> str:
    """Return the times of entries of the mode, and those of calls outside of it while kernels stay replaced."""
    before, during, after = (
        record[f"microseconds {when}"] for when in ("of PyTorch", "with replaced kernels", "after restore_kernels")
    )
    rows = [[name, f"{before[name]:.1f}", f"{during[name]:.1f}", f"{after[name]:.1f}"] for name in before]
    entries = [f"{each['enter']:.2f}" for each in record["milliseconds of entries"]]
    head = ("microseconds of the host", "PyTorch", "outside of the mode, kernels replaced", "after `restore_kernels`")
    return markdown_table(head, rows) + (
        f"\n\nThe entries took {_and(entries)} ms, the first with the compilation of a module in C. "
        f"{_origin(record['environment'])}."
    )
