"""Rows of attention over batches, neighbours, parts, pages and schedules: each row must have one byte pattern."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from bitwise_bench.attention.divisions import DIVISIONS, division_of_text

CASES = (
    {"depth": 128, "width": 128, "heads": 8, "groups": 2, "keys": 3000},
    {"depth": 64, "width": 64, "heads": 4, "groups": 4, "keys": 1500},
    {"depth": 192, "width": 128, "heads": 4, "groups": 1, "keys": 1300},
    {"depth": 96, "width": 96, "heads": 8, "groups": 8, "keys": 1100},
    {"depth": 256, "width": 256, "heads": 4, "groups": 2, "keys": 1100},
)

LAST = 40
"""The last rows of a sequence, which are compared."""
PARTS = "lengths", "pages", "schedules of 64 rows", "schedules of 128 rows"
"""What is varied, in parts that processes compute in parallel."""


def digests_of(case: dict[str, int], part: str, seed: int = 0) -> dict[str, list[str]]:
    """Return the digests of the last rows of a sequence in one of `PARTS`, by what was varied.

    The last 40 queries of a sequence are computed alone, in batches of 1 to 64 at any place with other neighbours, as a
    whole prefill, in parts, one at a time, from pages, and with every schedule.
    """
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    keys = case["keys"]

    def tensor(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda").bfloat16()

    query = tensor(keys, case["heads"], case["depth"])
    key, value = tensor(keys, case["groups"], case["depth"]), tensor(keys, case["groups"], case["width"])
    if part == "lengths":
        found = _lengths(query, key, value, tensor, generator)
    elif part == "pages":
        found = _pages(query, key, value, generator)
    else:
        found = _schedules(query, key, value, 64 if "64" in part else 128)
    digests: dict[str, list[str]] = {}
    for what, out in found:
        digests.setdefault(what, []).append(_digest(out))
    return digests


def patterns_of(parts: Iterable[dict[str, list[str]]]) -> dict[str, int]:
    """Return the number of byte patterns by what was varied, and of all; 1 is the only good one."""
    found: dict[str, set[str]] = {}
    for part in parts:
        for what, digests in part.items():
            found.setdefault(what, set()).update(digests)
    return {**{what: len(digests) for what, digests in found.items()}, "all": len(set().union(*found.values()))}


def _digest(out: Any) -> str:
    import torch

    return hashlib.sha256(out.contiguous().view(torch.int16).cpu().numpy().tobytes()).hexdigest()


def _lengths(query: Any, key: Any, value: Any, tensor: Any, generator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the output of the last rows (rows, heads, width), with what was varied: parts of a prefill and batches."""
    import torch

    from bitwise_torch import attention_varlen

    keys = len(key)

    def starts(*lengths: int) -> Any:
        return torch.tensor([0, *lengths], device="cuda").cumsum(0).int()

    def varlen(queries: list[Any], kept: list[tuple[Any, Any]]) -> Any:
        lengths, counts = [len(one) for one in queries], [len(one) for one, _ in kept]
        return attention_varlen(
            torch.cat(queries), torch.cat([one for one, _ in kept]), torch.cat([one for _, one in kept]),
            starts(*lengths), starts(*counts), max(lengths), max(counts), is_causal=True,
        )  # fmt: skip

    yield "prefill", varlen([query], [(key, value)])[-LAST:]
    for size in (1, 7, 64, 100, 1000):
        parts = [
            varlen([query[low : low + size]], [(key[: low + size], value[: low + size])])
            for low in range(keys - (-(-LAST // size) * size), keys, size)
        ]
        yield "parts", torch.cat(parts)[-LAST:]
    for batch in (1, 2, 3, 5, 8, 16, 33, 64):
        place = batch // 2
        longer = [int(one) for one in torch.randint(1, 700, (batch,), generator=generator, device="cuda")]
        neighbours = [
            (tensor(one, *key.shape[1:]), tensor(one, *value.shape[1:])) if index != place else (key, value)
            for index, one in enumerate(longer)
        ]
        rows = [
            tensor(min(9 + index % 2, len(neighbours[index][0])), *query.shape[1:]) if index != place else query[-LAST:]
            for index in range(batch)
        ]
        at = sum(len(one) for one in rows[:place])
        yield "batches", varlen(rows, neighbours)[at : at + LAST]


def _pages(query: Any, key: Any, value: Any, generator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the same for pages of every size, whose other rows are NaNs."""
    import torch

    from bitwise_torch import attention_paged

    keys = len(key)
    for size in (16, 32, 64, 128, 256):
        pages = -(-keys // size)
        order = torch.randperm(pages + 3, generator=generator, device="cuda")[:pages]
        pools = []
        for each in (key, value):
            pool = torch.full((pages + 3, size, *each.shape[1:]), float("nan"), device="cuda", dtype=each.dtype)
            padded = torch.full((pages * size, *each.shape[1:]), float("nan"), device="cuda", dtype=each.dtype)
            padded[:keys] = each
            pool[order] = padded.unflatten(0, (pages, size))
            pools.append(pool)
        lengths = torch.tensor([keys], device="cuda").int()
        of_keys, of_values = pools
        yield "pages", attention_paged(query[None, -LAST:], of_keys, of_values, order[None].int(), lengths)[0]
        rows = [
            attention_paged(
                query[None, row : row + 1], of_keys, of_values, order[None].int(), lengths - (keys - 1 - row)
            )[0]
            for row in range(keys - LAST, keys)
        ]
        yield "pages, one query at a time", torch.cat(rows)


def _schedules(query: Any, key: Any, value: Any, rows: int) -> Iterator[tuple[str, Any]]:
    """Yield the same for the schedules of programs of this number of rows."""
    import torch

    from bitwise_core.plugins.attention_calls import AttentionForm, AttentionOperands
    from bitwise_nvidia_sm90.attention.launch import (
        Schedule,
        attend,
        can_specialise,
        can_take_turns,
        schedule_of_division,
        specialised_schedule,
    )
    from bitwise_nvidia_sm90.attention.tree import attention_descriptor

    desc = attention_descriptor(AttentionForm("bf16", query.shape[-1], value.shape[-1], query.shape[-1] ** -0.5, True))
    schedules = [
        Schedule(rows, packed, split, stages, maps, span=span)
        for packed in (False, True)
        for split, span in (((False, 1), (True, 1), (True, 2)) if packed else ((False, 1),))
        for stages, maps in ((2, True), (1, False))
        # Beside the state of 128 rows of 256 components there is no memory for two blocks.
        if rows == 64 or span == 1 or query.shape[-1] < 256 or stages == 1
    ]
    out = torch.empty((1, LAST, *query.shape[1:-1], value.shape[-1]), device="cuda", dtype=query.dtype)
    operands = AttentionOperands(query[None, -LAST:], key[None], value[None], out, LAST, len(key))
    if rows == 128 and can_specialise(desc, operands):
        own = specialised_schedule((query.shape[-1], value.shape[-1]))
        schedules += [replace(own, stages=stages) for stages in (1, 2)]
    if rows == 64 and can_take_turns(desc, operands):
        schedules += [
            Schedule(each, True, split, stages, programs=programs)
            for each, split, stages, programs in (
                (64, True, 3, 5), (64, False, 4, 132), (16, False, 3, 5), (16, True, 3, 352),
            )
        ]  # fmt: skip
    if rows == 64:
        tiles = -(-LAST * query.shape[1] // key.shape[1] // 16) * key.shape[1]
        divisions = map(division_of_text, DIVISIONS[int(query.shape[-1])])
        found = (schedule_of_division(each, tiles, len(key), 16) for each in divisions)
        schedules += [replace(each, ordered=order) for each in found if each is not None for order in (False, True)]
    for schedule in schedules:
        attend(desc, operands, schedule)
        yield "schedules", out[0].clone()
