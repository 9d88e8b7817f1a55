"""Identities of PTX: those that hold for every input, and near-misses that fail in corner cases.

`=` holds for every input up to the bits of a NaN; `~` fails for some.  The checker may call either Equal: each Equal is
judged by bytes.  The marks are used in statistics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import PTX
from bitwise_bench.adversary.rewriting import Rule, rules

_FLOAT_FORMS = (
    ("f32", "f32", "b32", 31), ("f64", "f64", "b64", 63), ("f16", "f16", "b16", 15), ("bf16", "bf16", "b16", 15),
    ("h2", "f16x2", "b32", 0), ("b2", "bf16x2", "b32", 0),
)  # fmt: skip
"""Each kind of floating-point value: its type, the type of its bits, and its sign bit (0: a pair)."""

_ON_FLOATS = """
add.rn.T(x, -0.0) = x
add.rn.T(x, 0.0) ~ x
sub.rn.T(x, 0.0) = x
sub.rn.T(x, -0.0) ~ x
sub.rn.T(0.0, x) ~ neg.T(x)
sub.rn.T(-0.0, x) = neg.T(x)
mul.rn.T(x, 1.0) = x
mul.rn.T(x, -1.0) = neg.T(x)
mul.rn.T(x, 2.0) = add.rn.T(x, x)
mul.rn.T(x, 0.0) ~ 0.0
sub.rn.T(x, x) ~ 0.0
fma.rn.T(x, 1.0, -0.0) = x
fma.rn.T(x, 1.0, 0.0) ~ x
fma.rn.T(x, y, -0.0) = mul.rn.T(x, y)
fma.rn.T(x, y, 0.0) ~ mul.rn.T(x, y)
fma.rn.T(x, 1.0, y) = add.rn.T(x, y)
fma.rn.T(1.0, x, y) = add.rn.T(y, x)
fma.rn.T(x, -1.0, y) = sub.rn.T(y, x)
fma.rn.T(x, 2.0, y) ~ add.rn.T(add.rn.T(x, x), y)
fma.rn.T(x, y, z) = fma.rn.T(y, x, z)
fma.rn.T(x, y, z) ~ add.rn.T(mul.rn.T(x, y), z)
fma.rn.T(neg.T(x), y, z) = fma.rn.T(x, neg.T(y), z)
fma.rn.T(neg.T(x), y, neg.T(z)) ~ neg.T(fma.rn.T(x, y, z))
fma.rn.T(neg.T(x), y, neg.T(z)) ~ fma.rn.T(x, y, z)
add.rn.T(x, y) = add.rn.T(y, x)
mul.rn.T(x, y) = mul.rn.T(y, x)
add.rn.T(x, neg.T(y)) = sub.rn.T(x, y)
sub.rn.T(x, neg.T(y)) = add.rn.T(x, y)
sub.rn.T(x, y) ~ neg.T(sub.rn.T(y, x))
neg.T(add.rn.T(x, y)) ~ sub.rn.T(neg.T(x), y)
add.rn.T(neg.T(x), neg.T(y)) ~ neg.T(add.rn.T(x, y))
mul.rn.T(neg.T(x), y) = neg.T(mul.rn.T(x, y))
mul.rn.T(neg.T(x), neg.T(y)) = mul.rn.T(x, y)
neg.T(neg.T(x)) = x
abs.T(neg.T(x)) = abs.T(x)
abs.T(abs.T(x)) = abs.T(x)
abs.T(mul.rn.T(x, y)) = mul.rn.T(abs.T(x), abs.T(y))
abs.T(mul.rn.T(x, x)) = mul.rn.T(x, x)
abs.T(sub.rn.T(x, y)) = abs.T(sub.rn.T(y, x))
add.rn.T(add.rn.T(x, y), z) ~ add.rn.T(x, add.rn.T(y, z))
mul.rn.T(mul.rn.T(x, y), z) ~ mul.rn.T(x, mul.rn.T(y, z))
mul.rn.T(mul.rn.T(x, 2.0), y) ~ mul.rn.T(x, mul.rn.T(y, 2.0))
mul.rn.T(mul.rn.T(x, 0.5), 2.0) ~ x
mul.rn.T(mul.rn.T(x, 2.0), 0.5) ~ x
mul.rn.T(add.rn.T(x, y), 2.0) ~ add.rn.T(mul.rn.T(x, 2.0), mul.rn.T(y, 2.0))
add.rn.T(add.rn.T(x, 0.0), 0.0) = add.rn.T(x, 0.0)
add.rn.T(add.rn.T(x, 0.0), y) ~ add.rn.T(x, y)
add.rn.T(mul.rn.T(x, x), 0.0) = mul.rn.T(x, x)
add.rn.T(abs.T(x), 0.0) = abs.T(x)
add.rn.T(neg.T(x), 0.0) ~ neg.T(add.rn.T(x, 0.0))
max.T(x, x) = x
min.T(x, x) = x
max.T(x, y) = max.T(y, x)
min.T(x, y) = min.T(y, x)
max.T(max.T(x, y), z) = max.T(x, max.T(y, z))
min.T(min.T(x, y), z) = min.T(x, min.T(y, z))
max.T(max.T(x, y), y) = max.T(x, y)
max.T(x, min.T(x, y)) ~ x
min.T(x, max.T(x, y)) ~ x
max.T(neg.T(x), neg.T(y)) = neg.T(min.T(x, y))
max.T(x, -inf) ~ x
min.T(x, +inf) ~ x
max.T(x, +inf) = +inf
max.T(max.T(x, -inf), y) ~ max.T(x, y)
max.T(max.T(x, 0.0), 1.0) = max.T(x, 1.0)
max.T(max.T(x, -0.0), 0.0) = max.T(x, 0.0)
max.T(x, 0.0) ~ max.T(x, -0.0)
min.T(max.T(x, 0.0), 1.0) ~ max.T(min.T(x, 1.0), 0.0)
max.T(abs.T(x), 0.0) ~ abs.T(x)
max.T(x, neg.T(x)) = abs.T(x)
add.rn.T(max.T(x, 0.0), 0.0) = max.T(x, 0.0)
add.rn.T(max.T(x, -0.0), 0.0) ~ max.T(x, -0.0)
mul.rn.T(max.T(x, y), 2.0) = max.T(mul.rn.T(x, 2.0), mul.rn.T(y, 2.0))
add.rn.T(max.T(x, y), z) ~ max.T(add.rn.T(x, z), add.rn.T(y, z))
add.rn.T(x, -inf) ~ -inf
"""

_NAN_EXTREMA = """
max.NaN.T(x, y) = max.NaN.T(y, x)
max.NaN.T(max.NaN.T(x, y), z) = max.NaN.T(x, max.NaN.T(y, z))
max.NaN.T(x, y) ~ max.T(x, y)
min.NaN.T(x, y) ~ min.T(x, y)
max.NaN.T(x, -inf) = x
min.NaN.T(x, +inf) = x
max.NaN.T(x, x) = x
max.T(max.NaN.T(x, y), z) ~ max.NaN.T(max.T(x, y), z)
max.NaN.T(max.T(x, y), y) ~ max.T(x, y)
max.NaN.T(neg.T(x), neg.T(y)) = neg.T(min.NaN.T(x, y))
"""

_SIGN_BITS = """
neg.T(x) = xor.B(x, SIGN)
abs.T(x) = and.B(x, REST)
neg.T(x) = add.I(x, SIGN)
xor.B(xor.B(x, SIGN), SIGN) = x
neg.T(abs.T(x)) = or.B(x, SIGN)
"""

_ON_SCALARS = """
selp K(x, x, p) = x
selp K(x, y, p) = guarded K(x, y, p)
selp K(x, y, not.pred(p)) = selp K(y, x, p)
selp K(selp K(x, y, p), y, p) = selp K(x, y, p)
selp K(x, selp K(y, z, p), p) = selp K(x, z, p)
selp K(x, y, p) ~ selp K(y, x, p)
"""

_COMPARED = """
selp K(x, y, setp.gt.K(x, y)) ~ max.K(x, y)
selp K(x, y, setp.lt.K(x, y)) ~ min.K(x, y)
selp K(x, 0.0, setp.gt.K(x, 0.0)) = max.K(x, 0.0)
selp K(x, y, setp.lt.K(x, y)) = selp K(x, y, setp.gt.K(y, x))
selp K(x, y, setp.lt.K(x, y)) = selp K(y, x, setp.geu.K(x, y))
selp K(x, y, setp.lt.K(x, y)) ~ selp K(y, x, setp.ge.K(x, y))
selp K(x, y, setp.eq.K(x, y)) ~ y
selp K(x, y, setp.nan.K(x, x)) ~ y
selp K(x, y, setp.neu.K(x, x)) = selp K(x, y, setp.nan.K(x, x))
selp K(x, y, setp.ge.K(x, y)) ~ selp K(x, y, setp.gt.K(x, y))
selp K(neg.K(x), x, setp.lt.K(x, 0.0)) ~ abs.K(x)
"""

_PREDICATES = """
p: not.pred(not.pred(a)) = a
p: and.pred(a, b) = and.pred(b, a)
p: or.pred(a, b) = or.pred(b, a)
p: xor.pred(a, b) = xor.pred(b, a)
p: and.pred(a, a) = a
p: not.pred(and.pred(a, b)) = or.pred(not.pred(a), not.pred(b))
p: setp.lt.f32(x, y) = setp.gt.f32(y, x)
p: setp.lt.f32(x, y) ~ not.pred(setp.ge.f32(x, y))
p: setp.lt.f32(x, y) = not.pred(setp.geu.f32(x, y))
p: setp.eq.f32(x, y) = setp.eq.f32(y, x)
p: setp.eq.f32(x, y) = not.pred(setp.neu.f32(x, y))
p: setp.le.s32(x, y) = not.pred(setp.gt.s32(x, y))
p: setp.lt.s32(x, y) ~ setp.lt.u32(x, y)
p: setp.nan.f32(x, y) = not.pred(setp.num.f32(x, y))
p: setp.lt.ftz.f32(x, y) ~ setp.lt.f32(x, y)
p: setp.eq.b32(x, y) ~ setp.eq.f32(x, y)
p: testp.notanumber.f32(x) = setp.nan.f32(x, x)
p: testp.finite.f32(x) ~ testp.number.f32(x)
"""

_CONVERSIONS = """
f16: cvt.rn.f16.f32(cvt.f32.f16(x)) = x
bf16: cvt.rn.bf16.f32(cvt.f32.bf16(x)) = x
bf16: bf16 of f32(cvt.f32.bf16(x)) = x
f32: cvt.f32.f16(cvt.rn.f16.f32(x)) ~ x
f32: cvt.f32.bf16(cvt.rn.bf16.f32(x)) ~ x
f32: cvt.f32.bf16(x) = high half(x)
f32: cvt.rn.f32.f64(cvt.f64.f32(x)) = x
f64: cvt.f64.f32(cvt.rn.f32.f64(x)) ~ x
f64: cvt.f64.f32(cvt.f32.f16(x)) = cvt.f64.f16(x)
bf16: cvt.rn.bf16.f32(x) ~ bf16 of f32(x)
bf16: cvt.rz.bf16.f32(x) ~ bf16 of f32(x)
f16: cvt.rz.f16.f32(x) ~ cvt.rn.f16.f32(x)
f16: cvt.rn.relu.f16.f32(x) ~ max.f16(cvt.rn.f16.f32(x), 0.0)
f16: cvt.rn.relu.f16.f32(x) = max.NaN.f16(cvt.rn.f16.f32(x), 0.0)
f16: cvt.rn.sat.f16.f32(x) = cvt.rn.f16.f32(cvt.sat.f32.f32(x))
f32: cvt.sat.f32.f32(x) = add.rn.sat.f32(x, 0.0)
f32: mul.rn.sat.f32(x, y) = cvt.sat.f32.f32(mul.rn.f32(x, y))
f32: add.rn.ftz.f32(x, y) ~ add.rn.f32(x, y)
f32: mul.rn.ftz.f32(x, y) ~ cvt.ftz.f32.f32(mul.rn.f32(x, y))
f32: cvt.ftz.f32.f32(cvt.ftz.f32.f32(x)) = cvt.ftz.f32.f32(x)
f16: add.rn.f16(x, y) = cvt.rn.f16.f32(add.rn.f32(cvt.f32.f16(x), cvt.f32.f16(y)))
f16: mul.rn.f16(x, y) = cvt.rn.f16.f32(mul.rn.f32(cvt.f32.f16(x), cvt.f32.f16(y)))
f16: fma.rn.f16(x, y, z) ~ cvt.rn.f16.f32(fma.rn.f32(cvt.f32.f16(x), cvt.f32.f16(y), cvt.f32.f16(z)))
bf16: add.rn.bf16(x, y) = cvt.rn.bf16.f32(add.rn.f32(cvt.f32.bf16(x), cvt.f32.bf16(y)))
bf16: mul.rn.bf16(x, y) = cvt.rn.bf16.f32(mul.rn.f32(cvt.f32.bf16(x), cvt.f32.bf16(y)))
f16: max.f16(x, y) = cvt.rn.f16.f32(max.f32(cvt.f32.f16(x), cvt.f32.f16(y)))
bf16: max.bf16(x, y) = cvt.rn.bf16.f32(max.f32(cvt.f32.bf16(x), cvt.f32.bf16(y)))
bf16: max.bf16(x, y) = bf16 of f32(max.f32(high half(x), high half(y)))
f16: neg.f16(x) = cvt.rn.f16.f32(neg.f32(cvt.f32.f16(x)))
f16: abs.f16(x) = cvt.rn.f16.f32(abs.f32(cvt.f32.f16(x)))
f16: abs.f16(x) ~ abs.bf16(x)
f16: neg.f16(x) ~ neg.bf16(x)
f16: max.f16(x, y) ~ max.bf16(x, y)
f32: fma.rn.f32(cvt.f32.f16(x), cvt.f32.f16(y), z) = add.rn.f32(mul.rn.f32(cvt.f32.f16(x), cvt.f32.f16(y)), z)
f32: fma.rn.f32(cvt.f32.bf16(x), cvt.f32.bf16(y), z) ~ add.rn.f32(mul.rn.f32(cvt.f32.bf16(x), cvt.f32.bf16(y)), z)
f32: cvt.rn.f32.s32(x) ~ cvt.rn.f32.u32(x)
f32: cvt.rn.f32.s16(x) = cvt.rn.f32.s32(cvt.s32.s16(x))
f32: cvt.rn.f32.u16(x) = cvt.rn.f32.s32(cvt.u32.u16(x))
f32: cvt.rn.f32.s32(x) = cvt.rn.f32.s64(cvt.s64.s32(x))
f32: cvt.rn.f32.f64(cvt.rn.f64.s32(x)) = cvt.rn.f32.s32(x)
f32: cvt.rz.f32.s32(x) ~ cvt.rn.f32.s32(x)
i32: cvt.rzi.s32.f16(x) = cvt.rzi.s32.f32(cvt.f32.f16(x))
i32: cvt.rzi.s32.f32(x) ~ cvt.rni.s32.f32(x)
i32: cvt.rzi.s32.f32(x) ~ cvt.rzi.u32.f32(x)
i32: cvt.rzi.s32.f32(cvt.rzi.f32.f32(x)) = cvt.rzi.s32.f32(x)
i32: cvt.rzi.s32.f64(cvt.f64.f32(x)) ~ cvt.rzi.s32.f32(x)
i32: cvt.rzi.s32.f32(cvt.rn.f32.s32(x)) ~ x
h2: cvt.rn.f16x2.f32(x, y) = pack h2(cvt.rn.f16.f32(y), cvt.rn.f16.f32(x))
h2: cvt.rn.f16x2.f32(x, y) ~ pack h2(cvt.rn.f16.f32(x), cvt.rn.f16.f32(y))
b2: cvt.rn.bf16x2.f32(x, y) = pack b2(cvt.rn.bf16.f32(y), cvt.rn.bf16.f32(x))
h2: cvt.rn.f16x2.e4m3x2(x) ~ cvt.rn.f16x2.e5m2x2(x)
q2: cvt.rn.satfinite.e4m3x2.f16x2(cvt.rn.f16x2.e4m3x2(x)) ~ x
q2: cvt.rn.satfinite.e5m2x2.f16x2(cvt.rn.f16x2.e5m2x2(x)) ~ x
f32: rcp.rn.f32(x) = div.rn.f32(1.0, x)
f32: div.rn.f32(x, 2.0) = mul.rn.f32(x, 0.5)
f32: div.rn.f32(x, 1.0) = x
f32: div.rn.f32(neg.f32(x), y) = neg.f32(div.rn.f32(x, y))
f32: div.rn.f32(x, y) ~ mul.rn.f32(x, rcp.rn.f32(y))
f32: div.full.f32(x, 2.0) ~ mul.rn.f32(x, 0.5)
f32: div.full.f32(x, 1.0) ~ x
f32: div.full.f32(x, y) ~ div.rn.f32(x, y)
f32: div.full.f32(neg.f32(x), y) ~ neg.f32(div.full.f32(x, y))
f32: sqrt.rn.f32(mul.rn.f32(x, x)) ~ abs.f32(x)
f32: abs.f32(sqrt.rn.f32(x)) ~ sqrt.rn.f32(x)
f32: sqrt.rn.f32(x) ~ sqrt.approx.f32(x)
f32: ex2.approx.f32(x) ~ ex2.approx.ftz.f32(x)
f32: abs.f32(ex2.approx.f32(x)) = ex2.approx.f32(x)
f32: add.rn.f32(ex2.approx.f32(x), 0.0) = ex2.approx.f32(x)
f32: add.rn.f32(ex2.approx.f32(x), ex2.approx.f32(add.rn.f32(y, -inf))) ~ ex2.approx.f32(x)
f32: ex2.approx.f32(add.rn.f32(x, -inf)) ~ 0.0
f32: ex2.approx.f32(sub.rn.f32(-inf, x)) ~ 0.0
f32: add.rn.f32(y, ex2.approx.f32(sub.rn.f32(-inf, x))) ~ y
f32: min.xorsign.abs.f32(x, y) ~ min.f32(x, y)
f32: max.xorsign.abs.f32(x, x) ~ abs.f32(x)
f32: copysign.f32(x, x) = x
f32: copysign.f32(0.0, x) = abs.f32(x)
f32: copysign.f32(x, neg.f32(y)) = copysign.f32(x, y)
f32: set.lt.f32.f32(x, y) = selp f32(1.0, 0.0, setp.lt.f32(x, y))
i32: set.lt.u32.f32(x, y) = selp i32(0xffffffff, 0, setp.lt.f32(x, y))
f32: guarded add.rn.f32(x, y, p) = selp f32(add.rn.f32(x, y), x, p)
f32: guarded not add.rn.f32(x, y, p) = selp f32(x, add.rn.f32(x, y), p)
f32: guarded not add.rn.f32(x, y, p) ~ guarded add.rn.f32(x, y, p)
f32: guarded mul.rn.f32(x, y, p) = selp f32(mul.rn.f32(x, y), x, p)
"""

_MOVES = """
i32: pack i32(low i32(x), high i32(x)) = x
h2: pack h2(low h2(x), high h2(x)) = x
h2: pack h2(high h2(x), low h2(x)) = swap h2(x)
b2: pack b2(low b2(x), high b2(x)) = x
h2: swap h2(swap h2(x)) = x
h2: choose h2(x, x, 0x1032) = swap h2(x)
h2: choose h2(x, y, 0x5410) = pack h2(low h2(x), low h2(y))
h2: choose h2(x, y, 0x7632) = pack h2(high h2(x), high h2(y))
h2: choose h2(x, y, 0x3210) = x
h2: choose h2(x, y, 0x7654) = y
h2: choose h2(x, y, 0x5410) ~ choose h2(x, y, 0x5432)
f16: low h2(x) = cvt low h2(x)
f16: high h2(x) = shifted h2(x)
f16: low h2(x) ~ high h2(x)
f16: low h2(pack h2(x, y)) = x
f16: high h2(pack h2(x, y)) = y
f16: low h2(add.rn.f16x2(x, y)) = add.rn.f16(low h2(x), low h2(y))
f16: high h2(add.rn.f16x2(x, y)) = add.rn.f16(high h2(x), high h2(y))
f16: low h2(max.f16x2(x, y)) = max.f16(low h2(x), low h2(y))
f16: low h2(neg.f16x2(x)) = neg.f16(low h2(x))
f16: high h2(fma.rn.f16x2(x, y, z)) = fma.rn.f16(high h2(x), high h2(y), high h2(z))
h2: add.rn.f16x2(x, y) = pack h2(add.rn.f16(low h2(x), low h2(y)), add.rn.f16(high h2(x), high h2(y)))
h2: mul.rn.f16x2(x, y) = pack h2(mul.rn.f16(low h2(x), low h2(y)), mul.rn.f16(high h2(x), high h2(y)))
h2: neg.f16x2(x) = pack h2(neg.f16(low h2(x)), neg.f16(high h2(x)))
h2: swap h2(add.rn.f16x2(x, y)) = add.rn.f16x2(swap h2(x), swap h2(y))
b2: add.rn.bf16x2(x, y) = pack b2(add.rn.bf16(low b2(x), low b2(y)), add.rn.bf16(high b2(x), high b2(y)))
b2: max.bf16x2(x, y) = pack b2(max.bf16(low b2(x), low b2(y)), max.bf16(high b2(x), high b2(y)))
h2: add.rn.f16x2(x, y) ~ add.rn.bf16x2(x, y)
h2: max.f16x2(x, y) ~ max.bf16x2(x, y)
h2: max.s16x2(x, y) ~ max.f16x2(x, y)
f32: low f32 of b2(x) = cvt.f32.bf16(low b2(x))
f32: high f32 of b2(x) = cvt.f32.bf16(high b2(x))
i64: pack i64(low i64(x), high i64(x)) = x
i32: low i64(x) = cvt.u32.u64(x)
i32: high i64(x) = cvt.u32.u64(shr.u64(x, 32))
i32: low i64(pack i64(x, y)) = x
f64: pack f64(low f64(x), high f64(x)) = x
f32: shared f32(x) = x
h2: shared h2(x) = x
f64: shared f64(x) = x
f16: shared low h2(x) = low h2(x)
f16: shared high h2(x) = high h2(x)
h2: shared pack h2(x, y) = pack h2(x, y)
f32: shared high f64(x) = high f64(x)
f32: shared other f32(x) ~ x
f32: shared other f32(shared other f32(x)) = x
f32: shfl.bfly f32(x, 1) = shared other f32(x)
f32: shfl.bfly f32(shfl.bfly f32(x, 2), 2) = x
f32: shfl.bfly f32(x, 16) ~ x
f32: shfl.bfly f32(add.rn.f32(x, y), 1) = add.rn.f32(shfl.bfly f32(x, 1), shfl.bfly f32(y, 1))
f32: shfl.down f32(x, 1) ~ shfl.bfly f32(x, 1)
f32: shfl.idx f32(x, 0) ~ x
i32: as f32 i32(as i32 f32(x)) = x
f32: as i32 f32(as f32 i32(x)) = x
f16: as bf16 f16(x) = as i16 f16(as bf16 i16(x))
f32: as h2 f32(swap h2(swap h2(as f32 h2(x)))) = x
"""

_ON_INTEGERS = """
add.sN(x, y) = add.sN(y, x)
add.sN(x, y) = add.uN(x, y)
add.sN(add.sN(x, y), z) = add.sN(x, add.sN(y, z))
sub.sN(x, y) = add.sN(x, neg.sN(y))
sub.sN(x, y) = neg.sN(sub.sN(y, x))
neg.sN(x) = sub.sN(0, x)
neg.sN(x) = add.sN(not.bN(x), 1)
not.bN(x) = xor.bN(x, -1)
not.bN(x) = sub.sN(-1, x)
add.sN(x, 0) = x
mul.lo.sN(x, 1) = x
mul.lo.sN(x, 0) = 0
mul.lo.sN(x, 2) = add.sN(x, x)
mul.lo.sN(x, 4) = shl.bN(x, 2)
mul.lo.sN(x, y) = mul.lo.sN(y, x)
mul.lo.sN(x, y) = mul.lo.uN(x, y)
mul.hi.sN(x, y) ~ mul.hi.uN(x, y)
mul.lo.sN(mul.lo.sN(x, y), z) = mul.lo.sN(x, mul.lo.sN(y, z))
mul.lo.sN(add.sN(x, y), 3) = add.sN(mul.lo.sN(x, 3), mul.lo.sN(y, 3))
mad.lo.sN(x, y, z) = add.sN(mul.lo.sN(x, y), z)
shl.bN(x, 1) = add.sN(x, x)
shl.bN(shl.bN(x, 1), 2) = shl.bN(x, 3)
shr.uN(shl.bN(x, 8), 8) ~ x
shr.sN(shl.bN(x, 8), 8) ~ x
shr.uN(x, 1) ~ shr.sN(x, 1)
shr.uN(shr.uN(x, 8), 8) = shr.uN(x, 16)
shr.uN(x, 1) = div.uN(x, 2)
shr.sN(x, 1) ~ div.sN(x, 2)
rem.uN(x, 16) = and.bN(x, 15)
rem.sN(x, 16) ~ and.bN(x, 15)
and.bN(x, x) = x
and.bN(x, y) = and.bN(y, x)
and.bN(x, -1) = x
and.bN(x, 0) = 0
or.bN(x, 0) = x
or.bN(x, y) = or.bN(y, x)
or.bN(x, y) ~ add.sN(x, y)
xor.bN(x, x) = 0
xor.bN(x, 0) = x
xor.bN(x, y) = xor.bN(y, x)
xor.bN(xor.bN(x, y), y) = x
and.bN(or.bN(x, y), z) = or.bN(and.bN(x, z), and.bN(y, z))
not.bN(and.bN(x, y)) = or.bN(not.bN(x), not.bN(y))
add.sN(xor.bN(x, y), and.bN(x, y)) = or.bN(x, y)
max.sN(x, y) = max.sN(y, x)
max.sN(x, y) ~ max.uN(x, y)
max.sN(max.sN(x, y), z) = max.sN(x, max.sN(y, z))
min.sN(x, max.sN(x, y)) = x
max.sN(neg.sN(x), neg.sN(y)) ~ neg.sN(min.sN(x, y))
abs.sN(neg.sN(x)) = abs.sN(x)
max.sN(x, neg.sN(x)) = abs.sN(x)
selp iN(x, y, setp.gt.sN(x, y)) = max.sN(x, y)
selp iN(x, y, setp.lt.uN(x, y)) = min.uN(x, y)
"""

_WIDTH_CHANGES = """
i32: cvt.u32.u16(cvt.u16.u32(x)) = and.b32(x, 0xffff)
i32: cvt.s32.s16(cvt.s16.s32(x)) = shr.s32(shl.b32(x, 16), 16)
i32: cvt.s32.s16(x) ~ cvt.u32.u16(x)
i64: cvt.s64.s32(x) ~ cvt.u64.u32(x)
i32: cvt.u32.u64(cvt.s64.s32(x)) = x
i32: cvt.u32.u64(cvt.u64.u32(x)) = x
i32: cvt.u32.u64(add.s64(cvt.s64.s32(x), cvt.s64.s32(y))) = add.s32(x, y)
i64: cvt.s64.s32(add.s32(x, y)) ~ add.s64(cvt.s64.s32(x), cvt.s64.s32(y))
i64: cvt.u64.u32(mul.lo.s32(x, y)) ~ mul.lo.s64(cvt.u64.u32(x), cvt.u64.u32(y))
i64: mul.wide.s32(x, y) = mul.lo.s64(cvt.s64.s32(x), cvt.s64.s32(y))
i64: mul.wide.u32(x, y) = mul.lo.s64(cvt.u64.u32(x), cvt.u64.u32(y))
i64: mul.wide.s32(x, y) ~ mul.wide.u32(x, y)
i32: mul.hi.u32(x, y) = high i64(mul.wide.u32(x, y))
i32: bfe.u32(x, 8, 8) = and.b32(shr.u32(x, 8), 255)
i32: bfe.s32(x, 16, 16) = shr.s32(x, 16)
i32: bfe.u32(x, 0, 32) = x
i32: bfi.b32(x, y, 0, 16) = or.b32(and.b32(x, 0xffff), and.b32(y, 0xffff0000))
i32: lop3.b32(x, y, z, 0x96) = xor.b32(xor.b32(x, y), z)
i32: lop3.b32(x, y, z, 0xc0) = and.b32(x, y)
i32: lop3.b32(x, y, z, 0xfc) = or.b32(x, y)
i32: lop3.b32(x, y, z, 0x3c) = xor.b32(x, y)
i32: prmt.b32(x, y, 0x3210) = x
i32: prmt.b32(x, x, 0x1032) = shf.l.wrap.b32(x, x, 16)
i32: shf.l.wrap.b32(x, y, 0) = y
i32: popc.b32(brev.b32(x)) = popc.b32(x)
i32: brev.b32(brev.b32(x)) = x
i32: clz.b32(x) ~ bfind.u32(x)
i32: sad.u32(x, y, 0) = sub.s32(max.u32(x, y), min.u32(x, y))
i32: sad.s32(x, y, z) ~ sad.u32(x, y, z)
i32: dp4a.s32.s32(x, y, z) ~ dp4a.u32.u32(x, y, z)
i32: dp4a.s32.s32(x, y, z) = dp4a.s32.s32(y, x, z)
i32: cvt.s32.s8(x) = cvt.s32.s16(cvt.s16.s8(cvt.u16.u32(x)))
"""


def _lines() -> Iterator[str]:
    def of(text: str) -> Iterator[str]:
        return (line for line in text.splitlines() if line)

    for kind, form, bits, top in _FLOAT_FORMS:
        table = [*of(_ON_FLOATS), *(of(_NAN_EXTREMA) if kind != "f64" else ())]
        yield from (f"{kind}: {line.replace('.T(', f'.{form}(')}" for line in table)
        sign = 1 << top if top else 0x80008000
        rest = (1 << int(bits[1:])) - 1 ^ sign
        for line in of(_SIGN_BITS):
            if "add.I" in line and not top:
                continue
            changed = line.replace(".T(", f".{form}(").replace(".B(", f".{bits}(").replace(".I(", f".s{bits[1:]}(")
            yield f"{kind}: {changed.replace('SIGN', hex(sign)).replace('REST', hex(rest))}"
    for kind in ("f32", "f64", "f16", "bf16", "i32", "i64", "h2"):
        yield from (f"{kind}: {line.replace('K(', f'{kind}(')}" for line in of(_ON_SCALARS))
    for kind in ("f32", "f64", "f16", "bf16"):
        yield from (f"{kind}: {line.replace('K(', f'{kind}(')}" for line in of(_COMPARED))
    for width in (16, 32, 64):
        for line in of(_ON_INTEGERS):
            if width > 16 or "selp" not in line:
                yield f"i{width}: {_of_width(line, width)}"
    for text in (_PREDICATES, _CONVERSIONS, _MOVES, _WIDTH_CHANGES):
        yield from of(text)


def _of_width(line: str, bits: int) -> str:
    for letter in ("s", "u", "b"):
        line = line.replace(f".{letter}N(", f".{letter}{bits}(")
    return line.replace("iN(", f"i{bits}(")


@cache
def identities() -> tuple[Rule, ...]:
    """Return the identities that hold, in both directions where possible."""
    return tuple(rule for rule in rules(_lines(), PTX) if rule.holds)


@cache
def near_misses() -> tuple[Rule, ...]:
    """Return the rewritings that fail for some inputs."""
    return tuple(rule for rule in rules(_lines(), PTX) if not rule.holds)
