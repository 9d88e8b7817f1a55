"""Single changes of a PTX text that usually change the bytes that the kernel returns, by kind."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from bitwise_bench.mutants import ptx_memory_mutations as memory
from bitwise_bench.mutants.ptx_sites import Finder, Site, site
from bitwise_bench.mutants.ptx_text import Statement, Text, consecutive, family, integer, numbered, registers

_FLOAT = frozenset({"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"})


def _is_float(statement: Statement) -> bool:
    return statement.parts[-1] in _FLOAT


def rounding(text: Text, dice: random.Random) -> Iterator[Site]:
    """Rounding to nearest becomes rounding towards zero, in arithmetic and in narrowing conversions."""
    for each in text.statements:
        narrow = each.parts[0] in ("add", "sub", "mul", "fma", "div", "sqrt", "rcp") and each.parts[-1] in (
            "f32",
            "f64",
        )
        converts = (
            each.parts[0] == "cvt"
            and each.parts[-1] in ("f32", "f64", "s32", "u32")
            and not re.search(r"e[45]m|e2m", each.opcode)
        )
        if "rn" in each.parts and (narrow or converts):
            yield site(each.with_opcode(each.opcode.replace(".rn", ".rz", 1)))
        elif narrow and each.parts[0] in ("add", "sub", "mul") and not {"rz", "rm", "rp"} & set(each.parts):
            yield site(each.with_opcode(each.opcode.replace(each.parts[0], each.parts[0] + ".rz", 1)))


def operand(text: Text, dice: random.Random) -> Iterator[Site]:
    """One source register becomes another register of its type that was written before."""
    by_family: dict[str, list[str]] = {}
    for name in text.defined_before:
        by_family.setdefault(family(name), []).append(name)
    for each in text.statements:
        sources = [
            (index, name)
            for index in range(each.first_source, len(each.operands))
            for name in registers(each.operands[index])
            if numbered(name)
        ]
        if not sources or each.parts[0] == "bra":
            continue
        index, name = dice.choice(sources)
        near = [
            other
            for other in by_family.get(family(name), ())
            if other != name
            and text.defined_before[other] < each.number
            and abs(int(other.lstrip("%abcdefghijklmnopqrstuvwxyz")) - int(name.lstrip("%abcdefghijklmnopqrstuvwxyz")))
            <= 12
        ]
        if near:
            changed = re.sub(re.escape(name) + r"\b", dice.choice(near), each.operands[index], count=1)
            yield site(each.with_operand(index, changed))


def swap(text: Text, dice: random.Random) -> Iterator[Site]:
    """Two operands of a non-commutative operation are exchanged."""
    for each in text.statements:
        if (
            each.parts[0] in ("sub", "div", "selp", "shl", "shr", "rem")
            or (each.parts[0] == "setp" and each.parts[1] not in ("eq", "ne"))
        ) or (each.parts[0] == "cvt" and each.parts[-2].endswith("x2") and len(each.operands) == 3):
            left, right = each.operands[1:3]
        elif each.parts[0] == "fma":
            left, right = each.operands[1], each.operands[3]
            if left != right:
                yield site(each.with_operand(1, right).with_operand(3, left))
            continue
        else:
            continue
        if left != right and not (each.parts[0] in ("shl", "shr") and integer(right) is not None):
            yield site(each.with_operand(1, right).with_operand(2, left))


def lanes(text: Text, dice: random.Random) -> Iterator[Site]:
    """Two registers of a vector that is stored, loaded or packed are exchanged."""
    for each in text.statements:
        if each.parts[0] not in ("st", "ld", "mov", "mma"):
            continue
        for index, value in enumerate(each.operands):
            names = registers(value)
            if value.startswith("{") and len(set(names)) > 1:
                first, second = dice.sample(range(len(names)), 2)
                if names[first] != names[second]:
                    names[first], names[second] = names[second], names[first]
                    yield site(each.with_operand(index, "{" + ", ".join(names) + "}"))
                    break


def reassociate(text: Text, dice: random.Random) -> Iterator[Site]:
    """(a + b) + c becomes a + (b + c), for sums and products."""
    for first in text.statements:
        if first.parts[0] not in ("add", "mul") or not _is_float(first) or first.guard:
            continue
        total = first.operands[0]
        readers = text.readers.get(total, [])
        if len(readers) != 1 or len(text.writers.get(total, ())) != 1:
            continue
        second = readers[0]
        if (
            second.opcode != first.opcode
            or second.guard
            or second.number < first.number
            or not text.straight(first, second)
        ):
            continue
        others = [name for name in second.operands[1:] if name != total]
        if len(others) != 1:
            continue
        left, right = first.operands[1:]
        rewritten = [
            w for name in (left, right) for w in text.writers.get(name, ()) if first.number < w.number < second.number
        ]
        if rewritten:
            continue
        inner = first.with_operand(1, right).with_operand(2, others[0])
        outer = second.with_operand(1, left).with_operand(2, total)
        yield Site(first.number, {first.number: None, second.number: f"{inner.text()}\n{outer.text()}"})


def shuffle(text: Text, dice: random.Random) -> Iterator[Site]:
    """A shuffle gets another distance."""
    for each in text.statements:
        if each.parts[0] == "shfl" and (distance := integer(each.operands[2])) is not None:
            other = dice.choice([value for value in (1, 2, 4, 8, 16) if value != distance])
            yield site(each.with_operand(2, str(other)))


def loop(text: Text, dice: random.Random) -> Iterator[Site]:
    """An induction variable gets another step, or a comparison with a literal another bound."""
    for each in text.statements:
        if each.parts[0] == "add" and each.operands[0] == each.operands[1] and not _is_float(each):
            step = integer(each.operands[2])
            if step:
                yield site(
                    each.with_operand(2, str(step * 2 if dice.random() < 0.5 else step + (1 if step > 0 else -1)))
                )
        elif each.parts[0] == "setp" and not _is_float(each) and (bound := integer(each.operands[2])) is not None:
            yield site(each.with_operand(2, str(bound + dice.choice((-1, 1)))))


def matrix(text: Text, dice: random.Random) -> Iterator[Site]:
    """Matrix instructions are reordered, or get other operands or another scale-d."""
    steps = [each for each in text.statements if each.parts[:2] == ("wgmma", "mma_async") or each.parts[0] == "mma"]
    for first, second in consecutive(steps):
        same = first.opcode == second.opcode and text.straight(first, second)
        if not same or first.operands[1:3] == second.operands[1:3]:
            continue
        between = [each for each in text.statements if first.number < each.number < second.number]
        late = {name for each in between for name in each.defines}
        if first.parts[0] == "mma" or not set(registers(",".join(second.operands[1:3]))) & late:
            yield site(_exchanged(first, second, (1, 2)), _exchanged(second, first, (1, 2)))
        if first.parts[0] == "mma" and first.operands[3] != second.operands[3]:
            yield site(_exchanged(first, second, (3,)), _exchanged(second, first, (3,)))
    for each in steps:
        if each.parts[0] == "wgmma":
            for index in range(4, len(each.operands)):
                literal = integer(each.operands[index])
                if literal is not None and index >= 6:
                    yield site(each.with_operand(index, str(1 - literal)))
            yield site(
                each.with_operand(3, "0" if integer(each.operands[3]) else "1")
                if integer(each.operands[3]) is not None
                else each
            )
        elif len(each.operands) == 4 and each.operands[1] != each.operands[2]:
            names = registers(each.operands[1])
            if len(names) > 1:
                yield site(each.with_operand(1, "{ " + ", ".join([*names[1:], names[0]]) + " }"))


def _exchanged(into: Statement, source: Statement, places: tuple[int, ...]) -> Statement:
    for index in places:
        into = into.with_operand(index, source.operands[index])
    return into


def descriptor(text: Text, dice: random.Random) -> Iterator[Site]:
    """A matrix descriptor gets another offset, that of another tile."""
    used = {
        name
        for each in text.statements
        if each.parts[:2] == ("wgmma", "mma_async")
        for name in registers(",".join(each.operands[1:3]))
    }
    for each in text.statements:
        if (
            each.parts[0] in ("add", "or")
            and each.operands[0] in used
            and (offset := integer(each.operands[2])) is not None
        ):
            yield site(each.with_operand(2, str(offset + dice.choice((-2, 2, 4)))))


def scale(text: Text, dice: random.Random) -> Iterator[Site]:
    """The predicate of scale-d is inverted, so that the accumulator is reset or not."""
    used = {
        registers(each.operands[3])[0]
        for each in text.statements
        if each.parts[:2] == ("wgmma", "mma_async") and registers(each.operands[3])
    }
    for each in text.statements:
        if each.opcode == "mov.pred" and each.operands[0] in used and (value := integer(each.operands[1])) is not None:
            yield site(each.with_operand(1, "0" if value else "-1"))


def fuse(text: Text, dice: random.Random) -> Iterator[Site]:
    """An fma becomes a product and a sum, or a product and a sum become an fma."""
    for each in text.statements:
        if each.parts[0] == "fma" and each.parts[1] == "rn" and each.parts[-1] in ("f32", "f64") and not each.guard:
            flush = ".ftz" if "ftz" in each.parts else ""
            kind = each.parts[-1]
            target, left, right, addend = each.operands
            name = "%mutant32" if kind == "f32" else "%mutant64"
            width = 32 if kind == "f32" else 64
            lines = [
                f"\t{{ .reg .b{width} {name};",
                f"\tmul.rn{flush}.{kind} {name}, {left}, {right};",
                f"\tadd.rn{flush}.{kind} {target}, {name}, {addend}; }}",
            ]
            yield Site(each.number, {each.number: "\n".join(lines)})
        if each.opcode not in ("mul.f32", "mul.rn.f32", "mul.f64", "mul.rn.f64") or each.guard:
            continue
        readers = text.readers.get(each.operands[0], [])
        if len(readers) != 1 or len(text.writers.get(each.operands[0], ())) != 1:
            continue
        sum_of = readers[0]
        if (
            sum_of.opcode not in (f"add.{each.parts[-1]}", f"add.rn.{each.parts[-1]}")
            or not text.straight(each, sum_of)
            or sum_of.number < each.number
        ):
            continue
        others = [name for name in sum_of.operands[1:] if name != each.operands[0]]
        if len(others) != 1 or any(
            each.number < w.number < sum_of.number for name in each.operands[1:] for w in text.writers.get(name, ())
        ):
            continue
        fused = f"\tfma.rn.{each.parts[-1]} {sum_of.operands[0]}, {each.operands[1]}, {each.operands[2]}, {others[0]};"
        yield Site(each.number, {sum_of.number: fused})


_CONVERSIONS = (
    (r"cvt\.f32\.bf16", "cvt.f32.f16"),
    (r"cvt\.f32\.f16", "cvt.f32.bf16"),
    (r"cvt\.rn\.bf16x2\.f32", "cvt.rn.f16x2.f32"),
    (r"cvt\.rn\.f16x2\.f32", "cvt.rn.bf16x2.f32"),
    (r"cvt\.rn\.f16\.f32", "cvt.rn.bf16.f32"),
    (r"cvt\.rn\.bf16\.f32", "cvt.rn.f16.f32"),
    (r"cvt\.u64\.u32", "cvt.s64.s32"),
    (r"cvt\.s64\.s32", "cvt.u64.u32"),
    (r"cvt\.rn\.f32\.s32", "cvt.rn.f32.u32"),
    (r"cvt\.rna\.tf32\.f32", "mov.b32"),
    (r"mad\.wide\.s32", "mad.wide.u32"),
    (r"mul\.wide\.u32", "mul.wide.s32"),
    (r"cvt\.rni\.f32\.f32", "cvt.rmi.f32.f32"),
    (r"shr\.s32", "shr.u32"),
    (r"ex2\.approx\.ftz\.f32", "ex2.approx.f32"),
    (r"ex2\.approx\.f32", "lg2.approx.f32"),
    (r"div\.full\.f32", "div.rn.f32"),
)


def conversion(text: Text, dice: random.Random) -> Iterator[Site]:
    """A conversion becomes another conversion, or a widening changes signedness."""
    for each in text.statements:
        for pattern, other in _CONVERSIONS:
            if re.fullmatch(pattern, each.opcode):
                yield site(each.with_opcode(other))
                break


def constant(text: Text, dice: random.Random) -> Iterator[Site]:
    """One bit of a literal is flipped."""
    for each in text.statements:
        if each.parts[0] in ("bar", "barrier", "bra", "wgmma", "cp", "shfl", "mbarrier", "setp"):
            continue
        for index in range(each.first_source, len(each.operands)):
            value = each.operands[index]
            if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}", value):
                number = int(value[2:], 16) ^ 1 << dice.choice((0, 3, 20))
                yield site(each.with_operand(index, f"{value[:2]}{number:0{len(value) - 2}X}"))
            elif (number_or_none := integer(value)) is not None and abs(number_or_none) < 2**31:
                yield site(each.with_operand(index, str(number_or_none ^ 1 << dice.choice((0, 1, 2, 4)))))


def operation(text: Text, dice: random.Random) -> Iterator[Site]:
    """An operation becomes another one with the same operands."""
    others = {
        "add": "sub",
        "sub": "add",
        "max": "min",
        "min": "max",
        "and": "or",
        "or": "xor",
        "xor": "or",
        "shl": "shr",
    }
    for each in text.statements:
        if (
            each.parts[0] in others
            and each.parts[-1] != "pred"
            and not (each.parts[0] == "shl" and each.parts[1][0] != "b")
        ):
            opcode = each.opcode.replace(each.parts[0], others[each.parts[0]], 1)
            yield site(each.with_opcode(opcode))


KINDS: Mapping[str, Finder] = MappingProxyType(
    {
        "rounding": rounding,
        "operand": operand,
        "swapped operands": swap,
        "swapped lanes": lanes,
        "reassociated": reassociate,
        "shuffle distance": shuffle,
        "loop bound or step": loop,
        "matrix step": matrix,
        "matrix descriptor": descriptor,
        "matrix scale-d": scale,
        "fused or not": fuse,
        "barrier dropped": memory.barrier,
        "wait dropped": memory.wait,
        "wait tried once": memory.spin,
        "fence dropped": memory.fence,
        "commit dropped": memory.commit,
        "mbarrier count": memory.expect,
        "load offset": memory.load_offset,
        "store offset": memory.store_offset,
        "predicate": memory.predicate,
        "conversion": conversion,
        "constant": constant,
        "operation": operation,
    }
)
"""The function that finds the sites of each kind of change."""
