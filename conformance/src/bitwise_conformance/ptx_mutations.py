"""Single changes of a PTX text that as a rule change what the kernel returns, by kind."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from bitwise_conformance.ptx_text import Statement, Text, consecutive, family, integer, numbered, registers

Changes: TypeAlias = dict[int, str | None]


@dataclass(frozen=True, slots=True)
class Site:
    """A place that can be changed: the line, and the new lines (None: left out)."""

    line: int
    changes: Changes


Finder: TypeAlias = Callable[[Text, random.Random], Iterator[Site]]

_FLOAT = frozenset({"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"})
_ARITHMETIC = frozenset({"add", "sub", "mul", "fma"})


def _site(*statements: Statement) -> Site:
    return Site(statements[0].number, {each.number: each.text() for each in statements})


def _is_float(statement: Statement) -> bool:
    return statement.parts[-1] in _FLOAT


def rounding(text: Text, dice: random.Random) -> Iterator[Site]:
    """To nearest becomes towards zero, in arithmetic and in narrowing conversions."""
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
            yield _site(each.with_opcode(each.opcode.replace(".rn", ".rz", 1)))
        elif narrow and each.parts[0] in ("add", "sub", "mul") and not {"rz", "rm", "rp"} & set(each.parts):
            yield _site(each.with_opcode(each.opcode.replace(each.parts[0], each.parts[0] + ".rz", 1)))


def operand(text: Text, dice: random.Random) -> Iterator[Site]:
    """One source register becomes another of its kind that was written before."""
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
            yield _site(each.with_operand(index, changed))


def swap(text: Text, dice: random.Random) -> Iterator[Site]:
    """The two operands of an operation that does not commute change places."""
    for each in text.statements:
        if (
            each.parts[0] in ("sub", "div", "selp", "shl", "shr", "rem")
            or (each.parts[0] == "setp" and each.parts[1] not in ("eq", "ne"))
        ) or (each.parts[0] == "cvt" and each.parts[-2].endswith("x2") and len(each.operands) == 3):
            left, right = each.operands[1:3]
        elif each.parts[0] == "fma":
            left, right = each.operands[1], each.operands[3]
            if left != right:
                yield _site(each.with_operand(1, right).with_operand(3, left))
            continue
        else:
            continue
        if left != right and not (each.parts[0] in ("shl", "shr") and integer(right) is not None):
            yield _site(each.with_operand(1, right).with_operand(2, left))


def lanes(text: Text, dice: random.Random) -> Iterator[Site]:
    """Two registers of a vector that is stored, loaded or packed change places."""
    for each in text.statements:
        if each.parts[0] not in ("st", "ld", "mov", "mma"):
            continue
        for index, value in enumerate(each.operands):
            names = registers(value)
            if value.startswith("{") and len(set(names)) > 1:
                first, second = dice.sample(range(len(names)), 2)
                if names[first] != names[second]:
                    names[first], names[second] = names[second], names[first]
                    yield _site(each.with_operand(index, "{" + ", ".join(names) + "}"))
                    break


def reassociate(text: Text, dice: random.Random) -> Iterator[Site]:
    """(a + b) + c becomes a + (b + c), for sums, products and chained matrix products alike."""
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
    """Another distance of a shuffle."""
    for each in text.statements:
        if each.parts[0] == "shfl" and (distance := integer(each.operands[2])) is not None:
            other = dice.choice([value for value in (1, 2, 4, 8, 16) if value != distance])
            yield _site(each.with_operand(2, str(other)))


def loop(text: Text, dice: random.Random) -> Iterator[Site]:
    """Another step of a counter, or another bound in a comparison with a literal."""
    for each in text.statements:
        if each.parts[0] == "add" and each.operands[0] == each.operands[1] and not _is_float(each):
            step = integer(each.operands[2])
            if step:
                yield _site(
                    each.with_operand(2, str(step * 2 if dice.random() < 0.5 else step + (1 if step > 0 else -1)))
                )
        elif each.parts[0] == "setp" and not _is_float(each) and (bound := integer(each.operands[2])) is not None:
            yield _site(each.with_operand(2, str(bound + dice.choice((-1, 1)))))


def matrix(text: Text, dice: random.Random) -> Iterator[Site]:
    """The order of a matrix unit's steps, its operands, and its scale-d."""
    steps = [each for each in text.statements if each.parts[:2] == ("wgmma", "mma_async") or each.parts[0] == "mma"]
    for first, second in consecutive(steps):
        same = first.opcode == second.opcode and text.straight(first, second)
        if not same or first.operands[1:3] == second.operands[1:3]:
            continue
        between = [each for each in text.statements if first.number < each.number < second.number]
        late = {name for each in between for name in each.defines}
        if first.parts[0] == "mma" or not set(registers(",".join(second.operands[1:3]))) & late:
            yield _site(_exchanged(first, second, (1, 2)), _exchanged(second, first, (1, 2)))
        if first.parts[0] == "mma" and first.operands[3] != second.operands[3]:
            yield _site(_exchanged(first, second, (3,)), _exchanged(second, first, (3,)))
    for each in steps:
        if each.parts[0] == "wgmma":
            for index in range(4, len(each.operands)):
                literal = integer(each.operands[index])
                if literal is not None and index >= 6:
                    yield _site(each.with_operand(index, str(1 - literal)))
            yield _site(
                each.with_operand(3, "0" if integer(each.operands[3]) else "1")
                if integer(each.operands[3]) is not None
                else each
            )
        elif len(each.operands) == 4 and each.operands[1] != each.operands[2]:
            names = registers(each.operands[1])
            if len(names) > 1:
                yield _site(each.with_operand(1, "{ " + ", ".join([*names[1:], names[0]]) + " }"))


