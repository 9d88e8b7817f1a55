"""Sign extension of narrow values, and 64-bit minima and maxima selected by halves."""

from __future__ import annotations

import numpy as np

from gfx942_kernels import reading, run


def test_low_half_of_a_sign_extended_number() -> None:
    """Compilers sign-extend fp16 to move it between lanes: the low half is the number, with the same signature."""
    random = np.random.default_rng(9)
    a = random.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
    low = run("v_bfe_i32 v5, v2, 0, 16", a)
    assert (low == a.astype(np.uint16).view(np.int16).astype(np.int32).view(np.uint32)).all()
    assert (run("v_bfe_i32 v5, v2, 0, 8", a) == a.astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32)).all()
    assert (run("v_ashrrev_i32_e32 v5, 16, v2", a) == (a.view(np.int32) >> 16).view(np.uint32)).all()
    plain = "v_add_f16_e32 v5, v2, v3"
    moved = "v_add_f16_e32 v5, v2, v3\nv_bfe_i32 v6, v5, 0, 16\nv_and_b32_e32 v5, 0xffff, v6"
    assert reading(plain).signature == reading(moved).signature is not None
    halves = "v_pk_add_f16 v6, v2, v3\n{}v_perm_b32 v5, v8, v7, v9"
    both = halves.format("v_bfe_i32 v7, v6, 0, 16\nv_ashrrev_i32_e32 v8, 16, v6\nv_mov_b32_e32 v9, 0x5040100\n")
    assert reading(both).signature == reading("v_pk_add_f16 v5, v2, v3").signature is not None
    signs = [reading(f"v_pk_add_f16 v6, v2, v3\n{line}").signature for line in ("v_bfe_i32 v5, v6, 0, 16",
             "v_ashrrev_i32_e32 v5, 16, v6", "v_bfe_u32 v5, v6, 0, 16", "v_bfe_i32 v5, v6, 0, 8")]  # fmt: skip
    assert len({*signs, None}) == 5


def test_halves_of_a_loaded_word() -> None:
    """A high half that is sign-extended and packed again is the loaded word."""
    moved = (
        "v_bfe_i32 v7, v2, 0, 16\nv_ashrrev_i32_e32 v8, 16, v2\nv_mov_b32_e32 v9, 0x5040100\nv_perm_b32 v5, v8, v7, v9"
    )
    assert reading(moved).signature == reading("v_mov_b32_e32 v5, v2").signature is not None
    lines = ("v_ashrrev_i32_e32 v6, 16, v2", "v_lshrrev_b32_e32 v6, 16, v2", "v_ashrrev_i32_e32 v6, 15, v2",
             "v_mov_b32_e32 v6, v2")  # fmt: skip
    sums = [reading(f"{line}\nv_add_f16_e32 v5, v6, v3").signature for line in lines]
    assert sums[0] == sums[1] is not None
    assert len({*sums, None}) == 4


PAIRS = "v_mov_b32_e32 v6, v2\nv_mov_b32_e32 v7, v3\nv_mov_b32_e32 v8, v4\nv_mov_b32_e32 v9, v2\n"


def min_max(operator: str, first: str = "89", second: str = "67", kind: str = "i64", last: int = 11) -> str:
    """A select of the pair `second` where v[6:7] `operator` v[8:9], else `first`; v5 is the half in v`last`."""
    low, high = (
        f"v_cndmask_b32_e32 v{to}, v{one}, v{two}, vcc\n" for to, one, two in zip((10, 11), first, second, strict=True)
    )
    compare = f"v_cmp_{operator}_{kind}_e32 vcc, v[6:7], v[8:9]\n"
    return f"{PAIRS}{compare}{low}{high}v_mov_b32_e32 v5, v{last}"


def test_64_bit_min_max_by_halves() -> None:
    """Strict and non-strict comparisons and both operand orders have one signature."""
    random = np.random.default_rng(6)
    a, b, c = (random.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(3))
    b[:16], c[8:24] = a[:16], a[8:24]
    for kind, wide in (("i64", np.int64), ("u64", np.uint64)):
        left = (a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)).view(wide)
        right = (c.astype(np.uint64) | a.astype(np.uint64) << np.uint64(32)).view(wide)
        for operator, expected in (("gt", np.maximum(left, right)), ("lt", np.minimum(left, right))):
            for last, shift in ((10, 0), (11, 32)):
                found = run(min_max(operator, kind=kind, last=last), a, b, c)
                assert (found == (expected.view(np.uint64) >> np.uint64(shift)).astype(np.uint32)).all()
    maxima = [("gt", "89", "67"), ("ge", "89", "67"), ("lt", "67", "89"), ("le", "67", "89")]
    minima = [("gt", "67", "89"), ("lt", "89", "67")]
    signatures = {reading(min_max(*each)).signature for each in maxima}
    assert len(signatures) == 1
    others = {reading(min_max(*each)).signature for each in minima}
    assert len(others) == 1
    unsigned, low = reading(min_max("gt", kind="u64")).signature, reading(min_max("gt", last=10)).signature
    mixed = reading(min_max("gt", "87")).signature
    assert len({*signatures, *others, unsigned, low, mixed, None}) == 6
