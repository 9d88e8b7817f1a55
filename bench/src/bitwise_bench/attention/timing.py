"""Times of attention and of PyTorch's backends, as CUDA graphs, and errors against double precision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bitwise_bench.attention import drawn

HEADS = {"batch": 1, "heads": 32, "groups": 8, "depth": 128}
PREFILL = (
    {**HEADS, "queries": 4096, "flexible": True},
    {**HEADS, "queries": 8192},
    {"batch": 1, "queries": 16384, "heads": 16, "groups": 16, "depth": 128},
    {"batch": 2, "queries": 4096, "heads": 16, "groups": 16, "depth": 128, "causal": False},
    {"batch": 2, "queries": 4096, "heads": 32, "groups": 32, "depth": 64},
    {"batch": 1, "queries": 16384, "heads": 16, "groups": 4, "depth": 64},
    {"batch": 1, "queries": 5000, "heads": 24, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 1, "queries": 12288, "heads": 40, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 1, "queries": 8192, "heads": 12, "groups": 2, "depth": 64, "held_out": True},
    {"batch": 8, "queries": 512, "heads": 32, "groups": 8, "depth": 128},
    {"batch": 4, "queries": 2048, "heads": 32, "groups": 8, "depth": 128},
    {**HEADS, "queries": 32768, "held_out": True},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 96},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 192, "width": 128},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 256},
    {"batch": 3, "queries": 3000, "heads": 8, "groups": 4, "depth": 96, "held_out": True},
    {"batch": 1, "queries": 10000, "heads": 24, "groups": 24, "depth": 192, "width": 128, "held_out": True},
    {"batch": 2, "queries": 7000, "heads": 8, "groups": 2, "depth": 256},
    {"batch": 6, "queries": 900, "heads": 28, "groups": 4, "depth": 128, "held_out": True},
)
DECODE = (
    {**HEADS, "keys": 65536},
    {**HEADS, "keys": 8192},
    {**HEADS, "keys": 512},
    {**HEADS, "keys": 1024},
    {**HEADS, "batch": 8, "keys": 8192},
    {**HEADS, "batch": 16, "keys": 4096},
    {**HEADS, "batch": 64, "keys": 2048, "flexible": True},
    {"batch": 256, "keys": 1000, "heads": 16, "groups": 2, "depth": 128},
    {"batch": 1, "keys": 131072, "heads": 16, "groups": 1, "depth": 128},
    {"batch": 3, "keys": 20000, "heads": 40, "groups": 8, "depth": 128},
    {"batch": 1, "keys": 131072, "heads": 64, "groups": 8, "depth": 128},
    {"batch": 100, "keys": 3000, "heads": 32, "groups": 8, "depth": 64},
    {"batch": 16, "keys": 4096, "heads": 16, "groups": 8, "depth": 256},
    {"batch": 16, "keys": 4096, "heads": 32, "groups": 8, "depth": 96},
    {"batch": 5, "keys": 37000, "heads": 28, "groups": 4, "depth": 128, "held_out": True},
    {"batch": 1, "keys": 50000, "heads": 48, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 21, "keys": 6500, "heads": 32, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 2, "keys": 90000, "heads": 32, "groups": 4, "depth": 64},
    {"batch": 40, "keys": 700, "heads": 16, "groups": 16, "depth": 64},
    {"batch": 1, "keys": 3000, "heads": 24, "groups": 2, "depth": 128},
    {"batch": 1, "keys": 2048, "heads": 32, "groups": 8, "depth": 64},
    {"batch": 64, "keys": 2048, "heads": 32, "groups": 8, "depth": 64},
    {"batch": 1, "keys": 1500, "heads": 40, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 30, "keys": 5000, "heads": 16, "groups": 4, "depth": 64, "held_out": True},
    {"batch": 7, "keys": 2600, "heads": 32, "groups": 8, "depth": 96, "held_out": True},
    {"batch": 1, "keys": 4096, "heads": 32, "groups": 8, "depth": 64, "held_out": True},
    {"batch": 1, "keys": 131072, "heads": 32, "groups": 8, "depth": 64, "held_out": True},
    {"batch": 4, "keys": 30000, "heads": 32, "groups": 8, "depth": 64, "held_out": True},
    {"batch": 12, "keys": 1200, "heads": 32, "groups": 4, "depth": 64},
    {"batch": 256, "keys": 512, "heads": 8, "groups": 8, "depth": 64, "held_out": True},
    {"batch": 50, "keys": 6000, "heads": 64, "groups": 8, "depth": 64},
    {"batch": 2, "keys": 65536, "heads": 16, "groups": 2, "depth": 64, "held_out": True},
    {"batch": 1, "keys": 10000, "heads": 28, "groups": 4, "depth": 64, "held_out": True},
    {"batch": 150, "keys": 900, "heads": 24, "groups": 8, "depth": 64, "held_out": True},
    {"batch": 1, "keys": 6000, "heads": 32, "groups": 8, "depth": 96, "held_out": True},
    {"batch": 2, "keys": 50000, "heads": 32, "groups": 32, "depth": 96},
    {"batch": 24, "keys": 3500, "heads": 32, "groups": 8, "depth": 96, "held_out": True},
    {"batch": 1, "keys": 131072, "heads": 32, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 1, "keys": 2500, "heads": 64, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 2, "keys": 12000, "heads": 16, "groups": 16, "depth": 128, "held_out": True},
    {"batch": 6, "keys": 4500, "heads": 28, "groups": 4, "depth": 128, "held_out": True},
    {"batch": 36, "keys": 1100, "heads": 40, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 128, "keys": 4096, "heads": 32, "groups": 4, "depth": 128, "held_out": True},
    {"batch": 10, "keys": 16384, "heads": 96, "groups": 8, "depth": 128},
    {"batch": 256, "keys": 2048, "heads": 8, "groups": 1, "depth": 128, "held_out": True},
)
GRADIENTS = (
    {"batch": 2, "queries": 4096, "heads": 16, "groups": 16, "depth": 128},
    {"batch": 2, "queries": 4096, "heads": 32, "groups": 32, "depth": 64},
    {**HEADS, "queries": 8192},
    {"batch": 1, "queries": 16384, "heads": 8, "groups": 8, "depth": 128},
    {"batch": 2, "queries": 4096, "heads": 16, "groups": 16, "depth": 128, "causal": False},
    {"batch": 1, "queries": 2048, "heads": 16, "groups": 2, "depth": 128},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 96},
    {"batch": 1, "queries": 6000, "heads": 24, "groups": 8, "depth": 128, "held_out": True},
    {"batch": 4, "queries": 2048, "heads": 12, "groups": 12, "depth": 64, "held_out": True},
    {"batch": 1, "queries": 5500, "heads": 20, "groups": 4, "depth": 64, "causal": False, "held_out": True},
    {"batch": 3, "queries": 2500, "heads": 12, "groups": 4, "depth": 96, "held_out": True},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 256},
    {"batch": 1, "queries": 4096, "heads": 16, "groups": 16, "depth": 192, "width": 128},
    {"batch": 2, "queries": 3000, "heads": 8, "groups": 2, "depth": 256, "held_out": True},
    {"batch": 1, "queries": 5000, "heads": 12, "groups": 12, "depth": 192, "width": 128, "held_out": True},
)
PAGES = (
    {**HEADS, "batch": 64, "keys": 2048, "page": 16, "flexible": True},
    {**HEADS, "batch": 64, "keys": 2048, "page": 64, "flexible": True},
    {**HEADS, "keys": 65536, "page": 16, "flexible": True},
    {**HEADS, "batch": 16, "keys": 4096, "page": 256, "flexible": True},
    {"batch": 24, "keys": 5000, "heads": 40, "groups": 8, "depth": 128, "page": 32, "flexible": True},
    {"batch": 12, "keys": 9000, "heads": 64, "groups": 8, "depth": 64, "page": 16, "flexible": True},
    {"batch": 3, "keys": 15000, "heads": 32, "groups": 4, "depth": 64, "page": 64, "flexible": True, "held_out": True},
)
_MIXED = (300, 3000, 1700, 64, 2500, 900, 3900, 1200)
LENGTHS = (
    {"lengths": (2048,) * 8, "heads": 32, "groups": 8, "depth": 128},
    {"lengths": _MIXED, "heads": 32, "groups": 8, "depth": 128},
    {"lengths": (7000, 500, 20, 2100), "heads": 24, "groups": 8, "depth": 128, "held_out": True},
    {"lengths": _MIXED, "heads": 16, "groups": 16, "depth": 64},
)
DRAWN = 20281117
"""The seed of drawn cases."""
_LARGE, _FEW, _MANY = 4e8, 3, 10
"""The bytes of keys and values from which on a graph of decoding has few calls, and the calls of graphs."""
_REPEATED = 2e10
"""The most bytes of keys and values that are repeated for each head of a group."""
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


def driver_version() -> str:
    """Return the version of the GPU's driver."""
    import torch

    return str(torch.cuda.driver_version()) if hasattr(torch.cuda, "driver_version") else _driver_of_nvml()


