"""Options of Triton's AMD backend that the corpus tries for gfx942, and the configurations that it does not compile.

Source: triton/backends/amd/compiler.py, HIPOptions: `waves_per_eu` is the number of wavefronts to be resident on a SIMD
unit, which limits its registers; `matrix_instr_nonkdim` the number of rows and columns of the matrix instruction (0:
chosen by the compiler); `kpack` the number of operands that a lane loads together.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

MATMUL_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"matrix_instr_nonkdim": 16},
    {"matrix_instr_nonkdim": 32},
    {"matrix_instr_nonkdim": 16, "kpack": 2},
    {"waves_per_eu": 2},
)

OPTIONS: tuple[Mapping[str, Any], ...] = ({"waves_per_eu": 4},)

_TOO_LARGE = "more than the 64 KiB of LDS"
_WIDE = "head=128,bm=128,bn=64,causal"

UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "gemm_tf32x3": "the backend has no tf32x3 products",
        "quantise_row": "the backend's device library has no rint",
        "gemm_fp64/64x96x80/gemm,bm=32,bn=32,bk=16,group=8,sum=fp64,out=fp64,precision=ieee,warps=4,stages=2,"
        "matrix_instr_nonkdim=32": "the fp64 instruction has 16 rows and columns",
        f"attention/fp16-fp32-128x192--1000000.0/attention_forward,{_WIDE}=false,fill=-1000000.0,skip=false,"
        "warps=8,stages=3": _TOO_LARGE,
        "attention/fp16-fp32-128x192--1000000.0/attention_forward,head=128,bm=64,bn=128,causal=false,"
        "fill=-1000000.0,skip=false,warps=4,stages=2": _TOO_LARGE,
        f"attention_causal/bf16-fp32-128x192--inf/attention_forward,{_WIDE}=true,fill=-inf,skip=true,"
        "warps=8,stages=3": _TOO_LARGE,
        "inductor_split_k/fp32-64x64x384-2/split_product,m=64,n=64,k=384,bm=32,bn=64,bk=64,split=2,group=8,"
        "warps=4,stages=4": _TOO_LARGE,
    }
)
