"""The state of a batch of blocks: registers, masks and memories.  All mutable state of a run is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from bitwise_core.assembly.module import Immediate, Negated, Operand, Register, Symbol, Vector
from bitwise_core.execution.active_lanes import WholeBlocks, whole_mask
from bitwise_core.execution.clusters import Clusters
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.memory.async_groups import AsynchronousReads
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.races.race_histories import RaceDetectors
from bitwise_core.execution.thread_numbers import MAXIMUM_AGENTS, agent_of_block
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation


@dataclass(slots=True)
class Branch:
    """Transfers control to instruction `target` in the lanes where `taken` is true (None: all active lanes)."""

    target: int
    taken: Value | None = None


@dataclass(slots=True)
class Jump:
    """Transfers control in each active lane to its own instruction; `targets` broadcasts to (blocks, threads)."""

    targets: Array


@dataclass(slots=True)
class SkippableRegion:
    """The active lanes run from `start` (None: the next instruction) to `target`, although skipping is allowed as well.

    Both choices have the same result, except for the state that `forget` makes undefined.
    """

    target: int
    forget: Callable[[Machine], None]
    start: int | None = None


@dataclass(slots=True)
class Exit:
    """The active lanes end."""


@dataclass(slots=True)
class Return:
    """The active lanes return from a device function."""


@dataclass(slots=True)
class ConditionalEnd:
    """The active lanes end, or return from a device function, where `taken`, a predicate on data, is true."""

    taken: Value


@dataclass(slots=True)
class Call:
    """The active lanes call a device function."""

    function: str
    arguments: tuple[Value, ...]
    results: tuple[Operand, ...]


@dataclass(slots=True)
class Barrier:
    """The active lanes wait at barrier `number` until `count` threads of their block have arrived (None: all).

    `orders_global`: whether accesses to global memory before it are ordered before those after it.  `aligned`: the
    lanes of a warp must execute it together.
    """

    number: int
    count: int | None = None
    orders_global: bool = True
    aligned: bool = False


@dataclass(slots=True)
class Blocked:
    """The active lanes cannot continue until other threads have run; `what` names what they wait for.

    `may_go_on` returns whether it is worth while to try again; None: after each step of other threads.
    """

    what: str
    may_go_on: Callable[[], bool] | None = None


@dataclass(slots=True)
class Predicated:
    """Applies `control` to the active lanes where `mask` is true; the others continue at the next instruction."""

    control: Exit | Return | Call | Barrier | Blocked
    mask: Array


Control: TypeAlias = (
    Branch | Jump | SkippableRegion | Exit | Return | ConditionalEnd | Call | Barrier | Blocked | Predicated
)
Step: TypeAlias = Callable[["Machine"], Control | None]


@dataclass(slots=True)
class ClusterState:
    """The state of the clusters of a batch, of `size` blocks each; arrays have the shape (blocks, threads).

    `arrivals` and `waits` count how often each thread has arrived at the barrier of its cluster and waited for it.
    `ended` are the threads that have ended.
    """

    size: int
    arrivals: Array
    waits: Array
    ended: Array


@dataclass
class Machine:
    """Registers and memories of `blocks` blocks of `threads` threads, which run together.

    `mask` holds the active lanes, in a shape that broadcasts to (blocks, threads), or None for all of them.  `group`
    are the lanes at the current instruction, whatever its guard.  `owned`, if it is not None, are the lanes whose
    values `registers` holds, all lanes of some blocks; what it holds in other lanes is not read.  `live_elsewhere` says
    whether lanes outside of `group` may read a register before they write it, None: they may read any.
    `condition` is a predicate on data under which side effects happen, or None.  `path` is the conjunction of the
    choices of whole blocks, made by predicates on data that are uniform in a block, under which the current side of a
    branch is executed, or None.  Such a side has its own registers and memories, see `sides`.

    `block` is the extent of a block in threads (x, y, z), `clusters` the clusters of the launch.  `buffers` maps names
    of the launch's buffers to numbers; buffer i starts at address i * 2**POINTER_SHIFT.  `function_loops` are the lines
    of loops that may be one function where data ends them after many iterations, None for all loops.  `local` holds the
    threads' local arrays by address.  `asynchronous_reads` holds the asynchronous reads of shared memory.  `symbols`
    holds the addresses of arrays, and `windows`, for those whose address differs between blocks, the special register
    to add.  `cluster` is the state of the clusters, None if the blocks of a cluster do not depend on each other.
    `storing_agents` counts the asynchronous stores to global memory.  `splits_warps`: a branch may have split a warp;
    whether its lanes are together again is not determined.  `parted_lanes`: the same since the last aligned barrier
    that all threads have passed, or the last exchange between all lanes of all warps.  `splits_blocks`: threads of a
    block may have taken different ways.  `lowest_lane` is the note of
    executions that use `assumptions.LOWEST_LANE`, empty where it was requested, None where it does not hold.
    `used` collects the notes of measured facts that the execution used.  `runs_to_end`: the current part of the program
    is not to stop at an instruction.
    """

    domain: Domain
    blocks: int
    threads: int
    warp: int
    special: dict[str, Array]
    parameters: dict[str, Value]
    symbols: dict[str, int]
    shared: SharedMemory
    races: RaceDetectors
    memory: GlobalMemory
    thread: Array
    local_thread: Array
    block: tuple[int, int, int]
    clusters: Clusters
    buffers: Mapping[str, int]
    function_loops: frozenset[int] | None = None
    windows: dict[str, str] = field(default_factory=dict)
    registers: dict[str, Value] = field(default_factory=dict)
    local: dict[int, Value] = field(default_factory=dict)
    mask: Array | None = None
    group: Array | None = None
    owned: Array | None = None
    live_elsewhere: Callable[[str], bool] | None = None
    condition: Value | None = None
    path: Value | None = None
    epoch: Epoch = 0
    line: int = 0
    pc: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    asynchronous_reads: AsynchronousReads = field(default_factory=AsynchronousReads)
    cluster: ClusterState | None = None
    storing_agents: int = 0
    splits_warps: bool = False
    parted_lanes: bool = False
    splits_blocks: bool = False
    lowest_lane: str | None = None
    used: set[str] = field(default_factory=set)
    runs_to_end: bool = True
    _whole_blocks: tuple[Array, WholeBlocks] | None = None

    def read(self, operand: Operand) -> Value:
        """Return the value of a register, special register, literal or symbol operand."""
        if type(operand) is Register:
            name = operand.name
            value = self.registers.get(name)
            if value is not None:
                return value
            found = self.special.get(name)
            if found is not None:
                return found
            raise _UnwrittenRegister(name)
        if type(operand) is Immediate:
            return literal(operand.value, 32 if operand.kind != "f64" else 64)
        if type(operand) is Symbol:
            if operand.name in self.symbols:
                address = literal(self.symbols[operand.name], 64)
                window = self.windows.get(operand.name)
                return address if window is None else address + self.special[window]
            raise Unsupported(f"the symbol {operand.name} has no address")
        if type(operand) is Vector:
            return concat([self.read(item) for item in operand.items])
        if type(operand) is Negated:
            value = self.read(operand.operand)
            return invert(self.domain, value)
        raise Unsupported(f"the operand {operand} cannot be read as a value")

    def read_bits(self, operand: Operand, bits: int) -> Value:
        """Return the operand as a value of exactly `bits` bits.

        A literal takes that width.  A wider register is truncated.  Raises Unsupported for a narrower one.
        """
        if type(operand) is Immediate:
            return literal(operand.value, bits)
        try:
            value = self.read(operand)
        except _UnwrittenRegister:
            return poison(bits)
        have = L.width(value)
        if have == bits:
            return value
        if have > bits:
            return extract(value, 0, bits)
        if isinstance(value, np.ndarray) and type(operand) is Symbol:
            return value.astype(L.UNSIGNED[bits])
        raise Unsupported(f"a {have}-bit register is read as {bits} bits")

    def write(self, operand: Operand, value: Value) -> None:
        """Write a register in the active lanes; `_` discards the value."""
        if type(operand) is not Register:
            if type(operand) is Symbol and operand.name == "_":
                return
            if type(operand) is Vector:
                low = 0
                bits = L.width(value) // len(operand.items)
                for item in operand.items:
                    self.write(item, extract(value, low, bits))
                    low += bits
                return
            raise Unsupported(f"the operand {operand} cannot be written")
        name = operand.name
        if name == "_":
            return
        if self.mask is not None:
            if self.mask is self.owned or self.is_dead_elsewhere(name):
                value = self._of_active_lanes(value)
            else:
                old = self.registers.get(name)
                if old is None or L.width(old) != L.width(value):
                    old = poison(L.width(value))
                value = blend_values(self.mask, value, old)
        self.put(name, value)

    def _of_active_lanes(self, value: Value) -> Value:
        """Return what a register may hold of whose lanes only the active ones are read: bit patterns, where these are.

        Operations on an array take a fraction of the time of those on lanes of which some have no pattern.
        """
        if type(value) is np.ndarray or self.domain.name != "bits":
            return value
        some_lack = type(value) is L.SymbolicVector and not isinstance(value.flags, int)
        numbers = self.known(value) if some_lack or type(value) is L.PackedVector else None
        return value if numbers is None else numbers

    def is_dead_elsewhere(self, name: str) -> bool:
        """Whether no lane but those of the current instruction, all of which are active, may read a register again."""
        live = self.live_elsewhere
        return live is not None and self.mask is self.group and not live(name)

    def loading_agent(self) -> Array:
        """Return the number of the agent of each block that executes loads which nothing orders with stores."""
        return agent_of_block(self.thread[:, :1], 0)

    def new_storing_agent(self) -> Array:
        """Return the number of an agent of each block that executes an asynchronous store to global memory.

        Each call returns another one, since nothing orders two such stores.  Raises Unsupported if there are too many.
        """
        self.storing_agents += 1
        if self.storing_agents == MAXIMUM_AGENTS:
            raise Unsupported("a block makes too many asynchronous stores to follow them")
        return agent_of_block(self.thread[:, :1], self.storing_agents)

    @property
    def written_lanes(self) -> Array | None:
        """The active lanes, None if no other lane of a register that is written may be read."""
        return None if self.mask is self.owned else self.mask

    def put(self, name: str, value: Value) -> None:
        """Write a register in all lanes."""
        if self.domain.recorder is not None:
            self.domain.recorder.mark(value)
        self.registers[name] = value

    def set_parameter(self, name: str, value: Value) -> None:
        """Write a parameter of a call in the active lanes.

        As with registers, what a condition on data leaves unchanged is selected after the conditional instructions.
        """
        if self.mask is not None:
            old = self.parameters.get(name)
            if old is None or L.width(old) != L.width(value):
                old = poison(L.width(value))
            value = blend_values(self.mask, value, old)
        self.parameters[name] = value

    def known(self, value: Value) -> Array | None:
        """Return the value as an array if it is constant in every active lane, else None; other lanes are arbitrary."""
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, L.PackedVector):
            parts = [self.known(part) for part in value.parts]
            if any(part is None for part in parts):
                return None
            joined = concat([part for part in parts if part is not None])
            return joined if isinstance(joined, np.ndarray) else None
        special = L.lazy_integers(value)
        if special is not None:
            return special.known_numbers(self.mask)
        known = L.constant_mask(value)
        if known is True:
            return L.constants_of(value)
        if known is False:
            return None
        if (known if self.mask is None else known | ~self.mask).all():
            return L.constants_of(value)
        return None

    def active(self, shape: tuple[int, int] | None = None) -> Array:
        """Return the active lanes as a boolean array of the whole batch."""
        return whole_mask(self.mask, shape or (self.blocks, self.threads))

    def guard(self) -> Value | None:
        """Return the predicate on data under which the current instruction is executed, or None if it always is."""
        if self.path is None or self.condition is None:
            return self.path if self.condition is None else self.condition
        return conjunction(self.domain, self.path, self.condition)

    def active_threads(self) -> Array:
        """Return which threads are active in some block, shape (threads,)."""
        if self.mask is None:
            return np.ones(self.threads, dtype=bool)
        return np.broadcast_to(self.mask.any(axis=0), (self.threads,))

    def active_blocks(self) -> Array:
        """Return which blocks have an active lane, shape (blocks,)."""
        if self.mask is None or self.mask.shape[0] == 1:
            return np.ones(self.blocks, dtype=bool)
        rows: Array = np.any(self.mask, axis=1)
        return rows

    def active_blocks_of(self, thread: int) -> Array:
        """Return in which blocks a thread is active, shape (blocks,)."""
        if self.mask is None:
            return np.ones(self.blocks, dtype=bool)
        return np.broadcast_to(self.mask, (self.blocks, self.threads))[:, thread].copy()

    def active_whole_blocks(self) -> WholeBlocks | None:
        """Return the blocks whose lanes are all active, if no lane of another block may be read; otherwise None."""
        if self.owned is None or self.mask is not self.owned:
            return None
        if self._whole_blocks is None or self._whole_blocks[0] is not self.owned:
            self._whole_blocks = self.owned, WholeBlocks.of(self.owned)
        return self._whole_blocks[1]

    def active_warps(self) -> Array:
        """Return the numbers of the warps with an active lane."""
        if self.mask is None:
            return np.arange(-(-self.threads // self.warp))
        active = self.active_threads()
        if self.threads % self.warp == 0:
            return np.flatnonzero(active.reshape(-1, self.warp).any(axis=1))
        return np.unique(np.flatnonzero(active) // self.warp)

    def active_whole_warps(self) -> list[int]:
        """Return the warps all of whose lanes are active, where all active blocks have the same active threads."""
        active = self.active_threads()
        return [warp for warp in self.active_warps().tolist() if active[warp * self.warp :][: self.warp].all()]


class _UnwrittenRegister(Exception):
    """A read of a register that nothing has written."""


def is_unwritten_register(error: Exception) -> bool:
    """Return whether the error is the read of a register before any write."""
    return isinstance(error, _UnwrittenRegister)


_LITERALS: dict[tuple[int, int], Array] = {}


def literal(number: int, bits: int) -> Array:
    """Return a number as an array of shape (1, 1), wrapped to `bits` bits (1: a predicate)."""
    key = (number, bits)
    found = _LITERALS.get(key)
    if found is None:
        if len(_LITERALS) > 1 << 16:
            _LITERALS.clear()
        found = np.full((1, 1), bool(number) if bits == 1 else number & ((1 << bits) - 1), dtype=L.UNSIGNED[bits])
        found.setflags(write=False)
        _LITERALS[key] = found
    return found


_NOT, _AND = operation("not.b1"), operation("and.b1")


def invert(domain: Domain, predicate: Value) -> Value:
    """Return the negation of a predicate."""
    if isinstance(predicate, np.ndarray):
        return ~predicate
    special = L.lazy_integers(predicate)
    opposite = None if special is None else special.apply([predicate], np.logical_not)
    if opposite is not None:
        found: Value = opposite
        return found
    return domain.integer(_NOT, [predicate])


def conjunction(domain: Domain, left: Value | None, right: Value) -> Value:
    """Return the conjunction of two predicates."""
    if left is None:
        return right
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left & right
    return domain.integer(_AND, [left, right])