def _driver_of_nvml() -> str:
    import ctypes

    library = ctypes.CDLL("libnvidia-ml.so.1")
    text = ctypes.create_string_buffer(96)
    library.nvmlInit_v2()
    library.nvmlSystemGetDriverVersion(text, 96)
    return text.value.decode()


def graph_seconds(function: Callable[[], Any], repetitions: int = 5, stream: Any = None) -> float:
    """Return the median time of a call in a CUDA graph of several, captured from `stream` or a new stream."""
    import torch

    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(repetitions):
                function()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / repetitions / 1000)
    return float(sorted(times)[len(times) // 2])


def tensors_of(case: dict[str, Any], queries: int, keys: int) -> list[Any]:
    """Return query, key and value (batch, heads, length, width) of normal numbers."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    batch, depth = case["batch"], case["depth"]
    shapes = [
        (batch, queries, case["heads"], depth), (batch, keys, case["groups"], depth),
        (batch, keys, case["groups"], case.get("width", depth)),
    ]  # fmt: skip
    return [torch.randn(one, generator=generator, device="cuda").bfloat16().transpose(1, 2) for one in shapes]


def implementations(tensors: list[Any], causal: bool) -> dict[str, Callable[[], Any]]:
    """Return calls of attention on query, key and value, by implementation."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from bitwise_torch import attention

    def backend(name: str) -> Callable[[], Any]:
        def call() -> Any:
            with sdpa_kernel(getattr(SDPBackend, name)):
                return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)

        return call

    query, key, value = tensors
    return {
        "bitwise": lambda: attention(query, key, value, is_causal=causal, enable_gqa=True),
        **{name: backend(each) for name, each in BACKENDS.items()},
    }


def _flexible(tensors: list[Any], causal: bool) -> Callable[[], Any]:
    """Return a call of FlexAttention, compiled, with a block mask where it is causal."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return query >= key

    query, key, value = tensors
    mask = create_block_mask(seen, None, None, query.shape[2], key.shape[2]) if causal else None
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(query, key, value, block_mask=mask, enable_gqa=True)


def _built_once(build: Callable[[], Callable[[], Any]]) -> Callable[[], Any]:
    """Return a call that the first one builds, so that what it raises is raised by a call."""
    made: list[Callable[[], Any]] = []

    def call() -> Any:
        if not made:
            made.append(build())
        return made[0]()

    return call


def _flexible_pages(case: dict[str, Any], lengths: list[int]) -> Callable[[], Any]:
    """Return a call of FlexAttention from pages of its own cache, compiled, for one query of each sequence."""
    import torch
    from torch.nn.attention.experimental._paged_attention import PagedAttention
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    size, batch, groups, depth = case["page"], case["batch"], case["groups"], case["depth"]
    numbers = torch.tensor(lengths, device="cuda")
    pages = sum(-(-each // size) for each in lengths)
    cache = PagedAttention(pages, size, batch, device="cuda")
    for place in torch.randperm(batch, generator=torch.Generator().manual_seed(0)).tolist():
        cache.reserve(torch.tensor(place, device="cuda"), numbers[place])

    def seen(sequence: Any, head: Any, query: Any, key: Any) -> Any:
        return key < numbers[sequence]

    whole = -(-max(lengths) // size) * size
    logical = create_block_mask(seen, batch, 1, 1, whole, device="cuda", BLOCK_SIZE=size)
    mask = cache.convert_logical_block_mask(logical, kv_len=numbers)
    query = torch.randn((batch, case["heads"], 1, depth), device="cuda", dtype=torch.bfloat16)
    widths = depth, case.get("width", depth)
    key, value = (torch.randn((1, groups, pages * size, each), device="cuda", dtype=torch.bfloat16) for each in widths)
    visible = cache.get_score_mod(None, kv_len=numbers)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(query, key, value, block_mask=mask, score_mod=visible, enable_gqa=True)


def _of_lengths(tensors: list[Any], starts: Any, longest: int) -> dict[str, Callable[[], Any]]:
    """Return causal attention of sequences that lie one after the other, by implementation."""
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    from bitwise_torch import attention_varlen

    query, key, value = tensors
    names = inspect.signature(varlen_attn).parameters
    causal: dict[str, Any] = {"is_causal": True} if "is_causal" in names else {"window_size": (-1, 0)}
    arguments = query, key, value, starts, starts, longest, longest
    share = query.shape[1] // key.shape[1]
    if "enable_gqa" in names:
        causal["enable_gqa"] = True
        repeated = arguments
    else:
        repeated = (query, *(each.repeat_interleave(share, dim=1) for each in (key, value)), *arguments[3:])
    return {
        "bitwise": lambda: attention_varlen(*arguments, is_causal=True),
        "flash": lambda: varlen_attn(*repeated, **causal),
    }


def _gathered(
    query: Any, pools: list[Any], places: Any, longest: int, visible: Any = None
) -> dict[str, Callable[[], Any]]:  # fmt: skip
    """Return calls of PyTorch's backends that gather keys and values first, by implementation.

    `places` has the pages of each sequence, or its rows where the pools are (rows, groups, width).  Sequences have
    `longest` keys; where their numbers differ, `visible` (batch, 1, 1, longest) says which they have.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def backend(name: str) -> Callable[[], Any]:
        def call() -> Any:
            gathered = (each[places] if each.ndim == 3 else each[places].flatten(1, 2) for each in pools)
            key, value = (each[:, :longest].transpose(1, 2) for each in gathered)
            with sdpa_kernel(getattr(SDPBackend, name)):
                return torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, attn_mask=visible, enable_gqa=True
                )

        return call

    return {f"gathered, {name}": backend(each) for name, each in BACKENDS.items()}


