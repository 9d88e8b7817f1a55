"""The approximate functions against results of an H100 80GB HBM3, and against the machine code of ptxas."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bitwise_nvidia_sm90.approximations import DIGESTS, FUNCTIONS, REFERENCES, encode, table

MEASURED = {
    "ex2.approx.ftz.fp32@sm_90": {
        0xB3FFFFFF: 0x3F800000, 0xB4000000: 0x3F7FFFFE, 0xB47FFFFF: 0x3F7FFFFE, 0xB4800000: 0x3F7FFFFC,
        0xB4C00000: 0x3F7FFFFB, 0xB5000000: 0x3F7FFFFA, 0xB5200000: 0x3F7FFFF8, 0xBF800000: 0x3F000000,
        0xBF800001: 0x3EFFFFFE, 0xC0000001: 0x3E7FFFFC, 0xC2800001: 0x1F7FFFA6, 0xBF000000: 0x3F3504F2,
        0x7F800000: 0x7F800000, 0xFF800000: 0, 0x7FC00001: 0x7FFFFFFF, 0xFFFFFFFF: 0x7FFFFFFF, 0: 0x3F800000,
        0x80000000: 0x3F800000, 1: 0x3F800000, 0x80000001: 0x3F800000,
    },
    "rsqrt.approx.ftz.fp32@sm_90": {
        0x80000000: 0xFF800000, 0x80000001: 0xFF800000, 0x807FFFFF: 0xFF800000, 0x80800000: 0x7FFFFFFF,
        0xBF800000: 0x7FFFFFFF, 0xFF800000: 0x7FFFFFFF, 0xFFFFFFFF: 0x7FFFFFFF,
    },
    "sqrt.approx.ftz.fp32@sm_90": {
        0x80000000: 0x80000000, 0x80000001: 0x80000000, 0x807FFFFF: 0x80000000, 0x80800000: 0x7FFFFFFF,
        0xBF800000: 0x7FFFFFFF, 0xFF800000: 0x7FFFFFFF, 0xFFFFFFFF: 0x7FFFFFFF,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_measured_results(name: str) -> None:
    operands = np.array(list(MEASURED[name]), dtype=np.uint32)
    assert FUNCTIONS[name](operands).tolist() == list(MEASURED[name].values())


@pytest.mark.parametrize("name", DIGESTS)
def test_tables_are_those_measured_and_encode_to_the_same_bytes(name: str) -> None:
    found = table(name)
    assert len(found) == len(REFERENCES[name]())
    changed = found.copy()
    changed[12345] ^= np.uint32(1 << 20)
    with pytest.raises(ValueError, match="too far"):
        encode(name, changed)


@pytest.mark.parametrize("function", ["rcp", "rsqrt", "sqrt", "ex2"])
def test_forms_without_ftz_differ_only_around_subnormals(function: str) -> None:
    operands = np.random.default_rng(7).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    flushing, keeping = (FUNCTIONS[f"{function}.approx{suffix}.fp32@sm_90"](operands) for suffix in (".ftz", ""))
    exponent = (operands >> np.uint32(23)) & np.uint32(0xFF)
    subnormal = (exponent == 0) | ((keeping >> np.uint32(23)) & np.uint32(0xFF) == 0)
    assert not np.any((flushing != keeping) & ~subnormal)
    assert np.any(flushing != keeping)


TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
 .reg .b64 %rd<2>; .reg .f32 %f<4>;
 ld.param.u64 %rd1, [p]; ld.global.f32 %f1, [%rd1];
 mov.b32 %f2, 0fDIVISOR;
 div.full.f32 %f3, %f1, %f2;
 st.global.f32 [%rd1+8], %f3;
 ret;
}
"""


@pytest.mark.parametrize("divisor", [3.0, 1.7309025, 2570.3813, 1e38, 2e38, 1e-40, 0.0129030701])
def test_the_assembler_multiplies_by_the_nearest_reciprocal_of_a_literal(divisor: float, tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    pattern = np.array([divisor], dtype=np.float32).view(np.uint32)
    (tmp_path / "k.ptx").write_text(TEXT.replace("DIVISOR", f"{int(pattern[0]):08x}"))
    subprocess.run([tools / "ptxas", "-arch=sm_90a", "-o", tmp_path / "k.cubin", tmp_path / "k.ptx"], check=True)
    listing = subprocess.run(
        [tools / "cuobjdump", "-sass", tmp_path / "k.cubin"], check=True, capture_output=True, text=True
    ).stdout
    factors = [np.float32(float(each)) for each in re.findall(r"FMUL R\d+, R\d+(?:\.reuse)?, ([-+0-9.e]+)", listing)]
    assert 1 <= len(factors) <= 2
    x = np.random.default_rng(3).integers(0, 1 << 32, 4096, dtype=np.uint32)
    with np.errstate(all="ignore"):
        product = x.view(np.float32)
        for factor in factors:
            product = product * factor
    expected = np.where(np.isnan(product), np.uint32(0x7FFFFFFF), product.view(np.uint32))
    assert np.array_equal(FUNCTIONS["div.full.literal.fp32@sm_90"](x, np.broadcast_to(pattern, x.shape)), expected)


@pytest.mark.parametrize("name", ["div.full.fp32@sm_90", "div.full.literal.fp32@sm_90"])
def test_zero_divided_by_a_positive_number_of_moderate_size(name: str) -> None:
    sizes = np.random.default_rng(5).integers(0x20000000, 0x5F000001, 100_000, dtype=np.uint32)
    sizes[:2] = 0x20000000, 0x5F000000
    assert not FUNCTIONS[name](np.zeros(sizes.shape, dtype=np.uint32), sizes).any()
    assert FUNCTIONS[name](np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.uint32))[0] == 0x7FFFFFFF
