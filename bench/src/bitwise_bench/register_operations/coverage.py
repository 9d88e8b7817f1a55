"""What records of register operations leave out, and why: forms that are not modelled, and other opcodes."""

from __future__ import annotations

import re

from bitwise_bench.register_operations.forms import Form

_UNMEASURED = "the function of the hardware has not been measured"
_ABSENT = "not modelled"
_UNDEFINED = "not defined by the PTX ISA, although ptxas accepts it"

UNMODELLED = {
    r"\b(lg2|sin|cos|tanh)\.approx": _UNMEASURED,
    r"\bdiv\.(approx|full\.ftz)": _UNMEASURED,
    r"\bex2\.approx\.(ftz\.)?b?f16": _UNMEASURED,
    r"\b(rcp|rsqrt)\.approx\.(ftz\.)?f64": _UNMEASURED,
    r"\bfma\.r[zmp]\.(relu\.)?bf16": _UNDEFINED,
    r"\brcp\.r[nzmp]\.ftz\.f64": _UNDEFINED,
    r"\b(add|sub|mad\.hi)\.sat\.s32": _ABSENT,
    r"\b(mad\.hi\.cc|madc\.hi(\.cc)?)\.s32": _ABSENT,
    r"\bsub\.cc": _ABSENT,
    r"\b(add|sub)\.cc\.[su]64": _ABSENT,
    r"\b(mul24|mad24|dp2a|cnot|match)\.": _ABSENT,
    r"\blop3\.or": _ABSENT,
    r"\bprmt\.b32\.[a-z]": _ABSENT,
    r"\bset\.\w+\.and": _ABSENT,
    r"\bset\.\w+\.(ftz\.)?b?f16(x2)?\.": _ABSENT,
    r"\bcvt\.pack\.sat\.[us][24]\.": _ABSENT,
}
"""Patterns of the texts of forms that stop an analysis as Unknown, although ptxas accepts them, and why."""

_MEMORY = "accesses memory"
_ADDRESS = "computes or tests an address"
_MATRIX = "a matrix instruction, which has rows and records of its own"
_CONTROL = "directs control flow, or has no result"
_SYNCHRONISES = "synchronises threads or copies"
_BY_DEFINITION = "not recorded; tested against the loop that defines it in the PTX ISA"

OTHER_OPCODES = {
    **dict.fromkeys(("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "cp", "tensormap"), _MEMORY),
    **dict.fromkeys(("prefetch", "prefetchu", "applypriority", "createpolicy"), _MEMORY),
    **dict.fromkeys(("cvta", "isspacep", "mapa", "getctarank"), _ADDRESS),
    **dict.fromkeys(("mma", "wgmma"), _MATRIX),
    **dict.fromkeys(("bra", "brx", "call", "ret", "exit", "trap", "brkpt", "nop", "pragma"), _CONTROL),
    **dict.fromkeys(("nanosleep", "setmaxnreg", "griddepcontrol"), _CONTROL),
    **dict.fromkeys(("bar", "barrier", "mbarrier", "membar", "fence"), _SYNCHRONISES),
    "fns": _BY_DEFINITION,
}
"""Opcodes of the tables that are no register operations, and why."""


def unmodelled(form: Form) -> str | None:
    """Return the pattern of `UNMODELLED` that matches a form, or None if the form is modelled."""
    return next((pattern for pattern in UNMODELLED if re.search(pattern, form.text)), None)
