"""The descriptor of the attention kernels.

Keys are divided at multiples of CHUNK, whatever the length, so that prefill, a part of it and decoding compute the same
tree.  A chunk is an online softmax over blocks of 64 or 128 keys, whose output stays in the accumulator of the matrix
unit.  Chunks are merged from the first to the last in fp32: one program that visits all keys merges after each chunk,
and programs of some chunks each leave their states to a kernel that performs the same merges.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache

from bitwise_core.descriptors import (
    AttentionDesc,
    AttentionGradientDesc,
    DescriptorError,
    Digit,
    Fold,
    Instruction,
    ReductionDesc,
    single_pass,
)
from bitwise_core.plugins.attention_calls import AttentionForm

CHUNK = 512
DESCENT = 4.0
"""How far the maximum may descend from block to block: the largest weight of most blocks is then rounded to itself.

The errors of weights that are rounded to bf16 are most of those of an output, and these are 2 to 5 % less so.  In 8
blocks the denominator and the output grow by at most 2^28.
"""
WIDTHS = ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
"""The widths of a head that the kernels have: of query and key, and of value."""
DTYPES = ("bf16", "fp16")
STORED = ("e4m3", "e5m2")
"""The other types in which keys and values may be stored."""
EXPONENTIAL, CAP_QUOTIENT = "ex2.approx.ftz.fp32@sm_90", "div.full.fp32@sm_90"
LOG2_E = 1.4426950408889634
UNIT = Instruction(architecture="sm_90", family="fused", k=16)
"""The step that mma.sync and wgmma share."""


def key_block(depth: int) -> int:
    """Return the keys of a block: 128 where their scores fit the registers beside the output, for half the rescaling.

    With narrower heads, exponentials take the time, and blocks of 64 keys leave room for more programs.
    """
    return 128 if depth == 128 else 64


def row_sum(width: int) -> ReductionDesc:
    """Return the sum of a row of scores in the accumulator's layout.

    A thread adds its pairs of adjacent elements, 8 columns apart, in one chain; then four lanes are reduced pairwise,
    the larger distance first.
    """
    chain = Fold(stride=8, count=width // 8, within=(Digit(stride=1, count=2),))
    return ReductionDesc(length=width, dtype="fp32", folds=(chain, Fold(stride=4), Fold(stride=2)))


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


@lru_cache(maxsize=4096)
def attention_descriptor(form: AttentionForm) -> AttentionDesc:
    """Return the descriptor of the kernels for a form.  Raises DescriptorError, with what they have instead."""
    if form.dtype not in DTYPES:
        raise DescriptorError(f"attention of {form.dtype} has no kernel on sm_90: convert the tensors to bf16 or fp16")
    if (form.depth, form.width) not in WIDTHS:
        wider = [pair for pair in WIDTHS if pair[0] >= form.depth and pair[1] >= form.width]
        nearest = "the widest have 256"
        if wider:
            depth, width = min(wider, key=sum)
            nearest = f"pad them with zeros to {depth}" if depth == width else f"pad them with zeros to {depth}/{width}"
            nearest += ", and give the scale of the width without padding"
        raise DescriptorError(
            f"heads of {form.depth} components with values of {form.width} have no kernel on sm_90: {nearest}"
        )
    if not (math.isfinite(form.scale) and 2.0**-100 < form.scale < 2.0**100):
        raise DescriptorError(f"a scale of {form.scale} has no kernel: give a positive one between 2**-100 and 2**100")
    cap = form.soft_cap
    if cap is not None and not 2.0**-20 < cap < 2.0**40:
        raise DescriptorError(f"a soft cap of {cap} has no kernel: give a positive one between 2**-20 and 2**40")
    if form.window is not None and (form.window < 1 or not form.causal):
        raise DescriptorError("a window is the positive number of keys that a causal query sees, itself included")
    if form.stored is not None and form.stored not in STORED:
        raise DescriptorError(
            f"keys and values of {form.stored} have no kernel for queries of {form.dtype}: convert them to "
            f"{form.dtype}, e4m3 or e5m2"
        )
    if not (math.isfinite(form.output_scale) and 2.0**-100 < form.output_scale < 2.0**100):
        raise DescriptorError(
            f"an output scale of {form.output_scale} has no kernel: give a positive one between 2**-100 and 2**100"
        )
    if form.stored is None and form.output_scale != 1.0:
        raise DescriptorError("an output scale has a kernel for keys and values of fp8 alone: leave it out")
    block = key_block(form.depth)
    return AttentionDesc(
        key_block=block,
        masking="causal" if form.causal else "none",
        mask_value=-math.inf,
        window=form.window,
        chunk=CHUNK,
        descent=DESCENT,
        sink=form.sink,
        scores=single_pass(form.depth, form.dtype, UNIT, output_dtype="fp32"),
        score_scale=_single((form.scale if cap is None else cap) * LOG2_E),
        cap_factor=None if cap is None else _single(2 * LOG2_E * form.scale / cap),
        cap_quotient="div.rn.fp32" if cap is None else CAP_QUOTIENT,
        fused_exponent=True,
        fused_masked_exponent=True,
        row_sum=row_sum(block),
        fused_sum=True,
        probabilities_dtype=form.dtype,
        values=single_pass(block, form.dtype, UNIT, output_dtype="fp32"),
        division="reciprocal",
        exponential=EXPONENTIAL,
        output_dtype=form.dtype,
        stored_dtype=form.stored,
        output_scale=None if form.stored is None else _single(form.output_scale),
    )


@lru_cache(maxsize=4096)
def is_served(desc: AttentionDesc) -> bool:
    """Return whether the kernels compute a descriptor for some width of values."""
    widths = [width for depth, width in WIDTHS if depth == desc.scores.k]
    if not widths or desc.output_dtype not in DTYPES:
        return False
    plain = attention_descriptor(AttentionForm(desc.output_dtype, desc.scores.k, widths[0], 1.0))
    capped = desc.cap_factor is not None
    if (desc.output_scale is None) != (desc.stored_dtype is None) or desc.stored_dtype not in (None, *STORED):
        return False
    free = {
        "masking": desc.masking, "window": desc.window, "sink": desc.sink, "score_scale": desc.score_scale,
        "cap_factor": desc.cap_factor, "cap_quotient": CAP_QUOTIENT if capped else "div.rn.fp32",
        "stored_dtype": desc.stored_dtype, "output_scale": desc.output_scale,
    }  # fmt: skip
    return desc == AttentionDesc(**{**dict(plain), **free})


def row_products(width: int) -> ReductionDesc:
    """Return the sum of the products of a row: a thread adds 8 of them, then lanes are reduced, the farthest first."""
    padded = 1 << (width - 1).bit_length()
    across = [Fold(stride=8 << bit) for bit in reversed(range((padded // 8).bit_length() - 1))]
    return ReductionDesc(
        length=width,
        dtype="fp32",
        folds=(Fold(stride=1, count=8), *across),
        padding="absent" if padded == width else "zero",
    )


@lru_cache(maxsize=4096)
def attention_gradient_descriptor(form: AttentionForm) -> AttentionGradientDesc:
    """Return the descriptor of the kernels of gradients.  Raises DescriptorError, with what they have instead."""
    forward = attention_descriptor(form)
    if form.stored is not None:
        raise DescriptorError("the gradients of attention with keys of fp8 have no kernel: convert them")
    if form.soft_cap is not None:
        raise DescriptorError("the gradients of attention with a soft cap have no kernel: leave it out")
    return AttentionGradientDesc(
        dtype=form.dtype,
        masking=forward.masking,
        window=form.window,
        scores=forward.scores,
        score_scale=forward.score_scale,
        exponential=EXPONENTIAL,
        slopes=single_pass(form.width, form.dtype, UNIT, output_dtype="fp32"),
        row_products=row_products(form.width),
        unit=UNIT,
        heads="added",  # the heads of a group are computed at once
        scale=_single(form.scale),
    )
