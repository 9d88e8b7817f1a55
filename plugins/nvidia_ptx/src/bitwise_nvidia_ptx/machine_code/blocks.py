"""The basic blocks of a SASS function, and which of them may follow each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bitwise_nvidia_ptx.machine_code.registers import MachineFunction, MachineInstruction
from bitwise_nvidia_ptx.machine_code.terms import NotUnderstood

CONTROL = frozenset({"BRA", "BSSY", "BSYNC", "CALL", "EXIT", "RET"})

_CONVERGENCE = re.compile(r"B\d+")

LABEL = re.compile(r"`\((.*)\)$")


@dataclass(frozen=True)
class Block:
    """Instructions without a jump, except for the last one; `following` are the blocks that may be next."""

    instructions: tuple[MachineInstruction, ...]
    following: tuple[int, ...]


def block_starts(function: MachineFunction) -> dict[int, int]:
    """Return the index of the block that starts at each address."""
    starts = {0}
    for line in function.instructions:
        if line.opcode in CONTROL:
            starts.add(line.address + 16)
            if (target := _target(line, function)) is not None:
                starts.add(target)
    end = 16 * len(function.instructions)
    return {address: index for index, address in enumerate(sorted(starts)) if address < end}


def calls_import(line: MachineInstruction) -> bool:
    """Return whether an instruction calls a function by an address in registers."""
    return line.mnemonic.startswith("CALL.ABS") and re.fullmatch(r"R\d+", ",".join(line.operands)) is not None


def return_sites(function: MachineFunction, starts: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return the address and the block after each call: a callee returns to an address that it is given."""
    after = [line.address + 16 for line in function.instructions if line.opcode == "CALL" and not calls_import(line)]
    return [(each, starts.get(each, -1)) for each in after]


def _target(line: MachineInstruction, function: MachineFunction) -> int | None:
    match = LABEL.match(line.operands[-1]) if line.operands else None
    if line.opcode not in ("BRA", "BSSY", "CALL") or match is None:
        return None
    return function.labels.get(match[1])


def blocks_of(function: MachineFunction, starts: Mapping[int, int]) -> list[Block]:
    """Return the basic blocks of a function, which start at the addresses of `starts`."""
    lines, addresses = function.instructions, [*starts, 16 * len(function.instructions)]
    calls = [address for address, _ in return_sites(function, starts)]
    blocks = [lines[begin // 16 : end // 16] for begin, end in pairwise(addresses)]
    following = [
        {_index(starts, each) for each in _places_after(block[-1], end, function, calls)}
        for block, end in zip(blocks, addresses[1:], strict=True)
    ]
    _add_joins(blocks, following, function, starts)
    return [Block(block, tuple(sorted(after))) for block, after in zip(blocks, following, strict=True)]


def _index(starts: Mapping[int, int], address: int | None) -> int:
    """Return the block at an address; -1 for an unknown place, which matters only if the block is reached."""
    return -1 if address is None else starts.get(address, -1)


def _places_after(
    last: MachineInstruction, end: int, function: MachineFunction, calls: Sequence[int]
) -> Sequence[int | None]:
    """Return the addresses that may follow a block, without those where BSYNC joins; `end` is that after it."""
    if last.opcode == "BRA":
        always = last.guard is None and last.mnemonic == "BRA" and len(last.operands) == 1
        return [_target(last, function)] if always else [end, _target(last, function)]
    if calls_import(last) or (last.opcode == "EXIT" and last.guard is None and not last.operands):
        return []
    if last.opcode == "CALL":
        return [_target(last, function)] + ([end] if last.guard is not None else [])
    if last.opcode == "RET":
        returns: Sequence[int | None] = calls or [None]
        return [*returns, *([end] if last.guard is not None else [])]
    return [end]


def _add_joins(
    blocks: Sequence[Sequence[MachineInstruction]],
    following: Sequence[set[int]],
    function: MachineFunction,
    starts: Mapping[int, int],
) -> None:
    """Add the blocks at which threads join after BSYNC: the targets of each BSSY of its barrier that may reach it."""
    everywhere = {_index(starts, _target(each[-1], function)) for each in blocks if each[-1].opcode == "BSSY"}
    reaching: list[dict[str, set[int]] | None] = [{}, *[None] * (len(blocks) - 1)]
    work = [0] if blocks else []
    while work:
        index = work.pop()
        last, known = blocks[index][-1], reaching[index] or {}
        after = {name: set(targets) for name, targets in known.items()}
        barrier = last.operands[0] if last.operands and _CONVERGENCE.fullmatch(last.operands[0]) else None
        if last.opcode == "BSSY" and barrier is None:
            after = dict.fromkeys(after, everywhere)
        elif last.opcode == "BSSY" and barrier is not None:
            kept = after.get(barrier, set()) if last.guard is not None else set()
            after[barrier] = {_index(starts, _target(last, function)), *kept}
        elif last.opcode == "BSYNC":
            following[index] |= everywhere if barrier is None else known.get(barrier, everywhere)
        for each in following[index]:
            if each < 0:
                continue
            before = reaching[each]
            merged = {name: set(targets) for name, targets in (before or {}).items()}
            for name, targets in after.items():
                merged.setdefault(name, set()).update(targets)
            if merged != before:
                reaching[each] = merged
                work.append(each)


def reachable(blocks: Sequence[Block]) -> list[int]:
    """Return the blocks that are reached from the first, in order.  Raises NotUnderstood for an unknown jump."""
    if not blocks:
        raise NotUnderstood("a function without instructions")
    reached = {0}
    work = [0]
    while work:
        for each in blocks[work.pop()].following:
            if each < 0:
                raise NotUnderstood("a jump to an unknown place")
            if each not in reached:
                reached.add(each)
                work.append(each)
    return sorted(reached)
