"""The register operations whose results are recorded, as operations of the adversary."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

from bitwise_bench.adversary.instruction_sets.vocabulary import Spec
from bitwise_bench.register_operations.coverage import unmodelled
from bitwise_bench.register_operations.forms import Form, forms

_RECORD = Path(__file__).parents[5] / "records" / "register-operations-sm90-h100.json.xz"
_KINDS = {
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64", "b16": "i16", "b32": "i32", "b64": "i64", "f16x2": "h2",
    "bf16x2": "b2", "bytes2": "q2", "amount": "i32", "position": "i32", "pred": "p",
}  # fmt: skip
"""The kind of an operand or a result of a form."""
_SPARE = {"i16": "~h0", "i32": "~r0", "f32": "~r0", "h2": "~r0", "b2": "~r0", "f16": "~h0", "bf16": "~h0", "p": "~p0"}
"""A scratch register for the second result of a form, of each kind that has one."""
_FUSED = re.compile(r"(add|sub|mul)\.((ftz|sat)\.)*(f16|bf16|f32|f64)")
"""Opcodes that leave their rounding to the assembler, which may fuse them."""
_CROSSING = frozenset({"shfl", "redux", "vote", "match", "activemask", "elect"})


def recorded_specs(known: set[str]) -> Iterator[Spec]:
    """Yield the recorded forms of which an opcode is not among the known ones."""
    accepted = json.loads(lzma.decompress(_RECORD.read_bytes()))["forms"]
    for form in forms():
        stated = not any(_FUSED.fullmatch(each.removesuffix("x2")) for each in form.opcodes)
        if stated and form.name in accepted and not unmodelled(form) and not known.issuperset(form.opcodes):
            made = _spec(form)
            if made is not None:
                yield made


def _spec(form: Form) -> Spec | None:
    """Return a form as an operation; None where its second result needs a register that is no scratch register."""
    sources, results = ([_KINDS[each] for each in kinds] for kinds in (form.sources, form.results))
    if not sources or any(each not in _SPARE for each in results[1:]):
        return None
    names = {each: f"${number}" for number, each in enumerate("abce")} | {"x": "@", "t": "~r0", "u": "~r0"}
    spare = {"y": _SPARE[results[1]]} if len(results) > 1 else {}
    root = form.opcodes[0].split(".")[0]
    family = f"recorded {root} to {results[0]}"
    return Spec(
        form.name, tuple(sources), results[0], form.text.format_map({**names, **spare}), False, family,
        root in _CROSSING,
    )  # fmt: skip
