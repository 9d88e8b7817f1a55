"""Random problems of attention, on a GPU and evaluated on a CPU through the same functions."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_core.output_files import write_text

FORMS: tuple[dict[str, Any], ...] = (
    *(
        {"widths": widths, "dtype": dtype}
        for widths in ((128, 128), (64, 64), (96, 96), (192, 128), (192, 192), (256, 256))
        for dtype in ("bfloat16", "float16")
    ),
    {"widths": (128, 128), "dtype": "bfloat16", "window": (1, 30, 200)},
    {"widths": (64, 64), "dtype": "float16", "window": (1, 64, 300)},
    {"widths": (96, 96), "dtype": "bfloat16", "window": (2, 100, 550)},
    {"widths": (192, 128), "dtype": "float16", "window": (5, 65, 128)},
    {"widths": (256, 256), "dtype": "bfloat16", "window": (1, 130, 500)},
    {"widths": (128, 128), "dtype": "bfloat16", "soft_cap": 30.0},
    {"widths": (64, 64), "dtype": "float16", "soft_cap": 50.0},
    {"widths": (192, 128), "dtype": "bfloat16", "soft_cap": 5.0},
    {"widths": (256, 256), "dtype": "float16", "soft_cap": 20.0},
    {"widths": (64, 64), "dtype": "bfloat16", "sinks": True},
    {"widths": (128, 128), "dtype": "float16", "sinks": True},
    {"widths": (192, 192), "dtype": "bfloat16", "sinks": True},
    {"widths": (64, 64), "dtype": "bfloat16", "sinks": True, "window": (16, 128)},
    {"widths": (128, 128), "dtype": "float16", "sinks": True, "window": (100, 513), "soft_cap": 10.0},
    {"widths": (128, 128), "dtype": "bfloat16", "stored": "float8_e4m3fn"},
    {"widths": (64, 64), "dtype": "float16", "stored": "float8_e5m2"},
    {"widths": (96, 96), "dtype": "bfloat16", "stored": "float8_e4m3fn", "sinks": True},
)  # fmt: skip
"""Forms of attention: the widths of a head, the type, and options."""

IN_TURN = {"chunks in turn": "dense", "lengths in turn": "varlen", "pages in turn": "paged"}
"""Layouts of programs that take chunks in turn, by the layout of their tensors."""
LAYOUTS = "dense", "gradients", "varlen", "paged", "mask", "gradients of lengths", *IN_TURN
NUMBERS = (
    "One in five problems without gradients has numbers of many magnitudes, and some of these have infinities and "
    "NaNs, but not as values of hidden keys. "
)
"""What the problems have beside normal numbers."""
PROBLEMS = 16
"""The problems of a configuration, for which kernels are compiled once."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The problems of one configuration that were compared, and those whose bytes differ, with the results."""

    configuration: str
    problems: int
    different: tuple[str, ...]


def compare_configuration(number: int, folder: Path | None = None, problems: int = PROBLEMS) -> Compared:
    """Compare the problems of one configuration, which a number determines.

    The digests of their evaluation are read from the `folder` of `evaluate_configuration` where they have been kept.
    """
    form, layout, fixed = configuration_of(number)
    file = None if folder is None else _file(folder, number)
    kept = file is not None and file.exists()
    expected = json.loads(file.read_text()) if file is not None and kept else _digests_of(number, "cpu", problems)
    different, compared = [], 0
    for place, (found, known) in enumerate(zip(_digests_of(number, "cuda", problems), expected, strict=False)):
        compared += 1
        unequal = [str(one) for one, (left, right) in enumerate(zip(found, known, strict=True)) if left != right]
        if unequal:
            different.append(f"problem {place}: results {', '.join(unequal)}")
    return Compared(f"{number}: {form} {layout} {fixed}", compared, tuple(different))


def evaluate_configuration(number: int, folder: Path, problems: int = PROBLEMS) -> int:
    """Evaluate the problems of one configuration on the CPU, keep digests in a folder, and return the number."""
    write_text(_file(folder, number), json.dumps(list(_digests_of(number, "cpu", problems))))
    return number


def _digests_of(number: int, device: str, problems: int) -> Iterator[list[str]]:
    """Yield the digests of the bytes of the results of each problem of a configuration."""
    import torch

    kinds = {2: torch.int16, 4: torch.int32}
    for results in results_of(number, device, problems):
        patterns = (each.contiguous().view(kinds[each.element_size()]).numpy().tobytes() for each in results)
        yield [hashlib.sha256(each).hexdigest()[:32] for each in patterns]


def _file(folder: Path, number: int) -> Path:
    return folder / f"configuration-{number}.json"


