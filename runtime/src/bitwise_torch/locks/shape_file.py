"""Shape files: one matrix product a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import DTYPES, GEMMProblem
from bitwise_torch.locks.lock_file import LockError

_SIZES = re.compile(r"(\d{1,10})[\s,x]+(\d{1,10})[\s,x]+(\d{1,10})(?:[\s,]+(.*))?\Z")
_FORM = "M N K, then as needed: a type, NN or another layout, out=TYPE, batch=B, bias"


def read_problems(path: Path, dtype: str = "fp16", out: str | None = None) -> Iterator[GEMMProblem]:
    """The problems of a file, a line each: `M N K`, with a type, a layout, `out=fp32`, `batch=8` or `bias` after it.

    `dtype` and `out` stand for those that a line does not name; out is the operands' type, bf16 for fp8, where nobody
    does.  Empty lines and what follows # are skipped.  Raises LockError with the line's number for anything else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LockError(f"{path}: cannot be read ({why})") from None
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        found = True
        try:
            yield problem_of_line(content, dtype, out)
        except (LockError, DescriptorError) as error:
            raise LockError(f"{path}:{number}: {error}") from None
    if not found:
        raise LockError(f"{path}: holds no product; write a line {_FORM}")


def problem_of_line(line: str, dtype: str = "fp16", out: str | None = None) -> GEMMProblem:
    """The problem of one line.  Raises LockError and DescriptorError."""
    sizes = _SIZES.match(line)
    if sizes is None:
        raise LockError(f"{line!r} is not of the form {_FORM}")
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
            raise LockError(f"{word!r} is nothing that a line says: it is of the form {_FORM}")
    for each in (dtype, out or dtype):
        if each not in DTYPES:
            raise LockError(f"{each!r} is no type of matrices; there are {', '.join(DTYPES)}")
    right = dtype
    if dtype in ("e4m3", "e5m2"):
        # 8-bit operands are multiplied by e4m3, with k dense in both, where a line says nothing else.
        right, out = "e4m3", out or "bf16"
        fields.setdefault("transpose_b", True)
    return GEMMProblem(m=m, n=n, k=k, a=dtype, b=right, out=out or dtype, **fields)
