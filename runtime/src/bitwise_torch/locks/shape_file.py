"""Shape files: text files with one matrix product on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import DTYPES, GEMMProblem
from bitwise_core.input_files import read_text
from bitwise_torch.locks.lock_error import LockError

_SIZES = re.compile(r"(\d{1,10})[\s,x]+(\d{1,10})[\s,x]+(\d{1,10})(?:[\s,]+(.*))?\Z")
_LINE_FORM = "M N K, optionally followed by a type, a layout (NN, NT, TN or TT), out=TYPE, batch=B or bias"


def read_problems(path: Path, dtype: str = "fp16", out: str | None = None) -> Iterator[GEMMProblem]:
    """Yield the problem of each line: `M N K`, then optionally a type, a layout, `out=fp32`, `batch=8` or `bias`.

    `dtype` and `out` are the types of lines that name none; the default of `out` is the operands' type, bf16 for fp8.
    Empty lines and text after # are ignored.  Raises LockError, with the line number, for a malformed line.
    """
    text = read_text(path, LockError)
    empty = True
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        empty = False
        try:
            yield problem_of_line(content, dtype, out)
        except (LockError, DescriptorError) as error:
            raise LockError(f"{path}:{number}: {error}") from None
    if empty:
        raise LockError(f"{path}: has no product; write lines of the form {_LINE_FORM}")


def problem_of_line(line: str, dtype: str = "fp16", out: str | None = None) -> GEMMProblem:
    """Return the problem of one line.  Raises LockError and DescriptorError."""
    sizes = _SIZES.match(line)
    if sizes is None:
        raise LockError(f"{line!r} is not of the form {_LINE_FORM}")
    m, n, k = (int(each) for each in sizes.groups()[:3])
    fields: dict[str, object] = {}
    for word in (sizes[4] or "").replace(",", " ").split():
        name, _, value = word.partition("=")
        if word in DTYPES:
            dtype = word
        elif len(word) == 2 and set(word) <= {"N", "T"}:
            fields.update(transpose_a=word[0] == "T", transpose_b=word[1] == "T")
        elif word == "bias":
            fields["epilogue"] = "bias"
        elif name == "out" and value:
            out = value
        elif name == "batch" and value.isdigit():
            fields["batch"] = int(value)
        else:
            raise LockError(f"{word!r} is not understood: a line is of the form {_LINE_FORM}")
    for each in (dtype, out or dtype):
        if each not in DTYPES:
            raise LockError(f"{each!r} is not a supported type of matrices; choose one of {', '.join(DTYPES)}")
    right = dtype
    if dtype in ("e4m3", "e5m2"):
        # Libraries multiply 8-bit operands by e4m3 with both dense along k: the default of b's type and layout.
        right, out = "e4m3", out or "bf16"
        fields.setdefault("transpose_b", True)
    return GEMMProblem(m=m, n=n, k=k, a=dtype, b=right, out=out or dtype, **fields)
