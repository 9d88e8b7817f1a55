"""The Triton kernel that packs a boolean mask, for `chunks.forward`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["queries", "heads", "keys"])
def words_of_rows(
    visible, first_keys, words, visible_batch, visible_head, visible_step, visible_key, queries, heads, keys, count,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Store `count` words of 64 bits for each row of a mask of bytes (batch, heads, queries, keys).

    The low half of the first word is the number of keys that the row sees before the first one that it does not, the
    high half the number of keys up to the last one that it sees.  Bit i of the following words is key i.  The keys of a
    sequence begin at its first key.  A program has one row; words behind the last key are 0.
    """
    row = tl.program_id(0)
    batch = row // (queries * heads)
    source = visible + batch.to(tl.int64) * visible_batch
    source += (row // queries % heads).to(tl.int64) * visible_head + (row % queries).to(tl.int64) * visible_step
    if first_keys is not None:
        first = tl.load(first_keys + batch)
        source += first.to(tl.int64) * visible_key
        keys -= first
    target = words.to(tl.pointer_type(tl.int64)) + row.to(tl.int64) * count
    leading, behind = keys, keys * 0
    bit = tl.arange(0, 64)[None, :]
    for start in range(0, count - 1, BLOCK):
        place = start + tl.arange(0, BLOCK)
        key = place[:, None] * 64 + bit
        seen = tl.load(source + key.to(tl.int64) * visible_key, mask=key < keys, other=0) != 0
        leading = tl.minimum(leading, tl.min(tl.min(tl.where(seen, keys, key), axis=1), axis=0))
        behind = tl.maximum(behind, tl.max(tl.max(tl.where(seen, key + 1, 0), axis=1), axis=0))
        word = tl.sum(seen.to(tl.int64) << bit.to(tl.int64), axis=1)
        tl.store(target + 1 + place, word, mask=place < count - 1)
    tl.store(target, leading.to(tl.int64) | behind.to(tl.int64) << 32)