def _exchanged(into: Statement, source: Statement, places: tuple[int, ...]) -> Statement:
    for index in places:
        into = into.with_operand(index, source.operands[index])
    return into


def descriptor(text: Text, dice: random.Random) -> Iterator[Site]:
    """Another offset in a matrix descriptor: the tile of another step."""
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
            yield _site(each.with_operand(2, str(offset + dice.choice((-2, 2, 4)))))


def scale(text: Text, dice: random.Random) -> Iterator[Site]:
    """The predicate behind scale-d becomes false: an accumulator starts anew."""
    used = {
        registers(each.operands[3])[0]
        for each in text.statements
        if each.parts[:2] == ("wgmma", "mma_async") and registers(each.operands[3])
    }
    for each in text.statements:
        if each.opcode == "mov.pred" and each.operands[0] in used and (value := integer(each.operands[1])) is not None:
            yield _site(each.with_operand(1, "0" if value else "-1"))


def fuse(text: Text, dice: random.Random) -> Iterator[Site]:
    """A fused product and sum is rounded twice, and a product and a sum that are rounded each become fused."""
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


def barrier(text: Text, dice: random.Random) -> Iterator[Site]:
    """A barrier of the block or of a warp is left out."""
    for each in text.statements:
        if each.parts[0] in ("bar", "barrier"):
            yield Site(each.number, {each.number: None})


def wait(text: Text, dice: random.Random) -> Iterator[Site]:
    """A wait for an asynchronous copy or matrix product is left out, or waits for one group less."""
    for each in text.statements:
        if "wait_group" in each.parts or "wait_all" in each.parts:
            yield Site(each.number, {each.number: None})
            keep = integer(each.operands[0]) if each.operands else None
            if keep is not None:
                yield _site(each.with_operand(0, str(keep + 1)))
        elif each.parts[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
            yield Site(each.number, {each.number: None, each.number + 1: None})


def spin(text: Text, dice: random.Random) -> Iterator[Site]:
    """A wait for a barrier in memory is tried once only."""
    for each in text.statements:
        if each.parts[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
            yield Site(each.number, {each.number + 1: None})


def fence(text: Text, dice: random.Random) -> Iterator[Site]:
    """A fence between proxies or around matrix products is left out."""
    for each in text.statements:
        if each.parts[0] in ("fence", "membar") or each.parts[:2] == ("wgmma", "fence"):
            yield Site(each.number, {each.number: None})


def commit(text: Text, dice: random.Random) -> Iterator[Site]:
    """A group of asynchronous work is not closed."""
    for each in text.statements:
        if "commit_group" in each.parts:
            yield Site(each.number, {each.number: None})


def expect(text: Text, dice: random.Random) -> Iterator[Site]:
    """A barrier in memory expects other bytes, or starts with another count."""
    for each in text.statements:
        if each.parts[0] == "mbarrier" and each.parts[1] in ("arrive", "init", "expect_tx"):
            value = integer(each.operands[-1])
            if value is not None:
                yield _site(
                    each.with_operand(len(each.operands) - 1, str(value + (1 if each.parts[1] == "init" else 16)))
                )


_ADDRESS = re.compile(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\d+))?\s*\]")