def configuration_of(number: int) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return the form of a configuration, its layout, and what its problems share."""
    form = FORMS[number % len(FORMS)]
    layout = LAYOUTS[(number + number // len(FORMS)) % len(LAYOUTS)]
    if layout.startswith("gradients") and "soft_cap" in form:
        layout = "dense"
    if "stored" in form:
        layout = "paged"
    if layout in IN_TURN and form["widths"] == (192, 192):
        form = {**form, "widths": (64, 64) if number % 2 else (128, 128)}
    draw = random.Random(number)
    groups = draw.choice((1, 2))
    fixed: dict[str, Any] = {
        "groups": groups,
        "heads": draw.choice((groups, 2 * groups, 4, 6, 8)),
        "causal": "window" in form or draw.random() < 0.6,
        "scale": draw.choice((None, 0.3)),
        "page": draw.choice((16, 32, 64, 128, 256)),
        "logarithms": layout.startswith("gradients") or draw.random() < 0.5,
    }
    return form, layout, fixed


def results_of(number: int, device: str, problems: int = PROBLEMS) -> Iterator[list[Any]]:
    """Yield the results of each problem of a configuration on a device: tensors of the CPU."""
    form, layout, fixed = configuration_of(number)
    for place in range(problems):
        yield _results(form, layout, fixed, random.Random(number * 1000 + place), device)


def _results(
    form: dict[str, Any], layout: str, fixed: dict[str, Any], draw: random.Random, device: str
) -> list[Any]:  # fmt: skip
    """Return the results of a problem."""
    import torch

    from bitwise_torch import attention, attention_paged, attention_varlen

    depth, width = form["widths"]
    heads, groups = fixed["heads"], fixed["groups"]
    count = draw.choice((1, 1, 3))
    lengths = [
        (draw.choice((1, 1, 3, 17, 70, 150)), draw.choice((1, 5, 64, 150, 300, 600, 1100))) for _ in range(count)
    ]
    in_turn = layout in IN_TURN
    if in_turn:
        lengths = [(draw.choice((1, 2, 17)), draw.choice((5, 150, 512, 600, 1300))) for _ in range(count)]
    turns = {"stages": draw.choice((3, 4)), "programs": draw.choice((1, 2, 5, 1000)), "split": draw.random() < 0.6}
    turns["rows"] = draw.choice((16, 64)) if depth in (64, 128) else 16
    few = turns["rows"] == 16
    turns["blocks"] = draw.choice((1, 4)) if few and depth <= 128 else 1
    turns["ordered"] = draw.choice((False, True, True)) if few else False
    if few:
        _others_in_turn(turns, depth, width)
    layout = IN_TURN.get(layout, layout)
    if layout in ("dense", "mask", "gradients"):
        lengths = lengths[:1] * count

    def chosen(function: Any) -> Any:
        return partial(_in_turn, function, turns) if in_turn else function

    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    special = draw.random() < 0.2 and not layout.startswith("gradients")
    rare = draw.choice((0.0, 1e-5, 1e-4))  # a result of many infinities and NaNs says little
    hidden = fixed["causal"] or layout == "mask"  # the values of hidden keys must be finite

    def tensor(*shape: int, finite: bool = False) -> Any:
        values = torch.randn(shape, generator=generator)
        if special:
            values = torch.where(torch.rand(shape, generator=generator) < 1e-3, -0.0, values)
            values *= 2.0 ** torch.randint(-12, 6, shape, generator=generator)
            for number in (1e-40,) if finite else (1e-40, float("inf"), float("-inf"), float("nan")):
                values = torch.where(torch.rand(shape, generator=generator) < rare, number, values)
        return values.to(getattr(torch, form["dtype"]))

    options: dict[str, Any] = {"scale": fixed["scale"], "is_causal": fixed["causal"], "logarithms": fixed["logarithms"]}
    if "window" in form:
        options["window"] = draw.choice(form["window"])
    if "soft_cap" in form:
        options["soft_cap"] = form["soft_cap"]
    if "sinks" in form:
        options["sinks"] = torch.randn(heads, generator=generator)
    queries, keys = lengths[0]
    if layout in ("varlen", "gradients of lengths"):
        rows, places = (sum(one[part] for one in lengths) for part in (0, 1))
        tensors = (
            tensor(rows, heads, depth), tensor(places, groups, depth), tensor(places, groups, width, finite=hidden)
        )  # fmt: skip
        starts = [_starts([one[part] for one in lengths]) for part in (0, 1)]
        longest = [max(one[part] for one in lengths) for part in (0, 1)]
        arguments = (*tensors, *starts, *longest)
        if layout == "varlen":
            return _outputs(chosen(attention_varlen), arguments, options, device)
        return _gradients(attention_varlen, arguments, tensor(rows, heads, width), options, device)
    if layout == "paged":
        size = fixed["page"]
        pages = max(-(-one[1] // size) for one in lengths)
        pool = pages * count + 2
        stored = getattr(torch, form.get("stored", form["dtype"]))
        pools = [
            tensor(pool, size, groups, depth).to(stored), tensor(pool, size, groups, width, finite=hidden).to(stored)
        ]  # fmt: skip
        if "stored" in form:
            options |= {"key_scale": draw.choice((1.0, 0.37)), "value_scale": draw.choice((1.0, 1.7))}
        table = torch.randperm(pool, generator=generator)[: pages * count].view(count, pages).int()
        counts = torch.tensor([one[1] for one in lengths]).int()
        arguments = tensor(count, queries, heads, depth), *pools, table, counts
        return _outputs(chosen(attention_paged), arguments, options, device)
    operands = [
        tensor(count, heads, queries, depth), tensor(count, groups, keys, depth),
        tensor(count, groups, keys, width, finite=hidden),
    ]  # fmt: skip
    options["enable_gqa"] = True
    if layout == "mask" and "window" not in form:
        options["is_causal"] = False
        options["attn_mask"] = torch.rand(count, 1, queries, keys, generator=generator) < 0.6
    if layout == "gradients":
        return _gradients(attention, operands, tensor(count, heads, queries, width), options, device)
    return _outputs(chosen(attention), operands, options, device)


def _others_in_turn(turns: dict[str, Any], depth: int, width: int) -> None:
    """Let the programs of half of all schedules be one warp; what is drawn for evaluation does not depend on it."""
    draw = random.Random(repr(turns))
    components = min(64, depth & -depth)
    shares = depth // components, width // components
    turns["alone"] = draw.random() < 0.5
    if turns["alone"]:
        turns |= {"blocks": 1, "stages": draw.randint(max(*shares, 2), sum(shares) + 2)}
    elif turns["blocks"] == 4:
        turns["stages"] = draw.randint(1, {64: 4, 96: 2}.get(depth, 1))


def _in_turn(function: Any, turns: dict[str, Any], *arguments: Any, **options: Any) -> Any:
    """Return a call of attention by programs that take chunks in turn; tensors of a CPU are evaluated."""
    import torch

    from bitwise_core.plugins.attention_calls import AttentionOperands
    from bitwise_nvidia_sm90.attention.launch import Schedule, attend
    from bitwise_torch import attention, attention_descriptor, attention_varlen

    if arguments[0].device.type == "cpu":
        return function(*arguments, **options)
    query, key, value, *rest = arguments
    logarithms, sinks = options.pop("logarithms"), options.pop("sinks", None)
    options.pop("enable_gqa", None)
    desc = attention_descriptor(query, key, value, sinks=sinks is not None, **options)
    extra: dict[str, Any] = {}
    if function is attention:
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        lengths, extra["first_position"] = [query.shape[1], key.shape[1]], 0
    elif function is attention_varlen:
        extra["query_starts"], extra["key_starts"], *lengths = rest
    else:
        extra["page_table"], extra["key_lengths"] = rest
        lengths = [query.shape[1], key.shape[1] * rest[0].shape[1]]
    out = torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device=query.device)
    found = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
    queries, keys = lengths
    operands = AttentionOperands(
        query, key, value, out, queries, keys, logarithms=found if logarithms else None, sinks=sinks, **extra
    )
    assert desc.chunk is not None
    split = bool(turns["split"]) and keys > desc.chunk
    attend(desc, operands, Schedule(packed=True, **{**turns, "split": split}))
    if function is attention:
        out, found = out.transpose(1, 2), found.transpose(1, 2)
    return (out, found) if logarithms else out


def _starts(lengths: Sequence[int]) -> Any:
    import torch

    return torch.tensor([0, *lengths]).cumsum(0).int()


def _on(device: str, value: Any) -> Any:
    import torch

    return value.to(device) if isinstance(value, torch.Tensor) else value


def _outputs(function: Any, arguments: Sequence[Any], options: dict[str, Any], device: str) -> list[Any]:
    """Return the output, and the logarithms where the options ask for them."""
    moved = {name: _on(device, one) for name, one in options.items()}
    found = function(*(_on(device, one) for one in arguments), **moved)
    return [each.cpu() for each in (found if options["logarithms"] else [found])]


def _gradients(
    function: Any, arguments: Sequence[Any], slope: Any, options: dict[str, Any], device: str
) -> list[Any]:  # fmt: skip
    """Return the output and the gradients of the first three arguments."""
    moved = [_on(device, one) for one in arguments]
    inputs = [one.detach().clone().requires_grad_() for one in moved[:3]]
    out, _ = function(*inputs, *moved[3:], **{name: _on(device, one) for name, one in options.items()})
    out.backward(_on(device, slope))
    return [each.detach().cpu() for each in (out, *(one.grad for one in inputs))]
