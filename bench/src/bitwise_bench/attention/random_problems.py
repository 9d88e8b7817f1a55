"""Random problems of attention, on a GPU and evaluated on a CPU through the same functions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FORMS: tuple[dict[str, Any], ...] = (
    *(
        {"widths": widths, "dtype": dtype}
        for widths in ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
        for dtype in ("bfloat16", "float16")
    ),
    {"widths": (128, 128), "dtype": "bfloat16", "window": True},
    {"widths": (64, 64), "dtype": "float16", "window": True},
    {"widths": (128, 128), "dtype": "bfloat16", "soft_cap": 30.0},
    {"widths": (64, 64), "dtype": "bfloat16", "sinks": True},
)  # fmt: skip
"""What a worker compiles kernels for: the widths of a head, the type, and at most one option."""

DEVICES = "cuda", "cpu"
LAYOUTS = "dense", "varlen", "paged", "mask", "gradients"


@dataclass(frozen=True, slots=True)
class Difference:
    """A problem whose bytes differ."""

    form: str
    seed: int
    layout: str
    elements: int


def compare_form(place: int, seeds: Sequence[int]) -> tuple[int, list[Difference]]:
    """Return the number of problems of a form that were compared, and those that differ."""
    found, count = [], 0
    for seed in seeds:
        layout = LAYOUTS[seed % len(LAYOUTS)]
        if layout == "gradients" and "soft_cap" in FORMS[place]:
            layout = "dense"
        different = _compare(FORMS[place], layout, random.Random(seed * 1000 + place))
        count += 1
        if different:
            found.append(Difference(str(FORMS[place]), seed, layout, different))
    return count, found


def _compare(form: dict[str, Any], layout: str, draw: random.Random) -> int:
    """Return the number of elements whose bytes differ."""
    import torch

    from bitwise_torch import attention, attention_paged, attention_varlen

    depth, width = form["widths"]
    groups = draw.choice((1, 2))
    heads = groups * draw.choice((1, 2, 4))
    count = draw.choice((1, 2, 3))
    lengths = [(draw.choice((1, 1, 3, 17, 70)), draw.choice((1, 5, 64, 150, 513, 700))) for _ in range(count)]
    if layout in ("dense", "mask", "gradients"):
        lengths = lengths[:1] * count
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    special = draw.random() < 0.2 and layout != "gradients"

    def tensor(*shape: int, size: float = 1.0) -> Any:
        values = torch.randn(shape, generator=generator) * size
        if special:
            values = torch.where(torch.rand(shape, generator=generator) < 1e-3, -0.0, values)
            values *= 2.0 ** torch.randint(-12, 6, shape, generator=generator)
        return values.to(getattr(torch, form["dtype"]))

    causal = "window" in form or draw.random() < 0.6
    options: dict[str, Any] = {"scale": draw.choice((None, 0.3)), "is_causal": causal, "logarithms": True}
    if "window" in form:
        options["window"] = draw.choice((1, 30, 200))
    if "soft_cap" in form:
        options["soft_cap"] = form["soft_cap"]
    if "sinks" in form:
        options["sinks"] = torch.randn(heads, generator=generator)
    queries, keys = lengths[0]
    if layout == "varlen":
        rows, places = (sum(one[part] for one in lengths) for part in (0, 1))
        tensors = tensor(rows, heads, depth), tensor(places, groups, depth), tensor(places, groups, width)
        starts = [_starts([one[part] for one in lengths]) for part in (0, 1)]
        longest = [max(one[part] for one in lengths) for part in (0, 1)]
        return _differences(attention_varlen, (*tensors, *starts, *longest), options)
    if layout == "paged":
        size = draw.choice((16, 32, 64, 128, 256))
        pages = max(-(-one[1] // size) for one in lengths)
        pool = pages * count + 2
        pools = [tensor(pool, size, groups, each) for each in (depth, width)]
        table = torch.randperm(pool, generator=generator)[: pages * count].view(count, pages).int()
        counts = torch.tensor([one[1] for one in lengths]).int()
        return _differences(attention_paged, (tensor(count, queries, heads, depth), *pools, table, counts), options)
    shapes = (heads, queries, depth), (groups, keys, depth), (groups, keys, width)
    operands = [tensor(count, *shape) for shape in shapes]
    options["enable_gqa"] = True
    if layout == "mask" and "window" not in form:
        options["is_causal"] = False
        options["attn_mask"] = torch.rand(count, 1, queries, keys, generator=generator) < 0.6
    if layout == "gradients":
        slope = tensor(count, heads, queries, width)
        return _differences_of_gradients(operands, slope, options)
    return _differences(attention, operands, options)


def _starts(lengths: Sequence[int]) -> Any:
    import torch

    return torch.tensor([0, *lengths]).cumsum(0).int()


def _on(device: str, value: Any) -> Any:
    import torch

    return value.to(device) if isinstance(value, torch.Tensor) else value


def _differences(function: Any, arguments: Sequence[Any], options: dict[str, Any]) -> int:
    results = [
        function(*(_on(device, one) for one in arguments), **{name: _on(device, one) for name, one in options.items()})
        for device in DEVICES
    ]
    return sum(_unequal(left, right) for left, right in zip(*results, strict=True))


def _differences_of_gradients(tensors: Sequence[Any], slope: Any, options: dict[str, Any]) -> int:
    from bitwise_torch import attention

    results = []
    for device in DEVICES:
        inputs = [_on(device, one).requires_grad_() for one in tensors]
        moved = {name: _on(device, one) for name, one in options.items()}
        out, _ = attention(*inputs, **moved)
        out.backward(_on(device, slope))
        results.append([out.detach(), *(one.grad for one in inputs)])
    return sum(_unequal(left, right) for left, right in zip(*results, strict=True))


def _unequal(left: Any, right: Any) -> int:
    import torch

    kind = {2: torch.int16, 4: torch.int32}[right.element_size()]
    return int((left.cpu().contiguous().view(kind) != right.contiguous().view(kind)).sum())
