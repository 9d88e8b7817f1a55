"""The operations on registers that compilers use: with others, an assembler is not trusted.

PTX has some thousand forms of operations.  ptxas has patterns over two or three of them at once, and some return other
bits than the instructions one by one.  Compilers use a part of the forms.  Pairs of these are executed
(`python -m bitwise_bench.assembler.merge_search --usual`, `records/assembler-merges-sm90.json`), and the known
exceptions are rules of `merges`.  What ptxas makes of an operation of another form, together with one that it reads or
that reads it, is not known.  So the result of the later one of the two is one of its text.

The forms are those in texts of Triton, TorchInductor and nvcc, in all their types and roundings.  No text has a
conversion to an integer of 8 bits: compilers keep one in the lower bits of 16.
"""

from __future__ import annotations

import re
from functools import lru_cache

from bitwise_core.assembly.module import Kernel, Register, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable

_USUAL = (
    r"(mov|selp)\.\w+|cvta\..*",
    r"setp\.(lt|le|gt|ge|eq|ne|lo|ls|hi|hs)(\.(and|or|xor))?\.[bsu](16|32|64)",
    r"setp\.((lt|le|gt|ge|eq|ne)u?|num|nan)(\.(and|or|xor))?(\.ftz)?\.(b?f16(x2)?|f32|f64)",
    r"(and|or|xor|not)\.(pred|b16|b32|b64)|(shl\.b|shr\.[bsu])(16|32|64)",
    r"(add|sub|mul\.lo|mad\.lo|div|rem|min|max)\.[su](16|32|64)|mul\.hi\.[su](16|32|64)|(mul|mad)\.wide\.[su](16|32)",
    r"(add|sub|mad\.lo|mad\.hi)\.cc\.[su](32|64)|(addc|subc|madc\.lo|madc\.hi)(\.cc)?\.[su](32|64)",
    r"(add|sub|min|max)\.[su]16x2|(min|max)\.relu\.s32|(min|max)(\.ftz)?\.xorsign\.abs\.f32",
    r"(neg|abs)\.s(32|64)|neg\.s16|(popc|clz|brev)\.b(32|64)|bfind\.[su](32|64)",
    r"bfe\.[su](32|64)|bfi\.b(32|64)|prmt\.b32|shf\.[lr]\.(wrap|clamp)\.b32|lop3\.b32",
    r"(add|sub|mul)(\.r[nzmp])?(\.ftz)?\.f32|fma\.r[nzmp](\.ftz)?\.f32|(add|sub|mul|fma)(\.r[nzmp])?\.f64",
    r"(add|sub|mul|fma)(\.rn)?\.b?f16(x2)?|(add|sub|mul|fma)(\.rn)?\.f32x2",
    r"(neg|abs)(\.ftz)?\.f32|(neg|abs)\.(f64|b?f16(x2)?)|(copysign|testp\.\w+)\.f(32|64)",
    r"(min|max)(\.ftz)?(\.NaN)?\.f32|(min|max)\.f64|(min|max)(\.NaN)?\.b?f16(x2)?",
    r"div\.(rn|full|approx)(\.ftz)?\.f32|(div|rcp|sqrt)\.rn\.f64|(rcp|sqrt)\.(rn|approx)(\.ftz)?\.f32",
    r"(rsqrt|ex2|lg2|sin|cos|tanh)\.approx(\.ftz)?\.f32",
    r"cvt\.[su](16|32|64)\.[su](8|16|32|64)|cvt\.r[nzmp]\.(b?f16|f32|f64)\.[su](8|16|32|64)",
    r"cvt\.r[nzmp]i(\.ftz)?\.[su](32|64)\.f(32|64)|cvt\.rzi(\.ftz)?\.[su]16\.f32|cvt\.rzi\.[su](16|32|64)\.b?f16",
    r"cvt(\.r[nzmp]i)?(\.ftz)?\.f32\.f32|cvt\.r[nzmp]i\.(f16\.f16|f64\.f64)|cvt(\.ftz)?\.sat\.f32\.f32",
    r"cvt(\.ftz)?\.f32\.b?f16|cvt\.rn\.b?f16(x2)?\.f32|cvt(\.rn)?\.bf16\.f16|cvt\.rna\.tf32\.f32",
    r"cvt\.f64\.(b?f16|f32)|cvt\.rn\.b?f16\.f64|cvt\.r[nzmp]\.f32\.f64",
    r"cvt\.rn\.satfinite\.e\dm\dx2\.(f32|f16x2)|cvt\.rn\.f16x2\.e\dm\dx2",
    r"cvt\.r[zp]\.satfinite\.ue8m0x2\.(f32|bf16x2)|cvt\.rn\.bf16x2\.ue8m0x2",
)
"""Opcodes, by what they compute."""
_PATTERN = re.compile("|".join(f"(?:{each})" for each in _USUAL))
_NARROW = re.compile(r"cvt\.(?:[\w.]+\.)?[bsuf]*(?:8|16)\.\w+")
"""Conversions to numbers of 8 and 16 bits."""
_ROOT = re.compile(
    r"(abs|add|addc|and|bfe|bfi|bfind|bmsk|brev|clz|cnot|copysign|cos|cvt|div|dp2a|dp4a|ex2|fma|fns|lg2|lop3|mad|mad24|madc"
    r"|max|min|mul|mul24|neg|not|or|popc|prmt|rcp|rem|rsqrt|sad|selp|set|setp|shf|shl|shr|sin|slct|sqrt|sub|subc|szext"
    r"|tanh|testp|xor)\..*"
)
"""Operations on the registers of a thread, all but moves."""


@lru_cache(maxsize=4096)
def is_operation(opcode: str) -> bool:
    """Return whether an opcode is an operation on the registers of one thread that an assembler may merge."""
    return _ROOT.fullmatch(opcode) is not None


@lru_cache(maxsize=4096)
def is_unusual(opcode: str, bits: int = 0) -> bool:
    """Return whether an opcode is an operation that compilers do not use, with a result register of some bits.

    Compilers convert to numbers of 8 and 16 bits in registers of 16 bits only.
    """
    wider = bits > 16 and _NARROW.fullmatch(opcode) is not None
    return is_operation(opcode) and (wider or _PATTERN.fullmatch(opcode) is None)


@once_a_kernel
def unusual_operations(kernel: Kernel, _: OpcodeTable) -> frozenset[int]:
    """Return the operations of a kernel that compilers do not use, by the identities of their instructions."""
    found: set[int] = set()
    for each in kernel.instructions:
        target = each.operands[0] if each.operands else None
        bits = _width(target.name, kernel) if isinstance(target, Register) else 0
        if is_unusual(each.opcode, bits):
            found.add(id(each))
    return frozenset(found)


def _width(name: str, kernel: Kernel) -> int:
    """Return the declared width of a register in bits; 64, the largest one, where none is found."""
    return kernel.registers.get(name) or kernel.registers.get(name.rstrip("0123456789")) or 64
