"""Accesses of asynchronous agents: of the work that a thread issues and that completes later.

An agent has a clock next to those of the warps.  A warp has seen an access of an agent complete if its own clock holds
the time of that access, because it waited for the agent, or for a memory barrier at which the agent arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What an agent does to some cells: it reads them, or it writes them and may read them.

    `agent` identifies the agent, and `thread` issues its work.  `kind` numbers the kind of work.  `after` are the kinds
    of work of the same agent after which this work is executed in any case, as in a pipeline.  `repeats`: the work
    writes exactly what the last write of these cells writes.  `rank`: the agent and the thread belong to the block of
    this rank in the cluster, None for the block whose cells are accessed.
    """

    agent: tuple[int, ...]
    thread: int
    writes: bool
    kind: int = 0
    after: frozenset[int] = frozenset()
    repeats: bool = False
    rank: int | None = None


@dataclass(slots=True)
class AgentMemory:
    """The last accesses of each cell of a memory that only agents access.

    `writer` is the number of the agent with the last write, -1 for none; `written` is its time, `written_as` its kind.
    `reads` holds the times of the last reads by agent and kind; time 0 stands for no read.
    """

    writer: Array = field(default_factory=lambda: np.full(0, -1, dtype=np.int64))
    written: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    written_as: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    reads: dict[tuple[int, int], Array] = field(default_factory=dict)

    def copy(self) -> AgentMemory:
        """Return an independent copy."""
        reads = {key: times.copy() for key, times in self.reads.items()}
        return AgentMemory(self.writer.copy(), self.written.copy(), self.written_as.copy(), reads)

    def record(self, cells: Array, access: AgentAccess, agent: int, time: int, seen: Array) -> Array:
        """Record an access at a time of an agent; `seen` is the clock of the warp that issues it.

        Returns which cells have an earlier access with which this one conflicts and after which it is not ordered.  A
        write that repeats another one is as a read of what that one leaves, in whatever order the two are executed.
        """
        self._require(int(cells.max(initial=-1)) + 1)
        writer = self.writer[cells]
        unordered = (writer >= 0) & (self.written[cells] > seen[writer])
        kind, pipelined = self.written_as[cells], np.zeros(cells.shape, dtype=bool)
        for each in access.after:
            pipelined |= kind == each
        unordered &= ~((writer == agent) & pipelined)
        if access.repeats:
            unordered = self._unordered_with_reads(cells, access, agent, seen)
        if not access.writes or access.repeats:
            key = agent, access.kind
            if key not in self.reads:
                self.reads[key] = np.zeros(self.writer.size, dtype=np.int32)
            self.reads[key][cells] = time
            return unordered
        unordered |= self._unordered_with_reads(cells, access, agent, seen)
        self.writer[cells], self.written[cells], self.written_as[cells] = agent, time, access.kind
        return unordered

    def _unordered_with_reads(self, cells: Array, access: AgentAccess, agent: int, seen: Array) -> Array:
        found = np.zeros(cells.shape, dtype=bool)
        for (reader, kind), times in self.reads.items():
            if reader != agent or kind not in access.after:
                found |= times[cells] > seen[reader]
        return found

    def _require(self, cells: int) -> None:
        more = cells - self.writer.size
        if more <= 0:
            return
        self.writer = np.pad(self.writer, (0, more), constant_values=-1)
        self.written, self.written_as = (np.pad(each, (0, more)) for each in (self.written, self.written_as))
        self.reads = {key: np.pad(times, (0, more)) for key, times in self.reads.items()}

    def state(self, seen: Array) -> Iterator[Array]:
        """Yield arrays that are equal for two histories only if later accesses conflict in both or in neither.

        Every warp has seen the times `seen`, by agent.  No later access conflicts with what came before these.
        """
        late = np.flatnonzero((self.writer >= 0) & (self.written > seen[self.writer]))
        writer = self.writer[late]
        yield from (late, writer, self.written[late] - seen[writer], self.written_as[late])
        for key, times in sorted(self.reads.items()):
            late = np.flatnonzero(times > seen[key[0]])
            if late.size:
                yield from (np.array(key, dtype=np.int64), late, times[late] - seen[key[0]])
