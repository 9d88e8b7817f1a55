"""Single changes of the ordering and the addresses of memory accesses: barriers, waits, offsets, predicates."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from types import MappingProxyType

from bitwise_bench.mutants.ptx_sites import Site, site
from bitwise_bench.mutants.ptx_text import Statement, Text, integer


def barrier(text: Text, dice: random.Random) -> Iterator[Site]:
    """A barrier of the block or of a warp is removed."""
    for each in text.statements:
        if each.parts[0] in ("bar", "barrier"):
            yield Site(each.number, {each.number: None})


def wait(text: Text, dice: random.Random) -> Iterator[Site]:
    """A wait for an asynchronous copy or matrix product is removed, or leaves one more group pending."""
    for each in text.statements:
        if "wait_group" in each.parts or "wait_all" in each.parts:
            yield Site(each.number, {each.number: None})
            keep = integer(each.operands[0]) if each.operands else None
            if keep is not None:
                yield site(each.with_operand(0, str(keep + 1)))
        elif each.parts[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
            yield Site(each.number, {each.number: None, each.number + 1: None})


def spin(text: Text, dice: random.Random) -> Iterator[Site]:
    """A wait loop on an mbarrier is executed once."""
    for each in text.statements:
        if each.parts[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
            yield Site(each.number, {each.number + 1: None})


def fence(text: Text, dice: random.Random) -> Iterator[Site]:
    """A fence between proxies or around matrix products is removed."""
    for each in text.statements:
        if each.parts[0] in ("fence", "membar") or each.parts[:2] == ("wgmma", "fence"):
            yield Site(each.number, {each.number: None})


def commit(text: Text, dice: random.Random) -> Iterator[Site]:
    """The commit of an asynchronous group is removed."""
    for each in text.statements:
        if "commit_group" in each.parts:
            yield Site(each.number, {each.number: None})


def expect(text: Text, dice: random.Random) -> Iterator[Site]:
    """An mbarrier expects another number of bytes, or is initialised with another count."""
    for each in text.statements:
        if each.parts[0] == "mbarrier" and each.parts[1] in ("arrive", "init", "expect_tx"):
            value = integer(each.operands[-1])
            if value is not None:
                yield site(
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
        yield site(statement.with_operand(index, f"[{found[1]}+{offset}]"))


def _copies(statement: Statement) -> bool:
    return statement.parts[:2] == ("cp", "async") and "global" in statement.parts and "bulk" not in statement.parts


def load_offset(text: Text, dice: random.Random) -> Iterator[Site]:
    """A load from global or shared memory gets another offset."""
    for each in text.statements:
        loads = each.parts[0] in ("ld", "ldmatrix") and "param" not in each.parts
        if loads or _copies(each):
            yield from _moved(each, 1, dice)


def store_offset(text: Text, dice: random.Random) -> Iterator[Site]:
    """A store, an atomic or an asynchronous copy gets another destination offset."""
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
    """A guard is negated or removed, a comparison changes at equality, or and/or of predicates is exchanged."""
    for each in text.statements:
        if each.guard and not each.guard.endswith("complete"):
            other = each.guard.replace("@!", "@") if each.guard.startswith("@!") else each.guard.replace("@", "@!")
            yield Site(each.number, {each.number: each.text().replace(each.guard, other, 1)})
            if each.parts[0] != "bra":
                yield Site(each.number, {each.number: each.text().replace(each.guard + " ", "", 1)})
        if each.parts[0] == "setp" and each.parts[1] in _COMPARISONS:
            yield site(each.with_opcode(each.opcode.replace(f".{each.parts[1]}", f".{_COMPARISONS[each.parts[1]]}", 1)))
        if each.opcode in ("and.pred", "or.pred"):
            yield site(each.with_opcode("or.pred" if each.opcode == "and.pred" else "and.pred"))
