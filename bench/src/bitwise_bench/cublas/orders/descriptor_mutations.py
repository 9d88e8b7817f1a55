"""Descriptors near a given one, or near a configuration without a row, that a byte comparison must distinguish."""

from __future__ import annotations

import random
from typing import Any

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Instruction, strided_blocks
from bitwise_cublas_profiles.query import FP8, GemmQuery

Change = tuple[str, dict[str, Any]]


def mutated(desc: GEMMDesc, source: random.Random) -> tuple[str, GEMMDesc] | None:
    """A wrong descriptor near a right one, with the name of the change; None if no mutation applies."""
    choices = _matrix(desc) if desc.path == "matrix" else _scalar(desc)
    source.shuffle(choices)
    for name, changes in choices:
        try:
            found = GEMMDesc(**{**{field: getattr(desc, field) for field in type(desc).model_fields}, **changes})
        except DescriptorError:
            continue
        if found != desc:
            return name, found
    return None


def _cut(cut: Cut, **changes: Any) -> Cut:
    return Cut(**{**{name: getattr(cut, name) for name in type(cut).model_fields}, **changes})


def _matrix(desc: GEMMDesc) -> list[Change]:
    assert desc.instruction is not None
    used, step = desc.k - desc.k_dropped, desc.k_loop_step
    found: list[Change] = [("tail", {"k_dropped": 0})] if desc.k_dropped else []
    outer = desc.k_cuts[0] if desc.k_cuts else None
    if desc.multiplied_as == "tf32":
        return _tf32(desc, used, outer)
    if desc.left_dtype not in ("fp16", "bf16"):
        if used > 256:
            found.append(("slices", {"k_cuts": (Cut(span=-(-used // 256) * 128), Cut(span=128))}))
        return found
    half = desc.instruction_k == 8
    if used > 8:
        unit = Instruction(architecture=desc.instruction.architecture, family="mma.sync", k=16 if half else 8)
        changes = {"instruction": unit, "instruction_k": unit.k, "k_loop_step": 32, "short_iteration": "first"}
        found.append(("instruction_k", changes))
    if step and not half and used > step and used % step % 16 and not outer:
        found.append(("short turn", {"k_loop_step": None, "short_iteration": "last"}))
    if not step and used % 64 % 16 and used > 64 and not outer:
        found.append(("short turn", {"k_loop_step": 64, "short_iteration": "first"}))
    if outer is None and used >= 256:
        found.append(("slices", {"k_cuts": (Cut(span=-(-used // 128) * 64),)}))
    if outer is not None and outer.span is not None and outer.span < used:
        grain = 64 if outer.span % 64 == 0 else 8
        found.append(("slices", {"k_cuts": (_cut(outer, span=outer.span + grain),)}))
        pairs = [("fp32", "fp32"), (desc.output_dtype, "fp32"), ("fp32", desc.output_dtype)]
        found += [
            ("merge", {"k_cuts": (_cut(outer, partial_dtype=partial, merge_dtype=merge),)}) for partial, merge in pairs
        ]
    return found


def _tf32(desc: GEMMDesc, used: int, outer: Cut | None) -> list[Change]:
    step = desc.k_loop_step
    if outer is not None:
        if outer.span is None or outer.span >= used:
            return []
        return [("slices", {"k_cuts": (_cut(outer, span=outer.span + 8),)})]
    found: list[Change] = [("slices", {"k_cuts": (Cut(span=-(-used // 64) * 32),)})] if used >= 64 else []
    if step and used > step and used % step % 8:
        found.append(("short turn", {"k_loop_step": None, "short_iteration": "last"}))
    if not step and used > 32 and used % 32 % 8:
        found.append(("short turn", {"k_loop_step": 32, "short_iteration": "first"}))
    return found


def _scalar(desc: GEMMDesc) -> list[Change]:
    found: list[Change] = []
    length = desc.k
    for place, cut in enumerate(desc.k_cuts):
        before, after = desc.k_cuts[:place], desc.k_cuts[place + 1 :]
        if cut.layout == "contiguous" and cut.count:
            length //= cut.count
        # If every lane has at most one tile, a wider tree gives the same sums.
        if cut.layout != "strided" or cut.count is None or cut.tile >= 128 or length <= 4 * cut.count * cut.tile:
            continue
        wider = _cut(cut, count=cut.count * 2 if cut.count < 32 else cut.count // 2)
        found.append(("lanes", {"k_cuts": (*before, wider, *after)}))
        if cut.count > 2:
            other = _cut(cut, merge="neighbours" if cut.merge == "halves" else "halves")
            found.append(("tree", {"k_cuts": (*before, other, *after)}))
    first = desc.k_cuts[0] if desc.k_cuts else None
    if first is None and desc.k > 8:
        found.append(("chain", {"k_cuts": (Cut(count=2),)}))
    if first is not None and first.layout == "contiguous" and first.count and desc.k > 64:
        more = _cut(first, count=2 * first.count if first.count < 16 else first.count // 2)
        found.append(("slices", {"k_cuts": (more, *desc.k_cuts[1:])}))
    return found


def alternatives(query: GemmQuery, split: int, architecture: str = "sm_90") -> list[tuple[str, GEMMDesc]]:
    """Candidate descriptors for a configuration without a row or with a wrong one, likely ones first."""
    base = {"k": query.k, "left_dtype": query.a, "right_dtype": query.b, "output_dtype": query.c}
    if query.compute == "tf32":
        base["multiplied_as"] = "tf32"
    matrix: list[tuple[str, dict[str, Any]]] = []
    scalar: list[tuple[str, dict[str, Any]]] = []
    if query.a not in FP8 and (query.a != "fp32" or query.compute == "tf32"):
        for name, k_loop in (_K_LOOPS if query.a != "fp32" else _K_LOOPS_TF32).items():
            unit = Instruction(architecture=architecture, family="mma.sync", k=k_loop["instruction_k"])
            for cuts, sliced in _sliced(query, split):
                matrix.append((f"{name}{sliced}", {"path": "matrix", "instruction": unit, **k_loop, "k_cuts": cuts}))
    vector = 1 in (query.m, query.n)
    if query.a not in FP8 and (vector or query.m * query.n <= 4096):
        if split > 1:
            scalar += [(f"dot {wide}", {"path": "fma", "k_cuts": strided_blocks(split, wide)}) for wide in (1, 2)]
        outer = (Cut(count=split),) if split > 1 else ()
        for name, cuts in _dealt(-(-query.k // max(1, split))):
            scalar.append((name, {"path": "fma", "k_cuts": (*outer, *cuts)}))
    # Likely candidates first: the time limit is short.
    found = scalar + matrix if vector else matrix + scalar
    made = []
    for name, fields in found:
        try:
            made.append((name, GEMMDesc(**base, **fields)))
        except DescriptorError:
            continue
    return made


_K_LOOPS: dict[str, dict[str, Any]] = {
    "k16": {"instruction_k": 16},
    **{
        f"k16 first {step}": {"instruction_k": 16, "k_loop_step": step, "short_iteration": "first"}
        for step in (32, 64, 128)
    },
    **{f"k8 first {step}": {"instruction_k": 8, "k_loop_step": step, "short_iteration": "first"} for step in (32, 64)},
}


_K_LOOPS_TF32: dict[str, dict[str, Any]] = {
    "k8": {"instruction_k": 8},
    **{f"k8 first {step}": {"instruction_k": 8, "k_loop_step": step, "short_iteration": "first"} for step in (16, 32)},
    "k4": {"instruction_k": 4},
}


def _sliced(query: GemmQuery, split: int) -> list[tuple[tuple[Cut, ...], str]]:
    if split <= 1:
        return [((), "")]
    spans = {grain: -(-query.k // (grain * split)) * grain for grain in (4, 8, 16, 32, 64, 128)}
    found: list[tuple[tuple[Cut, ...], str]] = []
    for partial, merge in (("fp32", "fp32"), (query.c, "fp32"), ("fp32", query.c)):
        for grain, span in spans.items():
            cut = Cut(span=span, partial_dtype=partial, merge_dtype=merge)
            found.append(((cut,), f" slices of {grain} {partial} {merge}"))
    return found


def _dealt(length: int) -> list[tuple[str, tuple[Cut, ...]]]:
    chunks = (16, 32, 64, 128, 256, 512)
    found: list[tuple[str, tuple[Cut, ...]]] = [("chain", ())]
    found += [(f"chunks of {chunk}", (Cut(span=chunk),)) for chunk in chunks]
    for lanes in (2, 4, 8, 16, 32):
        for tile in dict.fromkeys((1, 2, 4, 8, min(64, -(-length // lanes)), -(-length // lanes))):
            for merge in ("halves", "chain", "neighbours"):
                cut = Cut(layout="strided", count=lanes, tile=tile, merge=merge)
                found.append((f"{lanes} lanes of {tile} {merge}", (cut,)))
                if merge == "chain":
                    found += [
                        (f"{lanes} lanes of {tile} {merge} chunks of {chunk}", (cut, Cut(span=chunk)))
                        for chunk in (16, 32, 128, 256)
                    ]
    return found