def _moved(statement: Statement, index: int, dice: random.Random) -> Iterator[Site]:
    found = _ADDRESS.fullmatch(statement.operands[index])
    if found is not None and not found[1].startswith("$"):
        size = {"b8": 1, "b16": 2, "u8": 1, "u16": 2, "b64": 8}.get(statement.parts[-1], 4)
        if statement.parts[0] in ("cp", "ldmatrix", "stmatrix") or "v4" in statement.parts:
            size = 16
        offset = int(found[2] or 0) + dice.choice((-1, 1, 2)) * size
        yield _site(statement.with_operand(index, f"[{found[1]}+{offset}]"))


def _copies(statement: Statement) -> bool:
    return statement.parts[:2] == ("cp", "async") and "global" in statement.parts and "bulk" not in statement.parts


def load_offset(text: Text, dice: random.Random) -> Iterator[Site]:
    """A load, from global or shared memory, from another offset."""
    for each in text.statements:
        loads = each.parts[0] in ("ld", "ldmatrix") and "param" not in each.parts
        if loads or _copies(each):
            yield from _moved(each, 1, dice)


def store_offset(text: Text, dice: random.Random) -> Iterator[Site]:
    """A store, atomics and asynchronous copies included, to another offset."""
    for each in text.statements:
        if each.parts[0] in ("st", "red", "stmatrix") or (
            each.parts[:2] == ("cp", "async") and "global" in each.parts and "bulk" not in each.parts
        ):
            yield from _moved(each, 0, dice)
        elif each.parts[0] == "atom":
            yield from _moved(each, 1, dice)


_COMPARISONS = MappingProxyType(
    {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq", "ltu": "lt", "neu": "ne", "num": "nan"}
)


def predicate(text: Text, dice: random.Random) -> Iterator[Site]:
    """A guard is negated or dropped, a comparison moves by one case, or two conditions join otherwise."""
    for each in text.statements:
        if each.guard and not each.guard.endswith("complete"):
            other = each.guard.replace("@!", "@") if each.guard.startswith("@!") else each.guard.replace("@", "@!")
            yield Site(each.number, {each.number: each.text().replace(each.guard, other, 1)})
            if each.parts[0] != "bra":
                yield Site(each.number, {each.number: each.text().replace(each.guard + " ", "", 1)})
        if each.parts[0] == "setp" and each.parts[1] in _COMPARISONS:
            yield _site(
                each.with_opcode(each.opcode.replace(f".{each.parts[1]}", f".{_COMPARISONS[each.parts[1]]}", 1))
            )
        if each.opcode in ("and.pred", "or.pred"):
            yield _site(each.with_opcode("or.pred" if each.opcode == "and.pred" else "and.pred"))


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
    """A conversion, or the signedness of a widening, is another one."""
    for each in text.statements:
        for pattern, other in _CONVERSIONS:
            if re.fullmatch(pattern, each.opcode):
                yield _site(each.with_opcode(other))
                break


def constant(text: Text, dice: random.Random) -> Iterator[Site]:
    """One bit of a literal is turned."""
    for each in text.statements:
        if each.parts[0] in ("bar", "barrier", "bra", "wgmma", "cp", "shfl", "mbarrier", "setp"):
            continue
        for index in range(each.first_source, len(each.operands)):
            value = each.operands[index]
            if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}", value):
                number = int(value[2:], 16) ^ 1 << dice.choice((0, 3, 20))
                yield _site(each.with_operand(index, f"{value[:2]}{number:0{len(value) - 2}X}"))
            elif (number_or_none := integer(value)) is not None and abs(number_or_none) < 2**31:
                yield _site(each.with_operand(index, str(number_or_none ^ 1 << dice.choice((0, 1, 2, 4)))))


def operation(text: Text, dice: random.Random) -> Iterator[Site]:
    """Another operation of the same shape."""
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
            yield _site(each.with_opcode(opcode))


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
        "barrier dropped": barrier,
        "wait dropped": wait,
        "wait tried once": spin,
        "fence dropped": fence,
        "commit dropped": commit,
        "mbarrier count": expect,
        "load offset": load_offset,
        "store offset": store_offset,
        "predicate": predicate,
        "conversion": conversion,
        "constant": constant,
        "operation": operation,
    }
)
"""Every kind of change with its finder of places."""