def _error(found: Any, exact: Any) -> float:
    """Return the root of the mean square difference from double precision."""
    return float((found.double() - exact).square().mean().sqrt())


def _exact(tensors: list[Any], causal: bool) -> Any:
    """Return the output of the first head in double precision."""
    import torch

    q, k, v = (each[:1, :1].double() for each in tensors)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _measured(
    functions: dict[str, Callable[[], Any]], measure: Callable[[Callable[[], Any]], float]
) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, function in functions.items():
        try:
            found[name] = measure(function)
        except (RuntimeError, ValueError, TypeError):  # an implementation that does not serve these tensors
            found[name] = None
    return found


def prefill(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds by implementation, and errors, of a prefill."""
    causal = case.get("causal", True)
    tensors = tensors_of(case, case["queries"], case["queries"])
    functions = implementations(tensors, causal)
    if case.get("flexible"):
        functions["flex"] = _flexible(tensors, causal)
    seconds = _measured(functions, lambda function: graph_seconds(function, 3))
    errors = {}
    if case["queries"] <= 8192:
        exact = _exact(tensors, causal)
        errors = {name: _error(each()[:1, :1], exact) for name, each in functions.items() if seconds[name]}
    widths = case["depth"] + case.get("width", case["depth"])
    operations = (1 if causal else 2) * case["batch"] * case["heads"] * case["queries"] ** 2 * widths
    return {"case": case, "seconds": seconds, "operations": operations, "errors": errors}


def decode(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds by implementation, and errors, of one query for each sequence."""
    tensors = tensors_of(case, 1, case["keys"])
    functions = implementations(tensors, False)
    if case.get("flexible"):
        functions["flex"] = _flexible(tensors, False)
    moved = _bytes_of(case, case["batch"] * case["keys"])
    seconds = _measured(functions, lambda function: graph_seconds(function, _MANY if moved < _LARGE else _FEW))
    exact = _exact(tensors, False)
    errors = {name: _error(each()[:1, :1], exact) for name, each in functions.items() if seconds[name]}
    return {"case": case, "seconds": seconds, "bytes": moved, "errors": errors}


def _bytes_of(case: dict[str, Any], keys: int) -> int:
    """Return the bytes of so many keys and their values."""
    return int(2 * keys * case["groups"] * (case["depth"] + case.get("width", case["depth"])))


def pages(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of one query for each sequence with keys in pages in a drawn order.

    Backends have contiguous keys, or gather them from the pages first.
    """
    import torch

    from bitwise_torch import attention_paged

    query, key, value = tensors_of(case, 1, case["keys"])
    size = case["page"]
    columns = -(-case["keys"] // size)
    count = case["batch"] * columns
    table = torch.randperm(count, generator=torch.Generator().manual_seed(0)).int().cuda().view(-1, columns)
    pools = []
    for each in (key, value):
        pool = torch.zeros((count, size, case["groups"], each.shape[-1]), dtype=each.dtype, device="cuda")
        rows = pool[table.long()].flatten(1, 2)
        rows[:, : case["keys"]] = each.transpose(1, 2)
        pool[table.long()] = rows.view(*table.shape, *pool.shape[1:])
        pools.append(pool)
    lengths = torch.full((case["batch"],), case["keys"], dtype=torch.int32, device="cuda")
    rows = query.transpose(1, 2)
    functions = implementations([query, key, value], False)
    del functions["bitwise"]
    keys, values = pools
    functions = {"bitwise": lambda: attention_paged(rows, keys, values, table, lengths), **functions}
    functions |= _gathered(query, pools, table, case["keys"])
    if case.get("flexible"):
        functions["flex"] = _built_once(partial(_flexible_pages, case, [case["keys"]] * case["batch"]))
    moved = _bytes_of(case, case["batch"] * case["keys"])
    seconds = _measured(functions, lambda function: graph_seconds(function, _MANY if moved < _LARGE else _FEW))
    exact = _exact([query, key, value], False)
    found = functions["bitwise"]().transpose(1, 2)[:1, :1]
    return {"case": case, "seconds": seconds, "bytes": moved, "errors": {"bitwise": _error(found, exact)}}


def uneven(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of one query for each sequence of lengths that differ, and of backends with their mean length."""
    import torch

    lengths = drawn.lengths_of(case)
    mean = -(-sum(lengths) // len(lengths))
    functions = implementations(tensors_of(case, 1, mean), False)
    del functions["bitwise"]
    given = _uneven_tensors(case, lengths)
    functions = {"bitwise": _of_uneven(*given), **functions, **_gathered_uneven(*given)}
    if case.get("flexible") and case["page"]:
        functions["flex"] = _built_once(partial(_flexible_pages, case, lengths))
    elif not case["page"] and _bytes_of(case, sum(lengths)) * case["heads"] // case["groups"] < _REPEATED:
        functions["varlen"] = _varlen_of_uneven(case, lengths)
    moved = _bytes_of(case, sum(lengths))
    seconds = _measured(functions, lambda function: graph_seconds(function, _MANY if moved < _LARGE else _FEW))
    torch.cuda.synchronize()
    return {"case": case, "seconds": seconds, "bytes": moved, "errors": {}}


def _uneven_tensors(case: dict[str, Any], lengths: list[int]) -> tuple[Any, list[Any], Any, Any]:
    """Return the query of each sequence, keys and values, the lengths, and the table of pages in a drawn order.

    Without pages there is no table, and the sequences lie one after the other.
    """
    import torch

    size, batch, groups = case["page"], case["batch"], case["groups"]
    generator = torch.Generator(device="cuda").manual_seed(0)

    def tensor(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    query = tensor(batch, case["heads"], case["depth"])
    widths = case["depth"], case.get("width", case["depth"])
    numbers = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    if not size:
        return query, [tensor(sum(lengths), groups, width) for width in widths], numbers, None
    counts = [-(-each // size) for each in lengths]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0)).int()
    table = torch.zeros((batch, max(counts)), dtype=torch.int32)
    for row, own in enumerate(order.split(counts)):
        table[row, : len(own)] = own
    return query, [tensor(sum(counts), size, groups, width) for width in widths], numbers, table.cuda()


def _of_uneven(query: Any, pools: list[Any], numbers: Any, table: Any) -> Callable[[], Any]:
    """Return our call of decoding with the tensors of `_uneven_tensors`."""
    import torch

    from bitwise_torch import attention_paged, attention_varlen

    key, value = pools
    if table is not None:
        return lambda: attention_paged(query[:, None], key, value, table, numbers)
    query_starts = torch.arange(len(query) + 1, dtype=torch.int32, device="cuda")
    key_starts = torch.nn.functional.pad(numbers.cumsum(0), (1, 0)).int()
    longest = int(numbers.max())
    return lambda: attention_varlen(query, key, value, query_starts, key_starts, 1, longest, is_causal=True)


def _gathered_uneven(query: Any, pools: list[Any], numbers: Any, table: Any) -> dict[str, Callable[[], Any]]:
    """Return the calls of `_gathered` with the tensors of `_uneven_tensors`; the shorter sequences are padded."""
    import torch

    longest = int(numbers.max())
    place = torch.arange(longest, device="cuda")
    visible = (place < numbers[:, None])[:, None, None]
    if table is None:
        starts = numbers.cumsum(0) - numbers
        table = (starts[:, None] + place).clamp(max=len(pools[0]) - 1)
    return _gathered(query[:, :, None], pools, table, longest, visible)


def _varlen_of_uneven(case: dict[str, Any], lengths: list[int]) -> Callable[[], Any]:
    """Return PyTorch's call of attention of variable lengths for one query of each sequence."""
    import inspect

    import torch
    from torch.nn.attention.varlen import varlen_attn

    heads, groups, widths = case["heads"], case["groups"], (case["depth"], case.get("width", case["depth"]))
    grouped = "enable_gqa" in inspect.signature(varlen_attn).parameters
    query = torch.randn((case["batch"], heads, case["depth"]), device="cuda", dtype=torch.bfloat16)
    pools = [torch.randn((sum(lengths), groups, width), device="cuda", dtype=torch.bfloat16) for width in widths]
    if not grouped:  # it takes as many groups as heads
        pools = [each.repeat_interleave(heads // groups, dim=1) for each in pools]
    query_starts = torch.arange(case["batch"] + 1, dtype=torch.int32, device="cuda")
    key_starts = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
    options = {"enable_gqa": True} if grouped else {}
    return lambda: varlen_attn(query, *pools, query_starts, key_starts, 1, max(lengths), **options)


def _packed(case: dict[str, Any]) -> tuple[list[Any], Any, int]:
    """Return query, key and value (tokens, heads, width) of normal numbers, the starts and the longest sequence."""
    import torch

    lengths = case["lengths"]
    tensors = tensors_of({**case, "batch": 1}, sum(lengths), sum(lengths))
    starts = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
    return [each[0].transpose(0, 1).contiguous() for each in tensors], starts, max(lengths)


def lengths(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of a causal prefill of variable lengths, and of its gradients, by implementation."""
    import torch

    tensors, starts, longest = _packed(case)
    functions = _of_lengths(tensors, starts, longest)
    seconds = _measured(functions, lambda function: graph_seconds(function, 3))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        leaves = [each.requires_grad_() for each in tensors]
        slope = torch.ones_like(leaves[0])
        backward: dict[str, Callable[[], Any]] = {}
        for name, function in _of_lengths(leaves, starts, longest).items():
            try:
                backward[name] = partial(torch.autograd.grad, function(), leaves, slope, retain_graph=True)
            except RuntimeError:  # not served
                continue
    gradient_seconds = _measured(backward, lambda function: graph_seconds(function, 2, stream))
    operations = 2 * sum(each**2 for each in case["lengths"]) * case["heads"] * case["depth"]
    return {
        "case": case, "seconds": seconds, "gradient seconds": gradient_seconds, "operations": operations, "errors": {},
    }  # fmt: skip


def gradients(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds by implementation of the gradients of a prefill, without the forward pass, and errors."""
    import torch

    causal = case.get("causal", True)
    stream = torch.cuda.Stream()  # the gradients are computed on the stream of the outputs
    with torch.cuda.stream(stream):
        tensors = [each.requires_grad_() for each in tensors_of(case, case["queries"], case["queries"])]
        generator = torch.Generator(device="cuda").manual_seed(1)
        shape = (*tensors[0].shape[:3], tensors[2].shape[3])
        slope = torch.randn(shape, generator=generator, device="cuda").bfloat16()
        functions: dict[str, Callable[[], Any]] = {}
        for name, function in implementations(tensors, causal).items():
            try:
                out = function()
            except RuntimeError:  # a backend that does not serve these tensors
                continue
            functions[name] = partial(torch.autograd.grad, out, tensors, slope, retain_graph=True)
    seconds = _measured(functions, lambda function: graph_seconds(function, 2, stream))
    torch.cuda.current_stream().wait_stream(stream)
    errors = {}
    if case["queries"] <= 4096:
        share = case["heads"] // case["groups"]
        leaves = [
            each[:1, :count].detach().double().requires_grad_()
            for each, count in zip(tensors, (share, 1, 1), strict=True)
        ]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
        exact = torch.autograd.grad(out, leaves, slope[:1, :share].double())
        for name, call in functions.items():
            pairs = zip(call(), exact, (share, 1, 1), strict=True)
            errors[name] = [_error(one[:1, :count], whole) for one, whole, count in pairs]
    widths = 3 * case["depth"] + 2 * case.get("width", case["depth"])
    operations = (1 if causal else 2) * case["batch"] * case["heads"] * case["queries"] ** 2 * widths
    return {"case": case, "graphs": True, "seconds": seconds, "operations": operations, "errors": errors}


def host(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of host time by implementation of a call that the GPU computes faster."""
    import torch

    def measure(function: Callable[[], Any]) -> float:
        for _ in range(20):
            function()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            function()
        found = (time.perf_counter() - start) / 200
        torch.cuda.synchronize()
        return found

    tensors = tensors_of(case, 1, case["keys"])
    functions = implementations(tensors, False)
    functions["default"] = lambda: torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True)
    return {"case": case, "seconds": _measured(functions, measure)}


_MEASURES: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], tuple[dict[str, Any], ...]]] = {
    "host": (host, ({**HEADS, "keys": 1024},)),
    "gradients": (gradients, GRADIENTS),
    "prefill": (prefill, PREFILL),
    "decode": (decode, DECODE),
    "pages": (pages, PAGES),
    "lengths": (lengths, LENGTHS),
    "drawn decode": (decode, drawn.equal_lengths(DRAWN, 48)),
    "drawn pages": (pages, tuple({**each, "flexible": True} for each in drawn.pages(DRAWN, 24))),
    "uneven": (uneven, tuple({**each, "flexible": True} for each in drawn.uneven(DRAWN, 20))),
    "drawn prefill": (prefill, drawn.prefills(DRAWN, 16)),
    "drawn gradients": (gradients, drawn.prefills(DRAWN + 1, 12, 0.75)),
}
STEPS = tuple(_MEASURES)


def compile_case(step: str, place: int, flex: bool = True) -> None:
    """Run our part of a case once, and with `flex` what PyTorch compiles, so that the kernels are cached."""
    import torch

    case = _MEASURES[step][1][place]
    if step in ("pages", "lengths", "drawn pages", "uneven"):
        _compile_ragged(step, case)
        return
    queries = case.get("queries", 1)
    tensors = [
        each.requires_grad_("gradients" in step) for each in tensors_of(case, queries, case.get("keys", queries))
    ]
    causal = "queries" in case and case.get("causal", True)
    out = implementations(tensors, causal)["bitwise"]()
    if flex and case.get("flexible"):
        _flexible(tensors, causal)()
    if "gradients" in step:
        out.sum().backward()
    torch.cuda.synchronize()


def _compile_ragged(step: str, case: dict[str, Any]) -> None:
    """Run our part of a case of pages or of variable lengths once."""
    import torch

    from bitwise_torch import attention_paged

    if step == "uneven":
        _of_uneven(*_uneven_tensors(case, drawn.lengths_of(case)))()
    elif "pages" in step:
        columns = -(-case["keys"] // case["page"])
        query = torch.zeros((case["batch"], 1, case["heads"], case["depth"]), dtype=torch.bfloat16, device="cuda")
        widths = case["depth"], case.get("width", case["depth"])
        key, value = (torch.zeros((2, case["page"], case["groups"], width)).bfloat16().cuda() for width in widths)
        table = torch.zeros((case["batch"], columns), dtype=torch.int32, device="cuda")
        attention_paged(query, key, value, table, torch.full_like(table[:, 0], case["keys"]))
    else:
        tensors, starts, longest = _packed(case)
        out = _of_lengths([each.requires_grad_() for each in tensors], starts, longest)["bitwise"]()
        out.sum().backward()
    torch.cuda.synchronize()


def cases(step: str) -> int:
    """Return the number of cases of a step."""
    return len(_MEASURES[step][1])


def results(step: str, seconds: float, flex: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the results of a step so far, with `flex` those of FlexAttention too, and the cases that are missing."""
    measure, given = _MEASURES[step]
    end = time.monotonic() + seconds
    found: list[dict[str, Any]] = []
    for place, case in enumerate(given):
        if time.monotonic() > end:
            break
        found.append(measure(case if flex else {key: each for key, each in case.items() if key != "flexible"}))
        yield {"results": found, "missing": list(given[place + 1 :])}
