"""Digests of calls of attention, which every GPU of one architecture must share."""

from __future__ import annotations

import hashlib
from typing import Any

WIDTHS = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256))
CALLS = "prefill", "decoding", "pages", "lengths", "gradients"
CASES = tuple((depth, width, call) for depth, width in WIDTHS for call in CALLS)


def digest_of(place: int) -> tuple[str, str]:
    """Return the name of one of CASES, and the digest of its results from normal numbers that a CPU draws."""
    import torch

    from bitwise_torch import attention, attention_paged, attention_varlen

    depth, width, call = CASES[place]
    dtype = torch.float16 if place % 2 else torch.bfloat16
    generator = torch.Generator().manual_seed(place)

    def tensor(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).to(dtype).cuda()

    def integers(*values: int) -> Any:
        return torch.tensor(values, dtype=torch.int32, device="cuda")

    heads, groups = 8, 2
    if call == "prefill":
        tensors = tensor(1, heads, 1500, depth), tensor(1, groups, 1500, depth), tensor(1, groups, 1500, width)
        found = attention(*tensors, is_causal=True, enable_gqa=True, logarithms=True)
    elif call == "decoding":
        tensors = tensor(2, heads, 1, depth), tensor(2, groups, 9000, depth), tensor(2, groups, 9000, width)
        found = attention(*tensors, enable_gqa=True, logarithms=True)
    elif call == "pages":
        pools = tensor(64, 64, groups, depth), tensor(64, 64, groups, width)
        table = torch.randperm(64, generator=generator).int().view(2, 32).cuda()
        found = attention_paged(tensor(2, 3, heads, depth), *pools, table, integers(2000, 700), logarithms=True)
    else:
        starts = integers(0, 300, 301, 900)
        tensors = tensor(900, heads, depth), tensor(900, groups, depth), tensor(900, groups, width)
        if call == "gradients":
            query, key, value = leaves = [each.requires_grad_() for each in tensors]
            out = attention_varlen(query, key, value, starts, starts, 600, 600, is_causal=True)
            found = torch.autograd.grad(out, leaves, tensor(900, heads, width))
        else:
            found = attention_varlen(*tensors, starts, starts, 600, 600, is_causal=True, logarithms=True)
    digest = hashlib.sha256()
    for each in found:
        digest.update(each.detach().contiguous().flatten().view(torch.int16).cpu().numpy().tobytes())
    return f"{call} {depth}/{width} {dtype}".replace("torch.", ""), digest.hexdigest()
